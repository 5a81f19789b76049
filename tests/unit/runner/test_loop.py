"""The loop, on fakes: no root, no engine, nothing on the machine."""

from __future__ import annotations

import re
import resource
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import duckdb
import pytest
from fakes import LIMITS, Bench, Watcher, by_stack, planned, record, suite
from tare_fake.technology import FakeHost
from tare_fake.workload import Odd

from tare.model.errors import TrialFailed
from tare.model.machine import Facts
from tare.model.run_folder import RunWriter, load_raw
from tare.model.trial import LimitsCheck, LimitsSpec, ObservedLimits, Problem, RawOutput
from tare.plugins.workload import MeasurementContext
from tare.runner.events import RunEvent, TrialBegins, WarningIssued
from tare.runner.sanity_checks import time_cautions
from tare.statistics.summarize import summarize
from tare.suites.plan import plan, plan_to_run
from tare.workloads.dhrystone import Dhrystone

SAMPLES = Path(__file__).parents[2] / "samples"

# --- the fake itself -----------------------------------------------------------------------------------------------


def test_a_fake_answers_as_the_real_programs_do(bench: Bench) -> None:
    bench.work(suite("a:", blocks=1, workloads=("dhrystone", "whetstone", "ramspeed", "startup")))
    values = {trial.workload: trial.values for trial in bench.trials}
    assert [trial.status for trial in bench.trials] == ["ok"] * 4
    assert [value.value for value in values["dhrystone"]] == [20e6]
    assert [value.value for value in values["whetstone"]] == [4000e6]
    assert {value.value for value in values["ramspeed"]} == {10e9}
    assert len(values["ramspeed"]) == 39  # 3 kinds, each 5 operations, read and write at 4 sizes
    assert [value.value for value in values["startup"]] == [pytest.approx(0.1)]


def test_an_effect_of_3_percent_is_3_percent_of_speed(bench: Bench) -> None:
    bench.work(suite("same:", 'slow: effect = "3%"', blocks=1))
    [same], [slow] = by_stack(bench.trials, "same"), by_stack(bench.trials, "slow")
    assert slow.values[0].value / same.values[0].value == pytest.approx(0.97)
    [start] = by_stack(bench.trials, "slow", "startup")
    assert start.values[0].value == pytest.approx(0.1 / 0.97)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_stalls_of_a_stack_are_reported_even_if_it_is_found_equivalent(bench: Bench, seed: int) -> None:
    steady, stalling = (f'seed = {10 * seed + index}\njitter = "2%"\nnoise = "0.5%"\n' for index in (0, 1))
    bench.work(suite(f"a: {steady}", f'b: {stalling}stalls = "10%"', blocks=20, workloads=("dhrystone",)))
    summary = summarize(bench.read())
    b, control = (summary.headline("dhrystone", stack) for stack in ("b", "a-again"))
    assert (b.verdict, b.has_caution("stalls"), control.has_caution("stalls")) == ("equivalent", True, False)


def test_noise_differs_between_instances_and_repeats_with_the_same_seed(tmp_path: Path) -> None:
    seen = []
    for run, seed in (("first", 1), ("second", 1), ("other", 2)):
        bench = Bench(tmp_path / run / "run", Watcher(tmp_path / "none"))
        bench.work(suite(f'noisy: noise = "2%"\nseed = {seed}', blocks=4, workloads=("dhrystone",)))
        seen.append([trial.values[0].value for trial in bench.all_trials])
    assert seen[0] == seen[1] != seen[2]
    assert len(set(seen[0])) == 8
    assert all(0.85 < value / 20e6 < 1.15 for value in seen[0])


