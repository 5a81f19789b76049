"""Recipes of images: base packages and the packages that plug-ins declare.

There are three main recipes. The guest image has the programs of a suite's workloads. The client root has the load
generators. It is separate, so that a new load generator changes no byte of the guest image; suites of usual workloads
share one client root. The machine image has the technologies that run in a nested stack's outer machine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tare.images.build_environment import build_host, program_folder
from tare.images.micro import LINUX
from tare.images.tree import TIME_OF_FILES
from tare.model.architecture import Architecture, this_architecture
from tare.model.image import ImageSpec, Release
from tare.plugins import registry
from tare.plugins.technology import Technology
from tare.plugins.workload import Workload

_GIB = 1 << 30
# For every instance. tiny-initramfs, as a full initramfs takes longer to boot than the rest, and would be measured.
GUEST_PACKAGES = ("iproute2", "kmod", "procps", "tiny-initramfs")
CLIENT_PACKAGES = ("iproute2", "procps")
# For an outer machine, in addition to engines: networks, file systems, control groups, and SSH, as tare reaches such a
# machine like any host.
MACHINE_PACKAGES = (*GUEST_PACKAGES, "e2fsprogs", "iptables", "openssh-client", "openssh-server", "util-linux")
# Host keys, caches and logs differ from build to build, and nothing needs them. The host name is the build machine's.
DROPPED = ("etc/hostname", "etc/ssh/ssh_host_*", "var/log/*", "var/cache/ldconfig/aux-cache", "etc/machine-id")
# mke2fs zeroes the inode table; otherwise each guest's ext4lazyinit writes 30 MB during the measurement.
MAKE_FILE_SYSTEM = ("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0")
MAKE_DISK = (*MAKE_FILE_SYSTEM, "-d")
# mktirfs copies files into the initrd with the time of the build and their inode numbers: pack the initrd again, so
# that equal recipes give equal bytes.
MAKE_INITRD = f"""
set -e
mktirfs -m no --include-modules="$1" -o /boot/initrd "$(ls /lib/modules)"
cd "$(mktemp -d)"
zcat /boot/initrd | cpio -i --quiet
find . -exec touch -h -d @{TIME_OF_FILES} {{}} +
find . ! -name . | LC_ALL=C sort | cpio -o --quiet -R 0:0 -H newc --reproducible | gzip -9 >/boot/initrd
rm -rf "$PWD" /boot/initrd.img-*
"""


@dataclass(frozen=True)
class Recipe:
    """Content of an image. Two recipes with the same `key` share a cached image.

    If `kernel` is "", the image is a root file system without a disk. Packages have their names on x86-64.
    """

    release: Release = "bookworm"
    packages: tuple[str, ...] = GUEST_PACKAGES
    kernel: str = "linux-image-cloud-amd64"
    modules: tuple[str, ...] = ("virtio_pci", "virtio_blk", "xen-blkfront", "virtio_net")  # for the disk and the card
    room_bytes: int = _GIB  # free space on its disk
    server: bool = True  # whether the image has tare's server `micro`
    architecture: Architecture = field(default_factory=this_architecture)

    @property
    def build_bytes(self) -> int:
        """Upper limit of the disk space that the build uses."""
        # More than four times the root, which has 0.2 GB without a kernel, 0.35 to 0.7 GB for guests, else 1.3 GB.
        return (1 if not self.kernel else 3 if self.server else 6) * _GIB

    def disk_bytes(self, installed_bytes: int) -> int:
        """Return the size of the disk: the installed files, the free space, a tenth for metadata, in whole GiB."""
        return math.ceil(1.1 * (installed_bytes + self.room_bytes) / _GIB) * _GIB

    @property
    def key(self) -> str:
        """Hash of the package names, tare's programs, and the tools and options that build them."""
        digest = self._digest()
        digest.update(build_host().run("cc", "--version", timeout=10, check=False).stdout)
        return digest.hexdigest()

    @property
    def archive_name(self) -> str:
        """Name of the archive: the hash without the compiler's version, as machines that use it need no compiler."""
        return self._digest().hexdigest()

    def _digest(self) -> hashlib._Hash:
        built_by = (DROPPED, MAKE_DISK, MAKE_INITRD, TIME_OF_FILES, LINUX.key if self.server else "")
        digest = hashlib.sha256(repr((self, built_by)).encode())
        for source in sorted(program_sources()):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        return digest


def guest_recipe(
    workloads: Iterable[Workload] | None = None,
    release: Release = "bookworm",
    packages: Sequence[str] = (),
) -> Recipe:
    """Return the recipe of the guest image for these workloads, with additional `packages`.

    If `workloads` is None, the image is for all workloads without large packages, such as a compiler.
    """
    chosen = _usual_workloads() if workloads is None else tuple(workloads)
    room_bytes = max([_GIB, *(workload.disk_bytes for workload in chosen)])
    union = _union_of_packages(GUEST_PACKAGES, (packages, *(workload.packages for workload in chosen)))
    return Recipe(release, union, room_bytes=room_bytes)


def client_recipe(workloads: Iterable[Workload] = (), release: Release = "bookworm") -> Recipe:
    """Return the recipe of the client root for all usual workloads and these."""
    chosen = (*_usual_workloads(), *workloads)
    packages = _union_of_packages(CLIENT_PACKAGES, (each.client_packages for each in chosen))
    return Recipe(release, packages, kernel="", modules=(), room_bytes=0, server=False)


def sidecar_recipe(spec: ImageSpec) -> Recipe:
    """Return the recipe of an image for sidecar services, which run in containers only."""
    packages = _union_of_packages(CLIENT_PACKAGES, (spec.packages,))
    return Recipe(spec.release, packages, kernel="", modules=(), room_bytes=0, server=False)


def machine_recipe(
    technologies: Iterable[Technology] | None = None, architecture: Architecture | None = None
) -> Recipe:
    """Return the recipe of outer machines for these technologies, by default for all that can be nested.

    `architecture` is this machine's by default.
    """
    architecture = architecture or this_architecture()
    chosen = registry.create_all("technologies") if technologies is None else technologies
    nested = (each for each in chosen if each.can_be_nested and architecture in each.architectures)
    packages = _union_of_packages(MACHINE_PACKAGES, (each.debian_packages for each in nested))
    return Recipe(packages=packages, room_bytes=6 * _GIB, server=False, architecture=architecture)


def program_sources() -> list[Path]:
    """Return the C source files of the image's programs."""
    return [path for path in program_folder().iterdir() if path.suffix in {".c", ".h"}]


def _usual_workloads() -> tuple[Workload, ...]:
    return tuple(each for each in registry.create_all("workloads") if not each.has_large_packages)


def _union_of_packages(base: Sequence[str], more: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(sorted({*base, *(package for packages in more for package in packages)}))
