"""Layers of a stack, started one inside the other: the inside of an instance is the host of the next layer.

tare starts the outermost layer on the machine under test. Its inside gets a network, a folder and the image, and then
starts the next layer. The cost of each layer is recorded separately: the time since its parent layer became ready, and
the footprint on its host.

An outer machine boots an image with the engines (`tare.images.recipes.machine_recipe`). tare starts the machine once
for each stack, copies the image into it, lets the inner technology's engine import the image, and stores the disk.
Every trial starts on a fresh copy of that disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from tare.hosts.exec import ExecHost, ensure_resident
from tare.hosts.host import Host, Process
from tare.hosts.local import LocalHost
from tare.images.cache import hold_in_cache
from tare.images.image import copy_to_host
from tare.model.errors import OutOfMemory, TareError, TimedOut, TrialFailed, Unavailable, Unschedulable
from tare.model.trial import Caution, LimitsSpec, Mark, Output
from tare.plugins.instance import Instance
from tare.plugins.snapshots import Snapshots
from tare.plugins.technology import (
    NESTED_TIMEOUT_FACTOR,
    READINESS_PORT,
    LaunchRequest,
    StartTimeline,
    Technology,
    find_problems,
)
from tare.runner.context import InstanceSpec, RunContext, create_instance_name, outer_port
from tare.runner.trial_log import TrialLog

PROBE = "/usr/lib/tare/probe"
PROBE_ERROR = "probe: "  # the probe's error messages begin with it
_PROBE_REPORT_SECONDS = 5.0  # after its time-out, for the probe to report that no answer came
_IN_LAYER = "in the layer "
_COPY_SECONDS = 600.0


class CommandRecorder:
    """Host that records the commands of a technology, for the report."""

    def __init__(self, host: Host, commands: list[tuple[str, ...]]) -> None:
        self._host = host
        self._commands: list[tuple[str, ...]] | None = commands
        self.command_line, self.facts, self.connection_error = host.command_line, host.facts, host.connection_error
        self.put, self.get, self.read, self.write, self.read_matching = (
            host.put,
            host.get,
            host.read,
            host.write,
            host.read_matching,
        )

    def stop(self) -> None:
        """Stop recording: later commands are the workload's."""
        self._commands = None

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command; see `Host.run`."""
        self._record(argv)
        return self._host.run(*argv, timeout=timeout, input=input, check=check)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[Process]:
        """Start a command; see `Host.spawn`."""
        self._record(argv)
        return self._host.spawn(*argv, die_with_parent=die_with_parent)

    def _record(self, argv: tuple[str, ...]) -> None:
        if self._commands is not None:
            self._commands.append(argv)


@dataclass(frozen=True)
class StartedLayer:
    """Started layer: its context, and the seconds from the readiness of its parent layer until its readiness."""

    name: str
    context: RunContext
    spec: InstanceSpec
    instance: Instance
    seconds: float

    @property
    def host(self) -> Host:
        """The host that the layer runs on."""
        return self.context.host


StartedLayers = tuple[StartedLayer, ...]


@dataclass(frozen=True)
class StartGate:
    """Hooks that may delay the start of an instance, such as until the other instances of a burst are prepared.

    `before_probe` is called right before the client's probe starts, whose time-out then does not contain the wait, and
    `before_request` right before the request. Some technologies start the probe after the request.
    """

    before_probe: Callable[[], None] = lambda: None
    before_request: Callable[[], None] = lambda: None


_NO_GATE = StartGate()


def combine_layers(parts: StartedLayers) -> Instance:
    """Return a stack as one instance: with the innermost layer's inside and address, and the outermost's footprint."""
    outermost, innermost = parts[0].instance, parts[-1].instance
    if len(parts) == 1:
        return innermost
    return replace(
        innermost,
        network_path="/".join(part.instance.network_path for part in reversed(parts)),
        processes=outermost.processes,
        written_bytes=outermost.written_bytes,
        proof={f"{part.name}: {name}": value for part in parts for name, value in part.instance.proof.items()},
        cautions=tuple(dict.fromkeys(each for part in parts for each in part.instance.cautions)),
    )


def find_layer_on_machine(parts: StartedLayers) -> StartedLayer:
    """Return the outermost layer on the machine under test: the second one if the first provisions that machine."""
    return parts[1 if parts[0].spec.technology.provisions_machine else 0]


def list_hosts_with_kernels(parts: StartedLayers, outermost: StartedLayer) -> Iterator[Host]:
    """Yield the hosts that may have a separate kernel: the layers' insides, innermost first, then the machine."""
    insides = (part.instance.inside for part in reversed(parts))
    yield from (inside for inside in insides if inside is not None)
    yield outermost.host


