"""What the plug-ins of machine monitors share beside tare/guests/guest.py: folder, disk and control group.

A monitor that tare starts runs in tare's control group, which pins it and limits its memory. An overlay of the image's
disk counts as part of the start, as a container's layer does. A copy of the disk does not: users of such a machine
prepare its disk beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from tare.guests import boot_media, guest, kvm
from tare.hosts.cgroups import ControlGroup, create_limited_cgroup
from tare.hosts.host import Host, Process
from tare.images.recipes import MAKE_FILE_SYSTEM
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Family
from tare.plugins.technology import LaunchRequest, Technology
from tare.plugins.workload import VOLUME, Instance

KVM_TOOLS: Mapping[str, str] = {kvm.PROGRAM: "qemu-system-x86", "qemu-img": "qemu-utils", **guest.TOOLS}
_COPY_SECONDS = 600.0
_LABEL = "tare-volume"  # of the file system: what its device is called depends on the monitor
_FILE_SYSTEM_BYTES = 128 << 20  # for its journal, beside a tenth of the room for its tables
_MOUNT = 'mkdir -p "$1" && mount "LABEL=$2" "$1"'


@dataclass(frozen=True)
class DirectBoot(Technology):
    """A machine whose monitor is given the image's unpacked kernel."""

    family: ClassVar[Family] = "type 2"
    can_host = True
    network_path = "tap"

    def prepare_image(self, host: Host, image: Image) -> None:
        """Make the image's disk where only its directory was carried to, and unpack its kernel."""
        guest.ensure_disk(host, image)
        boot_media.ensure_elf_kernel(host, image)


def firecracker_configuration(
    launch: LaunchRequest, tap: str, source: Mapping[str, str], disks: Mapping[str, str]
) -> dict[str, object]:
    """Describe a machine as Firecracker's API does; of its disks, by their names, the `seed` is only read."""
    return {
        "boot-source": dict(source),
        "drives": [
            {"drive_id": name, "path_on_host": path, "is_root_device": False, "is_read_only": name == "seed"}
            for name, path in disks.items()
            if path
        ],
        "machine-config": {"vcpu_count": len(launch.limits.cpus), "mem_size_mib": launch.limits.memory_bytes >> 20},
        "network-interfaces": [
            {"iface_id": "eth0", "host_dev_name": tap, "guest_mac": launch.network.instance_mac},
        ],
    }


