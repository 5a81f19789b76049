"""`guest_agent` and `guest_exec`, compiled here as in the image, on this machine's loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from compiled import call, compiled, first_line, started
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import comes_true

from tare.hosts.exec import ExecHost
from tare.hosts.local import LocalHost

HOST = "127.0.0.1"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can use a port below 1024")


@dataclass(frozen=True)
class GuestAgent:
    """A running guest agent, and the program that connects to it."""

    port: int
    programs: Path

    @property
    def prefix(self) -> tuple[str, ...]:
        return (str(self.programs / "guest_exec"), HOST, str(self.port), f"{SECONDS:g}")

    def run(self, *argv: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return call(Path(self.prefix[0]), *self.prefix[1:], *argv, data=data)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "guest_exec", "guest_agent", "supervise")


def _free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


@pytest.fixture
def agent(programs: Path) -> Iterator[GuestAgent]:
    port = _free_port()
    with started(programs / "guest_agent", str(port), HOST) as process:
        assert first_line(process).decode() == f"tare-guest: agent of {os.uname().release}\n"
        yield GuestAgent(port, programs)


def test_a_command_has_its_arguments_streams_and_exit_code(agent: GuestAgent) -> None:
    ended = agent.run("sh", "-c", 'cat; echo "$1" >&2; exit 7', "sh", "two words\n", data=b"input\0\xff")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"input\0\xff", b"two words\n\n")


def test_many_bytes_pass_both_ways_at_once(agent: GuestAgent) -> None:
    data = os.urandom(20 << 20)
    assert agent.run("cat", data=data).stdout == data


def test_input_that_nobody_reads_does_no_harm(agent: GuestAgent) -> None:
    assert agent.run("true", data=bytes(10 << 20)).returncode == 0


def test_what_a_command_leaves_behind_is_not_waited_for(agent: GuestAgent) -> None:
    ended = agent.run("sh", "-c", "sleep 70301 & echo $!; echo last")
    left, _, rest = ended.stdout.partition(b"\n")
    assert (ended.returncode, rest) == (0, b"last\n")
    os.kill(int(left), signal.SIGKILL)


def test_the_input_of_a_command_ends_when_guest_exec_is_killed(agent: GuestAgent, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    with started(*agent.prefix, "sh", "-c", f"echo begun; cat; touch {heard}") as process:
        assert first_line(process) == b"begun\n"
        process.kill()
        assert comes_true(heard.exists)


def test_only_root_on_the_host_may_connect(agent: GuestAgent, programs: Path) -> None:
    with closing(socket.create_connection((HOST, agent.port), SECONDS)) as anybody:
        anybody.sendall(b"\0\0\0\5true\0")
        with suppress(ConnectionResetError):
            assert anybody.recv(1) == b""
    port = _free_port()
    with started(programs / "guest_agent", str(port), "127.0.0.2") as process:  # the test connects from another address
        first_line(process)
        refused = GuestAgent(port, programs).run("true")
    assert refused.returncode == 255
    assert refused.stderr.startswith(b"guest_exec: 127.0.0.1: ")


def test_a_guest_that_does_not_listen_is_reported_with_the_reason(programs: Path) -> None:
    ended = GuestAgent(_free_port(), programs).run("true")
    assert (ended.returncode, ended.stderr) == (255, b"guest_exec: 127.0.0.1: Connection refused\n")


# In a network namespace: to connect by an unreachable route fails like a guest that does not answer ARP, until the
# address is one of the namespace itself.
_LATE = """\
ip link set lo up && ip route add unreachable 10.9.9.9
timeout 30 {programs}/guest_exec 10.9.9.9 {port} 0.2 true
[ $? = 255 ] || exit 9
: >{said}
{programs}/guest_agent {port} 10.9.9.9 >{said} &
until grep -q agent {said}; do sleep 0.01; done
(sleep 0.3; ip address add 10.9.9.9/32 dev lo) &
exec {programs}/guest_exec 10.9.9.9 {port} 60 echo here
"""


def test_a_guest_that_does_not_answer_arp_yet_is_retried(programs: Path, tmp_path: Path) -> None:
    script = _LATE.format(programs=programs, port=_free_port(), said=tmp_path / "said")
    ended = call(Path("/usr/bin/unshare"), "--net", "--pid", "--fork", "--kill-child", "sh", "-c", script)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == b"here\n"
    assert ended.stderr == b"guest_exec: 10.9.9.9: No route to host\n"


def test_guest_init_refuses_to_run_unless_it_is_the_first_process(tmp_path: Path) -> None:
    program = compiled(tmp_path, "guest_init") / "guest_init"
    # Namespaces for all that it would change if it did not refuse.
    ended = call(Path("/usr/bin/unshare"), "--mount", "--net", "--uts", str(program))
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr == b"guest_init: it must be the first process of a guest\n"


def test_a_resident_agent_in_the_guest_starts_all_commands(agent: GuestAgent, programs: Path) -> None:
    inside = ExecHost(LocalHost(), *agent.prefix)
    inside.supervisor = str(programs / "supervise")
    with inside.start_resident() as resident:
        resident.await_ready(SECONDS)
        assert inside.run("echo", "two  words", timeout=SECONDS).text == "two  words\n"
        data = os.urandom((1 << 20) + 1)  # more than a resident agent takes
        assert inside.run("cat", timeout=SECONDS, input=data).stdout == data
    assert inside.run("true", timeout=SECONDS).exit_code == 0


def test_wrong_arguments_are_refused(programs: Path) -> None:
    assert call(programs / "guest_agent", "0", HOST).returncode == 2
    assert call(programs / "guest_exec", HOST, "17006", "0", "true").returncode == 2
    assert call(programs / "guest_exec", HOST, "17006", "1").returncode == 2
