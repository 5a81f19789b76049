"""One trial: a fresh instance of a stack, one workload, its values and cautions."""

from __future__ import annotations

import re
import time
import traceback
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from tare.contracts.technologies import Technology
from tare.contracts.workloads import Setup, Workload
from tare.errors import TareError, TimedOut, TrialFailed, Unavailable, in_words
from tare.hosts.disks import ColdStart, disks_moved, drop_caches
from tare.hosts.file_systems import begin_to_look, file_systems_under, file_systems_used
from tare.hosts.host import Host
from tare.model.machines import FileSystem
from tare.model.trials import Caution, Footprint, Layer, Mark, Measured, Output, Raw, SetLimits, Status, Trial, Turn
from tare.runner.context import Testbed
from tare.runner.extra_instances import ExtraInstances, measure_footprint
from tare.runner.layers import Notes, StartedLayer, StartedLayers, combine_layers, start_stack
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
from tare.runner.values import read_values, service_ready
from tare.suites.plan import Step
from tare.telemetry.edges import Edges
from tare.telemetry.quiet import Quiet
from tare.telemetry.sampler import Sampler, Telemetry, not_kept, way_to
from tare.telemetry.spent import Spent

_Item = TypeVar("_Item")


@dataclass
class _Notes(Notes):
    """The results of a trial so far. A failed trial keeps those up to the failure."""

    raw: list[Raw] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    values: tuple[Measured, ...] = ()
    footprint: Footprint | None = None
    limits: SetLimits | None = None
    path: str = ""
    proof: tuple[tuple[str, str], ...] = ()
    cautions: list[Caution] = field(default_factory=list)
    layers: tuple[Layer, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    ready_seconds: float | None = None  # of the server
    busy_cpus: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # of the instance, by label


@dataclass
class _RunningTrial:
    """An instance that has answered, with its service, and what watches it."""

    parts: StartedLayers
    setup: Setup
    telemetry: Telemetry
    edges: Edges
    clock: GuestClockCheck | None
    measuring: Iterator[Raw] = field(default_factory=lambda: iter(()))


class TrialRun:
    """One trial on its way: started, measured turn by turn, and ended; all that it made is gone after the block.

    Every error in it becomes its reason, also a full disk or a bug of a plug-in, and ends it at once. Only a stop from
    outside is raised.
    """

    def __init__(self, testbed: Testbed, step: Step, stack: Sequence[Technology], workload: Workload) -> None:
        self.step = step
        self._testbed, self._stack, self._workload = testbed, stack, workload
        self._notes = _Notes()
        if not stack[-1].gives_machine:  # a lent machine has a placement of its own
            self._notes.cautions += testbed.run.placement.cautions
        self._open = ExitStack()
        self._going: _RunningTrial | None = None
        self._server = ServiceProcess()
        self._neighbors = SidecarServices()
        self._sampler: Sampler | None = None  # its own, where it is alone
        self._status: Status = "ok"
        self._reason = self._hint = ""
        self._began = time.time()
        self._ended: float | None = None  # until its instance is gone
        self._seconds = 0.0
        self._first_round = 0
        self._services_stayed = False  # until the trial itself ended them
        self.timed_out = False  # in a turn

    def __enter__(self) -> Self:
        """Return the attempt; nothing is made yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take away what is left of it, if it was not ended."""
        self._going = None
        self._open.close()

    def start(self) -> None:
        """Start the instance and the workload's service."""
        self._began = time.time()
        with self._kept():
            self._start()

    def measure_from(self, first_round: int) -> None:
        """Begin to measure; once more where it measures beside several groups, one after the other."""
        if self._going and not self._notes.turns:
            self._first_round = first_round
        with self._kept():
            if self._going:
                measuring = iter(self._workload.measure(self._going.setup))
                if isinstance(measuring, Generator):  # what it has started ends before the instance does
                    self._open.callback(measuring.close)
                self._going.measuring = measuring

    @property
    def is_going(self) -> bool:
        """Whether nothing has ended it."""
        return self._going is not None

    @property
    def turned_seconds(self) -> float:
        """The seconds of its turns so far."""
        return sum(turn.seconds for turn in self._notes.turns)

    def rounds_of_all(self, labels: Collection[str]) -> int:
        """Return the number of whole rounds so far, in which each of these labels has come; 0 within a round."""
        counts = rounds_by_label(self._notes.turns)
        each = {counts[label] for label in labels}
        return each.pop() if len(each) == 1 and len(counts) == len(labels) else 0

    @property
    def rounds(self) -> int:
        """The rounds that it has had so far: where a time decides, no two stacks have as many."""
        counts = rounds_by_label(self._notes.turns)
        return max(counts.values(), default=0)

    def take_turn(self, number: int, since: float) -> Raw | None:
        """Take a turn, which is the n-th of the block since that moment; return its output, None if it has no more."""
        going, raw = self._going, None
        with self._kept():
            if going is not None:
                try:
                    raw = self._turn(going, number, since)
                except TimedOut:
                    self.timed_out = True
                    raise
        return raw if self._going is not None else None

    def end(self) -> tuple[Trial, tuple[Raw, ...]]:
        """End the instance, and read the values."""
        with self._kept():
            self._end()
        notes = self._notes
        trial = Trial(
            trial=self.step.trial,
            block=self.step.block,
            order=self.step.order,
            workload=self.step.workload,
            stack=self.step.stack,
            status=self._status,
            reason=self._reason,
            hint=self._hint,
            started=self._began,
            seconds=self._seconds,
            values=notes.values if self._status == "ok" else (),
            timeline=_since_requested(notes.marks),
            footprint=notes.footprint,
            layers=notes.layers,
            limits=notes.limits,
            file_systems=notes.file_systems,
            path=notes.path,
            proof=notes.proof,
            cautions=_each_once(notes.cautions),
            commands=_each_once([*notes.commands, *(raw.argv for raw in notes.raw)]),
            first_round=self._first_round,
            turns=tuple(notes.turns),
            quarantined=notes.values if self._status == "failed" else (),
            ended=self._ended,
        )
        stack = "/".join(technology.name for technology in self._stack)
        return redact_secrets(*drop_unserializable(trial, notes.raw, stack, self._workload.name))

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep what goes wrong as the trial's reason, and count the time."""
        clock = time.monotonic()
        try:
            yield
        except Unavailable as error:
            self._give_up("skipped", f"{error} (fix: {error.hint})" if error.hint else str(error))
        except TareError as error:
            if isinstance(error, TrialFailed) and error.output is not None:
                self._notes.raw.append(_last_words(error.output))
            self._notes.raw += (*self._server.last_words(), *self._neighbors.last_words())
            why = "" if self._services_stayed else self._why_ended()
            hint = _MORE_MEMORY if _LACK_OF_MEMORY.search(why) else error.hint
            self._give_up("failed", f"{why}; {error}" if why else str(error), hint)
        except Exception as error:  # noqa: BLE001 - plug-ins are anybody's, and may raise anything
            self._notes.raw.append(Raw("traceback", (), "".join(traceback.format_exception(error)), 0.0))
            self._give_up("failed", str(fault := in_words(error)), fault.hint)
        finally:
            self._seconds += time.monotonic() - clock

    def _why_ended(self) -> str:
        """Describe why a service has ended, if one has: then this is why the load failed."""
        return self._neighbors.why() or self._server.why_soon() or self._neighbors.why()

    def _give_up(self, status: Status, reason: str, hint: str = "") -> None:
        """Keep the first reason, and take the instance away at once: it must not be in the way of the others."""
        if self._status == "ok":
            self._status, self._reason, self._hint = status, reason, hint
        self._going = None
        with suppress(Exception):  # the reason is known already
            self._open.close()
        self._ended = self._ended or time.time()

    def _start(self) -> None:
        notes, stack, workload, testbed = self._notes, self._stack, self._workload, self._testbed
        self._open.callback(self._settle)
        notes.path = "/".join(technology.path for technology in stack)
        for technology in stack:
            if reason := technology.refuses(workload):
                raise Unavailable(f"{technology.name}: {reason}")
            notes.cautions += [_UNPROVEN] if technology.tested == "stand-in" else []
        if workload.volume_bytes and not stack[0].volumes:
            raise Unavailable(f"{stack[0].name}: it gives its instances no data volume", 'write place = "root"')
        if workload.beside and stack[-1].gives_machine:
            raise Unavailable(f"{stack[-1].name}: services beside cannot be reached from there", "leave this stack out")
        if workload.starts_cold and stack[-1].gives_machine:
            raise Unavailable(f"{stack[-1].name}: the caches of a lent machine are not tare's", 'write caches = "warm"')
        cold = ColdStart(testbed.host) if workload.starts_cold else None
        start = replace(testbed.start, datagrams=workload.datagrams, volume_bytes=workload.volume_bytes)
        if cold:  # now, and once more when all is prepared, where little is left to drop
            cold.begin()
            start = replace(start, before_request=cold.begin)
        parts = self._open.enter_context(start_stack(replace(testbed, start=start), stack, workload.port, notes))
        cold_read_bytes = cold.read_bytes() if cold else None
        instance = combine_layers(parts)
        notes.path, notes.proof = instance.path, tuple(instance.proof.items())
        if self.step.stack in testbed.run.own:
            notes.proof += (("image", testbed.image.origin or testbed.image.digest),)
        notes.limits = SetLimits(testbed.limits, read_observed_limits(parts[-1]))
        if instance.inside is not None:
            self._look_inside(instance.inside)
        notes.cautions += [*instance.cautions, *limit_cautions(notes.limits)]
        within = parts[-1].testbed
        outermost = parts[1 if stack[-1].gives_machine else 0]  # the first layer on the machine under test
        self._neighbors.start(self._open, self._testbed, workload, instance)
        # The server must still run at the last sample: its counters vanish with it.
        innermost, purpose = parts[-1], self._neighbors.purpose
        serving = start_service(innermost.instance, workload, testbed.image, purpose, innermost.host)
        self._server = self._open.enter_context(serving)
        notes.ready_seconds = self._server.await_answer(within.client)
        telemetry = self._watched(outermost)
        setup = Setup(
            instance,
            self._server.asking(within.client),
            tuple(notes.marks),
            notes.limits,
            start=testbed.image.start,
            drop_caches=lambda: drop_caches(_kernels(parts, outermost)),
            disks_moved=lambda: disks_moved(outermost.host),
            cold_read_bytes=cold_read_bytes,
            further_clients=tuple(map(self._server.asking, within.further_clients)) if workload.splits else (),
            client_address=within.client_address,
            further=ExtraInstances(testbed, stack, tuple(notes.marks)) if workload.alone else None,
        )
        edges = _edges(outermost, self._testbed.run.placement.beside if workload.beside else ())
        self._open.callback(edges.resume)
        self._going = _RunningTrial(parts, setup, telemetry, edges, read_guest_clock(stack, instance.inside))

    def _look_inside(self, inside: Host) -> None:
        """Read what must be equal in all stacks: the file systems, and the conditions of a process."""
        self._notes.file_systems = file_systems_under(inside, self._workload.paths)
        if self._testbed.run.inside:
            self._testbed.run.inside.read(self.step.stack, inside)
        if self._workload.writes_anywhere:
            begin_to_look(inside)

    def _watched(self, outermost: StartedLayer) -> Telemetry:
        """Sample the processes of a stack's outermost layer, with those of its block or alone, and their machine."""
        testbed = outermost.testbed
        sampler = testbed.start.sampler
        if sampler is None:
            target = testbed.run.telemetry / f"{self.step.trial}.parquet"
            sampler = self._sampler = Sampler(target, way_to(testbed.host, testbed.run.sample_seconds))
            self._open.callback(sampler.end)
        return self._open.enter_context(sampler.watching(self.step.trial, outermost.instance.processes))

    def _settle(self) -> None:
        """Wait for the file of its own sampler, which is written while the instance ends."""
        if self._sampler is not None:
            self._sampler.settle()

    def _turn(self, going: _RunningTrial, number: int, since: float) -> Raw | None:
        """Ask for one more output; what was there before a failure is kept."""
        going.edges.begin()
        began = time.monotonic()
        raw = next(going.measuring, None)
        seconds = time.monotonic() - began
        if raw is None:
            going.edges.leave()
            return None
        if not isinstance(raw, Raw):
            raise TrialFailed(f"{self._workload.name} gave {raw!r} as raw output", "its plug-in has a bug")
        self._notes.raw.append(raw)
        rest_seconds = 0.0 if raw.sending_seconds is None else raw.seconds - raw.sending_seconds
        steal = going.edges.end(rest_seconds)
        if going.edges.spent.latest is not None and not raw.warm_up:
            self._notes.busy_cpus[raw.label].append(going.edges.spent.latest)
        self._notes.turns.append(Turn(raw.label, number, began - since, seconds, steal, raw.warm_up))
        return raw

    def _end(self) -> None:
        going, notes = self._going, self._notes
        if going is None:
            return
        if self._server.why():  # another one may have answered in its place
            raise TrialFailed("what was measured is not its server", "see its raw output")
        if self._neighbors.why():
            raise TrialFailed("what was measured is another application", "see its raw output")
        going.edges.resume()
        notes.layers = _layers(going.parts)
        notes.footprint = footprint_of(going.parts[0])
        inside = going.setup.instance.inside
        if inside is not None and self._workload.writes_anywhere:  # after the footprint: what it reads is cached
            notes.file_systems += file_systems_used(inside, going.setup.start)
        wrong = find_invalid(self._stack, going.setup.instance, going.clock)
        self._going = None
        self._services_stayed = True
        self._open.close()
        self._ended = time.time()
        notes.cautions += going.telemetry.cautions()
        notes.cautions += [not_kept(self._sampler.trouble)] if self._sampler and self._sampler.trouble else []
        noticed = going.edges.quiet.caution() if going.edges.quiet else None
        notes.cautions += [noticed] if noticed else []
        edges = going.edges
        notes.cautions += client_cautions(notes.raw, edges.spent.busy_share)
        if edges.others:
            near = self._testbed.network.near
            notes.cautions += sidecar_cautions(edges.others.busy_share, edges.spent.busy_share, near)
            notes.cautions += place_cautions(self._testbed.run.placement)
        notes.cautions += waiting_cautions(notes.raw, notes.busy_cpus) if self._workload.without_pause else ()
        notes.cautions += cache_cautions(notes.raw)
        notes.values = (*read_values(self._workload, notes.raw), *service_ready(notes.ready_seconds))
        reject_impossible_values(notes.values, len(self._testbed.limits.cpus))
        if wrong is not None:
            raise wrong


_LACK_OF_MEMORY = re.compile("annot allocate memory|ut of memory")
_MORE_MEMORY = "it may want more memory than the instance has: [limits] memory; see its raw output"
_UNPROVEN = Caution(
    "never-run", "tare's own tests have run this technology only against a program that stands in for it"
)


def _kernels(parts: StartedLayers, outermost: StartedLayer) -> Iterator[Host]:
    """Yield all places of a stack that may have a kernel of their own, and the machine under test, innermost first."""
    insides = (part.instance.inside for part in reversed(parts))
    yield from (inside for inside in insides if inside is not None)
    yield outermost.host


def _edges(part: StartedLayer, others: Sequence[int]) -> Edges:
    """Watch the turns of the outermost layer, and between them whether it rests beside others on its machine.

    `others` are the CPUs of services beside it, if there are any.
    """
    testbed, instance = part.testbed, part.instance
    quiet = Quiet(testbed.host, instance.processes) if testbed.start.sampler is not None else None
    return Edges(testbed.host, Spent(testbed.limits.cpus), quiet, Spent(others) if others else None)


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
    return measure_footprint(part.testbed, [part.instance])


def _since_requested(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Put the marks in order, in seconds since `requested`."""
    if not marks:
        return ()
    start = next((mark.seconds for mark in marks if mark.name == "requested"), marks[0].seconds)
    ordered = sorted(marks, key=lambda mark: mark.seconds)
    return tuple(replace(mark, seconds=mark.seconds - start) for mark in ordered)


def _each_once(items: Sequence[_Item]) -> tuple[_Item, ...]:
    """Leave out repetitions. Values of plug-ins may have no hash."""
    return tuple(each for index, each in enumerate(items) if each not in items[:index])
