from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from tare.features.ab.contenders import CommandUsage, Contender, Spawner, create_contender, needs_shell, running_spawner
from tare.model.errors import TareError, UsageError


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    with running_spawner(sorted(os.sched_getaffinity(0))[-1:]) as started:
        yield started


def contender(line: str, folder: str = "/", **environment: str) -> Contender:
    return create_contender("A", line, folder, {**os.environ, **environment})


@pytest.mark.parametrize("line", [
    "a | b", "a > b", "a; b", "a && b", "echo $HOME", "echo `a`", 'echo "$HOME"', "ls *.c", "ls ~", "X=1 a", "cd /",
    ": a", "a {1,2}", "a # b", "a\nb",
])  # fmt: skip
def test_a_line_with_syntax_of_a_shell_needs_one(line: str) -> None:
    assert needs_shell(line)


@pytest.mark.parametrize("line", [
    "a b -c", "awk '{print $1}' f", 'a "b c"', "a 'b | c'", r"a b\;c", 'a "(b)"', "a --x=1", "perl -e 'for (1..9) {}'",
])  # fmt: skip
def test_a_line_without_such_syntax_needs_none(line: str) -> None:
    assert not needs_shell(line)


@pytest.mark.parametrize(("line", "what"), [
    ("nosuchprogram", "no program nosuchprogram in PATH"), ("./nosuch", "./nosuch does not exist"),
    ("/etc/passwd", "/etc/passwd is not executable"), ("", "the command is empty"), ("a 'b", "no closing quotation"),
])  # fmt: skip
def test_a_command_that_cannot_be_started_is_refused_before_the_first_run(line: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        contender(line)
    assert caught.value.hint


def test_a_program_is_found_as_in_a_shell_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "tool").chmod(0o755)
    assert contender("./tool", str(tmp_path)).argv == (f"{tmp_path}/./tool",)
    assert contender("tool", PATH=str(tmp_path)).argv == (f"{tmp_path}/tool",)
    with pytest.raises(UsageError, match="no folder"):
        contender("true", str(tmp_path / "none"))


def test_a_run_has_its_time_its_exit_code_and_the_end_of_its_errors(spawner: Spawner) -> None:
    used = spawner.run(contender("sh -c 'echo out; echo err >&2; sleep 0.05; exit 3'"), timeout=60, keep=100)
    assert used.wall >= 0.05
    assert 0 < used.user + used.system < used.wall
    assert (used.code, used.output, used.output_bytes, used.errors) == (3, "out\n", 4, "err\n")
    assert not used.timed_out
    assert not used.left_behind
    assert used.memory > 1 << 20


def test_a_run_ended_by_a_signal_has_the_exit_code_of_a_shell(spawner: Spawner) -> None:
    assert spawner.run(contender("sh -c 'kill -TERM $$'"), timeout=60).code == 128 + signal.SIGTERM


def test_a_large_output_is_read_to_its_end_and_kept_in_part(spawner: Spawner) -> None:
    used = spawner.run(contender("head -c 3000000 /dev/zero"), timeout=60, keep=10)
    assert (used.code, used.output_bytes, len(used.output)) == (0, 3_000_000, 10)
    assert spawner.run(contender("head -c 3000000 /dev/zero"), timeout=60).output == ""


def test_standard_input_is_empty_or_a_file(spawner: Spawner, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("text")
    assert spawner.run(contender("cat"), timeout=60, keep=10).output == ""
    assert spawner.run(contender("cat"), timeout=60, keep=10, stdin=str(tmp_path / "in")).output == "text"


def test_a_command_runs_in_its_folder_and_environment(spawner: Spawner, tmp_path: Path) -> None:
    used = spawner.run(contender("sh -c 'pwd; echo $X'", str(tmp_path), X="1"), timeout=60, keep=1000)
    assert used.output == f"{tmp_path}\n1\n"


def test_a_command_that_does_not_end_is_killed_with_its_children(spawner: Spawner, tmp_path: Path) -> None:
    line = f"sh -c 'sleep 1000 & echo $! > {tmp_path}/child; wait'"
    used = spawner.run(contender(line), timeout=1.0)
    assert used.timed_out
    assert used.code == 128 + signal.SIGKILL
    child = (tmp_path / "child").read_text().strip()
    wait_until(lambda: not is_alive(child))


def test_a_process_that_a_command_leaves_is_ended_and_reported(spawner: Spawner, tmp_path: Path) -> None:
    used = spawner.run(contender(f"sh -c 'sleep 1000 & echo $! > {tmp_path}/child'"), timeout=60)
    assert used.left_behind
    child = (tmp_path / "child").read_text().strip()
    wait_until(lambda: not is_alive(child))


def test_a_program_that_disappears_is_an_error_and_the_next_one_runs(spawner: Spawner, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    gone = contender("./tool", str(tmp_path))
    (tmp_path / "tool").unlink()
    with pytest.raises(TareError, match="No such file"):
        spawner.run(gone, timeout=60)
    assert spawner.run(contender("true"), timeout=60).code == 0


def test_if_tare_is_killed_the_command_ends(tmp_path: Path) -> None:
    code = (
        "import os; from tare.features.ab.contenders import *\n"
        "with running_spawner(sorted(os.sched_getaffinity(0))) as spawner:\n"
        f"    line = \"sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000'\"\n"
        "    spawner.run(create_contender('A', line, '/', dict(os.environ)), timeout=1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        process.kill()
    wait_until(lambda: not is_alive((tmp_path / "pid").read_text().strip()))


def test_the_cost_of_a_shell_is_taken_off_but_nothing_becomes_negative() -> None:
    used = CommandUsage(wall=0.010, user=0.004, system=0.001, waited=0.0, memory=7, code=0)
    less = used.without(CommandUsage(wall=0.002, user=0.001, system=0.003, waited=0.0, memory=9, code=0))
    assert less.wall == pytest.approx(0.008)
    assert less.user == pytest.approx(0.003)
    assert (less.system, less.memory) == (0.0, 7)
    assert used.without(None) == used


def test_the_process_that_starts_commands_hardly_shows_in_their_memory(spawner: Spawner) -> None:
    assert spawner.run(contender("true"), timeout=60).memory < 16 << 20


def is_alive(pid: str) -> bool:
    """Return whether a process has not ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
