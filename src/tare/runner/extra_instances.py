"""Extra instances of a trial's stack, for workloads that vary the memory limit or the number of instances.

A lack of memory shows in two ways: a kernel kills processes, or moves pages to swap. A container's control group counts
both, and so does a guest's kernel for the guest. If the group is gone with its container, or never existed, the
machine's counter of killed processes is used, which includes all groups.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from tare.hosts.cgroups import group_folder, kernel_bytes
from tare.hosts.facts import has_private_kernel, parse_meminfo
from tare.hosts.host import Host
from tare.hosts.network import SLOTS
from tare.model.errors import OutOfMemory, TareError, TrialFailed, Unavailable, Unreachable
from tare.model.lifecycle import Burst
from tare.model.trial import Footprint, LayerCost, Limits, Mark
from tare.plugins.instance import Instance
from tare.plugins.snapshots import Snapshots
from tare.plugins.workload import ExtraInstance, InstanceStarter, MeasurementContext, Snapshot, Workload
from tare.runner.bursts import burst_timeout_seconds, run_burst, run_stop
from tare.runner.context import InstanceSpec, RunContext, create_instance_name
from tare.runner.layers import StartedLayer, StartedLayers, combine_layers, start_stack
from tare.runner.service import start_service
from tare.runner.snapshots import SnapshotIdentity, create_snapshot_folder
from tare.runner.trial_log import TrialLog
from tare.telemetry.processes import measure_proportional_memory
from tare.telemetry.procfs import read_page_bytes

_VMSTAT = "/proc/vmstat"
_CGROUP_KILL_FILES = ("memory.events", "memory.oom_control")  # version 2 and 1
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_GROUP_SWAP = re.compile(r"^total_swap (\d+)$", re.MULTILINE)
_GUEST_SWAP = re.compile(r"^pswp(?:in|out) (\d+)$", re.MULTILINE)
_MACHINE, _GUEST = "the machine's kernel", "the guest's kernel"
_START_TIMEOUT_FACTOR = 5  # times the start time of the trial's first instance


def measure_footprint(context: RunContext, instances: Collection[Instance]) -> Footprint:
    """Return the footprint of these instances together; other live instances of the host do not count."""
    host, processes = context.host, [instance.processes() for instance in instances]
    others = (pid for other in context.live_instances if other not in instances for pid in other.processes())
    memory, count = measure_proportional_memory(
        host, context.images.main.root, [pid for pids in processes for pid in pids], others
    )
    kernel = _sum_if_known(kernel_bytes(host, group_folder(host, pids[0])) if pids else None for pids in processes)
    reported = _sum_if_known(_reported_bytes(host, instance) for instance in instances)
    return Footprint(memory, kernel, _sum_if_known(instance.written_bytes() for instance in instances), count, reported)


def measure_layer_footprint(part: StartedLayer) -> Footprint:
    """Measure the footprint of a layer on the host that it runs on."""
    return measure_footprint(part.context, [part.instance])


def measure_layer_costs(parts: StartedLayers) -> tuple[LayerCost, ...]:
    """Return the start time and footprint of each layer of a nested stack; empty for a stack of one layer."""
    if len(parts) == 1:
        return ()
    return tuple(LayerCost(part.name, part.seconds, measure_layer_footprint(part)) for part in parts)


def _reported_bytes(host: Host, instance: Instance) -> int | None:
    """Return the bytes that a guest's kernel counts as used; None without a guest kernel, or if it does not answer."""
    with suppress(TrialFailed):
        if instance.inside and has_private_kernel(host, instance.inside):
            return parse_meminfo(instance.inside.read("/proc/meminfo")).used_bytes
    return None


def _sum_if_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None if a number is unknown: a partial sum would look like a result."""
    known = [*numbers]
    return sum(number for number in known if number is not None) if known and None not in known else None


def sum_matches(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the sum of the numbers that a pattern matches; None without a match."""
    numbers = [int(number) for number in pattern.findall(text)]
    return sum(numbers) if numbers else None