def test_a_fake_proves_its_limits_and_has_no_cautions(bench: Bench) -> None:
    bench.work(suite("a:", blocks=1, workloads=("startup",)))
    [trial] = bench.trials
    assert trial.limits is not None
    assert trial.limits.seen == ObservedLimits(1, 512 << 20, 4096)
    assert "limits-differ" not in {caution.kind for caution in trial.cautions}
    assert [(mark.name, mark.seconds) for mark in trial.timeline] == [
        ("requested", 0.0),
        ("started", pytest.approx(0.01)),
        ("ready", pytest.approx(0.1)),
    ]
    assert (trial.path, trial.proof) == ("none", (("kind", "fake"),))


class Curious(Odd):
    """Fails with the limits of its instance."""

    def measure(self, setup: MeasurementContext) -> Iterable[RawOutput]:
        raise TrialFailed("" if setup.limits is None else f"{setup.limits.asked.memory_bytes >> 20} MiB")


def test_a_workload_knows_the_limits_of_its_instance(bench: Bench) -> None:
    asked = suite("a:", blocks=1, workloads=("odd",))
    bench.work(replace(asked, workloads=(replace(asked.workloads[0], workload=Curious()),)))
    assert bench.trials[0].reason == "512 MiB"


def test_instances_have_the_limits_of_their_workload_which_are_verified(bench: Bench) -> None:
    read = suite("a:", blocks=1)
    first, second = read.workloads
    limited = replace(first, limits=LimitsSpec(memory_bytes=64 << 20, seconds=60.0))
    bench.work(replace(read, workloads=(limited, second)))
    limits = {trial.workload: trial.limits for trial in bench.trials}
    narrow = replace(LIMITS, memory_bytes=64 << 20)
    assert limits["dhrystone"] == LimitsCheck(narrow, ObservedLimits(1, 64 << 20, 4096))
    assert limits["startup"] == LimitsCheck(LIMITS, ObservedLimits(1, 512 << 20, 4096))
    assert "limits-differ" not in {caution.kind for trial in bench.trials for caution in trial.cautions}


def test_a_trial_that_measures_longer_than_it_may_bears_a_caution(bench: Bench) -> None:
    read = suite("a:", blocks=1, workloads=("dhrystone",))
    short = replace(read.workloads[0], limits=LimitsSpec(seconds=1e-9))
    bench.work(replace(read, workloads=(short,)))
    (trial,) = bench.trials
    assert "over-time" in {caution.kind for caution in trial.cautions}  # as there is `steal`, on a busy machine
    (said,) = time_cautions(2.2, 1.9)
    assert said.text == "measured for 2.2 s, 1.9 s were allowed"
    assert time_cautions(2.2, 2.01) == ()


def test_a_workload_with_a_server_fails_on_a_fake_with_a_reason(bench: Bench) -> None:
    bench.work(suite("a:", blocks=1, workloads=("redis",)))
    [trial] = bench.trials
    assert (trial.status, trial.values) == ("failed", ())
    assert trial.reason == "the workload needs a network"


# --- trials that fail ----------------------------------------------------------------------------------------------


def test_a_failed_trial_is_recorded_with_its_reason_and_the_run_goes_on(bench: Bench) -> None:
    assert bench.work(suite("good:", 'bad: fails = "start"')) == "plan"
    assert [(trial.status, trial.reason) for trial in by_stack(bench.trials, "bad")] == [
        ("failed", "the fake does not start"),
        ("failed", "the fake does not start"),
    ]
    assert {trial.hint for trial in by_stack(bench.trials, "bad")} == {"it was told so"}
    assert [trial.status for trial in by_stack(bench.trials, "good")] == ["ok", "ok"]
    assert len(bench.trials) == 8


def test_a_crash_of_the_program_fails_the_trial_with_its_exit_code(bench: Bench) -> None:
    bench.work(suite('bad: fails = "crash"', blocks=1, workloads=("dhrystone",)))
    [trial] = bench.trials
    assert (trial.status, trial.values) == ("failed", ())
    assert trial.reason == "/usr/lib/tare/dhrystone: exit code 139: program: cut off he; it printed ''"
    assert [raw.label for raw in load_raw(bench.folder, trial.trial)] == ["failed command"]


