"""One trial: a fresh instance of a stack, one workload, its values and cautions."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from tare.hosts.filesystems import (
    ColdStart,
    begin_to_look,
    disks_moved,
    drop_caches,
    file_systems_under,
    file_systems_used,
)
from tare.hosts.host import Host
from tare.model.errors import TareError, TimedOut, TrialFailed, Unavailable, in_words
from tare.model.trial import Caution, Footprint, Layer, Output, Raw, SetLimits, Status, Trial, Turn
from tare.plugins.workload import Instance, MeasurementContext, Workload
from tare.runner.context import InstanceSpec, RunContext
from tare.runner.extra_instances import ExtraInstances, measure_footprint
from tare.runner.inside_check import InsideCheck
from tare.runner.layers import StartedLayer, StartedLayers, combine_layers, start_stack
from tare.runner.sanitize import drop_unserializable, redact_secrets
from tare.runner.sanity_checks import (
    GuestClockCheck,
    cache_cautions,
    client_cautions,
    find_invalid,
    limit_cautions,
    place_cautions,
    read_guest_clock,
    read_observed_limits,
    reject_impossible_values,
    sidecar_cautions,
    waiting_cautions,
)
from tare.runner.schedule import rounds_by_label
from tare.runner.service import ServiceProcess, start_service
from tare.runner.sidecars import SidecarServices
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values, service_ready
from tare.suites.plan import Step
from tare.telemetry.sampler import Sampler, Telemetry, not_kept
from tare.telemetry.turn_usage import Edges, Quiet, Spent

FinishedTrial = tuple[Trial, tuple[Raw, ...]]
_LACK_OF_MEMORY = re.compile("annot allocate memory|ut of memory")
_MORE_MEMORY = "it may want more memory than the instance has: [limits] memory; see its raw output"
_UNPROVEN = Caution(
    "never-run", "tare's own tests have run this technology only against a program that stands in for it"
)


@dataclass
class _LiveTrial:
    """An instance that is ready, with its service, and what watches it."""

    parts: StartedLayers
    setup: MeasurementContext
    telemetry: Telemetry
    edges: Edges
    clock: GuestClockCheck | None
    measuring: Iterator[Raw] = field(default_factory=lambda: iter(()))


class TrialRun:
    """A trial in progress: started, measured turn by turn, and ended; all that it made is gone after the block.

    Every error in it becomes its reason, also a full disk or a bug of a plug-in, and ends it at once. Only a stop from
    outside is raised.
    """

    def __init__(
        self, context: RunContext, step: Step, spec: InstanceSpec, workload: Workload, check: InsideCheck | None = None
    ) -> None:
        self.step = step
        self.log = TrialLog()
        self._context, self._spec = context, spec.serving(workload)
        self._workload, self._inside_check = workload, check
        if not spec.technology.gives_machine:  # a provisioned machine has another placement
            self.log.cautions += context.hosts.placement.cautions
        self._open = ExitStack()
        self._live: _LiveTrial | None = None
        self._server = ServiceProcess()
        self._sidecars = SidecarServices()
        self._sampler: Sampler | None = None  # its own, where it is the only one
        self._services_stayed = False  # until the trial itself ended them
        self.timed_out = False  # in a turn

    def __enter__(self) -> Self:
        """Return the attempt; nothing is made yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take away what is left of it, if it was not ended."""
        self._live = None
        self._open.close()

    def start(self) -> None:
        """Start the instance, the workload's sidecar services and its server, and telemetry."""
        log, workload, context, spec = self.log, self._workload, self._context, self._spec
        log.started = time.time()
        with self._failing_alone():
            self._open.callback(self._settle)
            self._refuse_unsuited()
            cold = ColdStart(context.host) if workload.starts_cold else None
            if cold:  # now, and once more when all is prepared, where little is left to drop
                cold.begin()
            parts = self._open.enter_context(start_stack(context, spec, log, cold.begin if cold else None))
            cold_read_bytes = cold.read_bytes() if cold else None
            instance, innermost = combine_layers(parts), parts[-1]
            self._look_at(instance, innermost)
            self._sidecars.start(self._open, context, workload, instance)
            # The server must still run at the last sample: its counters vanish with it.
            purpose = self._sidecars.purpose
            serving = start_service(innermost.instance, workload, spec.image, purpose, innermost.host)
            self._server = self._open.enter_context(serving)
            log.ready_seconds = self._server.await_answer(innermost.context.client)
            telemetry = self._watched(_on_machine(parts))
            setup = self._setup(parts, instance, cold_read_bytes)
            edges = _edges(_on_machine(parts), context.hosts.placement.beside if workload.beside else ())
            self._open.callback(edges.resume)
            self._live = _LiveTrial(parts, setup, telemetry, edges, read_guest_clock(spec.stack, instance.inside))

    def measure_from(self, first_round: int) -> None:
        """Begin to measure; once more where it measures with several groups, one after the other."""
        if self._live and not self.log.turns:
            self.log.first_round = first_round
        with self._failing_alone():
            if self._live:
                measuring = iter(self._workload.measure(self._live.setup))
                if isinstance(measuring, Generator):  # what it has started ends before the instance does
                    self._open.callback(measuring.close)
                self._live.measuring = measuring

    @property
    def is_running(self) -> bool:
        """Whether it has neither ended nor failed."""
        return self._live is not None

    def rounds_of_all(self, labels: Collection[str]) -> int:
        """Return the number of whole rounds so far, in which each of these labels has come; 0 within a round."""
        counts = rounds_by_label(self.log.turns)
        each = {counts[label] for label in labels}
        return each.pop() if len(each) == 1 and len(counts) == len(labels) else 0

    @property
    def rounds(self) -> int:
        """The rounds that it has had so far: where a time decides, no two stacks have as many."""
        return max(rounds_by_label(self.log.turns).values(), default=0)

    def run_turn(self, number: int, since: float) -> Raw | None:
        """Run a turn, which is the n-th of the block since that moment; return its output, None if it has no more."""
        live, raw = self._live, None
        with self._failing_alone():
            if live is not None:
                try:
                    raw = self._run_turn(live, number, since)
                except TimedOut:
                    self.timed_out = True
                    raise
        return raw if self._live is not None else None

    def end(self) -> None:
        """End the instance, read the values, and check whether they can be right."""
        with self._failing_alone():
            if self._live is not None:
                self._end(self._live)

    def finished(self) -> FinishedTrial:
        """Return the trial as it is recorded, with its raw output."""
        stack = "/".join(technology.name for technology in self._spec.stack)
        trial = self.log.trial(self.step)
        return redact_secrets(*drop_unserializable(trial, self.log.raw, stack, self._workload.name))

    @contextmanager
    def _failing_alone(self) -> Iterator[None]:
        """Record an error as the trial's reason and end the trial; count the time."""
        clock = time.monotonic()
        try:
            yield
        except Unavailable as error:
            self._give_up(f"{error} (fix: {error.hint})" if error.hint else str(error), status="skipped")
        except TareError as error:
            if isinstance(error, TrialFailed) and error.output is not None:
                self.log.raw.append(_last_words(error.output))
            self.log.raw += (*self._server.last_words(), *self._sidecars.last_words())
            why = "" if self._services_stayed else self._why_ended()
            hint = _MORE_MEMORY if _LACK_OF_MEMORY.search(why) else error.hint
            self._give_up(f"{why}; {error}" if why else str(error), hint)
        except Exception as error:  # noqa: BLE001 - plug-ins are anybody's, and may raise anything
            self.log.raw.append(Raw("traceback", (), "".join(traceback.format_exception(error)), 0.0))
            self._give_up(str(fault := in_words(error)), fault.hint)
        finally:
            self.log.seconds += time.monotonic() - clock

    def _why_ended(self) -> str:
        """Describe why a service has ended, if one has: then this is why the load failed."""
        return self._sidecars.why() or self._server.why_soon() or self._sidecars.why()

    def _give_up(self, reason: str, hint: str = "", status: Status = "failed") -> None:
        """Record the first reason, and remove the instance at once: it must not be in the way of the others."""
        self.log.fail(reason, hint, status)
        self._live = None
        with suppress(Exception):  # the reason is known already
            self._open.close()
        self.log.ended = self.log.ended or time.time()

    def _refuse_unsuited(self) -> None:
        """Raise Unavailable where the stack cannot run the workload."""
        stack, workload = self._spec.stack, self._workload
        self.log.path = "/".join(technology.path for technology in stack)
        for technology in stack:
            if reason := technology.refuses(workload):
                raise Unavailable(f"{technology.name}: {reason}")
            self.log.cautions += [_UNPROVEN] if technology.tested == "stand-in" else []
        if workload.volume_bytes and not stack[0].volumes:
            raise Unavailable(f"{stack[0].name}: it gives its instances no data volume", 'write place = "root"')
        if workload.beside and stack[-1].gives_machine:
            raise Unavailable(f"{stack[-1].name}: services beside cannot be reached from there", "leave this stack out")
        if workload.starts_cold and stack[-1].gives_machine:
            raise Unavailable(f"{stack[-1].name}: the caches of a lent machine are not tare's", 'write caches = "warm"')

    def _look_at(self, instance: Instance, innermost: StartedLayer) -> None:
        """Read what the instance is, and what must be equal in all stacks: file systems, conditions of a process."""
        log, spec, inside = self.log, self._spec, instance.inside
        log.path, log.proof = instance.path, tuple(instance.proof.items())
        if self.step.stack in self._context.images.by_stack:
            log.proof += (("image", spec.image.origin or spec.image.digest),)
        log.limits = SetLimits(spec.limits, read_observed_limits(innermost))
        if inside is not None:
            log.file_systems = file_systems_under(inside, self._workload.paths)
            if self._inside_check:
                self._inside_check.read(self.step.stack, inside)
            if self._workload.writes_anywhere:
                begin_to_look(inside)
        log.cautions += [*instance.cautions, *limit_cautions(log.limits)]

    def _setup(self, parts: StartedLayers, instance: Instance, cold_read_bytes: int | None) -> MeasurementContext:
        """Return what the workload measures with."""
        context, workload, marks = parts[-1].context, self._workload, tuple(self.log.marks)
        outermost = _on_machine(parts)
        return MeasurementContext(
            instance,
            self._server.asking(context.client),
            marks,
            self.log.limits,
            start=self._spec.image.start,
            drop_caches=lambda: drop_caches(_kernels(parts, outermost)),
            disks_moved=lambda: disks_moved(outermost.host),
            cold_read_bytes=cold_read_bytes,
            further_clients=tuple(map(self._server.asking, context.extra_clients)) if workload.splits else (),
            client_address=context.client_address,
            further=ExtraInstances(self._context, self._spec, marks) if workload.alone else None,
        )

    def _watched(self, part: StartedLayer) -> Telemetry:
        """Sample the processes of a stack's layer, with those of its block or without others, and their machine."""
        sampler = part.spec.sampler
        if sampler is None:
            sampling = part.context.sampling
            target = sampling.folder / f"{self.step.trial}.parquet"
            sampler = self._sampler = Sampler(target, sampling.of(part.host))
            self._open.callback(sampler.end)
        return self._open.enter_context(sampler.watching(self.step.trial, part.instance.processes))

    def _settle(self) -> None:
        """Wait for the file of its own sampler, which is written while the instance ends."""
        if self._sampler is not None:
            self._sampler.settle()

    def _run_turn(self, live: _LiveTrial, number: int, since: float) -> Raw | None:
        """Ask for one more output; what was there before a failure is kept."""
        live.edges.begin()
        began = time.monotonic()
        raw = next(live.measuring, None)
        seconds = time.monotonic() - began
        if raw is None:
            live.edges.leave()
            return None
        if not isinstance(raw, Raw):
            raise TrialFailed(f"{self._workload.name} gave {raw!r} as raw output", "its plug-in has a bug")
        self.log.raw.append(raw)
        rest_seconds = 0.0 if raw.sending_seconds is None else raw.seconds - raw.sending_seconds
        steal = live.edges.end(rest_seconds)
        if live.edges.spent.latest is not None and not raw.warm_up:
            self.log.busy_cpus[raw.label].append(live.edges.spent.latest)
        self.log.turns.append(Turn(raw.label, number, began - since, seconds, steal, raw.warm_up))
        return raw

    def _end(self, live: _LiveTrial) -> None:
        log, instance = self.log, live.setup.instance
        if self._server.why():  # another one may have answered in its place
            raise TrialFailed("what was measured is not its server", "see its raw output")
        if self._sidecars.why():
            raise TrialFailed("what was measured is another application", "see its raw output")
        live.edges.resume()
        log.layers = _layers(live.parts)
        log.footprint = footprint_of(live.parts[0])
        if instance.inside is not None and self._workload.writes_anywhere:  # after the footprint: it fills caches
            log.file_systems += file_systems_used(instance.inside, live.setup.start)
        invalid = find_invalid(self._spec.stack, instance, live.clock)
        self._live = None
        self._services_stayed = True
        self._open.close()
        log.ended = time.time()
        self._add_cautions(live)
        log.values = (*read_values(self._workload, log.raw), *service_ready(log.ready_seconds))
        reject_impossible_values(log.values, len(self._spec.limits.cpus))
        if invalid is not None:
            raise invalid

    def _add_cautions(self, live: _LiveTrial) -> None:
        """Flag what was noticed while the workload was measured."""
        log, edges, placement = self.log, live.edges, self._context.hosts.placement
        log.cautions += live.telemetry.cautions()
        if self._sampler and self._sampler.trouble:
            log.cautions.append(not_kept(self._sampler.trouble))
        if edges.quiet and (noticed := edges.quiet.caution()):
            log.cautions.append(noticed)
        log.cautions += client_cautions(log.raw, edges.spent.busy_share)
        if edges.others:
            near = self._context.network.near
            log.cautions += sidecar_cautions(edges.others.busy_share, edges.spent.busy_share, near)
            log.cautions += place_cautions(placement)
        if self._workload.without_pause:
            log.cautions += waiting_cautions(log.raw, log.busy_cpus)
        log.cautions += cache_cautions(log.raw)


