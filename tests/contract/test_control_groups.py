"""Control groups: their layout is read from text, and on the real machine they limit, count and find processes."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from calls import NothingLeft
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import wait_until

from tare.hosts.cgroups import (
    Layout,
    create_limited_cgroup,
    group_folder,
    kernel_bytes,
    memory_limit_of,
    parse_group,
    parse_layout,
    processes_below,
    restore_controllers,
)
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.model.errors import TareError, TrialFailed
from tare.model.files import read_text
from tare.model.trial import Limits

pytestmark = pytest.mark.machine

VERSION_2 = """\
proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate,memory_recursiveprot 0 0
"""
VERSION_1 = """\
tmpfs /sys/fs/cgroup tmpfs ro,nosuid,nodev,noexec,mode=755 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,nosuid,nodev,noexec,relatime,xattr,name=systemd 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,nosuid,nodev,noexec,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,nodev,noexec,relatime,memory 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,nosuid,nodev,noexec,relatime,pids 0 0
cgroup /sys/fs/cgroup/freezer cgroup rw,nosuid,nodev,noexec,relatime,freezer 0 0
"""
HYBRID = VERSION_1 + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n"
ON_VERSION_1 = Layout(
    1,
    {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuset": "/sys/fs/cgroup/cpuset",
        "memory": "/sys/fs/cgroup/memory",
        "pids": "/sys/fs/cgroup/pids",
    },
    ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/freezer"),
)


def test_version_2_has_one_tree_for_all_controllers() -> None:
    layout = parse_layout(VERSION_2)
    assert layout.version == 2
    assert layout.mounts == dict.fromkeys(("cpu", "cpuset", "memory", "pids", "cpuacct"), "/sys/fs/cgroup")
    assert layout.roots == ("/sys/fs/cgroup",)
    assert layout.others == ()


@pytest.mark.parametrize("mounts", [VERSION_1, HYBRID])
def test_version_1_has_its_trees_also_beside_an_empty_version_2(mounts: str) -> None:
    assert parse_layout(mounts) == ON_VERSION_1


def test_the_first_mount_of_a_tree_that_can_be_written_counts() -> None:
    seen = "".join(line.replace(" /sys", " /srv/root/sys") + "\n" for line in VERSION_1.splitlines())
    read_only = seen.replace(" rw,", " ro,")
    layout = parse_layout(VERSION_1 + seen)
    assert layout == replace(ON_VERSION_1, others=(*ON_VERSION_1.others, *parse_layout(seen).others))
    assert parse_layout(VERSION_1 + read_only) == ON_VERSION_1
    assert parse_layout(read_only + VERSION_1) == ON_VERSION_1
    second = VERSION_2.replace("/sys", "/srv").replace(" rw,", " ro,")
    assert parse_layout(second + VERSION_2) == parse_layout(VERSION_2)
    assert parse_layout(read_only).mounts["memory"] == "/srv/root/sys/fs/cgroup/memory"  # a container sees no other


def test_two_controllers_on_one_tree_are_one_root() -> None:
    assert parse_layout(VERSION_1).roots == (
        "/sys/fs/cgroup/cpu,cpuacct",
        "/sys/fs/cgroup/cpuset",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/pids",
    )


def test_a_machine_without_control_groups_is_an_error() -> None:
    with pytest.raises(TareError, match="no control groups are mounted"):
        parse_layout("proc /proc proc rw 0 0\n")


@pytest.mark.parametrize(
    ("text", "controller", "version", "place"),
    [
        ("0::/user.slice/a\n", "memory", 2, "/user.slice/a"),
        ("9:name=systemd:/x\n4:memory:/tare-1\n2:cpu,cpuacct:/other\n0::/\n", "memory", 1, "/tare-1"),
        ("9:name=systemd:/x\n4:memory:/tare-1\n2:cpu,cpuacct:/other\n0::/\n", "cpuacct", 1, "/other"),
        ("4:memory:/with:colons\n", "memory", 1, "/with:colons"),
        ("9:name=systemd:/x\n0::/\n", "memory", 1, ""),
        ("", "memory", 2, ""),
    ],
)
def test_the_group_of_a_process_is_read_from_its_text(text: str, controller: str, version: int, place: str) -> None:
    assert parse_group(text, controller, version) == place


@pytest.fixture
def limits() -> Limits:
    return Limits((max(os.sched_getaffinity(0)),), 256 << 20, 4096)


def test_a_group_limits_and_counts_what_is_started_in_it(ledger: Ledger, limits: Limits) -> None:
    host = LocalHost()
    name = f"tare-test-{os.getpid()}"
    with (
        create_limited_cgroup(ledger, name, limits) as group,
        host.spawn(*group.join, "sh", "-c", "echo up; sleep 70020; true") as process,
    ):
        process.read_line(SECONDS)
        # What made the group was in it for a moment, and may not be reaped yet.
        wait_until(
            lambda: {read_text(f"/proc/{pid}/cgroup").count(name) for pid in group.processes()} == {len(group.paths)}
        )
        pids = group.processes()
        assert process.pid in pids
        assert {cpu for pid in pids for cpu in os.sched_getaffinity(pid)} == set(limits.cpus)
        assert memory_limit_of(host, process.pid) == 256 << 20
        assert group_folder(host, process.pid).startswith(f"{group.layout.mounts['memory']}/{name}")
        assert kernel_bytes(host, group_folder(host, process.pid)) != 0
        assert ledger.path.exists()


def test_processes_in_groups_below_are_found(tmp_path: Path) -> None:
    (tmp_path / "leaf/below").mkdir(parents=True)
    (tmp_path / "cgroup.procs").write_text("1\n2\n", encoding="ascii")
    (tmp_path / "leaf/cgroup.procs").write_text("3\n", encoding="ascii")
    (tmp_path / "leaf/below/cgroup.procs").write_text("4\n", encoding="ascii")
    assert sorted(processes_below(LocalHost(), str(tmp_path))) == [1, 2, 3, 4]


def test_a_group_that_is_gone_has_no_processes(tmp_path: Path) -> None:
    assert processes_below(LocalHost(), str(tmp_path / "gone")) == ()


def test_kernel_memory_is_read_where_the_kernel_counts_it(tmp_path: Path) -> None:
    assert kernel_bytes(LocalHost(), str(tmp_path)) is None
    (tmp_path / "memory.kmem.usage_in_bytes").write_text("8192\n", encoding="ascii")
    assert kernel_bytes(LocalHost(), str(tmp_path)) == 8192
    (tmp_path / "memory.stat").write_text("anon 1\nkernel_stack 3\nkernel 4096\n", encoding="ascii")
    assert kernel_bytes(LocalHost(), str(tmp_path)) == 4096


def test_all_that_is_in_a_group_is_killed_with_it(ledger: Ledger, limits: Limits, nothing_left: NothingLeft) -> None:
    host = LocalHost()
    with nothing_left(), create_limited_cgroup(ledger, f"tare-test-{os.getpid()}", limits) as group:
        # env -i and setsid: nothing but the group knows of it.
        left = ("env", "-i", "setsid", "--wait", "sh", "-c", "sleep 70021 >/dev/null 2>&1 </dev/null &")
        host.run(*group.join, *left, timeout=SECONDS)
        # On a busy machine, the shell is still there for a moment, and so is its copy that becomes `sleep`.
        wait_until(lambda: [read_text(f"/proc/{pid}/cmdline") for pid in group.processes()] == ["sleep\x0070021\0"])
        (pid,) = group.processes()
    assert read_text(f"/proc/{pid}/cmdline") == ""
    assert not ledger.path.exists()


def test_a_group_keeps_its_limits_when_one_that_began_before_it_ends(ledger: Ledger, limits: Limits) -> None:
    host = LocalHost()
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(create_limited_cgroup(ledger, f"tare-test-{os.getpid()}-1", limits))
        group = second.enter_context(create_limited_cgroup(ledger, f"tare-test-{os.getpid()}-2", limits))
        process = second.enter_context(host.spawn(*group.join, "sh", "-c", "echo up; sleep 70022; true"))
        process.read_line(SECONDS)
        first.close()
        assert memory_limit_of(host, process.pid) == 256 << 20
        assert {cpu for pid in group.processes() for cpu in os.sched_getaffinity(pid)} == set(limits.cpus)


@dataclass(frozen=True)
class OnVersion2(LocalHost):
    """This machine with a folder in place of its control groups, of version 2."""

    root: Path

    def read(self, path: str) -> str:
        return f"cgroup2 {self.root} cgroup2 rw 0 0\n" if path == "/proc/self/mounts" else super().read(path)


def test_only_controllers_that_were_disabled_are_disabled_again_at_the_end(tmp_path: Path) -> None:
    root = tmp_path / "tare-groups"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n", encoding="ascii")
    control = root / "cgroup.subtree_control"
    control.write_text("cpuset cpu memory pids\n", encoding="ascii")
    with restore_controllers(Ledger(tmp_path / "tare-test.jsonl", OnVersion2(root))):
        assert control.read_text(encoding="ascii") == "cpuset cpu memory pids\n"
        control.write_text("cpuset cpu io memory pids\n", encoding="ascii")  # as a container runtime does
    assert control.read_text(encoding="ascii") == "-io\n"


def test_a_group_whose_limit_the_kernel_refuses_leaves_nothing(ledger: Ledger, nothing_left: NothingLeft) -> None:
    nowhere = Limits((4095,), 256 << 20, 4096)
    with nothing_left():
        with (
            pytest.raises(TrialFailed, match=r"the kernel refused cpuset\.cpus = 4095"),
            create_limited_cgroup(ledger, f"tare-test-{os.getpid()}", nowhere),
        ):
            pytest.fail("there is no such CPU")
        assert not ledger.path.exists()


def test_what_others_make_meanwhile_is_not_taken_for_left_over(
    nothing_left: NothingLeft,
) -> None:
    folder = Path(parse_layout(LocalHost().read("/proc/self/mounts")).roots[0]) / f"others-{os.getpid()}"
    try:
        with nothing_left():
            folder.mkdir()
    finally:
        folder.rmdir()
