"""Guest resources of machine monitors: folder, disk and control group, in addition to tare/guests/guest.py.

A monitor that tare starts runs in tare's control group, which pins it to its CPUs and limits its memory. The time for
an overlay of the image's disk counts as part of the start, like a container's layer. The time for a copy of the disk
does not count: users of such a monitor prepare the disk beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tare.guests import boot_media, guest, kvm
from tare.hosts.cgroups import ControlGroup, create_limited_cgroup
from tare.hosts.host import Host, Process
from tare.images.recipes import MAKE_FILE_SYSTEM
from tare.model.architecture import X86_64
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Family
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.technology import LaunchRequest, Technology

KVM_TOOLS: Mapping[str, str] = {kvm.PROGRAM: "qemu-system-x86", "qemu-img": "qemu-utils", **guest.TOOLS}
_COPY_SECONDS = 600.0
_LABEL = "tare-volume"  # label of the file system: the name of its device depends on the monitor
_FILE_SYSTEM_BYTES = 128 << 20  # for the journal; another tenth of the volume's size is for the tables
_MOUNT = 'mkdir -p "$1" && mount "LABEL=$2" "$1"'


@dataclass(frozen=True)
class DirectBoot(Technology):
    """Machine whose monitor loads the image's unpacked kernel directly."""

    family: ClassVar[Family] = "type 2"
    can_host = True
    network_path = "tap"

    def prepare_image(self, host: Host, image: Image) -> None:
        """Make the image's disk on hosts that received only the directory, and unpack the image's kernel."""
        guest.ensure_disk(host, image)
        boot_media.ensure_elf_kernel(host, image)


