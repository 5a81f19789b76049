"""The load at a constant rate, with the real wrk: whose stall it was, and nothing due is left out."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import pytest
from own_testbed import spec_of

from tare.contracts.workloads import MeasurementContext
from tare.images.micro import SERVER
from tare.model.trials import Raw, Service
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.service import start_service
from tare.runner.trial_log import TrialLog
from tare.technologies.native import Native
from tare.workloads.loads.latency import LatencyLoad

pytestmark = pytest.mark.machine

STALL_SECONDS = 1.0


@dataclass(frozen=True)
class Micro(LatencyLoad):
    """The latency of tare's own small server."""

    name = "micro-http"
    title = "micro"

    def service(self, listen: str) -> Service:
        return Service((SERVER, "--listen", listen), self.port)


def _processes(word: str) -> Iterable[int]:
    """Find the processes with an argument."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        arguments = path.read_bytes().split(b"\0") if path.exists() else []
        if word.encode() in arguments and arguments[0] in (SERVER.encode(), b"wrk"):
            yield int(path.parent.name)


@contextmanager
def _stalled(word: str, after_seconds: float) -> Iterator[None]:
    """Stop what has this argument for a second while the block goes on."""
    (process,) = _processes(word)
    stop, go_on = (
        Timer(seconds, os.kill, (process, number))
        for seconds, number in ((after_seconds, signal.SIGSTOP), (after_seconds + STALL_SECONDS, signal.SIGCONT))
    )
    stop.start()
    if not after_seconds:
        stop.join()
    go_on.start()
    try:
        yield
    finally:
        go_on.join()


def _measured(testbed: RunContext, word: str, after_seconds: float) -> tuple[dict[str, float], Raw]:
    """Measure one turn of four seconds while one is stopped; return the latencies."""
    workload = Micro(rates=(250,), duration=4.0, connections=10)
    with (
        start_stack(testbed, spec_of(testbed, Native(), port=workload.port), TrialLog()) as (part,),
        start_service(part.instance, workload) as server,
    ):
        server.await_answer(testbed.client)
        turns = iter(workload.measure(MeasurementContext(part.instance, testbed.client, ())))
        assert next(turns).warm_up
        with _stalled(word, after_seconds):
            raw = next(turns)
        assert next(turns, None) is None
    return {value.metric: value.value for value in workload.parse([raw])}, raw


def test_all_that_was_due_while_the_server_stalled_is_in_the_latencies(testbed: RunContext) -> None:
    latency, _ = _measured(testbed, SERVER, after_seconds=0)
    assert latency["p90"] > STALL_SECONDS / 4  # a load that waits for answers would have ten such of a thousand


def test_what_the_client_delayed_is_no_latency_and_a_limit_of_the_client(testbed: RunContext) -> None:
    latency, raw = _measured(testbed, "/srv/tare-schedule.lua", after_seconds=0.5)
    assert latency["p90"] < STALL_SECONDS / 2  # with them, a tenth would be of 0.6 s and more
    assert raw.client_limit.startswith("at 250/s, the client itself sent ")
