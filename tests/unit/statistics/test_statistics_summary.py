from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from runs import MACHINE, make_run, make_trial, measured, pairs

from tare.model.machine import FileSystem
from tare.model.run_folder import Run
from tare.model.trial import OWN_BASELINE, Better, Caution, Family, Trial
from tare.report.findings import create_findings
from tare.report.problems import describe_robustness
from tare.statistics.cells import AUDITED_AUTOCORRELATION, Cell
from tare.statistics.outcomes import add_file_system_cautions
from tare.statistics.summarize import summarize


def _docker(run: Run) -> Cell:
    return summarize(run).headline("dhrystone", "docker")


def test_a_stack_that_is_always_slower_is_worse() -> None:
    cell = _docker(pairs([90, 91, 89, 90.5, 89.5], [100] * 5))
    assert (cell.verdict, cell.n, cell.trials, cell.is_decided) == ("worse", 5, 5, True)
    assert cell.mean == 90.0
    assert cell.ratio == pytest.approx(0.9, abs=1e-4)
    assert cell.evidence > math.log(20)


def test_more_is_worse_where_less_is_better() -> None:
    assert _docker(pairs([110, 111, 109, 110, 112], [100] * 5, "lower")).verdict == "worse"
    assert _docker(pairs([90, 91, 89, 90, 88], [100] * 5, "lower")).verdict == "better"


def test_what_differs_less_than_it_varies_is_undecided() -> None:
    cell = _docker(pairs([90, 110, 99, 103, 96], [100] * 5))
    assert (cell.verdict, cell.is_decided) == ("undecided", False)


def test_what_differs_by_less_than_the_margin_for_sure_is_equivalent() -> None:
    run = pairs([100.1, 99.9, 100.2, 99.8, 100.1, 99.9], [100] * 6)
    assert _docker(run).verdict == "equivalent"
    assert _docker(replace(run, record=replace(run.record, margin=0.001))).verdict == "undecided"


def test_a_difference_that_is_sure_by_itself_may_not_be_among_many() -> None:
    chance = np.random.default_rng(9)
    worse = [make_trial("docker", block, [measured("speed", 90 + block % 2 * 3)]) for block in range(5)]
    others = [
        make_trial(stack, block, [measured("speed", 100 * chance.normal(1, 0.05))])
        for stack in ("native", *(f"stack-{number}" for number in range(30)))
        for block in range(5)
    ]
    native = [replace(trial, values=(measured("speed", 100.0),)) for trial in others if trial.stack == "native"]
    alone = _docker(make_run([*worse, *native]))
    among = _docker(make_run([*worse, *native, *(trial for trial in others if trial.stack != "native")]))
    assert (alone.verdict, among.verdict) == ("worse", "undecided")
    assert alone.high is not None
    assert among.high is not None
    assert alone.high < 1 < among.high


def test_blocks_that_resemble_the_one_before_widen_the_interval_and_say_so() -> None:
    rising = [90.0, 91, 92, 93, 94, 95, 96, 97]
    turns = [90.0, 97, 91, 96, 92, 95, 93, 94]
    native = [100 + 1e-3 * block for block in range(8)]
    wide, narrow = _docker(pairs(rising, native)), _docker(pairs(turns, native))
    assert wide.low is not None
    assert narrow.low is not None
    assert wide.low < narrow.low
    assert [caution.kind for caution in wide.cautions] == ["correlated-blocks"]
    assert narrow.cautions == ()


def test_where_all_stacks_drift_apart_every_cell_says_so() -> None:
    trials = [
        make_trial(stack, block, [measured("speed", 100 + slope * block + (block + place) % 2 + 1e-6 * block**2)])
        for place, (stack, slope) in enumerate((("native", 0), ("native-again", 1), ("docker", -1), ("crun", 0.5)))
        for block in range(10)
    ]
    run = make_run(trials)
    summary = summarize(replace(run, record=replace(run.record, control="native-again")))
    for stack in ("native-again", "docker", "crun"):
        [caution] = summary.headline("dhrystone", stack).cautions
        assert caution.kind == "correlated-blocks"
        assert caution.texts[0].startswith("all stacks together: each block resembles the one before it: the interval")


