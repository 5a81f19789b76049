"""Architectures: names on arm64, ELF files, and machines that tare does not know."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from tare.model.architecture import ARM64, X86_64, find_architecture, read_elf_architecture, this_architecture
from tare.model.errors import TareError


def test_programs_and_packages_have_local_names() -> None:
    assert ARM64.localize("qemu-system-x86_64") == "qemu-system-aarch64"
    assert ARM64.localize("qemu-system-x86 qemu-utils ovmf") == "qemu-system-arm qemu-utils qemu-efi-aarch64"
    assert X86_64.localize("qemu-system-x86 qemu-utils") == "qemu-system-x86 qemu-utils"


def test_an_elf_file_tells_its_architecture(tmp_path: Path) -> None:
    assert read_elf_architecture(Path(sys.executable).resolve()) is this_architecture()
    file = tmp_path / "program"
    for number, architecture in ((62, X86_64), (183, ARM64), (243, None)):
        file.write_bytes(b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HH", 2, number) + b"\0" * 40)
        assert read_elf_architecture(file) is architecture
    file.write_bytes(b"#!/bin/sh\n".ljust(64, b"\xb7"))
    assert read_elf_architecture(file) is None
    assert read_elf_architecture(tmp_path / "absent") is None


@pytest.mark.parametrize(("machine", "named"), [("riscv64", "riscv64"), ("", "of an unknown architecture")])
def test_an_unknown_architecture_is_refused(machine: str, named: str) -> None:
    with pytest.raises(TareError, match=f"^the machine is {named}$") as error:
        find_architecture(machine)
    assert error.value.hint == "use a machine with x86-64 or arm64"
