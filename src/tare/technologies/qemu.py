"""QEMU with KVM: a full virtual machine that boots the image with Debian's kernel, disk and network by virtio.

KVM counts as usable only after a small guest has booted on it within seconds: a /dev/kvm that can be opened proves
nothing. Without KVM, `qemu-tcg` runs the same machine in emulation.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from tare.guests import boot_media, guest, kvm, monitors
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Problem
from tare.plugins.instance import Instance
from tare.plugins.snapshots import Snapshots, explain_failed_restore
from tare.plugins.technology import SNAPSHOT_SECONDS, LaunchRequest, find_missing_tools

_MEMORY, _DISK = "memory", "disk.qcow2"  # files of a snapshot
# Saves the machine's memory and devices through QEMU's monitor, and ends QEMU. The monitor takes the next command when
# the machine is saved. Arguments: the path of the monitor's pipes, the file as a word of a shell.
_SAVE = r"""
cat "$1.out" >"$1.log" &
printf 'migrate "exec:cat >%s"\ninfo migrate\nquit\n' "$2" >"$1.in"
wait
grep -q 'Migration status: completed' "$1.log" || { tr -d '\r' <"$1.log" >&2; exit 1; }
"""


@dataclass(frozen=True)
class Qemu(monitors.DirectBoot, Snapshots):
    """Boots the image; tare runs commands inside through the guest agent."""

    name = "qemu"
    title = "QEMU/KVM"
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "emulated"
    isolation = Isolation("own kernel", "a guest on virtual hardware")
    needs = "KVM that boots a guest"
    can_be_nested = True
    tools: ClassVar[Mapping[str, str]] = {**monitors.KVM_TOOLS, "lz4": "lz4"}
    has_volumes = True
    acceleration = kvm.OPTIONS
    kvm_alternative = "use qemu-tcg"
    cautions: ClassVar[tuple[Caution, ...]] = ()

    def version(self, host: Host) -> str:
        """Return QEMU's version."""
        return kvm.qemu_version(host)

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, or the problem of KVM."""
        return find_missing_tools(host, self.tools) or self.acceleration_problems(host)

    def acceleration_problems(self, host: Host) -> tuple[Problem, ...]:
        """Return the problem that prevents the use of KVM, or ()."""
        return kvm.problems(host, self.kvm_alternative)

    def launch(self, host: Host, launch: LaunchRequest) -> AbstractContextManager[Instance]:
        """Context manager: boot a machine on a fresh overlay of the image's disk, and wait until it can be entered."""
        return self._start(host, launch)

    def restore(self, host: Host, launch: LaunchRequest, snapshot: str) -> AbstractContextManager[Instance]:
        """Context manager: start a machine with the memory of a snapshot, on a fresh overlay of its disk."""
        return self._start(host, launch, Path(snapshot))

    @contextmanager
    def _start(self, host: Host, launch: LaunchRequest, snapshot: Path | None = None) -> Iterator[Instance]:
        launch.prepare_image(self, host)
        command_line = self.command_line(host, launch)
        with monitors.create_guest_resources(host, launch) as resources:
            volume = resources.create_volume()
            monitor = str(launch.folder / "monitor")
            host.run("mkfifo", f"{monitor}.in", f"{monitor}.out", timeout=30)
            resources.mark_requested()
            group, disk = resources.create_cgroup(), resources.create_overlay(snapshot and snapshot / _DISK)
            tap = resources.stack.enter_context(launch.network.create_tap())
            launch.timeline.mark("started")
            machine = self.machine_options(launch, guest.Devices(disk, tap, volume=volume))
            control = ("-chardev", f"pipe,id=monitor,path={monitor}", "-mon", "chardev=monitor,mode=readline")
            command = (launch.image.architecture.qemu, *self.acceleration, *machine, "-append", command_line, *control)
            if snapshot:
                command = (*command, "-incoming", f"exec:cat {shlex.quote(str(snapshot / _MEMORY))}")
            console = resources.stack.enter_context(host.spawn(*group.join, *launch.network.enter, *command))
            resources.cautions = self.cautions
            proof = {"accelerator": self.acceleration[1], "qemu": launch.version(self, host)}
            if snapshot:
                with explain_failed_restore(console, self.name):
                    yield self._with_kvm(host, resources.describe_instance(None, disk, self.network_path, **proof))
                return
            instance = resources.await_boot(console, disk, self.network_path, **proof)

            def take_snapshot(folder: str) -> None:
                host.run("sh", "-c", _SAVE, "sh", monitor, shlex.quote(f"{folder}/{_MEMORY}"), timeout=SNAPSHOT_SECONDS)
                host.run("cp", "--sparse=always", disk, f"{folder}/{_DISK}", timeout=SNAPSHOT_SECONDS)

            yield replace(self._with_kvm(host, instance), take_snapshot=take_snapshot)

    def _with_kvm(self, host: Host, instance: Instance) -> Instance:
        """Return the instance with the caution of PVM if it runs on that variant of KVM."""
        return kvm.with_pvm(host, instance) if self.acceleration == kvm.OPTIONS else instance

    def command_line(self, host: Host, launch: LaunchRequest) -> str:  # noqa: ARG002 - the same on each host
        """Return the guest kernel's command line; called before the start is timed."""
        return guest.command_line(launch)

    def machine_options(self, launch: LaunchRequest, devices: guest.Devices) -> tuple[str, ...]:
        """Return QEMU's options for the board, its devices, the kernel and the initial RAM disk."""
        return (
            *("-M", launch.image.architecture.board, *common_options(launch, devices, "if=virtio", "if=virtio")),
            *("-device", f"virtio-net-pci,netdev=net0,mac={launch.network.instance_mac},romfile="),
            *("-initrd", str(launch.image.initrd)),
        )


def common_options(launch: LaunchRequest, devices: guest.Devices, root: str, volume: str) -> tuple[str, ...]:
    """Return QEMU's options for all boards; `root` and `volume` say how each disk is attached."""
    # cache=none: each request to the guest's disk reaches the machine's disk, not the machine's file cache.
    data = ("-drive", f"file={devices.volume},{volume},format=raw,cache=none") if devices.volume else ()
    return (
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-smp", str(len(launch.limits.cpus)), "-m", f"{launch.limits.memory_bytes >> 20}M"),
        *("-drive", f"file={devices.disk},{root},format=qcow2", *data),
        *("-netdev", f"tap,id=net0,ifname={devices.card},script=no,downscript=no"),
        # Unpacked in advance: in the guest, an emulated processor takes a quarter of a second for this.
        *("-kernel", str(boot_media.unpacked_kernel_path(launch.image))),
    )