@contextmanager
def start_stack(
    context: RunContext, spec: InstanceSpec, log: TrialLog, gate: StartGate = _NO_GATE
) -> Iterator[StartedLayers]:
    """Context manager: start the layers of a stack, the outermost first, and wait for the readiness of each.

    The outermost layer waits at the `gate`. Yield the layers, the outermost first. Raises TrialFailed or Unavailable;
    in a nested stack, the message names the layer.
    """
    technology, nested = spec.technology, len(spec.stack) > 1
    if technology.provisions_machine:
        with _start_on_provisioned_machine(context, spec, log) as parts:
            yield parts
        return
    here = spec.outer_spec(spec.outer_image(context.images.outer)) if nested else spec
    before = len(log.marks)
    with ExitStack() as exits:
        try:
            with prefix_errors(technology, nested=nested or spec.parent_ready_at is not None):
                instance = exits.enter_context(start_layer(context, here, log, gate))
        finally:
            _name_by_layer(log, before, technology.name, outermost=before == 0, innermost=not nested)
        ready = log.marks[-1].seconds
        seconds = ready - (spec.parent_ready_at or log.marks[0].seconds)
        part = StartedLayer(technology.name, context, spec, instance, seconds)
        if not nested:
            inside = instance.inside
            # Only the innermost layer gets the workload's conditions: an engine in an outer machine needs all rights.
            if isinstance(inside, ExecHost) and inside.resident:
                inside.resident.set_conditions()
            yield (part,)
            return
        with prefix_errors(spec.stack[-2], nested=True):
            within = context.create_inner_context(instance, spec)
            exits.enter_context(within.cache)
            exits.enter_context(spec.stack[-2].run_engine(within.host))
        yield (part, *exits.enter_context(start_stack(within, spec.inner_spec(within, ready), log)))


@contextmanager
def _start_on_provisioned_machine(context: RunContext, spec: InstanceSpec, log: TrialLog) -> Iterator[StartedLayers]:
    """Context manager: provision a machine, and start the inner layers there as on any machine over SSH.

    Preparation of the machine, such as copying the image, does not count as start time: earlier marks move forward by
    its duration. The limits apply to the innermost instance; the machine itself has none.
    """
    technology, inner = spec.technology, spec.stack[:-1]
    if context.provision is None or not inner:
        raise Unavailable(
            f"{technology.name} provisions its machine: [hosts.server] cannot name another", "leave out [hosts.server]"
        )
    timeline = StartTimeline(technology=technology.name)
    host = CommandRecorder(context.host, log.commands)
    folder = context.instances_folder / create_instance_name(context.network.with_slot(spec.slot))
    with ExitStack() as exits:
        try:
            with prefix_errors(technology, nested=True):
                provisioning = technology.provision_machine(host, context.ledger, folder, timeline.mark)
                machine, instance = exits.enter_context(provisioning)
                host.stop()
                within = exits.enter_context(context.provision(machine, spec))
                # CPU numbers are this machine's: only their count is meaningful on the provisioned one.
                requested = LimitsSpec(len(spec.limits.cpus), spec.limits.memory_bytes, spec.limits.open_files)
                limits = within.restrict_limits(requested)
        finally:
            log.marks += timeline.marks
            _name_by_layer(log, len(log.marks) - len(timeline.marks), technology.name, outermost=True, innermost=False)
        before, ready = time.monotonic(), timeline.marks[-1].seconds
        log.marks[:] = [Mark(mark.name, mark.seconds + before - ready) for mark in log.marks]
        log.cautions += within.hosts.placement.cautions
        part = StartedLayer(technology.name, context, spec, instance, ready - timeline.marks[0].seconds)
        there = InstanceSpec(
            inner,
            within.images.main,
            limits,
            port=spec.port,
            udp=spec.udp,
            extra_ports=spec.extra_ports,
            volume_bytes=spec.volume_bytes,
            parent_ready_at=before,
        )
        yield (part, *exits.enter_context(start_stack(within, there, log)))


