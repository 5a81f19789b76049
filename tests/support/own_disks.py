"""Disks and kernels as users have them: Debian with GRUB and systemd, and a kernel with a small initial RAM disk."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

from tare.hosts.ledger import state_folder
from tare.model.image import Image

_SECONDS = 900
_START, _SECTORS = 2048, 1400 << 11  # of the only partition, in sectors of 512 bytes
_PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "iproute2", "procps", "nginx-light", "openssh-server", "sudo", "cloud-init"),
    *("linux-image-cloud-amd64", "grub-pc-bin", "grub-common"),
)
_FILES = {
    "etc/fstab": "LABEL=root / ext4 defaults 0 1\n",
    "etc/hostname": "golden\n",
    "etc/systemd/network/any.network": "[Match]\nName=e*\n[Network]\nDHCP=ipv4\n",
    "var/www/html/file": "x" * 1024,
    "boot/grub/grub.cfg": """set timeout=0
linux /vmlinuz root=LABEL=root ro console=ttyS0
initrd /initrd.img
boot
""",
}
# GRUB's first sector names the second one, where the rest of it begins.
_LOADER = "grub-mkimage -O i386-pc -o /boot/core.img -p (hd0,msdos1)/boot/grub biosdisk part_msdos ext2 normal linux"
_KERNEL = ("vmlinuz", "initrd.img")
_UNITS = ("systemd-networkd", "nginx", "ssh")
_MODULES = (
    *("drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev"),
    *("drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci"),
    *("net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net", "net/packet/af_packet"),
)
_INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
for module in /modules/*
do /bin/busybox insmod "$module"; done
/bin/busybox ip link set eth0 up
if [ -n "$address" ]
then ip=$address interface=eth0 router=$gateway /taken
else /bin/busybox udhcpc -i eth0 -n -q -s /taken
fi
exec /micro --listen 0.0.0.0
"""
# A client on another machine is beyond the gateway.
_TAKEN = """#!/bin/busybox sh
[ -n "$ip" ] || exit 0
/bin/busybox ip addr add "$ip/24" dev "$interface"
[ -z "$router" ] || /bin/busybox ip route add default via "$router"
"""


def debian_disk(release: str = "bookworm") -> Path:
    """Return a raw disk of Debian that serves nginx after its boot, with SSH and cloud-init; it is made once."""
    folder = state_folder() / "tests"
    disk = folder / f"debian-{release}.img"
    if not disk.exists():
        if shutil.which("mmdebstrap") is None or os.geteuid():
            pytest.skip("only root, with mmdebstrap, can make a disk of Debian")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tare-building-", dir=folder) as scratch:
            root, fresh = Path(scratch) / "root", Path(scratch) / disk.name
            _install(root, release)
            _make_disk(root, fresh)
            for made in (*(fresh.with_name(name) for name in _KERNEL), fresh):
                made.rename(folder / made.name)
    return disk


def debian_kernel() -> tuple[Path, Path]:
    """Return the kernel and the initial RAM disk of that disk."""
    kernel, initrd = (debian_disk().with_name(name) for name in _KERNEL)
    return kernel, initrd


def micro_initrd(image: Image, target: Path) -> Path:
    """Make an initial RAM disk for the image's kernel, whose first program is our small HTTP server."""
    busybox, folder = shutil.which("busybox"), target.with_suffix(".d")
    if busybox is None:
        pytest.skip("apt-get install busybox-static")
    kernel = next((image.root / "lib/modules").iterdir()) / "kernel"
    for name in ("bin", "proc", "sys", "modules"):
        (folder / name).mkdir(parents=True)
    for number, name in enumerate(_MODULES):
        source = kernel / f"{name}.ko"
        if source.exists():  # else it is a part of the kernel
            shutil.copy(source, folder / "modules" / f"{number}.ko")
    shutil.copy(busybox, folder / "bin/busybox")
    shutil.copy(image.root / "usr/lib/tare/micro", folder / "micro")
    for name, text in (("init", _INIT), ("taken", _TAKEN)):
        (folder / name).write_text(text, encoding="ascii")
        (folder / name).chmod(0o755)
    _run("sh", "-c", 'cd "$1" && find . | cpio --quiet -o -H newc > "$2"', "sh", str(folder), str(target))
    return target


def _install(root: Path, release: str) -> None:
    _run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(_PACKAGES)}", release, str(root))
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    _run("systemctl", f"--root={root}", "enable", "--quiet", *_UNITS)
    _run("chroot", str(root), *_LOADER.split())


def _make_disk(root: Path, disk: Path) -> None:
    """Make a disk with one partition, GRUB before it."""
    begins = root / "usr/lib/grub/i386-pc/boot.img"
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", _START, _SECTORS)
    with disk.open("wb") as file:
        file.write(begins.read_bytes()[:440].ljust(446, b"\0") + entry + bytes(48) + b"\x55\xaa")
        file.write((root / "boot/core.img").read_bytes())
        file.truncate((_START + _SECTORS) * 512)
    offset = f"offset={_START * 512},root_owner=0:0"
    _run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-E", offset, "-d", str(root), str(disk), f"{_SECTORS // 2}k")
    for name in _KERNEL:
        shutil.copy(root / name, disk.with_name(name))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")
