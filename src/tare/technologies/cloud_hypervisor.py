"""Cloud Hypervisor: a monitor for cloud machines on KVM, with virtio devices on PCI and no legacy devices.

Run as 50.0 and 53.0, on KVM in an emulated machine. Written to its documentation: README.md ("Custom Kernel and Disk
Image": a kernel with the PVH entry, as Debian's is, uncompressed; `--serial tty --console off` for early messages),
docs/device_model.md, docs/cpu.md, docs/api.md and docs/snapshot_restore.md of versions 28 to 53. A restored machine has
its whole memory before it resumes, which is the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tare.guests import boot_media, guest, kvm, monitor_api, monitors
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.technology import LaunchRequest, find_missing_tools, first_line, missing_program

_PROGRAM = "cloud-hypervisor"
_API = "/api/v1/vm."
_INSTALL = "put `cloud-hypervisor` of a release of github.com/cloud-hypervisor/cloud-hypervisor on the PATH"


@dataclass(frozen=True)
class CloudHypervisor(monitor_api.ApiMonitor):
    """Boots the image's unpacked kernel from a command line."""

    name = "cloud-hypervisor"
    socket_option = "--api-socket"
    title = "Cloud Hypervisor"
    isolation = Isolation("own kernel", "a guest on virtio devices; seccomp filters the system calls of its monitor")
    needs = "cloud-hypervisor, KVM that boots a guest"
    tools: ClassVar[Mapping[str, str]] = {"lz4": "lz4", **monitors.KVM_TOOLS}
    tested = "emulated"

    def version(self, host: Host) -> str:
        """Return Cloud Hypervisor's version."""
        return first_line(host, _PROGRAM, "--version").removeprefix("cloud-hypervisor v")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing programs, or the problem of KVM."""
        return missing_program(host, _INSTALL, _PROGRAM) or find_missing_tools(host, self.tools) or kvm.problems(host)

    def disk_format_option(self, host: Host) -> str:
        """Return the option for the disk's format; "" if this version does not have it.

        50.1 and newer need it: they block writes to the first sector of a disk whose format they guess, which breaks
        ext4. 50.0 and older refuse it.
        """
        help_text = host.run(_PROGRAM, "--help", timeout=20, check=False).text
        return ",image_type=raw" if "image_type" in help_text else ""

    def machine_options(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:
        """Return the options for kernel, CPUs, memory and disk."""
        kernel = boot_media.ensure_elf_kernel(host, launch.image)
        return (
            *("--kernel", str(kernel), "--initramfs", str(launch.image.initrd)),
            *("--cmdline", guest.command_line(launch)),
            *("--cpus", f"boot={len(launch.limits.cpus)}"),
            *("--memory", f"size={launch.limits.memory_bytes >> 20}M"),
            *("--disk", f"path={monitor_api.DISK}{self.disk_format_option(host)}"),
            *("--serial", "tty", "--console", "off"),
        )

    def network_options(self, host: Host, launch: LaunchRequest, tap: str) -> tuple[str, ...]:  # noqa: ARG002 - no file
        """Return the option for the network card."""
        return ("--net", f"tap={tap},mac={launch.network.instance_mac}")

    def restore_requests(self, snapshot: Path) -> tuple[monitor_api.ApiRequest, ...]:
        """Return the requests that restore a machine from a snapshot, and resume it."""
        return (("PUT", f"{_API}restore", {"source_url": f"file://{snapshot}"}), ("PUT", f"{_API}resume", {}))

    def snapshot_requests(self, folder: str) -> tuple[monitor_api.ApiRequest, ...]:
        """Return the requests that pause a machine, and write its snapshot to a folder."""
        return (("PUT", f"{_API}pause", {}), ("PUT", f"{_API}snapshot", {"destination_url": f"file://{folder}"}))
