"""Tests of control groups: parsers of their files, and the groups of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from busy import BUSY, SPIN, running, work
from waiting import wait_until

from tare.hosts.cgroups import parse_layout
from tare.hosts.exec import ExecHost
from tare.hosts.local import LocalHost
from tare.telemetry.instance_reader import (
    CgroupReader,
    InstanceCgroup,
    InstanceReader,
    device_numbers,
    find_instance_cgroup,
    parse_counts,
    parse_transfers,
)
from tare.telemetry.kernel_files import LocalFiles
from tare.telemetry.procfs import Pressure
from tare.telemetry.turn_cpu import InstanceCpu
from tare.telemetry.turn_usage import CpuUsage, TurnBoundary

SAMPLES = Path(__file__).parents[2] / "samples" / "machine"


def captured(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


class Recorded(LocalFiles):
    """The files of a group of version 2, as they were."""

    def short_text(self, path: str) -> str:
        return self.text(path)

    def text(self, path: str) -> str:
        try:
            return captured(f"group-2-{path.rpartition('/')[2]}")
        except FileNotFoundError as error:
            raise OSError(path) from error


# --- parsers -------------------------------------------------------------------------------------------------------


def test_the_cpu_time_of_a_group_of_either_version_is_read() -> None:
    assert parse_counts(captured("group-1-cpuacct.stat"), "user", "system") == (22, 1)
    assert CgroupReader(Recorded(), InstanceCgroup(2, "/g", "/g")).cpu_seconds() == (0.907489, 0.503716)


def test_a_group_of_version_2_reports_memory_swap_pressure_and_transfers() -> None:
    reader = CgroupReader(Recorded(), InstanceCgroup(2, "/g", "/g"))
    assert reader.charged_bytes() == (4718592, 0)
    assert tuple(reader.pressures()) == (
        Pressure(0.505590, 0.034322),
        Pressure(0.0, 0.0),
        Pressure(0.008924, 0.007201),
    )
    assert parse_transfers(captured("group-2-io.stat"), {"254:0"}) == (66, 61)
    assert parse_transfers(captured("group-2-io.stat"), ()) == (0, 0)


def test_what_a_group_does_not_report_is_none() -> None:
    nowhere = CgroupReader(LocalFiles(), InstanceCgroup(2, "/nowhere", ""))
    assert nowhere.cpu_seconds() is None
    assert nowhere.charged_bytes() == (None, None)
    assert nowhere.transfers() is None
    assert [*nowhere.pressures()] == [None] * 3


@pytest.mark.parametrize("text", ["", "garbage", "user_usec 5\n", "user_usec five\nsystem_usec 6\n"])
def test_a_text_without_the_counters_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_counts(text, "user_usec", "system_usec")


def test_disks_have_numbers_and_partitions_and_loops_are_none() -> None:
    assert device_numbers(captured("diskstats")) == ("254:0",)


# --- the groups of this machine ------------------------------------------------------------------------------------


@dataclass
class Made:
    """Private control group in each tree."""

    folders: tuple[Path, ...]

    def add(self, stack: ExitStack, *argv: str) -> subprocess.Popen[str]:
        process = stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(process.wait)
        stack.callback(process.kill)
        self.move(process.pid)
        return process

    def move(self, pid: int) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")


@pytest.fixture
def group() -> Iterator[Made]:
    layout = parse_layout(Path("/proc/self/mounts").read_text(encoding="utf-8"))
    roots = {layout.mounts[name] for name in ("cpuacct", "memory") if name in layout.mounts}
    folders = tuple(Path(root) / f"tare-test-{os.getpid()}" for root in sorted(roots))
    for folder in folders:
        folder.mkdir()
    yield Made(folders)
    for folder in folders:
        wait_until(partial(_is_removed, folder))


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:  # the kernel still counts a process that has ended
        return False
    return True


def read() -> Callable[[str], str]:
    return LocalFiles().text


@pytest.mark.machine
def test_only_a_cgroup_without_processes_of_others_is_found(group: Made) -> None:
    with ExitStack() as stack:
        first, second = (group.add(stack, "sleep", "60").pid for _ in range(2))
        found = find_instance_cgroup(lambda: [first, second, os.getpid()], read())
        assert found is not None
        assert found.cpu in map(str, group.folders)
        assert find_instance_cgroup(lambda: [first], read()) is None
        assert find_instance_cgroup(lambda: [os.getpid()], read()) is None
        assert find_instance_cgroup(list, read()) is None


@pytest.mark.machine
@pytest.mark.parametrize("is_local", [True, False])
def test_the_cpu_time_of_a_turn_is_of_a_group_and_a_process_outside(group: Made, is_local: bool) -> None:
    by_commands = ExecHost(LocalHost(), "env")
    by_commands.supervisor = ""
    with ExitStack() as stack:
        inside, outside = (stack.enter_context(running(BUSY)) for _ in range(2))
        group.move(inside.pid)
        cpu = InstanceCpu(LocalHost() if is_local else by_commands, lambda: [inside.pid, outside.pid])
        boundary = TurnBoundary(LocalHost() if is_local else by_commands, CpuUsage((0,)), None, instance_cpu=cpu)
        boundary.begin_turn()
        used = work(inside) + work(outside)
        group.add(stack, sys.executable, "-c", SPIN).wait()  # it starts and ends in the turn
        usage = boundary.end_turn(0.0)
        assert usage.cpu_seconds == pytest.approx(used + 0.3, abs=0.1)
        assert usage.waited_seconds is not None


@pytest.mark.machine
def test_the_cpu_time_of_a_group_and_of_a_process_outside_is_counted_once(group: Made) -> None:
    with ExitStack() as stack, closing(LocalFiles()) as files:
        inside, outside = (stack.enter_context(running(BUSY)) for _ in range(2))
        group.move(inside.pid)
        pids = [inside.pid, outside.pid]
        reader = InstanceReader(files, lambda: pids)
        assert reader.has_group
        first = reader.read(pids, whole=True)
        used = work(inside) + work(outside)
        fast = reader.read((), whole=False)
        whole = reader.read(pids, whole=True)
    assert (first.cpu_user, first.cpu_system) == (0.0, 0.0)
    assert fast.memory_bytes is None
    assert whole.memory_bytes is not None
    assert whole.charged_bytes is not None
    for later in (fast, whole):
        assert later.cpu_user is not None
        assert later.cpu_system is not None
        assert later.cpu_user + later.cpu_system == pytest.approx(used, rel=0.2)


@pytest.mark.machine
def test_a_group_counts_processes_that_came_and_went_between_two_samples(group: Made) -> None:
    with ExitStack() as stack, closing(LocalFiles()) as files:
        stays = group.add(stack, "sleep", "60")
        reader = InstanceReader(files, lambda: [stays.pid])
        reader.read([stays.pid], whole=True)
        _, used = group.add(stack, sys.executable, "-c", BUSY).communicate("\n")[0].split()
        later = reader.read((), whole=False)
    assert later.cpu_user is not None
    assert later.cpu_system is not None
    # Its start counts, too, from the moment when it came into the group.
    assert 0.8 * float(used) <= later.cpu_user + later.cpu_system <= 1.5 * float(used)


# --- files that stay open ------------------------------------------------------------------------------------------


def _open_files() -> set[str]:
    return {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_process_that_has_ended_gives_an_error_though_its_file_is_open() -> None:
    with closing(LocalFiles()) as files, sleeping() as process:
        path = f"/proc/{process.pid}/stat"
        assert files.short_text(path).startswith(f"{process.pid} (sleep)")
        process.kill()
        process.wait()
        with pytest.raises(OSError, match=r"."):
            files.short_text(path)
        assert not [name for name in _open_files() if name == path]


def test_open_files_stay_within_the_limit_and_are_closed_at_the_end(tmp_path: Path) -> None:
    before = len(_open_files())
    files = LocalFiles()
    for number in range(100):
        path = tmp_path / f"{number}"
        path.write_text(f"text {number}", encoding="utf-8")
        assert files.text(str(path)) == files.short_text(str(path)) == f"text {number}"
    assert len(_open_files()) - before == 32
    files.close()
    assert len(_open_files()) == before


def test_an_open_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    with closing(LocalFiles()) as files:
        for text in ("1", "22", "3" * 200_000, "4"):
            path.write_text(text, encoding="utf-8")
            assert files.text(str(path)) == text
