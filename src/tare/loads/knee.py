"""Knee search: the highest rate of requests that a server's answers follow.

The 2015 paper (section 3.1) "increased the request rate from a base rate of 1000 requests per second until the server's
response rate no longer scaled with the request rate", and named the rate that the server could sustain. Here that is

    knee = the highest rate at which answers >= (1 - tolerance) * requests

where `requests` is the requested number, not the number that a slow client sent. With a tolerance of 0 the knee is the
throughput of RFC 1242 (section 3.17), which RFC 2544 (section 26.1) finds by such runs. With a tolerance it is the
partial drop rate of network testers.

The search: rates rise through `rates`, then double, until answers no longer follow. If answers do not follow the first
rate, rates halve. Then the interval between the highest rate that was followed and the lowest that was not is halved
until it is as narrow as the resolution. The knee is its lower bound. Rates of the bisection are no points of the sweep,
because only the rising rates are common to all stacks. A rate has several runs, which are turns, so that stacks
alternate. The majority decides, so that a short burst of noise does not. A stack whose search has ended has no more
turns.

A limit of the client never counts as a limit of the server: a run in which the client failed is no point. If the search
ends at such a run, the knee is a lower bound, and the trial is marked as client-bound with the reason.
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


def _check_odd(runs: int) -> int:  # an even number could be a tie
    if runs < 1 or runs % 2 == 0:
        raise ValueError("the number of runs is odd, so that their majority decides")
    return runs


@dataclass(frozen=True)
class RateResult:
    """Result of a run at one rate: the share of the requests that were answered, and the values of this point.

    `client_problem` describes a limit of the client; "" without one.
    """

    answered_share: float
    values: tuple[Value, ...]
    client_problem: str = ""


@dataclass(frozen=True)
class KneeSearch:
    """State of a search: the knee lies between `low`, 0 at first, and `high`, None while rates rise.

    `client_problem` is the limit of the client at `high`; "" if the server did not follow.
    """

    rates: tuple[int, ...]
    resolution: float
    low: int = 0
    high: int | None = None
    client_problem: str = ""

    @property
    def rate(self) -> int | None:
        """Rate to try next; None at the end of the search."""
        if self.high is None:
            above = next((rate for rate in self.rates if rate > self.low), 2 * self.low)
            return above if above <= MAX_RATE else None
        if not self.low:
            return self.high // 2 if self.high // 2 >= MIN_RATE else None
        middle = (self.low + self.high) // 2
        return middle if self.high > self.low * (1 + self.resolution) and middle > self.low else None

    @property
    def is_stepping(self) -> bool:
        """Whether the next rate is one of the rising or halving rates, which all stacks have in common."""
        return self.high is None or not self.low

    def with_result(self, followed: bool, client: str = "") -> KneeSearch:
        """Return the state after the current rate was followed or not; `client` is a limit of the client, or ""."""
        if self.rate is None:
            raise ValueError("the search has ended")
        low, high, why = (self.rate, self.high, self.client_problem) if followed else (self.low, self.rate, client)
        return KneeSearch(self.rates, self.resolution, low, high, why)

    def client_failed_at(self, rate: int) -> bool:
        """Return whether this rate is the upper bound of the search because of the client."""
        return self.high == rate and bool(self.client_problem)

    def describe_lower_bound(self) -> str:
        """Return why the knee of an ended search is only a lower bound; "" if the server was the limit."""
        if self.rate is not None or not self.low:
            return ""
        if self.high is None:
            return f"the knee is {self.low}/s or more: tare asks for no more than {MAX_RATE}/s"
        return (
            f"the knee is {self.low}/s or more: at {self.high}/s, {self.client_problem}" if self.client_problem else ""
        )


@dataclass(frozen=True)
class KneeLoad(Workload):
    """Search for the knee of a server. A plug-in provides the server, the load, and the parser of its output.

    Its metrics have a `knee`, which is not part of the sweep. All other metrics have a value at each rate.
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
        """Number of runs of a rate, which are turns. With one run, stacks are measured one after the other."""
        return self.runs

    @property
    def limit_seconds(self) -> float:
        """Time limit of a run in seconds."""
        return 30 + 3 * (self.duration + self.timeout)

    @abstractmethod
    def run_rate(self, setup: MeasurementContext, rate: int) -> RawOutput:
        """Run the load at a rate for `duration`; its label is `rate RATE`.

        The output also has the facts about the client that `read_rate_result` needs.
        """

    @abstractmethod
    def read_rate_result(self, raw: RawOutput, rate: int) -> RateResult:
        """Return the result in the output of the load at a rate; raises TrialFailed if it is incomplete. Pure."""

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Search for the knee; raises TrialFailed if the load fails, or if there is no answer at all.

        The last output has the reason if the knee is only a lower bound. Earlier runs in which the client failed cause
        no caution, because no value depends on them.
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
        """Replay the search on its outputs; return the knee and the values of the rates.

        The baseline takes turns with several groups of stacks if not all instances fit into memory. It then has several
        searches, and each value is the mean over the searches that have it. Raises TrialFailed for a missing or
        superfluous output, or if no rate was followed.
        """
        found: dict[tuple[str, float | None], list[float]] = defaultdict(list)
        left = list(raw)
        while left or not found:
            for value in self._replay_search(left):
                found[value.metric, value.point].append(value.value)
        return tuple(Value(metric, point, fmean(values)) for (metric, point), values in found.items())

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: the rates, five doublings until the server fails, and the bisection."""
        rates = len(self.rates) + 5 + math.ceil(math.log2(1 / self.resolution))
        return rates * self.runs * (0.1 + self.duration)

    def _replay_search(self, left: list[RawOutput]) -> Iterator[Value]:
        """Yield the values of one search, whose outputs are removed from the front of `left`."""
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
        """Return the search after the runs of its rate.

        The majority of the runs decides whether the rate was followed. If neither the runs that were followed nor those
        that the server lost are a majority, the client has failed.
        """
        followed = sum(not run.client_problem and run.answered_share >= 1 - self.tolerance for run in runs)
        by_client = [run.client_problem for run in runs if run.client_problem]
        lost = len(runs) - followed - len(by_client)
        is_server = 2 * lost > len(runs) or not by_client
        return search.with_result(2 * followed > len(runs), "" if is_server else by_client[0])


def _rate_label(rate: int) -> str:
    return f"rate {rate}"


def _check_any_answered(search: KneeSearch, runs: Sequence[RateResult], raw: RawOutput) -> None:
    """Raise TrialFailed if the server gave no answer at all, at the first rates or at the end of the search.

    In between, a server may still be busy with connections that earlier runs abandoned. A server that hangs is still
    silent at the end.
    """
    if (search.low and search.rate is not None) or any(
        answers.answered_share > 0 or answers.client_problem for answers in runs
    ):
        return
    what = f"the server gave no good answer at all at {raw.label}/s; {quote_output(raw.text)}"
    raise TrialFailed(what, _HINT, as_output(raw))


def _medians(runs: Sequence[RateResult]) -> Iterator[Value]:
    """Return the median of each value over the runs."""
    found: dict[tuple[str, float | None], list[float]] = defaultdict(list)
    for value in (value for run in runs for value in run.values):
        found[value.metric, value.point].append(value.value)
    return (Value(metric, point, median(values)) for (metric, point), values in found.items())
