"""A virtual machine that boots the image: what all monitors and hypervisors share.

The kernel's command line carries what programs/guest_init.c needs. The guest says on the console when its door is open
(programs/guest_protocol.h); tare then enters it from its host through that: docs/decisions/guests.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tare.hosts.exec import ExecHost
from tare.hosts.host import Host, Process
from tare.hosts.resident import ResidentEnded
from tare.images.recipes import MAKE_DISK
from tare.images.skopeo import merged_root
from tare.model.errors import OutOfMemory, TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.trial import Caution, Limits
from tare.plugins.technology import LaunchRequest

# A monitor's memory beside the guest's, so that the group's limit does not end a guest that keeps its own limit. The
# translation buffer of QEMU's emulation grows to 1 GiB.
MONITOR_BYTES = 2 << 30
EMULATION_CAUTION = Caution("emulated", "the processor is emulated in software: this is not what virtualization costs")
TOOLS: Mapping[str, str] = {"ip": "iproute2"}
AGENT_PORT = 17006
GUEST_EXEC = "usr/lib/tare/guest_exec"
AGENT_READY_PREFIX = "tare-guest: agent of "
# The kernel says the second one in its panic, when nothing is left that it could end.
_OUT_OF_MEMORY = re.compile(r"Out of memory|deadlocked on memory")
_PROGRAM_PREFIX = re.compile(
    r"^\S+: (?=ended|printed nothing)"
)  # the program that put the monitor into its control group


@dataclass(frozen=True)
class Devices:
    """The devices of a machine.

    `card` is a tap, a bridge's port or a script, as the monitor needs it; the others are files, `volume` the data
    volume's.
    """

    disk: str
    card: str
    cd: str = ""
    serial: str = ""
    volume: str = ""


def with_monitor_memory(limits: Limits) -> Limits:
    """Return the limits of a guest together with its monitor."""
    return Limits(limits.cpus, limits.memory_bytes + MONITOR_BYTES, limits.open_files)


def command_line(launch: LaunchRequest, root: str = "/dev/vda", console: str = "ttyS0") -> str:
    """Write the guest kernel's command line; programs/guest_init.c reads the words that start with `tare.`."""
    words = {
        "address": launch.network.instance_address,
        "gateway": launch.network.gateway,
        "port": str(launch.readiness_port),
        "files": str(launch.limits.open_files),
        "host": launch.network.host_address,
        "agent": str(AGENT_PORT),
    }
    # Notices and worse: they give an early first line and do not slow the boot. The kernel's tests of its own ciphers,
    # which nothing here uses, take an emulated processor a quarter of a second.
    fixed = f"root={root} rw console={console} loglevel=6 cryptomgr.notests panic=-1 init=/usr/lib/tare/guest_init"
    return " ".join((fixed, *(f"tare.{name}={value}" for name, value in words.items())))


@dataclass
class _BootOutput:
    """What a guest that boots has said: its last line, why its kernel gave up, and that it had too little memory."""

    last_line: str = ""
    panic_line: str = ""
    out_of_memory_line: str = ""

    def add_line(self, text: str) -> None:
        """Record a line."""
        self.last_line = text.strip() or self.last_line
        self.panic_line = self.last_line if "Kernel panic" in text else self.panic_line
        self.out_of_memory_line = self.last_line if _OUT_OF_MEMORY.search(text) else self.out_of_memory_line

    def boot_error(self, kind: type[TrialFailed], why: str, launch: LaunchRequest) -> TrialFailed:
        """Return the reason why it has not booted."""
        had = f"it had {launch.limits.memory_bytes >> 20} MiB of memory"
        if self.out_of_memory_line:
            what = f"the guest did not boot for lack of memory: its kernel said {self.out_of_memory_line[-200:]!r}"
            return OutOfMemory(what, f"{had}, and its own kernel needs more")
        hint = f"its last line was: {self.last_line[-200:]!r}" if self.last_line else f"its kernel said nothing; {had}"
        if self.panic_line:
            hint = f"its kernel said: {self.panic_line[-200:]!r}"
        return kind(f"the guest did not boot: {why}", hint)


def watch_boot(console: Process, launch: LaunchRequest) -> str:
    """Read the console until the guest's door is open, and mark the moments of its boot; return its kernel's release.

    Raises TrialFailed with the guest's last output if it is silent for `start_timeout_seconds`, ends, or boots again,
    and OutOfMemory if its kernel reports that as the reason.
    """
    said = _BootOutput()
    while True:
        try:
            line = console.read_line(launch.start_timeout_seconds)
        except TrialFailed as error:
            kind = TimedOut if isinstance(error, TimedOut) else TrialFailed
            raise said.boot_error(kind, _PROGRAM_PREFIX.sub("", str(error)), launch) from error
        said.add_line(line.text)
        if "Linux version" in line.text:
            if any(mark.name == "kernel" for mark in launch.timeline.marks):
                raise said.boot_error(TrialFailed, "it began again", launch)
            launch.timeline.mark("kernel", line.seconds)
        if "tare-guest: userspace" in line.text:
            launch.timeline.mark("userspace", line.seconds)
        if AGENT_READY_PREFIX in line.text:
            return line.text.partition(AGENT_READY_PREFIX)[2].strip()


@contextmanager
def enter_guest(host: Host, launch: LaunchRequest) -> Iterator[ExecHost]:
    """Enter the guest through its door, with a resident process in it for the block."""
    reach = (str(launch.image.root / GUEST_EXEC), launch.network.instance_address, str(AGENT_PORT))
    inside = ExecHost(host, *reach, f"{launch.start_timeout_seconds:g}")
    with inside.start_resident() as resident:
        try:
            resident.await_ready(launch.start_timeout_seconds)
        except ResidentEnded as error:
            what = f"the guest does not let tare in: {error.last_output}"
            raise TrialFailed(what, "`tare show` has the command that enters it") from error
        yield inside


def ensure_disk(host: Host, image: Image) -> None:
    """Make the image's disk on a host that has only its directory, or a smaller one; nested stacks have their own."""
    if image.disk.suffix == ".qcow2":
        return
    large_enough = '[ "$(stat -c %s "$disk" 2>/dev/null || echo 0)" -ge "$2" ]'
    make = '"$@" "$disk.new" "$kibibytes"K && mv "$disk.new" "$disk"'
    script = f"disk=$1; {large_enough} || {{ kibibytes=$(($2 / 1024)); shift 2; {make}; }}"
    prefix, root = merged_root(image)
    words = (str(image.disk), str(image.disk_bytes), *MAKE_DISK, root)
    host.run(*prefix, "sh", "-c", script, "sh", *words, timeout=600)
