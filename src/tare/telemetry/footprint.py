"""What an instance's processes cost their host in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tare.contracts import Host
from tare.telemetry.parsers import parse_proportional_bytes

# For each process a line of its own, then the kernel's. What is gone has no folder, what has ended has no memory.
_READ = """
root=$1 && shift
for process do
    [ -d "$root/$process" ] || continue
    echo "process $process"
    cat "$root/$process/smaps_rollup" 2>&1
done
"""


def footprint(host: Host, pids: Sequence[int], proc_root: str = "/proc") -> tuple[int | None, int]:
    """Sum up the proportional set size of processes of a host in bytes, and count those that were still there.

    A page that n processes share counts one nth for each, so the sum over an instance is what would come free with it,
    apart from what it shares with others. Processes that have vanished are left out. The memory is None where it cannot
    be read for one of the others (no permission, or a kernel before 4.14): a part of the sum, or a resident set size in
    its place, would look like a result. It is also None where no process is left.
    """
    if not pids:
        return None, 0
    output = host.run("sh", "-c", _READ, "sh", proc_root, *map(str, pids), timeout=30, check=False)
    texts = [entry.partition("\n")[2] for entry in f"\n{output.text}".split("\nprocess ")[1:]]
    sizes = [_proportional_bytes(text) for text in texts if "No such process" not in text]
    known = [value for value in sizes if value is not None]
    return (sum(known) if known and len(known) == len(sizes) else None), len(sizes)


def _proportional_bytes(text: str) -> int | None:
    try:
        return parse_proportional_bytes(text)
    except ValueError:
        return None
