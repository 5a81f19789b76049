"""Comparison of the stacks of one run with a baseline, or of the same stacks in two runs.

Two runs are compared only if they are of the same machine, or with `across_machines`. Differences in software are
usually the reason for a comparison: they are stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tare.features.compare.changes import RatioChange, compare_baselines, compare_headlines
from tare.features.compare.comparability import (
    require_one_machine,
    require_same_units,
    run_differences,
    run_machine_differences,
    units_of,
)
from tare.features.compare.run_series import format_points, measured_points, require_stack, select_stacks, stacks_of
from tare.model.errors import TareError, UsageError
from tare.model.journal import Run
from tare.report.answer import GateOutcome
from tare.statistics.cells import Cell, verdict_of_side
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary

GateCondition = Literal["worse", "better", "different", "undecided"]
GATE_CONDITIONS: tuple[GateCondition, ...] = get_args(GateCondition)
_VERDICTS_OF_CONDITION: Mapping[GateCondition, tuple[str, ...]] = {
    "worse": ("worse",),
    "better": ("better",),
    "different": ("worse", "better"),
    "undecided": ("undecided", "too few blocks"),
}


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
class GateResult:
    """Result of a gate: its conditions, the cells that failed it, and those that lost their value.

    `baseline_changes` are changes of the baseline itself, for which the gate cannot tell: the program may have changed
    in all stacks, or the machine. `is_undecided` is true if the gate passed although no cell is decided.
    """

    fail_on: tuple[GateCondition, ...]
    failing: tuple[Cell, ...]
    lost: tuple[Cell, ...]
    baseline_changes: tuple[Cell, ...]
    answer: GateOutcome
    is_undecided: bool = False


@dataclass(frozen=True)
class ComparisonResult:
    """Result of a comparison; `changes` and `baseline_changes` are empty for one run.

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


def compare_stacks(run: Run, options: CompareOptions) -> ComparisonResult:
    """Compare the stacks of one run with a baseline, block by block; raises UsageError or TareError."""
    known = stacks_of(run)
    baseline = require_stack(run, options.baseline or run.record.baseline)
    requested = tuple(require_stack(run, stack) for stack in dict.fromkeys(options.stacks))
    if baseline in requested:
        raise UsageError(f"{baseline} is the baseline, and is compared with nothing", "name another --baseline")
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
    shared = [stack for stack in stacks_of(before) if stack in stacks_of(after)]
    for run in (before, after):
        for stack in options.stacks:
            require_stack(run, stack)
    controls = {before.record.control, after.record.control}
    chosen = options.stacks or tuple(stack for stack in shared if stack not in {baseline, *controls})
    if not chosen:
        raise UsageError(
            f"{before.folder} and {after.folder} have no stack in common but {baseline}",
            f"compare runs of one suite, or {baseline} itself: --stack {baseline}",
        )
    require_same_units(unit for run in (before, after) for unit in units_of(run, {baseline, *chosen}))
    margin = after.record.margin if options.margin is None else options.margin
    summaries = [summarize(select_stacks(run, baseline, (baseline, *chosen), margin)) for run in (before, after)]
    earlier, left_out = _drop_incomparable_workloads(*summaries)
    of_baseline = compare_baselines(earlier, summaries[1], margin)
    is_requested = baseline in options.stacks
    changed = (*compare_headlines(earlier, summaries[1], margin), *(of_baseline if is_requested else ()))
    lacks = (*_missing_baseline_statements(earlier, "before: "), *_missing_baseline_statements(summaries[1], "after: "))
    differences = (*run_machine_differences(before, after), *run_differences(before, after, {baseline, *chosen}))
    statements = (*differences, *_unshared_statements(before, after), *left_out, *lacks)
    if not changed:
        reason = "; ".join(left_out) or "they have no workload in common"
        raise UsageError(f"{before.folder} and {after.folder}: {reason}", "compare runs of one suite")
    cells = tuple(each.cell for each in changed)
    moved = () if options.stacks else _find_baseline_changes(options.fail_on, of_baseline, margin)
    gate = judge_gate(options.fail_on, cells, _find_lost_cells(changed, summaries[1]), moved)
    baseline_changes = () if is_requested else of_baseline
    return _require_comparison(
        ComparisonResult((before, after), summaries[1], cells, changed, baseline_changes, statements, gate)
    )