@dataclass
class GuestResources:
    """What a machine starts with: its own folder, and a control group.

    `stack` undoes at the end what the technology makes. Where a technology knows better, it sets the `cautions`, the
    `processes`, the bytes `written` and those `kept` of the image.
    """

    host: Host
    launch: LaunchRequest
    stack: ExitStack
    bytes_before: int = 0
    cautions: tuple[Caution, ...] = ()
    processes: Callable[[], Sequence[int]] = tuple
    written: Callable[[], int | None] | None = None
    kept: Callable[[], int | None] | None = None
    _volume_file: str = field(default="", init=False)

    def mark_requested(self) -> None:
        """Mark `mark_requested`: all preparation that does not count is done."""
        self.launch.start_probe(self.launch.network.instance_address)
        self.launch.timeline.mark("requested")

    def create_cgroup(self) -> ControlGroup:
        """Make the control group of a monitor that tare starts."""
        launch = self.launch
        around = guest.with_monitor_memory(launch.limits)
        group = self.stack.enter_context(create_limited_cgroup(launch.ledger, launch.name, around))
        self.processes = group.processes
        return group

    def copy_disk(self, form: str, *options: str) -> str:
        """Copy the image's disk without its empty blocks, in a format of qemu-img; return its path."""
        source, target = self.launch.image.disk, str(self.launch.folder / f"disk.{form}")
        if form == "raw" and source.suffix != ".qcow2":
            copy: tuple[str, ...] = ("cp", "--reflink=auto", "--sparse=always", str(source), target)
        else:
            base = "qcow2" if source.suffix == ".qcow2" else "raw"
            copy = ("qemu-img", "convert", "-f", base, "-O", form, *options, str(source), target)
        self.host.run(*copy, timeout=_COPY_SECONDS)
        self.bytes_before = self.launch.ledger.setup_helper.bytes_below(str(self.launch.folder))
        return target

    def create_overlay(self) -> str:
        """Make an overlay of the image's disk; return its path."""
        source, target = self.launch.image.disk, str(self.launch.folder / "disk.qcow2")
        base = ("-b", str(source), "-F", "qcow2" if source.suffix == ".qcow2" else "raw")
        self.host.run("qemu-img", "create", "-q", "-f", "qcow2", *base, target, timeout=30)
        return target

    def create_volume(self) -> str:
        """Make the disk of the data volume, without what is empty; return its path, or an empty text without a volume.

        It is mounted once the machine has booted.
        """
        wanted = self.launch.volume_bytes
        if wanted:
            self._volume_file = str(self.launch.folder / "volume.raw")
            kibibytes = (wanted + wanted // 10 + _FILE_SYSTEM_BYTES) >> 10
            make = (*MAKE_FILE_SYSTEM, "-L", _LABEL, self._volume_file, f"{kibibytes}k")
            self.host.run(*make, timeout=_COPY_SECONDS)
        return self._volume_file

    def await_boot(self, console: Process, disk: str, path: str, **proof: str) -> Instance:
        """Wait until the machine's door is open, enter it and describe it."""
        launch = self.launch
        kernel = guest.watch_boot(console, launch)
        inside = self.stack.enter_context(guest.enter_guest(self.host, launch))
        if self._volume_file:
            inside.run("sh", "-c", _MOUNT, "sh", VOLUME, _LABEL, timeout=launch.start_timeout_seconds)
        return Instance(
            name=launch.name,
            inside=inside,
            address=launch.network.instance_address,
            network_path=path,
            processes=self.processes,
            proof={**proof, "guest kernel": kernel},
            written_bytes=self.written or self._bytes_written,
            image_bytes=self.kept or self._image_bytes,
            cautions=self.cautions,
            disk_file=disk,
        )

    def _bytes_written(self) -> int:
        """Return what the machine has written to its own disk; a copy that was written in full does not grow."""
        helper = self.launch.ledger.setup_helper
        volume = helper.bytes_below(self._volume_file) if self._volume_file else 0
        return max(0, helper.bytes_below(str(self.launch.folder)) - volume - self.bytes_before)

    def _image_bytes(self) -> int:
        """Return the bytes of the image's disk, without its empty blocks, and of what boots it."""
        image = self.launch.image
        return sum(
            self.launch.ledger.setup_helper.bytes_below(str(file)) for file in (image.disk, image.kernel, image.initrd)
        )


@contextmanager
def create_guest_resources(host: Host, launch: LaunchRequest) -> Iterator[GuestResources]:
    """Make the folder of a machine; remove it, and undo its `stack`, after the block."""
    with ExitStack() as stack:
        stack.enter_context(launch.ledger.register_undo("rm", "-rf", "--one-file-system", str(launch.folder)))
        host.run("mkdir", "-p", str(launch.folder), timeout=30)
        yield GuestResources(host, launch, stack)


@dataclass(frozen=True)
class VirtualPc(Technology):
    """A virtual PC with a BIOS, which boots the image from a CD: of the monitors that start one without KVM.

    It cannot be given the kernel directly, and its controllers may be others than virtio's: the CD's initial RAM disk
    has the drivers. `drivers` are the kernel modules of its controllers, in the order of loading.
    """

    family = "type 2"
    starts_quickly = False
    isolation = Isolation("own kernel", "a guest on a virtual PC")
    tools: ClassVar[Mapping[str, str]] = {**boot_media.TOOLS, **guest.TOOLS}
    packages = tuple(boot_media.LOADER.values())
    can_host = True
    tested = "stand-in"
    network_path = "bridge"
    drivers: ClassVar[tuple[str, ...]]

    def prepare_image(self, host: Host, image: Image) -> None:
        """Make an initial RAM disk with the drivers of its controllers."""
        guest.ensure_disk(host, image)
        boot_media.make_initrd(host, image, *self.drivers)

    def make_boot_cd(self, host: Host, launch: LaunchRequest) -> str:
        """Make the CD of an instance; return its path."""
        initrd = boot_media.make_initrd(host, launch.image, *self.drivers)
        return boot_media.make_cd(host, launch, initrd, boot_media.command_line(launch))
