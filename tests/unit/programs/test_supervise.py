"""`supervise` and `init` with commands and their children: compiled here as in the image, and run for real."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from compiled import call, compiled, first_line, started
from waiting import ENOUGH_SECONDS, comes_true, in_time, wait_until


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "supervise", "init")


def shell(programs: Path, *options: str, script: str) -> subprocess.CompletedProcess[bytes]:
    return call(programs / "supervise", *options, "--", "sh", "-c", script)


def daemon(number_file: Path) -> str:
    """Return the script that starts a daemon in a session of its own, with an orphan's parent, and waits for it."""
    file = shlex.quote(str(number_file))
    inner = shlex.quote(f"echo $$ > {file}; exec sleep 600")
    return f"(setsid sh -c {inner} </dev/null >/dev/null 2>&1 &); until [ -s {file} ]; do sleep 0.01; done"


def is_running(number_file: Path) -> bool:
    try:
        status = Path(f"/proc/{int(number_file.read_text())}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError, ValueError):  # there is none, or it was not written to the end
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def is_written(file: Path) -> bool:
    return file.exists() and file.read_text() != ""


def wait_for(file: Path) -> None:
    wait_until(lambda: is_written(file))


# --- supervise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 7, 124, 255])
def test_the_exit_code_of_the_command_passes_through(programs: Path, code: int) -> None:
    assert shell(programs, script=f"exit {code}").returncode == code


def test_a_command_has_the_umask_022_whoever_starts_it(programs: Path) -> None:
    output = call(Path("/bin/sh"), "-c", 'umask 077 && "$0" -- sh -c umask', str(programs / "supervise"))
    assert output.stdout == b"0022\n"


def test_a_command_that_is_not_there_gives_127_and_its_name(programs: Path) -> None:
    output = call(programs / "supervise", "--", "no-such-command")
    assert (output.returncode, output.stderr) == (127, b"supervise: no-such-command: No such file or directory\n")


def test_a_file_that_cannot_be_executed_gives_126(programs: Path, tmp_path: Path) -> None:
    output = call(programs / "supervise", "--", str(tmp_path))
    assert (output.returncode, output.stderr) == (126, f"supervise: {tmp_path}: Permission denied\n".encode())


@pytest.mark.parametrize(
    "arguments",
    [(), ("--",), ("-t", "soon", "--", "true"), ("-t", "0", "--", "true"), ("-n", "x", "--", "true"), ("-x", "true")],
)
def test_wrong_usage_gives_2_and_starts_nothing(programs: Path, arguments: tuple[str, ...]) -> None:
    output = call(programs / "supervise", *arguments)
    assert output.returncode == 2
    assert b"usage: supervise" in output.stderr


def test_a_mebibyte_of_binary_data_passes_unchanged_both_ways(programs: Path) -> None:
    data = bytes(range(256)) * 4096
    output = call(programs / "supervise", "-t", "120", "--", "cat", data=data)
    assert output.stdout == data
    assert (output.returncode, output.stderr) == (0, b"")


def test_a_timeout_kills_a_daemon_that_left_its_session_and_its_parent(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "number"

    def run(seconds: float) -> None:
        file.unlink(missing_ok=True)
        outputs.append(shell(programs, "-t", f"{seconds:.1f}", script=f"{daemon(file)}; echo last >&2; sleep 600"))
        assert outputs[-1].returncode == 124
        assert outputs[-1].stderr.endswith(f"tare-supervise: timeout after {seconds:.1f} s\n".encode())
        assert not is_running(file)

    outputs: list[subprocess.CompletedProcess[bytes]] = []
    in_time(run, lambda: outputs[-1].stderr.startswith(b"last\ntare-supervise:"))


def test_a_timeout_kills_a_command_that_ignores_signals(programs: Path) -> None:
    output = shell(programs, "-t", "0.2", script="trap '' TERM INT HUP; while true; do sleep 600; done")
    assert output.returncode == 124


def test_a_daemon_left_behind_is_gone_when_the_command_has_ended(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "number"
    assert shell(programs, script=f"{daemon(file)}; exit 5").returncode == 5
    assert not is_running(file)


def test_a_daemon_survives_on_request_unless_the_command_times_out(programs: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "number", tmp_path / "other"
    assert shell(programs, "-l", "-t", "120", script=f"{daemon(file)}; exit 5").returncode == 5
    assert is_running(file)
    os.kill(int(file.read_text()), signal.SIGKILL)

    def run(seconds: float) -> None:
        other.unlink(missing_ok=True)
        assert shell(programs, "-l", "-t", f"{seconds:g}", script=f"{daemon(other)}; sleep 600").returncode == 124
        assert not is_running(other)

    in_time(run, lambda: is_written(other))


def test_an_orphan_that_ends_by_itself_does_not_end_the_command(programs: Path) -> None:
    output = shell(programs, script="(setsid true &); sleep 0.2; echo still here")
    assert (output.returncode, output.stdout) == (0, b"still here\n")


def test_the_tree_is_killed_when_the_parent_dies(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "number"
    script = f"{daemon(file)}; sleep 600"
    with started(programs / "supervise", "-s", "--", "sh", "-c", script) as process:
        wait_for(file)
        assert process.stdin is not None
        process.stdin.write(b"input on the die-with-parent pipe changes nothing")
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.stdin.close()
        assert process.wait(ENOUGH_SECONDS) == 125
    assert not is_running(file)


def test_with_die_with_parent_the_command_reads_nothing(programs: Path, tmp_path: Path) -> None:
    command = ("sh", "-c", 'until [ -e "$0" ]; do sleep 0.01; done; wc -c', str(tmp_path / "written"))
    with started(programs / "supervise", "-s", "--", *command) as process:
        assert process.stdin is not None
        process.stdin.write(b"not for the command")
        process.stdin.flush()
        (tmp_path / "written").touch()
        assert first_line(process) == b"0\n"
        assert process.wait(ENOUGH_SECONDS) == 0


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root directory")
def test_a_root_directory_without_proc_and_dev_is_enough(tmp_path: Path) -> None:
    programs = compiled(tmp_path, "supervise", "init", alone=True)
    # the inner supervisor puts its command into a session of its own, and is killed first
    with started("/usr/sbin/chroot", programs, "/supervise", "-s", "--", "/supervise", "--", "/init", "-") as process:
        assert first_line(process) == b"tare-init: ready\n"
        _, errors = process.communicate(timeout=ENOUGH_SECONDS)
    assert (process.returncode, errors) == (125, b"")


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change mounts")
def test_without_proc_a_daemon_is_gone_as_well(tmp_path: Path) -> None:
    programs, file = compiled(tmp_path, "supervise", alone=True), tmp_path / "number"
    run = shlex.join((str(programs / "supervise"), "--", "sh", "-c", f"{daemon(file)}; exit 5"))
    output = call(Path("/usr/bin/unshare"), "--mount", "sh", "-c", f"umount -l /proc && {run}")
    assert (output.returncode, output.stderr) == (5, b"")
    assert not is_running(file)


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make process namespaces")
@pytest.mark.parametrize("proc", ["--mount-proc", "--mount"])
def test_in_a_pid_namespace_a_daemon_ends_with_and_without_a_new_proc(
    programs: Path, tmp_path: Path, proc: str
) -> None:
    file = tmp_path / "number"
    run = shlex.join((str(programs / "supervise"), "--", "sh", "-c", f"{daemon(file)}; exit 5"))
    arguments = ("--pid", "--fork", proc, str(programs / "supervise"), "--", "sh", "-c", f"{run}; echo $?")
    assert call(Path("/usr/bin/unshare"), *arguments).stdout == b"5\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_to_run_kills_the_tree(programs: Path, tmp_path: Path, number: int, code: int) -> None:
    file = tmp_path / "number"
    with started(programs / "supervise", "--", "sh", "-c", f"{daemon(file)}; sleep 600") as process:
        wait_for(file)
        process.send_signal(number)
        assert process.wait(ENOUGH_SECONDS) == code
    assert not is_running(file)


def test_the_command_ends_when_the_supervisor_is_killed(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "number"
    with started(
        programs / "supervise", "--", "sh", "-c", f"echo $$ > {shlex.quote(str(file))}; exec sleep 600"
    ) as process:
        wait_for(file)
        process.kill()
        process.wait(ENOUGH_SECONDS)
    assert comes_true(lambda: not is_running(file))


def test_the_reader_sees_the_end_when_the_command_closes_its_output(programs: Path) -> None:
    with started(programs / "supervise", "--", "sh", "-c", "exec >&-; exec sleep 600") as process:
        assert first_line(process) == b""
        assert process.poll() is None


def test_the_number_of_open_files_is_limited_softly_and_hard(programs: Path) -> None:
    assert shell(programs, "-n", "321", script="ulimit -Sn; ulimit -Hn").stdout == b"321\n321\n"


def test_a_number_of_open_files_that_the_kernel_refuses_gives_126(programs: Path) -> None:
    output = shell(programs, "-n", "18446744073709551614", script="echo started")
    assert (output.returncode, output.stdout) == (126, b"")
    assert output.stderr == b"supervise: 18446744073709551614 open files: Operation not permitted\n"


def test_the_limits_are_those_of_the_place(programs: Path) -> None:
    output = shell(
        programs, "-n", "555", script=f"exec taskset -c 0 {shlex.quote(str(programs / 'supervise'))} --limits"
    )
    limits = dict(line.split(": ") for line in output.stdout.decode().splitlines())
    assert list(limits) == ["cpus", "open_files", "memory", "kernel"]
    assert (limits["cpus"], limits["open_files"], limits["kernel"]) == ("1", "555", os.uname().release)
    total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 2**20 < int(limits["memory"]) <= total_bytes


def test_run_reports_the_monotonic_clock(programs: Path) -> None:
    before = time.monotonic_ns()
    told = int(call(programs / "supervise", "--clock").stdout)
    assert before <= told <= time.monotonic_ns()
