"""Summary of a run: compute all cells, verdicts and ranks from its trials.

A pure function, fast enough to be called after every block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tare.model.run_folder import Run, RunRecord, WorkloadRecord
from tare.model.trial import OWN_BASELINE, Caution, Trial
from tare.statistics.anytime import SINGLE_STATEMENT_EVIDENCE, min_value_count
from tare.statistics.cells import CautionCount, Cell, with_caution
from tare.statistics.cpu_costs import compare_cpu_costs
from tare.statistics.descriptive import Moments, are_quantized, describe_row, moments
from tare.statistics.grid import Grid
from tare.statistics.headlines import LogRatios, log_ratios, usual_logs
from tare.statistics.looks import HeadlineVerdicts, Looks
from tare.statistics.outcomes import TrialOutcomes, add_file_system_cautions, count_outcomes, select_latest
from tare.statistics.ranking import rank
from tare.statistics.ratios import BaselineRows, Ratio, RatioComparison, exp_bounded, ratio_fields
from tare.statistics.shapes import Shapes, find_shapes
from tare.statistics.stalls import TurnComparison, compare_turns
from tare.statistics.summary import Summary

_COARSE = Caution(
    "coarse-values",
    "values come in steps that are larger than their noise: the interval is too narrow, and no decision is robust",
)
_BY_CPU_TIME = "compared by CPU time: it only computes, and what others on the machine took does not count"
_UNCONFIRMED = Caution(
    "unconfirmed",
    "later blocks of other stacks show more noise: another block of this stack may withdraw the verdict",
)


@dataclass(frozen=True)
class _WorkloadSummary:
    """Results of one workload, from which its cells are made."""

    record: WorkloadRecord
    outcomes: tuple[TrialOutcomes, ...]
    headline_verdicts: tuple[HeadlineVerdicts, ...]
    reference: BaselineRows | None
    looks: Looks

    @property
    def grid(self) -> Grid:
        """The values of the workload."""
        return self.looks.grid(self.record.name)

    @property
    def baseline_row(self) -> int:
        """The row of the baseline; 0 in a run without a baseline, in which no cell is compared."""
        return self.baseline_rows.row

    @property
    def baseline_rows(self) -> BaselineRows:
        """The rows of the baseline and its control; row 0 without a baseline."""
        return self.reference or BaselineRows(0)


def summarize(run: Run) -> Summary:
    """Compare every stack with the baseline within blocks, for every headline, workload, metric and point."""
    trials = add_file_system_cautions(select_latest(run.trials), run.record.baseline)
    stacks = tuple(dict.fromkeys([*run.record.stacks, *(trial.stack for trial in trials)]))
    reference = _find_baseline_rows(run.record, stacks)
    known = workload_records(run) if stacks else []  # without a stack there is nothing to compare
    by_workload: dict[str, list[Trial]] = {record.name: [] for record in known}
    looks = Looks(known, stacks, reference or BaselineRows(0), run.record.margin)
    for trial in trials:
        by_workload[trial.workload].append(trial)
        looks.learn(trial)
    judged = looks.headline_verdicts()
    workloads = [
        _WorkloadSummary(
            record, _count_outcomes(stacks, by_workload[record.name]), judged[record.name], reference, looks
        )
        for record in known
    ]
    measured = tuple(each.head for workload in workloads for each in workload.headline_verdicts)
    counting = [
        judged
        for workload in workloads
        for judged in workload.headline_verdicts
        if judged.head.keys and judged.head.rule.overall
    ]
    cells = [cell for workload in workloads for cell in _create_cells(workload)]
    heads = [
        cell
        for workload in workloads
        for judged in workload.headline_verdicts
        for cell in _create_headline_cells(workload, judged)
    ]
    return Summary(
        suite=run.record.suite,
        baseline=run.record.baseline,
        control=run.record.control,
        margin=run.record.margin,
        stacks=stacks,
        workloads=tuple(record.name for record in known),
        cells=_with_bare_metal_caution(cells, run.record),
        headlines=_with_bare_metal_caution(heads, run.record),
        overall=rank(stacks, counting, reference, looks),
        headline_data=measured,
        overrides=tuple(
            (stack, what, text)
            for stack, overrides in run.record.own.items()
            if stack in stacks and stack != run.record.control
            for what, text in overrides.items()
        ),
        years=tuple(run.record.years.items()),
        outcomes=tuple(workload.outcomes for workload in workloads),
        cpu_costs=compare_cpu_costs(run.record, known, by_workload, stacks, reference),
    )


def _find_baseline_rows(record: RunRecord, stacks: tuple[str, ...]) -> BaselineRows | None:
    if record.baseline not in stacks:
        return None
    control = stacks.index(record.control) if record.control in stacks else None
    return BaselineRows(stacks.index(record.baseline), control)


def workload_records(run: Run) -> list[WorkloadRecord]:
    """Return the records of the run's workloads, and a minimal record for workloads that only trials name."""
    known = {record.name: record for record in run.record.workloads}
    for name in run.by_workload:
        known.setdefault(name, WorkloadRecord(name, name, name, (), None))
    return list(known.values())


