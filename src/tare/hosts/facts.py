"""Facts about a host: CPUs, memory, kernel, virtualization and clock offset.

The parsers take text. The `read_` functions take a function that returns the text of a file, "" if the file cannot be
read. So they work on any host that can run `cat`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from tare.hosts.arm_cpus import EMULATED, name_chip, name_cores
from tare.hosts.host import Host
from tare.model.architecture import ARM64, X86_64, Architecture, find_architecture, this_architecture
from tare.model.errors import TrialFailed
from tare.model.machine import Facts

Read = Callable[[str], str]
CgroupVersion = Literal["v2", "v1", "hybrid", "none"]

CLOCK_SOURCES = "/sys/devices/system/clocksource/clocksource0"
_EMULATED = "/etc/tare-emulated"
_COMMAND_LINE = "/proc/cmdline"
_CHIP = "/sys/devices/soc0/family"
_BOOTED = re.compile(r"^btime (\d+)$", re.MULTILINE)
_CLOCK_SECONDS = 3  # tolerance between two `btime` values of one kernel, which computes them from two clocks

# Words that hypervisors and clouds write into a guest's firmware tables, in lower case. The first match counts.
_FIRMWARE_NAMES = (
    ("virtualbox", "virtualbox"),
    ("vmware", "vmware"),
    ("microsoft corporation virtual machine", "hyper-v"),
    ("xen", "xen"),
    ("bochs", "bochs"),
    ("bhyve", "bhyve"),
    ("parallels", "parallels"),
    ("apple virtualization", "apple"),
    ("kvm", "kvm"),
    ("qemu", "qemu"),
    ("amazon ec2", "kvm"),
    ("google compute engine", "kvm"),
    ("openstack", "kvm"),
)

# Arm guests without firmware tables have a device tree, whose node of a hypervisor names these.
_TREE = "/proc/device-tree"
_TREE_NAMES = (("xen", "xen"), ("vmware", "vmware"), ("linux,kvm", "kvm"))
_BOARD = f"{_TREE}/compatible"
_QEMU_NODE = f"{_TREE}/fw-cfg@9020000/compatible"  # of QEMU's machine `virt`
_RANDOM_NUMBERS = "/sys/bus/platform/devices/smccc_trng/modalias"  # a service of KVM to guests since Linux 5.12

_CLOCK_NAMES = {
    "kvm-clock": "kvm",
    "xen": "xen",
    "hyperv_clocksource_tsc_page": "hyper-v",
    "hyperv_clocksource": "hyper-v",
}

# Traces of engines in the names of control groups and in the options of the root mount.
_CONTAINER_TRACES = (
    ("/docker", "docker"),
    ("/libpod", "podman"),
    ("/containers/storage/", "podman"),
    ("/kubepods", "kubernetes"),
    ("/lxc", "lxc"),
    ("/io.containerd", "containerd"),
)
_CLOCK_READINGS = 7  # of which the one with the shortest round trip counts


@dataclass(frozen=True)
class Cpuinfo:
    """Content of /proc/cpuinfo: `model` is "" and `cpus` 0 if unknown.

    `hypervisor` is True in an x86 guest, False on another x86 machine, and None if CPUs have no flag for it.
    """

    model: str
    cpus: int
    hypervisor: bool | None
    architecture: str
    microcode: str = ""


@dataclass(frozen=True)
class Memory:
    """Content of /proc/meminfo, in bytes; None if a line is missing."""

    total_bytes: int | None
    available_bytes: int | None
    swap_total_bytes: int | None
    swap_free_bytes: int | None

    @property
    def used_bytes(self) -> int | None:
        """Memory that no new program could get without swapping; None if unknown."""
        if self.total_bytes is None or self.available_bytes is None:
            return None
        return self.total_bytes - self.available_bytes

    @property
    def swapped_bytes(self) -> int | None:
        """Used swap space: 0 if the kernel has no lines about swap; None if unknown."""
        return None if self.total_bytes is None else (self.swap_total_bytes or 0) - (self.swap_free_bytes or 0)


def parse_cpuinfo(text: str) -> Cpuinfo:
    """Parse /proc/cpuinfo of x86, Arm, RISC-V and POWER machines."""
    flags = _first_field(text, "flags").split()
    cpus = len(re.findall(r"^processor\s*:\s*\d+\s*$", text, re.MULTILINE))
    model, microcode = _cpu_model(text), _first_field(text, "microcode")
    return Cpuinfo(model, cpus, "hypervisor" in flags if flags else None, _architecture(text, flags), microcode)


def _first_field(text: str, name: str) -> str:
    match = re.search(rf"^{re.escape(name)}[ \t]*:[ \t]*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _cpu_model(text: str) -> str:
    cores = name_cores(text)
    # A kernel for 32-bit programs has the name of the architecture, some vendors' kernels that of the chip.
    if cores and re.match(r"ARMv\d|$", _first_field(text, "model name")):
        return cores
    for name in ("model name", "cpu model", "uarch", "cpu"):  # in this order: RISC-V has `uarch`, POWER only `cpu`
        if model := _first_field(text, name):
            return " ".join(model.split())
    return ""


def _architecture(text: str, flags: list[str]) -> str:
    if flags:
        return X86_64.machine if "lm" in flags else "i686"  # `lm` is long mode
    if _first_field(text, "CPU architecture") == "8":
        return ARM64.machine
    return "riscv64" if _first_field(text, "isa").startswith("rv64") else ""


def parse_meminfo(text: str) -> Memory:
    """Parse /proc/meminfo."""
    kibibytes = {name: int(number) for name, number in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    total, available, swap_total, swap_free = (
        kibibytes[name] * 1024 if name in kibibytes else None
        for name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    )
    return Memory(total, available, swap_total, swap_free)


def parse_os_release_fields(text: str) -> dict[str, str]:
    """Parse the fields of os-release(5), without their quotes."""
    return {name: value.strip().strip("\"'") for name, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)}


def parse_os_release(text: str) -> str:
    """Parse the display name from os-release(5), such as `Debian GNU/Linux 12 (bookworm)`; "" if there is none."""
    fields = parse_os_release_fields(text)
    return fields.get("PRETTY_NAME") or fields.get("NAME") or fields.get("ID", "")


def parse_mounts_cgroup_version(mounts_text: str) -> CgroupVersion:
    """Parse the version of control groups from the text of /proc/mounts; `hybrid` if both are mounted."""
    kinds = {words[2] for line in mounts_text.splitlines() if len(words := line.split()) > 2}
    if "cgroup" in kinds:
        return "hybrid" if "cgroup2" in kinds else "v1"
    return "v2" if "cgroup2" in kinds else "none"


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parse a list of CPU numbers in the kernel's format: `0-3,8` is 0, 1, 2, 3 and 8. Raises ValueError."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def parse_cores(sibling_lists: Iterable[str]) -> tuple[tuple[int, ...], ...]:
    """Return the CPU numbers of each physical core, from the texts of thread_siblings_list of all CPUs.

    The cores are sorted by their first CPU. A core with two numbers runs two threads.
    """
    return tuple(sorted({parse_cpu_list(text) for text in sibling_lists if text.strip()}))


def read_cpus(read: Read) -> tuple[int, ...]:
    """Return the numbers of the online CPUs."""
    listed = parse_cpu_list(read("/sys/devices/system/cpu/online"))  # "" in a sandbox without sysfs
    return listed or tuple(range(parse_cpuinfo(read("/proc/cpuinfo")).cpus))


def read_cores(read: Read) -> tuple[tuple[int, ...], ...]:
    """Return the CPU numbers of each physical core; () if the kernel has no topology."""
    return parse_cores(
        read(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list") for number in read_cpus(read)
    )


def read_facts(read: Read) -> Facts:
    """Return the facts that a host reports; "" and 0 mean unknown."""
    cpuinfo = parse_cpuinfo(read("/proc/cpuinfo"))
    return Facts(
        kernel=read("/proc/sys/kernel/osrelease").strip(),
        architecture=read("/proc/sys/kernel/arch").strip() or cpuinfo.architecture,
        operating_system=parse_os_release(read("/etc/os-release")),
        cpu_model=_read_cpu_model(read, cpuinfo),
        cpus=cpuinfo.cpus or len(read_cpus(read)),
        memory_bytes=parse_meminfo(read("/proc/meminfo")).total_bytes or 0,
        clock_source=read(f"{CLOCK_SOURCES}/current_clocksource").strip(),
        virtualization=read_virtualization(read, cpuinfo),
        microcode=cpuinfo.microcode,
    )


def _read_cpu_model(read: Read, cpuinfo: Cpuinfo) -> str:
    """Return the name of the CPU; on Arm with that of its chip if the firmware tells it."""
    if cpuinfo.hypervisor is not None:
        return cpuinfo.model
    return name_chip(cpuinfo.model, f"{_read_firmware(read, 'sys_vendor', 'product_name')} {read(_CHIP).strip()}")


def architecture_of(host: Host) -> Architecture:
    """Return the architecture of a host, that of this machine if unknown. Raises TareError if tare does not know it."""
    name = host.read("/proc/sys/kernel/arch").strip() or parse_cpuinfo(host.read("/proc/cpuinfo")).architecture
    return find_architecture(name) if name else this_architecture()


def read_virtualization(read: Read, cpuinfo: Cpuinfo) -> str:
    """Return the container and the hypervisor of a host, the inner one first, as `docker/kvm`; "" on bare metal.

    The name of an unknown hypervisor is `unknown hypervisor`. A container is not detected if its engine leaves no
    trace.
    """
    return "/".join(name for name in (read_container(read), read_hypervisor(read, cpuinfo)) if name)


def read_hypervisor(read: Read, cpuinfo: Cpuinfo) -> str:
    """Return the name of the hypervisor under a host; "" if there is none.

    x86 guests have a CPU flag for a hypervisor. Arm guests have only their firmware tables or their device tree.
    """
    kind = read("/sys/hypervisor/type").strip()
    if kind == "xen":
        # Xen's first domain sees the firmware of the physical machine, so check this file before the firmware.
        return "xen"
    firmware = _read_firmware(read, "sys_vendor", "product_name", "bios_vendor")
    named = name_hypervisor(firmware, read(f"{CLOCK_SOURCES}/available_clocksource"))
    if cpuinfo.hypervisor:
        return named or "unknown hypervisor"
    # Clouds rent out bare metal under the same firmware names: on x86 only the flag proves a hypervisor.
    return "" if cpuinfo.hypervisor is False else _read_arm_hypervisor(read, cpuinfo, firmware, named)


def _read_firmware(read: Read, *names: str) -> str:
    """Return these entries of the firmware tables, in one line; "" without firmware tables."""
    return " ".join(" ".join(read(f"/sys/class/dmi/id/{name}") for name in names).split())


def _read_arm_hypervisor(read: Read, cpuinfo: Cpuinfo, firmware: str, named: str) -> str:
    """Return the hypervisor's name on an architecture whose CPUs have no flag for it; "" if there is none.

    `named` is the name from the firmware tables. A guest of QEMU without KVM's services is emulated.
    """
    # Read all files first: a fleet fetches only files that are read where all are empty.
    tree, board, qemu, service = map(read, (f"{_TREE}/hypervisor/compatible", _BOARD, _QEMU_NODE, _RANDOM_NUMBERS))
    if tree:
        return next((name for word, name in _TREE_NAMES if word in tree), "unknown hypervisor")
    if ".metal" in firmware:  # bare metal of Amazon EC2
        return ""
    if "linux,dummy-virt" in board:  # of QEMU, Firecracker and Cloud Hypervisor
        named = "qemu" if qemu else "kvm"
    return "kvm" if named == "qemu" and service and EMULATED not in cpuinfo.model else named


def is_emulated(host: Host) -> bool:
    """Return whether a machine's processor is emulated in software.

    Emulated machines of the lab have a marker file, because Linux cannot detect an emulator below Xen.
    """
    return bool(host.read(_EMULATED)) or "qemu" in host.facts().virtualization.split("/")


def name_hypervisor(firmware_text: str, clock_sources_text: str) -> str:
    """Return a hypervisor's name from the firmware tables, else from the guest's clocks; "" if neither is known.

    The name for QEMU is `kvm` only if KVM's clock is available, because an emulated machine has the same firmware.
    """
    lower = " ".join(firmware_text.lower().split())
    by_firmware = next((name for word, name in _FIRMWARE_NAMES if word in lower), "")
    by_clock = next((_CLOCK_NAMES[clock] for clock in clock_sources_text.split() if clock in _CLOCK_NAMES), "")
    return by_clock or by_firmware if by_firmware == "qemu" else by_firmware or by_clock


def kernel_version(inside: Host) -> str:
    """Return the start of /proc/version inside, such as `Linux version 6.1.0`; `unknown` if it cannot be read."""
    with suppress(TrialFailed):  # a dead instance is noticed, and reported, by its client
        return " ".join(inside.read("/proc/version").split()[:3]) or "unknown"
    return "unknown"


@dataclass(frozen=True)
class KernelBoot:
    """Traces of a kernel's boot: its command line, "" if unknown, and the time in seconds since 1970, None if unknown.

    The command line alone does not suffice, as nested machines may have equal ones. The boot ID does not help, as LXC,
    LXD and systemd-nspawn set a different ID for each container.
    """

    command_line: str
    seconds: int | None

    def differs(self, host: KernelBoot) -> bool:
        """Return whether this is another kernel than that of the host; False if unknown."""
        if self.command_line not in ("", host.command_line):
            return True
        if self.seconds is None or host.seconds is None:
            return False
        return abs(self.seconds - host.seconds) > _CLOCK_SECONDS


def read_kernel_boot(read: Read) -> KernelBoot:
    """Return the traces of the boot of a host's kernel."""
    booted = _BOOTED.search(read("/proc/stat"))
    return KernelBoot(" ".join(read(_COMMAND_LINE).split()), int(booted[1]) if booted else None)


