"""Whose program answers on a network that an instance shares with its host: real listeners of real processes."""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes import LIMITS, Bench, Watcher
from plain import Plain
from tare_fake.technology import Fake
from waiting import ENOUGH_SECONDS

from tare.hosts.exec import ExecHost
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.hosts.process import LocalProcess
from tare.model.errors import TrialFailed
from tare.model.trial import Output, Service
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest
from tare.runner.service import SharedNetwork, listening_sockets
from tare.runner.trial import TrialRun
from tare.suites.plan import PlannedTrial

HERE = "127.0.0.1"
LISTEN = """import os, socket, sys, time
listener = socket.create_server((sys.argv[1], 0))
port = listener.getsockname()[1]
if sys.argv[2:] and os.fork() == 0:
    time.sleep(600)
if sys.argv[2:]:
    listener.close()
print(port, flush=True)
time.sleep(600)
"""


@contextmanager
def listening(address: str = HERE, *extra: str) -> Iterator[tuple[int, int]]:
    """Start another program that listens; yield its process and its port."""
    with LocalHost().spawn(sys.executable, "-c", LISTEN, address, *extra) as process:
        yield process.pid, int(process.read_line(ENOUGH_SECONDS).text)


def network(*pids: int, host: Host | None = None, address: str = HERE) -> SharedNetwork:
    instance = Instance("one", LocalHost(), address, "host", processes=lambda: pids)
    return SharedNetwork(host or LocalHost(), instance)


class ThroughAShell(ExecHost):
    """This machine behind a shell that gets one text, as a machine over SSH is."""

    def __init__(self) -> None:
        super().__init__(LocalHost(), "sh", "-c")
        self.supervisor = ""

    def wrap(self, *argv: str) -> tuple[str, ...]:
        return (*self.prefix, shlex.join(argv))


HOSTS = pytest.mark.parametrize("host", [LocalHost(), ThroughAShell()], ids=["here", "through a shell"])


@HOSTS
def test_the_instances_own_listener_is_taken(host: Host) -> None:
    with listening() as (pid, port):
        network(pid, host=host).reject_foreign_listener(port)
        network(1, pid, host=host).reject_foreign_listener(port)


@HOSTS
@pytest.mark.parametrize("address", [HERE, "0.0.0.0"])  # noqa: S104 - only this machine asks
def test_a_foreign_listener_is_refused_with_its_name_number_and_port(address: str, host: Host) -> None:
    with (
        listening(address) as (pid, port),
        LocalHost().spawn("sleep", "600") as instance_process,
        pytest.raises(TrialFailed) as error,
    ):
        network(instance_process.pid, host=host).reject_foreign_listener(port)
    program = Path(sys.executable).resolve().name[:15]  # as long as the kernel keeps it
    assert str(error.value).startswith(f"another program answers on port {port}: {program[:6]}")
    assert str(error.value).endswith(f"(process {pid}), which is not the instance's")
    assert "choose another port" in error.value.hint


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ANY6, MAPPED6 = 32 * "0", "0000000000000000FFFF00000100007F"


def row(address: str, inode: str, state: str = "0A") -> str:
    return f"   0: {address}:46AA 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 0 100 0\n"


@pytest.mark.skipif(sys.byteorder != "little", reason="the texts are of such a machine")
@pytest.mark.parametrize(
    ("four", "six", "found"),
    [
        ([], ["00000000000000000000000001000000"], set()),  # ::1
        ([], [ANY6], {"six-0"}),
        ([], [ANY6, MAPPED6], {"six-1"}),
        (["00000000"], [ANY6], {"four-0"}),
        (["00000000"], [MAPPED6], {"six-0"}),
        (["0100007F", "0100007F"], [MAPPED6], {"four-0", "four-1"}),  # they share the port
    ],
)
def test_the_listeners_are_those_that_the_kernel_would_choose(four: list[str], six: list[str], found: set[str]) -> None:
    tables = {
        "tcp": HEAD + "".join(row(each, f"four-{number}") for number, each in enumerate(four)),
        "tcp6": HEAD + "".join(row(each, f"six-{number}") for number, each in enumerate(six)),
    }
    assert listening_sockets(tables, HERE, 18090) == found


