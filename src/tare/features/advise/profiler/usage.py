"""What the kernel's own figures say of an application: those of its control group and in /proc, without tracing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import sub
from pathlib import Path
from typing import NamedTuple

from tare.features.advise.profiler.profile import Usage
from tare.features.advise.profiler.targets import Target
from tare.hosts.host import Host
from tare.model.errors import TareError
from tare.telemetry.instance_reader import InstanceReader
from tare.telemetry.kernel_files import LocalFiles
from tare.telemetry.procfs import parse_interfaces, parse_process_times, read_as

_HINT = "watch it for less with --seconds, or let tare run it: tare profile -- COMMAND"
_RESOURCES = ("cpu", "memory", "io")
_PROPORTIONAL = re.compile(r"^Pss: +(\d+) kB$", re.MULTILINE)
_THREADS = re.compile(r"^Threads:\s+(\d+)$", re.MULTILINE)
# Calls that read or write by other means than a socket's own: the kernel counts them for each process.
_READS_AND_WRITES = re.compile(r"^sysc[rw]: (\d+)$", re.MULTILINE)


class Pulse(NamedTuple):
    """How much an application has done so far: packets in its network namespace, and reads and writes."""

    packets: int
    reads_and_writes: int

    def since(self, earlier: Pulse) -> Pulse:
        """Return the difference from an earlier pulse."""
        return Pulse(*map(sub, self, earlier))


class Watch:
    """Watches an application from its making on. It is to be looked at about once a second, and closed."""

    def __init__(self, host: Host, target: Target) -> None:
        self._host = host
        self._target = target
        self._files = LocalFiles()
        self._reader = InstanceReader(self._files, target.processes)
        self._first = self._last = self._reader.read(target.processes(), whole=True)
        self._largest_bytes = self._last.memory_bytes
        self._first_threads = _thread_seconds(host, target.processes())

    def close(self) -> None:
        """Let go the files."""
        self._files.close()

    def look(self) -> None:
        """Take a reading; raises TareError where no process is left."""
        pids = self._target.processes()
        reading = self._reader.read(pids, whole=True)
        # What has ended, and was not waited for, has no command line.
        if reading.cpu_user is None or not any(map(self._command_line, pids)):
            raise TareError(f"{self._target.name}: ended while it was watched", _HINT)
        self._last = reading
        self._largest_bytes = max(self._largest_bytes or 0, reading.memory_bytes or 0)

    def usage(self, seconds: float) -> Usage:
        """Take a last look, and return what was used in so many seconds; raises TareError where no process is left."""
        self.look()
        pids = self._target.processes()
        return Usage(
            user_seconds=self._grown("cpu_user") or 0.0,
            system_seconds=self._grown("cpu_system") or 0.0,
            processes=len(pids),
            threads=_threads(self._host, pids),
            resident_bytes=None if self._largest_bytes is None else round(self._largest_bytes),
            proportional_bytes=_proportional_bytes(self._host, pids),
            disk_read_bytes=self._count("disk_read_bytes"),
            disk_write_bytes=self._count("disk_write_bytes"),
            received_packets=self._count("network_receive_packets"),
            received_bytes=self._count("network_receive_bytes"),
            sent_packets=self._count("network_send_packets"),
            sent_bytes=self._count("network_send_bytes"),
            pressure={
                name: grown / seconds for name in _RESOURCES if (grown := self._grown(f"pressure_{name}")) is not None
            },
            busiest_thread_seconds=max(
                (
                    used - self._first_threads.get(thread, 0.0)
                    for thread, used in _thread_seconds(self._host, pids).items()
                ),
                default=None,
            ),
        )

    def pulse(self) -> Pulse:
        """Return how much the application has done so far."""
        pids = self._target.processes()
        texts = [self._host.read(f"/proc/{pid}/io") for pid in pids]
        return Pulse(
            packets=_packets(self._host, pids),
            reads_and_writes=sum(int(number) for text in texts for number in _READS_AND_WRITES.findall(text)),
        )

    def _command_line(self, pid: int) -> str:
        return self._host.read(f"/proc/{pid}/cmdline")

    def _grown(self, name: str) -> float | None:
        """Return by how much a counter grew; None where it was not read."""
        before, after = getattr(self._first, name), getattr(self._last, name)
        return None if before is None or after is None else max(0.0, after - before)

    def _count(self, name: str) -> int | None:
        grown = self._grown(name)
        return None if grown is None else round(grown)


def _thread_seconds(host: Host, pids: Sequence[int]) -> dict[str, float]:
    """Return the CPU seconds of each thread so far, by its folder in /proc."""
    found = {}
    for pid in pids:
        for folder in Path(f"/proc/{pid}/task").glob("*"):
            if times := read_as(parse_process_times, host.read, f"{folder}/stat"):
                found[str(folder)] = times.user_seconds + times.system_seconds
    return found


def _packets(host: Host, pids: Sequence[int]) -> int:
    """Return the packets in the network namespace of the first process, those over its loopback included."""
    for pid in pids:
        if interfaces := read_as(parse_interfaces, host.read, f"/proc/{pid}/net/dev"):
            return round(sum(each.in_count + each.out_count for each in interfaces))
    return 0


def _threads(host: Host, pids: Sequence[int]) -> int:
    return sum(int(found[1]) for pid in pids if (found := _THREADS.search(host.read(f"/proc/{pid}/status"))))


def _proportional_bytes(host: Host, pids: Sequence[int]) -> int | None:
    """Add up the proportional set sizes, which stops a large process for a moment; None where one cannot be read."""
    sizes = [_PROPORTIONAL.search(host.read(f"/proc/{pid}/smaps_rollup")) for pid in pids]
    return 1024 * sum(int(size[1]) for size in sizes if size) if all(sizes) else None