def firecracker_configuration(
    launch: LaunchRequest, tap: str, source: Mapping[str, str], disks: Mapping[str, str]
) -> dict[str, object]:
    """Return a machine's configuration in the form of Firecracker's API.

    `disks` has paths by name; it skips disks whose path is "". The disk `seed` is read-only.
    """
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
    """Guest resources: the folder of a machine, and the control group of its monitor.

    A technology registers its cleanup in `stack`. It may set `cautions`, `processes`, and its functions for the bytes
    `written` and those `kept` of the image, in place of the defaults.
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
        """Start the readiness probe and mark `requested`: from here on, all time counts as the start."""
        self.launch.start_probe(self.launch.network.instance_address)
        self.launch.timeline.mark("requested")

    def create_cgroup(self) -> ControlGroup:
        """Make the control group of a monitor that tare starts."""
        launch = self.launch
        limits = guest.with_monitor_memory(launch.limits)
        group = self.stack.enter_context(create_limited_cgroup(launch.ledger, launch.name, limits))
        self.processes = group.processes
        return group

    def copy_disk(self, form: str, *options: str, base: Path | None = None) -> str:
        """Copy a disk, by default the image's, without its empty blocks, in a format of qemu-img; return its path."""
        source, target = base or self.launch.image.disk, str(self.launch.folder / f"disk.{form}")
        if form == "raw" and source.suffix != ".qcow2":
            copy: tuple[str, ...] = ("cp", "--reflink=auto", "--sparse=always", str(source), target)
        else:
            source_form = "qcow2" if source.suffix == ".qcow2" else "raw"
            copy = ("qemu-img", "convert", "-f", source_form, "-O", form, *options, str(source), target)
        self.host.run(*copy, timeout=_COPY_SECONDS)
        self.bytes_before = self.launch.ledger.setup_helper.bytes_below(str(self.launch.folder))
        return target

    def create_overlay(self, base: Path | None = None) -> str:
        """Make an overlay of a disk, by default the image's; return its path."""
        source, target = base or self.launch.image.disk, str(self.launch.folder / "disk.qcow2")
        backing = ("-b", str(source), "-F", "qcow2" if source.suffix == ".qcow2" else "raw")
        self.host.run("qemu-img", "create", "-q", "-f", "qcow2", *backing, target, timeout=30)
        return target

    def create_volume(self) -> str:
        """Make the sparse disk of the data volume; return its path, or "" if no volume is requested.

        `await_boot` mounts it when the machine has booted.
        """
        requested = self.launch.volume_bytes
        if requested:
            self._volume_file = str(self.launch.folder / "volume.raw")
            kibibytes = (requested + requested // 10 + _FILE_SYSTEM_BYTES) >> 10
            make = (*MAKE_FILE_SYSTEM, "-L", _LABEL, self._volume_file, f"{kibibytes}k")
            self.host.run(*make, timeout=_COPY_SECONDS)
        return self._volume_file

    def await_boot(self, console: Process, disk: str, path: str, **proof: str) -> Instance:
        """Wait until the guest agent is ready, mount the data volume, and return the description of the instance."""
        launch = self.launch
        kernel = guest.watch_boot(console, launch)
        inside = self.stack.enter_context(guest.enter_guest(self.host, launch))
        if self._volume_file:
            inside.run("sh", "-c", _MOUNT, "sh", VOLUME, _LABEL, timeout=launch.start_timeout_seconds)
        return self.describe_instance(inside, disk, path, **proof, **{"guest kernel": kernel})

    def describe_instance(self, inside: Host | None, disk: str, path: str, **proof: str) -> Instance:
        """Return the description of the instance."""
        return Instance(
            name=self.launch.name,
            inside=inside,
            address=self.launch.network.instance_address,
            network_path=path,
            processes=self.processes,
            proof=proof,
            written_bytes=self.written or self._bytes_written,
            image_bytes=self.kept or self._image_bytes,
            cautions=self.cautions,
            disk_file=disk,
        )

    def _bytes_written(self) -> int:
        """Return the bytes that the machine has written to its system disk: the growth of its folder.

        A copy whose format allocates all blocks in advance does not grow, so the result is 0.
        """
        helper = self.launch.ledger.setup_helper
        volume = helper.bytes_below(self._volume_file) if self._volume_file else 0
        return max(0, helper.bytes_below(str(self.launch.folder)) - volume - self.bytes_before)

    def _image_bytes(self) -> int:
        """Return the allocated bytes of the image's disk, kernel and initial RAM disk."""
        image = self.launch.image
        return sum(
            self.launch.ledger.setup_helper.bytes_below(str(file)) for file in (image.disk, image.kernel, image.initrd)
        )


@contextmanager
def create_guest_resources(host: Host, launch: LaunchRequest) -> Iterator[GuestResources]:
    """Context manager: make the folder of a machine; run its cleanup and remove the folder after the block."""
    with ExitStack() as stack:
        stack.enter_context(launch.ledger.register_undo("rm", "-rf", "--one-file-system", str(launch.folder)))
        host.run("mkdir", "-p", str(launch.folder), timeout=30)
        yield GuestResources(host, launch, stack)


@dataclass(frozen=True)
class VirtualPc(Technology):
    """Virtual PC with a BIOS, which boots the image from a CD.

    Its monitors cannot load a kernel directly, and may have other controllers than virtio's: the initial RAM disk on
    the CD has their drivers. `drivers` are the kernel modules of its controllers, in the order of loading.
    """

    family = "type 2"
    architectures = (X86_64,)
    starts_quickly = False
    isolation = Isolation("own kernel", "a guest on a virtual PC")
    tools: ClassVar[Mapping[str, str]] = {**boot_media.TOOLS, **guest.TOOLS}
    packages = tuple(boot_media.LOADER.values())
    can_host = True
    tested = "stand-in"
    network_path = "bridge"
    drivers: ClassVar[tuple[str, ...]]

    def prepare_image(self, host: Host, image: Image) -> None:
        """Make the image's disk, and an initial RAM disk with the drivers of the controllers."""
        guest.ensure_disk(host, image)
        boot_media.make_initrd(host, image, *self.drivers)

    def make_boot_cd(self, host: Host, launch: LaunchRequest) -> str:
        """Make the CD of an instance; return its path."""
        initrd = boot_media.make_initrd(host, launch.image, *self.drivers)
        return boot_media.make_cd(host, launch, initrd, boot_media.command_line(launch))
