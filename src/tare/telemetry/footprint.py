"""What an instance's processes cost their host in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tare.telemetry.parsers import parse_proportional_bytes


def footprint(pids: Sequence[int], proc_root: Path = Path("/proc")) -> tuple[int | None, int]:
    """Sum up the proportional set size of processes in bytes, and count those that were still there.

    A page that n processes share counts one nth for each, so the sum over an instance is what would come free with it,
    apart from what it shares with others. Processes that have vanished are left out. The memory is None where it cannot
    be read for one of the others (no permission, or a kernel before 4.14): a part of the sum, or a resident set size in
    its place, would look like a result. It is also None where no process is left.
    """
    found: list[int | None] = []
    for pid in pids:
        folder = proc_root / str(pid)
        try:
            found.append(
                parse_proportional_bytes((folder / "smaps_rollup").read_text(encoding="ascii", errors="replace"))
            )
        except ProcessLookupError:  # gone, or ended and not yet waited for: it has no memory any more
            continue
        except (OSError, ValueError):
            if folder.exists():
                found.append(None)
    known = [value for value in found if value is not None]
    return (sum(known) if known and len(known) == len(found) else None), len(found)
