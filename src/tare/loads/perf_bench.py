"""What the benchmarks of `perf bench` share; docs/decisions/loads.md says why it was chosen.

perf makes exactly as many loops as asked for, and times them alone. A process of perf that fails lets the others end
early: what it writes to standard error belongs to the output, so that this is no whole result.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from pydantic import Field

from tare.hosts.host import Host
from tare.loads.parsing import check_labels
from tare.loads.turns import limit_seconds, probe_until_half_turn
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Value
from tare.plugins.workload import MeasurementContext, Workload

MAX_LOOPS = 2**31 - 1  # perf counts them in an int, and cuts off what is more


@dataclass(frozen=True)
class Bench:
    """One benchmark: `argv` is what `perf bench` takes without the number of loops, `operations` those of a loop.

    `result` matches a whole good output; its group `estimate_seconds` is in seconds, or `each` in microseconds for each
    loop. A group `loops` must be as asked.
    """

    argv: tuple[str, ...]
    result: re.Pattern[str]
    operations: int
    metric: str
    point: float | None = None

    @property
    def label(self) -> str:
        """Name it for the parser, as `sockets 1`."""
        return self.metric if self.point is None else f"{self.metric} {self.point:g}"


@dataclass(frozen=True)
class PerfBench(Workload):
    """Benchmarks that take turns. A plug-in defines which, and how many loops each makes in a turn."""

    name: ClassVar[str]
    title: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    packages = ("linux-perf",)

    @property
    @abstractmethod
    def benches(self) -> tuple[Bench, ...]:
        """The benchmarks, in order."""

    @property
    @abstractmethod
    def turn_seconds(self) -> float:
        """How long a turn of a benchmark usually is."""

    @abstractmethod
    def loops_after(self, loops: int, seconds: float) -> int:
        """Return the loops of a benchmark's next turn, after one with these loops that took so long."""

    def perf_command(self, inside: Host) -> tuple[str, ...]:  # noqa: ARG002 - one of them looks
        """Return what starts perf in the instance."""
        return ("perf", "bench")

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run perf inside; raises TrialFailed without an inside, and for a benchmark that failed."""
        inside = setup.require_inside(self.name)
        command = self.perf_command(inside)
        loops: dict[str, int] = {}
        for bench in self.benches:
            run = partial(self._run, inside, command, bench)
            probe, loops[bench.label] = probe_until_half_turn(run, partial(self._next_loops, bench), 1)
            yield probe.as_warm_up()
        for _ in range(self.rounds):
            for bench in self.benches:
                raw = self._run(inside, command, bench, loops[bench.label])
                yield raw
                loops[bench.label] = self._next_loops(bench, raw)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Read the operations a second; raises TrialFailed for anything but whole results of the asked loops."""
        labels = [bench.label for bench in self.benches]
        check_labels(raw, labels)
        return tuple(
            Value(bench.metric, bench.point, _read_rate(bench, each))
            for bench, each in zip(self.benches, raw, strict=True)
        )

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: two turns' probes, and the start of perf in each turn."""
        return 0.1 + len(self.benches) * (2 + self.rounds) * (0.02 + self.turn_seconds)

    def _next_loops(self, bench: Bench, raw: RawOutput) -> int:
        """Return the loops of the turn after this output."""
        return self.loops_after(*_read_work(bench, raw))

    def _run(self, inside: Host, command: tuple[str, ...], bench: Bench, loops: int) -> RawOutput:
        argv = (*command, *bench.argv, "-l", str(loops))
        output = inside.run(*argv, timeout=limit_seconds(self.turn_seconds))
        return RawOutput(bench.label, argv, output.text + output.stderr.decode("utf-8", "replace"), output.seconds)


@dataclass(frozen=True)
class FixedLoopBench(PerfBench):
    """Benchmarks that take more than their loops, such as the start and the end of processes.

    Every turn makes the same loops on every stack: if it had as many as fill it, a slow stack would have few of them,
    and seem slower than it is. `usual_rate` is the loops a second of a machine of today.
    """

    duration_setting = "repetitions"
    usual_rate: ClassVar[float]

    loops: Annotated[int, Field(ge=10, le=MAX_LOOPS)] = 100
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 10

    @property
    def rounds(self) -> int:
        """One for each repetition."""
        return self.repetitions

    @property
    def turn_seconds(self) -> float:
        """What the loops take."""
        return self.loops / self.usual_rate

    def loops_after(self, loops: int, seconds: float) -> int:  # noqa: ARG002 - they are always the same
        """Return the number of loops, which does not change."""
        return self.loops


def _read_rate(bench: Bench, raw: RawOutput) -> float:
    loops, seconds = _read_work(bench, raw)
    rate = loops * bench.operations / seconds if 0 < seconds < math.inf else 0.0
    if not 0 < rate < math.inf:
        raise TrialFailed(f"perf bench gave no rate for {bench.label}; {quote_output(raw.text)}", _hint(bench))
    return rate


def _read_work(bench: Bench, raw: RawOutput) -> tuple[int, float]:
    """Read the loops that were asked for, and their seconds."""
    asked = int(raw.argv[-1]) if raw.argv[-1:] and raw.argv[-1].isdecimal() else 0
    found = bench.result.fullmatch(raw.text)
    groups = found.groupdict() if found else {}
    if found is None or asked < 1 or int(groups.get("loops", asked)) != asked:
        raise TrialFailed(
            f"perf bench gave no result as asked for {bench.label}; {quote_output(raw.text)}", _hint(bench)
        )
    return asked, float(groups["seconds"]) if "seconds" in groups else float(groups["each"]) * asked / 1e6


def _hint(bench: Bench) -> str:
    return f"`tare show` has the whole output; it is that of `perf bench {' '.join(bench.argv)}`"
