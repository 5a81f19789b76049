"""`tare profile` of real commands and a real server, and what cannot be profiled."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from calls import Begin, Call, NothingLeft
from waiting import wait_until

from tare.features.advise.profiler.profile import Profile, count_operations, read_profile
from tare.model.files import read_text

MACHINE = pytest.mark.machine
REQUEST, ANSWER = 64, 1000
# Serves one client: reads requests of 64 bytes, answers each with 1000, and says its port.
SERVER = f"""
import socket
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    connection, _ = listening.accept()
    while connection.recv({REQUEST}):
        connection.send(b"x" * {ANSWER})
"""
# Asks 3,000 times a second, until its input ends. Prints every 20 ms how many requests there have been, and the time.
LOAD = f"""
import select, socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
began, number, due = time.monotonic(), 0, 0.0
while number % 100 or not select.select([0], [], [], 0)[0]:
    time.sleep(max(0.0, began + number / 3000 - time.monotonic()))
    connection.send(b"x" * {REQUEST})
    connection.recv({ANSWER}, socket.MSG_WAITALL)
    number += 1
    if (now := time.monotonic()) > due:
        print(now, number, flush=True)
        due = now + 0.02
"""
# Makes 20,000 system calls a second for 0.7 s, and then none for 0.8 s; prints how many there have been, and the time.
IN_BURSTS = """
import os, time
number = 0
while True:
    began, before = time.monotonic(), number
    while (now := time.monotonic()) < began + 0.7:
        while number < before + 20000 * (now - began):
            os.getppid()
            number += 1
        print(now, number, flush=True)
        time.sleep(0.001)
    time.sleep(0.8)
"""
# Does a little, all the time.
IDLE = """
import os, time
while True:
    os.stat("/")
    sum(range(20000))
    time.sleep(0.01)
