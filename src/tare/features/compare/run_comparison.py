"""Comparison of the stacks of one run with a baseline, or of the same stacks in two runs, and its gate `--fail-on`.

Two runs are compared only if they are of the same machine, or with `across_machines`. Differences in software are
usually the reason for a comparison: they are stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tare.features.compare.changes import RatioChange, baseline_logs, compare_baselines, compare_headlines
from tare.features.compare.comparability import (
    require_one_machine,
    require_same_units,
    run_differences,
    run_machine_differences,
    units_of,
)
from tare.features.compare.noise import NoiseComparison, compare_noise
from tare.features.compare.run_series import format_points, measured_points, require_stack, select_stacks, stacks_of
from tare.model.errors import TareError, UsageError
from tare.model.run_folder import Run
from tare.report.answer import GateOutcome
from tare.statistics.cells import Cell, verdict_of_side
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary


@dataclass(frozen=True)
class CompareOptions:
    """Options of a comparison. Baseline and margin default to those of the last run, stacks to all of them.

    Runs of different machines are compared only with `across_machines`. The gate of a history fails on changes that
    became robust with a run started at `since` or later (a date or a time as in run.json), or with the last run if
    `since` is "".
    """

    baseline: str | None = None
    stacks: tuple[str, ...] = ()
    margin: float | None = None
    fail_on: tuple[GateCondition, ...] = ()
    across_machines: bool = False
    since: str = ""


@dataclass(frozen=True)
class ComparisonResult:
    """Result of a comparison; `changes`, `baseline_changes` and `noise` are empty for one run.

    `baseline_changes` are changes of the baseline itself. They are among the `changes` instead if the user requested
    the baseline as a stack.
    """

    runs: tuple[Run, ...]
    summary: Summary
    cells: tuple[Cell, ...]
    changes: tuple[RatioChange, ...]
    baseline_changes: tuple[RatioChange, ...]
    statements: tuple[str, ...]
    gate: GateResult
    noise: tuple[NoiseComparison, ...] = ()


def compare_stacks(run: Run, options: CompareOptions) -> ComparisonResult:
    """Compare the stacks of one run with a baseline, block by block; raises UsageError or TareError."""
    known = stacks_of(run)
    baseline = require_stack(run, options.baseline or run.record.baseline)
    requested = tuple(require_stack(run, stack) for stack in dict.fromkeys(options.stacks))
    if baseline in requested:
        raise UsageError(f"--stack {baseline}: it is the baseline", "name another --baseline")
    control = run.record.control if baseline == run.record.baseline else ""
    chosen = requested or tuple(stack for stack in known if stack not in (baseline, run.record.control))
    if not chosen:
        raise UsageError(f"{run.folder}: has no stack but {baseline}", "a comparison needs two stacks")
    require_same_units(units_of(run, {baseline, *chosen}))
    summary = summarize(select_stacks(run, baseline, (baseline, control, *chosen), options.margin))
    cells = tuple(cell for cell in summary.headlines if cell.stack in chosen)
    lost = tuple(cell for cell in cells if not cell.trials and not cell.skipped and cell.failures)
    gate = judge_gate(options.fail_on, cells, lost)
    return _require_comparison(
        ComparisonResult((run,), summary, cells, (), (), _missing_baseline_statements(summary, ""), gate)
    )


def compare_runs(before: Run, after: Run, options: CompareOptions) -> ComparisonResult:
    """Compare the ratios of stacks to the baseline in two runs; raises UsageError or TareError."""
    if before.folder.resolve() == after.folder.resolve() or (before.trials and before.trials == after.trials):
        raise UsageError(f"{before.folder} and {after.folder} are the same run", "give the runs before and after")
    if not options.across_machines:
        require_one_machine(before, after)
    baseline = _common_baseline(before, after, options.baseline)
    chosen = _choose_common_stacks(before, after, baseline, options.stacks)
    compared_stacks = tuple(dict.fromkeys((baseline, *chosen)))
    require_same_units(unit for run in (before, after) for unit in units_of(run, compared_stacks))
    margin = after.record.margin if options.margin is None else options.margin
    earlier = summarize(select_stacks(before, baseline, compared_stacks, margin))
    later = summarize(select_stacks(after, baseline, compared_stacks, margin))
    earlier, left_out = _drop_incomparable_workloads(earlier, later)

    changes = compare_headlines(earlier, later, margin)
    logs = baseline_logs(earlier, later)
    baseline_changes = compare_baselines(earlier, later, logs, margin)
    confounding = () if options.stacks else find_confounding_cells(options.fail_on, baseline_changes, margin)
    if baseline in options.stacks:  # its changes are then results like those of the other stacks
        changes, baseline_changes = (*changes, *baseline_changes), ()
    if not changes:
        reason = "; ".join(left_out) or "they have no workload in common"
        raise UsageError(f"{before.folder} and {after.folder}: {reason}", "compare runs of one suite")

    statements = (
        *run_machine_differences(before, after),
        *run_differences(before, after, compared_stacks),
        *_unshared_statements(before, after),
        *left_out,
        *_missing_baseline_statements(earlier, "before: "),
        *_missing_baseline_statements(later, "after: "),
    )
    cells = tuple(change.cell for change in changes)
    gate = judge_gate(options.fail_on, cells, _find_lost_cells(changes, later), confounding)
    noise = compare_noise(logs)
    return _require_comparison(
        ComparisonResult((before, after), later, cells, changes, baseline_changes, statements, gate, noise)
    )


def _require_comparison(result: ComparisonResult) -> ComparisonResult:
    """Return `result`; raises TareError if nothing could be compared."""
    if any(cell.ratio is not None for cell in result.cells) or result.gate.lost:
        return result
    baseline = result.summary.baseline
    message = f"nothing can be compared with {baseline}: {_missing_reason(result, baseline)}"
    raise TareError(message, f"see the reasons: tare show {result.runs[-1].folder}")


def _missing_reason(result: ComparisonResult, baseline: str) -> str:
    if not result.cells:
        return "the run has no workload"
    of_baseline = [cell for cell in result.summary.headlines if cell.stack == baseline]
    if of_baseline and not any(cell.trials for cell in of_baseline):
        return f"{baseline}: {of_baseline[0].skipped or '; '.join(of_baseline[0].notes)}"
    first = result.cells[0]
    return f"{first.stack} in {first.name}: {first.skipped or '; '.join(first.notes)}"


def _common_baseline(before: Run, after: Run, requested: str | None) -> str:
    earlier, later = before.record.baseline, after.record.baseline
    if requested is None and earlier != later:
        raise UsageError(
            f"the runs have other baselines: {earlier} before, {later} after", "name one that both have: --baseline"
        )
    for run in (before, after):
        require_stack(run, requested or earlier)
    return requested or earlier


def _choose_common_stacks(before: Run, after: Run, baseline: str, requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requested stacks, or else all that both runs have but the baseline and its controls."""
    for run in (before, after):
        for stack in requested:
            require_stack(run, stack)
    left_out = {baseline, before.record.control, after.record.control}
    later_stacks = stacks_of(after)
    chosen = requested or tuple(stack for stack in stacks_of(before) if stack in later_stacks and stack not in left_out)
    if not chosen:
        raise UsageError(
            f"{before.folder} and {after.folder} have no stack in common but {baseline}",
            f"compare runs of one suite, or {baseline} itself: --stack {baseline}",
        )
    return chosen


