"""A block: which instances are alive together, and what stacks run that others do not."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from fakes import LIMITS, Bench, bare_context, by_stack, planned_of, suite
from runs import MACHINE, make_run, pairs
from tare_fake.technology import Fake
from waiting import wait_until

from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.model.errors import UsageError
from tare.model.trial import LimitsSpec, Output, RawOutput, Trial
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest
from tare.plugins.workload import MeasurementContext
from tare.report.findings import create_findings
from tare.runner.block import BlockRunner
from tare.runner.events import RunEvent, TurnEnded, ignore_event
from tare.runner.job import check_same
from tare.statistics.summarize import summarize
from tare.suites.plan import PlannedTrial, plan
from tare.suites.stacks import StackOverride
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.startup import Startup


@dataclass(frozen=True)
class Roomy(LocalHost):
    """This machine, but with as much memory as is said."""

    available: int

    def read(self, path: str) -> str:
        if path != "/proc/meminfo":
            return super().read(path)
        return f"MemTotal: 99999999 kB\nMemFree: 1 kB\nMemAvailable: {self.available >> 10} kB\n"


def rounds(folder: Path, available: int) -> BlockRunner:
    context = bare_context(folder, Roomy(available))
    return BlockRunner(context, {stack: (Fake(),) for stack in ("a", "a-again", "b", "c", "d")}, ("a", "a-again"), 1)


def steps(*stacks: str) -> tuple[PlannedTrial, ...]:
    return plan(suite(*(f"{stack}:" for stack in stacks), blocks=1))[0].trials


def names(group: tuple[PlannedTrial, ...]) -> set[str]:
    return {step.stack for step in group}


def test_all_instances_of_a_block_are_there_together_where_they_fit(tmp_path: Path) -> None:
    block = steps("a", "b", "c", "d")
    assert rounds(tmp_path, 16 << 30).split_by_memory(block, Dhrystone(), LIMITS) == ((), (block,))


@pytest.mark.parametrize(("megabytes", "sizes"), [(2600, [2, 1]), (2000, [1, 1, 1]), (900, [1, 1, 1])])
def test_if_not_all_fit_the_baseline_stays_and_the_others_come_in_groups(
    tmp_path: Path, megabytes: int, sizes: list[int]
) -> None:
    staying, groups = rounds(tmp_path, megabytes << 20).split_by_memory(steps("a", "b", "c", "d"), Dhrystone(), LIMITS)
    assert names(staying) == {"a", "a-again"}
    assert [len(group) for group in groups] == sizes
    assert set().union(*map(names, groups)) == {"b", "c", "d"}


@pytest.mark.parametrize(("megabytes", "sizes"), [(7700, [4]), (7600, [1, 1])])
def test_a_nested_stack_needs_the_memory_of_the_machine_around_it(
    tmp_path: Path, megabytes: int, sizes: list[int]
) -> None:
    """512 MiB twice, 1.5 GiB and 3.5 GiB are 80 % of 7680 MiB."""
    runner = rounds(tmp_path, megabytes << 20)
    runner.stacks = {**runner.stacks, "b": (Fake(), Fake()), "c": (Fake(), Fake(), Fake())}
    _, groups = runner.split_by_memory(steps("a", "b", "c"), Dhrystone(), LIMITS)
    assert [len(group) for group in groups] == sizes


@dataclass(frozen=True)
class Alive(Fake):
    """A fake with a process."""

    script: str = "exec sleep 600"
    pids: list[int] = field(default_factory=list, init=False, compare=False)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        with super().launch(host, launch) as instance, LocalHost().spawn("sh", "-c", self.script) as process:
            self.pids.append(process.pid)
            yield replace(instance, processes=lambda: (process.pid,))


@dataclass(frozen=True)
class Weighing(Roomy):
    """A machine on which each instance costs 2 GiB."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        if not argv[0].endswith("/footprint"):
            return super().run(*argv, timeout=timeout, input=input, check=check)
        return Output(argv, 0, b"%d 1\n" % (2 << 30), b"", 0.0)


def test_an_instance_seen_to_exceed_its_limit_needs_the_observed_memory(tmp_path: Path) -> None:
    """Half as much again, three times: 9 GiB are more than 80 % of 11 GiB, and less than those of 99.

    The kernel's memory comes on top, here that of the control group in which the tests run.
    """
    block = plan(suite("a:", "b:", blocks=1, workloads=("dhrystone",)))[0]
    runner = rounds(tmp_path, 16 << 30)
    runner.stacks = {step.stack: (Alive(),) for step in block.trials}
    runner.context = replace(runner.context, ledger=Ledger(tmp_path / "tare-one.jsonl", Weighing(16 << 30)))
    assert [trial.status for trial, _ in runner.run(block, planned_of(Dhrystone()), ignore_event)] == ["ok"] * 3
    for gigabytes, staying in ((99, set()), (11, {"a", "a-again"})):
        ledger = Ledger(tmp_path / f"tare-{gigabytes}.jsonl", Roomy(gigabytes << 30))
        later = replace(runner, context=replace(runner.context, ledger=ledger))
        assert names(later.split_by_memory(block.trials, Dhrystone(), LIMITS)[0]) == staying


