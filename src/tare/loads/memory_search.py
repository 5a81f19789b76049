"""Memory search: the smallest memory with which a server still meets its goal, and its throughput over memory.

The OSv paper (section 3.3) halved the memory of a machine, from 1 GiB, until its server failed or was much slower. This
search does the same, and then tries the geometric middle of the last two sizes until they differ by no more than
`precision`. Each size is tried in a fresh instance, which takes turns with a second fresh instance that has all the
memory of the suite. The goal is a share of the second one's throughput in the same rounds. Both are fresh, because some
stacks become faster with use: Redis in gVisor by half within a second.

Noise slows one of two instances, too. So an instance that is too slow is tried again, and five consecutive misses miss
the goal. An instance that does not start, ends, or does not answer in time misses the goal at once. The raw output has
the *fate* of each attempt: answered, answered with pages in swap, out of memory, late, or failed with a reason
(docs/decisions/loads.md).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tare.loads.client_load import LoadDuration
from tare.loads.density import LoadServerWorkload
from tare.model.errors import OutOfMemory, TareError, TimedOut, TrialFailed, Unreachable, quote_output
from tare.model.trial import Metric, Output, RawOutput, Sweep, Value
from tare.model.units import Percent, Size, format_size
from tare.plugins.workload import ExtraInstance, InstanceStarter, MeasurementContext, Workload

AttemptFate = Literal["answered", "swapped", "out of memory", "late", "failed"]
_Bytes = Annotated[int, Field(ge=0, le=2**63 - 1)]
_FATE_PREFIX = "fate "
# With short turns, one attempt in five misses by chance (30 of 158), and a search has ten steps. With three attempts,
# two of 24 trials ended far above their memory, such as Docker at 152 MiB in place of 7.
_GOAL_ATTEMPTS = 5
_FINE_BELOW_BYTES = 32 << 20  # virtual machines take whole MiB, but none runs with so little
_FINE_STEP_BYTES, _STEP_BYTES = 4096, 1 << 20
_FULL_PREFIX, _LESS_PREFIX = "full: ", "less: "
_USUAL_HALVES, _START_SECONDS = 8, 0.2  # for estimates: halves until the goal is missed, seconds per start


@dataclass(frozen=True)
class AttemptResult:
    """Recorded result of an attempt: its memory limit, all the memory, and its fate."""

    limit_bytes: Annotated[_Bytes, Field(gt=0)]
    full_bytes: Annotated[_Bytes, Field(gt=0)]
    fate: AttemptFate
    swapped_bytes: _Bytes = 0
    reason: str = ""

    @property
    def was_measured(self) -> bool:
        """Whether all rounds were measured."""
        return self.fate in ("answered", "swapped")

    def to_raw_output(self, number: int) -> RawOutput:
        """Return the last output of an attempt. `number` makes its label unique, so that `tare show` lists all."""
        return RawOutput(f"{_FATE_PREFIX}{number}", (), f"{_ATTEMPT_RESULT.dump_json(self).decode()}\n", 0.0)


_ATTEMPT_RESULT = TypeAdapter(AttemptResult)


def is_fate(raw: RawOutput) -> bool:
    """Return whether an output is the last one of an attempt."""
    return raw.label.startswith(_FATE_PREFIX)


def read_attempt_result(raw: RawOutput) -> AttemptResult:
    """Return the result in the last output of an attempt; raises TrialFailed."""
    try:
        return _ATTEMPT_RESULT.validate_json(raw.text, strict=True)
    except ValidationError as error:
        raise TrialFailed(f"a try has an unknown fate; {quote_output(raw.text)}") from error


@dataclass(frozen=True)
class Attempt:
    """Attempt with the rates of both instances, round by round; no rates if it did not finish its rounds."""

    result: AttemptResult
    full_rates: Sequence[float] = ()
    less_rates: Sequence[float] = ()

    def meets(self, goal: float) -> bool:
        """Return whether the median round reaches this share of the throughput with all the memory."""
        shares = [less / full for full, less in zip(self.full_rates, self.less_rates, strict=True)]
        return bool(shares) and median(shares) >= goal


@dataclass(frozen=True)
class MemorySearch:
    """State of a search, in bytes of memory.

    `high` is the smallest memory that met the goal, at first all the memory, and `low` the largest memory that missed
    it, or 0. `slow_attempts` counts the consecutive misses of the memory that is being tried, by instances that
    answered. `has_met` is true once an instance with less than all the memory has met the goal.
    """

    high: int
    low: int = 0
    slow_attempts: int = 0
    has_met: bool = False

    def with_attempt(self, attempt: Attempt, goal: float) -> MemorySearch:
        """Return the state after one more attempt."""
        tried = attempt.result.limit_bytes
        if attempt.meets(goal):
            return MemorySearch(high=tried, low=self.low, has_met=True)
        if attempt.less_rates and self.slow_attempts + 1 < _GOAL_ATTEMPTS:
            return replace(self, slow_attempts=self.slow_attempts + 1)
        return MemorySearch(high=self.high, low=tried, has_met=self.has_met)

    def next_limit_bytes(self, precision: float) -> int | None:
        """Return the memory to try next: half, or the geometric middle; None once the precision is reached."""
        if not self.low:
            return self.high // 2
        if self.high <= self.low * (1 + precision):
            return None
        step = _FINE_STEP_BYTES if self.high < _FINE_BELOW_BYTES else _STEP_BYTES
        # Geometric, because costs of memory are judged by ratio: the middle of 8 and 128 MiB is 32, not 68.
        middle = round(math.sqrt(self.low * self.high) / step) * step
        return middle if self.low < middle < self.high else None


@dataclass(frozen=True)
class SmallestMemory(LoadServerWorkload):
    """Search for the smallest memory of a server. A plug-in defines the `load`, with one value above 0 a round."""

    metrics = (
        Metric("floor", "Smallest memory that meets the goal", "bytes", "lower", overall=False),
        Metric("throughput", "Throughput over memory", "requests/s", "higher", headline=False),
    )
    sweep = Sweep("memory", "bytes")

    goal: Annotated[Percent, Field(gt=0, lt=1)] = 0.9
    precision: Annotated[Percent, Field(ge=0.01, le=0.5)] = 0.05
    least: Annotated[Size, Field(ge=1 << 16)] = 1 << 20
    duration: LoadDuration = 0.5

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Try one memory after the other; raises TrialFailed if even the smallest one meets the goal."""
        starter = setup.require_starter(self.name)
        search = MemorySearch(starter.memory_limit_bytes)
        for number in itertools.count(1):
            limit_bytes = search.next_limit_bytes(self.precision)
            if limit_bytes is None:
                return
            if limit_bytes < self.least:
                what = f"{self.name} meets its goal with {format_size(search.high)}"
                raise TrialFailed(f"{what}, and less is not tried", f"set least below {format_size(self.least)}")
            outputs: list[RawOutput] = []
            for raw in self._run_attempt(starter, limit_bytes, number):
                outputs.append(raw)
                yield raw
            search = search.with_attempt(self._read_attempt([raw for raw in outputs if not raw.warm_up]), self.goal)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the smallest memory, and the rates at the halves; raises TrialFailed unless the search succeeded."""
        attempts = [self._read_attempt(outputs) for outputs in _split_attempts(raw)]
        if not attempts:
            raise TrialFailed(f"{self.name} tried no memory", "`tare show` has its raw output")
        search = MemorySearch(attempts[0].result.full_bytes)
        rates_by_memory = defaultdict[int, list[float]](list)
        for attempt in attempts:
            result = attempt.result
            if result.limit_bytes != search.next_limit_bytes(self.precision):
                what = f"{self.name} tried {result.limit_bytes} bytes out of turn"
                raise TrialFailed(what, "the outputs are not those of one search with these settings")
            rates_by_memory[result.full_bytes] += attempt.full_rates
            if not search.low:  # only the halves are points of the sweep: every stack tries them, the middles differ
                rates_by_memory[result.limit_bytes] += attempt.less_rates
            search = search.with_attempt(attempt, self.goal)
        if search.next_limit_bytes(self.precision) is not None:
            raise TrialFailed(f"{self.name} did not end its search", "`tare show` has how far it came")
        if not search.has_met:  # a server that fails with any memory would look like one that needs all of it
            last = attempts[-1].result
            what = f"no instance with less than {format_size(last.full_bytes)} meets the goal"
            reason = last.reason or "all were too slow"
            raise TrialFailed(f"{what}; the last one: {reason}", "give the suite more memory, or set a lower goal")
        throughputs = (
            Value("throughput", float(memory), fmean(rates))
            for memory, rates in sorted(rates_by_memory.items())
            if rates
        )
        return (Value("floor", None, float(search.high)), *throughputs)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: each attempt starts and measures two instances."""
        # Each middle halves the logarithm of the ratio of the last two sizes, which is 2 at first.
        middles = math.ceil(math.log2(math.log(2) / math.log1p(self.precision)))
        return 2 * (_USUAL_HALVES + middles) * (_START_SECONDS + self.load.estimate_seconds())

    def _run_attempt(self, starter: InstanceStarter, limit_bytes: int, number: int) -> Iterator[RawOutput]:
        """Measure an instance with this memory in turns with one that has all the memory.

        The last output is the fate. Only failures of the instance with less memory become a fate. All others, and a
        lost machine, fail the trial.
        """
        fate: AttemptFate = "answered"
        swapped_bytes, reason = 0, ""
        with ExitStack() as outer:
            full = _start_full_instance(outer, starter, self.load)
            try:
                with starter.start_instance(self.load, limit_bytes) as less, ExitStack() as exits:
                    full_outputs = _start_measuring(exits, self.load.measure(full.setup))
                    less_outputs = _start_measuring(exits, self.load.measure(less.setup))
                    yield from _interleave(full_outputs, less_outputs)
                    swapped_bytes = less.swapped_bytes()
                    fate = "swapped" if swapped_bytes else "answered"
            except Unreachable:
                raise
            except TrialFailed as error:
                fate, reason = _classify_error(error), f"{error} ({error.hint})" if error.hint else str(error)
                yield from _final_output(error.output)
        yield AttemptResult(limit_bytes, starter.memory_limit_bytes, fate, swapped_bytes, reason).to_raw_output(number)

    def _read_attempt(self, raw: Sequence[RawOutput]) -> Attempt:
        """Return the attempt in these outputs; raises TrialFailed unless they are complete."""
        if not raw or not is_fate(raw[-1]):
            raise TrialFailed(f"{self.name} has no fate of its last try", "`tare show` has its raw output")
        result = read_attempt_result(raw[-1])
        if not result.was_measured:
            return Attempt(result)
        full, less = (self._read_rates(raw[:-1], side) for side in (_FULL_PREFIX, _LESS_PREFIX))
        if not len(full) == len(less) == self.load.rounds or len(full) + len(less) != len(raw) - 1:
            raise TrialFailed(f"{self.name} has outputs of {[each.label for each in raw]}, not of whole rounds")
        return Attempt(result, full, less)

    def _read_rates(self, raw: Sequence[RawOutput], side: str) -> tuple[float, ...]:
        """Return the rates of one of the two instances, round by round; raises TrialFailed for a rate of 0."""
        outputs = [replace(each, label=each.label.removeprefix(side)) for each in raw if each.label.startswith(side)]
        rates = tuple(value.value for each in outputs for value in self.load.parse([each]))
        if not all(rate > 0 for rate in rates):
            whose = "all its memory" if side == _FULL_PREFIX else "less memory"
            what = f"{self.name}: the instance with {whose} gave no answer in one of its rounds"
            raise TrialFailed(what, "`tare show` has the output of each round")
        return rates


