"""Resource usage and proportional memory of a set of processes.

The kernel's counters are per process. They vanish with the process, but the kernel adds them to those of the parent
that waits for the process. `ResourceUsage` sums such counters up: the sum never falls and counts nothing twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.hosts.host import Host

Identity = tuple[int, float]  # PID and start time, as the kernel uses PIDs again
PROGRAM = "usr/lib/tare/footprint"  # relative to the image's directory on the host, where the program runs
_SECONDS = 60.0


@dataclass(frozen=True)
class Count:
    """Counter of one process: its total, and the part that the process took over from children that ended.

    If the kernel does not count this part, as for disk transfers, `taken_over` equals `total`. The sum over the
    processes is then a lower bound.
    """

    parent: int
    total: float
    taken_over: float


class ResourceUsage:
    """Sum of one counter over processes since the first sample, in the counter's unit.

    A process that starts and ends between two samples counts in its parent. It is lost if its parent is not among the
    processes.
    """

    def __init__(self) -> None:
        self._before: dict[Identity, float] = {}
        self._last: dict[Identity, Count] = {}
        self._ended_totals: dict[Identity, float] = {}
        self._unclaimed: dict[int, float] = {}
        self._ended = 0.0
        self._highest = 0.0

    def update(self, counts: Mapping[Identity, Count], born: frozenset[Identity]) -> float:
        """Add a sample of the living processes' counters; return the sum since the first sample.

        `born` are processes that started after the first sample, whose whole counters count.
        """
        self._settle_ended(counts)
        for identity, count in counts.items():
            if identity not in self._before:
                first = 0.0 if identity in born else count.total
                # A process that was missing in one sample looked ended, and its total was added already.
                self._before[identity] = self._ended_totals.get(identity, first)
        self._last = dict(counts)
        living = sum(count.total - self._before[identity] for identity, count in counts.items())
        # The files of parent and child are not read at the same instant, so the sum could fall for one sample.
        self._highest = max(self._highest, self._ended + living)
        return self._highest

    def _settle_ended(self, counts: Mapping[Identity, Count]) -> None:
        """Add the totals of ended processes, minus the parts that the parents that waited for them have taken over."""
        taken_over = {
            identity[0]: count.taken_over - self._last[identity].taken_over
            for identity, count in counts.items()
            if identity in self._last
        }
        ended = {identity: count for identity, count in self._last.items() if identity not in counts}
        parents = {identity[0]: count.parent for identity, count in ended.items()}
        used_by_heir: defaultdict[int, float] = defaultdict(float)
        for parent, used in self._unclaimed.items():
            used_by_heir[_heir(parent, parents)] += used
            self._ended -= used
        for identity, count in ended.items():
            used_by_heir[_heir(count.parent, parents)] += count.total
            self._ended -= self._before.pop(identity)
            self._ended_totals[identity] = count.total
        left = {heir: max(0.0, used - taken_over.get(heir, 0.0)) for heir, used in used_by_heir.items()}
        self._ended += sum(left.values())
        # A parent may have been read before it waited for its child. Its next sample may still take over the total.
        self._unclaimed = {heir: left[heir] for heir in {_heir(count.parent, parents) for count in ended.values()}}


def _heir(parent: int, parents_of_ended: Mapping[int, int]) -> int:
    """Return the PID of the nearest ancestor that did not end between the same two samples."""
    unseen = dict(parents_of_ended)
    while parent in unseen:  # visit each PID once, as PIDs that were used again could form a cycle
        parent = unseen.pop(parent)
    return parent


def measure_proportional_memory(
    host: Host, root: Path, pids: Sequence[int], others: Iterable[int] = ()
) -> tuple[int | None, int]:
    """Return the proportional set size of processes of a host in bytes, and the number of living processes.

    A page that n processes share counts one nth for each process. Mappings by `others`, the processes of other living
    instances, do not count, so that the size is that of the instance running by itself (programs/footprint.c). `root`
    is the directory of the image on the host. The size is None if no process is left, or if the kernel does not report
    shared pages, because a partial sum or a resident set size would look like a result.
    """
    if not pids:
        return None, 0
    words = (*map(str, pids), "--", *map(str, others))
    output = host.run(str(root / PROGRAM), *words, timeout=_SECONDS, check=False)
    if output.exit_code:
        return None, len(pids)
    size, processes = (int(word) for word in output.text.split())
    return (size if processes else None), processes
