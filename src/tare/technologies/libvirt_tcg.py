"""libvirt with emulation: the machine of `libvirt`, with a processor that QEMU emulates in software.

It has a name of its own so that nobody reads emulation as virtualization. Settings: `uri` and `type`, as of `libvirt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tare.model.trials import Family
from tare.technologies.libvirt import Libvirt


@dataclass(frozen=True)
class LibvirtTcg(Libvirt):
    """Creates a domain of the kind `qemu`."""

    name: ClassVar[str] = "libvirt-tcg"
    title: ClassVar[str] = "libvirt, QEMU emulation"
    family: ClassVar[Family] = "emulator"
    starts_quickly: ClassVar[bool] = False
    needs: ClassVar[str] = "its daemon"

    type: Literal["kvm", "qemu"] = "qemu"