def _start_full_instance(exits: ExitStack, starter: InstanceStarter, load: Workload) -> ExtraInstance:
    """Start an instance with all the memory. A failure becomes a TareError, which fails the trial and is no fate."""
    try:
        return exits.enter_context(starter.start_instance(load))
    except TrialFailed as error:
        raise _to_trial_error(error) from error


def _to_trial_error(error: TrialFailed) -> TareError:
    return error if isinstance(error, Unreachable) else TareError(f"with all its memory: {error}", error.hint)


def _start_measuring(exits: ExitStack, measuring: Iterable[RawOutput]) -> Iterator[RawOutput]:
    """Return the iterator of a measurement, whose programs `exits` ends."""
    if isinstance(measuring, Generator):
        exits.callback(measuring.close)
    return iter(measuring)


def _interleave(full: Iterator[RawOutput], less: Iterator[RawOutput]) -> Iterator[RawOutput]:
    """Yield the outputs of both instances in turns; the instance that begins alternates from round to round."""
    sides = [(_FULL_PREFIX, full), (_LESS_PREFIX, less)]
    ended = False
    while not ended:
        for side, measuring in sides:
            raw = _take_next(measuring, side)
            if raw is None:
                ended = True
                continue
            # An instance with too little memory is slow by itself. Only the other one can show a client bottleneck.
            client_cpu = raw.client_cpu if side == _FULL_PREFIX else None
            yield replace(raw, label=f"{side}{raw.label}", client_cpu=client_cpu)
        sides.reverse()


def _take_next(measuring: Iterator[RawOutput], side: str) -> RawOutput | None:
    """Return the next output, None at the end. A failure with all the memory becomes a TareError (see above)."""
    try:
        return next(measuring, None)
    except TrialFailed as error:
        if side == _LESS_PREFIX:
            raise
        raise _to_trial_error(error) from error


def _classify_error(error: TrialFailed) -> AttemptFate:
    if isinstance(error, OutOfMemory):
        return "out of memory"
    return "late" if isinstance(error, TimedOut) else "failed"


def _final_output(output: Output | None) -> Iterator[RawOutput]:
    if output is not None:
        text = (output.stdout + output.stderr).decode("utf-8", "replace")
        yield RawOutput(f"{_LESS_PREFIX}failed command", output.argv, text, output.seconds)


def _split_attempts(raw: Sequence[RawOutput]) -> Iterator[Sequence[RawOutput]]:
    """Yield the outputs of each attempt, which end with its fate."""
    begin = 0
    for at, each in enumerate(raw, start=1):
        if is_fate(each) or at == len(raw):
            yield raw[begin:at]
            begin = at