def _missing_baseline_statements(summary: Summary, when: str) -> tuple[str, ...]:
    """Return a statement for each headline in which the baseline has no value: nothing can be compared there."""
    return tuple(
        f"{when}the baseline {cell.stack} has no value in {cell.name}: {cell.skipped or '; '.join(cell.notes)}"
        for cell in summary.headlines
        if cell.stack == summary.baseline and not cell.trials
    )


def _drop_incomparable_workloads(before: Summary, after: Summary) -> tuple[Summary, tuple[str, ...]]:
    """Return the earlier run without workloads that the later run measured at other points, and statements."""
    left_out = []
    for workload in before.workloads:
        if workload in after.workloads:
            old, new = measured_points(before, workload), measured_points(after, workload)
            if old and new and old != new:
                left_out.append((workload, format_points(old ^ new)))
    names = [workload for workload, _ in left_out]
    headlines = tuple(cell for cell in before.headlines if cell.workload not in names)
    statements = tuple(f"not compared: {workload}: only one run has {points}" for workload, points in left_out)
    return replace(before, headlines=headlines), statements


def _unshared_statements(before: Run, after: Run) -> tuple[str, ...]:
    """Return a statement for the stacks and for the workloads that only one of the runs has."""
    statements = []
    for when, run, other in (("before", before, after), ("after", after, before)):
        control = {before.record.control, after.record.control}
        stacks = [stack for stack in stacks_of(run) if stack not in stacks_of(other) and stack not in control]
        names = {record.name for record in other.record.workloads}
        workloads = [record.name for record in run.record.workloads if record.name not in names]
        for noun, only in (("stack", stacks), ("workload", workloads)):
            if only:
                statements.append(f"only {when}: {noun}{'s' * (len(only) > 1)} {', '.join(only)}")
    return tuple(statements)