"""
WORK = "head -c 30000000 /dev/zero | gzip >/dev/null"  # for a tenth of a second of CPU time
COMMAND = ("sh", "-c", "head -c 1000000 /dev/zero | cat >/dev/null; echo x > file; cat file")

# bpftrace compiles for seconds, on a busy machine for many: of the tests that start it, a few are enough every day.
RARELY = pytest.mark.slow

pytestmark = MACHINE


@pytest.fixture
def machine_as_it_was(nothing_left: NothingLeft) -> Iterator[None]:
    """A test with it leaves nothing on the machine."""
    with nothing_left():
        yield


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    """Return a server in a network of its own: where nobody else sends, packets tell how busy it is."""
    in_network = ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")
    with subprocess.Popen((*in_network, sys.executable, "-c", SERVER), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def idle() -> Iterator[subprocess.Popen[bytes]]:
    """Return an application that does little."""
    with subprocess.Popen((sys.executable, "-c", IDLE)) as process:
        try:
            yield process
        finally:
            process.kill()


def profiled(tare: Call, tmp_path: Path, *argv: str) -> Profile:
    done = tare("profile", *argv)
    assert done.returncode == 0, done.stderr
    (tmp_path / "app.json").write_text(done.stdout, encoding="utf-8")
    return read_profile(tmp_path / "app.json")


def without(program: str, folder: Path) -> dict[str, str]:
    """Return an environment whose PATH has every program but one."""
    folder.mkdir()
    for place in ("/usr/local/bin", "/usr/sbin", "/usr/bin"):
        for path in Path(place).iterdir():
            link = folder / path.name
            if path.name != program and not link.is_symlink():
                link.symlink_to(path)
    return {"PATH": str(folder)}


@pytest.mark.usefixtures("machine_as_it_was")
def test_a_command_is_counted_run_by_run(tare: Call, tmp_path: Path) -> None:
    profile = profiled(tare, tmp_path, "--seconds", "2s", "--", *COMMAND)
    assert profile.unit == "run"
    assert profile.command == COMMAND
    assert profile.counts is not None
    found = count_operations(profile)
    assert found["process"] == 4  # the shell, head and two of cat
    assert found["file-write"] == 1
    assert 10 < found["pipe"] < 1000
    assert found["message"] == found["connection"] == 0
    assert found["user"] > 0
    assert found["fault"] > 100
    assert profile.missing == ()


@RARELY
def test_a_command_runs_once_to_count_and_once_to_watch_at_any_duration(tare: Call, tmp_path: Path) -> None:
    began = time.monotonic()
    profile = profiled(tare, tmp_path, "--seconds", "1s", "--", "sh", "-c", f"echo >> runs; {WORK}; sleep 2")
    assert time.monotonic() - began > 4
    assert len((tmp_path / "runs").read_text().splitlines()) == 2
    assert profile.units == 1
    assert profile.counts is not None
    assert profile.counts.units == 1
    assert profile.elapsed_seconds >= 2


def profiled_meanwhile(begin: Begin, tmp_path: Path, *argv: str) -> tuple[Profile, float]:
    """Return a profile, and the time at which tare began to watch."""
    out, said = tmp_path / "app.json", tmp_path / "said"
    with begin("profile", "--out", out, *argv) as process:
        wait_until(lambda: "watching" in said.read_text(encoding="utf-8") or process.poll() is not None)
        began = time.monotonic()
        assert process.wait() == 0, said.read_text(encoding="utf-8")
    return read_profile(out), began


def done_between(lines: str, first: float, last: float) -> float:
    """Return how much was done between two times, from lines with a time and the number of all that was done."""
    times, numbers = zip(*(map(float, line.split()) for line in lines.splitlines()), strict=True)
    before, after = np.interp((first, last), times, numbers)
    return float(after - before)


@pytest.mark.usefixtures("machine_as_it_was")
def test_a_server_is_counted_for_each_request(begin: Begin, tmp_path: Path, server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    in_network = ("nsenter", f"--net=/proc/{server.pid}/ns/net")
    load_line = (*in_network, sys.executable, "-c", LOAD, server.stdout.readline())
    with (tmp_path / "requests").open("w") as file, subprocess.Popen(load_line, stdin=subprocess.PIPE, stdout=file):
        profile, began = profiled_meanwhile(begin, tmp_path, "--pid", str(server.pid), "--seconds", "4s")
    found, counts = count_operations(profile), profile.counts
    assert profile.unit == "second"
    assert counts is not None
    assert counts.seconds == pytest.approx(4.0, abs=0.5)
    requests = done_between((tmp_path / "requests").read_text(), began, began + counts.seconds)
    assert found["message"] * counts.units == pytest.approx(requests, rel=0.15)
    assert found["received"] / found["message"] == pytest.approx(REQUEST, rel=0.05)
    assert found["sent"] / found["message"] == pytest.approx(ANSWER, rel=0.05)
    assert found["pipe"] == found["file-read"] == 0
    assert profile.cost is not None
    assert profile.cost < 0.03
    assert profile.start_seconds is not None
    assert 0.0 < profile.start_seconds < 30.0


@pytest.mark.usefixtures("machine_as_it_was")
def test_an_application_that_works_in_bursts_is_counted_right(begin: Begin, tmp_path: Path) -> None:
    with (
        (tmp_path / "calls").open("w") as file,
        subprocess.Popen((sys.executable, "-c", IN_BURSTS), stdout=file) as one,
    ):
        try:
            profile, began = profiled_meanwhile(begin, tmp_path, "--pid", str(one.pid), "--seconds", "6s")
        finally:
            one.kill()
    counts = profile.counts
    assert counts is not None
    assert counts.seconds == pytest.approx(6.0, abs=0.6)
    calls = done_between((tmp_path / "calls").read_text(), began, began + counts.seconds)
    assert sum(call.count for call in counts.calls if call.call == "getppid") == pytest.approx(calls, rel=0.15)


@pytest.mark.usefixtures("machine_as_it_was")
def test_an_application_that_uses_no_cpu_time_is_refused(tare: Call, server: subprocess.Popen[str]) -> None:
    done = tare("profile", "--pid", str(server.pid), "--seconds", "1s")
    assert (done.returncode, done.stdout) == (3, "")
    error, hint = done.stderr.splitlines()[-2:]
    assert "used no CPU time, or less than can be seen, in 1" in error
    assert error.startswith("error: ")
    assert hint == "hint: profile it under its usual load, or for longer with --seconds"


@RARELY
def test_what_takes_the_time_of_a_profile_is_said(tare: Call, idle: subprocess.Popen[bytes]) -> None:
    lines = tare("profile", "--pid", str(idle.pid), "--seconds", "1s").stderr.splitlines()
    assert lines[0] == "starting bpftrace, which takes a second, and more on a busy machine"
    if "took" in lines[1]:
        assert re.fullmatch(r"bpftrace took .* s to start, as the machine is busy", lines.pop(1))
    assert re.fullmatch(r"watching .* \(process [0-9]+\) for 1 s", lines[1])


@RARELY
def test_without_bpftrace_the_rest_is_profiled(tare: Call, tmp_path: Path, environment: dict[str, str]) -> None:
    environment |= without("bpftrace", tmp_path / "bin")
    profile = profiled(tare, tmp_path, "--seconds", "1s", "--", "sh", "-c", WORK)
    assert profile.counts is None
    assert count_operations(profile).keys() == {"user"}
    assert profile.missing == ("system calls, page faults and context switches: bpftrace is not installed",)


@RARELY
def test_a_control_group_is_profiled(tare: Call, tmp_path: Path, idle: subprocess.Popen[bytes]) -> None:
    roots = ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup")
    group = next(Path(root) for root in roots if Path(root, "cgroup.procs").is_file()) / "tare-profiled"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(idle.pid))
        profile = profiled(tare, tmp_path, "--cgroup", str(group), "--seconds", "1s")
        assert profile.name == str(group)
        again = profiled(tare, tmp_path, "--cgroup", "/tare-profiled", "--seconds", "1s")
        assert profile.usage.resident_bytes
        assert profile.usage.resident_bytes == again.usage.resident_bytes
    finally:
        idle.kill()
        idle.wait()
        group.rmdir()


@pytest.mark.usefixtures("machine_as_it_was")
def test_tracing_is_removed_from_the_machine_even_if_tare_is_killed(tare: Call, begin: Begin) -> None:
    def counters() -> list[str]:
        commands = (read_text(str(path)) for path in Path("/proc").glob("[0-9]*/cmdline"))
        return [command for command in commands if command.startswith("bpftrace\0") and "@member" in command]

    def groups() -> list[Path]:
        return list(Path("/sys/fs/cgroup").glob("**/tare-profile-*"))

    with begin("profile", "--seconds", "60s", "--", "sleep", "1") as process:
        wait_until(counters)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    wait_until(lambda: not counters())
    assert groups()
    assert "tare-tracing" not in read_text("/proc/1/mounts")
    assert tare("clean").returncode == 0
    assert groups() == []


@RARELY
@pytest.mark.usefixtures("machine_as_it_was")
def test_an_interrupt_ends_it_and_leaves_nothing(begin: Begin) -> None:
    with begin("profile", "--seconds", "60s", "--", "sleep", "1") as process:
        wait_until(lambda: list(Path("/sys/fs/cgroup").glob("**/tare-profile-*")))
        os.kill(process.pid, signal.SIGINT)
        assert process.wait() == 130
    assert list(Path("/sys/fs/cgroup").glob("**/tare-profile-*")) == []


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        ((), "error: name one application"),
        (("--pid", "1", "--", "true"), "error: name one application"),
        (("--pid", str(1 << 30)), f"error: --pid {1 << 30}: no such process"),
        (("--pid", "2"), "error: --pid 2: "),
        (("--cgroup", "/tare-gone"), "error: --cgroup /tare-gone: no such control group"),
        (("--container", "tare-gone"), "error: --container tare-gone: no engine here has a running container"),
        (("--container", "--all"), "error: "),
        (("--seconds", "0.1s", "--", "true"), "error: --seconds 0.1s: not between 1s and 1h"),
        (("--seconds", "10", "--", "true"), "error: --seconds 10: a duration needs its unit"),
        (("--rate", "fast", "--pid", "1"), "error: --rate fast: a rate is a number above 0"),
        (("--rate", "0/s", "--pid", "1"), "error: --rate 0/s: a rate is a number above 0"),
        (("--rate", "10/s", "--", "true"), "error: --rate is for a server"),
        (("--", "tare-no-such-program"), "error: tare-no-such-program: no such program"),
    ],
)
def test_what_cannot_be_profiled_is_two_lines(tare: Call, argv: tuple[str, ...], what: str) -> None:
    done = tare("profile", *argv)
    assert done.returncode == 2
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert error.startswith(what)
    assert hint.startswith("hint: ")


def test_a_command_that_fails_is_an_error_with_its_exit_code(tare: Call) -> None:
    done = tare("profile", "--seconds", "1s", "--", "sh", "-c", "exit 7")
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.splitlines()[-2:] == ["error: sh: exit code 7", "hint: run it by hand: it has to succeed"]


def test_a_process_that_ends_while_it_is_watched_is_an_error(begin: Begin, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with (
        subprocess.Popen(("sleep", "1000")) as application,
        begin("profile", "--seconds", "20s", "--pid", str(application.pid)) as process,
    ):
        wait_until(lambda: "watching" in said.read_text(encoding="utf-8"))
        application.kill()
        assert process.wait() == 3
    assert f"error: sleep (process {application.pid}): ended while it was watched" in said.read_text(encoding="utf-8")


def test_who_is_not_root_is_told_so(tare: Call) -> None:
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    if subprocess.run((*nobody, sys.executable, "-c", ""), check=False).returncode or not shutil.which("setpriv"):
        pytest.skip("nobody cannot run Python here")
    done = tare("profile", "--pid", "1", prefix=nobody)
    assert done.stderr.splitlines() == ["error: only root can count system calls", "hint: sudo tare profile …"]
