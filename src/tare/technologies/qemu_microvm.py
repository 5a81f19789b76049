"""QEMU's board `microvm` with KVM: virtio devices without PCI, a serial port, and almost no other device.

The guest finds its devices by ACPI: Debian's kernel is built without CONFIG_VIRTIO_MMIO_CMDLINE_DEVICES and CONFIG_OF,
so that with `acpi=off` it finds none. Written to docs/system/i386/microvm.rst of QEMU 7.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tare.guests import boot_media, guest
from tare.hosts.host import Host
from tare.model.architecture import X86_64
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.technology import LaunchRequest
from tare.technologies.qemu import Qemu, common_options

_NO_BOARD = Problem("this QEMU has no board microvm", "install QEMU 5.2 or newer, from Debian or built from its source")


@dataclass(frozen=True)
class QemuMicrovm(Qemu):
    """Boots the image on a board with few devices."""

    name = "qemu-microvm"
    title = "QEMU microvm"
    isolation = Isolation("own kernel", "a guest on few virtual devices")
    kvm_alternative = "use qemu-microvm-tcg"
    architectures = (X86_64,)
    tools: ClassVar[Mapping[str, str]] = {**Qemu.tools, **boot_media.ELF_TOOLS}

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, the problem of KVM, or that of a QEMU without this board."""
        if problems := super().problems(host):
            return problems
        boards = host.run(X86_64.qemu, "-M", "help", timeout=20, check=False).text
        return () if re.search(r"^microvm\b", boards, re.MULTILINE) else (_NO_BOARD,)

    def prepare_image(self, host: Host, image: Image) -> None:
        """Unpack the kernel, and make an initial RAM disk with the drivers of its devices."""
        super().prepare_image(host, image)
        boot_media.make_initrd(host, image, *boot_media.MMIO_DRIVERS)

    def machine_options(self, launch: LaunchRequest, devices: guest.Devices) -> tuple[str, ...]:
        """Return QEMU's options for the board, its devices, the kernel and the initial RAM disk."""
        volume = ("-device", "virtio-blk-device,drive=volume") if devices.volume else ()
        return (
            # With KVM, QEMU leaves the clock out by default, for which the guest's kernel then waits in vain.
            *("-M", "microvm,rtc=on", *common_options(launch, devices, "if=none,id=root", "if=none,id=volume")),
            *("-device", "virtio-blk-device,drive=root", *volume),
            *("-device", f"virtio-net-device,netdev=net0,mac={launch.network.instance_mac}"),
            *("-initrd", str(boot_media.initrd_path(launch.image, *boot_media.MMIO_DRIVERS))),
        )
