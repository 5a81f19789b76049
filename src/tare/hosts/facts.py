"""Read facts about a host: CPUs, memory, kernel, virtualization and clock offset.

The parsers take text. `read_facts` and `read_cores` take a function that returns the text of a file, or "" without
one, so they work on any host that can run `cat`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from tare.hosts.host import Host
from tare.model.errors import TrialFailed
from tare.model.machine import Facts

Read = Callable[[str], str]
CgroupVersion = Literal["v2", "v1", "hybrid", "none"]

CLOCK_SOURCES = "/sys/devices/system/clocksource/clocksource0"
_EMULATED = "/etc/tare-emulated"
_COMMAND_LINE = "/proc/cmdline"
_BOOTED = re.compile(r"^btime (\d+)$", re.MULTILINE)
_CLOCK_SECONDS = 3  # by which two answers of the same kernel may differ: it computes the moment from its clocks

# What makers of virtual machines write into the firmware tables that a guest sees.
_FIRMWARE_NAMES = (
    ("virtualbox", "virtualbox"),
    ("vmware", "vmware"),
    ("virtual machine", "hyper-v"),
    ("xen", "xen"),
    ("bochs", "bochs"),
    ("bhyve", "bhyve"),
    ("parallels", "parallels"),
    ("kvm", "kvm"),
    ("qemu", "qemu"),
    ("amazon ec2", "kvm"),
    ("google compute engine", "kvm"),
    ("openstack", "kvm"),
)

_CLOCK_NAMES = {
    "kvm-clock": "kvm",
    "xen": "xen",
    "hyperv_clocksource_tsc_page": "hyper-v",
    "hyperv_clocksource": "hyper-v",
}

# What engines leave in the names of control groups and in the options of the root mount.
_CONTAINER_TRACES = (
    ("/docker", "docker"),
    ("/libpod", "podman"),
    ("/containers/storage/", "podman"),
    ("/kubepods", "kubernetes"),
    ("/lxc", "lxc"),
    ("/io.containerd", "containerd"),
)
_CLOCK_READINGS = 7  # at a clock, of which the quickest counts


@dataclass(frozen=True)
class Cpuinfo:
    """The content of /proc/cpuinfo. Unknown: `model` is "", `cpus` 0. `hypervisor` is set in a guest."""

    model: str
    cpus: int
    hypervisor: bool
    architecture: str
    microcode: str = ""


@dataclass(frozen=True)
class Memory:
    """The content of /proc/meminfo, in bytes. None where a line is missing."""

    total_bytes: int | None
    available_bytes: int | None
    swap_total_bytes: int | None
    swap_free_bytes: int | None

    @property
    def used_bytes(self) -> int | None:
        """What cannot be had without swapping."""
        if self.total_bytes is None or self.available_bytes is None:
            return None
        return self.total_bytes - self.available_bytes

    @property
    def swapped_bytes(self) -> int | None:
        """What lies in swap: nothing where the kernel has none, and does not name it."""
        return None if self.total_bytes is None else (self.swap_total_bytes or 0) - (self.swap_free_bytes or 0)


def parse_cpuinfo(text: str) -> Cpuinfo:
    """Read /proc/cpuinfo of x86, Arm, RISC-V and POWER machines."""
    flags = _first_field(text, "flags").split()
    cpus = len(re.findall(r"^processor\s*:\s*\d+\s*$", text, re.MULTILINE))
    model, microcode = _cpu_model(text), _first_field(text, "microcode")
    return Cpuinfo(model, cpus, "hypervisor" in flags, _architecture(text, flags), microcode)


def _first_field(text: str, name: str) -> str:
    match = re.search(rf"^{re.escape(name)}[ \t]*:[ \t]*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _cpu_model(text: str) -> str:
    for name in ("model name", "cpu model", "uarch", "cpu"):
        if model := _first_field(text, name):
            return " ".join(model.split())
    # 64-bit Arm gives only numbers; the two together identify the core.
    maker, part = _first_field(text, "CPU implementer"), _first_field(text, "CPU part")
    return f"Arm implementer {maker} part {part}" if maker and part else ""


def _architecture(text: str, flags: list[str]) -> str:
    if flags:
        return "x86_64" if "lm" in flags else "i686"
    if _first_field(text, "CPU architecture") == "8":
        return "aarch64"
    return "riscv64" if _first_field(text, "isa").startswith("rv64") else ""


def parse_meminfo(text: str) -> Memory:
    """Read /proc/meminfo."""
    kibibytes = {name: int(number) for name, number in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    total, available, swap_total, swap_free = (
        kibibytes[name] * 1024 if name in kibibytes else None
        for name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    )
    return Memory(total, available, swap_total, swap_free)


def parse_os_release_fields(text: str) -> dict[str, str]:
    """Return the fields of os-release(5)."""
    return {name: value.strip().strip("\"'") for name, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)}


def parse_os_release(text: str) -> str:
    """Read the name for people from os-release(5), such as `Debian GNU/Linux 12 (bookworm)`; "" where there is none."""
    fields = parse_os_release_fields(text)
    return fields.get("PRETTY_NAME") or fields.get("NAME") or fields.get("ID", "")


def parse_mounts_cgroup_version(mounts_text: str) -> CgroupVersion:
    """Return from /proc/mounts which version of control groups is there; `hybrid` is both at once."""
    kinds = {words[2] for line in mounts_text.splitlines() if len(words := line.split()) > 2}
    if "cgroup" in kinds:
        return "hybrid" if "cgroup2" in kinds else "v1"
    return "v2" if "cgroup2" in kinds else "none"


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Read a list of CPU numbers as the kernel writes it: `0-3,8` is 0, 1, 2, 3 and 8. Raises ValueError."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def parse_cores(sibling_lists: Iterable[str]) -> tuple[tuple[int, ...], ...]:
    """Group CPU numbers into physical cores, from the texts of thread_siblings_list of all CPUs.

    The cores are sorted by their first CPU; a core of two numbers runs two threads.
    """
    return tuple(sorted({parse_cpu_list(text) for text in sibling_lists if text.strip()}))


def read_cpus(read: Read) -> tuple[int, ...]:
    """Read the numbers of the CPUs that are online."""
    listed = parse_cpu_list(read("/sys/devices/system/cpu/online"))
    return listed or tuple(range(parse_cpuinfo(read("/proc/cpuinfo")).cpus))


def read_cores(read: Read) -> tuple[tuple[int, ...], ...]:
    """Read the CPUs of each physical core; () where the kernel does not say."""
    return parse_cores(
        read(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list") for number in read_cpus(read)
    )


def read_facts(read: Read) -> Facts:
    """Read the facts that a host reports. An empty text or 0 means unknown."""
    cpuinfo = parse_cpuinfo(read("/proc/cpuinfo"))
    return Facts(
        kernel=read("/proc/sys/kernel/osrelease").strip(),
        architecture=read("/proc/sys/kernel/arch").strip() or cpuinfo.architecture,
        operating_system=parse_os_release(read("/etc/os-release")),
        cpu_model=cpuinfo.model,
        cpus=cpuinfo.cpus or len(read_cpus(read)),
        memory_bytes=parse_meminfo(read("/proc/meminfo")).total_bytes or 0,
        clock_source=read(f"{CLOCK_SOURCES}/current_clocksource").strip(),
        virtualization=read_virtualization(read, cpuinfo),
        microcode=cpuinfo.microcode,
    )


def read_virtualization(read: Read, cpuinfo: Cpuinfo) -> str:
    """Name the container and the virtual machine around a host, inner first, as `docker/kvm`; "" on bare metal.

    A guest of unknown make is `unknown hypervisor`. A container whose engine leaves no trace is not detected.
    """
    return "/".join(name for name in (read_container(read), read_hypervisor(read, cpuinfo)) if name)


def read_hypervisor(read: Read, cpuinfo: Cpuinfo) -> str:
    """Name the hypervisor under a host, or "".

    x86 guests have a CPU flag for it; Arm guests have only their firmware tables.
    """
    kind = read("/sys/hypervisor/type").strip()
    if kind == "xen":
        # Xen's first domain has the machine's own firmware, but runs on Xen.
        return "xen"
    firmware = " ".join(read(f"/sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name", "bios_vendor"))
    named = name_hypervisor(firmware, read(f"{CLOCK_SOURCES}/available_clocksource"))
    if cpuinfo.hypervisor:
        return named or "unknown hypervisor"
    # Clouds rent out bare metal under the same firmware names: on x86 only the flag proves a hypervisor.
    return "" if cpuinfo.architecture in {"x86_64", "i686"} else named


def is_emulated(host: Host) -> bool:
    """Return whether a machine's processor is emulated in software.

    A machine of the lab has a file that says so: Linux cannot tell when Xen is between it and the emulator.
    """
    return bool(host.read(_EMULATED)) or "qemu" in host.facts().virtualization.split("/")


def name_hypervisor(firmware_text: str, clock_sources_text: str) -> str:
    """Name a hypervisor from the firmware tables, or else from the clocks that it offers; "" if neither names one.

    QEMU is `kvm` only where it offers KVM's clock: an emulated machine has the same firmware.
    """
    lower = firmware_text.lower()
    by_firmware = next((name for word, name in _FIRMWARE_NAMES if word in lower), "")
    by_clock = next((_CLOCK_NAMES[clock] for clock in clock_sources_text.split() if clock in _CLOCK_NAMES), "")
    return by_clock or by_firmware if by_firmware == "qemu" else by_firmware or by_clock


def kernel_version(inside: Host) -> str:
    """Return what the kernel of an inside says of itself; `unknown` if it does not answer, which the client notices."""
    with suppress(TrialFailed):
        return " ".join(inside.read("/proc/version").split()[:3]) or "unknown"
    return "unknown"


def has_own_kernel(host: Host, inside: Host) -> bool:
    """Return whether an inside has another kernel than its host: one that was started with other words, or later.

    A machine in a machine may be started with the same words as that. The boot ID does
    not help: LXC, LXD and systemd-nspawn set one for each container.
    """
    if inside.read(_COMMAND_LINE) not in ("", host.read(_COMMAND_LINE)):
        return True
    since, before = (_BOOTED.search(each.read("/proc/stat")) for each in (inside, host))
    return since is not None and before is not None and abs(int(since[1]) - int(before[1])) > _CLOCK_SECONDS


def read_container(read: Read) -> str:
    """Name the engine of the container around a host, or "".

    systemd leaves the name in /run, others in the environment of the first process. Docker and Podman show in the names
    of control groups and in the source of the root file system. /.dockerenv proves nothing: a disk that was made from a
    Docker image has it, too.
    """
    if engine := read("/run/systemd/container").strip():
        return engine
    environment = read("/proc/1/environ").split("\0")
    if engine := next((entry[10:] for entry in environment if entry.startswith("container=")), ""):
        return engine
    return name_container(read("/proc/1/cgroup"), read("/proc/self/mounts"))


def name_container(cgroup_text: str, mounts_text: str) -> str:
    """Name a container's engine from /proc/1/cgroup and /proc/self/mounts; "" if neither names one."""
    root = next((line for line in mounts_text.splitlines() if line.split()[1:2] == ["/"]), "")
    traces = f"{cgroup_text}\n{root}"
    return next((name for word, name in _CONTAINER_TRACES if word in traces), "")


@dataclass(frozen=True)
class Clock:
    """A clock that is ahead of ours by so many seconds; it may be off by `error_seconds`, half of a round trip."""

    ahead_seconds: float = 0.0
    error_seconds: float = 0.0


def read_clock(host: Host, program: str) -> Clock:
    """Read a host's monotonic clock; `program` is the path of `supervise` there. The shortest way counts."""
    looks = []
    for _ in range(_CLOCK_READINGS):
        before = time.monotonic()
        theirs = int(host.run(program, "--clock", timeout=30).text) / 1e9
        after = time.monotonic()
        looks.append(((after - before) / 2, theirs - (before + after) / 2))
    error_seconds, ahead_seconds = min(looks)
    return Clock(ahead_seconds, error_seconds)
