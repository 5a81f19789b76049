"""Awake CPUs: threads of the lowest priority that keep the CPUs of a run from falling asleep during turns.

A virtual CPU that halts has to be scheduled by its hypervisor before it runs again, and a physical CPU leaves a deep
idle state slowly. Both delays hit the begin of a turn by chance. With awake CPUs, turns of 5 ms were 2.5 to 3 times as
precise as turns of 50 ms on sleeping CPUs (docs/decisions/turns.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tare.hosts.cgroups import create_idle_cgroup
from tare.hosts.facts import parse_cpuinfo, read_hypervisor
from tare.hosts.host import Host
from tare.hosts.ledger import Ledger

_PROGRAM = "keep_awake"
_CPU_FOLDER = "/sys/devices/system/cpu"
_DEEP_MICROSECONDS = 20  # exit latency of an idle state that a turn of a few milliseconds would show
_START_SECONDS = 30.0


def falls_asleep(host: Host) -> bool:
    """Return whether CPUs of a machine wake up slowly: the machine is virtual, or has deep idle states."""
    if read_hypervisor(host.read, parse_cpuinfo(host.read("/proc/cpuinfo"))):
        return True
    latencies = host.read_matching(f"{_CPU_FOLDER}/cpu0/cpuidle", "latency").split()
    return any(latency.isdigit() and int(latency) >= _DEEP_MICROSECONDS for latency in latencies)


@contextmanager
def keep_awake(ledger: Ledger, cpus: Sequence[int], name: str) -> Iterator[None]:
    """Context manager: keep these CPUs of the ledger's machine awake. `name` is that of the threads' control group.

    The threads end with tare, also if tare is killed.
    """
    with create_idle_cgroup(ledger, name) as join:
        command = (*join, ledger.setup_helper.program_path(_PROGRAM), *map(str, cpus))
        with ledger.host.spawn(*command, die_with_parent=True) as process:
            process.read_line(_START_SECONDS)
            yield
