"""From a run to everything that can be said of its values. Pure, and quick enough to be redone after every block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tare.model.journal import Run, RunRecord, WorkloadRecord
from tare.model.trial import Caution, Trial
from tare.statistics.anytime import ALONE, least_count
from tare.statistics.cells import CautionCount, Cell, with_caution
from tare.statistics.descriptive import Moments, are_coarse, description, moments
from tare.statistics.grid import Grid
from tare.statistics.headlines import Differences, differences, usual_levels
from tare.statistics.looks import Judged, Looks
from tare.statistics.outcomes import Outcome, latest, outcome, with_file_systems_compared
from tare.statistics.ranking import rank
from tare.statistics.ratios import Comparison, Ratio, Reference, backwards, compare_together, ratio_fields
from tare.statistics.shapes import Shapes, shapes
from tare.statistics.stalls import Uneven, unevenness
from tare.statistics.summary import Summary

_COARSE = Caution(
    "coarse-values",
    "values come in steps that are larger than their noise: the interval is too narrow, and no decision is firm",
)
_UNCONFIRMED = Caution(
    "unconfirmed",
    "blocks that only other stacks had since show more noise: another block of this one may withdraw the verdict",
)


@dataclass(frozen=True)
class _Workload:
    """One workload on its way to cells."""

    record: WorkloadRecord
    outcomes: tuple[Outcome, ...]
    judged: tuple[Judged, ...]
    reference: Reference | None
    looks: Looks

    @property
    def grid(self) -> Grid:
        """The values of the workload."""
        return self.looks.grid(self.record.name)

    @property
    def row(self) -> int:
        """The row of the baseline; any row where the run has no baseline, as nothing is compared then."""
        return self.compared_with.row

    @property
    def compared_with(self) -> Reference:
        """The rows of the baseline and its control, or that of any stack."""
        return self.reference or Reference(0)


def summarize(run: Run) -> Summary:
    """Compare every stack with the baseline, inside blocks, for every workload, metric and point, and for headlines."""
    trials = with_file_systems_compared(latest(run.trials), run.record.baseline)
    stacks = tuple(dict.fromkeys([*run.record.stacks, *(trial.stack for trial in trials)]))
    reference = _reference(run.record, stacks)
    known = records(run) if stacks else []  # without a stack there is nothing to compare
    own: dict[str, list[Trial]] = {record.name: [] for record in known}
    looks = Looks(known, stacks, reference or Reference(0), run.record.margin)
    for trial in trials:
        own[trial.workload].append(trial)
        looks.learn(trial)
    judged = looks.judged()
    workloads = [
        _Workload(record, _outcomes(stacks, own[record.name]), judged[record.name], reference, looks)
        for record in known
    ]
    measured = tuple(each.head for workload in workloads for each in workload.judged)
    counting = [head for head in measured if head.keys and head.rule.overall]
    cells = [cell for workload in workloads for cell in _cells(workload, run.record.margin)]
    heads = [cell for workload in workloads for judged in workload.judged for cell in _headlines(workload, judged)]
    return Summary(
        suite=run.record.suite,
        baseline=run.record.baseline,
        control=run.record.control,
        margin=run.record.margin,
        stacks=stacks,
        workloads=tuple(record.name for record in known),
        cells=_with_bare_metal_caution(cells, run.record),
        headlines=_with_bare_metal_caution(heads, run.record),
        overall=rank(stacks, counting, reference, run.record.margin),
        measured=measured,
        own=tuple(
            (stack, what, text)
            for stack, own in run.record.own.items()
            if stack in stacks and stack != run.record.control
            for what, text in own.items()
        ),
        years=tuple(run.record.years.items()),
        outcomes=tuple(workload.outcomes for workload in workloads),
    )


def _reference(record: RunRecord, stacks: tuple[str, ...]) -> Reference | None:
    if record.baseline not in stacks:
        return None
    control = stacks.index(record.control) if record.control in stacks else None
    return Reference(stacks.index(record.baseline), control)


def records(run: Run) -> list[WorkloadRecord]:
    """Return the run's workloads, also those that only its trials know."""
    known = {record.name: record for record in run.record.workloads}
    for name in run.by_workload:
        known.setdefault(name, WorkloadRecord(name, name, name, (), None))
    return list(known.values())


