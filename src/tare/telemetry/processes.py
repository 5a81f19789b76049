"""Resource usage and proportional memory of a set of processes.

The kernel counts for each process. When a process ends, its counters vanish, except that the kernel adds them to those
of its parent. `Used` makes a sum of such counters that never falls and counts nothing twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.hosts.host import Host

Identity = tuple[int, float]  # process number and start: numbers are given out again
PROGRAM = "usr/lib/tare/footprint"  # in the image: it runs on the host, which has the image's directory
_SECONDS = 60.0


@dataclass(frozen=True)
class Count:
    """One counter of one process: its total, and the part of it that it took over from children that ended.

    If the kernel does not count that part, as for disk transfers, `taken_over` equals `total`, and the sum over the
    processes is a lower bound.
    """

    parent: int
    total: float
    taken_over: float


class ResourceUsage:
    """Sums up one counter over processes since the first look, in the counter's unit.

    A process that came and went between two looks counts in its parent; it is lost if its parent is not among the
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
        """Take the counters of the living processes; return what all have used since the first look.

        `born` are processes that began after the first look: all that they used counts.
        """
        self._settle_ended(counts)
        for identity, count in counts.items():
            if identity not in self._before:
                first = 0.0 if identity in born else count.total
                self._before[identity] = self._ended_totals.get(
                    identity, first
                )  # it may have been missing for one look only
        self._last = dict(counts)
        living = sum(count.total - self._before[identity] for identity, count in counts.items())
        # The files of parent and child are not read at the same instant, so the sum could dip for one look.
        self._highest = max(self._highest, self._ended + living)
        return self._highest

    def _settle_ended(self, counts: Mapping[Identity, Count]) -> None:
        """Keep what ended processes used, minus what the parents that waited for them have taken over."""
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
        # The parent may have been read before it waited for its child: its next reading may still take over.
        self._unclaimed = {heir: left[heir] for heir in {_heir(count.parent, parents) for count in ended.values()}}


def _heir(parent: int, parents_of_ended: Mapping[int, int]) -> int:
    """Find the nearest ancestor that did not end in the same moment."""
    unseen = dict(parents_of_ended)
    while parent in unseen:  # each only once: numbers that were given out again could make a circle
        parent = unseen.pop(parent)
    return parent


def measure_proportional_memory(
    host: Host, root: Path, pids: Sequence[int], others: Iterable[int] = ()
) -> tuple[int | None, int]:
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
