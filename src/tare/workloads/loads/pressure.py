"""Memory pressure: the smallest memory with which a server still meets its goal, and its throughput over memory.

The OSv paper (section 3.3) halved the memory of a machine, from 1 GiB, until its server failed or was much slower. So
does this, and then looks for the smallest memory between the last two: always in their geometric middle, until they are
no further apart than `precision`. Each memory is that of a fresh instance, which takes turns with another fresh one.
That one has all the memory that the suite gives, and the goal is a share of its throughput in the same rounds. Both are
fresh, as some become faster with use: Redis in gVisor by half within a second. Chance slows one of two instances, too:
one that is too slow is tried again, and the goal is missed when five are consecutive. An instance that does not start,
ends, or does not answer in time has missed it at once. Its *fate* is in the raw output: it answered, it answered with
pages in swap, a kernel ended a process of it or could not boot for lack of memory, it was late, or it failed otherwise,
with the reason: docs/decisions/searches.md.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated

from pydantic import Field

from tare.contracts.workloads import Another, Further, MeasurementContext, Workload
from tare.errors import OutOfMemory, TareError, TimedOut, TrialFailed, Unreachable
from tare.model.trials import Metric, Output, Raw, Sweep, Value
from tare.units import Percent, Size, format_size
from tare.workloads.loads.further import WithFurther
from tare.workloads.loads.load import LoadDuration
from tare.workloads.loads.search import Fate, Outcome, Search, Try, is_fate, read_outcome

_FULL, _LESS = "full: ", "less: "
_USUAL_HALVES, _START_SECONDS = 8, 0.2


@dataclass(frozen=True)
class UnderPressure(WithFurther):
    """Looks for the smallest memory of a server. A plug-in defines the `load`, of one value above 0 a round."""

    metrics = (
        Metric("floor", "Smallest memory that meets the goal", "bytes", "lower", overall=False),
        Metric("throughput", "Throughput over memory", "requests/s", "higher", headline=False),
    )
    sweep = Sweep("memory", "bytes")

    goal: Annotated[Percent, Field(gt=0, lt=1)] = 0.9
    precision: Annotated[Percent, Field(ge=0.01, le=0.5)] = 0.05
    least: Annotated[Size, Field(ge=1 << 16)] = 1 << 20
    duration: LoadDuration = 0.5

    def measure(self, setup: MeasurementContext) -> Iterator[Raw]:
        """Try one memory after the other; raises TrialFailed if the goal is met even with the least one."""
        further = self.further(setup)
        search = Search(further.limit_bytes)
        for number in itertools.count(1):
            limit_bytes = search.following(self.precision)
            if limit_bytes is None:
                return
            if limit_bytes < self.least:
                what = f"{self.name} meets its goal with {format_size(search.high)}"
                raise TrialFailed(f"{what}, and less is not tried", f"set least below {format_size(self.least)}")
            tried: list[Raw] = []
            for raw in self._tried(further, limit_bytes, number):
                tried.append(raw)
                yield raw
            search = search.after(self._read([raw for raw in tried if not raw.warm_up]), self.goal)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the smallest memory, and the rates at halves of the whole; raises TrialFailed unless it was found."""
        tries = [self._read(each) for each in _divided(raw)]
        if not tries:
            raise TrialFailed(f"{self.name} tried no memory", "`tare show` has its raw output")
        search, rates = Search(tries[0].outcome.full_bytes), defaultdict[int, list[float]](list)
        for each in tries:
            if each.outcome.limit_bytes != search.following(self.precision):
                what = f"{self.name} tried {each.outcome.limit_bytes} bytes out of turn"
                raise TrialFailed(what, "the outputs are not those of one search with these settings")
            rates[each.outcome.full_bytes] += each.full
            rates[each.outcome.limit_bytes] += () if search.low else each.less  # those at halves
            search = search.after(each, self.goal)
        if search.following(self.precision) is not None:
            raise TrialFailed(f"{self.name} did not end its search", "`tare show` has how far it came")
        if not search.met:  # what fails whatever its memory would look like a stack that needs all of it
            last = tries[-1].outcome
            what = f"no instance with less than {format_size(last.full_bytes)} meets the goal"
            reason = last.reason or "all were too slow"
            raise TrialFailed(f"{what}; the last one: {reason}", "give the suite more memory, or set a lower goal")
        values = (Value("throughput", float(limit), fmean(found)) for limit, found in sorted(rates.items()) if found)
        return (Value("floor", None, float(search.high)), *values)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`: each try starts and measures two instances."""
        between = math.ceil(math.log2(math.log(2) / math.log1p(self.precision)))
        return 2 * (_USUAL_HALVES + between) * (_START_SECONDS + self.load.seconds())

    def _tried(self, further: Further, limit_bytes: int, number: int) -> Iterator[Raw]:
        """Measure an instance with this memory in turns with one that has all of it; the last output is its fate."""
        outcome = Outcome(limit_bytes, further.limit_bytes, "answered")
        with ExitStack() as outer:
            whole = _started_whole(outer, further, self.load)
            try:
                with further.started(self.load, limit_bytes) as another, ExitStack() as exits:
                    full, less = (_begun(exits, self.load.measure(each.setup)) for each in (whole, another))
                    yield from _in_turns(full, less)
                    swapped_bytes = another.swapped_bytes()
                    if swapped_bytes:
                        outcome = replace(outcome, fate="swapped", swapped_bytes=swapped_bytes)
            except Unreachable:
                raise
            except TrialFailed as error:
                reason = f"{error} ({error.hint})" if error.hint else str(error)
                outcome = replace(outcome, fate=_fate_of(error), reason=reason)
                yield from _last_words(error.output)
        yield outcome.written(number)

    def _read(self, raw: Sequence[Raw]) -> Try:
        """Read the outputs of one try; raises TrialFailed unless they are whole."""
        if not raw or not is_fate(raw[-1]):
            raise TrialFailed(f"{self.name} has no fate of its last try", "`tare show` has its raw output")
        outcome = read_outcome(raw[-1])
        if not outcome.ended:
            return Try(outcome)
        full, less = (self._rates(raw[:-1], side) for side in (_FULL, _LESS))
        if not len(full) == len(less) == self.load.rounds or len(full) + len(less) != len(raw) - 1:
            raise TrialFailed(f"{self.name} has outputs of {[each.label for each in raw]}, not of whole rounds")
        return Try(outcome, full, less)

    def _rates(self, raw: Sequence[Raw], side: str) -> tuple[float, ...]:
        """Read the rates of one of the two instances, round by round; raises TrialFailed for one without an answer."""
        own = [replace(each, label=each.label.removeprefix(side)) for each in raw if each.label.startswith(side)]
        rates = tuple(value.value for each in own for value in self.load.parse([each]))
        if not all(rate > 0 for rate in rates):
            whose = "all its memory" if side == _FULL else "less memory"
            what = f"{self.name}: the instance with {whose} gave no answer in one of its rounds"
            raise TrialFailed(what, "`tare show` has the output of each round")
        return rates


def _started_whole(exits: ExitStack, further: Further, load: Workload) -> Another:
    """Start an instance with all the memory; where that fails, it is no fate of a try but a failed trial."""
    try:
        return exits.enter_context(further.started(load))
    except TrialFailed as error:
        raise _failed_whole(error) from error


def _failed_whole(error: TrialFailed) -> TareError:
    return error if isinstance(error, Unreachable) else TareError(f"with all its memory: {error}", error.hint)


def _begun(exits: ExitStack, measuring: Iterable[Raw]) -> Iterator[Raw]:
    """Begin to measure; what it has started ends with the block."""
    if isinstance(measuring, Generator):
        exits.callback(measuring.close)
    return iter(measuring)


def _in_turns(full: Iterator[Raw], less: Iterator[Raw]) -> Iterator[Raw]:
    """Let both have their turns, each first in every other round."""
    sides = [(_FULL, full), (_LESS, less)]
    ended = False
    while not ended:
        for side, measuring in sides:
            raw = _next_of(measuring, side)
            if raw is None:
                ended = True
                continue
            # Whether the client was the bottleneck is asked of the instance that has all the memory.
            client_cpu = raw.client_cpu if side == _FULL else None
            yield replace(raw, label=f"{side}{raw.label}", client_cpu=client_cpu)
        sides.reverse()


def _next_of(measuring: Iterator[Raw], side: str) -> Raw | None:
    """Return the next output; where it fails with all the memory, that is no fate of a try but a failed trial."""
    try:
        return next(measuring, None)
    except TrialFailed as error:
        if side == _LESS:
            raise
        raise _failed_whole(error) from error


def _fate_of(error: TrialFailed) -> Fate:
    if isinstance(error, OutOfMemory):
        return "out of memory"
    return "late" if isinstance(error, TimedOut) else "failed"


def _last_words(output: Output | None) -> Iterator[Raw]:
    if output is not None:
        text = (output.stdout + output.stderr).decode("utf-8", "replace")
        yield Raw(f"{_LESS}failed command", output.argv, text, output.seconds)


def _divided(raw: Sequence[Raw]) -> Iterator[Sequence[Raw]]:
    """Divide the outputs into tries: each ends with its fate."""
    begin = 0
    for at, each in enumerate(raw, start=1):
        if is_fate(each) or at == len(raw):
            yield raw[begin:at]
            begin = at