def test_a_baseline_that_differs_from_itself_raises_the_stated_threshold() -> None:
    trials = [
        make_trial(stack, block, [measured("speed", speed + (block + place) % 2 / 2 + 1e-6 * block**2)])
        for place, (stack, speed) in enumerate((("native", 100), ("native-again", 105), ("docker", 104), ("crun", 90)))
        for block in range(8)
    ]
    run = make_run(trials)
    summary = summarize(replace(run, record=replace(run.record, control="native-again")))
    again, docker, crun = (summary.headline("dhrystone", stack) for stack in ("native-again", "docker", "crun"))
    assert (again.verdict, docker.verdict, crun.verdict) == ("better", "undecided", "worse")
    assert again.cautions == ()
    [caution] = docker.cautions
    text = "the baseline differs from itself by 5 % (A/A): the interval is wider by as much"
    assert (caution.kind, caution.texts) == ("unlike-itself", (text,))


def test_one_block_is_too_few_and_says_so() -> None:
    cell = _docker(pairs([90], [100]))
    assert (cell.verdict, cell.low, cell.n) == ("too few blocks", None, 1)
    assert cell.ratio == pytest.approx(0.9)
    assert cell.notes == ("one block has no interval: 5 are needed",)


@pytest.mark.parametrize(
    ("stack", "native"),
    [
        ([90] * 8, [100] * 8),
        ([90, 90, 90, 91, 90, 91, 90, 90], [100] * 8),
        ([90, 90.1, 90.2, 90.05, 89.9, 90.3, 90.15, 90.25], [100, 100, 100, 101, 100, 101, 100, 100]),
        ([90, 91, 90, 91, 90, 91, 90, 91], [100, 101, 100, 101, 100, 101, 100, 101]),
    ],
)
def test_a_decision_on_values_coarser_than_their_noise_is_called_not_firm(
    stack: list[float], native: list[float]
) -> None:
    run = pairs(stack, native)
    cell = _docker(run)
    assert cell.verdict == "worse"
    assert cell.tolerated_autocorrelation is not None
    assert cell.tolerated_autocorrelation > AUDITED_AUTOCORRELATION  # it would look firm
    assert not cell.is_robust
    assert "coarse-values" in [caution.kind for caution in cell.cautions]
    [sentence] = describe_robustness([cell])
    assert sentence.endswith("; borderline: docker in dhrystone.")


def test_values_in_steps_finer_than_their_noise_are_not_called_coarse() -> None:
    chance = np.random.default_rng(1)
    for _ in range(200):
        stack, native = (np.round(chance.normal(mean, 1.0, 12) / 0.2) * 0.2 for mean in (90.0, 100.0))
        cell = _docker(pairs(list(stack), list(native)))
        assert cell.cautions == () or {caution.kind for caution in cell.cautions} == {"correlated-blocks"}


def _families(run: Run, **families: Family) -> Run:
    return replace(run, record=replace(run.record, families={stack: (family,) for stack, family in families.items()}))


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_container_clearly_faster_than_bare_metal_gets_a_caution(better: Better) -> None:
    faster = [117.0, 116.0, 118.0, 117.5, 116.5, 117.2]
    values = (faster, [100.0] * 6) if better == "higher" else ([100.0] * 6, faster)
    run = _families(pairs(*values, better), native="bare metal", docker="container")
    summary = summarize(run)
    for cell in (summary.headline("dhrystone", "docker"), summary.cells_of("dhrystone")[1]):
        assert (cell.stack, cell.verdict) == ("docker", "better")
        assert "faster-than-bare-metal" in [caution.kind for caution in cell.cautions]
    [doubt] = [
        line for line in create_findings(summary, MACHINE).cautions.lines if line.kind == "faster-than-bare-metal"
    ]
    assert doubt.names == ("docker",)
    assert doubt.text.endswith(": nothing is faster than bare metal, so something else differs")


