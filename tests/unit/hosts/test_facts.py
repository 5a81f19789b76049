from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tare.hosts.facts import (
    Cpuinfo,
    Memory,
    has_private_kernel,
    name_container,
    name_hypervisor,
    parse_cores,
    parse_cpu_list,
    parse_cpuinfo,
    parse_meminfo,
    parse_mounts_cgroup_version,
    parse_os_release,
    read_cores,
    read_facts,
    read_virtualization,
)
from tare.hosts.local import LocalHost
from tare.model.machine import Facts
from tare.runner.context import CpuPlacement, choose_cpus

SAMPLES = Path(__file__).parents[2] / "samples" / "machine"


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def reader(files: dict[str, str]) -> Callable[[str], str]:
    return lambda path: files.get(path, "")


def test_cpuinfo_of_a_guest_has_model_cpus_and_hypervisor() -> None:
    assert parse_cpuinfo(sample("cpuinfo")) == Cpuinfo(
        "Intel(R) Xeon(R) Processor", 2, hypervisor=True, architecture="x86_64", microcode="0x1"
    )


def test_meminfo_is_read_in_bytes() -> None:
    assert parse_meminfo(sample("meminfo")) == Memory(25325268992, 24840204288, 0, 0)


def test_a_missing_line_of_meminfo_is_none_and_not_zero() -> None:
    memory = parse_meminfo("MemTotal:  1024 kB\n")
    assert memory == Memory(1048576, None, None, None)
    assert (memory.used_bytes, parse_meminfo("").swapped_bytes) == (None, None)


def test_memory_in_use_and_in_swap_is_read_in_bytes() -> None:
    memory = parse_meminfo(re.sub("SwapTotal: +0 kB", "SwapTotal: 999 kB", sample("meminfo")))
    assert (memory.used_bytes, memory.swapped_bytes) == (25325268992 - 24840204288, 999 * 1024)
    without = "\n".join(line for line in sample("meminfo").splitlines() if not line.startswith("Swap"))
    assert parse_meminfo(without).swapped_bytes == 0


def test_the_operating_system_is_named_for_people() -> None:
    assert parse_os_release(sample("os-release")) == "Debian GNU/Linux 12 (bookworm)"
    assert parse_os_release("ID=alpine\n") == "alpine"
    assert parse_os_release("") == ""


def test_the_version_of_control_groups_is_read_from_the_mounts() -> None:
    assert parse_mounts_cgroup_version(sample("mounts")) == "hybrid"
    assert parse_mounts_cgroup_version("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n") == "v2"
    assert parse_mounts_cgroup_version("cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n") == "v1"
    assert parse_mounts_cgroup_version("proc /proc proc rw 0 0\n") == "none"


def test_a_list_of_cpus_may_hold_ranges() -> None:
    assert parse_cpu_list("0-3,8\n") == (0, 1, 2, 3, 8)
    assert parse_cpu_list("\n") == ()


def test_a_list_of_cpus_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpu_list("all")


def test_threads_of_one_core_are_grouped() -> None:
    assert parse_cores(["0,4\n", "1,5\n", "0,4\n", "1,5\n"]) == ((0, 4), (1, 5))


def test_cores_are_read_for_the_cpus_that_are_online() -> None:
    folder = "/sys/devices/system/cpu"
    files = {f"{folder}/cpu{number}/topology/thread_siblings_list": "0-1" for number in (0, 1)}
    assert read_cores(reader(files | {f"{folder}/online": "0-1"})) == ((0, 1),)
    assert read_cores(reader({})) == ()


def test_facts_are_put_together_from_files() -> None:
    clock = "/sys/devices/system/clocksource/clocksource0"
    files = {
        "/proc/cpuinfo": sample("cpuinfo"),
        "/proc/meminfo": sample("meminfo"),
        "/etc/os-release": sample("os-release"),
        "/proc/sys/kernel/osrelease": "6.18.44\n",
        f"{clock}/current_clocksource": "tsc\n",
        f"{clock}/available_clocksource": "tsc kvm-clock \n",
    }
    assert read_facts(reader(files)) == Facts(
        kernel="6.18.44",
        architecture="x86_64",
        operating_system="Debian GNU/Linux 12 (bookworm)",
        cpu_model="Intel(R) Xeon(R) Processor",
        cpus=2,
        memory_bytes=25325268992,
        clock_source="tsc",
        virtualization="kvm",
        microcode="0x1",
    )


def test_a_host_that_says_nothing_gives_empty_facts() -> None:
    assert read_facts(reader({})) == Facts("", "", "", "", 0, 0, "", "")


def test_the_hypervisor_is_named_by_firmware_or_else_by_its_clock() -> None:
    assert name_hypervisor("VMware, Inc. VMware Virtual Platform", "tsc") == "vmware"
    assert name_hypervisor("Microsoft Corporation Virtual Machine", "hyperv_clocksource_tsc_page") == "hyper-v"
    assert name_hypervisor("Amazon EC2 m5.large", "") == "kvm"
    assert name_hypervisor("", "tsc kvm-clock") == "kvm"
    assert name_hypervisor("", "tsc hpet") == ""


def test_qemu_is_kvm_only_where_the_clock_of_kvm_is_offered() -> None:
    assert name_hypervisor("QEMU Standard PC (Q35 + ICH9, 2009)", "tsc kvm-clock") == "kvm"
    assert name_hypervisor("QEMU Standard PC (Q35 + ICH9, 2009)", "tsc hpet") == "qemu"


