"""Prices: unit costs of operations inside an instance, such as the seconds of a system call or a page fault.

`tare prices` runs this workload, and `tare advise` computes from it what an application would cost. Each operation kind
is measured by itself, so that unit costs can be added:

- `user`: a fixed piece of user code, which also misses the second cache. Only its ratio to the baseline counts.
- `call`, `poll`, `futex`: a system call that has nothing to do: getppid, an epoll_wait for an event that is there, and
  the begin and end of a wait that does not sleep.
- `pipe`: a message of 64 bytes, written to a pipe and read from it by the same process. `switch`: a message that wakes
  another process on the same CPU while the first process falls asleep, so that it includes the message.
- `file-read`, `file-write`: 4 KiB of a file in the cache. `sync`: fdatasync after a write of 4 KiB.
- `open`, `stat`: a file opened and closed, and looked up. `map`: a mapping of 64 KiB made and removed.
- `fault`: a page of 4 KiB of new memory, and its way back to the kernel.
- `thread`: a thread started and ended. `process`: a small program, linked statically, started by fork and exec.

Each turn starts the program again, which performs the operations that fill the turn. Its start is not measured. The
kinds are those of lmbench, will-it-scale and `perf bench`. No paper on virtualization has combined them to a price
list.

If a stack keeps its root in memory, as gVisor does, a sync reaches no disk and costs less than on bare metal. The
caution `file-system-differs` reports this, and `place = "volume"` measures a data volume.

Settings: `duration` of each kind; `place` of the file, the root of the instance or a data volume.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from tare.loads.disk import FileWorkload
from tare.loads.parsing import check_labels
from tare.loads.turns import SLOWEST_CPU_FACTOR, TurnWorkload, limit_seconds, turn_seconds
from tare.model.errors import TrialFailed, quote_output
from tare.model.operations import NETWORK_KINDS, OPERATION_KINDS, OperationKind
from tare.model.trial import Metric, RawOutput, Value
from tare.model.units import Duration
from tare.plugins.workload import MeasurementContext

_PROBING_SHARE = 0.5  # share of a turn for probes, in which the program finds how many operations fill a turn


def unit_cost_metrics(kinds: Sequence[OperationKind]) -> tuple[Metric, ...]:
    """Return a metric for each operation kind, in seconds per unit."""
    return tuple(
        Metric(kind.name, f"{kind.title[0].upper()}{kind.title[1:]}", "s", "lower", overall=False) for kind in kinds
    )


class UnitCostWorkload(TurnWorkload):
    """Workload that measures all `operation_kinds` in turns, by one `program`."""

    operation_kinds: ClassVar[tuple[OperationKind, ...]]
    program: ClassVar[str]

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the unit cost of each kind in seconds; raises TrialFailed unless each has one complete output."""
        check_labels(raw, [kind.name for kind in self.operation_kinds])
        return tuple(Value(each.label, None, read_unit_cost(self.program, each.label, each)) for each in raw)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: each kind has a turn in each round."""
        return 0.1 + len(self.operation_kinds) * self.rounds * (
            0.01 + (1 + _PROBING_SHARE) * turn_seconds(self.duration)
        )


def read_unit_cost(program: str, kind: str, raw: RawOutput) -> float:
    """Return the seconds of one operation that a program printed; raises TrialFailed unless the output is complete."""
    head = rf"program: {program}\nkind: {kind}\n"
    found = re.fullmatch(rf"{head}times: (?P<times>\d+)\nseconds: (?P<seconds>\d+\.\d+)\n", raw.text, re.ASCII)
    times, seconds = (float(found["times"]), float(found["seconds"])) if found else (0.0, 0.0)
    price = seconds / times if 0 < times < math.inf else 0.0
    if not 0 < price < math.inf:
        what = f"{program} gave no unit cost of {kind}; {quote_output(raw.text)}"
        raise TrialFailed(what, "`tare show` has the whole output")
    return price


@dataclass(frozen=True)
class Prices(UnitCostWorkload, FileWorkload):
    """Unit costs of operations inside an instance."""

    name = "prices"
    title = "Prices: work inside"
    operation_kinds = tuple(kind for kind in OPERATION_KINDS if kind not in NETWORK_KINDS)
    program = "unit_cost"
    metrics = unit_cost_metrics(operation_kinds)
    needed_bytes = 1 << 20  # the file of the program

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 0.2

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the program inside for each kind; raises TrialFailed without an inside, or if an operation fails."""
        inside, seconds = self.create_folder(setup), turn_seconds(self.duration)
        for _ in range(self.rounds):
            for kind in self.operation_kinds:
                argv = (f"/usr/lib/tare/{self.program}", self.folder, kind.name, "--seconds", f"{seconds:.6g}")
                output = inside.run(*argv, timeout=limit_seconds(SLOWEST_CPU_FACTOR * seconds))
                yield RawOutput(kind.name, argv, output.text, output.seconds)
