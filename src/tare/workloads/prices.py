"""Prices: the seconds that one unit of each kind of work takes inside an instance, such as a system call or page fault.

`tare prices` runs it, and `tare advise` computes from it what an application would cost. Each kind of work is measured
alone, so that prices can be added:

- `user`: a fixed piece of user code, which also misses the second cache. Only its ratio to the baseline counts.
- `call`, `poll`, `futex`: a system call that has nothing to do: getppid, an epoll_wait for an event that is there, and
  the begin and end of a wait that does not sleep.
- `pipe`: a message of 64 bytes written to a pipe and read from it by the same process. `switch`: one that wakes another
  process on the same CPU while the first one falls asleep, so that the message is part of it.
- `file-read`, `file-write`: 4 KiB of a file in the cache. `sync`: fdatasync after a write of 4 KiB.
- `open`, `stat`: a file opened and closed, and looked up. `map`: a mapping of 64 KiB made and removed.
- `fault`: a page of 4 KiB of new memory, and its way back to the kernel.
- `thread`: a thread started and ended. `process`: a small program, linked statically, started by fork and exec.

In each turn the program starts anew and does as many units as fill the turn. Its start is not measured. The kinds are
those of lmbench, will-it-scale and `perf bench`, which no paper of virtualization has put together as a price list.

Where a stack keeps its root in memory, as gVisor does, a sync there reaches no disk and costs less than on bare metal;
the caution `file-system-differs` says so, and `place = "volume"` measures a data volume.

Settings: `duration`, of each kind; `place`, where its file is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tare.contracts.workloads import MeasurementContext
from tare.model.trials import Raw, Value
from tare.model.work import NETWORK, WORK
from tare.units import Duration
from tare.workloads.loads.disk import OnDisk
from tare.workloads.loads.prices import metrics_of, read_prices, working_seconds
from tare.workloads.loads.turns import SLOWEST, limit_seconds, rounds_of, turn_seconds

_INSIDE = tuple(work for work in WORK if work not in NETWORK)
_FILE_BYTES = 1 << 20  # of the program


@dataclass(frozen=True)
class Prices(OnDisk):
    """What one unit of each kind of work takes inside."""

    name = "prices"
    title = "Prices: work inside"
    metrics = metrics_of(_INSIDE)

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 0.2

    @property
    def needed_bytes(self) -> int:
        """Its file."""
        return _FILE_BYTES

    @property
    def rounds(self) -> int:
        """Turns of a tenth of the duration."""
        return rounds_of(self.duration)

    def measure(self, setup: MeasurementContext) -> Iterator[Raw]:
        """Run the program inside for each kind; raises TrialFailed without an inside, or for work that fails."""
        inside, seconds = self.inside(setup), turn_seconds(self.duration)
        for _ in range(self.rounds):
            for work in _INSIDE:
                argv = ("/usr/lib/tare/price", self.folder, work.name, "--seconds", f"{seconds:.6g}")
                output = inside.run(*argv, timeout=limit_seconds(SLOWEST * seconds))
                yield Raw(work.name, argv, output.text, output.seconds)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the seconds of a unit of each kind; raises TrialFailed for anything but whole results."""
        return read_prices("price", _INSIDE, raw)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return working_seconds(_INSIDE, self.rounds, turn_seconds(self.duration))