@pytest.mark.parametrize("workload", ["dhrystone", "whetstone", "ramspeed"])
@pytest.mark.parametrize(("fails", "printed"), [("garbage", "garbage: nan inf -1"), ("nothing", "")])
def test_an_output_without_values_fails_the_trial_with_a_reason(
    bench: Bench, workload: str, fails: str, printed: str
) -> None:
    bench.work(suite(f'bad: fails = "{fails}"', blocks=1, workloads=(workload,)))
    [trial] = bench.trials
    assert (trial.status, trial.values) == ("failed", ())
    assert workload in trial.reason
    assert (printed or "it printed ''") in trial.reason
    [raw] = load_raw(bench.folder, trial.trial)
    assert (printed in raw.text, bool(raw.text)) == (True, bool(printed))


def test_a_program_that_hangs_is_ended_by_its_time_out_and_the_run_goes_on(bench: Bench) -> None:
    bench.work(suite("good:", 'stuck: fails = "hang"', blocks=1, workloads=("impatient",)))
    [stuck] = by_stack(bench.trials, "stuck", "impatient")
    assert (stuck.status, stuck.values) == ("failed", ())
    assert stuck.reason == "/usr/lib/tare/dhrystone: did not end within 0.05 s"
    assert by_stack(bench.trials, "good", "impatient")[0].status == "ok"


def test_a_technology_that_disappears_in_a_run_is_skipped_with_its_reason(bench: Bench) -> None:
    bench.work(suite("good:", 'late: stack = "gone"', blocks=1, workloads=("startup",)))
    [late] = by_stack(bench.trials, "late", "startup")
    assert (late.status, late.reason) == ("skipped", "its daemon has gone away (fix: start it again)")


def test_every_trial_has_its_raw_output_in_the_run_folder(bench: Bench) -> None:
    bench.work(suite("good:", 'bad: fails = "start"'))
    assert {path.stem for path in (bench.folder / "raw").iterdir()} == {trial.trial for trial in bench.all_trials}


def test_a_plug_in_bug_fails_its_trial_with_the_reason_and_the_run_goes_on(bench: Bench) -> None:
    assert bench.work(suite("a:", blocks=1, workloads=("faulty", "startup"))) == "plan"
    [faulty], [startup] = by_stack(bench.trials, "a", "faulty"), by_stack(bench.trials, "a", "startup")
    assert startup.status == "ok"
    assert (faulty.status, faulty.values) == ("failed", ())
    assert re.fullmatch(r"ZeroDivisionError: division by zero \(fakes\.py, line \d+\)", faulty.reason)
    [raw] = load_raw(bench.folder, faulty.trial)
    assert raw.label == "traceback"
    assert raw.text.startswith("Traceback (most recent call last):")


def test_what_the_operating_system_refuses_fails_the_trial_with_its_reason(bench: Bench) -> None:
    bench.work(suite("a:", blocks=1, workloads=("lacking",)))
    [trial] = bench.trials
    assert (trial.status, trial.reason) == ("failed", "/nowhere/at-all: no such file or directory")


def test_a_trial_that_a_full_disk_cannot_take_ends_the_run_which_can_go_on(bench: Bench) -> None:
    class Filling(Watcher):
        def __call__(self, event: RunEvent) -> None:
            super().__call__(event)
            if isinstance(event, TrialBegins) and len(self.begun) == 4:
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))

    what, usual = suite("a:", "b:", blocks=2, workloads=("startup",)), resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        stopped = replace(bench, watcher=Filling(bench.watcher.journal)).work(what)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert stopped == f"{bench.folder}: a trial could not be recorded: file too large"
    assert [trial.trial for trial in bench.all_trials] == planned(what)[:3]
    assert bench.work(what) == "plan"
    assert [trial.trial for trial in bench.all_trials] == planned(what)


# --- blocks, skips, budget -----------------------------------------------------------------------------------------


