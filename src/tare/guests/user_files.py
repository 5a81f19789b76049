"""The user's files that a guest is booted from: found, carried to the host, judged by their first bytes, and proved.

They are never written. What cannot boot on a PC is refused before anything starts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from tare.hosts.host import Host
from tare.model.errors import TrialFailed, Unavailable
from tare.plugins.technology import LaunchRequest

DiskFormat = Literal["raw", "qcow2"]
_HEADER_BYTES = 8192  # in which a multiboot header must begin
_SECONDS = 900.0  # to read or copy the whole of a large disk
_PROCESSORS = {8: "MIPS", 20: "PowerPC", 21: "PowerPC", 22: "S/390", 40: "ARM", 183: "AArch64", 243: "RISC-V"}
_PC = (3, 62)  # the ELF numbers of x86, of 32 and 64 bits
_IMAGES = {b"ARM\x64": "AArch64", b"RSC\x05": "RISC-V"}  # of Linux, at byte 56
_MULTIBOOT = struct.pack("<I", 0x1BADB002)
_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
_QCOW2 = b"QFI\xfb"
_OTHER_DISKS = {b"KDMV": "vmdk", b"vhdxfile": "vhdx", b"conectix": "vpc", b"<<< ": "vdi", b"# Disk": "vmdk"}
_CODE_BYTES, _SIGNATURE = 440, b"\x55\xaa"

FileFault = tuple[str, str] | None


def locate_file(host: Host, path: str, technology_name: str) -> Literal["there", "here"]:
    """Return where a file of a technology is: on the host, or on this machine. Raises Unavailable."""
    if not host.run("test", "-f", path, timeout=30, check=False).exit_code:
        return "there"
    if Path(path).is_file():
        return "here"
    hint = "build it, or correct its path in the stack's table: a path on the machine under test, or on this one"
    raise Unavailable(f"{technology_name}: there is no file {path}", hint)


def read_header(host: Host, path: str, technology_name: str) -> bytes:
    """Return the first bytes of a file, by which its kind can be seen; raises Unavailable."""
    if locate_file(host, path, technology_name) == "there":
        return host.run("head", "-c", str(_HEADER_BYTES), path, timeout=30).stdout
    with Path(path).open("rb") as file:
        return file.read(_HEADER_BYTES)


def ensure_on_host(host: Host, launch: LaunchRequest, path: str, technology_name: str) -> str:
    """Return the path of a file on the host; copy it there for this instance, if needed. Raises Unavailable."""
    if locate_file(host, path, technology_name) == "there":
        return path
    target = str(launch.folder / Path(path).name)
    host.put(Path(path), PurePosixPath(target))
    return target


def hash_files(launch: LaunchRequest, places: Mapping[str, str]) -> dict[str, str]:
    """Prove which files were booted: the image, then its disk and what else has the application in it.

    Each is read once in a run, and again if it has changed.
    """
    host = launch.ledger.host

    def hash_file(path: str, place: str) -> str:
        state = host.run("stat", "-c", "%s %Y", place, timeout=30).text.strip()
        read = lambda: host.run("sha256sum", place, timeout=_SECONDS).text.split()[0]  # noqa: E731
        return launch.cache.read_once(f"sha256 of {path}: {state}", read)

    found = {path: hash_file(path, place) for path, place in places.items()}
    return {f"sha256 of {path}" if number else "sha256": value for number, (path, value) in enumerate(found.items())}


def disk_usage_bytes(host: Host, files: Iterable[str]) -> int:
    """Return the bytes that the files take on the disk, those behind links, too."""
    counted = host.run("du", "--dereference-args", "--total", "--block-size=1", "--", *files, timeout=30).text
    return int(counted.split()[-2])


def create_overlay(host: Host, launch: LaunchRequest, disk: str, form: str) -> str:
    """Make an overlay of a disk; raises TrialFailed if that disk refers to another file."""
    _refuse_partial_disk(host, disk, form)
    target = str(launch.folder / "written" / "disk.qcow2")
    base = ("-b", disk, "-F", form)
    host.run("qemu-img", "create", "-q", "-f", "qcow2", *base, target, timeout=30)
    return target


def copy_disk(host: Host, launch: LaunchRequest, disk: str, form: str) -> str:
    """Copy a disk without its empty blocks, as a raw one; raises TrialFailed if it refers to another file."""
    _refuse_partial_disk(host, disk, form)
    target = str(launch.folder / "written" / "disk.raw")
    sparse, converted = ("cp", "--reflink=auto", "--sparse=always"), ("qemu-img", "convert", "-O", "raw", "-f", form)
    host.run(*(sparse if form == "raw" else converted), disk, target, timeout=_SECONDS)
    return target


def _refuse_partial_disk(host: Host, disk: str, form: str) -> None:
    """Raise TrialFailed if a disk refers to another file, which it could make tare read."""
    information = json.loads(host.run("qemu-img", "info", "-f", form, "--output=json", disk, timeout=30).text)
    about = information.get("format-specific", {}).get("data", {})
    if more := information.get("backing-filename") or about.get("data-file"):
        hint = f"make one file of it: qemu-img convert -O qcow2 {disk} NEW"
        raise TrialFailed(f"{disk}: it is only a part of a disk: it refers to {more}", hint)


def kernel_fault(header: bytes) -> FileFault:
    """Return why a file is no kernel for a PC, and what to do; None for one that may be."""
    if packed := _compression_fault(header):
        return packed
    if header[:4] == b"\x7fELF" and len(header) > 20:
        order = ">" if header[5] == 2 else "<"
        (number,) = struct.unpack_from(f"{order}H", header, 18)
        return None if number in _PC else _architecture_fault(_PROCESSORS.get(number, f"processor {number}"))
    if header[0x202:0x206] == b"HdrS" or _MULTIBOOT in header:
        return None
    if name := _IMAGES.get(header[56:60]):
        return _architecture_fault(name)
    return "it is not a kernel: neither Linux's for x86, nor ELF, nor multiboot", "a disk is booted with disk = …"


def disk_fault(header: bytes, form: str, boots: bool) -> FileFault:
    """Return why a file is no disk in this format, and what to do; None for one that may be.

    A disk that `boots` must begin as a PC's does: others are mounted by a kernel.
    """
    fault = _compression_fault(header) or _format_fault(header, form)
    return _boot_sector_fault(header) if boots and form == "raw" and not fault else fault


def _format_fault(header: bytes, form: str) -> FileFault:
    for magic, other in _OTHER_DISKS.items():
        if header.startswith(magic):
            return f"it is a disk in the format {other}", "convert it: qemu-img convert -O qcow2 DISK NEW.qcow2"
    if header.startswith(_QCOW2) != (form == "qcow2"):
        other, right = ("no disk", "raw") if form == "qcow2" else ("a disk", "qcow2")
        return f"it is {other} in the format qcow2", f'write disk_format = "{right}"'
    return None if header else ("it is empty", "name another file")


def _boot_sector_fault(header: bytes) -> FileFault:
    if header[510:512] != _SIGNATURE:
        return "it is not a disk that a PC boots: its first sector has no signature", "name another file, or a kernel"
    if not header[:_CODE_BYTES].strip(b"\0"):
        what = "its first sector has no program for a BIOS: it is made for UEFI, or for another processor"
        return what, 'for UEFI on x86-64: firmware = "/usr/share/ovmf/OVMF.fd", of Debian\'s package ovmf'
    return None


def is_compressed_linux(header: bytes) -> bool:
    """Return whether a kernel is Linux's compressed one for x86, which some monitors cannot load."""
    return header[0x202:0x206] == b"HdrS"


def _architecture_fault(processor: str) -> FileFault:
    return f"it is made for {processor}, not for x86", "tare boots machines of its own architecture, x86-64, only"


def _compression_fault(header: bytes) -> FileFault:
    name = next((name for magic, name in _COMPRESSIONS.items() if header.startswith(magic)), "")
    return (f"it is compressed with {name}", "unpack it first") if name else None