class MemoryShortageWatch:
    """Watch for a lack of memory of one instance; create it before the instance starts, to have counters from then."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._before = self._count_host_kills()
        self._instance: Instance | None = None
        self._folder = ""
        self._has_kernel = False
        self._killer: str | None = None

    def watch(self, instance: Instance) -> None:
        """Record the instance once it is ready."""
        self._instance = instance
        if pids := instance.processes():
            self._folder = group_folder(self._host, pids[0])
        with suppress(TareError):
            self._has_kernel = instance.inside is not None and has_private_kernel(self._host, instance.inside)

    def read_killer(self) -> None:
        """Read from the counters of a live instance whether a kernel has killed a process of it."""
        if self._has_kernel and sum_matches(_KILLS, self._read_inside(_VMSTAT)):
            self._killer = _GUEST
        elif (kills := self._count_cgroup_kills()) is not None:
            self._killer = _MACHINE if kills else ""

    def find_killer(self) -> str:
        """Return which kernel has killed a process of the instance for lack of memory, as text; empty if none has."""
        if self._killer is None:
            return _MACHINE if self._count_host_kills() > self._before else ""
        return self._killer

    def swapped_bytes(self) -> int:
        """Return the bytes of the instance in swap; for a guest, the bytes moved to and from its swap so far."""
        if self._has_kernel:
            return read_page_bytes(self._read_inside) * (sum_matches(_GUEST_SWAP, self._read_inside(_VMSTAT)) or 0)
        if not self._folder:
            return 0
        second = self._host.read(f"{self._folder}/memory.swap.current").strip()
        return int(second) if second else sum_matches(_GROUP_SWAP, self._host.read(f"{self._folder}/memory.stat")) or 0

    def _count_host_kills(self) -> int:
        return sum_matches(_KILLS, self._host.read(_VMSTAT)) or 0

    def _count_cgroup_kills(self) -> int | None:
        if not self._folder:
            return None
        return sum_matches(_KILLS, "".join(self._host.read_matching(self._folder, name) for name in _CGROUP_KILL_FILES))

    def _read_inside(self, path: str) -> str:
        """Return the text of a file inside the instance; empty if it cannot be read."""
        inside = self._instance.inside if self._instance else None
        with suppress(TareError):
            return inside.read(path) if inside else ""
        return ""


@dataclass
class ExtraInstances(InstanceStarter):
    """Starter of extra instances in free slots; `spec` and `timeline` are those of the trial's first instance.

    A server without memory often hangs, and its load with it: both get only `timeout_seconds`. The start of an
    instance times out after five times the start time of the first instance plus `timeout_seconds`.
    """

    context: RunContext
    spec: InstanceSpec
    timeline: Sequence[Mark]
    timeout_seconds: float = 10.0
    _used_slots: set[int] = field(default_factory=set)

    @property
    def memory_limit_bytes(self) -> int:
        """The memory limit of the trial's first instance."""
        return self.spec.limits.memory_bytes

    @contextmanager
    def start_instance(self, workload: Workload, limit_bytes: int | None = None) -> Iterator[ExtraInstance]:
        """Start an instance with the workload's server; see `InstanceStarter.start_instance`."""
        self._require_slots()
        with ExitStack() as exits:
            spec = self._take_free_slot(exits, limit_bytes or self.memory_limit_bytes)
            yield exits.enter_context(self._start(spec, workload))

    @contextmanager
    def take_snapshot(self, workload: Workload, warm_up: Callable[[ExtraInstance], None]) -> Iterator[Snapshot]:
        """Take a snapshot of a warmed-up instance; see `InstanceStarter.take_snapshot`."""
        context, technology, host = self.context, self.spec.technology, self.context.host
        if isinstance(technology, Snapshots) and (problems := technology.snapshot_problems(host)):
            raise Unavailable(f"{technology.name}: {problems[0].what}", problems[0].fix)
        with ExitStack() as exits:
            spec = self._take_free_slot(exits, self.memory_limit_bytes)
            name = f"{create_instance_name(context.network.with_slot(spec.slot))}-snapshot"
            folder = exits.enter_context(create_snapshot_folder(context.ledger, context.instances_folder / name))

            def identify() -> SnapshotIdentity:
                return SnapshotIdentity(technology.name, technology.version(host), spec.image.digest)

            identity = identify()  # before the instance, so that an update of the technology meanwhile is noticed
            with self._start(spec, workload) as source:
                warm_up(source)
                instance = source.setup.instance
                if instance.take_snapshot is None or instance.address is None:
                    raise Unavailable(f"{technology.name}: it has no snapshots that tare can take", "leave it out")
                instance.take_snapshot(folder)
            identity.write(host, folder)

            @contextmanager
            def restore() -> Iterator[ExtraInstance]:
                identify().require_equal(host, folder)
                # As long as any start may take: to read much memory takes longer than a start.
                restored_spec = replace(spec, snapshot=folder, start_timeout_seconds=math.inf)
                with self._start(restored_spec, workload) as restored:
                    yield restored

            disk_bytes = context.ledger.setup_helper.bytes_below(folder)
            yield Snapshot(instance.address, disk_bytes, restore, lambda: self._start(spec, workload))

    @contextmanager
    def _start(self, spec: InstanceSpec, workload: Workload) -> Iterator[ExtraInstance]:
        """Context manager: start an instance with the workload's server in its slot."""
        with ExitStack() as exits:
            spec = spec.with_workload(workload)
            shortage, log = MemoryShortageWatch(self.context.host), TrialLog()
            # Entered before the start and so left after the instance's end, when the counters are final.
            exits.enter_context(_detect_out_of_memory(shortage))
            parts = exits.enter_context(start_stack(self.context, spec, log))
            instance = combine_layers(parts)
            shortage.watch(instance)
            exits.enter_context(_read_killer_on_failure(shortage))
            serving = start_service(parts[-1].instance, workload, spec.image, host=parts[-1].host)
            server = exits.enter_context(serving)
            exits.enter_context(_explain_failure(server.await_failure_reason))
            server.await_ready(self.context.client, self.timeout_seconds)
            setup = MeasurementContext(
                instance,
                server.scoped_client(self.context.client),
                tuple(log.marks),
                timeout_margin_seconds=self.timeout_seconds,
                start_command=spec.image.start_command,
                client_address=self.context.network.client_address,
            )
            yield ExtraInstance(setup, shortage.swapped_bytes)

    def start_neighbor(self, workload: Workload) -> AbstractContextManager[ExtraInstance]:
        """Start an instance on the client's CPUs; see `InstanceStarter.start_neighbor`."""
        limits, cpus = self.spec.limits, self.context.hosts.placement.client[: len(self.spec.limits.cpus)]
        if not self.context.hosts.client_is_local or not cpus or set(cpus) & set(limits.cpus):
            what = "the machine has no free CPU for a neighbor"
            raise Unavailable(what, "use a machine with more CPUs, with the client on it")
        spec = replace(self.spec, limits=replace(limits, cpus=cpus))
        return replace(self, spec=spec).start_instance(workload)

    def start_burst(self, count: int, stagger_seconds: float) -> Burst:
        """Start instances together; see `InstanceStarter.start_burst`."""
        self._require_slots()
        with ExitStack() as exits:
            specs = [self._take_free_slot(exits, self.memory_limit_bytes) for _ in range(count)]
            seconds = burst_timeout_seconds(specs[0].start_timeout_seconds, count)
            return run_burst(
                self.context, [replace(spec, start_timeout_seconds=seconds) for spec in specs], stagger_seconds
            )

    def measure_stop(self) -> float:
        """Start and stop an instance; see `InstanceStarter.measure_stop`."""
        self._require_slots()
        with ExitStack() as exits:
            return run_stop(self.context, self._take_free_slot(exits, self.memory_limit_bytes))

    def measure_footprint(self) -> Footprint:
        """Return the footprint of all instances together; see `InstanceStarter.measure_footprint`."""
        return measure_footprint(self.context, self.context.live_instances)

    def spare_memory_share(self) -> float:
        """Return the share of the machine's memory that another full instance would leave; see `InstanceStarter`.

        Raises TrialFailed if the machine does not report its memory.
        """
        memory = parse_meminfo(self.context.host.read("/proc/meminfo"))
        if not memory.total_bytes or memory.available_bytes is None:
            raise TrialFailed("the machine does not report its memory", "see /proc/meminfo there")
        return (memory.available_bytes - self.memory_limit_bytes) / memory.total_bytes

    def _require_slots(self) -> None:
        """Raise Unavailable if the stack cannot have several instances at a time."""
        for technology in self.spec.stack:
            if technology.has_fixed_address or technology.provisions_machine:
                what = f"{technology.name}: tare cannot start extra instances"
                raise Unavailable(what, "leave this stack out of workloads that start several instances")

    def _take_free_slot(self, exits: ExitStack, limit_bytes: int) -> InstanceSpec:
        """Reserve the first free slot until `exits` closes; return the specification of an instance in it.

        Raises TrialFailed if no slot is free.
        """
        taken = {self.spec.slot, *self._used_slots}
        slot = next((each for each in range(SLOTS) if each not in taken), None)
        if slot is None:
            raise TrialFailed(f"a network has {SLOTS} instances at most", "request fewer instances")
        self._used_slots.add(slot)
        exits.callback(self._used_slots.remove, slot)
        moments = [mark.seconds for mark in self.timeline]
        seconds = _START_TIMEOUT_FACTOR * (max(moments) - min(moments)) + self.timeout_seconds
        limits = Limits(self.spec.limits.cpus, limit_bytes, self.spec.limits.open_files)
        return replace(self.spec, slot=slot, limits=limits, start_timeout_seconds=seconds)


@contextmanager
def _explain_failure(failure_reason: Callable[[], str]) -> Iterator[None]:
    """Context manager: prefix a failure with the reason why the server has ended, which explains the load's failure."""
    try:
        yield
    except TrialFailed as error:
        reason = "" if isinstance(error, Unreachable) else failure_reason()
        if not reason:
            raise
        raise TrialFailed(f"{reason}; {error}", error.hint, error.output) from error


@contextmanager
def _read_killer_on_failure(shortage: MemoryShortageWatch) -> Iterator[None]:
    """Context manager: after a failure, read the counters before the instance and its control group are removed."""
    try:
        yield
    except TrialFailed:
        shortage.read_killer()
        raise


@contextmanager
def _detect_out_of_memory(shortage: MemoryShortageWatch) -> Iterator[None]:
    """Context manager: raise a failure as OutOfMemory if a kernel has killed a process of the instance."""
    try:
        yield
    except (Unreachable, OutOfMemory):
        raise
    except TrialFailed as error:
        if killer := shortage.find_killer():
            what = f"{killer} killed a process of the instance for lack of memory; {error}"
            raise OutOfMemory(what, error.hint, error.output) from error
        raise
