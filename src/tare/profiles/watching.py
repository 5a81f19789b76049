"""What the kernel's own figures say of an application: those of its control group and in /proc, without tracing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare.errors import TareError
from tare.hosts.host import Host
from tare.profiles.finding import Target
from tare.profiles.profile import Usage
from tare.telemetry.files import LocalFiles
from tare.telemetry.instances import InstanceReader
from tare.telemetry.parsers import parse_interfaces, read_as
from tare.telemetry.readings import Reading

_PROPORTIONAL = re.compile(r"^Pss: +(\d+) kB$", re.MULTILINE)
_THREADS = re.compile(r"^Threads:\s+(\d+)$", re.MULTILINE)
_HINT = "watch it for less with --seconds, or let tare run it: tare profile -- COMMAND"
_RESOURCES = ("cpu", "memory", "io")


@dataclass(frozen=True)
class Memory:
    """The processes and threads of an application, and their proportional set size; None where it cannot be read."""

    processes: int
    threads: int
    proportional_bytes: int | None


class Watch:
    """Watches an application from its making on. It is to be looked at about once a second, and closed."""

    def __init__(self, host: Host, target: Target) -> None:
        self._host = host
        self._target = target
        self._files = LocalFiles()
        self._reader = InstanceReader(self._files, target.processes)
        self._first = self._last = self._read()
        self._largest_bytes = self._last.memory_bytes

    def close(self) -> None:
        """Let go the files."""
        self._files.close()

    def look(self) -> None:
        """Take a reading; raises TareError where no process is left."""
        reading = self._read()
        if reading.cpu_user is None or not self._target.processes():
            raise TareError(f"{self._target.name}: ended while it was watched", _HINT)
        self._last = reading
        self._largest_bytes = max(self._largest_bytes or 0, reading.memory_bytes or 0)

    def usage(self, seconds: float) -> Usage:
        """Take a last look, and return what was used in so many seconds; raises TareError where no process is left."""
        self.look()
        first, last = self._first, self._last
        memory = memory_of(self._host, self._target.processes())
        pressure = {name: _grown(first, last, f"pressure_{name}") for name in _RESOURCES}
        return Usage(
            user_seconds=_grown(first, last, "cpu_user") or 0.0,
            system_seconds=_grown(first, last, "cpu_system") or 0.0,
            processes=memory.processes,
            threads=memory.threads,
            resident_bytes=_whole(self._largest_bytes),
            proportional_bytes=memory.proportional_bytes,
            disk_read_bytes=_whole(_grown(first, last, "disk_read_bytes")),
            disk_write_bytes=_whole(_grown(first, last, "disk_write_bytes")),
            received_packets=_whole(_grown(first, last, "network_receive_packets")),
            received_bytes=_whole(_grown(first, last, "network_receive_bytes")),
            sent_packets=_whole(_grown(first, last, "network_send_packets")),
            sent_bytes=_whole(_grown(first, last, "network_send_bytes")),
            pressure={name: grown / seconds for name, grown in pressure.items() if grown is not None},
        )

    def packets(self) -> int:
        """Return the packets that the network namespace of the application has seen, those to itself included."""
        for pid in self._target.processes():
            interfaces = read_as(parse_interfaces, self._host.read, f"/proc/{pid}/net/dev")
            if interfaces:
                return sum(each.in_count + each.out_count for each in interfaces)
        return 0

    def _read(self) -> Reading:
        return self._reader.read(self._target.processes(), whole=True)


def _grown(first: Reading, last: Reading, name: str) -> float | None:
    """Return by how much a counter grew; None where it was not read."""
    before, after = getattr(first, name), getattr(last, name)
    return None if before is None or after is None else max(0.0, after - before)


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def memory_of(host: Host, pids: Sequence[int]) -> Memory:
    """Count processes and threads, and add up their memory. To read it stops a large process for a moment."""
    threads = [int(found[1]) for pid in pids if (found := _THREADS.search(host.read(f"/proc/{pid}/status")))]
    sizes = [_PROPORTIONAL.search(host.read(f"/proc/{pid}/smaps_rollup")) for pid in pids]
    return Memory(len(threads), sum(threads), _total(sizes))


def _total(sizes: Iterable[re.Match[str] | None]) -> int | None:
    found = [1024 * int(size[1]) for size in sizes if size]
    return sum(found) if found else None
