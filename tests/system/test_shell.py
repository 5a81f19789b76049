"""`tare shell`: a command's output and exit code, and a shell on a terminal, in every kind of inside."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from calls import NothingLeft, Quickly

from tare.hosts.local import LocalHost
from tare.plugins import registry

TARE = Path(sys.executable).parent / "tare"
ENOUGH_SECONDS = 200.0
WORKLOADS = [  # all that are in the usual image
    name
    for name in registry.names("workloads")
    if not (getattr(found := registry.find("workloads", name), "hidden", False) or found.has_large_packages)
]
MACHINE = pytest.mark.machine


@pytest.fixture
def engines(environment: dict[str, str], ready_home: Path) -> dict[str, str]:
    """The environment with the image, and with the engines that this machine has."""
    assert environment["TARE_HOME"] == str(ready_home)
    return {**environment, "DOCKER_HOST": os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")}


@pytest.fixture(params=("native", "crun", "docker", "qemu-tcg"))
def stack(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if problems := registry.find("technologies", name)().problems(LocalHost()):
        pytest.skip(f"{name}: {problems[0].what}")
    return name


def shell(environment: dict[str, str], *words: str, said: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        (str(TARE), "shell", *words),
        env=environment,
        input=said,
        capture_output=True,
        check=False,
        timeout=ENOUGH_SECONDS,
    )


@MACHINE
def test_a_command_has_its_output_its_input_and_its_exit_code(
    stack: str, engines: dict[str, str], nothing_left: NothingLeft
) -> None:
    script = "cat; cat /proc/self/limits | grep files; echo doubt >&2; exit 7"
    with nothing_left():
        output = shell(engines, stack, "--", "sh", "-c", script, said=b"given\n")
    assert output.returncode == 7, output.stderr
    first, limit = output.stdout.decode().splitlines()
    assert first == "given"
    assert limit.split()[-3:] == ["4096", "4096", "files"]  # limited as in a trial
    assert output.stderr.endswith(b"doubt\n")


@MACHINE
@pytest.mark.parametrize("stack", ["native", "docker"], indirect=True)
def test_a_shell_has_a_terminal_and_its_keys(stack: str, engines: dict[str, str], nothing_left: NothingLeft) -> None:
    with nothing_left():
        child, terminal = pty.fork()  # it has the terminal as a shell gives it to tare
        if child == 0:
            os.execve(TARE, (str(TARE), "shell", stack), engines | {"TERM": "xterm"})  # noqa: S606 - that is the point
        try:
            until(terminal, f"({stack}) ")
            os.write(terminal, b"echo $((6 * 7))\n")
            until(terminal, "42\r\n")
            os.write(terminal, b"sleep 1000\n")
            time.sleep(1)
            os.write(terminal, b"\x03")  # Ctrl-C ends the command in there, and neither the shell nor tare
            until(terminal, f"({stack}) ")
            os.write(terminal, b"exit 5\n")
            with suppress(OSError):  # tare has ended
                until(terminal, "what nobody prints")
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 5
        except AssertionError:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            raise
        finally:
            os.close(terminal)


def until(terminal: int, words: str) -> None:
    """Read what comes on a terminal until it has these words."""
    seen, deadline = "", time.monotonic() + ENOUGH_SECONDS
    while words not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen):
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], seen
        seen += os.read(terminal, 65536).decode("utf-8", "replace")


@MACHINE
def test_a_command_on_the_client_knows_the_address_of_the_instance(engines: dict[str, str]) -> None:
    script = '/usr/lib/tare/probe "$TARE_ADDRESS" 17007 5'
    output = shell(engines, "crun", "--client", "--", "sh", "-c", script)
    assert output.returncode == 0, output.stderr
    assert b"tare" in output.stdout


@MACHINE
def test_a_variant_of_a_suite_has_its_limits(engines: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[suite]\nstacks = ["small"]\n[stacks.small]\nstack = "crun"\n[limits]\nopen_files = 321\n'
        + "".join(f'[[workloads]]\nuse = "{name}"\n' for name in WORKLOADS)  # whose image is there
    )
    output = shell(engines, "small", "--suite", str(tmp_path / "mine.toml"), "--", "sh", "-c", "ulimit -n")
    assert (output.returncode, output.stdout) == (0, b"321\n")


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (
            ("arceos",),
            "arceos has no shell: a unikernel is one",
            "get a shell on the client: tare shell arceos --client",
        ),
        (("dockr",), 'no stack named "dockr"', 'did you mean "docker"?'),
        (("qemu/docker",), "docker cannot be an outer layer", 'did you mean "docker/qemu"?'),
        (("openstack",), "openstack only lends a machine", 'as in "native/openstack"'),
        (("crun", "--suite", "none.toml"), "none.toml: no such file", "give a suite"),
    ],
)
def test_what_cannot_be_entered_is_an_error_of_two_lines(
    quickly: Quickly, words: tuple[str, ...], what: str, hint: str
) -> None:
    code, out, said = quickly("shell", *words)
    assert (code, out) == (2, "")
    error, advice = said.splitlines()
    assert what in error
    assert hint in advice


def test_a_stack_missing_from_the_suite_is_an_error_with_the_likely_one(quickly: Quickly, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[suite]\nstacks = ["native", "crun"]\n[[workloads]]\nuse = "startup"\n')
    code, _, said = quickly("shell", "crum", "--suite", "mine.toml")
    assert code == 2
    assert said == 'error: mine.toml: no stack named "crum"\nhint: did you mean "crun"?\n'
