"""The memory that an instance's processes cost their host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tare.hosts.host import Host

PROGRAM = "usr/lib/tare/footprint"  # in the image: it runs on the host, which has the image's directory
_SECONDS = 60.0


def footprint(host: Host, root: Path, pids: Sequence[int], others: Iterable[int] = ()) -> tuple[int | None, int]:
    """Return the proportional set size of processes of a host in bytes, and the number of processes.

    A page that n processes share counts one nth for each, but a share of `others`, the processes of instances that are
    alive together with this one, does not count: this is what the instance costs alone (programs/footprint.c). `root`
    is the directory of the image on the host. Processes that have ended do not count. The size is None if no process is
    left, or if the kernel does not report which pages are shared: a partial sum, or a resident set size instead, would
    look like a result.
    """
    if not pids:
        return None, 0
    words = (*map(str, pids), "--", *map(str, others))
    output = host.run(str(root / PROGRAM), *words, timeout=_SECONDS, check=False)
    if output.exit_code:
        return None, len(pids)
    size, processes = (int(word) for word in output.text.split())
    return (size if processes else None), processes
