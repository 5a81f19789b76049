"""Check of an image's layers before they are unpacked, because a small file can unpack to a full disk.

A layer is a tar archive, compressed by gzip or not. This parser reads headers as umoci does, which unpacks the layers
with Go's archive/tar. Python 3.11's tarfile cannot be used: it reads other attributes in the padding of a header, none
after a signed length, a size of 0 after a null byte, and only the first of several gzip members. A layer that umoci
unpacks to a full disk can look empty to tarfile (tests/unit/images/test_layers.py).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tare.model.errors import TareError

_BLOCK = 512
_CHUNK = 1 << 20
_MAX_HEADER_BYTES = 1 << 20  # of the long name or the attributes of one file
_MAX_FILES = 2_000_000
# Fields of a header (POSIX.1, "ustar Interchange Format").
_NAME, _SIZE, _CHECKSUM, _TYPE = slice(0, 100), slice(124, 136), slice(148, 156), slice(156, 157)
_DEVICE_MAJOR, _DEVICE_MINOR = slice(329, 337), slice(337, 345)
_PREFIXES = (slice(345, 476), slice(345, 500))  # in star's format, where times follow the prefix, and in ustar's
# Types of files.
_WITHOUT_CONTENT = b"123456"  # links, devices, folders, pipes: Go ignores the size in their headers
_EXTENDED_HEADERS = b"LKxg"  # they describe the next file: a long name or link (GNU), or attributes (POSIX)
_LONG_NAME, _ATTRIBUTES, _SPARSE_FILE = b"L", b"x", b"S"
_CHARACTER_DEVICE, _BLOCK_DEVICE = b"3", b"4"
_BEFORE_POSIX = b"\0"  # a file, or a folder if the path ends in a slash
_ESCAPING_PARTS = (b"..", b".wh.", b".wh..", b".wh...")
# Devices that every engine creates in a container: null, zero, full, random, urandom, tty, console, ptmx.
_HARMLESS_DEVICES = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2)}
_DAMAGED = "get or build the image again"


@dataclass(frozen=True)
class UnpackedSize:
    """Size of the unpacked layers."""

    content_bytes: int = 0
    files: int = 0


def check_unpacked_size(layers: Iterable[Path], max_bytes: int) -> UnpackedSize:
    """Return the size of the unpacked layers, without unpacking them.

    Raises TareError if the size exceeds `max_bytes`, as soon as that is clear, and for layers that are damaged or have
    devices, sparse files or escaping paths.
    """
    content_bytes = files = 0
    for layer in layers:
        for size_bytes in _file_sizes_in(layer, max_bytes):
            content_bytes, files = content_bytes + size_bytes, files + 1
            if content_bytes > max_bytes:
                raise too_large_error(max_bytes)
            if files > _MAX_FILES:
                raise TareError(f"the image has more than {_MAX_FILES} files", "choose a smaller image")
    return UnpackedSize(content_bytes, files)


def _file_sizes_in(layer: Path, max_bytes: int) -> Iterator[int]:
    """Yield the size of each file's content in a layer; raises TareError."""
    try:
        with layer.open("rb") as file:
            is_compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            yield from _parse_file_sizes(gzip.GzipFile(fileobj=file) if is_compressed else file, max_bytes)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TareError(f"the image is damaged: a layer of it cannot be unpacked: {error}", _DAMAGED) from error


def too_large_error(max_bytes: int) -> TareError:
    """Return the error about an image that unpacks to more than `max_bytes`."""
    what = f"the image unpacks to more than {max_bytes >> 20} MiB"
    return TareError(what, 'choose a smaller one, or let it be larger: limit = "…" in [image]')


def _parse_file_sizes(stream: BinaryIO | gzip.GzipFile, max_bytes: int) -> Iterator[int]:
    """Yield the size of each file's content in bytes; raises TareError and EOFError."""
    extended = _ExtendedHeaders()
    while True:
        header = _read(stream, _BLOCK)
        if not header.strip(b"\0"):
            return
        _verify_checksum(header)
        file_type, size = header[_TYPE], _parse_number(header[_SIZE])
        if file_type in _EXTENDED_HEADERS:
            if size > _MAX_HEADER_BYTES:
                raise TareError("the image has a file with a name or attributes of over 1 MiB", "choose another image")
            extended.add(file_type, _read(stream, _pad_to_block(size))[:size])
            continue
        if file_type == _SPARSE_FILE:
            raise _sparse_error()
        paths = (*_header_paths(header), *extended.paths)
        for path in paths:
            _refuse_escaping(path)
        _refuse_device(header, file_type)
        size = _content_size(file_type, size if extended.size is None else extended.size, paths)
        extended = _ExtendedHeaders()
        if size > max_bytes:
            raise too_large_error(max_bytes)
        _skip(stream, _pad_to_block(size))
        yield size