def has_private_kernel(host: Host, inside: Host) -> bool:
    """Return whether an instance has another kernel than its host."""
    return read_kernel_boot(inside.read).differs(read_kernel_boot(host.read))


def read_container(read: Read) -> str:
    """Return the name of the engine of the container around a host; "" if there is none.

    systemd writes the name to /run, other engines to the environment of the first process. The names of Docker and
    Podman are in the names of control groups and in the options of the root mount. /.dockerenv proves nothing, because
    a disk that was made from a Docker image has the file, too.
    """
    if engine := read("/run/systemd/container").strip():
        return engine
    environment = read("/proc/1/environ").split("\0")
    if engine := next((entry[10:] for entry in environment if entry.startswith("container=")), ""):
        return engine
    return name_container(read("/proc/1/cgroup"), read("/proc/self/mounts"))


def name_container(cgroup_text: str, mounts_text: str) -> str:
    """Return a container's engine from the texts of /proc/1/cgroup and /proc/self/mounts; "" if unknown."""
    root = next((line for line in mounts_text.splitlines() if line.split()[1:2] == ["/"]), "")
    traces = f"{cgroup_text}\n{root}"
    return next((name for word, name in _CONTAINER_TRACES if word in traces), "")


@dataclass(frozen=True)
class Clock:
    """Offset of a host's monotonic clock from tare's; `error_seconds` is its uncertainty, half of a round trip."""

    ahead_seconds: float = 0.0
    error_seconds: float = 0.0


def read_clock(host: Host, program: str) -> Clock:
    """Return the offset of a host's monotonic clock; `program` is the path of `supervise` (programs/supervise.c) there.

    The reading with the shortest round trip counts, as it has the smallest uncertainty.
    """
    readings = []
    for _ in range(_CLOCK_READINGS):
        before = time.monotonic()
        theirs = int(host.run(program, "--clock", timeout=30).text) / 1e9
        after = time.monotonic()
        readings.append(((after - before) / 2, theirs - (before + after) / 2))
    error_seconds, ahead_seconds = min(readings)
    return Clock(ahead_seconds, error_seconds)