def _with_bare_metal_caution(cells: Sequence[Cell], record: RunRecord) -> tuple[Cell, ...]:
    """Add a caution to what is better than bare metal by more than the margin: something else than the stack differs.

    Only where the run says that its baseline is bare metal, and that the stack is not, and both run the same program.
    """
    if not _is_bare_metal(record, record.baseline):
        return tuple(cells)
    text = "nothing that runs on bare metal can be faster than bare metal: look for what differs"
    caution = Caution("faster-than-bare-metal", text)
    return tuple(
        with_caution(cell, caution)
        if cell.beats(record.margin)
        and cell.stack in record.families
        and not _is_bare_metal(record, cell.stack)
        and record.own.get(cell.stack) == record.own.get(record.baseline)
        else cell
        for cell in cells
    )


def _is_bare_metal(record: RunRecord, stack: str) -> bool:
    return set(record.families.get(stack, ())) == {"bare metal"}


def _outcomes(stacks: tuple[str, ...], trials: Sequence[Trial]) -> tuple[Outcome, ...]:
    own: dict[str, list[Trial]] = {stack: [] for stack in stacks}
    for trial in trials:
        own[trial.stack].append(trial)
    return tuple(outcome(stack, of_stack) for stack, of_stack in own.items())


@dataclass(frozen=True)
class _Rows:
    """What cells are made of: all keys of a workload's grid, or a headline.

    The axes are stack and, for a grid, key; `away`, `logs` and `present` also have the block: the logarithms of the
    ratios and of usual turns. `compared` holds for each row by itself. `judged` and `halves`, half the widths of the
    quantities' own intervals, are of a headline.
    """

    workload: _Workload
    described: Moments
    away: Differences
    logs: NDArray[np.float64]
    present: NDArray[np.bool_]
    compared: Comparison
    refused: NDArray[np.bool_]
    uneven: Uneven | None
    judged: Judged | None = None
    halves: NDArray[np.float64] | None = None

    @cached_property
    def coarse(self) -> NDArray[np.bool_]:
        """Where the ratios, or the values of one side, come in steps that are larger than their noise."""
        away, row = self.away, self.workload.row
        of_baseline = are_coarse(np.broadcast_to(self.logs[row], self.logs.shape), away.both & away.both[row])
        return are_coarse(away.logs, away.both) | are_coarse(self.logs, away.both) | of_baseline

    @cached_property
    def shapes(self) -> Shapes:
        """What the ratios of each row look like."""
        return shapes(self.away.logs, self.away.both)


def _cells(workload: _Workload, margin: float) -> Iterator[Cell]:
    """Make the cells of all keys of a workload, with the arithmetic done once for the whole grid."""
    grid, away = workload.grid, differences(workload.grid, workload.compared_with)
    rows = _Rows(
        workload=workload,
        described=moments(grid.values, grid.present),
        away=away,
        logs=usual_levels(grid),
        present=grid.positive,
        compared=workload.looks.as_of_last_blocks(grid.workload, partial(_compare, workload, away, margin)),
        refused=_refused(grid, workload.row),
        uneven=unevenness(grid, workload.compared_with, away),
    )
    return (_cell(rows, place, (place[1],)) for place in np.ndindex(rows.refused.shape))


def _compare(workload: _Workload, away: Differences, margin: float, blocks: frozenset[int]) -> Comparison:
    """Compare the values of some blocks of a workload, each key by itself."""
    at = [index for index, block in enumerate(workload.grid.blocks) if block in blocks]
    return compare_together(away.logs[..., at], away.both[..., at], margin, workload.compared_with)


def _refused(grid: Grid, baseline: int) -> NDArray[np.bool_]:
    """Return where a ratio has no meaning: a value of a stack, or the baseline's in its blocks, is not above 0."""
    bad = grid.present & ~grid.positive
    return np.asarray((bad | (bad[baseline] & grid.present)).any(axis=-1))