@pytest.mark.parametrize(
    ("faster", "families"),
    [
        ([102.0, 102.1, 102.2, 101.9, 101.8, 102.05], {"native": "bare metal", "docker": "container"}),  # less than 3 %
        ([110, 95, 120, 104, 99, 111], {"native": "bare metal", "docker": "container"}),  # not surely
        ([117.0, 116.0, 118.0, 117.5, 116.5, 117.2], {"native": "type 2", "docker": "container"}),
        ([117.0, 116.0, 118.0, 117.5, 116.5, 117.2], {"native": "bare metal", "docker": "bare metal"}),
        ([117.0, 116.0, 118.0, 117.5, 116.5, 117.2], {}),  # families are unknown
    ],
)
def test_what_is_not_surely_faster_than_bare_metal_gets_no_such_caution(
    faster: list[float], families: dict[str, Family]
) -> None:
    summary = summarize(_families(pairs(faster, [100.0] * 6), **families))
    kinds = {caution.kind for cell in (*summary.headlines, *summary.cells) for caution in cell.cautions}
    assert "faster-than-bare-metal" not in kinds


@pytest.mark.parametrize(("unit", "kinds"), [("s", ["faster-than-bare-metal"]), (OWN_BASELINE, [])])
def test_a_ratio_to_the_same_stack_may_be_better_than_that_of_bare_metal(unit: str, kinds: list[str]) -> None:
    run = pairs([1.0, 1.011, 1.02, 1.003, 1.014, 1.025], [2.0, 2.01, 2.022, 2.023, 2.014, 2.005], "lower", unit)
    cell = summarize(_families(run, native="bare metal", docker="container")).headline("dhrystone", "docker")
    assert (cell.verdict, [caution.kind for caution in cell.cautions]) == ("better", kinds)


def test_equal_ratios_are_noted() -> None:
    cell = _docker(pairs([90] * 5, [100] * 5))
    assert cell.notes == ("all 5 ratios are equal, so the interval has no width",)
    assert cell.verdict == "worse"


@pytest.mark.parametrize("value", [0.0, -3.0])
def test_a_value_that_is_not_above_zero_has_no_ratio_but_a_mean(value: float) -> None:
    cell = _docker(pairs([value, 6], [100, 100]))
    assert (cell.verdict, cell.ratio, cell.low) == ("no value", None, None)
    assert cell.mean == (value + 6) / 2
    assert cell.notes == ("a value is zero or negative, so a ratio has no meaning",)


def test_a_zero_baseline_removes_every_ratio_but_stays_the_baseline() -> None:
    summary = summarize(pairs([5, 6], [0, 100]))
    assert summary.headline("dhrystone", "docker").verdict == "no value"
    assert summary.headline("dhrystone", "native").verdict == "baseline"


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_a_value_that_is_no_finite_number_is_left_out_and_noted(value: float) -> None:
    cell = _docker(pairs([value, 90, 91], [100, 100, 100]))
    assert (cell.n, cell.trials, cell.mean) == (2, 2, 90.5)
    assert summarize(pairs([value, 90], [100, 100])).cells_of("dhrystone")[1].notes[0].startswith("left out: 1 value")


def test_a_value_in_another_unit_is_left_out_and_noted() -> None:
    run = pairs([90, 91, 92], [100, 100, 100])
    [value] = run.trials[-1].values
    other = replace(run.trials[-1], values=(replace(value, unit="s"),))
    cell = summarize(replace(run, trials=(*run.trials[:-1], other))).cells_of("dhrystone")[1]
    assert (cell.n, cell.mean) == (2, 90.5)
    assert cell.notes[0] == "left out: 1 value that is no finite number, or in another unit than the metric's"


