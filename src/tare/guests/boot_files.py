"""What a user's kernel or disk is, by its first bytes: what cannot boot on a PC is refused before anything starts."""

from __future__ import annotations

import struct

_PROCESSORS = {8: "MIPS", 20: "PowerPC", 21: "PowerPC", 22: "S/390", 40: "ARM", 183: "AArch64", 243: "RISC-V"}
_PC = (3, 62)  # the ELF numbers of x86, of 32 and 64 bits
_IMAGES = {b"ARM\x64": "AArch64", b"RSC\x05": "RISC-V"}  # of Linux, at byte 56
_MULTIBOOT = struct.pack("<I", 0x1BADB002)
_PACKED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
_QCOW2 = b"QFI\xfb"
_OTHER_DISKS = {b"KDMV": "vmdk", b"vhdxfile": "vhdx", b"conectix": "vpc", b"<<< ": "vdi", b"# Disk": "vmdk"}
_CODE_BYTES, _SIGNATURE = 440, b"\x55\xaa"

Fault = tuple[str, str] | None


def kernel_fault(begins: bytes) -> Fault:
    """Return why a file is no kernel for a PC, and what to do; None for one that may be."""
    if packed := _packed(begins):
        return packed
    if begins[:4] == b"\x7fELF" and len(begins) > 20:
        order = ">" if begins[5] == 2 else "<"
        (number,) = struct.unpack_from(f"{order}H", begins, 18)
        return None if number in _PC else _foreign(_PROCESSORS.get(number, f"processor {number}"))
    if begins[0x202:0x206] == b"HdrS" or _MULTIBOOT in begins:
        return None
    if name := _IMAGES.get(begins[56:60]):
        return _foreign(name)
    return "it is not a kernel: neither Linux's for x86, nor ELF, nor multiboot", "a disk is booted with disk = …"


def disk_fault(begins: bytes, form: str, boots: bool) -> Fault:
    """Return why a file is no disk in this format, and what to do; None for one that may be.

    A disk that `boots` must begin as a PC's does: others are mounted by a kernel.
    """
    fault = _packed(begins) or _other_format(begins, form)
    return _boot_sector_fault(begins) if boots and form == "raw" and not fault else fault


def _other_format(begins: bytes, form: str) -> Fault:
    for magic, other in _OTHER_DISKS.items():
        if begins.startswith(magic):
            return f"it is a disk in the format {other}", "convert it: qemu-img convert -O qcow2 DISK NEW.qcow2"
    if begins.startswith(_QCOW2) != (form == "qcow2"):
        other, right = ("no disk", "raw") if form == "qcow2" else ("a disk", "qcow2")
        return f"it is {other} in the format qcow2", f'write disk_format = "{right}"'
    return None if begins else ("it is empty", "name another file")


def _boot_sector_fault(begins: bytes) -> Fault:
    if begins[510:512] != _SIGNATURE:
        return "it is not a disk that a PC boots: its first sector has no signature", "name another file, or a kernel"
    if not begins[:_CODE_BYTES].strip(b"\0"):
        what = "its first sector has no program for a BIOS: it is made for UEFI, or for another processor"
        return what, 'for UEFI on x86-64: firmware = "/usr/share/ovmf/OVMF.fd", of Debian\'s package ovmf'
    return None


def is_compressed_linux(begins: bytes) -> bool:
    """Return whether a kernel is Linux's compressed one for x86, which some monitors cannot load."""
    return begins[0x202:0x206] == b"HdrS"


def _foreign(processor: str) -> Fault:
    return f"it is made for {processor}, not for x86", "tare boots machines of its own architecture, x86-64, only"


def _packed(begins: bytes) -> Fault:
    name = next((name for magic, name in _PACKED.items() if begins.startswith(magic)), "")
    return (f"it is compressed with {name}", "unpack it first") if name else None