def test_bare_metal_of_a_cloud_is_bare_metal() -> None:
    bare = Cpuinfo("", 2, hypervisor=False, architecture="x86_64")
    assert read_virtualization(reader({"/sys/class/dmi/id/sys_vendor": "Amazon EC2"}), bare) == ""


def test_a_guest_without_a_name_is_a_guest() -> None:
    guest = Cpuinfo("", 2, hypervisor=True, architecture="x86_64")
    assert read_virtualization(reader({}), guest) == "unknown hypervisor"


def test_a_container_in_a_guest_is_named_inner_first() -> None:
    guest = Cpuinfo("", 2, hypervisor=True, architecture="x86_64")
    files = {"/proc/1/environ": "PATH=/bin\0container=lxc\0", "/sys/class/dmi/id/bios_vendor": "Xen"}
    assert read_virtualization(reader(files), guest) == "lxc/xen"


def test_containers_leave_traces_in_control_groups_and_in_the_root_mount() -> None:
    root = "overlay / overlay rw,lowerdir=/var/lib/docker/overlay2/l/A,upperdir=/var/lib/docker/overlay2/b/diff 0 0\n"
    assert name_container("0::/\n", root) == "docker"
    assert name_container("0::/system.slice/libpod-1.scope\n", "") == "podman"
    assert name_container("0::/init.scope\n", sample("mounts")) == ""
    elsewhere = "overlay /var/lib/docker/overlay2/b/merged overlay rw 0 0\n"
    assert name_container("0::/init.scope\n", elsewhere) == ""


@dataclass(frozen=True)
class Booted(LocalHost):
    """Host whose kernel was started with this command line at this time; -1 if the host hides the time."""

    words: str
    seconds: int = -1

    def read(self, path: str) -> str:
        stat = f"cpu 1 2\nbtime {self.seconds}\nprocesses 7\n" if self.seconds >= 0 else ""
        return {"/proc/cmdline": self.words, "/proc/stat": stat}[path]


@pytest.mark.parametrize(
    ("inside", "is_separate"),
    [
        (Booted("quiet\n", 1000), False),
        (Booted("quiet\n", 1001), False),  # the kernel computes the moment from its clocks
        (Booted("root=/dev/vda\n", 1000), True),
        (Booted("quiet\n", 1009), True),  # a nested machine
        (Booted("quiet\n", 5), True),  # whose clock is wrong
        (Booted("", 1000), False),
        (Booted(""), False),
        (Booted("quiet\n"), False),
    ],
)
def test_a_separate_kernel_has_another_command_line_or_boot_time(inside: Booted, is_separate: bool) -> None:
    assert has_private_kernel(Booted("quiet\n", 1000), inside) is is_separate


# --- cpus ------------------------------------------------------------------------------------------------------------

FOUR = ((0,), (1,), (2,), (3,))
FOUR_WITH_SIBLINGS = ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize(
    ("cores", "requested", "server", "client"),
    [
        (((0,), (1,)), 1, (1,), (0,)),
        (FOUR, 1, (3,), (0, 1, 2)),
        (FOUR, 2, (2, 3), (0, 1)),
        (FOUR, 3, (1, 2, 3), (0,)),
        (FOUR_WITH_SIBLINGS, 1, (3,), (0, 1, 2, 4, 5, 6)),
        (FOUR_WITH_SIBLINGS, 2, (2, 3), (0, 1, 4, 5)),
        (((8,), (12,)), 1, (12,), (8,)),  # tare itself may use only some of the machine's
    ],
)
def test_server_and_client_share_no_core(
    cores: tuple[tuple[int, ...], ...], requested: int, server: tuple[int, ...], client: tuple[int, ...]
) -> None:
    assert choose_cpus(cores, requested) == CpuPlacement(server, client)


SAME_CPUS = ("shared-cpus", "client and instance run on the same CPUs: the machine is too small")
ONE_CORE = ("shared-cpus", "client and instance share a core: the machine is too small")
TOO_FEW = ("too-few-cpus", "3 CPUs were asked for, the machine has 2")


@pytest.mark.parametrize(
    ("cores", "requested", "server", "client", "cautions"),
    [
        (((0,),), 1, (0,), (0,), [SAME_CPUS]),
        (((0, 1),), 1, (0,), (1,), [ONE_CORE]),
        (FOUR, 4, (0, 1, 2, 3), (0, 1, 2, 3), [SAME_CPUS]),
        (((0,), (1,)), 3, (0, 1), (0, 1), [TOO_FEW, SAME_CPUS]),
    ],
)
def test_a_machine_that_is_too_small_for_both_says_so(
    cores: tuple[tuple[int, ...], ...],
    requested: int,
    server: tuple[int, ...],
    client: tuple[int, ...],
    cautions: list[tuple[str, str]],
) -> None:
    found = choose_cpus(cores, requested)
    assert (found.server, found.client) == (server, client)
    assert [(caution.kind, caution.text) for caution in found.cautions] == cautions


def test_threads_of_a_core_are_taken_once_the_cores_are_used_up() -> None:
    found = choose_cpus(FOUR_WITH_SIBLINGS, 6)
    assert len(found.server) == 6
    assert set(found.server) | set(found.client) == set(range(8))
    assert not set(found.server) & set(found.client)
