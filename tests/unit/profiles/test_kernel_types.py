"""Where fields lie in the kernel's structures."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tare.profiles.kernel_types import FIELDS, offsets

INT, POINTER, STRUCT, UNION, ENUM64 = 1, 2, 4, 5, 19
# As in Linux, but smaller: the device of a packet and the handler of a device are in parts without a name.
STRUCTURES = {
    "task_struct": (("state", 0), ("files", 64)),
    "files_struct": (("fdt", 128),),
    "fdtable": (("max_fds", 0), ("fd", 64)),
    "file": (("f_inode", 256), ("private_data", 192)),
    "inode": (("i_mode", 16),),
    "socket": (("sk", 320),),
    "sock_common": (("skc_family", 128),),
}


class Btf:
    """Makes type information, as Documentation/bpf/btf.rst describes it."""

    def __init__(self) -> None:
        self.types = b""
        self.strings = b"\0"
        self.count = 0

    def text(self, text: str) -> int:
        """Return where a string is; each is there once."""
        if not text:
            return 0
        if (found := self.strings.find(f"\0{text}\0".encode())) >= 0:
            return found + 1
        self.strings += text.encode() + b"\0"
        return len(self.strings) - len(text) - 1

    def add(self, kind: int, name: str, *words: int, count: int = 0, flag: int = 0) -> int:
        """Add a type; return its number."""
        self.types += struct.pack("=III", self.text(name), flag << 31 | kind << 24 | count, 8)
        self.types += struct.pack(f"={len(words)}I", *words)
        self.count += 1
        return self.count

    def structure(self, name: str, *members: tuple[str, int, int], kind: int = STRUCT, flag: int = 0) -> int:
        """Add a structure of members with their type and bits; return its number."""
        words = [word for member, of, bits in members for word in (self.text(member), of, bits)]
        return self.add(kind, name, *words, count=len(members), flag=flag)

    def bytes(self) -> bytes:
        """Return all of it."""
        header = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.strings))
        return header + self.types + self.strings


def made(without: str = "") -> bytes:
    btf = Btf()
    long = btf.add(INT, "long", 64)
    btf.add(ENUM64, "huge", *range(6), count=2)
    for name, members in STRUCTURES.items():
        btf.structure(name, *((member, long, bits) for member, bits in members if member != without))
    pointer = btf.add(POINTER, "")
    inner = btf.structure("", ("next", pointer, 0), ("dev", pointer, 128))
    either = btf.structure("", ("", inner, 0), ("tree", long, 0), kind=UNION)
    btf.structure("sk_buff", ("users", long, 0), ("", either, 64))
    part = btf.structure("", ("name", long, 0), ("rx_handler", pointer, 8 << 24 | 64), flag=1)  # it has bit fields
    btf.structure("net_device", ("", part, 512))
    return btf.bytes()


def test_fields_are_found_also_in_parts_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "types").write_bytes(made())
    found = offsets(tmp_path / "types")
    assert found == dict(zip(FIELDS, (8, 16, 8, 32, 2, 24, 40, 16, 24, 72), strict=True))


def test_this_kernel_says_where_they_are() -> None:
    found = offsets()
    assert found is not None
    assert found.keys() == set(FIELDS)
    assert all(0 <= bytes_ < 1 << 16 for bytes_ in found.values())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not BTF".ljust(64),
        made()[:100],
        made("fdt"),
        made().replace(b"sk_buff", b"sk_buf2"),
        made()[:24] + b"\xff" * 64,
    ],
)
def test_what_says_less_says_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "types").write_bytes(data)
    assert offsets(tmp_path / "types") is None
    assert offsets(tmp_path / "none") is None
