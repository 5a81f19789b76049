"""Virtual machine that boots tare's image: the parts that all monitors and hypervisors share.

The kernel's command line has the configuration of programs/guest_init.c. The guest prints on the console when its guest
agent (programs/guest_protocol.h) accepts connections. tare then runs commands in the guest through the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tare.hosts.exec import AgentHost, ExecHost
from tare.hosts.host import Host, Process
from tare.hosts.resident import ResidentEnded
from tare.images.recipes import MAKE_DISK
from tare.images.skopeo import merged_root
from tare.model.errors import OutOfMemory, TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.trial import Caution, Limits
from tare.plugins.technology import LaunchRequest

# Memory of a monitor in addition to the guest's, so that the kernel does not kill a monitor whose guest stays within
# its limit. The translation buffer of QEMU's emulation alone grows to 1 GiB.
MONITOR_BYTES = 2 << 30
EMULATION_CAUTION = Caution("emulated", "the processor is emulated in software: this is not what virtualization costs")
TOOLS: Mapping[str, str] = {"ip": "iproute2"}
AGENT_PORT = 17006
GUEST_EXEC = "usr/lib/tare/guest_exec"
AGENT_READY_PREFIX = "tare-guest: agent of "
# The second text is in the kernel's panic if no process is left that it could kill.
_OUT_OF_MEMORY = re.compile(r"Out of memory|deadlocked on memory")
# Errors name the program that moved the monitor into its control group, which tells the user nothing.
_PROGRAM_PREFIX = re.compile(r"^\S+: (?=ended|printed nothing)")


@dataclass(frozen=True)
class Devices:
    """Devices of a machine.

    `card` is a tap, a bridge's port or a script, depending on the monitor. The others are paths of files; "" for a
    device that the machine does not have. `volume` is the disk of the data volume.
    """

    disk: str
    card: str
    cd: str = ""
    serial: str = ""
    volume: str = ""


def with_monitor_memory(limits: Limits) -> Limits:
    """Return the limits of a control group that holds a guest and its monitor."""
    return Limits(limits.cpus, limits.memory_bytes + MONITOR_BYTES, limits.open_files)


def command_line(launch: LaunchRequest, root: str = "/dev/vda", console: str = "") -> str:
    """Return the guest kernel's command line; programs/guest_init.c reads the words that start with `tare.`.

    The console is that of QEMU's machines by default.
    """
    console = console or launch.image.architecture.console
    words = {
        "address": launch.network.instance_address,
        "gateway": launch.network.gateway,
        "port": str(launch.readiness_port),
        "files": str(launch.limits.open_files),
        "host": launch.network.host_address,
        "agent": str(AGENT_PORT),
    }
    # loglevel=6 prints notices and worse: an early first line without slowing the boot. cryptomgr.notests skips tests
    # of ciphers, which nothing here uses: they take a quarter of a second on an emulated processor.
    fixed = f"root={root} rw console={console} loglevel=6 cryptomgr.notests panic=-1 init=/usr/lib/tare/guest_init"
    return " ".join((fixed, *(f"tare.{name}={value}" for name, value in words.items())))


@dataclass
class _BootOutput:
    """Digest of a booting guest's console: its last line, and those of a panic and of too little memory."""

    last_line: str = ""
    panic_line: str = ""
    out_of_memory_line: str = ""

    def add_line(self, text: str) -> None:
        """Add a line of the console."""
        self.last_line = text.strip() or self.last_line
        self.panic_line = self.last_line if "Kernel panic" in text else self.panic_line
        self.out_of_memory_line = self.last_line if _OUT_OF_MEMORY.search(text) else self.out_of_memory_line

    def boot_error(self, error_type: type[TrialFailed], why: str, launch: LaunchRequest) -> TrialFailed:
        """Return the error of a failed boot: OutOfMemory if the kernel reported that, otherwise an `error_type`."""
        had = f"it had {launch.limits.memory_bytes >> 20} MiB of memory"
        if self.out_of_memory_line:
            what = f"the guest did not boot for lack of memory: its kernel said {self.out_of_memory_line[-200:]!r}"
            return OutOfMemory(what, f"{had}, and its own kernel needs more")
        hint = f"its last line was: {self.last_line[-200:]!r}" if self.last_line else f"its kernel said nothing; {had}"
        if self.panic_line:
            hint = f"its kernel said: {self.panic_line[-200:]!r}"
        return error_type(f"the guest did not boot: {why}", hint)


def watch_boot(console: Process, launch: LaunchRequest) -> str:
    """Read the console until the guest agent is ready; mark `kernel` and `userspace`; return the kernel's release.

    Raises TrialFailed with the guest's last output if the guest prints nothing for `start_timeout_seconds`, ends, or
    reboots, and OutOfMemory if its kernel reports that as the reason.
    """
    output = _BootOutput()
    while True:
        try:
            line = console.read_line(launch.start_timeout_seconds)
        except TrialFailed as error:
            error_type = TimedOut if isinstance(error, TimedOut) else TrialFailed
            raise output.boot_error(error_type, _PROGRAM_PREFIX.sub("", str(error)), launch) from error
        output.add_line(line.text)
        if "Linux version" in line.text:
            # A guest that reboots after each panic is never silent, so the timeout alone would not end it.
            if any(mark.name == "kernel" for mark in launch.timeline.marks):
                raise output.boot_error(TrialFailed, "it rebooted", launch)
            launch.timeline.mark("kernel", line.seconds)
        if "tare-guest: userspace" in line.text:
            launch.timeline.mark("userspace", line.seconds)
        if AGENT_READY_PREFIX in line.text:
            return line.text.partition(AGENT_READY_PREFIX)[2].strip()


@contextmanager
def enter_guest(host: Host, launch: LaunchRequest) -> Iterator[ExecHost]:
    """Context manager: yield the guest's inside, run through its guest agent, with a resident agent for the block."""
    guest_exec = (str(launch.image.root / GUEST_EXEC), launch.network.instance_address, str(AGENT_PORT))
    inside = AgentHost(host, *guest_exec, f"{launch.start_timeout_seconds:g}")
    with inside.start_resident() as resident:
        try:
            resident.await_ready(launch.start_timeout_seconds)
        except ResidentEnded as error:
            what = f"the guest agent cannot be reached: {error.last_output}"
            raise TrialFailed(what, "`tare show` has the command that connects to it") from error
        yield inside


def ensure_disk(host: Host, image: Image) -> None:
    """Make the image's disk from its directory, unless the host has a disk that is large enough.

    It does nothing for a qcow2 disk: this is the overlay that a nested stack gets.
    """
    if image.disk.suffix == ".qcow2":
        return
    large_enough = '[ "$(stat -c %s "$disk" 2>/dev/null || echo 0)" -ge "$2" ]'
    # The rename makes the disk complete or absent, even if tare is killed meanwhile.
    make = '"$@" "$disk.new" "$kibibytes"K && mv "$disk.new" "$disk"'
    script = f"disk=$1; {large_enough} || {{ kibibytes=$(($2 / 1024)); shift 2; {make}; }}"
    prefix, root = merged_root(image)
    words = (str(image.disk), str(image.disk_bytes), *MAKE_DISK, root)
    host.run(*prefix, "sh", "-c", script, "sh", *words, timeout=600)
