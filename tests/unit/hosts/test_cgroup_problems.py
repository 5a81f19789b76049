"""Tests of hosts whose control groups tare cannot use, or only in some of their mounts."""

from __future__ import annotations

import pytest

from tare.hosts.cgroups import control_group_problem, parse_layout, require_control_groups
from tare.hosts.local import LocalHost
from tare.model.errors import TareError

GROUPS = "/sys/fs/cgroup"
VERSION_2 = f"cgroup2 {GROUPS} cgroup2 rw,nosuid 0 0\n"
NAMES = ("cpu", "cpuset", "memory", "pids", "freezer")


def version_1(*names: str, options: str = "rw", below: str = GROUPS) -> str:
    return "".join(f"cgroup {below}/{name} cgroup {options},relatime,{name} 0 0\n" for name in names)


class Mounted(LocalHost):
    """Host with these mounts, and these controllers of version 2."""

    def __init__(self, mounts: str, controllers: str = "cpuset cpu io memory pids") -> None:
        self.files = {"/proc/self/mounts": mounts, f"{GROUPS}/cgroup.controllers": controllers}

    def read(self, path: str) -> str:
        return self.files[path]


USABLE = {
    "version 2": VERSION_2,
    "version 1": version_1(*NAMES),
    "a controller again, read-only": version_1(*NAMES) + version_1("memory", options="ro", below="/srv"),
    "a controller again, read-only and first": version_1("memory", options="ro", below="/srv") + version_1(*NAMES),
    "a writable mount over a read-only one": version_1("memory", options="ro") + version_1(*NAMES),
    "version 2 beside version 1 of other controllers": version_1("net_cls", "freezer") + VERSION_2,
    "an empty version 2 beside version 1": version_1(*NAMES) + VERSION_2.replace(GROUPS, f"{GROUPS}/unified"),
}
UNUSABLE = {
    "none": ("proc /proc proc rw 0 0\n", "no control groups are mounted"),
    "read-only version 2": (
        VERSION_2.replace("rw", "ro"),
        f"control groups are mounted read-only, as in a container: {GROUPS}",
    ),
    "one read-only controller": (
        version_1("cpu", "cpuset", "pids") + version_1("memory", options="ro"),
        f"control groups are mounted read-only, as in a container: {GROUPS}/memory",
    ),
    "a read-only mount over a writable one": (
        version_1(*NAMES) + version_1("memory", options="ro"),
        f"control groups are mounted read-only, as in a container: {GROUPS}/memory",
    ),
    "only some of version 1": (
        version_1("cpuset") + VERSION_2,
        "control groups of version 1 have only cpuset, not cpu, memory, pids",
    ),
    "no memory in version 1": (
        version_1("cpu", "cpuset", "pids"),
        "control groups of version 1 have only cpu, cpuset, pids, not memory",
    ),
}


@pytest.mark.parametrize("case", USABLE)
def test_the_writable_mounts_count(case: str) -> None:
    assert control_group_problem(Mounted(USABLE[case])) is None
    assert parse_layout(USABLE[case]).mounts["memory"] in (GROUPS, f"{GROUPS}/memory")


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_host_that_cannot_limit_is_refused_with_the_fix(case: str) -> None:
    mounts, what = UNUSABLE[case]
    with pytest.raises(TareError) as refused:
        require_control_groups(Mounted(mounts))
    assert str(refused.value) == what
    assert refused.value.hint
    assert refused.value.exit_code == 3


def test_missing_controllers_of_version_2_are_named() -> None:
    problem = control_group_problem(Mounted(VERSION_2, "cpu io pids"))
    assert problem is not None
    assert problem.what == "control groups lack cpuset, memory"
    assert problem.fix == "boot with cgroup_enable=cpuset cgroup_enable=memory, or delegate them to tare"
    mixed = control_group_problem(Mounted(version_1("net_cls") + VERSION_2, "cpu io pids"))
    assert mixed is not None
    assert mixed.what == "control groups of version 2 have only cpu, pids, not cpuset, memory"
