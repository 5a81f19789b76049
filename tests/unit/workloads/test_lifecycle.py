"""The life of an instance: commands by exec, stops, bursts of starts, and busy neighbors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
from setups import Answer, Inside, OneByOne, running_in
from tare_fake.technology import FakeHost, StandInProcess

from tare.hosts.exec import AgentHost, ExecHost
from tare.hosts.host import Host, Process
from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.model.lifecycle import Burst, BurstStart
from tare.model.trial import Caution, Footprint, Output, RawOutput, Value
from tare.plugins.instance import OuterHost
from tare.plugins.workload import ExtraInstance, MeasurementContext, Workload
from tare.workloads import interference as interference_module
from tare.workloads.exec import Exec
from tare.workloads.interference import Interference
from tare.workloads.startup_burst import StartupBurst
from tare.workloads.stop import InstanceStop

USAGE = "\ntare-rusage: wall {} user 0.001 system 0.002 waited 0.0 memory 1048576 exit {}\n"
PUBLIC_KEY = "ssh-ed25519 AAAA tare\n"


# --- exec


@dataclass(frozen=True)
class Machine(Inside):
    """The host of an instance, which notes what it is asked to run."""

    def read(self, path: str) -> str:
        return PUBLIC_KEY if path.endswith(".pub") else ""


def entered(machine: Host, inside: Host) -> MeasurementContext:
    setup = running_in(inside)
    instance = replace(setup.instance, address="198.18.0.10")
    return replace(setup, instance=instance, outer=OuterHost(machine, "/programs", "/folder"))


def exec_outputs(machine: Host, inside: Host, workload: Exec) -> list[RawOutput]:
    return list(workload.measure(entered(machine, inside)))


def machine(answer: Answer) -> Machine:
    return Machine(1.0, "", FakeHost().limits, answer=answer)


def test_commands_are_entered_by_the_engines_tool_and_timed_on_its_host() -> None:
    host = machine(lambda _: USAGE.format("0.050000000", 0))
    raw = exec_outputs(host, ExecHost(host, "docker", "exec", "x"), Exec("echo 1", commands=2))
    assert [json.loads(each.text) for each in raw] == 3 * [[0.05, 0.05]]
    assert set(host.calls) == {("/programs/rusage", "docker", "exec", "x", "echo", "1")}
    assert Exec().parse(raw[:1]) == (Value("p50", None, 0.05),)


def test_an_engine_of_a_user_is_entered_as_that_user() -> None:
    host = machine(lambda _: USAGE.format("0.050000000", 0))
    engine = ExecHost(host, "setpriv", "--reuid=1000")
    exec_outputs(host, ExecHost(engine, "podman", "exec", "x"), Exec(commands=1))
    assert host.calls[0][1:] == ("setpriv", "--reuid=1000", "podman", "exec", "x", "true")


def test_a_turn_of_commands_ends_after_its_duration() -> None:
    host = machine(lambda _: USAGE.format("0.050000000", 0))
    raw = exec_outputs(host, ExecHost(host, "docker", "exec", "x"), Exec(commands=1000, duration=1e-9))
    assert [len(json.loads(each.text)) for each in raw] == [1, 1, 1]


def test_the_turns_of_a_trial_have_as_many_commands_as_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first turn ends after 2 s with 16 commands; the later ones, which are slower, would end before."""
    now, calls = [0.0], [0]

    def run(_: tuple[str, ...]) -> str:
        calls[0] += 1
        now[0] += 0.126 if calls[0] <= 16 else 0.2
        return USAGE.format("0.126", 0)

    monkeypatch.setattr("tare.workloads.exec.time", SimpleNamespace(monotonic=lambda: now[0]))
    host = machine(run)
    raw = exec_outputs(host, ExecHost(host, "podman", "exec", "x"), Exec())
    assert [len(json.loads(each.text)) for each in raw] == [16, 16, 16]
    assert {tuple(value.metric for value in Exec().parse([each])) for each in raw} == {("p50", "p95")}


@pytest.mark.parametrize("code", [1, 127])
def test_a_command_that_fails_inside_fails_the_trial_with_its_message(code: int) -> None:
    host = machine(lambda argv: Output(argv, 0, USAGE.format("0.05", code).encode(), b"no such thing\n", 0.1))
    with pytest.raises(TrialFailed, match=rf"^docker: exit code {code}: no such thing$"):
        exec_outputs(host, ExecHost(host, "docker", "exec", "x"), Exec())


@dataclass
class Program(StandInProcess):
    """A program that runs, or has ended."""

    is_alive: bool = True

    def is_running(self) -> bool:
        return self.is_alive

    def send(self, text: str) -> None:
        raise AssertionError(text)