def _with_bare_metal_caution(cells: Sequence[Cell], record: RunRecord) -> tuple[Cell, ...]:
    """Add a caution to cells that are better than bare metal by more than the margin.

    Only cells count whose baseline is bare metal, whose stack is known not to be, and where both run the same program:
    then something else than the stack must differ. Where each stack is its own baseline, there is no bound.
    """
    if not _is_bare_metal(record, record.baseline):
        return tuple(cells)
    unbounded = {each.name for each in record.workloads if {metric.unit for metric in each.metrics} == {OWN_BASELINE}}
    text = "nothing that runs on bare metal can be faster than bare metal: look for what differs"
    caution = Caution("faster-than-bare-metal", text)
    return tuple(
        with_caution(cell, caution)
        if cell.is_better_by(record.margin)
        and cell.stack in record.families
        and not _is_bare_metal(record, cell.stack)
        and cell.workload not in unbounded
        and record.own.get(cell.stack) == record.own.get(record.baseline)
        else cell
        for cell in cells
    )


def _is_bare_metal(record: RunRecord, stack: str) -> bool:
    return set(record.families.get(stack, ())) == {"bare metal"}


def _count_outcomes(stacks: tuple[str, ...], trials: Sequence[Trial]) -> tuple[TrialOutcomes, ...]:
    by_stack: dict[str, list[Trial]] = {stack: [] for stack in stacks}
    for trial in trials:
        by_stack[trial.stack].append(trial)
    return tuple(count_outcomes(stack, of_stack) for stack, of_stack in by_stack.items())


@dataclass(frozen=True)
class _CellRows:
    """Input of cells: arrays of all keys of a workload's grid, or of a headline.

    The axes are stack and, for a grid, key; `log_ratios`, `logs` (of usual turns) and `present` also have the block.
    `comparison` holds for each row by itself, `held_comparison` together with all other headlines, for a headline and
    for a key that is a headline by itself. `headline_verdicts` and `half_widths` are None for a grid; `half_widths` are
    half the widths of the intervals of quantities, not of ratios.
    """

    workload: _WorkloadSummary
    moments: Moments
    log_ratios: LogRatios
    logs: NDArray[np.float64]
    present: NDArray[np.bool_]
    comparison: RatioComparison
    held_comparison: RatioComparison
    is_refused: NDArray[np.bool_]
    turn_comparison: TurnComparison | None
    headline_verdicts: HeadlineVerdicts | None = None
    half_widths: NDArray[np.float64] | None = None

    @cached_property
    def is_quantized(self) -> NDArray[np.bool_]:
        """Mask of the rows in which the ratios, or the values of one side, have steps larger than their noise."""
        away, row = self.log_ratios, self.workload.baseline_row
        of_baseline = are_quantized(np.broadcast_to(self.logs[row], self.logs.shape), away.both & away.both[row])
        return are_quantized(away.logs, away.both) | are_quantized(self.logs, away.both) | of_baseline

    @cached_property
    def shapes(self) -> Shapes:
        """Outliers, heavy tails and groups in the ratios of each row."""
        return find_shapes(self.log_ratios.logs, self.log_ratios.both)


def _create_cells(workload: _WorkloadSummary) -> Iterator[Cell]:
    """Yield the cells of all keys of a workload; the arithmetic is done once for the whole grid."""
    grid, away = workload.grid, log_ratios(workload.grid, workload.baseline_rows)
    compared = workload.looks.compare_as_of_last_blocks(grid.workload, away, workload.baseline_rows)
    needed = np.full(compared.count.shape, SINGLE_STATEMENT_EVIDENCE)
    for judged in workload.headline_verdicts:
        if len(judged.head.keys) == 1:
            needed[:, judged.head.keys[0]] = judged.held_comparison.needed_evidence
    rows = _CellRows(
        workload=workload,
        moments=moments(grid.values, grid.present),
        log_ratios=away,
        logs=usual_logs(grid),
        present=grid.positive,
        comparison=compared,
        held_comparison=compared.with_needed_evidence(needed),
        is_refused=_is_refused(grid, workload.baseline_row),
        turn_comparison=compare_turns(grid, workload.baseline_rows, away),
    )
    return (_create_cell(rows, place, (place[1],)) for place in np.ndindex(rows.is_refused.shape))