def test_only_blocks_in_which_both_are_ok_are_compared() -> None:
    run = pairs([90, 80, 70], [100, 100, 100])
    trials = [
        replace(trial, status="failed", reason="crash", values=()) if _is(trial, "docker", 1) else trial
        for trial in run.trials
    ]
    trials = [trial for trial in trials if not _is(trial, "native", 2)]
    cell = _docker(replace(run, trials=tuple(trials)))
    assert (cell.n, cell.trials) == (1, 2)
    assert cell.ratio == pytest.approx(0.9)
    assert [failure.reason for failure in cell.failures] == ["crash"]


def test_blocks_that_never_meet_are_too_few_and_say_so() -> None:
    run = pairs([90, 80], [100, 100])
    trials = [trial for trial in run.trials if not (_is(trial, "docker", 0) or _is(trial, "native", 1))]
    cell = _docker(replace(run, trials=tuple(trials)))
    assert (cell.verdict, cell.n, cell.mean) == ("too few blocks", 0, 80.0)
    assert cell.notes == ("no block has this value of both docker and native",)


def test_a_trial_that_is_in_the_journal_twice_counts_once() -> None:
    run = pairs([90, 91], [100, 100])
    cell = _docker(replace(run, trials=(*run.trials, *run.trials)))
    assert (cell.n, cell.trials) == (2, 2)


def test_a_failed_trial_that_was_repeated_with_success_is_no_failure() -> None:
    run = pairs([90, 91], [100, 100])
    failed = replace(run.trials[2], status="failed", reason="crash", values=())
    cell = _docker(replace(run, trials=(failed, *run.trials)))
    assert (cell.n, cell.failures) == (2, ())


def test_repeats_inside_a_trial_are_averaged_and_never_counted() -> None:
    trials = [
        make_trial("native", 0, [measured("speed", 100)]),
        make_trial("docker", 0, [measured("speed", 80), measured("speed", 100)]),
    ]
    cell = _docker(make_run(trials))
    assert (cell.n, cell.trials, cell.mean) == (1, 1, 90.0)


def test_a_skipped_stack_keeps_its_reason() -> None:
    run = pairs([90], [100])
    skipped = replace(make_trial("xen", 0, ()), status="skipped", reason="no hypervisor")
    cell = summarize(make_run([*run.trials, skipped])).headline("dhrystone", "xen")
    assert (cell.verdict, cell.skipped, cell.notes) == ("no value", "no hypervisor", ("no hypervisor",))


def test_a_stack_that_only_fails_says_so() -> None:
    run = pairs([90, 91], [100, 100])
    trials = [
        replace(trial, status="failed", reason="crash", values=()) if trial.stack == "docker" else trial
        for trial in run.trials
    ]
    cell = _docker(replace(run, trials=tuple(trials)))
    assert (cell.verdict, cell.notes) == ("no value", ("all 2 trials failed",))
    assert [failure.reason for failure in cell.failures] == ["crash", "crash"]


def test_a_run_without_its_baseline_has_means_but_no_ratios() -> None:
    run = pairs([90, 91], [100, 100])
    cell = _docker(replace(run, record=replace(run.record, baseline="bare")))
    assert (cell.verdict, cell.mean, cell.ratio) == ("no value", 90.5, None)
    assert cell.notes == ("the baseline is not part of this run",)


def test_a_run_without_trials_has_a_headline_for_every_pair() -> None:
    run = pairs([90], [100])
    summary = summarize(replace(run, trials=()))
    assert [cell.notes for cell in summary.headlines] == [("no trial was run",), ("no trial was run",)]
    assert summary.overall.standings == ()