@pytest.mark.skipif(sys.byteorder != "little", reason="the texts are of such a machine")
def test_only_listeners_at_the_same_address_and_port_take_connections() -> None:
    tables = {"tcp": f"{HEAD}{row('0100007F', 'A', '01')}{row('0200007F', 'B')}"}
    assert listening_sockets(tables, HERE, 18090) == frozenset()
    assert listening_sockets(tables, "127.0.0.2", 18090) == {"B"}
    assert listening_sockets(tables, "127.0.0.2", 18091) == frozenset()


def test_a_real_listener_at_all_addresses_of_both_kinds_is_found() -> None:
    tables = dict.fromkeys(("tcp", "tcp6"), "")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        tables = {name: Path(f"/proc/self/net/{name}").read_text(encoding="ascii") for name in tables}
        inode = Path(f"/proc/self/fd/{listener.fileno()}").readlink()
    assert {f"socket:[{each}]" for each in listening_sockets(tables, HERE, port)} == {str(inode)}


def test_a_child_that_has_the_listener_is_the_instances_too() -> None:
    with listening(HERE, "in a child") as (pid, port):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        asked: list[int] = []

        def processes() -> Sequence[int]:
            asked.append(1)
            return (pid,) if len(asked) == 1 else (pid, *map(int, children))

        instance = Instance("one", LocalHost(), HERE, "host", processes=processes)
        SharedNetwork(LocalHost(), instance).reject_foreign_listener(port)
    assert len(asked) == 2


@dataclass(frozen=True)
class Blind(LocalHost):
    """A host whose user may not see what others have open."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        assert (argv[0], check) == ("find", False)
        return Output(argv, 1, b"", b"find: Permission denied", 0.0)


def test_nothing_is_claimed_where_nobody_can_know() -> None:
    with listening() as (_, port), LocalHost().spawn("sleep", "600") as instance_process:
        network(instance_process.pid, host=Blind()).reject_foreign_listener(port)
        network().reject_foreign_listener(port)
        network(instance_process.pid, address="fd00::1").reject_foreign_listener(port)
        network(1 << 30).reject_foreign_listener(port)  # it has ended


# --- in a trial


@dataclass(frozen=True)
class OnTheMachine(Fake):
    """A fake on this machine's network, or on another path as set."""

    network: str = "host"

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        with super().launch(host, launch) as instance, LocalHost().spawn("sleep", "600") as instance_process:
            inside = Inside()
            yield replace(
                instance,
                inside=inside,
                address=HERE,
                network_path=self.network,
                processes=lambda: (instance_process.pid,),
            )


@dataclass(frozen=True)
class Inside(LocalHost):
    """This machine as an inside and as a client."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        if argv[-1] == "--limits":
            return Output(argv, 0, b"cpus: 1\n", b"", 0.0)
        return super().run(*argv, timeout=timeout, input=input, check=check)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[LocalProcess]:
        argv = ("echo", "answered") if argv[0].endswith("/probe") else argv
        return super().spawn(*argv, die_with_parent=die_with_parent)


@dataclass(frozen=True)
class Elsewhere(Plain):
    """Its server never listens; its load is content with whoever answers."""

    at: int = 0

    def service(self, listen: str) -> Service:  # noqa: ARG002 - it never listens
        return Service(("sleep", "600"), self.at)


def trial_of(technology: Fake, port: int, folder: Path) -> tuple[str, str]:
    testbed = replace(Bench(folder, Watcher(folder / "none"))._place(), client=Inside(), limits=LIMITS)
    with TrialRun(
        testbed, PlannedTrial("one", "elsewhere", "fake", 0, 0), testbed.create_spec(technology), Elsewhere(port)
    ) as attempt:
        attempt.start()
        attempt.measure_from(0)
        while attempt.run_turn(0, 0.0):
            pass
        attempt.end()
        trial, _ = attempt.to_finished_trial()
    return trial.status, trial.reason


def test_a_trial_fails_if_another_program_answers_instead_of_the_server(tmp_path: Path) -> None:
    with listening() as (pid, port):
        status, reason = trial_of(OnTheMachine(), port, tmp_path)
        assert trial_of(OnTheMachine(network="bridge"), port, tmp_path) == ("ok", "")  # a private address
    assert status == "failed"
    assert f"another program answers on port {port}: " in reason
    assert f"(process {pid})" in reason
