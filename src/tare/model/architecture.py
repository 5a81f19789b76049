"""Processor architectures: the names of programs, packages and devices that differ between x86-64 and arm64 machines.

Elsewhere, programs and packages have their names on x86-64; `Architecture.localize` translates them. A technology that
runs on one architecture only may have other names.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tare.model.errors import TareError

_ELF_MAGIC = b"\x7fELF"
_ELF_MACHINE = slice(18, 20)  # of the header: e_machine, little-endian on both architectures


@dataclass(frozen=True, eq=False, repr=False)  # a constant: compared by identity, and known by its name
class Architecture:
    """Architecture of a machine.

    - `machine` is the kernel's name (`uname -m`), `debian` that of Debian, of Go and of OCI images, `title` that in
      messages. `elf` is the machine number in ELF files.
    - QEMU's program is `qemu`, and the machine that it emulates for guests that boot tare's kernel is `board`.
    - `console` is the serial port of such a machine in Linux; `early_console` has the words of the kernel's command
      line that print there from the start.
    - `libvirt_features` are the features of such a machine in libvirt's XML.
    - `efi` is the suffix of UEFI programs, as in BOOTX64.EFI, and `uefi` the firmware of UEFI, whose Debian package is
      ovmf. A machine that `has_bios` boots from a disk without it.
    - `kvm_fix` tells how to get a missing /dev/kvm.
    - `local_names` has the names of programs and Debian packages by their names on x86-64.
    """

    machine: str
    debian: str
    title: str
    elf: int
    qemu: str
    board: str
    console: str
    early_console: str
    libvirt_features: str
    efi: str
    uefi: str
    has_bios: bool
    kvm_fix: str
    local_names: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the kernel's name."""
        return self.machine

    def localize(self, name: str) -> str:
        """Return the name that a program or a Debian package of x86-64 has here; several packages have spaces."""
        return " ".join(self.local_names.get(word, word) for word in name.split(" "))

    @property
    def gnu(self) -> str:
        """Prefix of the GNU compiler's programs, with the name of the system."""
        return f"{self.machine}-linux-gnu"


X86_64 = Architecture(
    machine="x86_64",
    debian="amd64",
    title="x86-64",
    elf=62,
    qemu="qemu-system-x86_64",
    board="q35",
    console="ttyS0",
    early_console="earlyprintk=serial,ttyS0,115200",
    libvirt_features="<acpi/><apic/>",
    efi="x64",
    uefi="/usr/share/ovmf/OVMF.fd",
    has_bios=True,
    kvm_fix="load kvm_intel or kvm_amd, or turn on nesting on the machine around this one",
    local_names={},
)
ARM64 = Architecture(
    machine="aarch64",
    debian="arm64",
    title="arm64",
    elf=183,
    qemu="qemu-system-aarch64",
    # Without a version, QEMU chooses an interrupt controller that most machines cannot virtualize.
    board="virt,gic-version=max",
    console="ttyAMA0",
    early_console="earlycon",
    libvirt_features="<gic/>",  # ACPI would need UEFI
    efi="aa64",
    uefi="/usr/share/qemu-efi-aarch64/QEMU_EFI.fd",
    has_bios=False,
    kvm_fix="use a machine that starts Linux at EL2, such as bare metal: most virtual machines do not",
    local_names={
        "qemu-system-x86_64": "qemu-system-aarch64",
        "qemu-system-x86": "qemu-system-arm",
        "linux-image-amd64": "linux-image-arm64",
        "linux-image-cloud-amd64": "linux-image-cloud-arm64",
        "ovmf": "qemu-efi-aarch64",
    },
)
ARCHITECTURES: Mapping[str, Architecture] = {each.machine: each for each in (X86_64, ARM64)}


def find_architecture(machine: str) -> Architecture:
    """Return the architecture with the kernel's name `machine`. Raises TareError if tare does not know it."""
    if machine not in ARCHITECTURES:
        known = " or ".join(each.title for each in ARCHITECTURES.values())
        raise TareError(f"the machine is {machine or 'of an unknown architecture'}", f"use a machine with {known}")
    return ARCHITECTURES[machine]


def this_architecture() -> Architecture:
    """Return the architecture of this machine. Raises TareError if tare does not know it."""
    return find_architecture(platform.machine())


def read_elf_architecture(path: Path) -> Architecture | None:
    """Return the architecture that an ELF file is built for; None for other files and unknown architectures."""
    try:
        with path.open("rb") as file:
            header = file.read(_ELF_MACHINE.stop)
    except OSError:
        return None
    number = int.from_bytes(header[_ELF_MACHINE], "little")
    found = (each for each in ARCHITECTURES.values() if header.startswith(_ELF_MAGIC) and each.elf == number)
    return next(found, None)
