"""Where fields lie in the kernel's structures: read from its type information, BTF, in a twentieth of a second.

bpftrace can look fields up by itself; it reads all types for that, which takes a second of CPU time. The format is that
of Documentation/bpf/btf.rst of Linux.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

TYPES = Path("/sys/kernel/btf/vmlinux")
_MAGIC = 0xEB9F
_HEADER = struct.Struct("=HBBIIIII")  # magic, version, flags, its own length; offset and length of types and of strings
_STRUCT, _UNION = 4, 5
# The words after a type's first three: for each of its members, and for all of them.
_FOR_EACH = {_STRUCT: 3, _UNION: 3, 6: 2, 13: 2, 15: 3, 19: 3}
_FOR_ALL = {1: 1, 3: 3, 14: 1, 17: 1}


Offsets = Mapping[tuple[str, str], int]  # the bytes from the beginning of a structure to its field, by both their names

# From a task to the kind of an open file; from a packet to its device.
FIELDS = (
    ("task_struct", "files"),
    ("files_struct", "fdt"),
    ("fdtable", "fd"),
    ("file", "f_inode"),
    ("inode", "i_mode"),
    ("file", "private_data"),
    ("socket", "sk"),
    ("sock_common", "skc_family"),  # with which a sock begins
    ("sk_buff", "dev"),
    ("net_device", "rx_handler"),
)


def offsets(types: Path = TYPES) -> Offsets | None:
    """Return where the fields lie in this kernel; None where it does not say so."""
    try:
        found = _Types(types.read_bytes())
        return {place: found.offset(*place) for place in FIELDS}
    except (OSError, ValueError, LookupError, struct.error):
        return None


class _Types:
    """The types of a kernel, each at its index among the words. Raises ValueError, LookupError or struct.error."""

    def __init__(self, data: bytes) -> None:
        magic, _, _, length, types, types_length, strings, strings_length = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("no BTF")
        self._words = memoryview(data)[length + types : length + types + types_length].cast("I")
        self._strings = data[length + strings : length + strings + strings_length]
        words, index = self._words, 0
        self._at = [0]  # of `void`, which has no place
        while index < len(words):
            self._at.append(index)
            info = words[index + 1]
            kind = info >> 24 & 0x1F
            index += 3 + _FOR_EACH.get(kind, 0) * (info & 0xFFFF) + _FOR_ALL.get(kind, 0)

    def offset(self, structure: str, field: str) -> int:
        """Return the bytes from the beginning of a structure to a field, also of a part of it without a name."""
        start, words = self._string(structure), self._words
        for index in self._at[1:]:
            if words[index] == start and words[index + 1] >> 24 & 0x1F == _STRUCT:
                bits = self._within(index, self._string(field))
                if bits is not None and bits % 8 == 0:
                    return bits // 8
        raise LookupError(f"{structure}.{field}")

    def _within(self, index: int, field: int) -> int | None:
        """Return the bits to a field of the type at this index; None if it has no such field."""
        words = self._words
        of_bits, count = words[index + 1] >> 31, words[index + 1] & 0xFFFF
        for member in range(index + 3, index + 3 + 3 * count, 3):
            name, kind, bits = words[member], words[member + 1], words[member + 2]
            bits = bits & 0xFFFFFF if of_bits else bits  # above are a bit field's own bits
            if name == field:
                return bits
            if name == 0 and words[self._at[kind] + 1] >> 24 & 0x1F in {_STRUCT, _UNION}:
                inner = self._within(self._at[kind], field)
                if inner is not None:
                    return bits + inner
        return None

    def _string(self, text: str) -> int:
        """Return where a string begins among the strings, of which each is there once."""
        found = self._strings.find(b"\0" + text.encode() + b"\0")
        if found < 0:
            raise LookupError(text)
        return found + 1
