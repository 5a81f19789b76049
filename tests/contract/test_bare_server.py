"""The unikernels' server on bare metal: the same program. No other instance may have the address meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Literal

import pytest
from begun import answering
from fakes import planned_of
from process_tree import with_ancestors

from tare.images.micro import SERVER
from tare.loads.http import create_page
from tare.loads.knee import KneeLoad
from tare.loads.latency import LatencyLoad
from tare.model.errors import TrialFailed
from tare.model.files import read_text
from tare.model.trial import RawOutput, Service, Trial
from tare.plugins.workload import Workload
from tare.runner.block import BlockRunner
from tare.runner.context import RunContext
from tare.runner.events import ignore_event
from tare.runner.values import read_values
from tare.suites.plan import Block, PlannedTrial
from tare.technologies.native import Native
from tare.workloads.apache import Apache
from tare.workloads.bind import Bind
from tare.workloads.lighttpd import Lighttpd
from tare.workloads.micro_http import MicroHttp
from tare.workloads.micro_redis import MicroRedis

pytestmark = pytest.mark.machine

SMALL = (
    MicroHttp(clients=(1, 50)),
    MicroHttp(clients=(1, 50), load="wrk"),
    MicroRedis(clients=(1, 50), duration=0.2),
    MicroRedis(clients=(1, 50), duration=0.2, load="redis-benchmark"),
)


@pytest.mark.parametrize("workload", SMALL, ids=lambda each: f"{each.name} by {each.load}")
def test_the_same_server_serves_on_bare_metal(testbed: RunContext, workload: MicroHttp | MicroRedis) -> None:
    with answering(testbed, workload) as setup:
        values = read_values(workload, tuple(workload.measure(setup)))
    assert {value.point for value in values} == {1.0, 50.0}
    assert {len(value.turns) for value in values} == {workload.rounds}
    assert all(value.value > 10 for value in values)


@dataclass(frozen=True)
class Larger(MicroHttp):
    """A page that is larger than the server's."""

    @property
    def page_bytes(self) -> int:
        return 4096


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("wrk", r"wrk with 5 clients read 1\d\d\d bytes an answer; the page has 4096"),
        ("tare", r"short \d+; the first: a response of 1024 bytes, not of 4096"),
    ],
)
def test_a_page_of_another_size_fails_the_trial_with_what_the_load_counted(
    testbed: RunContext, load: Literal["tare", "wrk"], said: str
) -> None:
    workload = Larger(clients=(5,), duration=0.1, keep_alive=False, load=load)
    with answering(testbed, workload) as setup, pytest.raises(TrialFailed, match=said):
        tuple(workload.measure(setup))


# --- the servers whose knee is searched, on bare metal: the real ones, under the real loads --------------------------


# One run at each rate, and no bisection: the knee is the last rate that was followed.
SHORT = (
    Bind(rates=(100, 100_000), runs=1, duration=0.1, resolution=1, timeout=0.2),
    Lighttpd(rates=(100, 20_000), runs=1, duration=0.1, resolution=1, timeout=0.2),
    Apache(rates=(100, 20_000), runs=1, duration=0.1, resolution=1, timeout=0.2),
)


def measured(testbed: RunContext, workload: Workload, native: Native) -> Trial:
    steps = (PlannedTrial("native", workload.name, "native", 0, 0),)
    rounds = BlockRunner(testbed, {"native": (native,)}, ("native",), seed=1)
    ((trial, _),) = rounds.run(Block(workload.name, 0, steps), planned_of(workload), ignore_event)
    return trial


@pytest.mark.parametrize("workload", SHORT, ids=lambda each: each.name)
def test_a_real_server_has_a_knee_and_values_at_rates(testbed: RunContext, workload: KneeLoad) -> None:
    trial = measured(testbed, workload, Native())
    assert (trial.status, trial.reason) == ("ok", "")
    (knee,) = (value.value for value in trial.values if value.metric == "knee")
    assert knee >= 10
    latencies = {value.point: value.value for value in trial.values if value.metric == "latency"}
    assert latencies
    assert all(0 < seconds < 1 for seconds in latencies.values())


def test_a_port_in_use_fails_the_trial_even_if_the_other_server_answers(testbed: RunContext, tmp_path: Path) -> None:
    workload = Lighttpd(rates=(20,), runs=1, duration=0.1, resolution=1)
    (tmp_path / "file").write_text(create_page(workload.size))
    where = ("--bind", testbed.network.machine_address, "--directory", str(tmp_path))
    with testbed.host.spawn("python3", "-u", "-m", "http.server", *where, str(workload.port)) as other:
        other.read_line(60)
        trial = measured(testbed, workload, Native(network="host"))
    assert trial.status == "failed"
    assert "/usr/sbin/lighttpd ended in the instance: it printed" in trial.reason
    assert "Address already in use" in trial.reason


# --- the load at a constant rate, with the real wrk: whose stall it was, and nothing due is left out -----------------


STALL_SECONDS = 1.0


@dataclass(frozen=True)
class Micro(LatencyLoad):
    """The latency of tare's own small server."""

    name = "micro-http"
    title = "micro"

    def service(self, listen: str) -> Service:
        return Service((SERVER, "--listen", listen), self.port)


def _processes(word: str) -> Iterable[int]:
    """Find the processes with an argument that this process has started: others may test on the same machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        arguments = path.read_bytes().split(b"\0") if path.exists() else []
        if word.encode() in arguments and arguments[0] in (SERVER.encode(), b"wrk") and _is_ours(int(path.parent.name)):
            yield int(path.parent.name)


def _is_ours(pid: int) -> bool:
    """Return whether a process is in a control group of this run, or this process is its ancestor."""
    if f"tare-{os.getpid():x}-" in read_text(f"/proc/{pid}/cgroup"):
        return True
    return os.getpid() in with_ancestors(pid)


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


def _measured(testbed: RunContext, word: str, after_seconds: float) -> tuple[dict[str, float], RawOutput]:
    """Measure one turn of four seconds while one is stopped; return the latencies."""
    workload = Micro(rates=(250,), duration=4.0, connections=10)
    with answering(testbed, workload) as setup:
        turns = iter(workload.measure(setup))
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
