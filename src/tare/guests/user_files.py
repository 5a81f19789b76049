"""User-supplied files that a guest boots from: tare locates, copies, checks and hashes them, and never writes to them.

The check reads their first bytes, and refuses files that cannot boot on a PC before a run starts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from tare.hosts.host import Host
from tare.model.architecture import ARCHITECTURES, X86_64, Architecture
from tare.model.errors import TrialFailed, Unavailable
from tare.plugins.technology import LaunchRequest

DiskFormat = Literal["raw", "qcow2"]
_HEADER_BYTES = 8192  # a multiboot header must start within these bytes
_SECONDS = 900.0  # enough to read or copy all of a large disk
# By ELF's machine numbers; 3 is x86 with 32 bits, which an x86-64 machine boots.
_PROCESSORS = {3: "x86-64", 8: "MIPS", 20: "PowerPC", 21: "PowerPC", 22: "S/390", 40: "ARM", 243: "RISC-V"}
_PROCESSORS |= {each.elf: each.title for each in ARCHITECTURES.values()}
_IMAGES = {b"ARM\x64": "arm64", b"RSC\x05": "RISC-V"}  # magic numbers of Linux kernels, at byte 56
_PE_MACHINES = {0xAA64: "arm64", 0x8664: "x86-64", 0x5064: "RISC-V"}  # of the headers of EFI programs
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
    """Return "there" if a file is on the host, "here" if it is on this machine; raises Unavailable if on neither."""
    if not host.run("test", "-f", path, timeout=30, check=False).exit_code:
        return "there"
    if Path(path).is_file():
        return "here"
    hint = "build it, or correct its path in the stack's table: a path on the machine under test, or on this one"
    raise Unavailable(f"{technology_name}: there is no file {path}", hint)


def read_header(host: Host, path: str, technology_name: str) -> bytes:
    """Return the first `_HEADER_BYTES` of a file, which identify its format; raises Unavailable."""
    if locate_file(host, path, technology_name) == "there":
        return host.run("head", "-c", str(_HEADER_BYTES), path, timeout=30).stdout
    with Path(path).open("rb") as file:
        return file.read(_HEADER_BYTES)


def ensure_on_host(host: Host, launch: LaunchRequest, path: str, technology_name: str) -> str:
    """Return the path of a file on the host, after a copy to the instance's folder if needed; raises Unavailable."""
    if locate_file(host, path, technology_name) == "there":
        return path
    target = str(launch.folder / Path(path).name)
    host.put(Path(path), PurePosixPath(target))
    return target


