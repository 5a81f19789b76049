"""Extra instances of a trial's stack, for workloads that need several: less memory, or more of them.

Signs of a lack of memory are processes that a kernel kills, and pages that it moves to swap. A container's control
group counts both, and a guest's own kernel those of the guest. Where the group has gone with its container, or never
existed, the machine's counter of killed processes is used, which counts those of all groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from tare.hosts.cgroups import group_folder, kernel_bytes
from tare.hosts.facts import has_own_kernel, parse_meminfo
from tare.hosts.host import Host
from tare.hosts.network import SLOTS
from tare.model.errors import OutOfMemory, TareError, TrialFailed, Unavailable, Unreachable
from tare.model.trial import Footprint, Limits, Mark
from tare.plugins.workload import Another, Further, Instance, MeasurementContext, Workload
from tare.runner.context import InstanceSpec, RunContext
from tare.runner.layers import combine_layers, start_stack
from tare.runner.service import start_service
from tare.runner.trial_log import TrialLog
from tare.telemetry.processes import footprint

_VMSTAT = "/proc/vmstat"
_OF_GROUPS = ("memory.events", "memory.oom_control")  # version 2 and 1
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_GROUP_SWAP = re.compile(r"^total_swap (\d+)$", re.MULTILINE)
_GUEST_SWAP = re.compile(r"^pswp(?:in|out) (\d+)$", re.MULTILINE)
_PAGE_BYTES = 4096
_MACHINE, _GUEST = "the machine's kernel", "the guest's kernel"
_PATIENCE = 5  # times as long as the trial's own instance took to start


def measure_footprint(context: RunContext, instances: Collection[Instance]) -> Footprint:
    """Read what these instances cost their host together: those that are alive in addition do not count."""
    host, processes = context.host, [instance.processes() for instance in instances]
    others = (pid for other in context.live if other not in instances for pid in other.processes())
    memory, count = footprint(host, context.images.main.root, [pid for pids in processes for pid in pids], others)
    kernel = _sum(kernel_bytes(host, group_folder(host, pids[0])) if pids else None for pids in processes)
    reported = _sum(_reported_bytes(host, instance) for instance in instances)
    return Footprint(memory, kernel, _sum(instance.disk() for instance in instances), count, reported)


def _reported_bytes(host: Host, instance: Instance) -> int | None:
    """Return the memory that a guest's own kernel counts as used; None for what has none, or does not answer."""
    with suppress(TrialFailed):
        if instance.inside and has_own_kernel(host, instance.inside):
            return parse_meminfo(instance.inside.read("/proc/meminfo")).used_bytes
    return None


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Add up; None if one is unknown: a partial sum would look like a result."""
    known = [*numbers]
    return sum(number for number in known if number is not None) if known and None not in known else None


def total(pattern: re.Pattern[str], text: str) -> int | None:
    """Add up the numbers that a pattern finds; None if it finds none."""
    found = [int(number) for number in pattern.findall(text)]
    return sum(found) if found else None


class Shortage:
    """Watches one instance on a host, from before its start."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._before = self._kills_here()
        self._instance: Instance | None = None
        self._folder = ""
        self._has_kernel = False
        self._killer: str | None = None

    def watch(self, instance: Instance) -> None:
        """Record the instance, once it has answered."""
        self._instance = instance
        if pids := instance.processes():
            self._folder = group_folder(self._host, pids[0])
        with suppress(TareError):
            self._has_kernel = instance.inside is not None and has_own_kernel(self._host, instance.inside)

    def look(self) -> None:
        """Read who has killed processes of the instance, while it exists."""
        if self._has_kernel and total(_KILLS, self._inside(_VMSTAT)):
            self._killer = _GUEST
        elif (kills := self._kills_in_group()) is not None:
            self._killer = _MACHINE if kills else ""

    def killer(self) -> str:
        """Return whose kernel has killed a process of the instance for lack of memory; empty if none has."""
        if self._killer is None:
            return _MACHINE if self._kills_here() > self._before else ""
        return self._killer

    def swapped_bytes(self) -> int:
        """Return what is in swap of the instance, or of a guest what has come and gone."""
        if self._has_kernel:
            return _PAGE_BYTES * (total(_GUEST_SWAP, self._inside(_VMSTAT)) or 0)
        if not self._folder:
            return 0
        second = self._host.read(f"{self._folder}/memory.swap.current").strip()
        return int(second) if second else total(_GROUP_SWAP, self._host.read(f"{self._folder}/memory.stat")) or 0

    def _kills_here(self) -> int:
        return total(_KILLS, self._host.read(_VMSTAT)) or 0

    def _kills_in_group(self) -> int | None:
        if not self._folder:
            return None
        return total(_KILLS, "".join(self._host.gather(self._folder, name) for name in _OF_GROUPS))

    def _inside(self, path: str) -> str:
        """Return a file's text inside; empty where it cannot be read."""
        inside = self._instance.inside if self._instance else None
        with suppress(TareError):
            return inside.read(path) if inside else ""
        return ""


