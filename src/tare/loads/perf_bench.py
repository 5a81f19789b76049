"""Base of workloads that run `perf bench`; docs/decisions/loads.md has the reasons for this choice.

perf runs exactly the requested number of loops, and times only these. If one of its processes fails, the others end
early, but perf still prints a result. So standard error is part of the output, which then does not match.
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

MAX_LOOPS = 2**31 - 1  # perf truncates a larger number to an int


@dataclass(frozen=True)
class Bench:
    """Benchmark of perf: `argv` are its arguments without the number of loops, `operations` the operations of a loop.

    `result` matches a complete output. It has a group `seconds`, the time of all loops, or a group `each`, the
    microseconds of a loop. A group `loops` must be the requested number.
    """

    argv: tuple[str, ...]
    result: re.Pattern[str]
    operations: int
    metric: str
    point: float | None = None

    @property
    def label(self) -> str:
        """Label of the output, such as `sockets 1`."""
        return self.metric if self.point is None else f"{self.metric} {self.point:g}"


@dataclass(frozen=True)
class PerfBench(Workload):
    """Workload of benchmarks that take turns. A plug-in defines the benchmarks and the loops of a turn."""

    name: ClassVar[str]
    title: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    packages = ("linux-perf",)

    @property
    @abstractmethod
    def benches(self) -> tuple[Bench, ...]:
        """Benchmarks, in order."""

    @property
    @abstractmethod
    def turn_seconds(self) -> float:
        """Usual length of a benchmark's turn."""

    @abstractmethod
    def loops_after(self, loops: int, seconds: float) -> int:
        """Return the loops of a benchmark's next turn, after a turn with these loops and seconds."""

    def perf_command(self, inside: Host) -> tuple[str, ...]:  # noqa: ARG002 - a subclass reads from the instance
        """Return the command line that starts perf in the instance."""
        return ("perf", "bench")

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run perf inside; raises TrialFailed without an inside, and if a benchmark fails."""
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
        """Return the operations a second; raises TrialFailed for anything but complete results of all loops."""
        labels = [bench.label for bench in self.benches]
        check_labels(raw, labels)
        return tuple(
            Value(bench.metric, bench.point, _read_rate(bench, each))
            for bench, each in zip(self.benches, raw, strict=True)
        )

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: probes of two turns, and the start of perf in each turn."""
        return 0.1 + len(self.benches) * (2 + self.rounds) * (0.02 + self.turn_seconds)

    def _next_loops(self, bench: Bench, raw: RawOutput) -> int:
        """Return the loops of the turn that follows an output."""
        return self.loops_after(*_read_work(bench, raw))

    def _run(self, inside: Host, command: tuple[str, ...], bench: Bench, loops: int) -> RawOutput:
        argv = (*command, *bench.argv, "-l", str(loops))
        output = inside.run(*argv, timeout=limit_seconds(self.turn_seconds))
        return RawOutput(bench.label, argv, output.text + output.stderr.decode("utf-8", "replace"), output.seconds)


@dataclass(frozen=True)
class FixedLoopBench(PerfBench):
    """Workload of benchmarks whose time includes more than their loops, such as the start and the end of processes.

    Every turn runs the same number of loops on every stack. If it ran the loops that fill the turn, a slow stack would
    have few of them, and the constant part would make it seem slower than it is: `qemu-tcg` seemed to switch only 7,800
    times a second. `usual_rate` is the loops a second of a current machine, for estimates.
    """

    duration_setting = "repetitions"
    usual_rate: ClassVar[float]

    loops: Annotated[int, Field(ge=10, le=MAX_LOOPS)] = 100
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 10

    @property
    def rounds(self) -> int:
        """Number of turns, one for each repetition."""
        return self.repetitions

    @property
    def turn_seconds(self) -> float:
        """Usual seconds of the loops."""
        return self.loops / self.usual_rate

    def loops_after(self, loops: int, seconds: float) -> int:  # noqa: ARG002 - they are always the same
        """Return the constant number of loops."""
        return self.loops


def _read_rate(bench: Bench, raw: RawOutput) -> float:
    loops, seconds = _read_work(bench, raw)
    rate = loops * bench.operations / seconds if 0 < seconds < math.inf else 0.0
    if not 0 < rate < math.inf:
        raise TrialFailed(f"perf bench gave no rate for {bench.label}; {quote_output(raw.text)}", _hint(bench))
    return rate


def _read_work(bench: Bench, raw: RawOutput) -> tuple[int, float]:
    """Return the requested loops and their seconds; raises TrialFailed if the output is not of that many loops."""
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
