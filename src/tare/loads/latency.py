"""HTTP load at constant rates: latencies without coordinated omission.

A load that waits for each answer sends fewer requests while the server stalls. The requests that would have waited are
missing from its latencies, which Gil Tene calls coordinated omission. Here wrk sends on a schedule (`schedule.lua`):
each request is due at a fixed time, whatever happened to earlier requests, and its wait for the server counts.

wrk has a thread for each connection. Each thread, and each client if several share a schedule, has every n-th request.
The percentiles of several clients come from counts in classes of 0.1 % of all requests, because they cannot be computed
from the percentiles of the clients.

A delay by the client is no latency of the server, and is subtracted. If the client delays more than a hundredth of a
point's requests by more than a millisecond, the trial is marked as client-bound.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar

from pydantic import Field

from tare.loads.client_load import (
    LoadDuration,
    Rates,
    SharedLoad,
    read_windows,
    split_client_texts,
    split_evenly,
    window_seconds,
    with_cpu_shares,
)
from tare.loads.http import WrkLoad, check_ends
from tare.loads.parsing import check_labels
from tare.loads.turns import count_rounds, limit_seconds, turn_seconds
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Sweep, Value
from tare.plugins.workload import MeasurementContext

_SCRIPT = Path(__file__).with_name("schedule.lua")
_SCRIPT_THERE = PurePosixPath("/srv/tare-schedule.lua")
_MIN_REQUESTS = 1000  # of a turn: with fewer requests, the 99.9th percentile would be the slowest one
_MAX_REQUESTS = 1_000_000  # of a turn: wrk keeps two numbers of each in memory
_WARM_UP_PARTS = 10  # the warm-up is a tenth of a turn
_LATE_SHARE = 0.01
_NUMBER = r"\d{1,9}\.\d{9}"
_TURN = re.compile(
    rf"requests: (?P<requests>\d{{1,9}})\nseconds: (?P<seconds>{_NUMBER})\n"
    rf"p50: (?P<p50>{_NUMBER})\np90: (?P<p90>{_NUMBER})\np99: (?P<p99>{_NUMBER})\np99\.9: (?P<p999>{_NUMBER})\n"
    rf"late: (?P<late>\d{{1,9}})\nusual_delay: (?P<delay>{_NUMBER})\n"
    rf"cpu_seconds: (?P<cpu>{_NUMBER})\ncpus: (?P<cpus>[1-9]\d{{0,3}})\n"
    # Printed if several clients share the schedule.
    rf"(?:behind: {_NUMBER}\nclasses:(?P<classes>(?: -?\d{{1,6}}:\d{{1,9}})+)\n)?turn: done\n",
    re.ASCII,
)
_CLASS_FACTOR = 1.001  # ratio of the bounds of a class of latencies, as in schedule.lua
_PERCENTILE_SHARES = (0.5, 0.9, 0.99, 0.999)
_HINT = "`tare show` has the whole output; it is that of tare's script for wrk"


@dataclass(frozen=True)
class LatencyLoad(WrkLoad):
    """Open-loop load: wrk requests a page at constant rates. A plug-in provides the server."""

    name: ClassVar[str]
    metrics = (
        Metric("p50", "Median latency", "s", "lower", overall=False),
        Metric("p90", "Latency, 90th percentile", "s", "lower", headline=False),
        Metric("p99", "Latency, 99th percentile", "s", "lower", overall=False),
        Metric("p999", "Latency, 99.9th percentile", "s", "lower", headline=False),
        Metric("answered", "Answers", "requests/s", "higher", headline=False),
    )
    sweep = Sweep("rate", "requests/s")

    rates: Rates = (1000, 2000)
    connections: Annotated[int, Field(ge=1, le=256)] = 50
    duration: LoadDuration = 5.0

    def __post_init__(self) -> None:
        """Raise ValueError for rates that cannot be measured within the duration."""
        if self.duration * self.rates[0] < _MIN_REQUESTS:
            least = f"{_MIN_REQUESTS / self.rates[0]:g}s"
            raise ValueError(f"{self.rates[0]} requests a second need a duration of {least} for a 99.9th percentile")
        if self._count_requests(self.rates[-1]) > _MAX_REQUESTS:
            raise ValueError(f"rates of {self.rates[0]} and {self.rates[-1]} are too far apart for turns of one length")

    @property
    def rounds(self) -> int:
        """Number of turns of a tenth of the duration, or of longer turns with enough requests at every rate."""
        return count_rounds(self.duration, self._turn_seconds)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run a turn at each rate in each round; raises TrialFailed if wrk or the server fails.

        A tenth of a turn at each rate precedes the first round, as a warm-up without values.
        """
        for client in setup.clients:
            client.put(_SCRIPT, _SCRIPT_THERE)
        late = Counter[int]()
        with self.running_wrk(setup, _SCRIPT_THERE, self.connections) as wrk:
            for number in range(1 + self.rounds):
                for rate in self.rates:
                    raw = self._run_turn(wrk, rate, warm_up=number == 0)
                    late[rate] += _count_late(raw)
                    limit = ""
                    if number == self.rounds:  # the cautions are about all turns of a point
                        limit = self._describe_missed_schedule(rate, late[rate]) or wrk.describe_overlap_caution(raw)
                    yield with_cpu_shares(raw, _TURN, limit)
            check_ends(wrk, self.page_bytes)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the latencies at each rate; raises TrialFailed for a missing or incomplete rate."""
        labels = [f"rate {rate}" for rate in self.rates]
        check_labels(raw, labels)
        values: list[Value] = []
        for rate, each in zip(self.rates, raw, strict=True):
            requests, seconds, latencies = _read_turn(each.text, rate)
            if requests != self._count_requests(rate):
                what = f"wrk had {requests} answers at {rate}/s, {self._count_requests(rate)} were asked for"
                raise TrialFailed(what, _HINT)
            found = (*latencies, requests / seconds)
            values += (
                Value(metric.name, float(rate), value) for metric, value in zip(self.metrics, found, strict=True)
            )
        return tuple(values)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, including the warm-up at each rate."""
        return 0.2 + len(self.rates) * (self.duration + self._turn_seconds / _WARM_UP_PARTS + 0.02 * self.rounds)

    @property
    def _turn_seconds(self) -> float:
        return min(self.duration, max(turn_seconds(self.duration), _MIN_REQUESTS / self.rates[0]))

    def _count_requests(self, rate: int) -> int:
        return max(1, round(rate * self._turn_seconds))

    def _run_turn(self, wrk: SharedLoad, rate: int, *, warm_up: bool) -> RawOutput:
        requests, count = self._count_requests(rate) // (_WARM_UP_PARTS if warm_up else 1), len(wrk.client_shares)
        lines = [f"{rate / count:.12g} {max(1, each)}" for each in split_evenly(requests, count)]
        if count > 1:  # the first requests of the clients are due one interval of the whole schedule apart
            lines = [f"{line} {number / rate:.9f}" for number, line in enumerate(lines)]
        return wrk.run_turn(f"rate {rate}", lines, limit_seconds(self._turn_seconds), warm_up)

    def _describe_missed_schedule(self, rate: int, late: int) -> str:
        """Return the caution that the client missed the schedule; "" if it did not."""
        share = late / (self._count_requests(rate) * self.rounds)
        what = f"at {rate}/s, the client itself sent {100 * share:.2g} % of the requests over 1 ms late"
        return what if share > _LATE_SHARE else ""