class Guest(AgentHost):
    """A guest that boots tare's image, in which a server of SSH may run."""

    def __init__(self, machine: Host, *, runs: bool = True, has_server: bool = True) -> None:
        super().__init__(machine, "guest_exec", "198.18.0.10")
        self.runs, self.has_server = runs, has_server
        self.written: dict[str, str] = {}
        self.calls: list[tuple[str, ...]] = []

    def run(self, *argv: str, timeout: float, input: object = b"", check: bool = True) -> Output:  # noqa: A002
        del timeout, input, check
        self.calls.append(argv)
        return Output(argv, int(argv[0] == "test" and not self.has_server), b"", b"", 0.0)

    def write(self, path: str, text: str) -> None:
        self.written[path] = text

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[Process]:
        del die_with_parent
        self.calls.append(argv)
        return nullcontext(Program(argv, is_alive=self.runs))


def test_a_guest_is_entered_over_ssh_with_a_key_that_is_gone_afterwards() -> None:
    host = machine(lambda argv: USAGE.format("0.2", 0) if argv[0] == "/programs/rusage" else "")
    guest = Guest(host)
    raw = exec_outputs(host, guest, Exec(commands=1))
    assert json.loads(raw[0].text) == [0.2]
    assert guest.written == {"/run/tare-exec-keys": PUBLIC_KEY}
    timed = next(call for call in host.calls if call[0] == "/programs/rusage")
    assert timed[1:4] == ("ssh", "-F", "/dev/null")
    assert timed[-4:] == ("-i", "/folder/exec-key", "root@198.18.0.10", "true")
    assert host.calls[-1] == ("rm", "-f", "/folder/exec-key", "/folder/exec-key.pub")
    assert guest.calls[-1][:2] == ("rm", "-f")


def test_the_guests_shell_gets_the_words_of_a_command_as_they_are() -> None:
    host = machine(lambda argv: USAGE.format("0.2", 0) if argv[0] == "/programs/rusage" else "")
    exec_outputs(host, Guest(host), Exec("sh -c 'ls /srv > /dev/null'", commands=1))
    timed = next(call for call in host.calls if call[0] == "/programs/rusage")
    assert timed[-2:] == ("root@198.18.0.10", "sh -c 'ls /srv > /dev/null'")


def test_a_guest_whose_ssh_server_ends_fails_the_trial() -> None:
    host = machine(lambda argv: Output(argv, 255 if argv[0] == "ssh" else 0, b"", b"", 0.1))
    with pytest.raises(TrialFailed, match="no SSH connection to the guest") as failure:
        exec_outputs(host, Guest(host, runs=False), Exec())
    assert "tare show" in failure.value.hint


def test_an_image_without_an_ssh_server_is_named() -> None:
    host = machine(lambda _: "")
    with pytest.raises(TrialFailed, match="the guest has no SSH server") as failure:
        exec_outputs(host, Guest(host, has_server=False), Exec())
    assert "openssh-server" in failure.value.hint
    assert host.calls == []


def test_exec_needs_the_host_of_the_instance() -> None:
    with pytest.raises(TrialFailed, match="needs the host of the instance"):
        list(Exec().measure(running_in(ExecHost(LocalHost(), "docker", "exec", "x"))))


# --- stops and bursts


@dataclass
class Starter(OneByOne):
    """A starter whose stops and bursts take given times."""

    stops: Sequence[float] = (0.25,)
    failing: int = 0
    counts: list[tuple[int, float]] = field(default_factory=list)
    memory_limit_bytes = 1 << 30

    def __post_init__(self) -> None:
        self.left = iter(self.stops)

    def start_instance(
        self, workload: Workload, limit_bytes: int | None = None
    ) -> AbstractContextManager[ExtraInstance]:
        raise AssertionError(workload, limit_bytes)

    def measure_stop(self) -> float:
        return next(self.left)

    def start_burst(self, count: int, stagger_seconds: float) -> Burst:
        self.counts.append((count, stagger_seconds))
        failed = [BurstStart(None, "the guest did not boot")] * min(self.failing, count)
        return Burst((*failed, *[BurstStart(0.5)] * (count - len(failed))), 0.1)

    def measure_footprint(self) -> Footprint:
        raise AssertionError

    def spare_memory_share(self) -> float:
        raise AssertionError


def measured(workload: Workload, starter: Starter) -> list[RawOutput]:
    return list(workload.measure(replace(running_in(None), instance_starter=starter)))


def test_stops_are_those_of_instances_that_were_started_for_it() -> None:
    raw = measured(InstanceStop(stops=3), Starter((0.1, 0.3, 0.2)))
    assert InstanceStop().parse(raw) == (Value("p50", None, 0.2),)


