"""QEMU with KVM: a full virtual machine that boots the image with Debian's kernel, disk and network by virtio.

KVM counts as usable only after a small guest has really booted on it within seconds: a /dev/kvm that answers proves
nothing. Where it does not, `qemu-tcg` runs the same machine in emulation, under a name of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare import kvm
from tare.hosts.chroot import bytes_below
from tare.hosts.control_groups import ControlGroup, limited
from tare.hosts.ssh import SshHost, shared
from tare.image import cached_image
from tare.launch import ANSWER_PORT, Launch, first_line, missing_tools
from tare.model import Family, Host, Instance, Problem, Process, TrialFailed
from tare.network import INSTANCE_MAC

_PROGRAM = "qemu-system-x86_64"
_BOOT_SECONDS = 120.0
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
        if not kvm.boots(host, image, (_PROGRAM, *self.acceleration)):
            what = f"KVM is there, but a small guest does not boot on it within {kvm.PROBE_SECONDS:g} s"
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
    """Open an SSH connection to the guest with the key that was made for it and the host key that it has told."""
    address, known = launch.network.instance_address, launch.folder / "known_hosts"
    known.write_text(f"{address} {host_key}\n", encoding="ascii")
    options = ("-F", "/dev/null", "-i", str(launch.folder / "key"), "-o", f"UserKnownHostsFile={known}")
    socket = f"/run/{launch.name}.ssh"  # not in the folder: the name of a socket may be no longer than 107 bytes
    with launch.ledger.undone_by("rm", "-f", socket), shared(host, f"root@{address}", socket, *options) as inside:
        yield inside