def test_every_block_has_all_stacks_once_in_the_planned_order(bench: Bench) -> None:
    what = suite("a:", "b:", "c:", blocks=3)
    assert bench.work(what) == "plan"
    assert [trial.trial for trial in bench.all_trials] == planned(what)
    blocks = Counter((trial.workload, trial.block) for trial in bench.all_trials)
    assert set(blocks.values()) == {4}
    assert len(blocks) == 6
    assert [(block.workload, block.index) for block in bench.watcher.blocks] == list(blocks)


def test_a_skipped_stack_is_noted_once_for_each_workload_with_its_fix(bench: Bench) -> None:
    unusable = {"no": [Problem("no daemon", "start it"), Problem("no network", "plug it in")]}
    bench.work(suite("yes:", "no:", blocks=3), unusable)
    skipped = [trial for trial in bench.trials if trial.stack == "no"]
    assert [(trial.workload, trial.block, trial.status) for trial in skipped] == [
        ("dhrystone", 0, "skipped"),
        ("startup", 0, "skipped"),
    ]
    assert {trial.reason for trial in skipped} == {"no daemon (fix: start it); no network (fix: plug it in)"}
    assert len(by_stack(bench.trials, "yes")) == 3


def test_a_stack_excluded_from_a_workload_is_noted_once_and_runs_others(bench: Bench) -> None:
    what = suite("a:", "no:", blocks=2)
    dhrystone, startup = what.workloads
    what = replace(what, workloads=(replace(dhrystone, exclude=("no",)), startup))
    assert bench.work(what) == "plan"
    found = {(trial.block, trial.status, trial.reason) for trial in by_stack(bench.trials, "no")}
    assert found == {(0, "skipped", "the suite excludes it from this workload")}
    assert [trial.status for trial in by_stack(bench.trials, "no", "startup")] == ["ok", "ok"]
    assert len([step for block in plan_to_run(what) for step in block.trials if step.stack == "no"]) == 2


def test_a_skip_is_not_noted_again_by_a_resumed_run(bench: Bench) -> None:
    unusable = {"no": [Problem("no daemon", "start it")]}
    what = suite("yes:", "no:", blocks=3)
    bench.work(what, unusable, budget=0.0)
    assert bench.work(what, unusable) == "plan"
    assert Counter((trial.stack, trial.workload) for trial in bench.trials) == {
        ("no", "dhrystone"): 1,
        ("no", "startup"): 1,
        ("yes", "dhrystone"): 3,
        ("yes", "startup"): 3,
    }


def test_the_first_block_runs_whatever_the_budget_is(bench: Bench) -> None:
    assert bench.work(suite("a:", "b:", blocks=3), budget=0.0) == "budget"
    assert [(trial.workload, trial.block) for trial in bench.trials] == [("dhrystone", 0), ("dhrystone", 0)]


def test_a_block_over_budget_is_left_out_and_a_shorter_one_still_runs(bench: Bench) -> None:
    what = suite("a:", "b:", blocks=3, workloads=("startup", "dhrystone"))
    slow = [replace(each, workload=Dhrystone(duration=3000.0)) for each in what.workloads if each.use == "dhrystone"]
    what = replace(what, workloads=(what.workloads[0], *slow))
    assert bench.work(what, budget=60.0) == "budget"
    assert Counter((trial.workload, trial.block) for trial in bench.trials) == {
        ("startup", 0): 2,
        ("startup", 1): 2,
        ("startup", 2): 2,
    }


@dataclass
class Listener(Watcher):
    """Watcher that also keeps the warnings of a run, each with the number of trials before it."""

    warnings: list[tuple[int, str]] = field(default_factory=list)

    def __call__(self, event: RunEvent) -> None:
        super().__call__(event)
        if isinstance(event, WarningIssued):
            self.warnings.append((len(self.ended), event.text))


def test_a_budget_is_called_too_short_only_after_measured_blocks(bench: Bench) -> None:
    # The estimate of a block is seconds, and a fake takes milliseconds: all 30 blocks fit.
    quick = Listener(bench.watcher.journal)
    assert replace(bench, watcher=quick).work(suite("a:", "b:", blocks=30), budget=30.0) != "budget"
    assert quick.warnings == []


