"""Lifecycle of one trial: start a fresh instance of a stack, measure one workload in it, read values and cautions."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from tare.hosts.awake import AwakeCpus
from tare.hosts.filesystems import (
    ColdStart,
    begin_write_tracking,
    drop_caches,
    read_disk_bytes,
    read_file_systems,
    read_used_file_systems,
)
from tare.model.errors import SHOW_COMMAND, TareError, TimedOut, TrialFailed, Unavailable, to_tare_error
from tare.model.trial import Caution, LimitsCheck, Output, RawOutput, Status, Trial, Turn
from tare.plugins.instance import Instance, OuterHost
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import InstanceSpec, RunContext
from tare.runner.extra_instances import ExtraInstances, measure_layer_costs, measure_layer_footprint
from tare.runner.inside_check import InsideCheck
from tare.runner.layers import (
    StartedLayer,
    StartedLayers,
    StartGate,
    find_layer_on_machine,
    list_hosts_with_kernels,
    start_stack,
)
from tare.runner.sanitize import drop_unserializable, redact_secrets
from tare.runner.sanity_checks import (
    GuestClockCheck,
    cache_cautions,
    client_cautions,
    find_invalid,
    limit_cautions,
    placement_cautions,
    read_guest_clock,
    read_observed_limits,
    reject_impossible_values,
    reject_unsupported,
    sidecar_cautions,
    waiting_cautions,
)
from tare.runner.schedule import rounds_by_label
from tare.runner.service import ServiceProcess, start_service
from tare.runner.shared_instances import RunningInstance, SharedInstances
from tare.runner.sidecars import SidecarServices
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values, service_ready_values
from tare.suites.plan import PlannedTrial
from tare.telemetry.sampler import Sampler, Telemetry, lost_telemetry_caution
from tare.telemetry.turn_usage import TurnBoundary, create_boundary

FinishedTrial = tuple[Trial, tuple[RawOutput, ...]]
_OUT_OF_MEMORY = re.compile("annot allocate memory|ut of memory")
_OUTPUT_HINT = "`tare show` has its raw output"
_MORE_MEMORY_HINT = "it may want more memory than the instance has: [limits] memory; `tare show` has its raw output"
_UNTESTED = Caution("never-run", "tare's tests have run this technology only against a program that stands in for it")


@dataclass
class LiveTrial:
    """Ready instance of a trial with its service, its telemetry and its checks at turn boundaries."""

    layers: StartedLayers
    setup: MeasurementContext
    telemetry: Telemetry
    boundary: TurnBoundary
    clock: GuestClockCheck | None
    outputs: Iterator[RawOutput] = field(default_factory=lambda: iter(()))


@dataclass(eq=False)
class TrialRun:
    """Trial in progress: started, measured turn by turn, and ended. Leaving its `with` block removes all it started.

    Every error ends the trial at once and becomes its reason, also a full disk or a bug of a plug-in. Only an
    interruption from outside is raised. An `earlier` start in the block has the footprint and the telemetry.
    """

    context: RunContext
    step: PlannedTrial
    spec: InstanceSpec
    workload: Workload
    inside_check: InsideCheck | None = None
    shared: SharedInstances | None = None
    awake: AwakeCpus | None = None
    earlier: TrialLog | None = None

    def __post_init__(self) -> None:
        """Prepare an empty log."""
        self.log = TrialLog()
        self.spec = self.spec.with_workload(self.workload)
        if not self.spec.technology.provisions_machine:  # a provisioned machine has another placement
            self.log.cautions += self.context.hosts.placement.cautions
        self._open = ExitStack()
        self._running: RunningInstance | None = None
        self.live: LiveTrial | None = None
        self._server = ServiceProcess()
        self._sidecars = SidecarServices()
        self._sampler: Sampler | None = None  # None where the block's sampler covers this instance
        # After the trial ends its services itself, an ended service is no longer the reason of a later error.
        self._services_stayed = False
        self.timed_out = False  # in a turn: the block may then give up a workload whose command never ends

    def __enter__(self) -> Self:
        """Return the trial; nothing is started yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the instance and its services, if the trial was not ended."""
        self.live = None
        self._close()

    def start(self) -> None:
        """Start the instance, the workload's sidecar services and its server, and telemetry."""
        log, workload, context, spec = self.log, self.workload, self.context, self.spec
        log.started = time.time()
        with self._record_failure():
            last = self._open.enter_context(ExitStack())  # a private sampler writes its file while the instance ends
            log.path = "/".join(technology.network_path for technology in spec.stack)
            log.cautions += [_UNTESTED for technology in spec.stack if technology.tested == "stand-in"]
            reject_unsupported(spec.stack, workload)
            cold_read_bytes = self._obtain_instance()
            assert self._running is not None  # noqa: S101 - obtained above
            parts, instance, innermost = self._running.layers, self._running.instance, self._running.layers[-1]
            self._inspect_instance(parts, instance)
            is_kept = self.shared and self.shared.has_use(self.step.workload, self._running)
            if is_kept and not workload.leaves_instance_fresh:
                self._running.record_state()
            self._sidecars.start(self._open, context, workload, instance)
            # The server must still run at the last sample: its counters vanish with it.
            purpose = self._sidecars.scope
            serving = start_service(innermost.instance, workload, spec.image, purpose, innermost.host)
            self._server = self._open.enter_context(serving)
            log.ready_seconds = self._server.await_ready(innermost.context.client)
            self._sidecars.start_followers(self._open, context, workload)
            outermost = find_layer_on_machine(parts)
            telemetry = Telemetry() if self.earlier else self._start_sampling(outermost, last)
            setup = self._create_measurement_context(parts, instance, cold_read_bytes)
            edges = create_boundary(
                *(outermost.host, outermost.instance.processes, outermost.spec.limits.cpus),
                sidecar_cpus=context.hosts.placement.sidecar_cpus if workload.sidecars else (),
                takes_turns=self._block_sampler is not None,
            )
            if self.awake and outermost.host is context.host:  # nothing is kept awake on a provisioned machine
                edges.awake_time_files = self.awake.time_files
            self._open.callback(edges.resume)
            self.live = LiveTrial(parts, setup, telemetry, edges, read_guest_clock(spec.stack, instance.inside))

    def _obtain_instance(self) -> int | None:
        """Take the stack's running instance, or start one; return the bytes that a cold start has read from disks."""
        log, context = self.log, self.context
        if self.shared and (running := self.shared.take(self.step.workload, self.step.stack)):
            self._running, log.reused = running, running.is_used
            log.commands += running.commands
            log.cautions += running.cautions
            return None
        cold = ColdStart(context.host) if self.workload.starts_cold else None
        if cold:  # dropping caches here takes most of the time; the second drop, right before the start, is short
            cold.begin()
        before, exits = len(log.cautions), ExitStack()
        self._open.push(exits)  # until the start has succeeded
        layers = exits.enter_context(
            start_stack(context, self.spec, log, StartGate(before_request=cold.begin) if cold else StartGate())
        )
        self._running = RunningInstance(layers, exits.pop_all(), tuple(log.commands), tuple(log.cautions[before:]))
        return cold.read_bytes() if cold else None

    def _close(self) -> None:
        """End services and telemetry, then remove the instance."""
        running, self._running = self._running, None
        with ExitStack() as exits:
            if running:
                exits.push(running.exits)
            self._open.close()

    def _hand_over(self) -> None:
        """End services and telemetry; keep the instance for the next workload, or remove it."""
        running, name = self._running, self.step.workload
        if running and self.shared and self.shared.has_use(name, running):
            self._open.close()
            if left := running.find_leftovers():
                text = f"it left {left} in the instance: the next workload gets a fresh one"
                self.log.cautions.append(Caution("left-behind", text))
            else:
                self._running = None
                self.shared.keep(name, self.step.stack, running)
        self._close()

    @property
    def settled_at(self) -> float:
        """The time, on the monotonic clock, from which its instance works as fast as ever; 0 without an instance."""
        return self._running.started_at + max(each.settle_seconds for each in self.spec.stack) if self._running else 0.0

    def measure_from(self, first_round: int) -> None:
        """Begin to measure. The baseline is measured once with each group where a block has several groups."""
        if self.live and not self.log.turns:
            self.log.first_round = first_round
        with self._record_failure():
            if self.live:
                measuring = iter(self.workload.measure(self.live.setup))
                # A workload's `finally` blocks stop its loads: they must run while the instance still exists.
                if isinstance(measuring, Generator):
                    self._open.callback(measuring.close)
                self.live.outputs = measuring

    @property
    def is_running(self) -> bool:
        """Whether the trial was started and has neither ended nor failed."""
        return self.live is not None

    @property
    def rounds(self) -> int:
        """The number of rounds so far; it differs between stacks where the workload measures for a fixed time."""
        return max(rounds_by_label(self.log.turns).values(), default=0)

    def run_turn(self, number: int, started_at: float) -> RawOutput | None:
        """Run turn `number` of the block, whose turns began at `started_at`.

        Return its output; None if the workload has no more turns or the trial has failed.
        """
        live, raw = self.live, None
        with self._record_failure():
            if live is not None:
                try:
                    raw = self._run_turn(live, number, started_at)
                except TimedOut:
                    self.timed_out = True
                    raise
        return raw if self.live is not None else None

    def end(self) -> None:
        """End the instance, read the values, and run the sanity checks."""
        with self._record_failure():
            if self.live is not None:
                self._end(self.live)

    def to_finished_trial(self) -> FinishedTrial:
        """Return the trial for the journal with its raw output, both without secrets."""
        stack = "/".join(technology.name for technology in self.spec.stack)
        trial = self.log.to_trial(self.step)
        return redact_secrets(*drop_unserializable(trial, self.log.raw, stack, self.workload.name))

    @property
    def _block_sampler(self) -> Sampler | None:
        """The sampler of the block; None if the trial needs a private one, as on a provisioned machine."""
        return None if self.spec.technology.provisions_machine else self.spec.sampler

    @contextmanager
    def _record_failure(self) -> Iterator[None]:
        """Context manager: record an error as the trial's reason, end the trial, and add the time to its seconds."""
        clock = time.monotonic()
        try:
            yield
        except Unavailable as error:
            self._abort(f"{error} (fix: {error.hint})" if error.hint else str(error), status="skipped")
        except TareError as error:
            if isinstance(error, TrialFailed) and error.output is not None:
                self.log.raw.append(_convert_failed_output(error.output))
            self.log.raw += (*self._server.final_output(), *self._sidecars.final_output())
            why = "" if self._services_stayed else self._failure_reason()
            hint = _MORE_MEMORY_HINT if _OUT_OF_MEMORY.search(why) else error.hint
            self._abort(f"{why}; {error}" if why else str(error), hint)
        except Exception as error:  # noqa: BLE001 - plug-ins are anybody's, and may raise anything
            self.log.raw.append(RawOutput("traceback", (), "".join(traceback.format_exception(error)), 0.0))
            self._abort(str(fault := to_tare_error(error)), fault.hint)
        finally:
            self.log.seconds += time.monotonic() - clock

    def _failure_reason(self) -> str:
        """Return why a service has ended, which explains why the load failed; empty if all still run."""
        # Sidecars twice: a server that lost its database may fail before the end of the database is known here.
        return self._sidecars.failure_reason() or self._server.await_failure_reason() or self._sidecars.failure_reason()

    def _abort(self, reason: str, hint: str = "", status: Status = "failed") -> None:
        """Record the first reason, and remove the instance at once: it would disturb the stacks that still run."""
        self.log.fail(reason, hint.replace("`tare show`", SHOW_COMMAND), status)
        self.live = None
        with suppress(Exception):  # the reason is known already
            self._close()
        self.log.ended = self.log.ended or time.time()

    def _inspect_instance(self, parts: StartedLayers, instance: Instance) -> None:
        """Record the instance's proof, limits, file systems and isolation, and the conditions of a process in it."""
        log, spec, inside = self.log, self.spec, instance.inside
        log.path, log.proof = instance.network_path, tuple(instance.proof.items())
        if self.step.stack in self.context.images.by_stack:
            log.proof += (("image", spec.image.origin or spec.image.digest),)
        log.limits = LimitsCheck(spec.limits, read_observed_limits(parts[-1]))
        if self.inside_check:
            log.isolation = self.inside_check.read(self.step.stack, parts)
        if inside is not None:
            log.file_systems = read_file_systems(inside, self.workload.paths)
            if self.workload.has_unknown_paths:
                begin_write_tracking(inside)
        log.cautions += [*instance.cautions, *limit_cautions(log.limits)]

    def _create_measurement_context(
        self, parts: StartedLayers, instance: Instance, cold_read_bytes: int | None
    ) -> MeasurementContext:
        """Return the context that the workload's `measure` gets: instance, clients, limits and cache control."""
        context, workload, marks = parts[-1].context, self.workload, tuple(self.log.marks)
        outermost = find_layer_on_machine(parts)
        return MeasurementContext(
            instance,
            self._server.scoped_client(context.client),
            marks,
            self.log.limits,
            start_command=self.spec.image.start_command,
            # The innermost first: writing back a guest's dirty pages fills the cache of the kernel around it.
            drop_caches=lambda: drop_caches(list_hosts_with_kernels(parts, outermost)),
            read_disk_bytes=lambda: read_disk_bytes(outermost.host),
            cold_read_bytes=cold_read_bytes,
            extra_clients=tuple(map(self._server.scoped_client, context.extra_clients))
            if workload.can_split_load
            else (),
            client_address=context.client_address,
            outer=OuterHost(
                parts[-1].host,
                str(parts[-1].spec.image.root / "usr/lib/tare"),
                str(context.instances_folder / parts[-1].instance.name),
            ),
            instance_starter=ExtraInstances(self.context, self.spec, marks) if workload.runs_exclusively else None,
        )

    def _start_sampling(self, part: StartedLayer, last: ExitStack) -> Telemetry:
        """Sample a layer's processes and machine by the block's sampler, or a private one, whose file `last` awaits."""
        sampler = self._block_sampler
        if sampler is None:
            sampling = part.context.telemetry
            target = sampling.folder / f"{self.step.trial}.parquet"
            sampler = self._sampler = Sampler(target, sampling.backend_for(part.host))
            last.callback(sampler.await_file)
            self._open.callback(sampler.stop)
        return self._open.enter_context(sampler.sample_instance(self.step.trial, part.instance.processes))

    def _run_turn(self, live: LiveTrial, number: int, started_at: float) -> RawOutput | None:
        """Ask the workload for one more output; outputs before a failure stay recorded."""
        live.boundary.begin_turn()
        began = time.monotonic()
        raw = next(live.outputs, None)
        seconds = time.monotonic() - began
        if raw is None:
            live.boundary.finish()
            return None
        if not isinstance(raw, RawOutput):
            raise TrialFailed(f"{self.workload.name} gave {raw!r} as raw output", "its plug-in has a bug")
        self.log.raw.append(raw)
        # While a load starts or reports, it sends nothing: this time must not make the CPUs look less busy.
        idle_seconds = 0.0 if raw.sending_seconds is None else raw.seconds - raw.sending_seconds
        usage = live.boundary.end_turn(idle_seconds, raw.warm_up)
        if live.boundary.usage.latest_busy_cpus is not None and not raw.warm_up:
            self.log.busy_cpus[raw.label].append(live.boundary.usage.latest_busy_cpus)
        turn = Turn(raw.label, number, began - started_at, seconds, warm_up=raw.warm_up, **usage._asdict())
        self.log.turns.append(self._server.add_sending_time(turn, raw))
        return raw

    def _end(self, live: LiveTrial) -> None:
        log, instance = self.log, live.setup.instance
        # The load may have succeeded all the same: another program on the port can have answered in its place.
        if self._server.failure_reason():
            raise TrialFailed("the load measured another program than the workload's server", _OUTPUT_HINT)
        if self._sidecars.failure_reason():
            raise TrialFailed("the load measured an application without this service", _OUTPUT_HINT)
        live.boundary.end()
        footprint = (self.earlier and self.earlier.footprint) or measure_layer_footprint(live.layers[0])
        if self._running:
            self._running.memory_bytes = footprint.total_memory_bytes or 0
        if not log.reused:  # memory of an earlier workload may still be charged
            log.layers, log.footprint = measure_layer_costs(live.layers), footprint
        if instance.inside is not None and self.workload.has_unknown_paths:  # after the footprint: it fills caches
            log.file_systems += read_used_file_systems(instance.inside, live.setup.start_command)
        # While the instance runs: its clock and its swap counters vanish with it. Raised after its values are read.
        invalid = find_invalid(self.spec.stack, instance, live.clock)
        self.live = None
        self._services_stayed = True
        self._hand_over()
        log.ended = time.time()
        self._add_cautions(live)
        has_host_clock = self.spec.shares_kernel and not log.has_caution("cpu-quota")
        values = read_values(self.workload, log.raw, has_host_clock=has_host_clock)
        log.values = (*values, *service_ready_values(log.ready_seconds))
        reject_impossible_values(log.values, len(self.spec.limits.cpus))
        if invalid is not None:
            raise invalid

    def _add_cautions(self, live: LiveTrial) -> None:
        """Add the cautions from telemetry, turn boundaries and raw outputs."""
        log, edges, placement = self.log, live.boundary, self.context.hosts.placement
        log.cautions += live.telemetry.cautions()
        if self._sampler and self._sampler.failure_reason:
            log.cautions.append(lost_telemetry_caution(self._sampler.failure_reason))
        log.cautions += edges.cautions()
        log.cautions += client_cautions(log.raw, edges.usage.busy_share)
        if edges.sidecar_usage:
            near = self.context.network.client_is_local
            log.cautions += sidecar_cautions(edges.sidecar_usage.busy_share, edges.usage.busy_share, near)
            log.cautions += placement_cautions(placement)
        if self.workload.is_closed_loop:
            log.cautions += waiting_cautions(log.raw, log.busy_cpus)
        log.cautions += cache_cautions(log.raw)
        log.cautions += self.workload.find_cautions(log.raw)


def _convert_failed_output(output: Output) -> RawOutput:
    text = (output.stdout + output.stderr).decode("utf-8", "replace")
    return RawOutput("failed command", output.argv, text, output.seconds)
