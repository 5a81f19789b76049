"""Server of a workload: its output is recorded, and a trial fails if the server has ended, whoever answered."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from fakes import LIMITS, Bench, Watcher, record, run_trial, suite
from plain import Plain
from tare_fake.technology import Fake
from waiting import ENOUGH_SECONDS

from tare.cli.reparse import _read_again
from tare.hosts.exec import SUPERVISE
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.hosts.process import LocalProcess
from tare.model.errors import TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.run_folder import RunWriter
from tare.model.trial import Output, RawOutput, Service
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, Technology
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.layers import PROBE
from tare.runner.sanity_checks import reject_swapping
from tare.runner.service import ServicePlacement, ServiceProcess, start_service
from tare.runner.trial import TrialRun
from tare.suites.plan import PlannedTrial
from tare.technologies.docker import Docker
from tare.technologies.qemu_tcg import QemuTcg

STEP = PlannedTrial("one", "given-up", "fake", 0, 0)


@dataclass(frozen=True)
class Place(LocalHost):
    """This machine as the inside of an instance, and as a client that is always answered."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        if argv == (SUPERVISE, "--limits"):
            return Output(argv, 0, b"cpus: 1\n", b"", 0.0)
        return super().run(*argv, timeout=timeout, input=input, check=check)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[LocalProcess]:
        if argv[0] == PROBE:
            return super().spawn("echo", "answered")
        return super().spawn(*argv, die_with_parent=die_with_parent)


@dataclass(frozen=True)
class Reachable(Fake):
    """A fake whose inside and address are those of this machine."""

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        with super().launch(host, launch) as instance:
            yield replace(instance, inside=Place(), address="127.0.0.1")


@dataclass(frozen=True)
class GivenUp(Plain):
    """Its server says that it has no port, and ends when it is told to; its load is content with whoever answers."""

    name: ClassVar[str] = "given-up"

    pipe: str = ""
    ends: bool = True

    def service(self, listen: str) -> Service:  # noqa: ARG002 - it never listens
        return Service(("sh", "-c", 'echo "cannot listen: in use"; read -r _ <"$1"', "server", self.pipe), 1)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        if self.ends:
            Path(self.pipe).write_text("end\n", encoding="utf-8")
        yield from super().measure(setup)


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


@pytest.mark.parametrize("ends", [True, False])
def test_a_trial_fails_whose_server_has_ended_though_its_values_are_good(ends: bool, pipe: str, tmp_path: Path) -> None:
    testbed = replace(Bench(tmp_path / "run", Watcher(tmp_path / "none"))._place(), client=Place(), limits=LIMITS)
    with TrialRun(testbed, STEP, testbed.create_spec(Reachable()), GivenUp(pipe, ends)) as attempt:
        attempt.start()
        attempt.measure_from(0)
        while attempt.run_turn(0, time.monotonic()):
            pass
        process = attempt._server.process
        while ends and process and process.is_running():
            time.sleep(0.01)
        attempt.end()
        trial, raw = attempt.to_finished_trial()
    if not ends:
        assert (trial.status, trial.values[0].value) == ("ok", 100.0)
        return
    assert (trial.status, trial.values) == ("failed", ())
    assert trial.reason.startswith("sh ended in the instance: it printed 'cannot listen: in use'; ")
    assert [(each.label, each.text) for each in raw] == [("all", "100"), ("service", "cannot listen: in use")]


def test_a_server_started_by_an_enterable_instance_is_still_measured(pipe: str) -> None:
    instance = Instance("tare-x", Place(), "127.0.0.1", "tap", processes=tuple, served_ports={"given-up": 80})
    with start_service(instance, GivenUp(pipe)) as server:
        assert (server.process, server.service and server.service.port) == (None, 80)
    with start_service(replace(instance, served_ports={"redis": 6379}), GivenUp(pipe)) as server:
        assert server.process is not None