def test_the_95th_percentile_needs_16_durations() -> None:
    seconds = [float(number) for number in range(1, 22)]
    raw = measured(InstanceStop(stops=21), Starter(seconds))
    assert InstanceStop().parse(raw) == (
        Value("p50", None, 11.0),
        Value("p95", None, 20.0),
    )  # numpy.percentile(seconds, 95)
    assert [each.metric for each in InstanceStop().parse(measured(InstanceStop(stops=15), Starter(seconds)))] == ["p50"]


def test_small_bursts_are_repeated_until_they_have_as_many_starts() -> None:
    starter = Starter()
    raw = measured(StartupBurst(concurrency=(1, 4, 16), stagger=0.1), starter)
    assert starter.counts == 16 * [(1, 0.1)] + 4 * [(4, 0.1)] + [(16, 0.1)]
    found = {(each.metric, each.point): each.value for each in StartupBurst().parse(raw)}
    assert found["p95", 16.0] == found["slowest", 1.0] == 0.5
    assert [found["cpu", 1.0], found["cpu", 16.0]] == pytest.approx([0.1, 0.1 / 16])
    assert found["started", 4.0] == 4.0
    assert StartupBurst().find_cautions(raw) == ()


def test_failed_starts_are_counted_and_are_a_caution_with_their_reason() -> None:
    workload = StartupBurst(concurrency=(4,))
    raw = measured(workload, Starter(failing=1))
    assert {each.metric: each.value for each in workload.parse(raw)}["started"] == 3.0
    what = "1 of 4 instances did not start: the guest did not boot"
    assert workload.find_cautions(raw) == (Caution("failed-starts", what),)


def test_a_burst_in_which_nothing_starts_fails_the_trial() -> None:
    workload = StartupBurst(concurrency=(4,))
    with pytest.raises(TrialFailed, match="none of 4 instances started: the guest did not boot"):
        workload.parse(measured(workload, Starter(failing=4)))


def test_a_burst_needs_memory_for_its_instances_and_the_trials_own() -> None:
    assert StartupBurst().instances_at_once == 17
    assert InstanceStop().instances_at_once == 2


# --- neighbors


@dataclass(frozen=True)
class Busy(Inside):
    """The inside of an instance whose programs run until they are ended, or end at once."""

    is_alive: bool = True
    spawned: list[tuple[str, ...]] = field(default_factory=list)
    ended: list[tuple[str, ...]] = field(default_factory=list)

    @contextmanager
    def spawn(self, *argv: str, die_with_parent: bool = False) -> Iterator[Process]:
        del die_with_parent
        self.spawned.append(argv)
        yield Program(argv, is_alive=self.is_alive)
        self.ended.append(argv)


@dataclass
class Neighborly(Starter):
    """A starter of one neighbor."""

    neighbor: Busy = field(default_factory=lambda: Busy(1.0, "", FakeHost().limits))

    @contextmanager
    def start_neighbor(self, workload: Workload) -> Iterator[ExtraInstance]:
        assert isinstance(workload, Interference)
        yield ExtraInstance(replace(running_in(self.neighbor), client_address="198.18.0.2"), lambda: 0)


def slowed(neighbor: Busy, workload: Interference, monkeypatch: pytest.MonkeyPatch) -> list[RawOutput]:
    """Measure on a machine where an operation takes three times as long while the neighbor is busy."""
    monkeypatch.setattr(interference_module, "_SETTLE_SECONDS", 0.0)

    def answer(argv: tuple[str, ...]) -> str:
        is_busy = len(neighbor.spawned) > len(neighbor.ended)
        program, kind = argv[0].rpartition("/")[2], argv[-3]
        return f"program: {program}\nkind: {kind}\ntimes: 1000\nseconds: {0.3 if is_busy else 0.1}\n"

    host = Busy(1.0, "", FakeHost().limits, answer=answer)
    setup = replace(entered(host, host), client=host, instance_starter=Neighborly(neighbor=neighbor))
    return list(workload.measure(setup))


def test_each_neighbor_is_busy_in_every_second_turn_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbor, workload = Busy(1.0, "", FakeHost().limits), Interference(pairs=2)
    raw = slowed(neighbor, workload, monkeypatch)
    assert [each.label for each in raw[:4]] == ["cpu idle", "cpu busy", "cpu idle", "cpu busy"]
    assert len(raw) == 16
    values = workload.parse(raw)
    assert [each.metric for each in values] == ["cpu", "memory", "disk", "network"]
    assert [each.value for each in values] == pytest.approx([3.0] * 4)
    assert len(neighbor.spawned) == len(neighbor.ended) == 10  # for messages, a server runs on the client, too
    assert neighbor.spawned[-1][1] == "198.18.0.2"


def test_a_neighbor_whose_program_ends_fails_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbor = Busy(1.0, "", FakeHost().limits, is_alive=False)
    with pytest.raises(TrialFailed, match="the neighbor's program of disk has ended: silently"):
        slowed(neighbor, Interference(neighbors=("disk",)), monkeypatch)
