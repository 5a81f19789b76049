"""Virtual machines of LXD, or of Incus if that is installed: QEMU with KVM, started by their daemon.

Every instance gets a new copy of the image's disk in a storage pool of plain directories. The time for the copy is part
of the start, as with LXD's containers. LXD's machines only boot with UEFI: each boots the image's kernel from a private
CD. Written to "Instance options" and "Type: disk", "Type: nic" of LXD 5.0's documentation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tare.guests import boot_media, guest, kvm, monitors
from tare.hosts.host import Host
from tare.model.architecture import X86_64
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, find_missing_tools
from tare.technologies.lxd import (
    REMOVE,
    TIMEOUT_SECONDS,
    Lxd,
    disk_usage_bytes,
    find_client,
    format_cpus,
    image_alias,
    import_file,
    query_daemon,
    read_proof,
    stored_image_bytes,
)

_COPY_SECONDS = 600.0
_DRIVERS = ("virtio_pci", "sd_mod", "virtio_scsi", "virtio_net")
_DISK = "virtual-machines/{0}/root.img"
_CONSOLE = "ttyS1"  # the daemon uses the first serial port
_NO_DRIVER = "the daemon cannot run virtual machines: its driver of QEMU does not work"
_DRIVER_FIX = "apt-get install qemu-system-x86 ovmf lxd-agent, modprobe vhost_vsock, then restart the daemon"


@dataclass(frozen=True)
class LxdVm(Lxd):
    """Starts a machine of LXD or Incus that boots the image."""

    name = "lxd-vm"
    title = "LXD, virtual machine"
    family = "type 2"
    starts_quickly = False
    isolation = Isolation("own kernel", "a guest on virtual hardware")
    needs = "or Incus instead, its daemon and driver of QEMU, KVM that boots a guest"
    other_names = ("incus-vm",)
    architectures = (X86_64,)  # QEMU's machine for arm64 has one serial port, which the daemon uses
    can_be_nested = False
    has_volumes = False
    tools: ClassVar[Mapping[str, str]] = {**Lxd.tools, **boot_media.EFI_TOOLS, **monitors.KVM_TOOLS}
    packages = ("lxd-agent", "lxd-client", "ovmf", boot_media.EFI_STUB_PACKAGE)
    can_host = True
    tested = "emulated"
    network_path = "tap"

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools or files, or the problem of the daemon, of its QEMU driver, or of KVM."""
        missing = find_missing_tools(host, self._installed_tools(host))
        missing = missing or boot_media.find_missing_efi_stub(host) or self.engine_problems(host)
        if not missing and "qemu" not in query_daemon(host, find_client(host), "/1.0")["environment"]["driver"].split(
            " | "
        ):
            return (Problem(_NO_DRIVER, _DRIVER_FIX),)
        return missing or kvm.problems(host)

    def prepare_image(self, host: Host, image: Image) -> None:
        """Import the image's disk into the daemon, unless its store has it; make the initial RAM disk."""
        guest.ensure_disk(host, image)
        boot_media.make_initrd(host, image, *_DRIVERS)
        import_file(host, image.disk, _disk_alias(image))

    def remove_images(self, host: Host, tag: str) -> None:
        """Do nothing: `lxd` removes all of tare's images from the same daemon."""

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Create a machine, start it, and put its tap on tare's bridge before it boots."""
        launch.prepare_image(self, host)
        client, name = find_client(launch.ledger.host), launch.name
        with monitors.create_guest_resources(host, launch) as resources:
            initrd, serial = boot_media.make_initrd(host, launch.image, *_DRIVERS), str(launch.folder / "console")
            words = boot_media.command_line(launch, _CONSOLE)
            cd = boot_media.make_efi_cd(host, launch, initrd, words)
            resources.stack.enter_context(launch.ledger.register_undo("sh", "-c", REMOVE, "sh", client, name))
            host.run(client, "storage", "create", "--quiet", name, "dir", timeout=TIMEOUT_SECONDS)
            console = resources.stack.enter_context(boot_media.follow_console(host, serial))
            resources.mark_requested()
            create = (client, "init", "--quiet", "--no-profiles", "--vm", _disk_alias(launch.image), name)
            host.run(*create, timeout=_COPY_SECONDS, input=json.dumps(machine_settings(launch, cd, serial)).encode())
            reader = launch.ledger.host
            disk = (
                f"{query_daemon(reader, client, f'/1.0/storage-pools/{name}')['config']['source']}/{_DISK.format(name)}"
            )
            before = disk_usage_bytes(reader, disk)
            launch.timeline.mark("started")
            host.run(client, "start", name, timeout=TIMEOUT_SECONDS)
            resources.stack.enter_context(launch.network.adopt_tap(launch.network.device("t")))
            pid = query_daemon(reader, client, f"/1.0/instances/{name}/state")["pid"]
            # `limits.cpu` only pins the threads of the virtual CPUs: QEMU's other threads must not use other CPUs.
            host.run("taskset", "--pid", "--cpu-list", launch.cpu_list, str(pid), timeout=TIMEOUT_SECONDS)
            proof = read_proof(reader, client, "qemu", "qemu")
            resources.processes = lambda: (pid,)
            resources.written = lambda: max(0, disk_usage_bytes(reader, disk) - before)
            resources.kept = lambda: stored_image_bytes(reader, client, _disk_alias(launch.image))
            instance = resources.await_boot(console, disk, self.network_path, accelerator="kvm", **proof)
            yield kvm.with_pvm(host, instance)


def _disk_alias(image: Image) -> str:
    # Nested stacks have different disks of one image, and an image may get a larger disk later.
    return f"{image_alias(image)}-{image.disk.stem}-{image.disk_bytes >> 20}"


def machine_settings(launch: LaunchRequest, cd: str, serial: str) -> dict[str, Any]:
    """Return the machine's configuration: limits, boot CD, network card, and the file of the serial port."""
    nic = {"type": "nic", "nictype": "p2p", "host_name": launch.network.device("t"), "name": "eth0"}
    return {
        "config": {
            "limits.cpu": format_cpus(launch),
            "limits.memory": str(launch.limits.memory_bytes),
            "security.secureboot": "false",
            "raw.qemu": f"-serial file:{serial}",
            "raw.apparmor": f"{serial} rw,",
        },
        "devices": {
            "root": {"type": "disk", "path": "/", "pool": launch.name},
            "boot": {"type": "disk", "source": cd, "boot.priority": "10"},
            "eth0": nic | {"hwaddr": launch.network.instance_mac},
        },
    }
