"""Recipes of images: a base, and the packages that plug-ins declare.

There are three kinds. The image of instances has what the workloads of a suite run inside. The client root has the
loads, so that a new load generator changes no byte of what is measured; all suites of usual workloads share one. The
image of machines around other layers has the technologies of those.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.images.build_environment import build_host, program_folder
from tare.images.micro import LINUX
from tare.images.tree import TIME_OF_FILES
from tare.model.image import ImageSpec, Release
from tare.plugins import registry
from tare.plugins.technology import Technology
from tare.plugins.workload import Workload

_GIB = 1 << 30
# What tare needs in every instance: to enter it, to look into it, and to boot it.
GUEST_PACKAGES = ("iproute2", "kmod", "procps", "tiny-initramfs")
CLIENT_PACKAGES = ("iproute2", "procps")
# What tare needs in a machine around other layers, beside engines: networks, file systems, control groups, and SSH, as
# any machine that is a host has it.
MACHINE_PACKAGES = (*GUEST_PACKAGES, "e2fsprogs", "iptables", "openssh-client", "openssh-server", "util-linux")
# Host keys, caches and logs differ from build to build, and nothing needs them. The host name is the build machine's.
DROPPED = ("etc/hostname", "etc/ssh/ssh_host_*", "var/log/*", "var/cache/ldconfig/aux-cache", "etc/machine-id")
# mke2fs zeroes the inode table; otherwise each guest's ext4lazyinit writes 30 MB during the measurement.
MAKE_FILE_SYSTEM = ("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0")
MAKE_DISK = (*MAKE_FILE_SYSTEM, "-d")
# mktirfs copies files into the initrd with the time of the build and their inodes' numbers: it is packed again.
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
    """The content of an image. Two recipes with the same `key` share a cached image.

    Without a `kernel`, it is a root file system that nothing boots.
    """

    release: Release = "bookworm"
    packages: tuple[str, ...] = GUEST_PACKAGES
    kernel: str = "linux-image-cloud-amd64"
    modules: tuple[str, ...] = ("virtio_pci", "virtio_blk", "xen-blkfront", "virtio_net")  # the disk and the card
    room_bytes: int = _GIB  # for what is written to its disk
    server: bool = True  # whether our own server is in it

    @property
    def build_bytes(self) -> int:
        """The room that building takes at most: more than four times its root, of 0.2, 0.35 to 0.7, or 1.3 GB today."""
        return (1 if not self.kernel else 3 if self.server else 6) * _GIB

    def disk_bytes(self, installed_bytes: int) -> int:
        """Return the size of its disk: what is installed, the room, a tenth for the file system; whole GiB."""
        return math.ceil(1.1 * (installed_bytes + self.room_bytes) / _GIB) * _GIB

    @property
    def key(self) -> str:
        """Hash of the package names, our programs, and how they are built."""
        digest = self._digest()
        digest.update(build_host().run("cc", "--version", timeout=10, check=False).stdout)
        return digest.hexdigest()

    @property
    def archive_name(self) -> str:
        """The name of its archive among others: the hash without the compiler, which another machine may not have."""
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
    """Return the recipe of the image for these workloads; by default for all but those with large packages.

    A suite may want additional packages.
    """
    chosen = _usual_workloads() if workloads is None else tuple(workloads)
    room_bytes = max([_GIB, *(each.disk_bytes for each in chosen)])
    wanted = _union_of_packages(GUEST_PACKAGES, (packages, *(each.packages for each in chosen)))
    return Recipe(release, wanted, room_bytes=room_bytes)


def client_recipe(workloads: Iterable[Workload] = (), release: Release = "bookworm") -> Recipe:
    """Return the recipe of the client root: one for all usual workloads, with what these need beyond that."""
    chosen = (*_usual_workloads(), *workloads)
    packages = _union_of_packages(CLIENT_PACKAGES, (each.client_packages for each in chosen))
    return Recipe(release, packages, kernel="", modules=(), room_bytes=0, server=False)


def sidecar_recipe(spec: ImageSpec) -> Recipe:
    """Return the recipe of an image for services beside the one under test: nothing boots it."""
    packages = _union_of_packages(CLIENT_PACKAGES, (spec.packages,))
    return Recipe(spec.release, packages, kernel="", modules=(), room_bytes=0, server=False)


def machine_recipe(technologies: Iterable[Technology] | None = None) -> Recipe:
    """Return the recipe of machines around these technologies; around all that can be nested by default."""
    chosen = registry.create_all("technologies") if technologies is None else technologies
    packages = _union_of_packages(MACHINE_PACKAGES, (each.debian_packages for each in chosen if each.can_be_nested))
    return Recipe(packages=packages, room_bytes=6 * _GIB, server=False)


def program_sources() -> list[Path]:
    """Return the source files of the programs in the image, except our server."""
    return [path for path in program_folder().iterdir() if path.suffix in {".c", ".h"}]


def _usual_workloads() -> tuple[Workload, ...]:
    return tuple(each for each in registry.create_all("workloads") if not each.has_large_packages)


def _union_of_packages(base: Sequence[str], more: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(sorted({*base, *(package for packages in more for package in packages)}))
