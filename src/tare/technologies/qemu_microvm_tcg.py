"""QEMU's board `microvm` in emulation (TCG): the machine of `qemu-microvm` without KVM."""

from __future__ import annotations

from dataclasses import dataclass

from tare.hosts.host import Host
from tare.plugins.technology import LaunchRequest
from tare.technologies.qemu_microvm import QemuMicrovm
from tare.technologies.qemu_tcg import QemuTcg

_FREQUENCY = "usr/lib/tare/tsc_frequency"  # relative to the image's directory on the host, where the program runs
_SECONDS = 30.0


@dataclass(frozen=True)
class QemuMicrovmTcg(QemuMicrovm, QemuTcg):
    """Boots the image on a board with few devices, in emulation."""

    name = "qemu-microvm-tcg"
    title = "QEMU microvm emulation"

    def command_line(self, host: Host, launch: LaunchRequest) -> str:
        """Add the frequency of the time stamp counter, which the emulation takes over from the host.

        The guest's kernel cannot measure it: with this board's ACPI it expects no PIT, and there is no HPET. Without a
        frequency it hangs before its first line of the timer. Several emulated CPUs read the same counter.
        """

        def measure() -> str:
            return host.run(str(launch.image.root / _FREQUENCY), timeout=_SECONDS).text.strip()

        khz = launch.cache.read_once("frequency of the time stamp counter", measure)
        return f"{super().command_line(host, launch)} tsc_early_khz={khz} tsc=reliable"