def _headlines(workload: _Workload, judged: Judged) -> Iterator[Cell]:
    """Make one cell for each stack. A headline of a single key is described in its unit, any other is only a ratio."""
    grid, head = workload.grid, judged.head
    away = head.differences(workload.compared_with)
    rows = _Rows(
        workload=workload,
        described=moments(grid.values, grid.present),
        away=away,
        logs=head.logs,
        present=head.usable,
        compared=judged.held.needing(ALONE),
        refused=np.asarray(_refused(grid, workload.row)[:, list(head.keys)].any(axis=1)),
        uneven=unevenness(grid, workload.compared_with, away, head),
        judged=judged,
        halves=None if head.rule.overall else head.quantity_half(),
    )
    return (_cell(rows, (stack,), head.keys) for stack in range(len(grid.stacks)))


def _cell(rows: _Rows, place: tuple[int, ...], keys: tuple[int, ...]) -> Cell:
    """Make the cell of a row, which is of these keys of the grid."""
    workload, stack = rows.workload, place[0]
    is_baseline = workload.reference is not None and stack == workload.row
    fields, found = _described(rows, stack, keys), dict[str, Any]()
    problem, ratio = _problem(workload, stack, bool(rows.refused[place])), rows.compared.at(place)
    if is_baseline and fields["trials"] and not problem:
        found = {"verdict": "baseline", "n": ratio.n if ratio else 0, "ratio": 1.0}
    elif is_baseline and fields["trials"]:
        found = {"verdict": "baseline", "notes": (*fields["notes"], problem)}
    elif problem:
        found = {"verdict": "no value", "notes": (*fields["notes"], problem)}
    elif ratio is None:
        baseline = workload.grid.stacks[workload.row]
        text = f"no block has this value of both {fields['stack']} and {baseline}"
        found = {"verdict": "too few blocks", "notes": (*fields["notes"], text)}
    else:
        found = _compared(rows, place, fields, ratio)
    usual = _usual(rows, place, found["ratio"]) if "ratio" in found and len(keys) == 1 else {}
    return Cell(**fields | found | usual)


