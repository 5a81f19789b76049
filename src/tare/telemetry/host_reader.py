"""One reading of what a machine has used up to now; of an instance, see instances.py.

The kernel's files come from tare/telemetry/files.py. A value that cannot be read is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tare.hosts.facts import parse_meminfo
from tare.telemetry.kernel_files import HARDWARE, PRESSURES, THROTTLED, Files
from tare.telemetry.procfs import (
    PAGE_BYTES,
    CpuTimes,
    Pressure,
    Stat,
    Transfer,
    parse_cpu_total,
    parse_disks,
    parse_interfaces,
    parse_pressure,
    parse_stat,
    parse_swapped_pages,
    read_as,
    total,
    whole_disks,
)

Fields = dict[str, Any]  # of a reading, as far as they are known
_CPU = ("user", "system", "iowait", "steal", "softirq")
_DISK = ("disk_read_bytes", "disk_write_bytes", "disk_reads", "disk_writes", "disk_busy")
_NETWORK = ("network_receive_bytes", "network_send_bytes", "network_receive_packets", "network_send_packets")


@dataclass(frozen=True)
class Reading:
    """What a scope has used up to a moment, in seconds and bytes and counts; None if it was not read.

    All are counters but `memory_bytes`, `swap_bytes` and `charged_bytes`. `cpus` are the ticks of each
    CPU by its number, as in `Stat`.
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
class Totals:
    """Counters since boot that are read only at the beginning and the end of a trial.

    `throttled` counts how often a core was slowed down to cool.
    """

    together: CpuTimes | None
    swapped_in_pages: int | None
    throttled: int | None


def read_totals(files: Files) -> Totals:
    """Read what the whole machine has used since boot."""
    counts = (read_as(int, files.text, path) for path in files.matching(THROTTLED))
    throttled = [count for count in counts if count is not None]
    swapped = read_as(parse_swapped_pages, files.text, "/proc/vmstat")
    return Totals(
        read_as(parse_cpu_total, files.text, "/proc/stat"),
        swapped and swapped[0],
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

    def read(self, whole: bool) -> Reading:
        """Read the most important counters; with `whole`, all of them, and the memory."""
        text = self._files.text
        disks = read_as(partial(parse_disks, wanted=self._disks), text, "/proc/diskstats")
        interfaces = read_as(partial(parse_interfaces, wanted=self._interfaces), text, "/proc/net/dev")
        disk = total(disks, self._disks)
        return Reading(
            **_cpu_fields(read_as(parse_stat, text, "/proc/stat")),
            **_fields_of(_DISK, disk and disk[1:]),
            **network_fields(total(interfaces, self._interfaces)),
            **(self._slow() if whole else {}),
        )

    def _slow(self) -> Fields:
        memory = read_as(parse_meminfo, self._files.text, "/proc/meminfo")
        into, out = read_as(parse_swapped_pages, self._files.text, "/proc/vmstat") or (None, None)
        return {
            "memory_bytes": memory and memory.used_bytes,
            "swap_bytes": memory and memory.swapped_bytes,
            "swap_in_bytes": into and into * PAGE_BYTES,
            "swap_out_bytes": out and out * PAGE_BYTES,
            **pressure_fields([read_as(parse_pressure, self._files.short_text, path) for path in PRESSURES]),
        }


def _cpu_fields(stat: Stat | None) -> Fields:
    if stat is None:
        return {}
    times = {f"cpu_{name}": getattr(stat.together, f"{name}_seconds") for name in _CPU}
    return times | {"context_switches": stat.context_switches, "interrupts": stat.interrupts, "cpus": stat.each}


def _fields_of(names: Iterable[str], counted: Iterable[float] | None) -> Fields:
    return {} if counted is None else dict(zip(names, counted, strict=True))


def network_fields(network: Transfer | None) -> Fields:
    """Return the fields of what interfaces have transferred together."""
    return _fields_of(_NETWORK, network and network[1:5])


def pressure_fields(pressures: Iterable[Pressure | None]) -> Fields:
    """Return the fields of the pressure on CPU, memory and disks."""
    cpu, memory, disks = pressures
    return {
        "pressure_cpu": cpu and cpu.some_seconds,
        "pressure_memory": memory and memory.some_seconds,
        "pressure_memory_full": memory and memory.full_seconds,
        "pressure_io": disks and disks.some_seconds,
        "pressure_io_full": disks and disks.full_seconds,
    }
