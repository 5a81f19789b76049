"""Load of a key-value store: tare's load client or redis-benchmark sends GET and SET, in turns with other stacks.

Both send the same requests. `loads.load_client` describes tare's load client; the rest is about redis-benchmark.

redis-benchmark counts requests, not seconds. So a probe precedes the first turn of each point, and also warms up the
server. The rate of the probe decides how many requests fill the first turn, the rate of each turn how many fill the
next one.

The time in which clients connect is not measured. But redis-benchmark pauses for 50 ms after every 64 connections. So
turns with many clients are longer and fewer: no turn connects for longer than it measures.

redis-benchmark runs with one thread, because with more it counts time in steps of 250 ms (docs/decisions/loads.md).

redis-benchmark 7.0 retries refused connections at full speed and without an end (fixed by Redis's pull request 11366).
tare ends it, like any load, when the server has ended.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tare.loads.client_load import ClientCounts, LoadDuration, relate_to_sending, run_load, server_address, server_port
from tare.loads.load_client import ClosedLoop, TurnPlan, least_turn_seconds, plan_turns, read_turn_rate
from tare.loads.parsing import EachOnce, check_labels
from tare.loads.turns import ShortTurnWorkload, count_rounds, limit_seconds, turn_seconds
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Sweep, Value
from tare.model.turn_length import TurnLength, TurnProbe
from tare.plugins.workload import MeasurementContext

Operation = Literal["GET", "SET"]
REDIS_PORT = 16379  # a server of the machine may occupy the usual port
_PROBES = 4
_CLOCK_SECONDS = 0.001  # redis-benchmark counts whole milliseconds
_FIRST_PROBE_REQUESTS = 250  # times `pipeline`: long enough for that clock, short enough for an emulated machine
_ROUND_TRIPS = 5  # least number of times that each client sends in a turn
_FILL_SECONDS = 0.001
_KEY = b"$16\r\nkey:__rand_int__\r\n"  # redis-benchmark's
_REQUESTS: Mapping[Operation, bytes] = {
    "GET": b"*2\r\n$3\r\nGET\r\n" + _KEY,
    "SET": b"*3\r\n$3\r\nSET\r\n" + _KEY + b"$3\r\nxxx\r\n",
}
_COLUMNS = ("test", "rps", *(f"{which}_latency_ms" for which in ("avg", "min", "p50", "p95", "p99", "max")))
_HEAD = ",".join(f'"{column}"' for column in _COLUMNS)


@dataclass(frozen=True)
class RedisLoad(ShortTurnWorkload):
    """Closed-loop load: clients set and get one short key. A plug-in provides the server."""

    name: ClassVar[str]
    metrics = (
        Metric("get", "GET throughput", "requests/s", "higher"),
        Metric("set", "SET throughput", "requests/s", "higher"),
    )
    sweep = Sweep("clients")
    client_packages = ("redis-tools",)
    port = REDIS_PORT
    is_closed_loop = True

    operations: EachOnce[Operation] = ("GET", "SET")
    clients: ClientCounts = (1, 50, 200)
    pipeline: Annotated[int, Field(ge=1, le=128)] = 1
    keep_alive: bool = True
    duration: LoadDuration = 1.0
    load: Literal["tare", "redis-benchmark"] = "tare"

    @property
    def rounds(self) -> int:
        """Number of turns of a point; redis-benchmark has turns of a tenth of the duration, fewer with many clients."""
        if self.load == "tare":
            return self._turn_plan.rounds
        return count_rounds(self.duration, self._turn_seconds)

    @property
    def has_short_turns(self) -> bool:
        """Whether tare's load client sends the requests."""
        return self.load == "tare"

    @property
    def least_measure_seconds(self) -> float:
        """The shortest turn that most clients have time for."""
        return least_turn_seconds(self.clients[-1])

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the load for each operation and number of clients; raises TrialFailed if it or the server fails.

        A `fill` comes first, so that every GET finds the key.
        """
        if self.load == "redis-benchmark":
            yield from self._measure_by_redis_benchmark(setup)
            return
        yield from self._fill(setup)
        for operation in self.operations:
            load = self._closed_loop(setup, operation, self.duration)
            for clients in self.clients:
                yield from load.run_point(setup, f"{operation} {clients}", clients)

    def probe_turns(self, setup: MeasurementContext, lengths: Iterable[TurnLength]) -> Iterator[TurnProbe]:
        """Run turns of these lengths at the middle point of the first operation; raises TrialFailed like `measure`."""
        for _ in self._fill(setup):
            pass
        load = self._closed_loop(setup, self.operations[0], self.duration)
        yield from load.probe_turns(setup, self.clients[len(self.clients) // 2], lengths)

    def _fill(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        fill = self._closed_loop(setup, "SET", _FILL_SECONDS).run_point(setup, "fill", 1)
        return (each.as_warm_up() for each in fill)

    def _closed_loop(self, setup: MeasurementContext, operation: Operation, duration: float) -> ClosedLoop:
        port = server_port(setup, self.name, REDIS_PORT)
        requests, most = (_REQUESTS[operation],), self.clients[-1]
        return ClosedLoop(
            "redis", port, requests, duration, most, self.pipeline, self.keep_alive, turn=self.turn_length
        )

    def _measure_by_redis_benchmark(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run redis-benchmark once for each turn.

        A `fill` and the probes precede the first round, and hold no values. Every stack has the same number of them, so
        that the rounds of all stacks stay aligned.
        """
        fill = self._run(setup, "fill", _RedisCall("SET", 1, self.pipeline))
        start_seconds = (fill.client_cpu or 0.0) * fill.seconds  # CPU time of one request is nearly all start-up
        yield fill.as_warm_up()
        calls: list[_RedisCall] = []
        for operation in self.operations:
            requests = _FIRST_PROBE_REQUESTS * self.pipeline
            for clients in self.clients:
                first = _RedisCall(operation, clients, max(requests, clients * self.pipeline))
                probe, call = self._probe_until_half_turn(setup, first)
                yield probe
                calls.append(call)
                requests = call.requests
        for _ in range(self.rounds):
            for at, call in enumerate(calls):
                raw = self._run(setup, f"{call.operation} {call.clients}", call)
                rate = _read_rate(raw.text, call.operation)
                yield relate_to_sending(raw, start_seconds, call.requests / rate)
                calls[at] = self._fill_turn(call, rate)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the requests a second of each point; raises TrialFailed for a missing or incomplete point."""
        measured = [each for each in raw if each.label.partition(" ")[0] not in ("fill", "probe")]
        points = [(operation, clients) for operation in self.operations for clients in self.clients]
        labels = [f"{operation} {clients}" for operation, clients in points]
        check_labels(measured, labels)
        return tuple(
            Value(operation.lower(), float(clients), _read_point(each.text, operation, clients))
            for (operation, clients), each in zip(points, measured, strict=True)
        )

    def run_requests(self, setup: MeasurementContext, label: str, requests: int) -> RawOutput:
        """Send this number of requests of the first operation, from the first number of clients."""
        return self._run(setup, label, _RedisCall(self.operations[0], self.clients[0], requests), self.duration)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`; redis-benchmark starts and connects in each turn and in two probes."""
        if self.load == "tare":
            return 0.1 + len(self.operations) * sum(map(self._turn_plan.estimate_seconds, self.clients))
        connecting = sum(0.03 + _pause_seconds(clients) for clients in self.clients)
        points = len(self.operations) * len(self.clients)
        measuring = points * (self.duration + self._turn_seconds)
        return 0.1 + measuring + len(self.operations) * (2 + self.rounds) * connecting

    @property
    def _turn_plan(self) -> TurnPlan:
        return plan_turns(self.duration, self.clients[-1], self.turn_length)

    @property
    def _turn_seconds(self) -> float:
        return min(self.duration, max(turn_seconds(self.duration), _pause_seconds(self.clients[-1])))

    def _probe_until_half_turn(self, setup: MeasurementContext, call: _RedisCall) -> tuple[RawOutput, _RedisCall]:
        """Probe until a probe takes half as long as a turn; return the last probe and the call that fills a turn."""
        for _ in range(_PROBES):
            raw = self._run(setup, f"probe {call.operation} {call.clients}", call)
            rate = _read_probe_rate(raw.text, call)
            seconds = call.requests / rate
            call = self._fill_turn(call, rate)
            if seconds >= self._turn_seconds / 2:
                break
        return raw.as_warm_up(), call

    def _fill_turn(self, call: _RedisCall, rate: float) -> _RedisCall:
        """Return the call with the requests that fill a turn at this rate, a whole number of pipelines.

        With an incomplete pipeline, redis-benchmark gets more answers than requests. If its timer fires after the only
        client has gone, it reports a lost connection: 3 of 300 runs of one request in a pipeline of 16.
        """
        pipelines = max(_ROUND_TRIPS * call.clients, math.ceil(rate * self._turn_seconds / self.pipeline))
        return _RedisCall(call.operation, call.clients, pipelines * self.pipeline)

    def _run(
        self, setup: MeasurementContext, label: str, call: _RedisCall, usual_seconds: float | None = None
    ) -> RawOutput:
        server = ("-h", server_address(setup), "-p", str(server_port(setup, self.name, REDIS_PORT)))
        counts = ("-n", str(call.requests), "-c", str(call.clients), "-P", str(self.pipeline))
        how = ("-t", call.operation.lower(), *counts, "-k", "1" if self.keep_alive else "0", "--csv")
        argv = ("redis-benchmark", *server, *how)
        timeout = limit_seconds(usual_seconds or self._turn_seconds, setup.timeout_margin_seconds)
        return run_load(setup.client, label, *argv, timeout=timeout)


