"""tare's load client (programs/load_client.c): closed-loop load of HTTP or Redis in turns of a few milliseconds.

The program starts once for each point, and keeps its connections open between turns. In each turn it sends without a
pause, discards the first responses, counts the responses of a window, and waits for all outstanding responses. So no
process starts and no client connects within a turn, and no work of a turn is left for another stack's turn.

A program for whole seconds, such as wrk or redis-benchmark, needs turns of 20 ms and more. On a shared machine, noise
grows with the time between the turns that are compared: more and shorter turns give more precision in the same time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Literal

from tare.hosts.host import Host
from tare.loads.client_load import (
    SharedLoad,
    read_windows,
    running_shared_load,
    server_address,
    split_client_texts,
    window_seconds,
    with_cpu_shares,
)
from tare.loads.parsing import as_output
from tare.loads.turns import (
    DISCARDED,
    MOST_TURNS,
    SHORT_TURN,
    ResidentProgram,
    count_rounds,
    limit_seconds,
    read_discarded,
    running_program,
    turn_seconds,
)
from tare.model.errors import TimedOut, TrialFailed, quote_output
from tare.model.trial import RawOutput
from tare.model.turn_length import TurnLength, TurnProbe
from tare.plugins.workload import MeasurementContext

_PROGRAM = "/usr/lib/tare/load_client"
_REQUESTS_PATH = PurePosixPath("/srv/tare-load-requests")
_USUAL_DISCARD_SECONDS = 0.02  # the lead of wrk's script turns.lua
_CONNECTION_SECONDS = 20e-6  # in which nginx and Redis respond to a request of one more connection
# Without it, the client slept for nearly each response of nginx. With it, nginx answered 1.5 times as many requests to
# 50 connections, and neighboring turns differed by 2 % instead of 5 % (docs/decisions/loads.md).
_POLL_MICROSECONDS = 50
_OVERHEAD_SECONDS = 0.001  # from the request of a turn to its answer, in addition to the turn itself
_START_SECONDS = 0.05
_ANSWER_SECONDS = 10.0  # the program itself ends a turn in which the server hangs; tare waits longer by this
_NUMBER = r"\d+\.\d+"
# Also matches turns of wrk with tare's script, which end after `behind`, and are in the records of earlier runs.
TURN = re.compile(
    rf"requests: (?P<requests>\d+)\nseconds: (?P<seconds>{_NUMBER})\ncpu_seconds: (?P<cpu>{_NUMBER})\n"
    rf"(?:{DISCARDED})?(?:behind: {_NUMBER}\n)?"  # printed if several clients share the load
    r"(?:bytes: \d+\ncloses: (?P<closes>\d+)\nerrors: (?P<errors>.*)\n(?:error: (?P<first>.*)\n)?)?"
    r"turn: done\n",
    re.ASCII,
)
_HANGS = "the server did not answer all requests in time"  # printed at the end of the program's patience
_NO_ERRORS = "connect 0, read 0, status 0, short 0"
_HINT = "`tare show` has the whole output; it is that of tare's `load_client`"


@dataclass(frozen=True)
class TurnPlan:
    """Division of the measured time of a point into turns, each with a first part that does not count."""

    least_discard_seconds: float
    measure_seconds: float
    rounds: int

    def discard_seconds(self, connections: int) -> float:
        """Return the first part of a turn: about one response on each connection."""
        return max(self.least_discard_seconds, connections * _CONNECTION_SECONDS)

    def estimate_seconds(self, connections: int) -> float:
        """Estimate the seconds of a point, with its start and the first turn, which warms up."""
        draining = _OVERHEAD_SECONDS + connections * _CONNECTION_SECONDS
        return _START_SECONDS + (1 + self.rounds) * (
            self.discard_seconds(connections) + self.measure_seconds + draining
        )


def least_turn_seconds(connections: int) -> float:
    """Return the shortest time that counts in a turn: each connection has two responses or more."""
    return 2 * connections * _CONNECTION_SECONDS


def plan_turns(
    duration_seconds: float, most_connections: int, turn: TurnLength = SHORT_TURN, *, has_usual_turns: bool = False
) -> TurnPlan:
    """Return the turns of each point that is measured for this duration: at most 200, or those of other loads.

    All points have as many turns, which are longer than `turn` with more than 125 connections. Several clients need
    the usual turns, because they cannot begin a shorter one together: their clocks differ by up to a round trip. A
    user-supplied server needs them, because it may take longer for a response than a short turn has.
    """
    if has_usual_turns:
        return TurnPlan(_USUAL_DISCARD_SECONDS, turn_seconds(duration_seconds), count_rounds(duration_seconds))
    least_seconds = max(turn.measure_seconds, duration_seconds / MOST_TURNS, least_turn_seconds(most_connections))
    measure_seconds = min(duration_seconds, least_seconds)
    return TurnPlan(turn.discard_seconds, measure_seconds, count_rounds(duration_seconds, measure_seconds))


@dataclass(frozen=True)
class ClosedLoop:
    """Closed-loop load: the requests that all connections send in order, without a pause.

    A connection sends `pipeline` requests at a time. Responses must have bodies of `body_bytes`; 0 accepts any. If the
    server closes connections in spite of `keep_alive`, the load opens new ones, and a caution says so. See `plan_turns`
    for `duration`, `most_connections`, `turn` and `is_user_server`.
    """

    protocol: Literal["http", "redis"]
    port: int
    requests: Sequence[bytes]
    duration: float
    most_connections: int
    pipeline: int = 1
    keep_alive: bool = True
    body_bytes: int = 0
    is_user_server: bool = False
    turn: TurnLength = SHORT_TURN

    def run_point(self, setup: MeasurementContext, label: str, connections: int) -> Iterator[RawOutput]:
        """Run the turns of a point; raises TrialFailed if the client or the server fails.

        The clients connect in a first turn, which does not count.
        """
        plan = self._plan(setup)
        with self._running(setup, connections) as load:
            closes = 0
            for number in range(1 + plan.rounds):
                raw = self._run_turn(setup, load, label, plan, warm_up=number == 0)
                closes += self._check_turn(raw)
                cautions = _describe_cautions(load, raw, closes) if number == plan.rounds else ""
                yield with_cpu_shares(raw, TURN, cautions)

    def probe_turns(
        self, setup: MeasurementContext, connections: int, lengths: Iterable[TurnLength]
    ) -> Iterator[TurnProbe]:
        """Run turns of these lengths, after a turn in which the clients connect; none if the load has several clients.

        Raises TrialFailed if the client or the server fails.
        """
        if len(setup.clients) > 1:
            return
        with self._running(setup, connections) as load:
            self._check_turn(self._run_turn(setup, load, "connect", self._plan(setup)))
            for each in lengths:
                plan = TurnPlan(each.discard_seconds, each.measure_seconds, 1)
                raw = self._run_turn(setup, load, "probe", plan)
                self._check_turn(raw)
                rate = read_turn_rate(raw.text, "probe")
                found = TURN.fullmatch(raw.text)
                seconds = float(found["seconds"]) if found else 0.0
                yield TurnProbe(*read_discarded(raw.text), seconds, rate)

    def _plan(self, setup: MeasurementContext) -> TurnPlan:
        has_usual_turns = self.is_user_server or len(setup.clients) > 1
        return plan_turns(self.duration, self.most_connections, self.turn, has_usual_turns=has_usual_turns)

    def _patience_seconds(self, setup: MeasurementContext) -> int:
        return math.ceil(limit_seconds(self._plan(setup).measure_seconds, setup.timeout_margin_seconds))

    def _run_turn(
        self, setup: MeasurementContext, load: SharedLoad, label: str, plan: TurnPlan, *, warm_up: bool = False
    ) -> RawOutput:
        connections = sum(each.connections for each in load.client_shares)
        line = f"go {plan.discard_seconds(connections):.6g} {plan.measure_seconds:.6g}"
        timeout = self._patience_seconds(setup) + _ANSWER_SECONDS
        return load.run_turn(label, [line] * len(load.client_shares), timeout, warm_up=warm_up)

    def _running(self, setup: MeasurementContext, connections: int) -> AbstractContextManager[SharedLoad]:
        """Context manager: run the program on all clients."""
        options = self._options(self._patience_seconds(setup))
        place = (server_address(setup), str(self.port))

        def start_client(stack: ExitStack, client: Host, connections: int) -> ResidentProgram:
            _put_requests(client, self.requests)
            argv = (_PROGRAM, self.protocol, *place, str(connections), str(_REQUESTS_PATH), *options)
            return stack.enter_context(running_program(client, *argv, last_line="turn: done"))

        return running_shared_load(setup.clients, connections, start_client)

    def _options(self, patience_seconds: int) -> tuple[str, ...]:
        body = ("--body", str(self.body_bytes)) if self.body_bytes else ()
        pipeline = ("--pipeline", str(self.pipeline)) if self.pipeline > 1 else ()
        close = () if self.keep_alive else ("--close",)
        usual = ("--poll", str(_POLL_MICROSECONDS), "--patience", str(patience_seconds))
        return (*body, *pipeline, *close, *usual)

    def _check_turn(self, raw: RawOutput) -> int:
        """Return the number of connections that the server closed; raises TrialFailed for errors in a turn."""
        total = 0
        for text in split_client_texts(raw.text):
            found = TURN.fullmatch(text)
            if found is None or found["errors"] is None:
                raise TrialFailed(f"load_client did not end its turn; {quote_output(text)}", _HINT, as_output(raw))
            if found["errors"] != _NO_ERRORS:
                what = f"the load counted errors at {raw.label}: {found['errors']}; the first: {found['first']}"
                failure = TimedOut if found["first"] == _HANGS else TrialFailed
                raise failure(what, self._error_hint(found["errors"]), as_output(raw))
            total += int(found["closes"])
        return total

    def _error_hint(self, errors: str) -> str:
        if errors.endswith("short 0"):
            return _HINT
        return f"a user-supplied image has to serve a /file of {self.body_bytes} bytes: all stacks serve the same page"


def _describe_cautions(load: SharedLoad, raw: RawOutput, closes: int) -> str:
    """Return what limited the load at a point, after its last turn; "" if nothing did."""
    closed = f"at {raw.label}, the server closed {closes} connections that were to stay open: the load opened new ones"
    return "; ".join(each for each in (load.describe_overlap_caution(raw), closed if closes else "") if each)


def _put_requests(client: Host, requests: Sequence[bytes]) -> None:
    """Write the file of requests to the client, each after a line with its length."""
    with NamedTemporaryFile("wb") as file:
        for request in requests:
            file.write(b"%d\n%b" % (len(request), request))
        file.flush()
        client.put(Path(file.name), _REQUESTS_PATH)


def read_turn_rate(text: str, label: str) -> float:
    """Return the requests a second of a turn, of all clients together; raises TrialFailed."""
    parts = split_client_texts(text)
    found = [each for each in map(TURN.fullmatch, parts) if each and each["errors"] in (None, _NO_ERRORS)]
    seconds = window_seconds(read_windows(text)) if len(parts) > 1 else sum(float(each["seconds"]) for each in found)
    rate = sum(float(each["requests"]) for each in found) / seconds if len(found) == len(parts) and seconds > 0 else 0.0
    if not 0 < rate < math.inf:
        raise TrialFailed(f"the load gave no rate for {label}; {quote_output(text)}", _HINT)
    return rate
