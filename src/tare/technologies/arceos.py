"""ArceOS: a unikernel made of Rust crates, as the kernel of a machine in QEMU; emulated unless `accelerator = "kvm"`.

It runs tare's server `micro` with the network stack smoltcp on ArceOS's boot code, memory management and
network driver. ArceOS's own sockets cannot be used: they fix their address at build time. ArceOS polls its network
card, without interrupts, so it takes a whole CPU even when it is idle.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.guests.unikernel import QemuUnikernel
from tare.hosts.host import Host
from tare.images.micro import ARCEOS, crate_version
from tare.model.isolation import Isolation


@dataclass(frozen=True)
class Arceos(QemuUnikernel):
    """Boots the application in QEMU."""

    name = "arceos"
    title = "ArceOS (QEMU)"
    isolation = Isolation("own kernel", "a unikernel on virtual hardware: one application with its kernel")
    build = ARCEOS
    file = "micro.arceos"
    board = "q35"
    emulated_cpu_model = "max"

    def version(self, host: Host) -> str:  # noqa: ARG002 - it is built into the unikernel
        """Return the version of ArceOS."""
        return crate_version("axstd")
