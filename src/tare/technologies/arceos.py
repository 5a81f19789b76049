"""ArceOS: a unikernel made of Rust crates, as the kernel of a machine in QEMU; emulated unless `accelerator = "kvm"`.

What is measured is its boot code, memory and network driver, with tare's own application (`micro`) and the network
stack smoltcp on top: its own sockets cannot be used, because they fix their address when they are built. It has no
interrupts for its network card: it asks the card all the time, and so takes a whole CPU also when it has nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tare.contracts import Host
from tare.guests.unikernel import InQemu, arceos_version


@dataclass(frozen=True)
class Arceos(InQemu):
    """Boots the application in QEMU."""

    name: ClassVar[str] = "arceos"
    title: ClassVar[str] = "ArceOS (QEMU)"
    isolates: ClassVar[str] = "a kernel with one application in it, on virtual hardware"
    needs: ClassVar[str] = "the same packages as solo5-spt, qemu-system-x86"
    file: ClassVar[str] = "micro.arceos"
    board: ClassVar[str] = "q35"
    emulated: ClassVar[str] = "max"

    def version(self, host: Host) -> str:  # noqa: ARG002 - it is built into the unikernel
        """Give the version of ArceOS."""
        return arceos_version()