def test_a_caution_counts_once_per_trial_and_baseline_ones_touch_the_ratio() -> None:
    run = pairs([90, 91, 92], [100, 100, 100])
    steal = (Caution("steal", "1 %"), Caution("steal", "2 %"))
    cautious = (("docker", 1), ("native", 0), ("native", 2))
    trials = [replace(t, cautions=steal) if (t.stack, t.block) in cautious else t for t in run.trials]
    summary = summarize(replace(run, trials=tuple(trials)))
    of_stack, native = summary.headline("dhrystone", "docker").cautions
    assert (of_stack.stack, of_stack.trials, of_stack.of, of_stack.texts) == ("docker", 1, 3, ("1 %", "2 %"))
    assert (native.stack, native.trials, native.of) == ("native", 2, 3)
    assert [caution.stack for caution in summary.headline("dhrystone", "native").cautions] == ["native"]


def _is(trial: Trial, stack: str, block: int) -> bool:
    return (trial.stack, trial.block) == (stack, block)


# --- file systems that differ

OVERLAY = FileSystem("/srv/file", "overlay", ("relatime",))
TMPFS = FileSystem("/srv/file", "tmpfs", ("size=64k",))
DISK = FileSystem("/srv/file", "ext4", ("relatime",))
SYNCED = FileSystem("/srv/file", "overlay", ("relatime", "sync"))


def on(stack: str, block: int, *found: FileSystem) -> Trial:
    return replace(make_trial(stack, block, [measured("speed", 100.0 + block)]), file_systems=found)


def doubts(*trials: Trial) -> dict[str, list[str]]:
    compared = add_file_system_cautions(trials, "native")
    return {trial.stack: [each.text for each in trial.cautions] for trial in compared}


@pytest.mark.parametrize(
    ("system", "nature"),
    [
        (TMPFS, "memory against a disk, which is no part of virtualization"),
        (DISK, "a separate disk or layer belongs to the stack, and values of files include it"),
        (SYNCED, "they are mounted differently, which is no part of virtualization"),
    ],
)
def test_another_file_system_than_the_baseline_is_a_caution_with_its_type(system: FileSystem, nature: str) -> None:
    """Also where the baseline's turn in the block came later."""
    text = f"/srv/file is on {system}, the baseline's on overlay (relatime): {nature}"
    assert doubts(on("nspawn", 0, system), on("native", 0, OVERLAY)) == {"nspawn": [text], "native": []}


def test_the_same_file_system_or_an_unknown_one_is_no_caution() -> None:
    found = doubts(on("native", 0, OVERLAY), on("crun", 0, OVERLAY), on("osv", 0))
    assert found == {"native": [], "crun": [], "osv": []}
    assert doubts(on("crun", 0, TMPFS)) == {"crun": []}


def test_paths_with_the_same_difference_are_one_caution() -> None:
    here, there = [[replace(each, path=path) for path in ("/a", "/b", "/c")] for each in (DISK, OVERLAY)]
    [text] = doubts(on("qemu", 0, *here), on("native", 0, *there))["qemu"]
    begin = "/a and 2 more of its paths are on ext4 (relatime), the baseline's on overlay (relatime): "
    assert text.startswith(begin)


def test_a_separate_working_folder_disk_is_a_caution_only_if_written_to() -> None:
    """Memory against a disk always is one: it is an accident."""
    at_rest = replace(OVERLAY, written=False)
    for system, is_doubt in (
        (DISK, True),
        (replace(DISK, written=False), False),
        (replace(TMPFS, written=False), True),
    ):
        assert bool(doubts(on("a", 0, system), on("native", 0, at_rest))["a"]) == is_doubt


def test_the_caution_reaches_the_cells_of_a_run() -> None:
    trials = [on(stack, block, found) for block in range(2) for stack, found in (("native", OVERLAY), ("a", TMPFS))]
    run: Run = make_run(trials)
    cautions = {cell.stack: [each.kind for each in cell.cautions] for cell in summarize(run).headlines}
    assert cautions == {"native": [], "a": ["file-system-differs"]}