@dataclass(frozen=True)
class Slow(GivenUp):
    """A server that is ready when it has slept."""

    def service(self, listen: str) -> Service:
        script = 'sleep 0.3; touch "$1.ready"; read -r _ <"$1"'
        ready = ("test", "-e", f"{self.pipe}.ready")
        return replace(super().service(listen), argv=("sh", "-c", script, "server", self.pipe), ready_argv=ready)


def test_the_time_until_a_server_is_ready_is_a_value_that_reparse_keeps(pipe: str, tmp_path: Path) -> None:
    testbed = replace(Bench(tmp_path / "run", Watcher(tmp_path / "none"))._place(), client=Place(), limits=LIMITS)
    trial, raw = run_trial(testbed, STEP, testbed.create_spec(Reachable()), workload := Slow(pipe, ends=False))
    speed, ready = trial.values
    assert (speed.metric, speed.value) == ("speed", 100.0)
    assert (ready.metric, ready.point, ready.unit, ready.better) == ("service-ready", None, "s", "lower")
    assert ready.value >= 0.3  # it has slept
    journal = RunWriter(tmp_path / "kept")
    journal.create(record(suite("a:")), "")
    journal.append((trial, raw))
    assert _read_again(tmp_path / "kept", trial, workload).values == (speed, ready)


@dataclass(frozen=True)
class Driven(GivenUp):
    """Its load says that it used this share of a CPU in each of two turns."""

    client_cpu: float = 0.0
    is_closed_loop: ClassVar[bool] = True
    rounds: ClassVar[int] = 2

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:  # noqa: ARG002 - as above
        yield RawOutput("all", ("load",), "100", 0.1, warm_up=True)
        for _ in range(self.rounds):
            yield RawOutput("all", ("load",), "100", 0.1, client_cpu=self.client_cpu)


@dataclass(frozen=True)
class AtARate(Driven):
    """The same, of a load that rests between its requests."""

    is_closed_loop: ClassVar[bool] = False