def start_timeout_seconds(technology: Technology, level: int, cautions: Iterable[Caution]) -> float:
    """Return the time-out of an instance's start in seconds, `level` layers deep: longer if machines are nested.

    An emulated machine under test, known from `cautions`, counts as a level.
    """
    emulated = any(caution.kind == "emulated" for caution in cautions)
    machines = level + technology.can_host + emulated
    return technology.start_timeout_seconds * (NESTED_TIMEOUT_FACTOR if machines > 1 else 1)


@contextmanager
def start_layer(
    context: RunContext, spec: InstanceSpec, log: TrialLog, gate: StartGate = _NO_GATE
) -> Iterator[Instance]:
    """Context manager: start the outermost layer of a stack, and wait until it is ready for the client."""
    technology, network = spec.technology, context.network.with_slot(spec.slot)
    name = create_instance_name(network)
    service_ports = dict.fromkeys((*((spec.port,) if spec.port else ()), *spec.extra_ports))
    ports = (READINESS_PORT, *service_ports) if len(spec.stack) == 1 else (outer_port(context),)
    probes: list[Process] = []
    timeline = StartTimeline(technology=technology.name, before_request=gate.before_request)
    usual_seconds = start_timeout_seconds(technology, network.level, context.hosts.placement.cautions)
    seconds = min(usual_seconds, spec.start_timeout_seconds)
    with context.ledger.undo_in_background(), ExitStack() as exits:

        def probe(address: str, port: int | None = None) -> None:
            gate.before_probe()
            argv = (PROBE, address, str(port or ports[0]), f"{seconds:g}", *(("connect",) if port else ()))
            probes.append(exits.enter_context(context.client.spawn(*argv)))

        request = LaunchRequest(
            name=name,
            image=spec.image,
            limits=spec.limits,
            network=network,
            ports=ports,
            uses_udp=spec.udp,
            folder=context.instances_folder / name,
            ledger=context.ledger,
            start_probe=probe,
            timeline=timeline,
            readiness_port=ports[0],
            start_timeout_seconds=seconds,
            cache=context.cache,
            volume_bytes=spec.volume_bytes,
        )
        host = CommandRecorder(context.host, log.commands)
        try:
            if spec.snapshot and isinstance(technology, Snapshots):
                instance = exits.enter_context(technology.restore(host, request, spec.snapshot))
            else:
                instance = exits.enter_context(technology.launch(host, request))
            for process in probes:
                _mark_ready(process, timeline, seconds, context.clock_ahead_seconds)
        finally:
            log.marks += timeline.marks
        host.stop()
        if instance.inside is not None:
            exits.enter_context(ensure_resident(instance.inside))
        context.live_instances.append(instance)
        exits.callback(context.live_instances.remove, instance)
        yield instance


def _mark_ready(probe: Process, timeline: StartTimeline, timeout_seconds: float, clock_ahead_seconds: float) -> None:
    """Mark the first answer as `ready`, and the begin of `init` as `userspace` if it lies between request and answer.

    The begin of `init` is on the instance's clock, which only without a separate kernel is the client's. Raises
    TimedOut without an answer.
    """
    try:
        answered, word, *began = probe.read_line(timeout_seconds + _PROBE_REPORT_SECONDS).text.split()
    except TrialFailed as error:
        target, _, problem = probe.errors().strip().rpartition(PROBE_ERROR)[2].partition(": ")
        if not problem:
            raise
        what = f"{target} did not answer the client within {timeout_seconds:g} s: {problem}"
        raise TimedOut(what, error.hint) from error
    ready = int(answered) / 1e9 - clock_ahead_seconds
    requested = timeline.marks[0].seconds
    if word == "tare" and began and not any(mark.name == "userspace" for mark in timeline.marks):
        userspace = int(began[0]) / 1e9 - clock_ahead_seconds
        if requested <= userspace <= ready:
            timeline.mark("userspace", userspace)
    # The offset between the clocks of two machines has an error: without `max`, a fast start might end before it began.
    timeline.mark("ready", max(ready, requested))


