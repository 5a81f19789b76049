"""MirageOS: a user-supplied unikernel in OCaml, in a Solo5 tender or in QEMU.

tare starts it as MirageOS 4.11 and Solo5 document (Solo5's docs/building.md): by `solo5-hvt` (KVM) or `solo5-spt` (a
process with only a few system calls) with the tap as the device `service`, or by QEMU for the virtio target. The
unikernel's arguments are `--ipv4=ADDRESS/24 --ipv4-gateway=GATEWAY` and then `arguments`. It uses one CPU.

Limits: MirageOS has no open files, so their limit does not apply; none of the papers measured it.

Settings: `image`, the path of the unikernel, on the machine under test or on this one; `tender`, which must be the
target that the image was built for: `hvt`, `spt` or `virtio`; `device`, the name of the network device in the
unikernel's manifest; `service`, the workload that it serves, such as `redis`, or a list of several; `port`, the TCP
port of a single service, 0 for the usual one; `arguments`, the unikernel's arguments; `accelerator`, `kvm` or `tcg`
(emulation), only for `virtio`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tare.guests.unikernel import UserUnikernel
from tare.guests.user_guest import PREFIX, QEMU_TOOLS, UserGuestBoot
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.technologies.solo5_spt import Solo5Spt

_OPAM = "opam install solo5, and have it on root's PATH"


@dataclass(frozen=True)
class Mirage(UserUnikernel):
    """Starts a unikernel of MirageOS."""

    name = "mirage"
    title = "MirageOS, your image"
    needs = "an image that you supply, a Solo5 tender"
    board = "pc,acpi=off"
    has_one_cpu = True
    kvm_alternative = "build the image for spt or virtio"

    tender: Literal["hvt", "spt", "virtio"] = "hvt"
    device: str = "service"

    @property
    def isolation(self) -> Isolation:
        """The isolation of the tender: `spt` is a process of the machine."""
        return Solo5Spt.isolation if self.tender == "spt" else super().isolation

    @property
    def tools(self) -> Mapping[str, str]:
        """The tender, and QEMU for `virtio` and for the proof of KVM."""
        tender = {} if self.tender == "virtio" else {f"solo5-{self.tender}": "solo5"}
        return {**tender, **({"ip": "iproute2"} if self.tender == "spt" else QEMU_TOOLS)}

    @property
    def needs_kvm(self) -> bool:
        """Whether the tender is `hvt`."""
        return self.tender == "hvt" or (self.tender == "virtio" and self.accelerator == "kvm")

    @property
    def debian_packages(self) -> tuple[str, ...]:
        """All but Solo5, which Debian does not have."""
        return tuple(package for package in super().debian_packages if package != "solo5")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find what is missing; see `UserGuest.problems`. Solo5 comes from opam."""
        problems = super().problems(host)
        return tuple(
            Problem(each.what, _OPAM, missing="program") if each.packages == ("solo5",) else each for each in problems
        )

    def address_arguments(self, boot: UserGuestBoot) -> tuple[str, ...]:
        """Return the unikernel's arguments that set its address."""
        network = boot.launch.network
        return (f"--ipv4={network.instance_address}/{PREFIX}", f"--ipv4-gateway={network.gateway}")

    def command(self, boot: UserGuestBoot) -> tuple[str, ...]:
        """Return the command of Solo5's documentation."""
        words = (*self.address_arguments(boot), *self.argument_words)
        if self.tender == "virtio":
            kernel = ("-device", "isa-debug-exit", "-kernel", boot.image, "-append", " ".join(words))
            return (*self.machine_options(boot, emulated="Westmere"), *self.card_options(boot, "virtio-net"), *kernel)
        network = (f"--net:{self.device}={boot.tap}", f"--net-mac:{self.device}={boot.launch.network.instance_mac}")
        return (f"solo5-{self.tender}", f"--mem={boot.memory_mib}", *network, "--", boot.image, *words)