@dataclass
class _ExtendedHeaders:
    """Content of the extended headers that precede a file's header; `size` is None if they have none."""

    size: int | None = None
    paths: list[bytes] = field(default_factory=list)

    def add(self, header_type: bytes, text: bytes) -> None:
        """Add an extended header: a long name, or attributes as records of `LENGTH NAME=VALUE` and a line feed.

        Other types are ignored: long names of links, and attributes of all files (`g`), which Go applies to none.
        """
        if header_type == _LONG_NAME:
            self.paths.append(text.partition(b"\0")[0])
        while text and header_type == _ATTRIBUTES:
            length, blank, _ = text.partition(b" ")
            if not blank or not length.isdigit() or not len(length) + 2 < int(length) <= len(text):
                raise TareError("the image is damaged: the attributes of a file cannot be read", _DAMAGED)
            name, _, value = text[len(length) + 1 : int(length) - 1].partition(b"=")
            self._record(name, value)
            text = text[int(length) :]

    def _record(self, name: bytes, value: bytes) -> None:
        if name.startswith(b"GNU.sparse."):
            raise _sparse_error()
        if name == b"path":
            self.paths.append(value)
        if name == b"size":
            if not value.isdigit() or len(value) > 18:
                raise TareError("the image is damaged: a file's size is no number", _DAMAGED)
            self.size = int(value)


def _header_paths(header: bytes) -> Iterator[bytes]:
    """Yield the paths that a file's header may mean: the name, and the name after the prefix of ustar and of star.

    Go also reads a prefix in the GNU format, if the times at the same place are invalid.
    """
    name = header[_NAME].partition(b"\0")[0]
    yield name
    for field_of_prefix in _PREFIXES:
        if prefix := header[field_of_prefix].partition(b"\0")[0]:
            yield prefix + b"/" + name


def _content_size(file_type: bytes, stated_size: int, paths: Iterable[bytes]) -> int:
    """Return the size of the content that follows a header; raises TareError for a folder with content."""
    if file_type in _WITHOUT_CONTENT:
        return 0
    if stated_size and file_type == _BEFORE_POSIX and any(path.endswith(b"/") for path in paths):
        raise TareError("the image is damaged: a folder in it has content", _DAMAGED)
    return stated_size


def _refuse_escaping(path: bytes) -> None:
    """Raise TareError for a path that leads out of its folder, or for its whiteout."""
    # A whiteout `.wh...` makes umoci remove the files above the root.
    if any(part in _ESCAPING_PARTS for part in path.split(b"/")):
        what = f"the image has a path that leads out of a folder: {path[:200].decode('utf-8', 'replace')!r}"
        raise TareError(what, "choose another image: this one may do harm")


def _read(stream: BinaryIO | gzip.GzipFile, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("it ends early")
    return data


def _skip(stream: BinaryIO | gzip.GzipFile, size: int) -> None:
    while size > 0:
        size -= len(_read(stream, min(size, _CHUNK)))


def _pad_to_block(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _verify_checksum(header: bytes) -> None:
    """Raise TareError if a header's checksum is wrong; the checksum counts its own bytes as blanks."""
    with_blanks = header[: _CHECKSUM.start] + 8 * b" " + header[_CHECKSUM.stop :]
    if sum(with_blanks) != _parse_number(header[_CHECKSUM]):
        raise TareError("the image is damaged: a layer of it is no tar archive", _DAMAGED)


def _parse_number(field: bytes) -> int:
    """Parse a number: octal digits, or a big-endian binary number if the first bit is set. Raises TareError."""
    if field[:1] >= b"\x80":
        number = int.from_bytes(bytes((field[0] & 0x7F,)) + field[1:], "big")
    else:
        digits = field.strip(b" \0")
        if digits.strip(b"01234567"):
            raise TareError("the image is damaged: a layer of it has a size that is no number", _DAMAGED)
        number = int(digits or b"0", 8)
    if number >= 1 << 63:
        raise TareError("the image is damaged: a layer of it has a size below 0", _DAMAGED)
    return number


def _sparse_error() -> TareError:
    return TareError("the image has a sparse file, which can hold any size", "pack it without holes: tar without -S")


def _refuse_device(header: bytes, file_type: bytes) -> None:
    """Raise TareError for a block device, and for a character device that not every engine creates."""
    if file_type not in (_CHARACTER_DEVICE, _BLOCK_DEVICE):
        return
    device = (_parse_number(header[_DEVICE_MAJOR]), _parse_number(header[_DEVICE_MINOR]))
    if file_type == _BLOCK_DEVICE or device not in _HARMLESS_DEVICES:
        name = header[_NAME].rstrip(b"\0").decode("utf-8", "replace")
        what = f"the image has a device in it: {name!r}, {device[0]}:{device[1]}"
        raise TareError(what, "build it without: an engine makes the devices that a container may use")
