"""Firecracker: a monitor for small machines on KVM, with virtio devices and without firmware and PCI.

Run as 1.16.1, on KVM in an emulated machine. Written to "Getting Started with Firecracker" and the API's description
(`src/firecracker/swagger/firecracker.yaml`) of version 1.13, whose names the file of `--config-file` has; the change
log for `initrd_path` (0.21) and for devices that a guest finds by ACPI (1.8), which Debian's kernel needs: it reads
none from its command line. A restored machine loads the pages of its memory from the snapshot at their first use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tare.guests import boot_media, guest, kvm, monitor_api, monitors
from tare.hosts.host import Host
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.technology import LaunchRequest, find_missing_tools, first_line, missing_program

_MIN_VERSION = (1, 8)
_STATE, _MEMORY = "state", "memory"  # files of a snapshot
_CONFIGURATION = "machine.json"
_INSTALL = "put `firecracker` of a release of github.com/firecracker-microvm/firecracker on the PATH"


@dataclass(frozen=True)
class Firecracker(monitor_api.ApiMonitor):
    """Boots the image's unpacked kernel from a configuration file."""

    name = "firecracker"
    socket_option = "--api-sock"
    title = "Firecracker"
    isolation = Isolation(
        "own kernel",
        "a guest on few virtual devices; seccomp filters the system calls of its monitor",
    )
    needs = "firecracker 1.8 or newer, KVM that boots a guest"
    tools: ClassVar[Mapping[str, str]] = {**boot_media.ELF_TOOLS, **monitors.KVM_TOOLS}
    tested = "emulated"

    def version(self, host: Host) -> str:
        """Return Firecracker's version."""
        return first_line(host, "firecracker", "--version").removeprefix("Firecracker v").partition(" ")[0]

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, or the problem of an old version, of the processor, or of KVM."""
        if missing := missing_program(host, _INSTALL, "firecracker") or find_missing_tools(host, self.tools):
            return missing
        version = self.version(host)
        if (numbers := re.match(r"(\d+)\.(\d+)", version)) and tuple(map(int, numbers.groups())) < _MIN_VERSION:
            return (Problem(f"Firecracker {version} has no ACPI, by which the image's kernel finds devices", _INSTALL),)
        return self.processor_problems(host) or kvm.problems(host)

    def processor_problems(self, host: Host) -> Sequence[Problem]:
        """Return a problem if the processor lacks XSAVE: KVM then has no KVM_CAP_XCRS, which Firecracker needs.

        Some emulated machines lack it, although QEMU's guests boot there.
        """
        flags = re.search(r"^flags\s*:(.*)$", host.read("/proc/cpuinfo"), re.MULTILINE)
        if flags is None or "xsave" in flags[1].split():
            return ()
        what = 'the processor has no XSAVE, without which Firecracker ends with "Missing KVM capabilities"'
        return (
            Problem(what, "turn it on in the machine around this one: leave -xsave out of the words of QEMU's -cpu"),
        )

    def prepare_image(self, host: Host, image: Image) -> None:
        """Unpack the kernel, and make an initial RAM disk with the drivers of its devices."""
        super().prepare_image(host, image)
        boot_media.make_initrd(host, image, *boot_media.MMIO_DRIVERS)

    def network_options(self, host: Host, launch: LaunchRequest, tap: str) -> tuple[str, ...]:
        """Write the configuration, which has the tap; return the option for its file."""
        configuration = self.configuration(host, launch, guest.Devices(monitor_api.DISK, tap))
        host.write(str(launch.folder / _CONFIGURATION), json.dumps(configuration, indent=2) + "\n")
        return ("--config-file", _CONFIGURATION)

    def restore_requests(self, snapshot: Path) -> tuple[monitor_api.ApiRequest, ...]:
        """Return the request that restores a machine from a snapshot, and resumes it."""
        memory = {"backend_type": "File", "backend_path": f"{snapshot}/{_MEMORY}"}
        load = {"snapshot_path": f"{snapshot}/{_STATE}", "mem_backend": memory, "resume_vm": True}
        return (("PUT", "/snapshot/load", load),)

    def snapshot_requests(self, folder: str) -> tuple[monitor_api.ApiRequest, ...]:
        """Return the requests that pause a machine, and write its snapshot to a folder."""
        files = {"snapshot_path": f"{folder}/{_STATE}", "mem_file_path": f"{folder}/{_MEMORY}"}
        create = {"snapshot_type": "Full", **files}
        return (("PATCH", "/vm", {"state": "Paused"}), ("PUT", "/snapshot/create", create))

    def configuration(self, host: Host, launch: LaunchRequest, devices: guest.Devices) -> dict[str, object]:
        """Return the machine's configuration in the form of the API."""
        kernel = boot_media.ensure_elf_kernel(host, launch.image)
        initrd = boot_media.make_initrd(host, launch.image, *boot_media.MMIO_DRIVERS)
        # The guest powers off by the keyboard controller, and must not probe for PCI.
        words = f"{guest.command_line(launch, console='ttyS0')} reboot=k pci=off"
        source = {"kernel_image_path": str(kernel), "initrd_path": str(initrd), "boot_args": words}
        return monitors.firecracker_configuration(launch, devices.card, source, {"root": devices.disk})
