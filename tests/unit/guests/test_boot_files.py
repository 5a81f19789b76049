"""What a user's kernel or disk is, by its first bytes."""

from __future__ import annotations

import struct

import pytest

from tare.guests.user_files import disk_fault, kernel_fault
from tare.model.architecture import ARM64, X86_64

BOOT_SECTOR = b"\xeb\x63".ljust(510, b"\0") + b"\x55\xaa"


def elf(machine: int, order: str = "<") -> bytes:
    start = b"\x7fELF\x02" + (b"\x02" if order == ">" else b"\x01")
    return start.ljust(18, b"\0") + struct.pack(f"{order}H", machine) + bytes(64)


def linux() -> bytes:
    """Return the beginning of a compressed kernel for x86."""
    return b"MZ".ljust(0x202, b"\0") + b"HdrS" + bytes(64)


def efi_program(machine: int) -> bytes:
    """Return the beginning of an EFI program that unpacks a kernel."""
    start = b"MZ\0\0zimg".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    return start + b"PE\0\0" + struct.pack("<H", machine) + bytes(64)


@pytest.mark.parametrize(
    "kernel",
    [linux(), elf(62), elf(3), bytes(4096) + b"\x02\xb0\xad\x1b" + bytes(64)],
    ids=["linux", "64", "32", "multi"],
)
def test_a_kernel_for_a_pc_has_no_fault(kernel: bytes) -> None:
    assert kernel_fault(kernel, X86_64) is None


@pytest.mark.parametrize(
    ("kernel", "what"),
    [
        (elf(183), "it is made for arm64, and the machine is x86-64"),
        (elf(22, ">"), "it is made for S/390, and the machine is x86-64"),
        (elf(258), "it is made for processor 258, and the machine is x86-64"),
        (b"MZ".ljust(56, b"\0") + b"ARM\x64", "it is made for arm64, and the machine is x86-64"),
        (efi_program(0xAA64), "it is made for arm64, and the machine is x86-64"),
        (b"\x1f\x8b\x08", "it is compressed with gzip"),
        (b"#!/bin/sh\n", "it is not a kernel: neither Linux's, nor ELF, nor multiboot"),
        (b"", "it is not a kernel: neither Linux's, nor ELF, nor multiboot"),
    ],
)
def test_what_is_no_kernel_for_a_pc_is_named(kernel: bytes, what: str) -> None:
    fault = kernel_fault(kernel, X86_64)
    assert fault is not None
    assert fault[0] == what
    assert fault[1]


def test_a_kernel_for_arm64_fits_an_arm64_machine_only() -> None:
    image = b"MZ".ljust(56, b"\0") + b"ARM\x64"
    assert kernel_fault(image, ARM64) is None
    assert kernel_fault(elf(183), ARM64) is None
    assert kernel_fault(efi_program(0xAA64), ARM64) is None
    assert kernel_fault(linux(), ARM64) == (
        "it is made for x86-64, and the machine is arm64",
        "name a kernel for this machine",
    )


@pytest.mark.parametrize(
    ("disk", "form", "boots"),
    [
        (BOOT_SECTOR, "raw", True),
        (b"QFI\xfb\0\0\0\x03", "qcow2", True),
        (bytes(8192), "raw", False),  # a file system that a kernel mounts
    ],
)
def test_a_disk_in_its_format_has_no_fault(disk: bytes, form: str, boots: bool) -> None:
    assert disk_fault(disk, form, boots) is None


@pytest.mark.parametrize(
    ("disk", "form", "boots", "what", "hint"),
    [
        (b"QFI\xfb\0\0\0\x03", "raw", True, "it is a disk in the format qcow2", 'write disk_format = "qcow2"'),
        (BOOT_SECTOR, "qcow2", True, "it is no disk in the format qcow2", 'write disk_format = "raw"'),
        (b"KDMV\1", "raw", True, "it is a disk in the format vmdk", "convert it: qemu-img convert"),
        (b"\xfd7zXZ\0", "raw", True, "it is compressed with xz", "unpack it first"),
        (b"root:x:0:0\n" * 100, "raw", True, "it is not a disk that a PC boots", "name another file, or a kernel"),
        (bytes(510) + b"\x55\xaa", "raw", True, "its first sector has no program for a BIOS", "firmware = "),
        (b"", "raw", False, "it is empty", "name another file"),
    ],
)
def test_what_is_no_such_disk_is_named_with_what_to_do(
    disk: bytes, form: str, boots: bool, what: str, hint: str
) -> None:
    fault = disk_fault(disk, form, boots)
    assert fault is not None
    assert what in fault[0]
    assert hint in fault[1]
