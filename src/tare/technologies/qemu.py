"""QEMU with KVM: a full virtual machine that boots the image with Debian's kernel, disk and network by virtio.

KVM counts as usable only after a small guest has booted on it within seconds: a /dev/kvm that answers proves nothing.
Without KVM, `qemu-tcg` runs the same machine in emulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

from tare.guests import boot_media, guest, kvm, monitors
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Problem
from tare.plugins.technology import LaunchRequest, find_missing_tools
from tare.plugins.workload import Instance


@dataclass(frozen=True)
class Qemu(monitors.DirectBoot):
    """Boots the image; tare enters the inside through its door."""

    name = "qemu"
    title = "QEMU/KVM"
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "emulated"
    isolation = Isolation("own kernel", "a guest on virtual hardware")
    needs = "KVM that boots a guest"
    can_be_nested = True
    tools: ClassVar[Mapping[str, str]] = {**monitors.KVM_TOOLS, "lz4": "lz4"}
    has_volumes = True
    acceleration = kvm.OPTIONS
    cautions: ClassVar[tuple[Caution, ...]] = ()

    def version(self, host: Host) -> str:
        """Return QEMU's version."""
        return kvm.qemu_version(host)

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find whether QEMU and its tools are installed, and whether a guest boots on KVM."""
        return find_missing_tools(host, self.tools) or self.acceleration_problems(host)

    def acceleration_problems(self, host: Host) -> tuple[Problem, ...]:
        """Find why KVM cannot be used."""
        return kvm.problems(host)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Boot a machine on a fresh overlay of the image's disk, and wait until it can be entered."""
        launch.prepare_image(self, host)
        with monitors.create_guest_resources(host, launch) as ground:
            volume = ground.create_volume()
            ground.mark_requested()
            group, disk = ground.create_cgroup(), ground.create_overlay()
            tap = ground.stack.enter_context(launch.network.create_tap())
            launch.timeline.mark("started")
            machine = (kvm.PROGRAM, *self.acceleration, *_machine(launch, guest.Devices(disk, tap, volume=volume)))
            command = (*machine, "-append", guest.command_line(launch))
            console = ground.stack.enter_context(host.spawn(*group.join, *launch.network.enter, *command))
            ground.cautions = self.cautions
            proof = {"accelerator": self.acceleration[1], "qemu": launch.version(self, host)}
            yield ground.await_boot(console, disk, self.network_path, **proof)


def _machine(launch: LaunchRequest, devices: guest.Devices) -> tuple[str, ...]:
    network = f"tap,id=net0,ifname={devices.card},script=no,downscript=no"
    # The machine keeps the file in no cache of its own: its disk sees each request to the guest's disk.
    volume = ("-drive", f"file={devices.volume},if=virtio,format=raw,cache=none") if devices.volume else ()
    return (
        *("-M", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-smp", str(len(launch.limits.cpus)), "-m", f"{launch.limits.memory_bytes >> 20}M"),
        *("-drive", f"file={devices.disk},if=virtio,format=qcow2"),
        *volume,
        *("-netdev", network, "-device", f"virtio-net-pci,netdev=net0,mac={launch.network.instance_mac},romfile="),
        # Unpacked, as the guest would do it itself: an emulated processor takes a quarter of a second for that.
        *("-kernel", str(boot_media.unpacked_kernel_path(launch.image)), "-initrd", str(launch.image.initrd)),
    )