@dataclass
class ExtraInstances(Further):
    """Starts instances of a stack in the slots that are free; `spec` and `timeline` are those of the trial's own.

    A server without memory is often silent, and its load would wait for it: both have `patience_seconds`. An instance
    is late that takes five times as long to start as the trial's own, and these seconds more.
    """

    context: RunContext
    spec: InstanceSpec
    timeline: Sequence[Mark]
    patience_seconds: float = 10.0
    _taken: set[int] = field(default_factory=set)

    @property
    def limit_bytes(self) -> int:
        """The memory limit of the trial's own instance."""
        return self.spec.limits.memory_bytes

    @contextmanager
    def started(self, workload: Workload, limit_bytes: int | None = None) -> Iterator[Another]:
        """Start an instance with the workload's server; see `Further.started`."""
        for technology in self.spec.stack:
            if technology.built_in_address or technology.gives_machine:
                what = f"{technology.name}: tare cannot start further instances of it"
                raise Unavailable(what, "leave this stack out of workloads that start several instances")
        with ExitStack() as exits:
            spec = self._in_free_slot(exits, limit_bytes or self.limit_bytes).serving(workload)
            shortage, log = Shortage(self.context.host), TrialLog()
            exits.enter_context(_lack_of_memory(shortage))
            parts = exits.enter_context(start_stack(self.context, spec, log))
            instance = combine_layers(parts)
            shortage.watch(instance)
            exits.enter_context(_looking(shortage))
            serving = start_service(parts[-1].instance, workload, spec.image, host=parts[-1].host)
            server = exits.enter_context(serving)
            exits.enter_context(_explained(server.why_soon))
            server.await_answer(self.context.client, self.patience_seconds)
            setup = MeasurementContext(
                instance,
                server.asking(self.context.client),
                tuple(log.marks),
                patience_seconds=self.patience_seconds,
                start=spec.image.start,
            )
            yield Another(setup, shortage.swapped_bytes)

    def cost(self) -> Footprint:
        """Return what all instances cost together; see `Further.cost`."""
        return measure_footprint(self.context, self.context.live)

    def spare_share(self) -> float:
        """Return the share of memory that would be left; see `Further.spare_share`. Raises TrialFailed."""
        memory = parse_meminfo(self.context.host.read("/proc/meminfo"))
        if not memory.total_bytes or memory.available_bytes is None:
            raise TrialFailed("the machine does not report its memory", "see /proc/meminfo there")
        return (memory.available_bytes - self.limit_bytes) / memory.total_bytes

    def _in_free_slot(self, exits: ExitStack, limit_bytes: int) -> InstanceSpec:
        """Return what an instance with this limit of memory is started with in the first slot that is free."""
        taken = {self.spec.slot, *self._taken}
        slot = next((each for each in range(SLOTS) if each not in taken), None)
        if slot is None:
            raise TrialFailed(f"a network has {SLOTS} instances at most", "ask for fewer")
        self._taken.add(slot)
        exits.callback(self._taken.remove, slot)
        moments = [mark.seconds for mark in self.timeline]
        seconds = _PATIENCE * (max(moments) - min(moments)) + self.patience_seconds
        limits = Limits(self.spec.limits.cpus, limit_bytes, self.spec.limits.open_files)
        return replace(self.spec, slot=slot, limits=limits, start_timeout_seconds=seconds)


@contextmanager
def _explained(why: Callable[[], str]) -> Iterator[None]:
    """Describe why the server has ended, where it has: then this is why the load failed."""
    try:
        yield
    except TrialFailed as error:
        words = "" if isinstance(error, Unreachable) else why()
        if not words:
            raise
        raise TrialFailed(f"{words}; {error}", error.hint, error.output) from error


@contextmanager
def _looking(shortage: Shortage) -> Iterator[None]:
    """Look, after a failure, before the instance is taken away with what its control group has counted."""
    try:
        yield
    except TrialFailed:
        shortage.look()
        raise


@contextmanager
def _lack_of_memory(shortage: Shortage) -> Iterator[None]:
    """Raise a failure as OutOfMemory where a kernel has killed a process of the instance."""
    try:
        yield
    except (Unreachable, OutOfMemory):
        raise
    except TrialFailed as error:
        if killer := shortage.killer():
            what = f"{killer} ended a process of it for lack of memory; {error}"
            raise OutOfMemory(what, error.hint, error.output) from error
        raise
