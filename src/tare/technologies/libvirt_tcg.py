"""libvirt with emulation: the machine of `libvirt`, with a processor that QEMU emulates in software.

It has a separate name so that emulation is not mistaken for virtualization.

Settings: `uri` and `type`, as for `libvirt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tare.technologies.libvirt import Libvirt


@dataclass(frozen=True)
class LibvirtTcg(Libvirt):
    """Creates a domain of the kind `qemu`."""

    name = "libvirt-tcg"
    title = "libvirt, QEMU emulation"
    family = "emulator"
    starts_quickly = False
    needs = "its daemon"

    type: Literal["kvm", "qemu"] = "qemu"