def _is_refused(grid: Grid, baseline: int) -> NDArray[np.bool_]:
    """Return where a ratio is undefined: a value of the stack, or of the baseline in its blocks, is not above 0."""
    bad = grid.present & ~grid.positive
    return np.asarray((bad | (bad[baseline] & grid.present)).any(axis=-1))


def _create_headline_cells(workload: _WorkloadSummary, judged: HeadlineVerdicts) -> Iterator[Cell]:
    """Yield a cell for each stack. Only a headline of a single key has values in a unit; others are only ratios."""
    grid, head = workload.grid, judged.head
    away = head.log_ratios(workload.baseline_rows)
    rows = _CellRows(
        workload=workload,
        moments=moments(grid.values, grid.present),
        log_ratios=away,
        logs=head.logs,
        present=head.usable,
        comparison=judged.held_comparison.with_needed_evidence(SINGLE_STATEMENT_EVIDENCE),
        held_comparison=judged.held_comparison,
        is_refused=np.asarray(_is_refused(grid, workload.baseline_row)[:, list(head.keys)].any(axis=1)),
        turn_comparison=compare_turns(grid, workload.baseline_rows, away, head),
        headline_verdicts=judged,
        half_widths=None if head.rule.overall else head.quantity_half_widths(),
    )
    return (_create_cell(rows, (stack,), head.keys) for stack in range(len(grid.stacks)))


def _create_cell(rows: _CellRows, index: tuple[int, ...], keys: tuple[int, ...]) -> Cell:
    """Return the cell of a row; `keys` are the keys of the grid in that row."""
    workload, stack = rows.workload, index[0]
    is_baseline = workload.reference is not None and stack == workload.baseline_row
    fields, compared = _description_fields(rows, stack, keys), dict[str, Any]()
    problem, ratio = _describe_problem(workload, stack, bool(rows.is_refused[index])), rows.comparison.ratio_at(index)
    if is_baseline and fields["trials"] and not problem:
        compared = {"verdict": "baseline", "n": ratio.n if ratio else 0, "ratio": 1.0}
    elif is_baseline and fields["trials"]:
        compared = {"verdict": "baseline", "notes": (*fields["notes"], problem)}
    elif problem:
        compared = {"verdict": "no value", "notes": (*fields["notes"], problem)}
    elif ratio is None:
        baseline = workload.grid.stacks[workload.baseline_row]
        text = f"no block has this value of both {fields['stack']} and {baseline}"
        compared = {"verdict": "too few blocks", "notes": (*fields["notes"], text)}
    else:
        compared = _comparison_fields(rows, index, fields, ratio)
    usual = _usual_value_fields(rows, index, compared["ratio"]) if "ratio" in compared and len(keys) == 1 else {}
    return Cell(**fields | compared | usual)