def test_instances_need_the_memory_of_their_workload_not_of_the_suite(tmp_path: Path) -> None:
    block, runner = steps("a", "b", "c", "d"), rounds(tmp_path, 900 << 20)
    small = runner.context.restrict_limits(LimitsSpec(memory_bytes=128 << 20))
    assert runner.split_by_memory(block, Dhrystone(), small) == ((), (block,))


@dataclass(frozen=True)
class Threaded(LocalHost):
    """This machine, but with three cores of two threads each, which are next to each other."""

    def read(self, path: str) -> str:
        if path == "/sys/devices/system/cpu/online":
            return "0-5\n"
        number = int(path.removeprefix("/sys/devices/system/cpu/cpu").partition("/")[0])
        return f"{number - number % 2}-{number - number % 2 + 1}\n"


@pytest.mark.parametrize(("wanted", "cpus"), [(1, (4,)), (2, (2, 4)), (3, (3, 4, 5)), (4, (2, 3, 4, 5))])
def test_fewer_cpus_are_a_subset_on_different_cores_if_possible(
    tmp_path: Path, wanted: int, cpus: tuple[int, ...]
) -> None:
    context = rounds(tmp_path, 1).context
    limits = replace(LIMITS, cpus=(2, 3, 4, 5))
    here = replace(context, limits=limits, ledger=Ledger(tmp_path / "tare-other.jsonl", Threaded()))
    assert here.restrict_limits(LimitsSpec(wanted, 64 << 20)) == replace(LIMITS, cpus=cpus, memory_bytes=64 << 20)
    assert here.restrict_limits(LimitsSpec(4)) is here.limits


def test_a_workload_of_one_round_is_measured_as_one_stack_after_the_other(tmp_path: Path) -> None:
    block = steps("a", "b")
    assert rounds(tmp_path, 16 << 30).split_by_memory(block, Startup(), LIMITS) == (
        (),
        tuple((step,) for step in block),
    )


def test_a_lone_baseline_is_measured_even_if_its_two_instances_do_not_fit(tmp_path: Path) -> None:
    staying, groups = rounds(tmp_path, 900 << 20).split_by_memory(steps("a"), Dhrystone(), LIMITS)
    assert (names(staying), groups) == ({"a", "a-again"}, ((),))


@dataclass(frozen=True)
class Early(Dhrystone):
    """Dhrystone that may have ten rounds, and is done after three."""

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        yield from itertools.islice(super().measure(setup), 3)


def test_groups_follow_the_completed_and_not_the_allowed_baseline_rounds(tmp_path: Path) -> None:
    block = plan(suite("a:", "b:", "c:", blocks=1))[0]
    runner = rounds(tmp_path, 900 << 20)
    ended = {trial.stack: trial for trial, _ in runner.run(block, planned_of(Early()), ignore_event)}
    assert {trial.status for trial in ended.values()} == {"ok"}
    assert sorted(ended[stack].first_round for stack in ("b", "c")) == [0, 3]
    assert [len(ended[stack].turns) for stack in ("a", "a-again", "b", "c")] == [6, 6, 3, 3]


@pytest.mark.parametrize(("megabytes", "doubted"), [(900, {"b", "c"}), (16000, set())])
def test_stacks_that_did_not_take_turns_with_each_other_say_so(
    tmp_path: Path, megabytes: int, doubted: set[str]
) -> None:
    block = plan(suite("a:", "b:", "c:", blocks=1))[0]
    runner = rounds(tmp_path, megabytes << 20)
    trials = [trial for trial, _ in runner.run(block, planned_of(Early()), ignore_event)]
    said = {trial.stack for trial in trials if any(caution.kind == "in-groups" for caution in trial.cautions)}
    assert said == doubted


@dataclass(frozen=True)
class Lasting(Dhrystone):
    """Dhrystone whose turns last until a process has used some ticks of CPU, or is paused."""

    pids: tuple[int, ...] | list[int] = ()

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        for raw in super().measure(setup):
            wait_until(partial(_has_worked_or_is_paused, self.pids[0], _cpu_ticks(self.pids[0]) + 3))
            yield raw


def _has_worked_or_is_paused(pid: int, ticks: int) -> bool:
    return _state(pid) == "T" or _cpu_ticks(pid) >= ticks


def _state(pid: int) -> str:
    return LocalHost().read(f"/proc/{pid}/stat").rpartition(") ")[2][0]


def _cpu_ticks(pid: int) -> int:
    return int(LocalHost().read(f"/proc/{pid}/stat").rpartition(") ")[2].split()[11])


@dataclass
class Looking:
    """Looks at a process after the turn of each stack."""

    pids: list[int]
    states: dict[str, str] = field(default_factory=lambda: defaultdict(str))

    def __call__(self, event: RunEvent) -> None:
        match event:
            case TurnEnded(step):
                self.states[step.stack] += "T" if _state(self.pids[0]) == "T" else "r"


