"""What tests of the loop share: a run on fakes, without root, engines, or anything made on the machine."""

from __future__ import annotations

import ipaddress
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from runs import make_run
from tare_fake.technology import Fake, FakeHost

from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.network import Network
from tare.model.errors import TimedOut, Unavailable
from tare.model.image import Image
from tare.model.machine import Hosts
from tare.model.run_folder import Run, RunRecord, RunWriter, load_run
from tare.model.trial import Limits, Problem, RawOutput, Trial, Value
from tare.plugins import registry
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import CpuPlacement, InstanceSpec, RunContext, RunHosts, RunImages, TelemetryConfig
from tare.runner.events import BlockBegins, BlockEnded, RunEvent, TrialBegins, TrialEnded, TurnsBegin
from tare.runner.job import workload_record
from tare.runner.loop import RemainingWork, RunLoop
from tare.runner.schedule import BlockTiming, DurationEstimates, Schedule, TimeLeft
from tare.runner.trial import FinishedTrial, TrialRun
from tare.suites.plan import Block, PlannedTrial, plan
from tare.suites.suite import PlannedWorkload, Suite, parse_suite
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.startup import Startup

LIMITS = Limits((0,), 512 << 20, 4096)
TICKS = itertools.count()  # of the clock that turns go by in the tests of tests/unit/runner


@dataclass(frozen=True)
class Stopped(Fake):
    """A fake during whose n-th trial the user presses Ctrl-C."""

    name: ClassVar[str] = "stopped"
    at: int = 1

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        with super().launch(host, launch) as instance:
            if len(self._speeds) == self.at:
                raise KeyboardInterrupt
            yield instance


@dataclass(frozen=True)
class Gone(Fake):
    """A fake that was usable when it was asked, and is not when it is started."""

    name: ClassVar[str] = "gone"

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:  # noqa: ARG002 - as technologies are asked
        raise Unavailable("its daemon has gone away", "start it again")
        yield  # a generator all the same


@dataclass(frozen=True)
class Silent(Fake):
    """A fake whose engine does not answer when it is asked."""

    name: ClassVar[str] = "silent"

    def problems(self, host: Host) -> Sequence[Problem]:  # noqa: ARG002 - as technologies are asked
        raise TimedOut("silent: did not end within 20 s", "start its daemon again")


@dataclass(frozen=True)
class Impatient(Dhrystone):
    """Dhrystone that gives its program no more than a moment."""

    name: ClassVar[str] = "impatient"

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        assert setup.instance.inside is not None
        argv = ("/usr/lib/tare/dhrystone", "--seconds", "1")
        for _ in range(self.rounds):
            output = setup.instance.inside.run(*argv, timeout=0.05)
            yield RawOutput(self.name, argv, output.text, output.seconds)


@dataclass(frozen=True)
class Printing(Dhrystone):
    """Dhrystone whose program prints another unit when it is slow."""

    name: ClassVar[str] = "printing"

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        assert isinstance(setup.instance.inside, FakeHost)
        unit = "us" if setup.instance.inside.speed < 1 else "ms"
        for raw in Dhrystone().measure(setup):
            yield replace(raw, argv=(unit,))

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        return [replace(value, printed_unit=raw[0].argv[0]) for value in Dhrystone().parse(raw)]


@dataclass(frozen=True)
class Faulty(Startup):
    """A workload with a bug."""

    name: ClassVar[str] = "faulty"

    def measure(self, setup: MeasurementContext) -> Sequence[RawOutput]:
        return (RawOutput("timeline", (), f"{len(setup.timeline) / 0}", 0.0),)


@dataclass(frozen=True)
class Stored(Startup):
    """A workload that wants a data volume."""

    name: ClassVar[str] = "stored"

    @property
    def volume_bytes(self) -> int:
        return 1 << 20


@dataclass(frozen=True)
class Roomy(Fake):
    """A fake that gives data volumes of the size that is asked for, and tells how many bytes that is."""

    name: ClassVar[str] = "roomy"
    has_volumes: ClassVar[bool] = True

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        with super().launch(host, launch) as instance:
            yield replace(instance, proof={"volume": str(launch.volume_bytes)})


@dataclass(frozen=True)
class Lent(Fake):
    """A fake that lends a machine."""

    provisions_machine: ClassVar[bool] = True


@dataclass(frozen=True)
class Lacking(Startup):
    """A workload that opens a file which is not there."""

    name: ClassVar[str] = "lacking"

    def measure(self, setup: MeasurementContext) -> Sequence[RawOutput]:
        return (RawOutput(setup.instance.name, (), Path("/nowhere/at-all").read_text(encoding="utf-8"), 0.0),)


