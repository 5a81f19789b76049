"""One reading of what a host or an instance has used up to now.

The kernel's files come from tare/telemetry/files.py. A value that cannot be read is None.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tare.telemetry.files import HARDWARE, THROTTLED, Files
from tare.telemetry.parsers import (
    CpuTimes,
    ProcessTimes,
    Transfer,
    parse_cpu_total,
    parse_disks,
    parse_interfaces,
    parse_process_times,
    parse_process_transfer,
    parse_resident_bytes,
    parse_swapped_in_pages,
    parse_used_memory_bytes,
    whole_disks,
)
from tare.telemetry.processes import Count, Identity, Used

_T = TypeVar("_T")

# Those of this machine; over SSH, where it is always Linux on x86_64, they are the same.
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Reading:
    """What a scope has used up to a moment, in seconds of CPU and bytes; None if it could not be read."""

    cpu_user: float | None = None
    cpu_system: float | None = None
    cpu_iowait: float | None = None
    cpu_steal: float | None = None
    memory_bytes: float | None = None
    disk_read_bytes: float | None = None
    disk_write_bytes: float | None = None
    network_receive_bytes: float | None = None
    network_send_bytes: float | None = None


@dataclass(frozen=True)
class Totals:
    """Counters since boot that are read only at the beginning and the end of a trial.

    `throttled` counts how often a core was slowed down to cool.
    """

    together: CpuTimes | None
    swapped_in_pages: int | None
    throttled: int | None


def read_as(parse: Callable[[str], _T], read: Callable[[str], str], path: str) -> _T | None:
    """Read and parse a file; None if either fails."""
    try:
        return parse(read(path))
    except (OSError, ValueError):
        return None


def parsed(parse: Callable[[str], _T], text: str) -> _T | None:
    """Parse a text; None if that fails."""
    return read_as(parse, str, text)


def read_totals(files: Files) -> Totals:
    """Read what the whole machine has used since boot."""
    counts = (read_as(int, files.text, path) for path in files.matching(THROTTLED))
    throttled = [count for count in counts if count is not None]
    return Totals(
        read_as(_parse_cpu_total, files.text, "/proc/stat"),
        read_as(parse_swapped_in_pages, files.text, "/proc/vmstat"),
        sum(throttled) if throttled else None,
    )


class HostReader:
    """Reads what a machine has used since boot."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # Traffic over a bridge or a virtual pair does not leave the machine, and would count more than once.
        self._interfaces = frozenset(path.split("/")[-2] for path in files.matching(HARDWARE))
        disks = read_as(parse_disks, files.text, "/proc/diskstats") or ()
        self._disks = frozenset(whole_disks([disk.name for disk in disks]))

    def read(self) -> Reading:
        """Read all counters, and the memory that is not available."""
        text = self._files.text
        disks = _sum(read_as(parse_disks, text, "/proc/diskstats"), self._disks)
        network = _sum(read_as(parse_interfaces, text, "/proc/net/dev"), self._interfaces)
        return Reading(
            *_cpu_seconds(read_as(_parse_cpu_total, text, "/proc/stat")),
            read_as(parse_used_memory_bytes, text, "/proc/meminfo"),
            *_in_and_out(disks),
            *_in_and_out(network),
        )


def _cpu_seconds(times: CpuTimes | None) -> tuple[float | None, float | None, float | None, float | None]:
    if times is None:
        return None, None, None, None
    return times.user_seconds, times.system_seconds, times.iowait_seconds, times.steal_seconds


def _in_and_out(transfer: Transfer | None) -> tuple[float | None, float | None]:
    return (None, None) if transfer is None else (transfer.in_bytes, transfer.out_bytes)


def _sum(transfers: Sequence[Transfer] | None, names: frozenset[str]) -> Transfer | None:
    wanted = [each for each in transfers or () if each.name in names]
    if not wanted:
        return None
    return Transfer("", sum(each.in_bytes for each in wanted), sum(each.out_bytes for each in wanted))


@dataclass(frozen=True)
class _Process:
    """One process as it was read. `transfer` is None without the permission to read it."""

    identity: Identity
    times: ProcessTimes
    resident_bytes: int
    transfer: Transfer | None