def _find_lost_cells(changes: Sequence[RatioChange], after: Summary) -> tuple[Cell, ...]:
    """Return the cells with a value before and none after, although the baseline has values after."""
    return tuple(
        change.cell
        for change in changes
        if change.before.ratio is not None
        and not change.after.trials
        and after.headline(change.cell.headline, after.baseline).trials
    )


GateCondition = Literal["worse", "better", "different", "undecided"]
GATE_CONDITIONS: tuple[GateCondition, ...] = get_args(GateCondition)
_VERDICTS_OF_CONDITION: Mapping[GateCondition, tuple[str, ...]] = {
    "worse": ("worse",),
    "better": ("better",),
    "different": ("worse", "better"),
    "undecided": ("undecided", "too few blocks"),
}


@dataclass(frozen=True)
class GateResult:
    """Result of a gate: its conditions, the cells that failed it, and those that lost their value.

    `confounding` are cells of the baseline, which itself has changed: the gate cannot tell whether the program or the
    machine has.
    """

    fail_on: tuple[GateCondition, ...]
    failing: tuple[Cell, ...]
    lost: tuple[Cell, ...]
    confounding: tuple[Cell, ...]
    outcome: GateOutcome


def judge_gate(
    fail_on: tuple[GateCondition, ...],
    cells: Sequence[Cell],
    lost: tuple[Cell, ...],
    confounding: tuple[Cell, ...] = (),
) -> GateResult:
    """Judge the cells by the conditions of a gate.

    Lost cells fail every gate, as they are neither better nor equivalent. Undecided cells fail only a gate that names
    them, and leave other gates undecided. A gate cannot tell if no cell has an interval, so that nothing could fail it,
    or if there is a confounding cell (see `find_confounding_cells`).
    """
    verdicts = verdicts_of(fail_on)
    without_value = tuple(cell for cell in cells if cell.verdict == "no value" and not cell.skipped)
    failing = tuple(
        cell
        for cell in cells
        if cell.verdict in verdicts or (fail_on and cell in lost) or ("undecided" in fail_on and cell in without_value)
    )
    outcome: GateOutcome = "passed"
    if failing:
        outcome = "failed"
    elif fail_on and (confounding or all(cell.low is None for cell in cells)):
        outcome = "cannot tell"
    elif fail_on and any(cell.verdict in _VERDICTS_OF_CONDITION["undecided"] for cell in cells):
        outcome = "undecided"
    return GateResult(fail_on, failing, lost, confounding, outcome)


def find_confounding_cells(
    fail_on: tuple[GateCondition, ...], baseline_changes: Sequence[RatioChange], margin: float
) -> tuple[Cell, ...]:
    """Return the baseline's cells with a decided change beyond the margin in a direction that the gate fails on."""
    cells = []
    for cell in (change.cell for change in baseline_changes):
        ratio = cell.ratio or 1.0
        direction = verdict_of_side("more" if ratio > 1 else "less", cell.better)
        if cell.is_decided and max(ratio, 1 / ratio) > 1 + margin and direction in verdicts_of(fail_on):
            cells.append(cell)
    return tuple(cells)


def verdicts_of(fail_on: Sequence[GateCondition]) -> set[str]:
    """Return the verdicts that a gate fails on."""
    return {verdict for condition in fail_on for verdict in _VERDICTS_OF_CONDITION[condition]}
