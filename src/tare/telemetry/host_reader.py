"""Readings of a machine's cumulative resource usage. Those of an instance are in instance_reader.py.

The kernel's files come from kernel_files.py. A value that cannot be read is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tare.hosts.facts import parse_meminfo
from tare.telemetry.kernel_files import HARDWARE, PRESSURES, THROTTLED, Files
from tare.telemetry.procfs import (
    ByteCounters,
    CpuTimes,
    Pressure,
    ProcStat,
    parse_cpu_total,
    parse_disks,
    parse_interfaces,
    parse_pressure,
    parse_stat,
    parse_swapped_pages,
    read_or_none,
    sum_counters,
    whole_disks,
)

Fields = dict[str, Any]  # of a reading, as far as they are known
_CPU = ("user", "system", "iowait", "steal", "softirq")


@dataclass(frozen=True)
class UsageReading:
    """Resource usage of a machine or an instance up to a moment. A value is None if it was not read.

    CPU, pressure and `disk_busy` are in seconds. All values are counters except `memory_bytes`, `swap_bytes` and
    `charged_bytes`. `cpus` are the ticks of each CPU by its number, as in `ProcStat`.
    """

    cpu_user: float | None = None
    cpu_system: float | None = None
    cpu_iowait: float | None = None
    cpu_steal: float | None = None
    memory_bytes: float | None = None
    disk_read_bytes: float | None = None
    disk_write_bytes: float | None = None
    network_receive_bytes: float | None = None
    network_send_bytes: float | None = None
    cpu_softirq: float | None = None
    context_switches: float | None = None
    interrupts: float | None = None
    disk_reads: float | None = None
    disk_writes: float | None = None
    disk_busy: float | None = None
    network_receive_packets: float | None = None
    network_send_packets: float | None = None
    charged_bytes: float | None = None
    swap_bytes: float | None = None
    swap_in_bytes: float | None = None
    swap_out_bytes: float | None = None
    pressure_cpu: float | None = None
    pressure_memory: float | None = None
    pressure_memory_full: float | None = None
    pressure_io: float | None = None
    pressure_io_full: float | None = None
    cpus: Mapping[int, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class HostTotals:
    """Counters since boot, which are read only at the start and the end of a trial.

    `throttled` is the number of times that a core was slowed down to cool. A value is None if unknown.
    """

    all_cpus: CpuTimes | None
    swapped_in_pages: int | None
    throttled: int | None


def read_totals(files: Files) -> HostTotals:
    """Return the machine's counters since boot."""
    counts = (read_or_none(int, files.text, path) for path in files.find_paths(THROTTLED))
    throttled = [count for count in counts if count is not None]
    swapped_in_pages, _ = read_or_none(parse_swapped_pages, files.text, "/proc/vmstat") or (None, None)
    return HostTotals(
        all_cpus=read_or_none(parse_cpu_total, files.text, "/proc/stat"),
        swapped_in_pages=swapped_in_pages,
        throttled=sum(throttled) if throttled else None,
    )


class HostReader:
    """Reader of a machine's resource usage since boot."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # Traffic over a bridge or a virtual pair does not leave the machine, and would count more than once.
        self._interfaces = frozenset(path.split("/")[-2] for path in files.find_paths(HARDWARE))
        disks = read_or_none(parse_disks, files.text, "/proc/diskstats") or ()
        self._disks = frozenset(whole_disks([disk.name for disk in disks]))

    def read(self, whole: bool) -> UsageReading:
        """Return CPU time, transfers and traffic; if `whole`, also memory, swap and pressure."""
        text = self._files.text
        disks = read_or_none(partial(parse_disks, devices=self._disks), text, "/proc/diskstats")
        interfaces = read_or_none(partial(parse_interfaces, names=self._interfaces), text, "/proc/net/dev")
        return UsageReading(
            **_cpu_fields(read_or_none(parse_stat, text, "/proc/stat")),
            **_disk_fields(sum_counters(disks, self._disks)),
            **network_fields(sum_counters(interfaces, self._interfaces)),
            **(self._read_memory_fields() if whole else {}),
        )

    def _read_memory_fields(self) -> Fields:
        """Return memory, swap and pressure, which only whole samples have: their files take longer to read."""
        memory = read_or_none(parse_meminfo, self._files.text, "/proc/meminfo")
        pages_in, pages_out = read_or_none(parse_swapped_pages, self._files.text, "/proc/vmstat") or (None, None)
        return {
            "memory_bytes": memory and memory.used_bytes,
            "swap_bytes": memory and memory.swapped_bytes,
            "swap_in_bytes": pages_in and pages_in * self._files.page_bytes(),
            "swap_out_bytes": pages_out and pages_out * self._files.page_bytes(),
            **pressure_fields([read_or_none(parse_pressure, self._files.short_text, path) for path in PRESSURES]),
        }


def _cpu_fields(stat: ProcStat | None) -> Fields:
    if stat is None:
        return {}
    times = {f"cpu_{name}": getattr(stat.all_cpus, f"{name}_seconds") for name in _CPU}
    return times | {"context_switches": stat.context_switches, "interrupts": stat.interrupts, "cpus": stat.ticks_by_cpu}


def _disk_fields(disk: ByteCounters | None) -> Fields:
    if disk is None:
        return {}
    return {
        "disk_read_bytes": disk.in_bytes,
        "disk_write_bytes": disk.out_bytes,
        "disk_reads": disk.in_count,
        "disk_writes": disk.out_count,
        "disk_busy": disk.busy_seconds,
    }


def network_fields(network: ByteCounters | None) -> Fields:
    """Return the fields of the traffic of interfaces; {} if it is unknown."""
    if network is None:
        return {}
    return {
        "network_receive_bytes": network.in_bytes,
        "network_send_bytes": network.out_bytes,
        "network_receive_packets": network.in_count,
        "network_send_packets": network.out_count,
    }


def pressure_fields(pressures: Iterable[Pressure | None]) -> Fields:
    """Return the fields of the pressures on CPU, memory and disks, in this order."""
    cpu, memory, disks = pressures
    return {
        "pressure_cpu": cpu and cpu.some_seconds,
        "pressure_memory": memory and memory.some_seconds,
        "pressure_memory_full": memory and memory.full_seconds,
        "pressure_io": disks and disks.some_seconds,
        "pressure_io_full": disks and disks.full_seconds,
    }