@dataclass(frozen=True)
class Confused(Fake):
    """A fake that cannot even tell whether it is usable."""

    name: ClassVar[str] = "confused"

    def problems(self, host: Host) -> Sequence[Problem]:  # noqa: ARG002 - as technologies are asked
        return [Problem(str(int("none")), "")]


class Shelf:
    """The plug-ins of tare, and those above."""

    OWN: ClassVar[Mapping[str, type[Any]]] = {
        each.name: each
        for each in (Stopped, Gone, Silent, Confused, Roomy, Impatient, Printing, Faulty, Stored, Lacking)
    }

    def names(self, kind: registry.PluginType) -> Sequence[str]:
        return (*registry.names(kind), *self.OWN)

    def find(self, kind: registry.PluginType, name: str) -> type[Any]:
        return self.OWN[name] if name in self.OWN else registry.find(kind, name)


@dataclass(frozen=True)
class BegunTurns:
    """The turns of a number in a block, and how many to expect."""

    workload: str
    block: int
    number: int
    of: int | None
    stacks: int


@dataclass
class Watcher:
    """Keeps what a run reports, and what the journal held when each trial began."""

    journal: Path
    begun: list[tuple[PlannedTrial, PlannedTrial | None, TimeLeft]] = field(default_factory=list)
    lines_before: list[int] = field(default_factory=list)
    ended: list[Trial] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    turns: list[tuple[BegunTurns, TimeLeft]] = field(default_factory=list)
    timing: BlockTiming | None = None
    run: Run | None = None

    def __call__(self, event: RunEvent) -> None:
        match event:
            case BlockBegins(timing):
                self.timing = timing
            case TrialBegins(step):
                assert self.timing
                self.begun.append((step, self.timing.next_trial(step), self.timing.begin_trial(step)))
                self.lines_before.append(self.journal.read_text().count("\n") if self.journal.exists() else 0)
            case TurnsBegin():
                assert self.timing
                block = self.timing.block
                begun = BegunTurns(block.workload, block.index, event.number, self.timing.turns, event.stacks)
                self.turns.append((begun, self.timing.begin_turns(event.number)))
            case TrialEnded(trial):
                self.ended.append(trial)
            case BlockEnded(run):
                assert self.timing
                self.blocks.append(self.timing.block)
                self.run = run


@dataclass
class FixedTiming(BlockTiming):
    """The timing of a block whose time left is always the same; `after_it` is the step that follows the last."""

    left: TimeLeft | None = None
    after_it: PlannedTrial | None = None

    def begin_trial(self, step: PlannedTrial) -> TimeLeft:  # noqa: ARG002 - as the other
        assert self.left
        return self.left

    def begin_turns(self, number: int) -> TimeLeft:  # noqa: ARG002 - as the other
        assert self.left
        return self.left

    def next_trial(self, step: PlannedTrial) -> PlannedTrial | None:
        return super().next_trial(step) or self.after_it

    def time_left_after(self) -> TimeLeft:
        assert self.left
        return self.left


def fixed_timing(
    block: Block, left: TimeLeft, turns: int | None = None, after_it: PlannedTrial | None = None
) -> FixedTiming:
    """Return the timing of a block with the same time left at each moment."""
    schedule = Schedule((block,), None, 0.0, DurationEstimates({}))
    return FixedTiming(schedule, {}, 0.0, turns, 0.0, left=left, after_it=after_it)


@dataclass(frozen=True)
class Bench:
    """A run folder, and what the loop needs around it."""

    folder: Path
    watcher: Watcher

    def read(self) -> Run:
        return load_run(self.folder)

    @property
    def all_trials(self) -> tuple[Trial, ...]:
        return self.read().trials

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All but those of the baseline's second name."""
        return tuple(trial for trial in self.all_trials if not trial.stack.endswith("-again"))

    def work(
        self, suite: Suite, unusable: Mapping[str, Sequence[Problem]] | None = None, budget: float | None = None
    ) -> str:
        """Begin a run of the suite, or go on with it."""
        journal = RunWriter(self.folder)
        if not self.folder.exists():
            journal.create(record(suite), suite.text)
        work = RemainingWork(suite, journal.run.trials, unusable or {}, budget)
        try:
            stop = RunLoop(work, self._place(), journal, self.watcher).run()
        finally:
            assert journal.run == self.read()  # what is kept in memory is what was written
        return stop.detail or stop.reason

    def _place(self) -> RunContext:
        home = self.folder.parent
        ledger = Ledger(home / "ledger" / "tare-test.jsonl")
        image = Image("ab" * 32, home, home, home, home, home, "")
        network = Network("tare-test", ipaddress.IPv4Network("198.18.0.0/24"), ledger)
        return _context(image, network, self.folder / "telemetry", home / "instances")