def _on_machine(parts: StartedLayers) -> StartedLayer:
    """Return the first layer on the machine under test: that within a machine that the outermost layer provisions."""
    return parts[1 if parts[0].spec.technology.gives_machine else 0]


def _kernels(parts: StartedLayers, outermost: StartedLayer) -> Iterator[Host]:
    """Yield all places of a stack that may have a kernel of their own, and the machine under test, innermost first."""
    insides = (part.instance.inside for part in reversed(parts))
    yield from (inside for inside in insides if inside is not None)
    yield outermost.host


def _edges(part: StartedLayer, others: Sequence[int]) -> Edges:
    """Watch the turns of the outermost layer, and between them whether it rests beside others on its machine.

    `others` are the CPUs of services beside it, if there are any.
    """
    quiet = Quiet(part.host, part.instance.processes) if part.spec.sampler is not None else None
    return Edges(part.host, Spent(part.spec.limits.cpus), quiet, Spent(others) if others else None)


def _layers(parts: StartedLayers) -> tuple[Layer, ...]:
    """Return what each layer of a nested stack adds; empty for a stack of one layer."""
    if len(parts) == 1:
        return ()
    return tuple(Layer(part.name, part.seconds, footprint_of(part)) for part in parts)


def _last_words(output: Output) -> Raw:
    text = (output.stdout + output.stderr).decode("utf-8", "replace")
    return Raw("failed command", output.argv, text, output.seconds)


def footprint_of(part: StartedLayer) -> Footprint:
    """Read what a layer costs the host that it runs on."""
    return measure_footprint(part.context, [part.instance])
