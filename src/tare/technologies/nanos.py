"""Nanos: a user-supplied disk image of a unikernel that runs one Linux program, made by `ops`, in QEMU.

tare boots it as `ops` 0.1.46 does: QEMU boots the disk of a q35 machine with virtio-scsi and virtio-net. Nanos reads
its address from the disk, so `ops image create` must write it there (OPS documentation, RunConfig.IPAddress):
198.18.0.10 with the gateway 198.18.0.1, unless the machine has a route there, and one address higher for each
additional image in a suite; an error then gives the right one. The disk also holds the program and its arguments.

Limits: it reports 65536 open files, which cannot be changed; none of the papers measured it.

Settings: `image`, the path of the disk, from ~/.ops/images, on the machine under test or on this one; `disk_format`,
`raw` or `qcow2`; `service`, the workload that it serves, such as `redis`, or a list of several; `port`, the TCP port of
a single service, 0 for the usual one; `accelerator`, `kvm` or `tcg` (emulation); `arguments` must be empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.guests.unikernel import UserUnikernel
from tare.guests.user_files import DiskFormat
from tare.guests.user_guest import NETMASK, UserGuestBoot
from tare.hosts.host import Host
from tare.model.trial import Problem
from tare.plugins.technology import LaunchRequest


@dataclass(frozen=True)
class Nanos(UserUnikernel):
    """Boots a disk with Nanos."""

    name = "nanos"
    title = "Nanos, your image"
    tested = "real"
    board = "q35"
    has_fixed_address = True

    disk_format: DiskFormat = "raw"

    @property
    def disk(self) -> str:
        """The path of the image, which is a disk."""
        return self.image

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return the problem of `arguments`, or those of every image; see `UserGuest.problems`."""
        if self.arguments:
            return (Problem("arguments cannot reach an image of nanos", "`ops image create --args` puts them in it"),)
        return super().problems(host)

    def command(self, boot: UserGuestBoot) -> tuple[str, ...]:
        """Return the command of `ops run`."""
        ports = (("0x10", "pci.1", "0x3,multifunction=on"), ("0x11", "pci.2", "0x3.0x6"), ("0x12", "pci.4", "0x3.0x4"))
        bridges = (
            ("-device", f"pcie-root-port,port={port},chassis={chassis},id={name},bus=pcie.0,addr={slot}")
            for chassis, (port, name, slot) in enumerate(ports, start=1)
        )
        return (
            *self.machine_options(boot),
            *(word for bridge in bridges for word in bridge),
            *("-drive", f"file={boot.disk},format=qcow2,if=none,id=hd0"),
            *("-device", "virtio-scsi-pci,bus=pci.2,addr=0x0,id=scsi0", "-device", "scsi-hd,bus=scsi0.0,drive=hd0"),
            *("-vga", "none", "-device", "isa-debug-exit", "-device", "virtio-rng-pci"),
            *("-device", "virtio-balloon"),
            *self.card_options(boot, "virtio-net,bus=pci.4,addr=0x0"),
        )

    def silence_hint(self, launch: LaunchRequest) -> str:
        """Return the address that the image should have."""
        network = launch.network
        options = f"--ip-address {network.instance_address} --netmask {NETMASK} --gateway {network.gateway}"
        return f"its address is built in; make it for this machine with: ops image create {options}"