def test_a_budget_that_is_too_short_is_reported_after_the_first_blocks(bench: Bench) -> None:
    short = Listener(bench.watcher.journal)
    assert replace(bench, watcher=short).work(suite("a:", "b:", blocks=30, workloads=("dhrystone",)), budget=1e-9)
    [(trials, text)] = short.warnings
    assert trials == 3  # a, b and the control
    assert text.startswith("the budget is too short for the 5 blocks that an interval of dhrystone needs (about ")
    assert "leave" not in text  # the only workload, and the only stack to compare


def test_a_run_ends_when_every_other_stack_has_failed_for_good(bench: Bench) -> None:
    heard = Listener(bench.watcher.journal)
    bad = ('bad: fails = "start"', 'worse: fails = "crash"')
    what = suite("good:", *bad, blocks=30, workloads=("dhrystone",))
    assert replace(bench, watcher=heard).work(what) == "plan"
    assert Counter((trial.stack, trial.status) for trial in bench.trials) == {
        ("good", "ok"): 3,
        ("bad", "failed"): 3,
        ("worse", "failed"): 3,
    }
    assert [text for _, text in heard.warnings] == ["all stacks fail but the baseline good"]


def test_a_run_of_the_baseline_alone_compares_it_with_itself(bench: Bench) -> None:
    missing = {"no": (Problem("it is not installed", "install it"),)}
    bench.work(suite("good:", "no:", blocks=6, workloads=("dhrystone",)), missing)
    assert len(by_stack(bench.trials, "good")) >= 5


def test_a_budget_that_is_enough_changes_nothing(bench: Bench) -> None:
    assert bench.work(suite("a:", "b:"), budget=3600.0) == "plan"
    assert len(bench.trials) == 8


def test_the_time_left_is_never_more_than_the_budget(bench: Bench) -> None:
    bench.work(suite("a:", "b:", blocks=8, workloads=("startup",)), budget=5.0)
    assert len(bench.watcher.begun) >= 2
    assert all(0 <= left.left_seconds <= 5 for _, _, left in bench.watcher.begun)


def test_the_watch_hears_what_runs_and_what_is_next(bench: Bench) -> None:
    what = suite("a:", "b:")
    bench.work(what)
    steps = [step for block in plan(what) for step in block.trials]
    assert [step for step, _, _ in bench.watcher.begun] == steps
    assert [following for _, following, _ in bench.watcher.begun] == [*steps[1:], None]
    assert [left.blocks_done for _, _, left in bench.watcher.begun] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert {left.blocks for _, _, left in bench.watcher.begun} == {4}
    assert bench.watcher.ended == list(bench.all_trials)


def test_a_trial_is_on_the_disk_before_the_next_one_starts(bench: Bench) -> None:
    bench.work(suite("a:", "b:", blocks=3, workloads=("startup",)))
    assert bench.watcher.lines_before == list(range(9))


def test_the_trials_of_stacks_that_take_turns_are_on_the_disk_together(bench: Bench) -> None:
    bench.work(suite("a:", "b:", blocks=3, workloads=("dhrystone",)))
    assert bench.watcher.lines_before == [0, 0, 0, 3, 3, 3, 6, 6, 6]


def test_the_time_left_goes_down_from_turn_to_turn(bench: Bench) -> None:
    bench.work(suite("a:", "b:", blocks=3, workloads=("dhrystone", "startup")))
    assert {begun.workload for begun, _ in bench.watcher.turns} == {"dhrystone"}  # startup has no turns
    for index, turns in ((0, None), (1, 10), (2, 10)):
        of_block = [(begun, left) for begun, left in bench.watcher.turns if begun.block == index]
        assert [begun.number for begun, _ in of_block] == list(range(11))
        assert {begun.of for begun, _ in of_block} == {turns}
        seconds = [left.left_seconds for _, left in of_block]
        assert all(later < earlier for earlier, later in pairwise(seconds[:-1]))
        assert {left.blocks_done for _, left in of_block} == {2 * index}