def _pause_seconds(clients: int) -> float:
    """Return the seconds of pauses while redis-benchmark connects this number of clients."""
    return 0.05 * (clients // 64)


@dataclass(frozen=True)
class _RedisCall:
    """Arguments of one call of redis-benchmark."""

    operation: Operation
    clients: int
    requests: int


def _read_probe_rate(text: str, probe: _RedisCall) -> float:
    """Return the requests a second of a probe. redis-benchmark prints `inf` for a probe of less than 1 ms."""
    if re.fullmatch(rf'{_HEAD}\n"{probe.operation}","inf",.*\n', text):
        return probe.requests / _CLOCK_SECONDS
    return _read_rate(text, probe.operation)


def _read_point(text: str, operation: Operation, clients: int) -> float:
    """Return the requests a second of a turn of either load; raises TrialFailed."""
    if text.startswith(_HEAD):
        return _read_rate(text, operation)
    return read_turn_rate(text, f"{operation} from {clients} clients")


def _read_rate(text: str, operation: Operation) -> float:
    """Return the requests a second of one operation; raises TrialFailed."""
    return _read_number(text, operation, "rate")


def read_slow_seconds(text: str, operation: Operation) -> float:
    """Return the 99th percentile of the latency of one operation in seconds; raises TrialFailed."""
    return _read_number(text, operation, "latency") / 1000


def _read_number(text: str, operation: Operation, what: Literal["rate", "latency"]) -> float:
    """Return a number of one operation from redis-benchmark 7's CSV; raises TrialFailed unless it is above 0."""
    # The whole CSV has to match: an error message before or after the row would mean that requests failed.
    column = {"rate": "rps", "latency": "p99_latency_ms"}[what]
    row = ",".join((f'"{operation}"', *(rf'"(?P<{name}>\d+\.\d+)"' for name in _COLUMNS[1:])))
    match = re.fullmatch(rf"{_HEAD}\n{row}\n", text, re.ASCII)
    number = float(match[column]) if match else 0.0
    if not 0 < number < math.inf:
        hint = "`tare show` has the whole output; it is redis-benchmark's CSV with one line of results"
        raise TrialFailed(f"redis-benchmark gave no {what} for {operation}; {quote_output(text)}", hint)
    return number
