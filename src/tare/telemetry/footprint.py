"""The memory that an instance's processes cost their host."""

from __future__ import annotations

from collections.abc import Sequence

from tare.contracts import Host
from tare.telemetry.parsers import parse_proportional_bytes

# Prints a line for each process, then the kernel's text. A process that is gone has no folder; a zombie has no memory.
_READ = """
root=$1 && shift
for process do
    [ -d "$root/$process" ] || continue
    echo "process $process"
    cat "$root/$process/smaps_rollup" 2>&1
done
"""


def footprint(host: Host, pids: Sequence[int], proc_root: str = "/proc") -> tuple[int | None, int]:
    """Give the sum of the proportional set sizes of processes of a host in bytes, and the number of processes.

    A page that n processes share counts one nth for each. Processes that have ended do not count. The sum is None if no
    process is left, or if one cannot be read (no permission, or a kernel before 4.14): a partial sum, or a resident set
    size instead, would look like a result.
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