@pytest.mark.parametrize(
    ("workload", "server_ticks", "waits"),
    [(Driven, 1, True), (Driven, 19, False), (partial(Driven, client_cpu=0.5), 1, False), (AtARate, 1, False)],
)
def test_a_trial_bears_a_caution_where_server_and_load_waited(
    workload: Callable[..., Workload], server_ticks: int, waits: bool, pipe: str, tmp_path: Path
) -> None:
    testbed = replace(Bench(tmp_path / "run", Watcher(tmp_path / "none"))._place(), client=Place(), limits=LIMITS)
    looks = itertools.count()

    def machine(*_: object) -> dict[str, str]:
        """Return what its CPU did: 100 ticks between two looks, in some of which it was busy."""
        at = next(looks)
        ticks = f"{server_ticks * at} 0 0 {(100 - server_ticks) * at} 0 0 0 0 0 0"
        return {"/proc/stat": f"cpu  {ticks}\ncpu0 {ticks}\n"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tare.telemetry.turn_usage.read_files", machine)
        trial, _ = run_trial(testbed, STEP, testbed.create_spec(Reachable()), workload(pipe=pipe, ends=False))
    assert trial.status == "ok", trial.reason
    assert ("waiting" in {caution.kind for caution in trial.cautions}) is waits


def test_the_end_of_a_server_is_awaited_as_the_load_may_notice_it_earlier() -> None:
    service = Service(("given-up",), 1)
    script = "read -r _; echo no memory >&2; exit 1"
    with LocalHost().spawn("sh", "-c", script) as process, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tare.runner.service._EXIT_NEWS_SECONDS", ENOUGH_SECONDS)
        server = ServiceProcess("127.0.0.1", service, process)
        assert server.failure_reason() == ""
        threading.Timer(0.1, process.send, ("end\n",)).start()
        assert server.await_failure_reason() == "given-up ended in the instance: it printed 'no memory'"
    with LocalHost().spawn("sleep", "600") as process:
        assert ServiceProcess("127.0.0.1", service, process).await_failure_reason() == ""


@dataclass(frozen=True)
class OfYours(GivenUp):
    """A workload whose server prints a variable that only the image sets."""

    has_user_server: ClassVar[bool] = True

    def service(self, listen: str) -> Service:
        usual = super().service(listen)
        return replace(usual, argv=("sh", "-c", 'echo "mark $MARK"; read -r _ <"$1"', "server", self.pipe))


@dataclass(frozen=True)
class OfTares(OfYours):
    """The same, as a workload of tare's would run it."""

    has_user_server: ClassVar[bool] = False


def test_only_a_user_server_is_started_as_the_image_says(pipe: str, tmp_path: Path) -> None:
    testbed = replace(Bench(tmp_path / "run", Watcher(tmp_path / "none"))._place(), client=Place(), limits=LIMITS)
    image = replace(testbed.images.main, start_command=("env", "MARK=set", "env"))
    testbed = replace(testbed, images=replace(testbed.images, main=image))
    for workload, says in ((OfYours(pipe), "mark set"), (OfTares(pipe), "mark")):
        with TrialRun(testbed, STEP, testbed.create_spec(Reachable()), workload) as attempt:
            attempt.start()
            attempt.measure_from(0)
            while attempt.run_turn(0, time.monotonic()):
                pass
            process = attempt._server.process
            while process and process.is_running():
                time.sleep(0.01)
            attempt.end()
            _, raw = attempt.to_finished_trial()
        assert raw[-1].text == says


@dataclass(frozen=True)
class Guest(LocalHost):
    """A guest with counters of swap."""

    vmstat: str = ""

    def read(self, path: str) -> str:
        assert path == "/proc/vmstat"
        return self.vmstat


SWAPPED = "nr_free_pages 9\npswpin 3\npswpout 40\n"


def test_a_guest_that_swaps_is_refused() -> None:
    instance = Instance("one", Guest(SWAPPED), None, "none", lambda: ())
    with pytest.raises(TrialFailed, match="the guest swapped: 43 pages went to its swap or came back"):
        reject_swapping((Docker(), QemuTcg()), instance)


@pytest.mark.parametrize(("stack", "vmstat"), [
    ((Docker(),), SWAPPED),  # these are the machine's, of all that runs on it
    ((QemuTcg(),), "pswpin 0\npswpout 0\n"),
    ((QemuTcg(),), ""),  # a kernel without swap
])  # fmt: skip
def test_what_has_not_swapped_by_itself_is_not(stack: tuple[Technology, ...], vmstat: str) -> None:
    reject_swapping(stack, Instance("one", Guest(vmstat), None, "none", lambda: ()))


# --- whether it has a command


HERE = Path("/image")
IMAGE = Image("0" * 64, HERE, HERE, HERE, HERE, HERE, "")


@dataclass(frozen=True)
class WithoutWords(GivenUp):
    """A user-supplied server that is started by the command of its image."""

    has_user_server: ClassVar[bool] = True

    def service(self, listen: str) -> Service:  # noqa: ARG002 - it never listens
        return Service((), 1)


def test_a_server_without_words_is_the_images_command_if_there_is_one() -> None:
    instance = Instance("one", Place(), "127.0.0.1", "host", lambda: ())
    image = replace(IMAGE, start_command=("echo", "of the image"))
    with start_service(instance, WithoutWords(), image) as server:
        while server.process and server.process.is_running():
            time.sleep(0.01)
    assert server.failure_reason() == "the image's command ended in the instance: it printed 'of the image'"
    with pytest.raises(TrialFailed, match="the server has no command"), start_service(instance, WithoutWords()):
        pass


# --- whether it is ready


@dataclass(frozen=True)
class Asking(Place):
    """A client whose curl prints what it is told to, one text after the other, and then the last one again."""

    answers: tuple[str, ...] = ()
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        assert (argv[0], timeout, input, check) == ("curl", 30, b"", False)
        self.asked.append(argv)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if answer.isdigit():
            return Output(argv, 0, answer.encode(), b"", 0.0)
        return Output(argv, 52, b"000", answer.encode(), 0.0)


def serving(path: str = "", status: int = 200, seconds: float = 30) -> ServiceProcess:
    return ServiceProcess("198.18.0.10", Service(("app", "--quiet"), 80, (), path, status, seconds))


def test_a_server_without_a_path_is_ready_when_it_takes_connections() -> None:
    client = Asking()
    serving().await_ready(client)
    assert client.asked == []


def test_a_server_behind_a_proxy_is_ready_when_it_listens_inside() -> None:
    head, listening = "  sl  local_address", "   0: 00000000:0050 00000000:0000 0A 0:0 00:0 0 0 0 4711"
    texts = iter(["", head, f"{head}\n{listening}"])
    inside = ServicePlacement(LocalHost(), "198.18.0.10", socket_tables=lambda: {"tcp": next(texts)})
    replace(serving(), placement=inside).await_ready(Asking())
    assert list(texts) == []


def test_a_server_behind_a_proxy_that_never_listens_is_given_up() -> None:
    inside = ServicePlacement(LocalHost(), "198.18.0.10", socket_tables=lambda: {"tcp": ""})
    with pytest.raises(TimedOut, match=r"^app does not answer within 0\.01 s$"):
        replace(serving(seconds=0.01), placement=inside).await_ready(Asking())


def test_a_server_with_a_path_is_ready_once_that_returns_the_status() -> None:
    client = Asking(answers=("curl: (52) Empty reply from server", "503", "200", "204"))
    serving("/health?[1-2]", 204).await_ready(client)
    assert [asked[-1] for asked in client.asked] == 4 * ["http://198.18.0.10:80/health?[1-2]"]
    assert "--globoff" in client.asked[0]  # brackets are the user's


@pytest.mark.parametrize(
    ("answer", "told"),
    [("503", "status 503"), ("curl: (28) Operation timed out\n", r"curl: \(28\) Operation timed out")],
)
def test_a_server_that_answers_otherwise_or_not_at_all_is_given_up(answer: str, told: str) -> None:
    expected = f"^app does not answer /health with status 200 within 0.01 s; the last answer: {told}$"
    with pytest.raises(TimedOut, match=expected):
        serving("/health", 200, 0.01).await_ready(Asking(answers=(answer,)))


def test_a_server_that_ends_before_it_is_ready_is_given_up_at_once() -> None:
    with LocalHost().spawn("true") as process:
        while process.is_running():
            time.sleep(0.01)
        server = replace(serving("/health", 200, 600), process=process)
        with pytest.raises(TrialFailed, match=r"^app does not answer"):
            server.await_ready(Asking(answers=("200",)))
        assert server.failure_reason() == "app ended in the instance"


# --- how it ends

STARTED = """import os, signal, sys, time
open(sys.argv[2], "w").write(str(os.getpid()))
signal.signal(signal.SIGQUIT, lambda *_: (print("asked", flush=True), sys.exit()))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_server_is_ended_by_the_signal_of_its_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.runner.service._PID_FILE", str(tmp_path / "number"))
    monkeypatch.setattr("tare.runner.service.TOOLS", "env")
    monkeypatch.setattr("tare.runner.service._STOP_SECONDS", ENOUGH_SECONDS)
    image = replace(IMAGE, start_command=(sys.executable, "-c", STARTED), stop_signal="QUIT")
    instance = Instance("one", LocalHost(), "127.0.0.1", "host", lambda: ())
    with start_service(instance, WithoutWords(), image) as server:
        while list(server.output_lines) != ["ready"]:
            time.sleep(0.01)
    assert list(server.output_lines) == ["ready", "asked"]


def test_a_server_that_nobody_can_ask_to_end_is_ended_all_the_same() -> None:
    image = replace(IMAGE, start_command=("sh", "-c", "exec sleep 600"), stop_signal="NONE")
    instance = Instance("one", LocalHost(), "127.0.0.1", "host", lambda: ())
    with start_service(instance, WithoutWords(), image) as server:
        assert server.process is not None
    assert not server.process.is_running()
