"""Solo5 on virtio: the unikernel is the kernel of a machine in QEMU, emulated unless `accelerator = "kvm"`.

The unikernel is tare's own application (`micro`), with the network stack smoltcp in it. The card's options are not
QEMU's own: Solo5's driver does not look whether there is room in the card's queue for what it sends, so QEMU is made to
empty it at once, and not in a thread of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tare.contracts import Host
from tare.guests.unikernel import InQemu, solo5_version


@dataclass(frozen=True)
class Solo5Virtio(InQemu):
    """Boots the application in QEMU."""

    name: ClassVar[str] = "solo5-virtio"
    title: ClassVar[str] = "Solo5 virtio (QEMU)"
    isolates: ClassVar[str] = "a kernel with one application in it, on virtual hardware"
    needs: ClassVar[str] = "the same packages as solo5-spt, qemu-system-x86"
    file: ClassVar[str] = "micro.virtio"
    board: ClassVar[str] = "pc"
    emulated: ClassVar[str] = "Westmere"
    card: ClassVar[str] = ",ioeventfd=off,tx=timer,x-txtimer=1000"

    def version(self, host: Host) -> str:
        """Give the version of Solo5; nothing before it is built."""
        return solo5_version(host)