def _name_by_layer(log: TrialLog, begin: int, layer: str, *, outermost: bool, innermost: bool) -> None:
    """Prefix the marks from index `begin` on with their layer, except the stack's only `requested` and `ready`."""
    log.marks[begin:] = [
        mark if (outermost if mark.name == "requested" else innermost) else Mark(f"{layer}:{mark.name}", mark.seconds)
        for mark in log.marks[begin:]
    ]


@contextmanager
def prefix_errors(technology: Technology, nested: bool) -> Iterator[None]:
    """Context manager: add the layer's name to the message of an error, unless an inner layer did so."""
    try:
        yield
    except TareError as error:
        if not nested or str(error).startswith(_IN_LAYER):
            raise
        what = f"{_IN_LAYER}{technology.name}: {str(error).removeprefix(f'{technology.name}: ')}"
        if isinstance(error, TrialFailed):  # keep the class: loads tell a lack of memory or room from other failures
            kind = next(kind for kind in (TimedOut, OutOfMemory, Unschedulable, TrialFailed) if isinstance(error, kind))
            raise kind(what, error.hint, error.output) from error
        raise (Unavailable if isinstance(error, Unavailable) else TareError)(what, error.hint) from error


def prepare_disk(context: RunContext, spec: InstanceSpec, say: Callable[[str], None]) -> None:
    """Make the disk of a stack's outer machine, with the image inside, unless the disk exists.

    Raises Unavailable with the layer's name.
    """
    technology, inner, outer = spec.technology, spec.stack[:-1], context.images.outer
    if not inner or technology.provisions_machine:  # a provisioned machine is prepared when it has been provisioned
        return
    disk = str(spec.outer_image(outer).disk)
    if context.host.run("test", "-e", disk, timeout=30, check=False).exit_code == 0:
        if isinstance(context.host, LocalHost):
            hold_in_cache(Path(disk))
        return
    assert outer is not None  # noqa: S101 - `outer_image` raises otherwise
    say(f"starting {technology.name}, to put the image into it once")
    with (
        prefix_errors(technology, nested=True),
        start_layer(context, spec.outer_spec(outer), TrialLog()) as instance,
    ):
        if instance.inside is None or instance.disk_file is None:
            raise Unavailable(f"{technology.name}: its machine has no disk file to store", "report this")
        within = context.create_inner_context(instance, spec)
        with prefix_errors(inner[-1], nested=True), inner[-1].run_engine(within.host):
            if problems := tuple(find_problems(inner[-1], within.host)):
                what = "; ".join(problem.what for problem in problems)
                raise Unavailable(f"in the layer {inner[-1].name}, inside {technology.name}: {what}", problems[0].fix)
            say(f"copying the image into {technology.name}")
            image = copy_to_host(within.host, spec.image)
            if len(inner) > 1:
                copy_to_host(within.host, outer)
                prepare_disk(within, spec.inner_spec(within), say)
            else:
                say(f"importing the image into {inner[-1].name}")
                inner[-1].prepare_image(within.host, image)
            # The disk is copied from outside: data in the guest's page cache would be missing.
            within.host.run("sync", timeout=_COPY_SECONDS)
        say("storing the disk")
        form = PurePosixPath(instance.disk_file).suffix[1:]
        # -U: the running monitor holds a lock on the disk. The guest has synced all that was written.
        copy = ("qemu-img", "convert", "-U", "-f", form, "-O", "qcow2", "-B", str(outer.disk), "-F", "raw")
        context.host.run(*copy, instance.disk_file, f"{disk}.new", timeout=_COPY_SECONDS)
        # The base file has a path relative to the disk: the cache may be moved, or have another path on a host.
        base = f"{outer.digest}/{outer.disk.name}"
        context.host.run("qemu-img", "rebase", "-u", "-b", base, "-F", "raw", f"{disk}.new", timeout=30)
        context.host.run(
            "mv", f"{disk}.new", disk, timeout=30
        )  # atomic: an interrupted copy is never taken for the disk
