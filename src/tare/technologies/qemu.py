"""QEMU with KVM: a full virtual machine that boots the image with Debian's kernel, disk and network by virtio.

KVM counts as usable only after a small guest has really booted on it within seconds: a /dev/kvm that answers proves
nothing. Where it does not, `qemu-tcg` runs the same machine in emulation, under a name of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

from tare import guest, kvm
from tare.hosts.chroot import bytes_below
from tare.hosts.control_groups import limited
from tare.image import image_on
from tare.launch import Launch, Technology, first_line, missing_tools
from tare.model import Family, Host, Image, Instance, Problem

_PROGRAM = "qemu-system-x86_64"


@dataclass(frozen=True)
class Qemu(Technology):
    """Boots the image; the inside is entered over SSH."""

    name: ClassVar[str] = "qemu"
    title: ClassVar[str] = "QEMU/KVM"
    family: ClassVar[Family] = "type 2"
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "emulated"
    isolates: ClassVar[str] = "a kernel of its own on virtual hardware"
    needs: ClassVar[str] = "qemu-system-x86, KVM that boots a guest"
    hosts: ClassVar[bool] = True
    path: ClassVar[str] = "tap"
    acceleration: ClassVar[tuple[str, ...]] = ("-accel", "kvm", "-cpu", "host")

    def version(self, host: Host) -> str:
        """Give QEMU's version."""
        return first_line(host, _PROGRAM, "--version").removeprefix("QEMU emulator version ").partition(" ")[0]

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find whether QEMU and its tools are there, and whether a guest boots on KVM."""
        packages = {_PROGRAM: "qemu-system-x86", "qemu-img": "qemu-utils", **guest.TOOLS}
        return missing_tools(host, packages) or self.acceleration_problems(host)

    def acceleration_problems(self, host: Host) -> tuple[Problem, ...]:
        """Find why KVM cannot be used."""
        if host.run("test", "-w", "/dev/kvm", timeout=10, check=False).exit_code:
            return (
                Problem("no /dev/kvm", "load kvm_intel or kvm_amd, or turn on nesting on the machine around this one"),
            )
        if (image := image_on(host)) is None:
            return (Problem("KVM is not proved yet: there is no guest kernel to boot", "tare image"),)
        if not kvm.boots(host, image, (_PROGRAM, *self.acceleration)):
            what = f"KVM is there, but a small guest does not boot on it within {kvm.PROBE_SECONDS:g} s"
            return (Problem(what, "use qemu-tcg here; look at the kernel's log and at the machine around this one"),)
        return ()

    def imported(self, host: Host, image: Image) -> None:
        """Make the image's disk where only its directory was carried to."""
        guest.with_disk(host, image)

    @contextmanager
    def launch(self, host: Host, launch: Launch) -> Iterator[Instance]:
        """Boot a machine on a fresh overlay of the image's disk; it is up when it has told its SSH host key."""
        self.imported(host, launch.image)
        launch.knock(launch.network.instance_address)
        launch.timeline.mark("requested")
        around = guest.with_monitor(launch.limits)
        disk = str(launch.folder / "disk.qcow2")
        with ExitStack() as stack:
            group = stack.enter_context(limited(launch.ledger, launch.name, around))
            stack.enter_context(launch.ledger.undone_by("rm", "-rf", "--one-file-system", str(launch.folder)))
            key = guest.prepared_folder(host, launch)
            base = ("-b", str(launch.image.disk), "-F", "qcow2" if launch.image.disk.suffix == ".qcow2" else "raw")
            host.run("qemu-img", "create", "-q", "-f", "qcow2", *base, disk, timeout=30)
            tap = stack.enter_context(launch.network.tap())
            launch.timeline.mark("started")
            machine = (_PROGRAM, *self.acceleration, *_machine(launch, disk, tap))
            command = (*machine, "-append", guest.command_line(launch, key))
            process = stack.enter_context(host.spawn(*group.join, *launch.network.enter, *command))
            host_key = guest.watch_boot(process, launch)
            inside = stack.enter_context(guest.entered(host, launch, host_key))
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
                disk=lambda: bytes_below(launch.ledger.host, launch.folder / "disk.qcow2"),
                storage=disk,
            )


def _machine(launch: Launch, disk: str, tap: str) -> tuple[str, ...]:
    network = f"tap,id=net0,ifname={tap},script=no,downscript=no"
    return (
        *("-M", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-smp", str(len(launch.limits.cpus)), "-m", f"{launch.limits.memory_bytes >> 20}M"),
        *("-drive", f"file={disk},if=virtio,format=qcow2"),
        *("-netdev", network, "-device", f"virtio-net-pci,netdev=net0,mac={launch.network.instance_mac},romfile="),
        *("-kernel", str(launch.image.kernel), "-initrd", str(launch.image.initrd)),
    )
