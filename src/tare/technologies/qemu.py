"""QEMU with KVM: a full virtual machine that boots the image with Debian's kernel, disk and network by virtio.

KVM counts as usable only after a small guest has really booted on it within seconds: a /dev/kvm that answers proves
nothing. Where it does not, `qemu-tcg` runs the same machine in emulation, under a name of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tare.hosts.chroot import bytes_below
from tare.hosts.control_groups import ControlGroup, limited
from tare.hosts.local import read_text
from tare.hosts.ssh import SshHost
from tare.image import cached_image
from tare.launch import ANSWER_PORT, Launch, first_line, missing_tools
from tare.ledger import state_folder
from tare.model import Family, Host, Instance, Problem, Process, TrialFailed
from tare.network import INSTANCE_MAC

_PROGRAM = "qemu-system-x86_64"
_BOOT_SECONDS = 120.0
_PROBE_SECONDS = 10.0
# The emulator's own memory beside the guest's, so that the group's limit never ends a guest that keeps to its own.
_EMULATOR_BYTES = 1 << 30


@dataclass(frozen=True)
class Qemu:
    """Boots the image; the inside is entered over SSH."""

    name: ClassVar[str] = "qemu"
    title: ClassVar[str] = "QEMU/KVM"
    family: ClassVar[Family] = "type 2"
    path: ClassVar[str] = "tap"
    acceleration: ClassVar[tuple[str, ...]] = ("-accel", "kvm", "-cpu", "host")

    def version(self, host: Host) -> str:
        """Give QEMU's version."""
        return first_line(host, _PROGRAM, "--version").removeprefix("QEMU emulator version ").partition(" ")[0]

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find whether QEMU and its tools are there, and whether a guest boots on KVM."""
        packages = {_PROGRAM: "qemu-system-x86", "qemu-img": "qemu-utils", "ssh": "openssh-client", "ip": "iproute2"}
        return missing_tools(host, packages) or self.acceleration_problems(host)

    def acceleration_problems(self, host: Host) -> tuple[Problem, ...]:
        """Find why KVM cannot be used."""
        if host.run("test", "-w", "/dev/kvm", timeout=10, check=False).exit_code:
            return (
                Problem("no /dev/kvm", "load kvm_intel or kvm_amd, or turn on nesting on the machine around this one"),
            )
        if (image := cached_image()) is None:
            return (Problem("KVM is not proved yet: there is no guest kernel to boot", "tare image"),)
        if not _boots(host, image.kernel, image.initrd, self.acceleration):
            what = f"KVM is there, but a small guest does not boot on it within {_PROBE_SECONDS:g} s"
            return (Problem(what, "use qemu-tcg here; look at the kernel's log and at the machine around this one"),)
        return ()

    @contextmanager
    def launch(self, host: Host, launch: Launch) -> Iterator[Instance]:
        """Boot a machine on a fresh overlay of the image's disk; it is up when it has told its SSH host key."""
        launch.knock(launch.network.instance_address)
        launch.timeline.mark("requested")
        with ExitStack() as stack:
            group = stack.enter_context(_machine_group(launch))
            stack.enter_context(launch.ledger.undone_by("rm", "-rf", "--one-file-system", str(launch.folder)))
            launch.folder.mkdir(parents=True)
            key = _prepare(host, launch)
            tap = stack.enter_context(launch.network.tap())
            launch.timeline.mark("started")
            enter = (*group.join, "nsenter", f"--net=/run/netns/{launch.network.lan}", "--")
            machine = (_PROGRAM, *self.acceleration, *_machine(launch, tap), "-append", _command_line(launch, key))
            process = stack.enter_context(host.spawn(*enter, *machine))
            host_key = _watch_boot(process, launch)
            inside = stack.enter_context(_connected(host, launch, host_key))
            yield Instance(
                name=launch.name,
                inside=inside,
                address=launch.network.instance_address,
                path=self.path,
                processes=group.processes,
                proof={
                    "accelerator": self.acceleration[1],
                    "qemu": self.version(host),
                    "guest kernel": inside.run("uname", "-r", timeout=60).text.strip(),
                },
                disk=lambda: bytes_below(launch.folder / "disk.qcow2"),
            )


@contextmanager
def _machine_group(launch: Launch) -> Iterator[ControlGroup]:
    limits = launch.limits
    around = type(limits)(limits.cpus, limits.memory_bytes + _EMULATOR_BYTES, limits.open_files)
    with limited(launch.ledger, launch.name, around) as group:
        yield group


def _prepare(host: Host, launch: Launch) -> str:
    """Make the disk and the key of a machine; gives the public key."""
    disk, key = str(launch.folder / "disk.qcow2"), str(launch.folder / "key")
    base = ("-b", str(launch.image.disk), "-F", "raw")
    host.run("qemu-img", "create", "-q", "-f", "qcow2", *base, disk, timeout=30)
    host.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key, timeout=30)
    return (launch.folder / "key.pub").read_text(encoding="ascii").split()[1]