def _description_fields(rows: _CellRows, stack: int, keys: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of a cell that identify it, and describe its values and trials."""
    workload, grid, outcomes = rows.workload, rows.workload.grid, rows.workload.outcomes[stack]
    rule = rows.headline_verdicts.head.rule if rows.headline_verdicts else None
    metric = grid.find_metric(grid.keys[keys[0]].metric) if keys else None
    rejected = int(grid.rejected_counts[stack, keys[0]]) if keys else 0
    what = "value that is" if rejected == 1 else "values that are"
    cautions = outcomes.cautions
    if workload.reference is not None and stack != workload.baseline_row:
        cautions += workload.outcomes[workload.baseline_row].cautions
    by_cpu_time = bool(keys) and bool(grid.by_cpu_time[stack, list(keys)].all())
    fields: dict[str, Any] = {
        "by_cpu_time": by_cpu_time,
        "workload": workload.record.name,
        "metric": ", ".join(rule.metrics) if rule else metric.name if metric else "",
        "point": None if rule else grid.keys[keys[0]].point,
        "stack": grid.stacks[stack],
        "unit": metric.unit if metric and len(keys) == 1 else "",
        "better": metric.better if metric else rule.better if rule else "higher",
        "headline": rule.name if rule else "",
        "trials": int((grid.present[stack, list(keys)].all(axis=0) & bool(keys)).sum()),
        "notes": (f"left out: {rejected} {what} no finite number, or in another unit than the metric's",)
        * bool(rejected)
        + (_BY_CPU_TIME,) * by_cpu_time,
        "cautions": cautions if outcomes.ok else (),
        "failures": outcomes.failures,
        "skipped": outcomes.skipped,
        "turns": int(grid.has_turn[stack, keys[0]].sum()) if keys and grid.has_turn.shape[-1] > 1 else 0,
    }
    description = describe_row(rows.moments, (stack, *keys)) if len(keys) == 1 else None
    names = ("mean", "sd", "relative_sd", "minimum", "maximum")
    return fields | ({name: getattr(description, name) for name in names} if description else {})


def _describe_problem(workload: _WorkloadSummary, stack: int, refused: bool) -> str:
    """Return why a stack cannot be compared, as text; empty if it can."""
    outcomes = workload.outcomes[stack]
    if not outcomes.ok:
        count = len(outcomes.failures)
        failed = "its only trial failed" if count == 1 else f"all {count} trials failed"
        return outcomes.skipped or (failed if count else "no trial was run")
    if workload.reference is None:
        return "the baseline is not part of this run"
    if refused:
        return "a value is zero or negative, so a ratio has no meaning"
    return ""


def _comparison_fields(
    rows: _CellRows, index: tuple[int, ...], fields: Mapping[str, Any], ratio: Ratio
) -> dict[str, Any]:
    """Return the fields of a cell with a ratio.

    The verdict of a headline is that of the interval that holds together with those of all other headlines (e-BH). A
    metric that is a headline by itself has the same interval in its own table.
    """
    held = rows.held_comparison.ratio_at(index) if ratio.low is not None else None
    is_withdrawn = held is not None and held.low is None
    compared = ratio_fields(held or ratio, fields["better"]) | ({"verdict": "undecided"} if is_withdrawn else {})
    notes = [*fields["notes"], *_describe_row(rows, index, ratio)]
    if is_withdrawn:
        notes.append("no interval together with so many others: more blocks are needed")
    cautions = [*_find_cautions(rows, index, ratio)] if ratio.low is not None else []
    if rows.turn_comparison:
        compared |= rows.turn_comparison.cell_fields(index)
        cautions += rows.turn_comparison.cautions(index)
    if held and not is_withdrawn and rows.headline_verdicts and rows.headline_verdicts.is_unconfirmed[index]:
        cautions.append(_UNCONFIRMED)
    counts = (CautionCount(each.kind, (each.text,), fields["stack"], ratio.n, ratio.n) for each in cautions)
    return {
        **compared,
        "ratios": tuple(float(each) for each in np.exp(rows.log_ratios.logs[index][rows.log_ratios.both[index]])),
        "notes": tuple(notes),
        "cautions": (*fields["cautions"], *counts),
        "coarse": _COARSE in cautions,
    }


def _describe_row(rows: _CellRows, index: tuple[int, ...], ratio: Ratio) -> Iterator[str]:
    """Yield notes on a missing interval, an interval without a width, and the shape of turns and blocks."""
    if ratio.low is None:
        have = "one block has" if ratio.n == 1 else f"{ratio.n} blocks have"
        yield f"{have} no interval: {min_value_count()} are needed"
    if ratio.zero_width:
        yield f"all {ratio.n} ratios are equal" + (", so the interval has no width" if ratio.low else "")
    if rows.turn_comparison:
        yield from rows.turn_comparison.notes(index)
    if rows.headline_verdicts:
        yield from rows.shapes.describe(index, [block + 1 for block in rows.workload.grid.blocks])


def _find_cautions(rows: _CellRows, index: tuple[int, ...], ratio: Ratio) -> Iterator[Caution]:
    """Yield the cautions about an interval: autocorrelated blocks, a failed A/A check, quantized values."""
    if ratio.widening > 1:
        whose = "all stacks together: each block" if ratio.in_all_stacks else "each block"
        text = f"{whose} resembles the one before it: the interval is widened, and may still be too narrow"
        yield Caution("correlated-blocks", text)
    if ratio.offset:
        share = 100 * (exp_bounded(ratio.offset) - 1)
        text = f"the baseline differs from itself by {share:.2g} % (A/A): the interval is wider by as much"
        yield Caution("unlike-itself", text)
    if rows.is_quantized[index]:
        yield _COARSE


def _usual_value_fields(rows: _CellRows, index: tuple[int, ...], ratio: float) -> dict[str, float | None]:
    """Return the fields with the usual value, its standard deviation, and the quantity's interval if it has one.

    The usual value is the geometric mean of the baseline's usual turns times the ratio: a stack's mean would depend on
    the blocks that the stack happens to have. Empty without a value of the baseline.
    """
    base = (rows.workload.baseline_row, *index[1:])
    of_baseline, of_stack = rows.logs[base][rows.log_ratios.both[base]], rows.logs[index][rows.present[index]]
    if not of_baseline.size:
        return {}
    usual = exp_bounded(float(of_baseline.mean())) * ratio
    fields = {"usual": usual, "usual_sd": usual * float(of_stack.std(ddof=1)) if of_stack.size > 1 else None}
    if rows.half_widths is None or not np.isfinite(rows.half_widths[index]):
        return fields
    half = float(rows.half_widths[index])
    return fields | {"usual_low": usual * exp_bounded(-half), "usual_high": usual * exp_bounded(half)}
