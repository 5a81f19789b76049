"""The source of the kernel's files for the readers: this machine, or one over SSH.

A command over SSH costs thousands of times as much as opening a local file. So one command fetches all that a sample
needs.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.errors import TareError
from tare.model.files import read_text

THROTTLED = "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"
HARDWARE = "/sys/class/net/*/device"  # interfaces with hardware behind them have it

PRESSURES = ("/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io")

_CHUNK_BYTES = 65536
_MAX_OPEN_FILES = 32  # of the files of one reader: a process may have 1,024 open, and a block many instances
_COUNTERS = ("/proc/stat", "/proc/diskstats", "/proc/net/dev", "/proc/meminfo", "/proc/vmstat", "/proc/uptime")
_ALWAYS = (*_COUNTERS, *PRESSURES, THROTTLED)
_ANSWER_SECONDS = 5.0
_READ_SECONDS = 30.0
# Prints the inode numbers of links, then the texts of the files in $1 and of the processes in $2. `head` prints the
# path above each of two or more texts; its limit is higher than the lines of any of these files.
_GATHER = f"""
numbers="/proc/self/ns/net {HARDWARE}" files=$1
for process in $2; do
    numbers="$numbers /proc/$process/ns/net"
    files="$files /proc/$process/stat /proc/$process/statm /proc/$process/io"
done
ls -d -i -L $numbers 2>/dev/null
head -n 1000000 $files /dev/null 2>/dev/null
true
"""
_HEADER = re.compile(r"(?:^|\n)==> (/.*) <==\n")
_TRAFFIC = re.compile(r"/proc/(\d+)/net/dev")
_NUMBER = re.compile(r"^ *(\d+) (/.*)$", re.MULTILINE)


class Files(Protocol):
    """The kernel's files of a machine. The methods raise OSError for what cannot be read."""

    def begin_sample(self, pids: Sequence[int]) -> None:
        """Begin a sample of these processes."""

    def text(self, path: str) -> str:
        """Return the text of a file."""

    def short_text(self, path: str) -> str:
        """Return the text of a short file, which the kernel returns in one read."""

    def namespace(self, process: str) -> int:
        """Return the inode number of the network namespace of a sampled process, or of `self`."""

    def find_paths(self, pattern: str) -> Sequence[str]:
        """Return the paths that match THROTTLED or HARDWARE."""

    def for_reader(self) -> Files:
        """Return the files for one reader, which closes them."""

    def close(self) -> None:
        """Let go what is open."""


class LocalFiles:
    """The files of this machine, read with little work: the sampler asks ten times a second.

    A file stays open: between two samples the caches are cold, and then to find and open one of /proc takes as long as
    to read it. An open file of a process that has ended raises an error, also when its number is used again.
    """

    def __init__(self) -> None:
        self._open_files: dict[str, int] = {}

    def begin_sample(self, pids: Sequence[int]) -> None:
        """Do nothing: files are read on demand."""

    def text(self, path: str) -> str:
        """Read a file to its end."""
        return self._read(path, _read_whole)

    def short_text(self, path: str) -> str:
        """Read a file in one read."""
        return self._read(path, _read_once)

    def namespace(self, process: str) -> int:
        """Return the inode number behind the link."""
        return os.stat(f"/proc/{process}/ns/net").st_ino  # noqa: PTH116 - half the time, for every process and sample

    def find_paths(self, pattern: str) -> Sequence[str]:
        """Find paths."""
        return glob.glob(pattern)  # noqa: PTH207 - texts are what is wanted

    def for_reader(self) -> LocalFiles:
        """Return files that are closed independently of these: an open file can keep a network namespace alive."""
        return LocalFiles()

    def close(self) -> None:
        """Close all files."""
        while self._open_files:
            os.close(self._open_files.popitem()[1])

    def _read(self, path: str, read: Callable[[int], bytes]) -> str:
        """Read a file, which stays open if it can be read and there are not too many."""
        descriptor = self._open_files.get(path)
        known = descriptor is not None
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = read(descriptor)
        except OSError:
            self._open_files.pop(path, None)
            os.close(descriptor)
            raise
        if not known and len(self._open_files) < _MAX_OPEN_FILES:
            self._open_files[path] = descriptor
        elif not known:
            os.close(descriptor)
        return content.decode("utf-8", "replace")


def _read_once(descriptor: int) -> bytes:
    return os.pread(descriptor, _CHUNK_BYTES, 0)


def _read_whole(descriptor: int) -> bytes:
    content = b""
    while chunk := os.pread(descriptor, _CHUNK_BYTES, len(content)):
        content += chunk
    return content


class RemoteFiles:
    """The files of a machine over SSH, as of the last `begin_sample`. The machine needs a shell, `ls` and `head`.

    What a lost or slow connection does not deliver is missing from the sample.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._texts: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._traffic_pids = set[int]()  # whose traffic is wanted, known after the first answer

    def begin_sample(self, pids: Sequence[int]) -> None:
        """Fetch all that the readers will ask for."""
        files = (*_ALWAYS, *(f"/proc/{pid}/net/dev" for pid in pids if pid in self._traffic_pids))
        self._texts, self._numbers = self._fetch(files, pids)

    def text(self, path: str) -> str:
        """Return the text of a file; the traffic of a process is fetched now, and from then on with the others."""
        traveler = _TRAFFIC.fullmatch(path)
        if traveler and path not in self._texts and int(traveler[1]) not in self._traffic_pids:
            self._traffic_pids.add(int(traveler[1]))
            self._texts |= self._fetch((path,), ())[0]
        return self.short_text(path)

    def short_text(self, path: str) -> str:
        """Return a text of the last `begin_sample`."""
        if path not in self._texts:
            raise FileNotFoundError(path)
        return self._texts[path]

    def namespace(self, process: str) -> int:
        """Return an inode number of the last `begin_sample`."""
        path = f"/proc/{process}/ns/net"
        if path not in self._numbers:
            raise FileNotFoundError(path)
        return self._numbers[path]

    def find_paths(self, pattern: str) -> Sequence[str]:
        """Return the paths of the last `begin_sample` that match."""
        return [path for path in (*self._texts, *self._numbers) if fnmatchcase(path, pattern)]

    def for_reader(self) -> RemoteFiles:
        """Return these files: one command brings those of all readers."""
        return self

    def close(self) -> None:
        """Do nothing: none is open."""

    def _fetch(self, files: Sequence[str], pids: Sequence[int]) -> tuple[dict[str, str], dict[str, int]]:
        words = (" ".join(files), " ".join(map(str, pids)))
        try:
            text = self._host.run("sh", "-c", _GATHER, "sh", *words, timeout=_ANSWER_SECONDS, check=False).text
        except TareError:
            return {}, {}
        return parse_gathered(text)


def parse_gathered(text: str) -> tuple[dict[str, str], dict[str, int]]:
    """Parse the command's output: texts of files and inode numbers, by path.

    If the empty file at the end is missing, the connection has cut off the output.
    """
    first, *parts = _HEADER.split(text)
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    if "/dev/null" not in texts:
        return {}, {}
    return texts, {path: int(number) for number, path in _NUMBER.findall(first)}


def read_files(host: Host, paths: Sequence[str]) -> Mapping[str, str]:
    """Read files of a host, over SSH by one command. Those that cannot be read, or are empty, are missing."""
    if isinstance(host, LocalHost):
        return {path: text for path in paths if (text := read_text(path))}
    output = host.run("head", "-n", "1000000", *paths, "/dev/null", timeout=_READ_SECONDS, check=False)
    return parse_gathered(output.text)[0]
