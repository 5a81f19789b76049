"""Programs of another architecture on this machine: qemu-user, which the kernel starts for them (binfmt_misc).

Installing packages in an image runs their programs. The registration holds for the whole machine, and ends with the
build; one that the machine already has is used as it is. Builds that run at the same time have one each.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare.hosts.ledger import Ledger, ledger_folder
from tare.hosts.local import LocalHost
from tare.model.architecture import Architecture, this_architecture
from tare.model.errors import TareError, TrialFailed
from tare.model.trial import Problem

_HOST = LocalHost()
_SECONDS = 30.0
_FOLDER = "/proc/sys/fs/binfmt_misc"
# In a private mount namespace, as most machines have nothing mounted there, or an automount of systemd's.
_IN_BINFMT = ("unshare", "--mount", "sh", "-ec", f'mount -t binfmt_misc none {_FOLDER}; cd {_FOLDER}; eval "$1"', "sh")
# The kernel opens the interpreter at once (F), so that it needs not be in the image.
_LIST = 'for entry in *; do case $entry in register | status | tare-*) ;; *) cat "$entry"; echo ;; esac; done'
_REGISTER = "printf %s '{line}' >register"
_UNREGISTER = "[ ! -e {name} ] || echo -1 >{name}"
# Since Linux 6.7, registrations end with the last mount.
_STAY_MOUNTED = "echo mounted; exec cat"
_HEADER = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + b"\x02\0"
_PT_INTERP = struct.pack("<I", 3)
_MASK = b"\xff" * 7 + b"\0" + b"\xff" * 8 + b"\xfe\xff\xff\xff"  # any ABI; programs and position-independent programs


def emulation_problems(architecture: Architecture) -> list[Problem]:
    """Return the problem that prevents an architecture's programs from running on this machine; [] if there is none."""
    if architecture is this_architecture() or _find_emulator(architecture) or _is_registered(architecture):
        return []
    return [Problem.from_packages(f"qemu-{architecture.machine}-static is not installed", "qemu-user-static")]


@contextmanager
def emulate_programs(architecture: Architecture) -> Iterator[None]:
    """Context manager: let programs of an architecture run on this machine. Raises TareError if the kernel cannot."""
    if architecture is this_architecture() or _is_registered(architecture):
        yield
        return
    name, magic = f"tare-{architecture.machine}-{os.getpid()}", _HEADER + architecture.elf.to_bytes(2, "little")
    fields = ("", name, "M", "", _escape(magic), _escape(_MASK), _find_emulator(architecture), "F")
    unregister = (*_IN_BINFMT, _UNREGISTER.format(name=name))
    ledger = Ledger(ledger_folder() / f"{name}.jsonl")
    hold = _HOST.spawn(*_IN_BINFMT, _STAY_MOUNTED, die_with_parent=True)
    with ledger.lock(), ledger.register_undo(*unregister), hold as mounted:
        try:
            mounted.read_line(_SECONDS)
            _HOST.run(*_IN_BINFMT, _REGISTER.format(line=":".join(fields)), timeout=_SECONDS)
        except TrialFailed as error:
            hint = "take the image from a machine of that architecture: tare image --archives FOLDER, there and here"
            raise TareError(f"cannot run programs for {architecture.title} here: {error}", hint) from error
        yield


def _find_emulator(architecture: Architecture) -> str:
    """Return the path of a static qemu-user for an architecture; "" if none is installed.

    One with shared libraries, such as qemu-aarch64 of Debian 12, would look for them in the image.
    """
    names = (f"qemu-{architecture.machine}-static", f"qemu-{architecture.machine}")
    return next((path for name in names if (path := shutil.which(name)) and _is_static(Path(path))), "")


def _is_static(program: Path) -> bool:
    """Return whether a program of ELF64 needs no loader: it has no program header of type PT_INTERP."""
    with program.open("rb") as file:
        header = file.read(4096)
    if not header.startswith(b"\x7fELF"):
        return False
    (offset,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
    return all(header[at : at + 4] != _PT_INTERP for at in range(offset, offset + size * count, size))


def _is_registered(architecture: Architecture) -> bool:
    """Return whether the kernel starts programs of an architecture also where their interpreter is not installed."""
    entries = _HOST.run(*_IN_BINFMT, _LIST, timeout=_SECONDS, check=False).text.split("\n\n")
    number = architecture.elf.to_bytes(2, "little").hex()
    for lines in map(str.splitlines, entries):
        fields = dict(line.partition(" ")[::2] for line in lines)
        matches = fields.get("magic", "")[36:40] == number and fields.get("offset") == "0"
        if matches and "enabled" in fields and "F" in fields.get("flags:", ""):
            return True
    return False


def _escape(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)
