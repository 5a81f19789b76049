"""QEMU in emulation (TCG): the machine of `qemu` without KVM, with a processor emulated in software.

It works everywhere and is many times slower. It has a name of its own so that emulation is not read as virtualization.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tare.guests.guest import EMULATED
from tare.hosts.host import Host
from tare.model.trial import Problem
from tare.plugins.technology import LaunchRequest
from tare.plugins.workload import Instance
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
    acceleration = ("-accel", "tcg,thread=multi", "-cpu", "max")

    def acceleration_problems(self, host: Host) -> tuple[Problem, ...]:  # noqa: ARG002 - nothing to ask
        """Emulation needs nothing."""
        return ()

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Boot a machine in emulation; see `Qemu.launch`."""
        with super().launch(host, launch) as instance:
            yield replace(instance, cautions=(EMULATED,))
