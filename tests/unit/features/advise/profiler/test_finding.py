"""Which processes are profiled, and what cannot be."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from tare.features.advise.profiler import command
from tare.hosts.local import LocalHost
from tare.model.errors import TareError, UsageError
from tare.model.trial import Output

HOST = LocalHost()


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A shell that waits for a `sleep`."""
    with subprocess.Popen(("sh", "-c", "sleep 1000; true"), start_new_session=True) as process:
        wait_until(lambda: len(command.descendants(HOST, process.pid)) == 2)
        yield process
        os.killpg(process.pid, 9)


class Engines(LocalHost):
    """Answers of engines' clients, by the program."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []

    def run(
        self,
        *argv: str,
        timeout: float,  # noqa: ARG002
        input: bytes | Path = b"",  # noqa: A002, ARG002
        check: bool = True,
    ) -> Output:
        self.asked.append(argv)
        if argv[0] in self.answers:
            return Output(argv, 0, self.answers[argv[0]].encode(), b"", 0.0)
        return super().run("false", timeout=1.0, check=check)


def test_a_process_is_profiled_with_its_children(family: subprocess.Popen[bytes]) -> None:
    target = command.find_process(HOST, family.pid)
    assert target.name == f"sh (process {family.pid})"
    assert len(target.processes()) == 2
    assert family.pid in target.processes()


@pytest.mark.parametrize("pid", [-1, 0, 1 << 30])
def test_a_process_that_is_not_there_is_refused(pid: int) -> None:
    with pytest.raises(UsageError, match=f"--pid {pid}: no such process"):
        command.find_process(HOST, pid)


def test_a_process_that_has_ended_and_was_not_waited_for_is_refused() -> None:
    with subprocess.Popen(("true",)) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(UsageError, match="a thread of the kernel, or has ended"):
            command.find_process(HOST, process.pid)


def test_an_application_that_tare_is_a_part_of_is_refused() -> None:
    with pytest.raises(UsageError, match="tare itself is in it"):
        command.find_process(HOST, os.getppid())


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/tare-nothing", "no such control group"),
        ("tare-nothing", "no such control group"),
        ("/etc", "no such control group"),
        ("/../etc", "not a control group"),
        ("/", "not a control group"),
    ],
)
def test_a_path_that_is_no_control_group_is_refused_with_an_example(path: str, what: str) -> None:
    with pytest.raises(TareError, match=what) as raised:
        command.find_cgroup(HOST, path)
    assert "/sys/fs/cgroup" in raised.value.hint


@pytest.mark.parametrize("name", ["", "-a", "a b", "a;b", "../a", "--help"])
def test_a_name_that_no_container_has_asks_no_engine(name: str) -> None:
    engines = Engines()
    with pytest.raises(UsageError, match="not the name of a container"):
        command.find_container(engines, name)
    assert engines.asked == []


@pytest.mark.parametrize("answers", [{}, {"docker": "0\n"}, {"systemctl": "0\n"}, {"podman": "no\n"}])
def test_a_container_that_is_gone_or_stopped_is_refused(answers: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--container web: no engine here has a running container or unit"):
        command.find_container(Engines(**answers), "web")


def test_a_container_of_containerd_is_found_in_its_namespaces() -> None:
    class Containerd(Engines):
        def run(
            self,
            *argv: str,
            timeout: float,
            input: bytes | Path = b"",  # noqa: A002
            check: bool = True,
        ) -> Output:
            if argv[0] != "ctr":
                return super().run(*argv, timeout=timeout, input=input, check=check)
            tasks = "TASK    PID    STATUS\nother   11     RUNNING\nweb     12     STOPPED\n"
            answer = "default\nk8s.io\n" if "namespaces" in argv else tasks.replace("STOPPED", _state(argv))
            return Output(argv, 0, answer.encode(), b"", 0.0)

    assert command._containerd_process(Containerd(), "web") == 12
    assert command._containerd_process(Containerd(), "gone") == 0


def _state(argv: tuple[str, ...]) -> str:
    return "RUNNING" if "k8s.io" in argv else "STOPPED"