def _require_comparison(result: ComparisonResult) -> ComparisonResult:
    """Return `result`; raises TareError if nothing could be compared."""
    if any(cell.ratio is not None for cell in result.cells) or result.gate.lost:
        return result
    baseline = result.summary.baseline
    message = f"nothing can be compared with {baseline}: {_missing_reason(result, baseline)}"
    raise TareError(message, f"`tare show {result.runs[-1].folder}` lists the trials with their reasons")


def _missing_reason(result: ComparisonResult, baseline: str) -> str:
    if not result.cells:
        return "the run has no workload"
    of_baseline = [cell for cell in result.summary.headlines if cell.stack == baseline]
    if of_baseline and not any(cell.trials for cell in of_baseline):
        return f"{baseline}: {of_baseline[0].skipped or '; '.join(of_baseline[0].notes)}"
    first = result.cells[0]
    return f"{first.stack} in {first.name}: {first.skipped or '; '.join(first.notes)}"


def judge_gate(
    fail_on: tuple[GateCondition, ...],
    cells: Sequence[Cell],
    lost: tuple[Cell, ...],
    baseline_changes: tuple[Cell, ...] = (),
) -> GateResult:
    """Judge the cells by the conditions of a gate.

    Lost cells fail every gate, as they are neither better nor equivalent. Undecided cells fail only a gate that names
    them. A gate cannot tell if no cell has an interval, so that nothing could fail it, or if the baseline has changed.
    """
    verdicts = verdicts_of(fail_on)
    open_ones = tuple(cell for cell in cells if cell.verdict == "no value" and not cell.skipped)
    failing = tuple(
        cell
        for cell in cells
        if cell.verdict in verdicts or (fail_on and cell in lost) or ("undecided" in fail_on and cell in open_ones)
    )
    answer: GateOutcome = "passed"
    if failing:
        answer = "failed"
    elif fail_on and (baseline_changes or all(cell.low is None for cell in cells)):
        answer = "cannot tell"
    is_undecided = bool(fail_on) and answer == "passed" and not any(cell.is_decided for cell in cells)
    return GateResult(fail_on, failing, lost, baseline_changes, answer, is_undecided)


def _find_baseline_changes(
    fail_on: tuple[GateCondition, ...], baseline_changes: Sequence[RatioChange], margin: float
) -> tuple[Cell, ...]:
    """Return the decided changes of the baseline beyond the margin in a direction that the gate fails on."""
    cells = []
    for cell in (each.cell for each in baseline_changes):
        ratio = cell.ratio or 1.0
        direction = verdict_of_side("more" if ratio > 1 else "less", cell.better)
        if cell.is_decided and max(ratio, 1 / ratio) > 1 + margin and direction in verdicts_of(fail_on):
            cells.append(cell)
    return tuple(cells)


def verdicts_of(fail_on: Sequence[GateCondition]) -> set[str]:
    """Return the verdicts that a gate fails on."""
    return {verdict for kind in fail_on for verdict in _VERDICTS_OF_CONDITION[kind]}


def _common_baseline(before: Run, after: Run, requested: str | None) -> str:
    earlier, later = before.record.baseline, after.record.baseline
    if requested is None and earlier != later:
        raise UsageError(
            f"the runs have other baselines: {earlier} before, {later} after", "name one that both have: --baseline"
        )
    for run in (before, after):
        require_stack(run, requested or earlier)
    return requested or earlier


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


def _find_lost_cells(ratio_changes: Sequence[RatioChange], after: Summary) -> tuple[Cell, ...]:
    """Return the cells with a value before and none after, although the baseline has values after."""
    return tuple(
        each.cell
        for each in ratio_changes
        if each.before.ratio is not None
        and not each.after.trials
        and after.headline(each.cell.headline, after.baseline).trials
    )
