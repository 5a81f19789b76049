"""Tests of the footprint: the memory of processes without the other instances of a block."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiled import call, compiled
from waiting import rests, wait_until

from tare.hosts.exec import ExecHost
from tare.hosts.local import LocalHost
from tare.telemetry.processes import PROGRAM, measure_proportional_memory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root is told which pages a process has")

HOST = LocalHost()
NO_PROCESS = 4194305  # more than Linux gives out
SHARED_BYTES = 16 << 20
# Each process maps the whole file, as instances map the programs of one image, and has a private megabyte.
READER = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    shared = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(shared[::4096])
private = b"x" * (1 << 20)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an image with nothing but the program."""
    folder = tmp_path_factory.mktemp("image")
    (folder / PROGRAM).parent.mkdir(parents=True)
    compiled((folder / PROGRAM).parent, "footprint", alone=True)
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "program"
    found.write_bytes(os.urandom(SHARED_BYTES))
    return found


@contextlib.contextmanager
def reading(file: Path, *words: str) -> Iterator[int]:
    """Start a process that has the file in its memory, with these arguments; yield its number."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen((sys.executable, "-c", READER, file, *words), **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def cost(root: Path, pids: list[int], others: list[int] | None = None) -> int:
    memory_bytes, processes = measure_proportional_memory(HOST, root, pids, others or [])
    assert processes == len(pids)
    assert memory_bytes is not None
    return memory_bytes


def test_it_is_the_proportional_set_size_that_the_kernel_reports(root: Path, file: Path) -> None:
    with reading(file) as one, reading(file) as other:
        for pid in (one, other):
            told = re.search(r"^Pss: +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text("ascii"), re.MULTILINE)
            assert told is not None
            assert cost(root, [pid]) == pytest.approx(int(told[1]) * 1024, rel=0.01)


def test_an_instance_costs_among_others_what_it_costs_alone(root: Path, file: Path) -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(reading(file))
        alone = cost(root, [first])
        assert alone > SHARED_BYTES
        others = [stack.enter_context(reading(file)) for _ in range(9)]
        assert cost(root, [first]) < alone - 0.85 * SHARED_BYTES  # smaps counts only a tenth of the file
        for one in (first, *others):
            rest = [pid for pid in (first, *others) if pid != one]
            assert cost(root, [one], rest) == pytest.approx(alone, rel=0.02)


def test_what_the_processes_of_one_instance_share_counts_once(root: Path, file: Path) -> None:
    with reading(file) as first:
        alone = cost(root, [first])
        with reading(file) as second:
            both = cost(root, [first, second])
            assert alone < both < alone + 0.5 * SHARED_BYTES


def test_the_resident_process_of_tare_costs_an_instance_nothing(root: Path, tmp_path: Path) -> None:
    program = compiled(tmp_path, "supervise", alone=True) / "supervise"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen((program, "--", "sleep", "60")) as run:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        wait_until(lambda: children.read_text() and rests(run.pid, 0.1))
        alone = cost(root, [run.pid])
        with subprocess.Popen((program, "--resident"), **pipes) as resident:  # type: ignore[call-overload]
            assert resident.stdout.readline() == b"ready\n"
            assert measure_proportional_memory(HOST, root, [resident.pid]) == (None, 0)
            memory_bytes, processes = measure_proportional_memory(HOST, root, [run.pid, resident.pid])
            resident.stdin.close()
        run.terminate()
    assert memory_bytes == pytest.approx(alone, rel=0.02)  # also what both have of one file
    assert processes == 1


def test_the_entry_of_the_resident_process_costs_no_instance_anything(root: Path, file: Path) -> None:
    """As of `crun exec`, which maps the same program as the `crun run` that belongs to the container."""
    with contextlib.ExitStack() as stack:
        monitor = stack.enter_context(reading(file))
        alone = cost(root, [monitor])
        ways = [stack.enter_context(reading(file, "/usr/lib/tare/supervise", "--resident")) for _ in range(3)]
        assert cost(root, [monitor]) == pytest.approx(alone, rel=0.02)
        assert cost(root, [monitor], ways[:1]) == pytest.approx(alone, rel=0.02)
        memory_bytes, processes = measure_proportional_memory(HOST, root, [monitor, *ways])
        assert memory_bytes == pytest.approx(alone, rel=0.02)
        assert processes == 1
        unlike = stack.enter_context(reading(file, "--resident", "no"))
        assert cost(root, [monitor]) < alone - 0.4 * SHARED_BYTES
        assert cost(root, [monitor], [unlike]) == pytest.approx(alone, rel=0.02)


def test_what_has_ended_and_what_is_the_kernels_has_no_memory(root: Path, file: Path) -> None:
    assert measure_proportional_memory(HOST, root, []) == (None, 0)
    assert measure_proportional_memory(HOST, root, [NO_PROCESS]) == (None, 0)
    kernel_thread = 2
    assert measure_proportional_memory(HOST, root, [kernel_thread]) == (None, 0)
    with reading(file) as pid:
        alone = cost(root, [pid])
        memory_bytes, processes = measure_proportional_memory(
            HOST, root, [pid, NO_PROCESS, kernel_thread], [NO_PROCESS, kernel_thread]
        )
        assert memory_bytes == pytest.approx(alone, rel=0.001)
        assert processes == 1


def test_a_footprint_that_is_not_whole_is_none(root: Path) -> None:
    powerless = ExecHost(HOST, "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--")
    powerless.supervisor = ""
    assert measure_proportional_memory(powerless, root, [os.getpid()]) == (None, 1)
    output = powerless.run(str(root / PROGRAM), str(os.getpid()), timeout=20, check=False)
    assert output.exit_code == 1
    assert b"reading page numbers requires CAP_SYS_ADMIN" in output.stderr


@pytest.mark.parametrize("words", [(), ("--",), ("--", "1"), ("one",), ("1", "2x"), ("1", "--", "two"), ("1", "-1")])
def test_what_is_no_list_of_processes_is_wrong_usage(root: Path, words: tuple[str, ...]) -> None:
    output = call(root / PROGRAM, *words)
    assert (output.returncode, output.stdout) == (2, b"")
    assert output.stderr.startswith(b"usage: footprint PID")
