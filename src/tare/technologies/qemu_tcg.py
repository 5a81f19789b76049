"""QEMU in emulation (TCG): the machine of `qemu` without KVM, with a processor emulated in software.

It works everywhere and is many times slower. It has a separate name so that emulation is not mistaken for
virtualization.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.guests.guest import EMULATION_CAUTION
from tare.hosts.host import Host
from tare.model.trial import Problem
from tare.technologies.qemu import Qemu


@dataclass(frozen=True)
class QemuTcg(Qemu):
    """Boots the image in emulation."""

    name = "qemu-tcg"
    title = "QEMU emulation"
    family = "emulator"
    starts_quickly = False
    tested = "real"
    needs = ""
    cautions = (EMULATION_CAUTION,)
    acceleration = ("-accel", "tcg,thread=multi", "-cpu", "max")

    def acceleration_problems(self, host: Host) -> tuple[Problem, ...]:  # noqa: ARG002 - nothing to ask
        """Return (): emulation has no requirements."""
        return ()