def _machine(launch: Launch, tap: str) -> tuple[str, ...]:
    network = f"tap,id=net0,ifname={tap},script=no,downscript=no"
    return (
        *("-M", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-smp", str(len(launch.limits.cpus)), "-m", f"{launch.limits.memory_bytes >> 20}M"),
        *("-drive", f"file={launch.folder / 'disk.qcow2'},if=virtio,format=qcow2"),
        *("-netdev", network, "-device", f"virtio-net-pci,netdev=net0,mac={INSTANCE_MAC},romfile="),
        *("-kernel", str(launch.image.kernel), "-initrd", str(launch.image.initrd)),
    )


def _command_line(launch: Launch, key: str) -> str:
    """Write the guest kernel's command line; programs/guest reads the words that start with `tare.`."""
    words = {
        "address": launch.network.instance_address,
        "gateway": launch.network.machine_address,
        "port": str(ANSWER_PORT),
        "files": str(launch.limits.open_files),
        "key": key,
    }
    # Notices and worse: enough for a first line early, few enough not to slow the boot.
    fixed = "root=/dev/vda rw console=ttyS0 loglevel=6 panic=-1 init=/usr/lib/tare/guest"
    return " ".join((fixed, *(f"tare.{name}={value}" for name, value in words.items())))


def _watch_boot(process: Process, launch: Launch) -> str:
    """Read the console until the guest has told its SSH host key; marks the moments on the way."""
    last = ""
    while True:
        try:
            line = process.read_line(_BOOT_SECONDS)
        except TrialFailed as error:
            raise TrialFailed(f"the guest did not boot: {error}", f"its last line was: {last[-200:]!r}") from error
        last = line.text
        if "Linux version" in last and not any(mark.name == "kernel" for mark in launch.timeline.marks):
            launch.timeline.mark("kernel", line.seconds)
        if "tare-guest: userspace" in last:
            launch.timeline.mark("userspace", line.seconds)
        if "tare-guest: host key " in last:
            return last.partition("tare-guest: host key ")[2].strip()


@contextmanager
def _connected(host: Host, launch: Launch, host_key: str) -> Iterator[SshHost]:
    """Open one SSH connection to the guest, which every command then shares."""
    address, folder = launch.network.instance_address, launch.folder
    (folder / "known_hosts").write_text(f"{address} {host_key}\n", encoding="ascii")
    fixed = ("-F", "/dev/null", "-i", str(folder / "key"), "-o", f"UserKnownHostsFile={folder / 'known_hosts'}")
    options = (*fixed, "-o", f"ControlPath={folder / 'ssh'}", "-o", "ConnectTimeout=30")
    master = SshHost(host, f"root@{address}", *options, "-M", "-N")
    with host.spawn(*master.prefix[:-1]):
        guest = SshHost(host, f"root@{address}", *options)
        _wait_for(host, folder / "ssh")
        yield guest


def _wait_for(host: Host, socket: Path) -> None:
    script = 'for try in $(seq 600); do [ -S "$1" ] && exit; sleep 0.05; done; exit 1'
    if host.run("sh", "-c", script, "sh", str(socket), timeout=40, check=False).exit_code:
        raise TrialFailed("the guest's SSH does not answer within 30 s", "`tare show` has its console")


def _boots(host: Host, kernel: Path, initrd: Path, acceleration: tuple[str, ...]) -> bool:
    """Tell whether a guest's kernel comes as far as its first program; remembered until the machine boots again."""
    memory = state_folder() / "kvm.json"
    machine = [
        read_text("/proc/sys/kernel/random/boot_id").strip(),
        kernel.parent.name,
        first_line(host, _PROGRAM, "--version"),
    ]
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
        if known["machine"] == machine:
            return bool(known["boots"])
    except (OSError, ValueError, KeyError):
        pass
    boots = _probe(host, kernel, initrd, acceleration)
    memory.write_text(json.dumps({"machine": machine, "boots": boots}), encoding="utf-8")
    return boots


def _probe(host: Host, kernel: Path, initrd: Path, acceleration: tuple[str, ...]) -> bool:
    fixed = ("-M", "q35", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-m", "256M")
    boot = ("-kernel", str(kernel), "-initrd", str(initrd), "-append", "console=ttyS0 root=/dev/none panic=-1")
    try:
        with host.spawn(_PROGRAM, *acceleration, *fixed, *boot) as process:
            deadline = process.read_line(_PROBE_SECONDS).seconds + _PROBE_SECONDS
            while (line := process.read_line(_PROBE_SECONDS)).seconds < deadline:
                if "Run /init as init process" in line.text:
                    return True
    except TrialFailed:
        pass
    return False