def test_an_instance_that_works_between_turns_is_paused_and_gets_a_caution(tmp_path: Path) -> None:
    block = plan(suite("a:", "b:", blocks=1, workloads=("dhrystone",)))[0]
    restless = Alive(script="while :; do :; done")
    stacks = {"a": (Fake(),), "a-again": (Fake(),), "b": (restless,)}
    watch = Looking(restless.pids)
    runner = BlockRunner(bare_context(tmp_path, LocalHost()), stacks, ("a", "a-again"), 1)
    trials = {trial.stack: trial for trial, _ in runner.run(block, planned_of(Lasting(pids=restless.pids)), watch)}
    assert {stack: trial.reason for stack, trial in trials.items()} == {"a": "", "a-again": "", "b": ""}
    said = {stack for stack, trial in trials.items() if "busy-when-idle" in {each.kind for each in trial.cautions}}
    assert said == {"b"}
    for stack in ("a", "a-again"):
        assert watch.states[stack][0] == "r"  # before anybody knows
        assert watch.states[stack][-5:] == "TTTTT"


# --- A run with per-stack commands and images ---


@dataclass(frozen=True)
class Commanded(Dhrystone):
    """Dhrystone that says which command it was given."""

    command: tuple[str, ...] = ("usual",)

    def with_command(self, command: tuple[str, ...]) -> Commanded:
        return replace(self, command=command)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        for raw in super().measure(setup):
            yield replace(raw, argv=self.command)


def measured(folder: Path) -> dict[str, Trial]:
    testbed = bare_context(folder, LocalHost())
    new = replace(testbed.images.main, digest="new", origin="docker-archive:new.tar@1")
    testbed = replace(testbed, images=replace(testbed.images, by_stack={"new": new}))
    stacks = {stack: (Fake(),) for stack in ("old", "old-again", "new")}
    programs = {"new": StackOverride(("better",))}
    rounds = BlockRunner(testbed, stacks, ("old", "old-again"), 1, programs=programs)
    block = plan(suite("old:", "new:", blocks=1, workloads=("dhrystone",)))[0]
    return {trial.stack: trial for trial, _ in rounds.run(block, planned_of(Commanded()), ignore_event)}


def test_each_stack_runs_its_own_command(tmp_path: Path) -> None:
    trials = measured(tmp_path)
    assert {stack: trial.status for stack, trial in trials.items()} == dict.fromkeys(trials, "ok")
    commands = {stack: trial.commands[-1] for stack, trial in trials.items()}
    assert commands == {"old": ("usual",), "old-again": ("usual",), "new": ("better",)}


def test_a_trial_proves_which_image_of_its_own_it_ran(tmp_path: Path) -> None:
    trials = measured(tmp_path)
    assert dict(trials["new"].proof)["image"] == "docker-archive:new.tar@1"
    assert "image" not in dict(trials["old"].proof)


def test_what_differs_by_wish_is_said_and_may_be_faster_than_bare_metal() -> None:
    run = pairs([117.0, 116.0, 118.0, 117.5, 116.5, 117.2], [100.0] * 6)
    families = {"native": ("bare metal",), "docker": ("container",)}
    overrides = {"docker": {"command": "gzip -1"}}
    summary = summarize(replace(run, record=replace(run.record, families=families, own=overrides)))  # type: ignore[arg-type]
    cell = summary.headline("dhrystone", "docker")
    assert cell.verdict == "better"
    assert "faster-than-bare-metal" not in {caution.kind for caution in cell.cautions}
    doubt, *_ = create_findings(summary, MACHINE).cautions.sentences
    assert doubt.startswith("docker: the suite overrides the program there, ")
    assert doubt.endswith(": command gzip -1.")


def test_a_run_does_not_go_on_with_another_program_of_a_stack() -> None:
    before = make_run([]).record
    now = replace(before, own={"docker": {"image": "docker://app@sha256:2"}})
    check_same(before, before)
    with pytest.raises(UsageError, match="the run was made with another image"):
        check_same(before, now)


# --- Data volumes in the loop, on fakes ---


def test_a_stack_without_a_volume_is_skipped_if_a_workload_requires_one(bench: Bench) -> None:
    bench.work(suite("plain:", 'r: stack = "roomy"', blocks=1, workloads=("stored", "dhrystone")))
    [skipped], [has] = by_stack(bench.trials, "plain", "stored"), by_stack(bench.trials, "r", "stored")
    said = 'fake: its instances have no data volume (fix: write place = "root")'
    assert (skipped.status, skipped.reason, skipped.values) == ("skipped", said, ())
    assert (has.status, has.proof) == ("ok", (("volume", str(1 << 20)),))


def test_a_workload_that_wants_no_volume_gets_none(bench: Bench) -> None:
    bench.work(suite("plain:", 'r: stack = "roomy"', blocks=1, workloads=("stored", "dhrystone")))
    [plain], [roomy] = by_stack(bench.trials, "plain"), by_stack(bench.trials, "r")
    assert (plain.status, roomy.status, roomy.proof) == ("ok", "ok", (("volume", "0"),))