def test_in_each_round_every_stack_has_one_turn_in_an_order_of_its_own(bench: Bench) -> None:
    bench.work(suite("a:", "b:", "c:", blocks=1, workloads=("dhrystone",)))
    numbers = [begun.number for begun, _ in bench.watcher.turns if begun.stacks == 4]
    assert numbers == list(range(11))  # after the last one there is no more
    began = {trial.stack: [turn.began for turn in trial.turns] for trial in bench.all_trials}
    assert {len(each) for each in began.values()} == {10}
    orders = [tuple(sorted(began, key=lambda stack: began[stack][number])) for number in range(10)]
    assert len(set(orders)) > 5
    last = [max(began[stack][number] for stack in began) for number in range(10)]
    assert all(last[number] <= min(began[stack][number + 1] for stack in began) for number in range(9))


def test_a_trial_that_took_turns_has_the_value_of_each_and_their_mean(bench: Bench) -> None:
    bench.work(suite("a:", blocks=1, workloads=("dhrystone", "ramspeed")))
    dhrystone, ramspeed = bench.trials
    assert [len(value.turns) for value in dhrystone.values] == [10]
    assert {len(value.turns) for value in ramspeed.values} == {10}
    assert dhrystone.values[0].value == fmean(dhrystone.values[0].turns)
    # All turns of a part come before those of the next.
    assert [turn.label for turn in ramspeed.turns[:30:10]] == ["mem integer", "mark integer read", "mark integer write"]


def test_a_stack_that_fails_in_a_turn_leaves_the_block_and_others_go_on(bench: Bench) -> None:
    bench.work(suite("good:", 'bad: fails = "garbage"', blocks=1, workloads=("dhrystone",)))
    [bad], [good] = by_stack(bench.trials, "bad"), by_stack(bench.trials, "good")
    assert (bad.status, len(bad.turns), bad.values) == ("failed", 0, ())
    assert (good.status, len(good.values[0].turns)) == ("ok", 10)


# --- what comes after ----------------------------------------------------------------------------------------------


def test_a_block_leaves_one_file_with_a_series_per_trial_even_if_one_fails(bench: Bench) -> None:
    bench.work(suite("a:", 'crashes: fails = "crash"', blocks=1))
    telemetry = bench.folder / "telemetry"
    turns, alone = (
        [trial for trial in bench.all_trials if trial.workload == name] for name in ("dhrystone", "startup")
    )
    assert [trial.status for trial in turns].count("failed") == 1
    assert {path.name for path in telemetry.iterdir()} == {
        "dhrystone-000.parquet",
        *(f"{trial.trial}.parquet" for trial in alone),
    }
    with duckdb.connect() as connection:
        rows = connection.read_parquet(str(telemetry / "dhrystone-000.parquet")).project("scope, trial").fetchall()
    counted = Counter(rows)
    assert counted.keys() == {("host", None), *(("instance", trial.trial) for trial in turns)}
    assert min(counted.values()) >= 2


def test_a_block_whose_telemetry_cannot_be_written_is_doubted(bench: Bench) -> None:
    work = suite("a:", blocks=1, workloads=("dhrystone",))
    RunWriter(bench.folder).create(record(work), work.text)
    (bench.folder / "telemetry").rmdir()
    bench.work(work)
    assert [trial.status for trial in bench.all_trials] == ["ok", "ok"]
    # Only a busy host of this machine may add another caution.
    kinds = [[caution.kind for caution in trial.cautions if caution.kind != "steal"] for trial in bench.all_trials]
    assert kinds == [["telemetry"]] * 2


def test_a_fake_says_that_it_is_made_up() -> None:
    facts = FakeHost(1.0, "", LIMITS).facts()
    assert isinstance(facts, Facts)
    assert facts.kernel == "fake"
