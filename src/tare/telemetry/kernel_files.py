"""Sources of the kernel's files for the readers: this machine, or a machine over SSH.

A command over SSH takes thousands of times as long as opening a local file. So one command fetches all files of a
sample.
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
from tare.telemetry.procfs import read_page_bytes

THROTTLED = "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"
HARDWARE = "/sys/class/net/*/device"  # exists for interfaces of hardware only

MOUNTS = "/proc/self/mounts"
PRESSURES = ("/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io")

_CHUNK_BYTES = 65536
_MAX_OPEN_FILES = 32  # per reader: the usual limit of a process is 1,024, and a block may have many instances
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
# Prints the texts of the files that match the patterns in $1, and of the other files.
_READ_ALL = 'patterns=$1; shift; exec head -n 1000000 "$@" $patterns /dev/null'
_HEADER = re.compile(r"(?:^|\n)==> (/.*) <==\n")
_TRAFFIC = re.compile(r"/proc/(\d+)/net/dev")
_NUMBER = re.compile(r"^ *(\d+) (/.*)$", re.MULTILINE)


class Files(Protocol):
    """Kernel files of a machine. The methods raise OSError for a file that cannot be read."""

    def begin_sample(self, pids: Sequence[int]) -> None:
        """Start a sample of the machine and of these processes."""

    def text(self, path: str) -> str:
        """Return the text of a file."""

    def short_text(self, path: str) -> str:
        """Return the text of a short file, which one read(2) returns whole."""

    def namespace(self, process: str) -> int:
        """Return the inode number of the network namespace of a sampled process, or of `self`."""

    def find_paths(self, pattern: str) -> Sequence[str]:
        """Return the paths that match THROTTLED or HARDWARE."""

    def page_bytes(self) -> int:
        """Return the size of the machine's pages in bytes."""

    def for_reader(self) -> Files:
        """Return a source for one reader, which must close it."""

    def close(self) -> None:
        """Close all open files."""


class LocalFiles:
    """Kernel files of this machine, read with little CPU time, as the sampler reads them ten times a second.

    Files stay open, because opening a file of /proc takes as long as reading it when the caches are cold, as they are
    between two samples. An open file of a process that has ended raises an error, even if the PID is used again.
    """

    def __init__(self) -> None:
        self._open_files: dict[str, int] = {}

    def begin_sample(self, pids: Sequence[int]) -> None:
        """Do nothing: files are read on demand."""

    def text(self, path: str) -> str:
        """Return the text of a file."""
        return self._read(path, _read_whole)

    def short_text(self, path: str) -> str:
        """Return the text of a short file."""
        return self._read(path, _read_once)

    def namespace(self, process: str) -> int:
        """Return the inode number of a network namespace."""
        return os.stat(f"/proc/{process}/ns/net").st_ino  # noqa: PTH116 - half the time of Path.stat

    def find_paths(self, pattern: str) -> Sequence[str]:
        """Return the paths that match a pattern."""
        return glob.glob(pattern)  # noqa: PTH207 - the callers need texts

    def page_bytes(self) -> int:
        """Return the size of this machine's pages in bytes."""
        return os.sysconf("SC_PAGE_SIZE")

    def for_reader(self) -> LocalFiles:
        """Return a source with other open files."""
        return LocalFiles()  # to close with its instance: an open file can keep a network namespace alive

    def close(self) -> None:
        """Close all files."""
        while self._open_files:
            os.close(self._open_files.popitem()[1])

    def _read(self, path: str, read: Callable[[int], bytes]) -> str:
        """Read a file, which stays open if it can be read and fewer than 32 are open."""
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
    """Kernel files of a machine over SSH, as of the last `begin_sample`. The machine needs a shell, `ls` and `head`.

    If the connection is lost or slow, files are missing in the sample.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._texts: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._traffic_pids = set[int]()  # processes whose traffic a reader has requested

    def begin_sample(self, pids: Sequence[int]) -> None:
        """Fetch all files that the readers need, by one command."""
        files = (*_ALWAYS, *(f"/proc/{pid}/net/dev" for pid in pids if pid in self._traffic_pids))
        self._texts, self._numbers = self._fetch(files, pids)

    def text(self, path: str) -> str:
        """Return the text of a file of the sample."""
        # The reader selects the process whose traffic it reads by the first sample. Fetch its file now, and with each
        # later sample.
        traffic = _TRAFFIC.fullmatch(path)
        if traffic and path not in self._texts and int(traffic[1]) not in self._traffic_pids:
            self._traffic_pids.add(int(traffic[1]))
            self._texts |= self._fetch((path,), ())[0]
        return self.short_text(path)

    def short_text(self, path: str) -> str:
        """Return the text of a file of the sample."""
        if path not in self._texts:
            raise FileNotFoundError(path)
        return self._texts[path]

    def namespace(self, process: str) -> int:
        """Return the inode number of a network namespace in the sample."""
        path = f"/proc/{process}/ns/net"
        if path not in self._numbers:
            raise FileNotFoundError(path)
        return self._numbers[path]

    def find_paths(self, pattern: str) -> Sequence[str]:
        """Return the paths of the sample that match a pattern."""
        return [path for path in (*self._texts, *self._numbers) if fnmatchcase(path, pattern)]

    def page_bytes(self) -> int:
        """Return the size of the machine's pages in bytes, by the files of the sample."""
        return read_page_bytes(self.text)

    def for_reader(self) -> RemoteFiles:
        """Return this source, whose one command fetches the files of all readers."""
        return self

    def close(self) -> None:
        """Do nothing, as no file is open."""

    def _fetch(self, files: Sequence[str], pids: Sequence[int]) -> tuple[dict[str, str], dict[str, int]]:
        words = (" ".join(files), " ".join(map(str, pids)))
        try:
            text = self._host.run("sh", "-c", _GATHER, "sh", *words, timeout=_ANSWER_SECONDS, check=False).text
        except TareError:
            return {}, {}
        return parse_gathered(text)


def parse_gathered(text: str) -> tuple[dict[str, str], dict[str, int]]:
    """Parse the command's output: texts of files and inode numbers, by path; empty if the output is incomplete."""
    first, *parts = _HEADER.split(text)
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    if "/dev/null" not in texts:  # the last file: the connection has cut off the output
        return {}, {}
    return texts, {path: int(number) for number, path in _NUMBER.findall(first)}


def pid_of_path(path: str) -> int:
    """Return the PID in a path below /proc."""
    return int(path.split("/")[2])


def read_files(host: Host, paths: Sequence[str], patterns: Sequence[str] = ()) -> Mapping[str, str]:
    """Return the texts of files of a host by path, without files that are empty or cannot be read.

    Over SSH, one command reads all files, also those that match a shell pattern; patterns hold no blanks.
    """
    if isinstance(host, LocalHost):
        matching = (path for pattern in patterns for path in glob.glob(pattern))  # noqa: PTH207 - texts are needed
        return {path: text for path in (*paths, *matching) if (text := read_text(path))}
    words = ("sh", "-c", _READ_ALL, "sh", " ".join(patterns), *paths)
    texts, _ = parse_gathered(host.run(*words, timeout=_READ_SECONDS, check=False).text)
    return {path: text for path, text in texts.items() if text}


def read_group_files(host: Host, pids: Sequence[int]) -> Mapping[str, str]:
    """Return the texts of the host's mounts and of the lists of control groups of processes, by path."""
    return read_files(host, (MOUNTS, *(f"/proc/{pid}/cgroup" for pid in pids)))
