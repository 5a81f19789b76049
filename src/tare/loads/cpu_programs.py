"""Bases of compute workloads: programs of the image that verify their results, and the tests of sysbench.

A turn of sysbench runs the number of events that fills it at the rate so far; a probe before the first turn finds the
rate. The value counts the time in which threads worked on events. The rate that sysbench prints also includes the start
of its threads, up to 7 ms of each turn.
"""

from __future__ import annotations

import functools
import math
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from tare.hosts.host import Host
from tare.loads.parsing import check_labels
from tare.loads.turns import (
    COMPUTE_TURN,
    SLOWEST_CPU_FACTOR,
    ShortTurnWorkload,
    TurnWorkload,
    count_rounds,
    drop_discarded,
    limit_seconds,
    read_discarded,
    run_compute_turns,
    run_filled_turns,
    turn_seconds,
)
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import CpuShare, LimitsSpec, Metric, RawOutput, Value
from tare.model.turn_length import TurnLength, TurnProbe
from tare.model.units import Duration
from tare.plugins.workload import MeasurementContext

_MAX_PASSES = 2_147_483_627  # as in VTmark, whose Dhrystone counts passes in 32 bits
CPU_SHARE = r"(?:cpu_share: (\d+\.\d+) of (\d+\.\d+)\n)?"  # printed for turns of a resident program
HEAD = (
    r"sysbench 1\.\S+ .*\n\nRunning the test with following options:\nNumber of threads: (?P<threads>\d+)\n"
    r"Initializing random number generator from current time\n\n\n"
)
THREADS_STARTED = r"Initializing worker threads\.\.\.\n\nThreads started!\n\n"
TAIL = (
    r"General statistics:\n    total time: .*\n    total number of events: +(?P<events>\d{1,18})\n\n"
    r"Latency \(ms\):\n(?:    .*\n){4}         sum: +(?P<worked>\d+\.\d+)\n\nThreads fairness:\n(?:    .*\n){2}\n"
)
_MIN_SECONDS = 1e-5  # the resolution in which sysbench prints the time of its work


def read_cpu_share(had: str | None, wanted: str | None) -> CpuShare | None:
    """Return the CPU share from the groups of `CPU_SHARE`; None without a match."""
    return CpuShare(float(had), float(wanted)) if had and wanted else None


@dataclass(frozen=True)
class ComputeWorkload(ShortTurnWorkload):
    """Workload of one command and one speed.

    - `result` matches a complete, verified output, after the lines of the part to discard; it begins with `CPU_SHARE`.
      Its group `speed` is in units of `scale` times the metric's unit, its group `passes` the number of passes, its
      group `seconds` their time.
    - `count_option` is the option that sets the number of passes.
    - `usual_speed` is the passes a second of a current machine, for estimates.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    result: ClassVar[re.Pattern[str]]
    count_option: ClassVar[str]
    usual_speed: ClassVar[float]
    scale = 1.0
    usual_turn = COMPUTE_TURN

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 0.2
    passes: Annotated[int, Field(ge=0, le=_MAX_PASSES)] = 0
    repetitions: Annotated[int, Field(ge=1, le=100)] = 5

    @property
    def rounds(self) -> int:
        """Number of turns: short ones that fill the duration, or one for each repetition of a number of passes."""
        return self.repetitions if self.passes else count_rounds(self.duration, self.turn_length.measure_seconds)

    @property
    def has_short_turns(self) -> bool:
        """Whether it measures for a time, and not a number of passes."""
        return not self.passes

    @property
    def duration_setting(self) -> str:
        """Setting that decides how long the workload takes."""
        return "passes" if self.passes else "duration"

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the program inside; raises TrialFailed without an inside, or for wrong results.

        The program stays resident and takes short turns. The distance between a program's stack and its data changes
        its speed by up to a quarter; each turn goes over many distances (programs/timed_loop.h). With a number of
        passes, the program starts in each turn, as in VTmark.
        """
        inside = setup.require_inside(self.name)
        turns = run_compute_turns(inside, (self._program,), self.name, (self.turn_length,) * self.rounds)
        for raw in self._run_passes(inside) if self.passes else turns:
            yield raw
            self.parse((raw,))  # a wrong result fails the trial now, not after its last turn

    def probe_turns(self, setup: MeasurementContext, lengths: Iterable[TurnLength]) -> Iterator[TurnProbe]:
        """Run turns of these lengths; raises TrialFailed for wrong results."""
        for raw in run_compute_turns(setup.require_inside(self.name), (self._program,), self.name, lengths):
            match = self._match(raw)
            yield TurnProbe(*read_discarded(raw.text), float(match["seconds"]), float(match["speed"]))

    def _run_passes(self, inside: Host) -> Iterator[RawOutput]:
        argv = (self._program, self.count_option, f"{self.passes}")
        for _ in range(self.rounds):
            output = inside.run(*argv, timeout=limit_seconds(SLOWEST_CPU_FACTOR * self.passes / self.usual_speed))
            yield RawOutput(self.name, argv, output.text, output.seconds)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the speed; raises TrialFailed for anything but one complete, verified result."""
        check_labels(raw, [self.name])
        match = self._match(raw[0])
        share = read_cpu_share(*match.groups()[:2])
        return (Value("speed", None, float(match["speed"]) * self.scale, cpu_share=share),)

    def _match(self, raw: RawOutput) -> re.Match[str]:
        """Match a complete, verified result; raises TrialFailed for any other output."""
        match = self.result.fullmatch(drop_discarded(raw.text))
        if match and self.passes in (0, int(match["passes"])) and 0 < float(match["speed"]) < math.inf:
            return match
        hint = "`tare show` has the whole output; the program ends with `verified: yes` when its results are right"
        raise TrialFailed(f"{self.name} gave no verified speed; {quote_output(raw.text)}", hint)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, without a number of passes with the discarded part of each turn."""
        turns = self.rounds * self.turn_length.seconds
        return 0.1 + (self.repetitions * self.passes / self.usual_speed if self.passes else turns)

    @property
    def _program(self) -> str:
        return f"/usr/lib/tare/{self.name}"


