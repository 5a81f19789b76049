"""The knee: the highest rate of requests that a server's answers follow, which the load finds.

The 2015 paper (section 3.1) "increased the request rate from a base rate of 1000 requests per second until the server's
response rate no longer scaled with the request rate", and named the rate that the server could sustain. Here that is

    knee = the highest rate at which answers >= (1 - tolerance) * requests

with the requests that were asked for, not those that a slow client sent. With a tolerance of 0 it is the throughput of
RFC 1242 (section 3.17), which RFC 2544 (section 26.1) finds by such runs; with a tolerance it is what network testers
call a partial drop rate.

The search: rates rise through `rates`, then double, until answers no longer follow. If they do not follow the first
rate, rates halve. Then the interval between the highest rate that was followed and the lowest that was not is halved
until it is as narrow as the resolution. The knee is its lower end. Rates of the bisection are no points of the sweep:
stacks have the rising ones in common. A rate has several runs, each a turn, so that stacks alternate; the majority
decides, so that a short burst of noise does not. A stack whose search has ended has no more turns.

What the client could not do is never taken for the server's limit: a run that failed by the client is no point, and
where the knee's upper end is one, the trial is marked as client-bound, with the reason: the knee is then a lower bound.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Annotated

from pydantic import AfterValidator, Field

from tare.loads.client_load import MAX_RATE, MIN_RATE, LoadDuration, Rates
from tare.loads.parsing import as_output
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import RawOutput, Sweep, Value
from tare.model.units import Duration, Percent
from tare.plugins.workload import MeasurementContext, Workload

_HINT = "`tare show` has the whole output"


def _check_odd(runs: int) -> int:
    if runs < 1 or runs % 2 == 0:
        raise ValueError("the number of runs is odd, so that their majority decides")
    return runs


@dataclass(frozen=True)
class RateResult:
    """What came of a run at one rate: the share of the requests that were answered, and the values of this point.

    `client_problem` is what the client could not do; empty if nothing.
    """

    answered_share: float
    values: tuple[Value, ...]
    client_problem: str = ""


@dataclass(frozen=True)
class KneeSearch:
    """A search for the knee, which lies between `low`, 0 at first, and `high`, None while rates rise.

    `client_problem` is what the client could not do at `high`; empty if the server did not follow.
    """

    rates: tuple[int, ...]
    resolution: float
    low: int = 0
    high: int | None = None
    client_problem: str = ""

    @property
    def rate(self) -> int | None:
        """The rate to try next; None at the end."""
        if self.high is None:
            above = next((rate for rate in self.rates if rate > self.low), 2 * self.low)
            return above if above <= MAX_RATE else None
        if not self.low:
            return self.high // 2 if self.high // 2 >= MIN_RATE else None
        middle = (self.low + self.high) // 2
        return middle if self.high > self.low * (1 + self.resolution) and middle > self.low else None

    @property
    def is_stepping(self) -> bool:
        """Whether the next rate is one that all stacks have in common, until they fail."""
        return self.high is None or not self.low

    def with_result(self, followed: bool, client: str = "") -> KneeSearch:
        """Learn whether the rate was followed and, if not, what the client could not do."""
        if self.rate is None:
            raise ValueError("the search has ended")
        low, high, why = (self.rate, self.high, self.client_problem) if followed else (self.low, self.rate, client)
        return KneeSearch(self.rates, self.resolution, low, high, why)

    def client_failed_at(self, rate: int) -> bool:
        """Return whether a rate was the last one that failed, and by the client."""
        return self.high == rate and bool(self.client_problem)

    def describe_lower_bound(self) -> str:
        """Return why the knee of a search that has ended is only a lower bound; empty if the server was the limit."""
        if self.rate is not None or not self.low:
            return ""
        if self.high is None:
            return f"the knee is {self.low}/s or more: tare asks for no more than {MAX_RATE}/s"
        return (
            f"the knee is {self.low}/s or more: at {self.high}/s, {self.client_problem}" if self.client_problem else ""
        )


@dataclass(frozen=True)
class KneeLoad(Workload):
    """Finds the knee of a server. A plug-in provides the server, the load, and what it printed as `RateResult`.

    Its metrics have a `knee`, of no point; all others are of a rate.
    """

    sweep = Sweep("rate", "requests/s")
    is_adaptive = True

    rates: Rates = (1000,)
    duration: Annotated[LoadDuration, Field(ge=0.1)] = 1.0
    runs: Annotated[int, Field(le=99), AfterValidator(_check_odd)] = 3
    tolerance: Annotated[Percent, Field(gt=0, le=0.5)] = 0.05
    resolution: Annotated[Percent, Field(ge=0.001, le=1)] = 0.01
    timeout: Annotated[Duration, Field(ge=0.01, le=60)] = 1.0

    @property
    def rounds(self) -> int:
        """The runs of a rate, each of which is a turn; with one run, stacks are measured one after the other."""
        return self.runs

    @property
    def limit_seconds(self) -> float:
        """The time limit of a run."""
        return 30 + 3 * (self.duration + self.timeout)

    @abstractmethod
    def run_rate(self, setup: MeasurementContext, rate: int) -> RawOutput:
        """Run the load at a rate for `duration`; its label is `rate RATE`.

        Its text also has what `read_rate_result` needs to know of the client.
        """

    @abstractmethod
    def read_rate_result(self, raw: RawOutput, rate: int) -> RateResult:
        """Read the output of the load at a rate; raises TrialFailed if it is not a whole one. Pure."""

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Search the knee; raises TrialFailed if the load fails, or if there is no answer at all.

        The last output has the reason why the knee is only a lower bound, if it is. That a client failed is said there,
        if the knee ends there: another run of it doubts no value.
        """
        search = KneeSearch(self.rates, self.resolution)
        while (rate := search.rate) is not None:
            runs: list[RateResult] = []
            while len(runs) < self.runs:
                raw = self.run_rate(setup, rate)
                runs.append(answers := self.read_rate_result(raw, rate))
                if len(runs) == self.runs:
                    search = self._decide_rate(search, runs)
                    _check_any_answered(search, runs, raw)
                client_cpu = None if answers.client_problem else raw.client_cpu
                yield replace(raw, client_cpu=client_cpu, client_limit=search.describe_lower_bound())

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Go through the search once more; return the knee, and the values of the rates.

        Beside several groups of stacks there are several searches: return the mean of each value over those that have
        it. Raises TrialFailed where an output is missing or too many, or where no rate was followed.
        """
        found: dict[tuple[str, float | None], list[float]] = defaultdict(list)
        left = list(raw)
        while left or not found:
            for value in self._replay_search(left):
                found[value.metric, value.point].append(value.value)
        return tuple(Value(metric, point, fmean(values)) for (metric, point), values in found.items())

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: the rates, five more until the server fails, and the bisection."""
        rates = len(self.rates) + 5 + math.ceil(math.log2(1 / self.resolution))
        return rates * self.runs * (0.1 + self.duration)

    def _replay_search(self, left: list[RawOutput]) -> Iterator[Value]:
        """Take the outputs of one search out of those that are left."""
        search = KneeSearch(self.rates, self.resolution)
        while (rate := search.rate) is not None:
            taken, left[: self.runs] = left[: self.runs], []
            if [each.label for each in taken] != self.runs * [_rate_label(rate)]:
                what = f"expected {self.runs} outputs of {_rate_label(rate)}, found {[each.label for each in taken]}"
                raise TrialFailed(what, _HINT)
            runs = [self.read_rate_result(each, rate) for each in taken]
            is_point, search = search.is_stepping, self._decide_rate(search, runs)
            _check_any_answered(search, runs, taken[-1])
            if is_point and not search.client_failed_at(rate):
                yield from _medians([run for run in runs if not run.client_problem])
        if not search.low:
            raise TrialFailed(
                f"answers do not even follow {search.high}/s: {search.client_problem or 'the server fails'}", _HINT
            )
        yield Value("knee", None, float(search.low))

    def _decide_rate(self, search: KneeSearch, runs: Sequence[RateResult]) -> KneeSearch:
        """Decide by the majority; without one for or against the server, the client has failed."""
        followed = sum(not run.client_problem and run.answered_share >= 1 - self.tolerance for run in runs)
        by_client = [run.client_problem for run in runs if run.client_problem]
        lost = len(runs) - followed - len(by_client)
        is_server = 2 * lost > len(runs) or not by_client
        return search.with_result(2 * followed > len(runs), "" if is_server else by_client[0])


def _rate_label(rate: int) -> str:
    return f"rate {rate}"


def _check_any_answered(search: KneeSearch, runs: Sequence[RateResult], raw: RawOutput) -> None:
    """Raise TrialFailed if a server that has not followed any rate yet, or the search's last one, had no answer at all.

    In between, it may still be busy with the connections that the runs before gave up; one that hangs stays so.
    """
    if (search.low and search.rate is not None) or any(
        answers.answered_share > 0 or answers.client_problem for answers in runs
    ):
        return
    what = f"the server gave no good answer at all at {raw.label}/s; {quote_output(raw.text)}"
    raise TrialFailed(what, _HINT, as_output(raw))


def _medians(runs: Sequence[RateResult]) -> Iterator[Value]:
    """Return the median over runs of each value."""
    found: dict[tuple[str, float | None], list[float]] = defaultdict(list)
    for value in (value for run in runs for value in run.values):
        found[value.metric, value.point].append(value.value)
    return (Value(metric, point, median(values)) for (metric, point), values in found.items())
