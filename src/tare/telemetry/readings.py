"""One reading of what the host, and what an instance, has used up to now.

The kernel's files are read here, and nowhere else in the sampler. Whatever cannot be read or understood is None.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tare.telemetry.parsers import (
    CpuTimes,
    ProcessTimes,
    Transfer,
    parse_cpu_each,
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

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CHUNK_BYTES = 65536


@dataclass(frozen=True)
class Reading:
    """What a scope has used up to a moment: seconds of CPU, bytes. None is what could not be read."""

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
    """What is read only at the beginning and at the end of a trial, since boot each.

    `cpus` has the time of every CPU by its number; `throttled` counts how often a core was slowed down to cool.
    """

    together: CpuTimes | None
    cpus: dict[int, CpuTimes]
    swapped_in_pages: int | None
    throttled: int | None


def read_text(path: str) -> str:
    """Read one of the kernel's files with as little work as can be; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            chunks.append(chunk)
    finally:
        os.close(descriptor)
    return b"".join(chunks).decode("utf-8", "replace")


def read_short_text(path: str) -> str:
    """Read a file of one process, which the kernel gives whole at the first reading; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _CHUNK_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def read_as(parse: Callable[[str], _T], path: str, read: Callable[[str], str] = read_text) -> _T | None:
    """Read and parse a file; None where one of the two fails."""
    try:
        return parse(read(path))
    except (OSError, ValueError):
        return None


def read_totals() -> Totals:
    """Read what the whole machine has used since boot."""
    counters = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    throttled = [count for path in counters if (count := read_as(int, str(path))) is not None]
    return Totals(
        read_as(lambda text: parse_cpu_total(text, TICKS_PER_SECOND), "/proc/stat"),
        read_as(lambda text: parse_cpu_each(text, TICKS_PER_SECOND), "/proc/stat") or {},
        read_as(parse_swapped_in_pages, "/proc/vmstat"),
        sum(throttled) if throttled else None,
    )


class HostReader:
    """Reads what this machine has used since boot."""

    def __init__(self) -> None:
        # What crosses a bridge or a virtual pair is no traffic of the machine, and would be counted twice or more.
        interfaces = Path("/sys/class/net").glob("*/device")
        self._interfaces = frozenset(path.parent.name for path in interfaces)
        self._disks = frozenset(whole_disks([disk.name for disk in read_as(parse_disks, "/proc/diskstats") or ()]))

    def read(self) -> Reading:
        """Read all counters, and the memory that cannot be had by anybody now."""
        times = read_as(lambda text: parse_cpu_total(text, TICKS_PER_SECOND), "/proc/stat")
        disks = _sum(read_as(parse_disks, "/proc/diskstats"), self._disks)
        network = _sum(read_as(parse_interfaces, "/proc/net/dev"), self._interfaces)
        return Reading(
            *_cpu_seconds(times),
            read_as(parse_used_memory_bytes, "/proc/meminfo"),
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
    found = [each for each in transfers or () if each.name in names]
    if not found:
        return None
    return Transfer("", sum(each.in_bytes for each in found), sum(each.out_bytes for each in found))


@dataclass(frozen=True)
class _Process:
    """One process as it was read. `transfer` is None where its reading is not permitted."""

    identity: Identity
    times: ProcessTimes
    resident_bytes: int
    transfer: Transfer | None


class InstanceReader:
    """Reads what the processes of an instance have used since the first reading, though they come and go."""

    def __init__(self, processes: Callable[[], Sequence[int]]) -> None:
        self._processes = processes
        # The kernel gives the start of a process in whole ticks, rounded down.
        self._began_seconds = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_SECOND) / TICKS_PER_SECOND
        self._first = True
        self._starts: dict[int, float] = {}
        self._user, self._system, self._read, self._written = Used(), Used(), Used(), Used()
        self._network = _Network()

    def read(self) -> Reading:
        """Read all counters. All of them are None while the instance has no process that can be read."""
        found = self._find()
        born = frozenset(each.identity for each in found if self._was_born(each))
        self._first = False
        if not found:
            return Reading()
        read_bytes, written_bytes = self._transferred(found, born)
        received_bytes, sent_bytes = _in_and_out(self._network.read([each.identity[0] for each in found]))
        return Reading(
            cpu_user=self._user.look({each.identity: _user(each.times) for each in found}, born),
            cpu_system=self._system.look({each.identity: _system(each.times) for each in found}, born),
            memory_bytes=sum(each.resident_bytes for each in found),
            disk_read_bytes=read_bytes,
            disk_write_bytes=written_bytes,
            network_receive_bytes=received_bytes,
            network_send_bytes=sent_bytes,
        )

    def _find(self) -> list[_Process]:
        try:
            pids = tuple(self._processes())
        except Exception:  # noqa: BLE001 - a plug-in's function must not end the sampler: this sample is missing
            return []
        # Parents before their children: a child that ends meanwhile is then missed for a moment, but never seen twice.
        pids = tuple(sorted(dict.fromkeys(pids), key=lambda pid: self._starts.get(pid, math.inf)))
        found = [process for pid in pids if (process := _read_process(pid)) is not None]
        self._starts = dict(each.identity for each in found)
        return found

    def _was_born(self, process: _Process) -> bool:
        return not self._first and process.times.started_seconds >= self._began_seconds

    def _transferred(
        self, found: Sequence[_Process], born: frozenset[Identity]
    ) -> tuple[float, float] | tuple[None, None]:
        read: dict[Identity, Count] = {}
        written: dict[Identity, Count] = {}
        for each in found:
            if each.transfer is None:  # a sum over the others would look like the whole
                return None, None
            read[each.identity] = _moved(each, each.transfer.in_bytes)
            written[each.identity] = _moved(each, each.transfer.out_bytes)
        return self._read.look(read, born), self._written.look(written, born)


def _read_process(pid: int) -> _Process | None:
    times = read_as(_parse_times, f"/proc/{pid}/stat", read_short_text)
    resident = read_as(_parse_resident, f"/proc/{pid}/statm", read_short_text)
    if times is None or resident is None:  # it has vanished
        return None
    transfer = read_as(parse_process_transfer, f"/proc/{pid}/io", read_short_text)
    return _Process((pid, times.started_seconds), times, resident, transfer)


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
    """Traffic of the network namespace of the first process that has another one than tare, since its first reading."""

    def __init__(self) -> None:
        self._ours = _namespace("self")
        self._before: dict[int, Transfer] = {}

    def read(self, pids: Sequence[int]) -> Transfer | None:
        for pid in pids:
            namespace = _namespace(str(pid))
            if self._ours is None or namespace is None or namespace == self._ours:
                continue
            interfaces = read_as(parse_interfaces, f"/proc/{pid}/net/dev") or ()
            now = _sum(interfaces, frozenset(each.name for each in interfaces) - {"lo"})
            if now is None:
                return None
            before = self._before.setdefault(namespace, now)
            return Transfer("", now.in_bytes - before.in_bytes, now.out_bytes - before.out_bytes)
        return None


def _namespace(process: str) -> int | None:
    try:
        return os.stat(f"/proc/{process}/ns/net").st_ino  # noqa: PTH116 - half the time, for every process and sample
    except OSError:
        return None
