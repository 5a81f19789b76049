"""The kernel and the modules of an image are unpacked by the program of their compression, which may be missing."""

from __future__ import annotations

import gzip
import lzma
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.guests.boot_media import make_initrd, unpack_kernel
from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed, Unavailable
from tare.model.image import Image

KERNEL = b"a kernel" * 1000
ZSTD = b"\x28\xb5\x2f\xfd"
LENGTH = struct.pack("<I", len(KERNEL))  # Linux appends it, except to what gzip has packed


def packed(folder: Path, payload: bytes) -> str:
    """Write a kernel of x86's boot protocol: one sector of setup, then 16 bytes, then the payload."""
    header = bytearray(2 * 512 + 16)
    header[497] = 1
    struct.pack_into("<II", header, 584, 16, len(payload))
    file = folder / "vmlinuz"
    file.write_bytes(bytes(header) + payload + b"the end")
    return str(file)


def by(*argv: str) -> bytes:
    """Return the kernel as a program packs it."""
    return subprocess.run(argv, input=KERNEL, capture_output=True, check=True).stdout


PACK: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: gzip.compress(KERNEL),
    "xz": lambda: lzma.compress(KERNEL) + LENGTH,
    "lz4": lambda: by("lz4", "-l", "-c") + LENGTH,
    "zstd": lambda: by("zstd", "-c") + LENGTH,
}


@pytest.mark.parametrize("name", PACK)
def test_the_payload_is_unpacked_once(name: str, tmp_path: Path) -> None:
    target = tmp_path / "vmlinux"
    unpack_kernel(LocalHost(), packed(tmp_path, PACK[name]()), str(target))
    assert target.read_bytes() == KERNEL
    unpack_kernel(LocalHost(), packed(tmp_path, b"another"), str(target))
    assert target.read_bytes() == KERNEL


@pytest.mark.parametrize("name", PACK)
def test_the_payload_of_an_efi_program_is_unpacked(name: str, tmp_path: Path) -> None:
    payload = PACK[name]()
    length = len(payload) - (0 if name == "gzip" else len(LENGTH))  # it does not count what Linux appends
    kernel = b"MZ\0\0zimg" + struct.pack("<II", 64, length)
    (tmp_path / "vmlinuz").write_bytes(kernel.ljust(64, b"\0") + payload + b"the end")
    unpack_kernel(LocalHost(), str(tmp_path / "vmlinuz"), str(tmp_path / "vmlinux"))
    assert (tmp_path / "vmlinux").read_bytes() == KERNEL


@pytest.fixture
def without_unpackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "od", "tr", "ls", "cat", "mktemp", "rm"):
        (programs / name).symlink_to(shutil.which(name) or pytest.fail(f"no {name}"))
    monkeypatch.setenv("PATH", str(programs))


@pytest.mark.usefixtures("without_unpackers")
def test_the_program_that_a_kernel_needs_is_named_with_its_package(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="zstd, which unpacks the kernel, is not installed") as error:
        unpack_kernel(LocalHost(), packed(tmp_path, ZSTD), str(tmp_path / "vmlinux"))
    assert error.value.hint == "apt-get install zstd"
    assert not (tmp_path / "vmlinux").exists()


@pytest.mark.usefixtures("without_unpackers")
def test_the_program_that_modules_need_is_named_with_its_package(tmp_path: Path) -> None:
    image = with_modules(tmp_path, ".xz", lzma.compress)
    with pytest.raises(Unavailable, match="xz, which unpacks the kernel's modules, is not installed") as error:
        make_initrd(LocalHost(), image, "virtio_blk")
    assert error.value.hint == "apt-get install xz-utils"
    assert not list(tmp_path.glob("initrd-*"))


def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrialFailed, match="unknown compression"):
        unpack_kernel(LocalHost(), packed(tmp_path, b"what is this"), str(tmp_path / "vmlinux"))


def with_modules(folder: Path, ending: str, pack: Callable[[bytes], bytes]) -> Image:
    """Return an image with two modules, packed, of which one needs the other."""
    drivers = folder / "root/lib/modules/6.12/kernel"
    drivers.mkdir(parents=True)
    for name in ("ring", "virtio_blk"):
        (drivers / f"{name}.ko{ending}").write_bytes(pack(name.encode()))
    files = [f"kernel/{name}.ko{ending}" for name in ("virtio_blk", "ring")]
    (drivers.parent / "modules.dep").write_text(f"{files[0]}: {files[1]}\n{files[1]}:\n")
    (folder / "initrd").write_bytes(b"")
    other = folder / "other"
    return Image("ab" * 32, folder / "root", other, other, other, folder / "initrd", "")


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)])
def test_modules_are_in_the_initial_ram_disk_unpacked(
    ending: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    archive = make_initrd(LocalHost(), with_modules(tmp_path, ending, pack), "virtio_blk").read_bytes()
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(("cpio", "--quiet", "-i"), cwd=unpacked, input=gzip.decompress(archive), check=True)
    assert (unpacked / "modules").read_text() == "/ring.ko\n/virtio_blk.ko\n"
    assert [(unpacked / f"{name}.ko").read_bytes() for name in ("ring", "virtio_blk")] == [b"ring", b"virtio_blk"]
