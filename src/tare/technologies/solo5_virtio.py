"""Solo5 on virtio: the unikernel is the kernel of a machine in QEMU, emulated unless `accelerator = "kvm"`.

The unikernel is tare's server `micro` with the network stack smoltcp. The options of the network card differ
from QEMU's defaults: Solo5's driver does not check for room in the card's queue before it sends, so QEMU must empty it
at once, not in a separate thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.guests.unikernel import QemuUnikernel, solo5_version
from tare.hosts.host import Host
from tare.model.isolation import Isolation


@dataclass(frozen=True)
class Solo5Virtio(QemuUnikernel):
    """Boots the application in QEMU."""

    name = "solo5-virtio"
    title = "Solo5 virtio (QEMU)"
    isolation = Isolation("own kernel", "a unikernel on virtual hardware: one application with its kernel")
    file = "micro.virtio"
    board = "pc"
    emulated_cpu_model = "Westmere"
    card_options = ",ioeventfd=off,tx=timer,x-txtimer=1000"

    def version(self, host: Host) -> str:
        """Return the version of Solo5; empty before it is built."""
        return solo5_version(host)
