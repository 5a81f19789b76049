"""User-supplied unikernel: an image that tare boots and cannot build."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tare.guests.user_guest import UserGuest, UserGuestBoot
from tare.model.isolation import Isolation
from tare.plugins.workload import Workload


@dataclass(frozen=True)
class UserUnikernel(UserGuest):
    """User-supplied unikernel: an image that tare cannot build.

    tare boots it with the suite's memory, and with the command line that the unikernel's project documents. This line
    sets the address: a subclass writes it in `kernel_command_line`. `drive_options` has QEMU's options for the disk, in
    which `{disk}` is replaced by its path.
    """

    family = "unikernel"
    needs = "an image that you supply"
    tests_path = "tests/lab/test_real_things.py"
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "stand-in"
    cpu_model: ClassVar[str] = "host"  # with KVM
    drive_options: ClassVar[tuple[str, ...]] = ()
    extra_options: ClassVar[tuple[str, ...]] = ()  # more options of QEMU

    image: str = ""
    service: str | tuple[str, ...] = ""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    arguments: str = ""
    accelerator: Literal["kvm", "tcg"] = "kvm"

    def kernel_command_line(self, boot: UserGuestBoot) -> str:
        """Return the kernel's command line for an instance."""
        raise NotImplementedError

    def command(self, boot: UserGuestBoot) -> tuple[str, ...]:
        """Return QEMU's command: the kernel and its line, the disk and the network card."""
        return (
            *self.machine_options(boot, virtual=self.cpu_model),
            *("-kernel", boot.image, "-append", self.kernel_command_line(boot)),
            *(word.replace("{disk}", boot.disk) for word in (self.drive_options if boot.disk else ())),
            *self.card_options(boot),
            *self.extra_options,
        )

    def unsupported_reason(self, workload: Workload) -> str | None:
        """Refuse workloads that run a program inside, except those that the image serves."""
        if not workload.runs_inside or workload.service_name in self.served_ports:
            return None
        served = " and ".join(self.services)
        return f"a unikernel has no shell: this image {f'only serves {served}' if served else 'serves nothing'}"

    @property
    def isolation(self) -> Isolation:
        """The isolation of a unikernel in QEMU."""
        return Isolation("own kernel", "a unikernel on virtual hardware: one application with its kernel")

    @property
    def argument_words(self) -> tuple[str, ...]:
        """The application's arguments, split as a shell splits them."""
        return tuple(shlex.split(self.arguments))
