"""Cloud Hypervisor: a monitor for cloud machines on KVM, with virtio devices on PCI and no legacy devices.

Run as 50.0 and 53.0, on KVM in an emulated machine. Written to its documentation: README.md ("Custom Kernel and Disk
Image": a kernel with the PVH entry, as Debian's is, uncompressed; `--serial tty --console off` for early messages),
docs/device_model.md, docs/cpu.md, docs/api.md and docs/snapshot_restore.md of versions 28 to 53. A restored machine has
its whole memory before it resumes, which is the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from tare.guests import boot_media, guest, kvm, monitor_api, monitors
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.instance import Instance
from tare.plugins.snapshots import Snapshots, explain_failed_restore
from tare.plugins.technology import LaunchRequest, find_missing_tools, first_line, missing_program

_PROGRAM = "cloud-hypervisor"
_API = "/api/v1/vm."
_INSTALL = "put `cloud-hypervisor` of a release of github.com/cloud-hypervisor/cloud-hypervisor on the PATH"


@dataclass(frozen=True)
class CloudHypervisor(monitors.DirectBoot, Snapshots):
    """Boots the image's unpacked kernel from a command line."""

    name = "cloud-hypervisor"
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

    def launch(self, host: Host, launch: LaunchRequest) -> AbstractContextManager[Instance]:
        """Context manager: boot a machine on a copy of the image's disk."""
        return self._start(host, launch)

    def restore(self, host: Host, launch: LaunchRequest, snapshot: str) -> AbstractContextManager[Instance]:
        """Context manager: resume the machine of a snapshot, on a copy of its disk."""
        return self._start(host, launch, Path(snapshot))

    @contextmanager
    def _start(self, host: Host, launch: LaunchRequest, snapshot: Path | None = None) -> Iterator[Instance]:
        launch.prepare_image(self, host)
        with monitors.create_guest_resources(host, launch) as resources:
            api = monitor_api.MonitorApi(self.name, resources)
            disk = resources.copy_disk("raw", base=snapshot and snapshot / monitor_api.DISK)
            options = () if snapshot else self._machine_options(host, launch)
            resources.mark_requested()
            group = resources.create_cgroup()
            tap = resources.stack.enter_context(launch.network.create_tap())
            card = () if snapshot else ("--net", f"tap={tap},mac={launch.network.instance_mac}")
            launch.timeline.mark("started")
            command = api.command(_PROGRAM, "--api-socket", monitor_api.SOCKET, *options, *card)
            console = resources.stack.enter_context(host.spawn(*group.join, *launch.network.enter, *command))
            proof = {"accelerator": "kvm", "cloud-hypervisor": launch.version(self, host)}
            if snapshot:
                restore = ("PUT", f"{_API}restore", {"source_url": f"file://{snapshot}"})
                api.load_snapshot(restore, ("PUT", f"{_API}resume", {}))
                with explain_failed_restore(console, self.name):
                    instance = resources.describe_instance(None, disk, self.network_path, **proof)
                    yield kvm.with_pvm(host, instance)
                return
            instance = resources.await_boot(console, disk, self.network_path, **proof)

            def take_snapshot(folder: str) -> None:
                snapshot = ("PUT", f"{_API}snapshot", {"destination_url": f"file://{folder}"})
                api.take_snapshot(folder, ("PUT", f"{_API}pause", {}), snapshot)

            yield replace(kvm.with_pvm(host, instance), take_snapshot=take_snapshot)

    def _machine_options(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:
        kernel = boot_media.ensure_elf_kernel(host, launch.image)
        return (
            *("--kernel", str(kernel), "--initramfs", str(launch.image.initrd)),
            *("--cmdline", guest.command_line(launch)),
            *("--cpus", f"boot={len(launch.limits.cpus)}"),
            *("--memory", f"size={launch.limits.memory_bytes >> 20}M"),
            *("--disk", f"path={monitor_api.DISK}{self.disk_format_option(host)}"),
            *("--serial", "tty", "--console", "off"),
        )
