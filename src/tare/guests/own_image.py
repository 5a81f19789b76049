"""A user's image of a unikernel that tare cannot build: what all technologies of this kind share.

tare boots the image with the command line that its project documents, which sets its address, and with the memory of
the suite; see `own_guest.py`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tare.contracts.workloads import Workload
from tare.guests.own_guest import Boot, OwnGuest
from tare.model.isolation import Isolation


@dataclass(frozen=True)
class OwnImage(OwnGuest):
    """Boots the user's image. Each technology of this kind says where its kernel takes the address.

    `line` is the kernel's command line, in which `{address}` and the like are filled in; `drive` has QEMU's options for
    the disk, in which `{disk}` is its path.
    """

    family = "unikernel"
    needs = "an image of yours"
    tested_in = "tests/lab/test_real_things.py"
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "stand-in"
    processor: ClassVar[str] = "host"  # with KVM
    drive: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()  # QEMU's further options

    image: str = ""
    service: str | tuple[str, ...] = ""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    arguments: str = ""
    accelerator: Literal["kvm", "tcg"] = "kvm"

    def line(self, boot: Boot) -> str:
        """Return the kernel's command line."""
        raise NotImplementedError

    def command(self, boot: Boot) -> tuple[str, ...]:
        """Return QEMU's command: the kernel and its line, the disk and the network card."""
        return (
            *self.machine(boot, virtual=self.processor),
            *("-kernel", boot.image, "-append", self.line(boot)),
            *(word.replace("{disk}", boot.disk) for word in (self.drive if boot.disk else ())),
            *self.card(boot),
            *self.after,
        )

    def refuses(self, workload: Workload) -> str | None:
        """Refuse all workloads but those that the image serves and those that run nothing inside."""
        if not workload.runs_inside or workload.server in self.serves:
            return None
        return f"a unikernel has no shell: this image serves {' and '.join(self.services) or 'nothing'} alone"

    @property
    def isolation(self) -> Isolation:
        """That of a unikernel in QEMU."""
        return Isolation("own kernel", "a unikernel on virtual hardware: one application with its kernel")

    @property
    def words(self) -> tuple[str, ...]:
        """The application's arguments, split as a shell splits them."""
        return tuple(shlex.split(self.arguments))