class InstanceReader:
    """Reads what the processes of an instance, including those that have ended, have used since the first reading."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # Like the start of a process, this is in hundredths, rounded down. If it is not known, nobody is born later.
        uptime = read_as(_parse_uptime, files.text, "/proc/uptime")
        self._began_seconds = math.inf if uptime is None else uptime
        self._first = True
        self._starts: dict[int, float] = {}
        self._user, self._system, self._read, self._written = Used(), Used(), Used(), Used()
        self._network = _Network(files)

    def read(self, pids: Sequence[int]) -> Reading:
        """Read all counters of these processes; all are None if no process can be read."""
        processes = self._find(pids)
        born = frozenset(each.identity for each in processes if self._was_born(each))
        self._first = False
        if not processes:
            return Reading()
        read_bytes, written_bytes = self._transferred(processes, born)
        received_bytes, sent_bytes = _in_and_out(self._network.read([each.identity[0] for each in processes]))
        return Reading(
            cpu_user=self._user.look({each.identity: _user(each.times) for each in processes}, born),
            cpu_system=self._system.look({each.identity: _system(each.times) for each in processes}, born),
            memory_bytes=sum(each.resident_bytes for each in processes),
            disk_read_bytes=read_bytes,
            disk_write_bytes=written_bytes,
            network_receive_bytes=received_bytes,
            network_send_bytes=sent_bytes,
        )

    def _find(self, pids: Sequence[int]) -> list[_Process]:
        # Parents before their children: a child that ends meanwhile is then missed for a moment, but never seen twice.
        ordered = sorted(dict.fromkeys(pids), key=lambda pid: self._starts.get(pid, math.inf))
        processes = [process for pid in ordered if (process := _read_process(self._files.short_text, pid)) is not None]
        self._starts = dict(each.identity for each in processes)
        return processes

    def _was_born(self, process: _Process) -> bool:
        return not self._first and process.times.started_seconds >= self._began_seconds

    def _transferred(
        self, processes: Sequence[_Process], born: frozenset[Identity]
    ) -> tuple[float, float] | tuple[None, None]:
        read: dict[Identity, Count] = {}
        written: dict[Identity, Count] = {}
        for each in processes:
            if each.transfer is None:  # a sum over the others would look like the whole
                return None, None
            read[each.identity] = _moved(each, each.transfer.in_bytes)
            written[each.identity] = _moved(each, each.transfer.out_bytes)
        return self._read.look(read, born), self._written.look(written, born)


def _read_process(read: Callable[[str], str], pid: int) -> _Process | None:
    times = read_as(_parse_times, read, f"/proc/{pid}/stat")
    resident = read_as(_parse_resident, read, f"/proc/{pid}/statm")
    if times is None or resident is None:  # it has vanished
        return None
    transfer = read_as(parse_process_transfer, read, f"/proc/{pid}/io")
    return _Process((pid, times.started_seconds), times, resident, transfer)


def _parse_cpu_total(text: str) -> CpuTimes:
    return parse_cpu_total(text, TICKS_PER_SECOND)


def _parse_uptime(text: str) -> float:
    return float(text.partition(" ")[0])


def _parse_times(text: str) -> ProcessTimes:
    return parse_process_times(text, TICKS_PER_SECOND)


def _parse_resident(text: str) -> int:
    return parse_resident_bytes(text, PAGE_BYTES)


def _user(times: ProcessTimes) -> Count:
    return Count(times.parent, times.user_seconds + times.reaped_user_seconds, times.reaped_user_seconds)


def _system(times: ProcessTimes) -> Count:
    return Count(times.parent, times.system_seconds + times.reaped_system_seconds, times.reaped_system_seconds)


def _moved(process: _Process, moved_bytes: int) -> Count:
    return Count(process.times.parent, moved_bytes, moved_bytes)


class _Network:
    """Traffic since the first reading, in the network namespace of the first process whose namespace is not tare's.

    Over SSH, tare's namespace is that of the SSH server.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._ours = _namespace(files, "self")
        self._before: dict[int, Transfer] = {}

    def read(self, pids: Sequence[int]) -> Transfer | None:
        for pid in pids:
            namespace = _namespace(self._files, str(pid))
            if self._ours is None or namespace is None or namespace == self._ours:
                continue
            interfaces = read_as(parse_interfaces, self._files.text, f"/proc/{pid}/net/dev") or ()
            now = _sum(interfaces, frozenset(each.name for each in interfaces) - {"lo"})
            if now is None:
                return None
            before = self._before.setdefault(namespace, now)
            return Transfer("", now.in_bytes - before.in_bytes, now.out_bytes - before.out_bytes)
        return None


def _namespace(files: Files, process: str) -> int | None:
    try:
        return files.namespace(process)
    except OSError:
        return None
