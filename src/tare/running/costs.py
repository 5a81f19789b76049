"""What instances cost the host that they run on, as if no others of tare's were there."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress

from tare.contracts.workloads import Instance
from tare.errors import TrialFailed
from tare.hosts.control_groups import group_folder, kernel_bytes
from tare.hosts.facts import has_own_kernel, parse_meminfo
from tare.hosts.host import Host
from tare.model.trials import Footprint
from tare.running.testbed import Testbed
from tare.telemetry.footprint import footprint


def cost_of(testbed: Testbed, instances: Collection[Instance]) -> Footprint:
    """Read what these instances of a testbed cost together: those that are alive beside them do not count."""
    host, processes = testbed.host, [instance.processes() for instance in instances]
    others = (pid for other in testbed.alive if other not in instances for pid in other.processes())
    memory, count = footprint(host, testbed.image.root, [pid for pids in processes for pid in pids], others)
    kernel = _sum(_kernel_bytes(host, pids[0]) if pids else None for pids in processes)
    reported = _sum(_reported_bytes(host, instance) for instance in instances)
    return Footprint(memory, kernel, _sum(instance.disk() for instance in instances), count, reported)


def _reported_bytes(host: Host, instance: Instance) -> int | None:
    """Return the memory that a guest's own kernel counts as used; None for what has none, or does not answer."""
    with suppress(TrialFailed):
        if instance.inside and has_own_kernel(host, instance.inside):
            return parse_meminfo(instance.inside.read("/proc/meminfo")).used_bytes
    return None


def _kernel_bytes(host: Host, pid: int) -> int | None:
    return kernel_bytes(host, group_folder(host, pid))


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Add up; None if one is unknown: a partial sum would look like a result."""
    known = [*numbers]
    return sum(number for number in known if number is not None) if known and None not in known else None