def _described(rows: _Rows, stack: int, keys: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of a cell that say what it is of, and describe its values."""
    workload, grid, own = rows.workload, rows.workload.grid, rows.workload.outcomes[stack]
    rule = rows.judged.head.rule if rows.judged else None
    metric = grid.metric(grid.keys[keys[0]].metric) if keys else None
    absurd = int(grid.absurd[stack, keys[0]]) if keys else 0
    what = "value that is" if absurd == 1 else "values that are"
    cautions = own.cautions
    if workload.reference is not None and stack != workload.row:
        cautions += workload.outcomes[workload.row].cautions
    fields: dict[str, Any] = {
        "workload": workload.record.name,
        "metric": ", ".join(rule.metrics) if rule else metric.name if metric else "",
        "point": None if rule else grid.keys[keys[0]].point,
        "stack": grid.stacks[stack],
        "unit": metric.unit if metric and len(keys) == 1 else "",
        "better": metric.better if metric else rule.better if rule else "higher",
        "headline": rule.name if rule else "",
        "trials": int((grid.present[stack, list(keys)].all(axis=0) & bool(keys)).sum()),
        "notes": (f"left out: {absurd} {what} no finite number, or in another unit than the metric's",) * bool(absurd),
        "cautions": cautions if own.ok else (),
        "failures": own.failures,
        "skipped": own.skipped,
        "turns": int(grid.taken[stack, keys[0]].sum()) if keys and grid.taken.shape[-1] > 1 else 0,
    }
    seen = description(rows.described, (stack, *keys)) if len(keys) == 1 else None
    names = ("mean", "sd", "relative_sd", "minimum", "maximum")
    return fields | ({name: getattr(seen, name) for name in names} if seen else {})


def _problem(workload: _Workload, stack: int, refused: bool) -> str:
    """Describe why a stack has nothing to compare; empty when it should have."""
    own = workload.outcomes[stack]
    if not own.ok:
        failed = "its only trial failed" if len(own.failures) == 1 else f"all {len(own.failures)} trials failed"
        return own.skipped or (failed if own.failures else "no trial was run")
    if workload.reference is None:
        return "the baseline is not part of this run"
    if refused:
        return "a value is zero or negative, so a ratio has no meaning"
    return ""


def _compared(rows: _Rows, place: tuple[int, ...], fields: Mapping[str, Any], ratio: Ratio) -> dict[str, Any]:
    """Return the fields of a cell with a ratio.

    Where a headline has an interval, its verdict is of that which holds together with all others.
    """
    held = rows.judged.held.at(place) if rows.judged and ratio.low is not None else None
    is_withdrawn = held is not None and held.low is None
    found = ratio_fields(held or ratio, fields["better"]) | ({"verdict": "undecided"} if is_withdrawn else {})
    notes = [*fields["notes"], *_notes(rows, place, ratio)]
    if is_withdrawn:
        notes.append("no interval beside so many others: it needs more blocks")
    doubts = [*_doubts(rows, place, ratio)] if ratio.low is not None else []
    if rows.uneven:
        found |= rows.uneven.of(place)
        doubts += rows.uneven.cautions(place)
    if held and not is_withdrawn and rows.judged and rows.judged.unconfirmed[place]:
        doubts.append(_UNCONFIRMED)
    counts = (CautionCount(each.kind, (each.text,), fields["stack"], ratio.n, ratio.n) for each in doubts)
    return {
        **found,
        "ratios": tuple(float(each) for each in np.exp(rows.away.logs[place][rows.away.both[place]])),
        "notes": tuple(notes),
        "cautions": (*fields["cautions"], *counts),
        "coarse": _COARSE in doubts,
    }


def _notes(rows: _Rows, place: tuple[int, ...], ratio: Ratio) -> Iterator[str]:
    """Yield why there is no interval or none with a width, and what the turns and blocks of a row look like."""
    if ratio.low is None:
        have = "one block has" if ratio.n == 1 else f"{ratio.n} blocks have"
        yield f"{have} no interval: {least_count()} are needed"
    if ratio.zero_width:
        yield f"all {ratio.n} ratios are equal" + (", so the interval has no width" if ratio.low else "")
    if rows.uneven:
        yield from rows.uneven.notes(place)
    if rows.judged:
        yield from rows.shapes.notes(place, [block + 1 for block in rows.workload.grid.blocks])


def _doubts(rows: _Rows, place: tuple[int, ...], ratio: Ratio) -> Iterator[Caution]:
    """Yield the cautions about an interval: dependent blocks, a baseline that differs from itself, coarse values."""
    if ratio.widening > 1:
        whose = "all stacks together: each block" if ratio.in_all_stacks else "each block"
        text = f"{whose} resembles the one before it: the interval is widened, and may still be too sure of itself"
        yield Caution("correlated-blocks", text)
    if ratio.offset:
        share = 100 * (backwards(ratio.offset) - 1)
        text = f"the baseline differs from itself by {share:.2g} % (A/A): the interval is wider by as much"
        yield Caution("unlike-itself", text)
    if rows.coarse[place]:
        yield _COARSE


def _usual(rows: _Rows, place: tuple[int, ...], ratio: float) -> dict[str, float | None]:
    """Return the usual value: the geometric mean of the baseline's usual turns, times the ratio; and its deviation.

    Also the interval of the quantity itself, if it has one, so wide on either side of its logarithm.
    """
    base = (rows.workload.row, *place[1:])
    of_baseline, own = rows.logs[base][rows.away.both[base]], rows.logs[place][rows.present[place]]
    if not of_baseline.size:
        return {}
    usual = backwards(float(of_baseline.mean())) * ratio
    found = {"usual": usual, "usual_sd": usual * float(own.std(ddof=1)) if own.size > 1 else None}
    if rows.halves is None or not np.isfinite(rows.halves[place]):
        return found
    half = float(rows.halves[place])
    return found | {"usual_low": usual * backwards(-half), "usual_high": usual * backwards(half)}