def record(suite: Suite) -> RunRecord:
    names = tuple(stack.name for stack in suite.measured_stacks)
    blank = replace(make_run([]).record, stacks=names, baseline=suite.baseline, control=suite.control)
    # JSON has no tuples: with its settings, a record would not be equal to the one that is read.
    workloads = tuple(replace(workload_record(planned), settings={}) for planned in suite.workloads)
    return replace(blank, workloads=workloads, margin=suite.margin)


def suite(
    *tables: str, blocks: int = 2, workloads: Sequence[str] = ("dhrystone", "startup"), instances: str = "per-workload"
) -> Suite:
    """A suite of the stacks that the tables make, such as `slow: effect = "3%"`; all are fakes unless they say so.

    What measures start-up starts each stack once in a block.
    """
    names = [table.partition(":")[0] for table in tables]
    text = f"[suite]\nstacks = {json.dumps(names)}\nblocks = {blocks}\nseed = 3\n"
    text += f'instances = "{instances}"\n'
    for name, _, settings in (table.partition(":") for table in tables):
        kind = "" if "stack =" in settings else 'stack = "fake"\n'
        text += f"[stacks.{name}]\n{kind}{settings.strip()}\n"
    for workload in workloads:
        starts = issubclass(Shelf().find("workloads", workload), Startup)
        text += f"[[workloads]]\nuse = {json.dumps(workload)}\n" + "starts = 1\n" * starts
    return parse_suite(text, "test.toml", Shelf())


def by_stack(trials: Sequence[Trial], stack: str, workload: str = "dhrystone") -> list[Trial]:
    return [trial for trial in trials if (trial.stack, trial.workload) == (stack, workload)]


def planned(suite: Suite) -> list[str]:
    return [step.trial for block in plan(suite) for step in block.trials]


def bare_context(folder: Path, host: Host) -> RunContext:
    """A context of which nothing is made, with a client that is a fake."""
    ledger = Ledger(folder / "tare-test.jsonl", host)
    image = Image("ab" * 32, folder, folder, folder, folder, folder, "")
    network = Network("tare-test", ipaddress.IPv4Network("198.18.0.0/21"), ledger)
    telemetry = folder / "telemetry"
    telemetry.mkdir(exist_ok=True)
    return _context(image, network, telemetry, folder)


def hosts_of(
    server: Host | None = None, client: Host | None = None, reached: Hosts | None = None, extra: tuple[Host, ...] = ()
) -> RunHosts:
    """Return connected machines: this one, unless others are given."""
    here, placement = LocalHost(), CpuPlacement((0,), (0,))
    return RunHosts(reached or Hosts(), server or here, client or here, placement, extra)


def planned_of(workload: Workload) -> PlannedWorkload:
    """Return a workload as a suite plans it, with the usual limits."""
    return PlannedWorkload(workload.name, workload.name, workload)


def _context(image: Image, network: Network, telemetry: Path, instances: Path) -> RunContext:
    client, images, ledger = FakeHost(1.0, "", LIMITS), RunImages(image, image), network.ledger
    hosts, sampling = hosts_of(ledger.host), TelemetryConfig(telemetry)
    return RunContext(hosts, images, network, ledger, LIMITS, sampling, client, instances)


def run_trial(context: RunContext, step: PlannedTrial, spec: InstanceSpec, workload: Workload) -> FinishedTrial:
    """Run a trial that is the only one of its block."""
    with TrialRun(context, step, spec, workload) as attempt:
        attempt.start()
        attempt.measure_from(0)
        while attempt.run_turn(0, time.monotonic()):
            pass
        attempt.end()
        return attempt.to_finished_trial()


def launch_at(folder: Path, prefix: str = "tare-test", limits: Limits = LIMITS) -> LaunchRequest:
    """Return what an instance is started with, on a network that nobody makes."""
    network = Network(prefix, ipaddress.IPv4Network("198.18.0.0/24"), Ledger(folder / "ledger"))
    archive, disk, kernel = folder / "root.tar", folder / "disk", folder / "kernel"
    image = Image("0" * 64, folder / "root", archive, disk, kernel, folder / "initrd", "")
    own = folder / f"{prefix}-1"
    return LaunchRequest(own.name, image, limits, network, (17007,), own, network.ledger, lambda *_: None)


def launch_on(network: Network, image: Image, folder: Path) -> LaunchRequest:
    limits = replace(LIMITS, memory_bytes=256 << 20)
    return LaunchRequest("tare-own", image, limits, network, (), folder, network.ledger, lambda *_: None)