@dataclass(frozen=True)
class SysbenchTest(TurnWorkload):
    """Test of sysbench with one metric. A plug-in defines the options of the test and matches its output."""

    name: ClassVar[str]
    title: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    test: ClassVar[str]  # its name on sysbench's command line
    packages = ("sysbench",)

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0
    threads: Annotated[int, Field(ge=1, le=1024)] = 1

    def fit_to_limits(self, limits: LimitsSpec) -> Mapping[str, object]:
        """Lower `threads` to the CPUs of the instance: more threads would only wait for a CPU."""
        return {"threads": min(self.threads, limits.cpus)}

    @abstractmethod
    def options(self, events: int) -> tuple[str, ...]:
        """Return the options of the test for this number of events, in addition to threads, events and time."""

    @abstractmethod
    def match_output(self, text: str) -> re.Match[str] | None:
        """Match a complete output of this test with these settings, built from `HEAD`, `THREADS_STARTED` and `TAIL`."""

    @property
    def units_per_event(self) -> int:
        """Units of the metric in one event."""
        return 1

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run sysbench inside; raises TrialFailed without an inside."""
        run = functools.partial(self._run, setup.require_inside(self.name))
        yield from run_filled_turns(run, self._estimate_events, self.threads, self.rounds)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the rate; raises TrialFailed for anything but one complete result with these settings."""
        check_labels(raw, [self.name])
        events, seconds = self._read_work(raw[0].text)
        rate = events * self.units_per_event / seconds if 0 < seconds < math.inf else 0.0
        if not 0 < rate < math.inf:
            raise TrialFailed(f"sysbench gave no rate; {quote_output(raw[0].text)}", self._hint)
        return (Value(self.metrics[0].name, None, rate),)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: probes, and the start of sysbench in each turn."""
        return 0.1 + 1.1 * self.duration + turn_seconds(self.duration) + 0.01 * self.rounds

    @property
    def _hint(self) -> str:
        return f"`tare show` has the whole output; it is that of `sysbench {self.test}`, version 1.0"

    def _run(self, inside: Host, events: int) -> RawOutput:
        how = (f"--threads={self.threads}", f"--events={events}", "--time=0", *self.options(events))
        argv = ("sysbench", self.test, *how, "run")
        # Until the first probe, the length of an event is unknown. Later numbers of events fill a turn.
        usual_seconds = self.duration if events == self.threads else turn_seconds(self.duration)
        output = inside.run(*argv, timeout=limit_seconds(usual_seconds))
        return RawOutput(self.name, argv, output.text, output.seconds)

    def _estimate_events(self, raw: RawOutput) -> int:
        """Return the number of events that fill a turn at the rate of an output, at least one for each thread."""
        events, seconds = self._read_work(raw.text)
        return max(self.threads, math.ceil(events / max(seconds, _MIN_SECONDS) * turn_seconds(self.duration)))

    def _read_work(self, text: str) -> tuple[int, float]:
        """Return the number of events, and the mean seconds that a thread worked on them."""
        found = self.match_output(text)
        if found is None or int(found["threads"]) != self.threads:
            raise TrialFailed(f"sysbench gave no result as asked; {quote_output(text)}", self._hint)
        return int(found["events"]), float(found["worked"]) / 1000 / self.threads
