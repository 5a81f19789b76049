"""`rusage`, which measures a command: compiled here as in the image, and run for real."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from compiled import call, compiled

LINE = re.compile(
    rb"(?s:(.*))\ntare-rusage: wall (\d+\.\d{9}) user (\d+\.\d{6}) system (\d+\.\d{6}) "
    rb"waited (\d+\.\d{6}) memory (\d+) exit (\d+)\n"
)
LARGE = ("if=/dev/zero", "of=/dev/null", "bs=64M", "count=2")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "rusage") / "rusage"


def figures(ended: subprocess.CompletedProcess[bytes]) -> tuple[bytes, float, float, int, int]:
    """Return what a command printed, its wall and CPU seconds, its memory and its exit code."""
    found = LINE.fullmatch(ended.stdout)
    assert found, ended
    assert ended.returncode == 0
    return found[1], float(found[2]), float(found[3]) + float(found[4]), int(found[6]), int(found[7])


def test_the_wall_time_is_that_of_the_command_from_its_start_to_its_end(program: Path) -> None:
    printed, wall, cpu, memory, code = figures(call(program, "sleep", "0.2"))
    assert (printed, code) == (b"", 0)
    assert wall >= 0.2
    assert cpu < wall
    assert 100_000 < memory < 50 << 20


def test_cpu_time_and_memory_are_those_of_the_command(program: Path) -> None:
    _, wall, cpu, memory, _ = figures(call(program, "dd", *LARGE))
    assert 0 < cpu <= 2 * wall
    assert memory >= 64 << 20


def test_the_time_that_another_program_had_the_cpu_is_told(program: Path) -> None:
    loop = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    cpu = str(min(os.sched_getaffinity(0)))
    with subprocess.Popen(["timeout", "20", "taskset", "-c", cpu, "sh", "-c", "while :; do :; done"]) as other:
        ended = call(Path("taskset"), "-c", cpu, str(program), "sh", "-c", loop)
        other.terminate()
    _, wall, used, *_ = figures(ended)
    waited = float(LINE.fullmatch(ended.stdout)[5])  # type: ignore[index]
    assert waited > 0.1 * wall
    assert 0.8 * wall < used + waited <= 1.01 * wall


def test_children_that_the_command_waited_for_count(program: Path) -> None:
    *_, memory, code = figures(call(program, "sh", "-c", 'dd "$@"; exit 7', "sh", *LARGE))
    assert (memory >= 64 << 20, code) == (True, 7)


def test_a_command_killed_by_a_signal_has_128_and_its_number(program: Path) -> None:
    assert figures(call(program, "sh", "-c", "kill -9 $$"))[-1] == 137


def test_the_command_gets_an_empty_standard_input_even_if_there_is_one(program: Path) -> None:
    assert figures(call(program, "cat", data=b"more"))[0] == b""


def test_what_it_prints_passes_as_it_is_with_the_figures_after_it(program: Path) -> None:
    ended = call(program, "sh", "-c", "printf 'no end\\0 of a line'; echo bad >&2")
    assert (figures(ended)[0], ended.stderr) == (b"no end\0 of a line", b"bad\n")


def test_a_command_that_cannot_be_started_has_no_figures(program: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program\n")
    missing, forbidden = call(program, "no-such-program"), call(program, str(tmp_path / "text"))
    assert (missing.returncode, missing.stdout) == (127, b"")
    assert missing.stderr == b"rusage: no-such-program: No such file or directory\n"
    assert (forbidden.returncode, forbidden.stdout) == (126, b"")
    assert call(program).returncode == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root")
def test_it_works_in_a_root_that_has_nothing_else(tmp_path: Path) -> None:
    compiled(tmp_path, "rusage", alone=True)
    ended = call(Path("/usr/sbin/chroot"), str(tmp_path), "/rusage", "/rusage")
    assert (figures(ended)[-1], ended.stderr) == (2, b"usage: rusage ARGV...\n")