def hash_files(launch: LaunchRequest, host_paths: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of the booted files, for the instance's proof; `host_paths` has the image first.

    It reads a file once per run, and again if its size or time of modification has changed.
    """
    host = launch.ledger.host

    def hash_file(path: str, host_path: str) -> str:
        state = host.run("stat", "-c", "%s %Y", host_path, timeout=30).text.strip()
        read = lambda: host.run("sha256sum", host_path, timeout=_SECONDS).text.split()[0]  # noqa: E731
        return launch.cache.read_once(f"sha256 of {path}: {state}", read)

    hashes = {path: hash_file(path, host_path) for path, host_path in host_paths.items()}
    return {f"sha256 of {path}" if number else "sha256": value for number, (path, value) in enumerate(hashes.items())}


def disk_usage_bytes(host: Host, files: Iterable[str]) -> int:
    """Return the bytes that the files take on the disk; it follows symbolic links."""
    counted = host.run("du", "--dereference-args", "--total", "--block-size=1", "--", *files, timeout=30).text
    return int(counted.split()[-2])


def create_overlay(host: Host, launch: LaunchRequest, disk: str, form: str) -> str:
    """Make a qcow2 overlay of a disk; return its path. Raises TrialFailed if the disk refers to another file."""
    _refuse_partial_disk(host, disk, form)
    target = str(launch.folder / "written" / "disk.qcow2")
    base = ("-b", disk, "-F", form)
    host.run("qemu-img", "create", "-q", "-f", "qcow2", *base, target, timeout=30)
    return target


def copy_disk(host: Host, launch: LaunchRequest, disk: str, form: str) -> str:
    """Copy a disk to a sparse raw disk; return its path. Raises TrialFailed if the disk refers to another file."""
    _refuse_partial_disk(host, disk, form)
    target = str(launch.folder / "written" / "disk.raw")
    sparse, converted = ("cp", "--reflink=auto", "--sparse=always"), ("qemu-img", "convert", "-O", "raw", "-f", form)
    host.run(*(sparse if form == "raw" else converted), disk, target, timeout=_SECONDS)
    return target


def _refuse_partial_disk(host: Host, disk: str, form: str) -> None:
    """Raise TrialFailed if a disk refers to another file: an untrusted disk could expose any file of the host."""
    information = json.loads(host.run("qemu-img", "info", "-f", form, "--output=json", disk, timeout=30).text)
    about = information.get("format-specific", {}).get("data", {})
    if more := information.get("backing-filename") or about.get("data-file"):
        hint = f"make one file of it: qemu-img convert -O qcow2 {disk} NEW"
        raise TrialFailed(f"{disk}: it is only a part of a disk: it refers to {more}", hint)


def kernel_fault(header: bytes, architecture: Architecture) -> FileFault:
    """Return the reason why a file is no kernel for a machine, with a hint; None if it may be one."""
    if packed := _compression_fault(header):
        return packed
    if header[:4] == b"\x7fELF" and len(header) > 20:
        order = ">" if header[5] == 2 else "<"  # EI_DATA: 2 is big-endian
        (number,) = struct.unpack_from(f"{order}H", header, 18)
        return _architecture_fault(_PROCESSORS.get(number, f"processor {number}"), architecture)
    if is_efi_zboot(header):
        (pe_header,) = struct.unpack_from("<I", header, 0x3C)
        number = int.from_bytes(header[pe_header + 4 : pe_header + 6], "little")
        return _architecture_fault(_PE_MACHINES.get(number, f"processor {number:#x}"), architecture)
    if is_compressed_linux(header) or _MULTIBOOT in header:
        return _architecture_fault("x86-64", architecture)
    if name := _IMAGES.get(header[56:60]):
        return _architecture_fault(name, architecture)
    return "it is not a kernel: neither Linux's, nor ELF, nor multiboot", "a disk is booted with disk = …"


def disk_fault(header: bytes, form: str, boots: bool) -> FileFault:
    """Return the reason why a file is no disk in this format, with a hint; None if it may be one.

    If the PC `boots` from it, a raw disk must have a boot sector. A disk that a kernel mounts needs none.
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
        return what, uefi_hint(X86_64)
    return None


def uefi_hint(architecture: Architecture) -> str:
    """Return the hint that names the firmware for UEFI."""
    firmware, package = architecture.uefi, architecture.localize("ovmf")
    return f'for UEFI on {architecture.title}: firmware = "{firmware}", of Debian\'s package {package}'


def is_compressed_linux(header: bytes) -> bool:
    """Return whether a kernel is a compressed Linux kernel for x86 (bzImage), which some monitors cannot load."""
    return header[0x202:0x206] == b"HdrS"


def is_efi_zboot(header: bytes) -> bool:
    """Return whether a kernel is an EFI program that unpacks a Linux kernel, which few monitors can load."""
    return header[:8] == b"MZ\0\0zimg"


def _architecture_fault(processor: str, architecture: Architecture) -> FileFault:
    if processor == architecture.title:
        return None
    return f"it is made for {processor}, and the machine is {architecture.title}", "name a kernel for this machine"


def _compression_fault(header: bytes) -> FileFault:
    name = next((name for magic, name in _COMPRESSIONS.items() if header.startswith(magic)), "")
    return (f"it is compressed with {name}", "unpack it first") if name else None