def _read_turn(text: str, rate: int) -> tuple[int, float, tuple[float, ...]]:
    """Return the requests, the seconds, and the latencies of a turn in the order of their metrics."""
    parts = split_client_texts(text)
    found = [each for each in map(_TURN.fullmatch, parts) if each]
    is_whole, is_shared = len(found) == len(parts), len(parts) > 1
    latencies: tuple[float, ...] = (0.0,)
    if is_whole:
        printed = tuple(float(found[0][name]) for name in ("p50", "p90", "p99", "p999"))
        latencies = _merge_percentiles(found) if is_shared else printed
    seconds = window_seconds(read_windows(text)) if is_shared else sum(float(each["seconds"]) for each in found)
    if not is_whole or not seconds or not latencies[0] or list(latencies) != sorted(latencies):
        raise TrialFailed(f"wrk gave no latencies at {rate}/s; {quote_output(text)}", _HINT)
    return sum(int(each["requests"]) for each in found), seconds, latencies


def _merge_percentiles(parts: Sequence[re.Match[str]]) -> tuple[float, ...]:
    """Return the percentiles of the requests of all clients together, as the middle of their classes.

    The result is (0.0,), which no turn has, if the counts are not those of all requests.
    """
    counts = Counter[int]()
    for part in parts:
        for each in (part["classes"] or "").split():
            place, _, count = each.partition(":")
            counts[int(place)] += int(count)
    total, passed, found = sum(counts.values()), 0, list[float]()
    if total != sum(int(part["requests"]) for part in parts):
        return (0.0,)
    for place in sorted(counts):
        passed += counts[place]
        # 1e-9 keeps a rank that is a whole number, such as 0.9 of 1000, from being raised by floating-point error.
        while len(found) < len(_PERCENTILE_SHARES) and passed >= _PERCENTILE_SHARES[len(found)] * total - 1e-9:
            found.append(_CLASS_FACTOR ** (place + 0.5))
    return tuple(found)


def _count_late(raw: RawOutput) -> int:
    """Return how many requests of a turn the clients sent too late. `parse` reports an output that does not match."""
    found = [] if raw.warm_up else [_TURN.fullmatch(each) for each in split_client_texts(raw.text)]
    return sum(int(each["late"]) for each in found if each)
