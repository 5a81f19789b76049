"""A virtual PC with a BIOS, which boots from a CD: what the monitors share that start one without KVM.

It cannot be given the kernel directly, and its controllers may be others than virtio's: the CD's initial RAM disk has
the drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tare.contracts.technologies import LaunchRequest, Technology
from tare.guests import boot_medium, guest
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trials import Image


@dataclass(frozen=True)
class VirtualPc(Technology):
    """Boots the image from a CD. `drivers` are the kernel modules of its controllers, in the order of loading."""

    family = "type 2"
    starts_quickly = False
    isolation = Isolation("own kernel", "a guest on a virtual PC")
    tools: ClassVar[Mapping[str, str]] = {**boot_medium.TOOLS, **guest.TOOLS}
    packages = tuple(boot_medium.LOADER.values())
    hosts = True
    tested = "stand-in"
    path = "bridge"
    drivers: ClassVar[tuple[str, ...]]

    def imported(self, host: Host, image: Image) -> None:
        """Make an initial RAM disk with the drivers of its controllers."""
        guest.with_disk(host, image)
        boot_medium.initrd(host, image, *self.drivers)

    def boot_cd(self, host: Host, launch: LaunchRequest) -> str:
        """Make the CD of an instance; return its path."""
        initrd = boot_medium.initrd(host, launch.image, *self.drivers)
        return boot_medium.cd(host, launch, initrd, boot_medium.command_line(launch))
