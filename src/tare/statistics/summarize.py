"""From a run to everything that can be said of its values. Pure, and quick enough to be redone after every block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tare.model.journal import Run, RunRecord, WorkloadRecord
from tare.model.trial import Caution, Trial
from tare.statistics.anytime import ALONE, CONFIDENCE, least_count
from tare.statistics.cells import CautionCount, Cell, with_caution
from tare.statistics.dependence import find_effects
from tare.statistics.descriptive import Moments, are_coarse, description, moments
from tare.statistics.grid import Grid
from tare.statistics.headlines import Differences, Headline, differences, usual_levels
from tare.statistics.looks import Judged, Looks
from tare.statistics.outcomes import Outcome, latest, outcome, with_file_systems_compared
from tare.statistics.ranking import rank
from tare.statistics.ratios import Comparison, Ratio, Reference, backwards, compare_together, with_ratio
from tare.statistics.shapes import shapes
from tare.statistics.stalls import unevenness
from tare.statistics.summary import Summary


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
    def headlines(self) -> tuple[Headline, ...]:
        """The headlines of the workload."""
        return tuple(each.head for each in self.judged)

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
    compared = [head for workload in workloads for head in workload.headlines if head.keys]
    counting = [head for head in compared if head.rule.overall]
    cells = [cell for workload in workloads for cell in _cells(workload, run.record.margin)]
    heads = [cell for workload in workloads for judged in workload.judged for cell in _headlines(workload, judged)]
    return Summary(
        suite=run.record.suite,
        baseline=run.record.baseline,
        control=run.record.control,
        confidence=CONFIDENCE,
        margin=run.record.margin,
        stacks=stacks,
        workloads=tuple(workload.record.name for workload in workloads),
        cells=_with_bare_metal_caution(cells, run.record),
        headlines=_with_bare_metal_caution(heads, run.record),
        rules=tuple(head.rule for each in workloads for head in each.headlines),
        effects=tuple(
            find_effects(head.logs, head.usable, each.grid.places) for each in workloads for head in each.headlines
        ),
        overall=rank(stacks, counting, reference, run.record.margin),
        measured=tuple(head for each in workloads for head in each.headlines),
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


def _with_interval(cell: Cell, ratio: Ratio | None, is_confirmed: bool) -> Cell:
    """Replace the interval of a cell that has one by that which holds together with all others, and its verdict."""
    if ratio is None or cell.low is None:
        return cell
    changed = with_ratio(cell, ratio)
    if ratio.low is None:
        note = "no interval beside so many others: it needs more blocks"
        return replace(changed, verdict="undecided", notes=(*cell.notes, note))
    if is_confirmed:
        return changed
    text = "blocks that only other stacks had since show more noise: another block of this one may withdraw the verdict"
    return with_caution(changed, Caution("unconfirmed", text))


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


def _cells(workload: _Workload, margin: float) -> list[Cell]:
    """Make the cells of all keys of a workload, with the arithmetic done once for the whole grid."""
    grid = workload.grid
    found = moments(grid.values, grid.present)
    logs = usual_levels(grid)
    away = differences(grid, workload.compared_with)
    ratios = workload.looks.as_of_last_blocks(grid.workload, partial(_compare, workload, away, margin))
    refused = _refused(grid, workload.row)
    coarse = _are_coarse(away, logs, workload.row)
    uneven = unevenness(grid, workload.compared_with, away)
    cells = []
    for place in np.ndindex(refused.shape):
        blank = _blank(workload, place[0], place[1])
        cell = _with_description(blank, found, place)
        problem = _problem(workload, place[0], bool(refused[place]))
        cell = _with_comparison(cell, workload, ratios.at(place), problem)
        cell = _with_coarse_caution(cell) if coarse[place] else cell
        cell = uneven.added_to(cell, place) if uneven else cell
        of_baseline = _Levels(logs[workload.row, place[1]], away.both[workload.row, place[1]])
        cell = _with_usual_value(cell, of_baseline, _Levels(logs[place], grid.positive[place]))
        cells.append(replace(cell, ratios=_ratios(cell, away.logs[place], away.both[place])))
    return cells


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
    grid, head, held = workload.grid, judged.head, judged.held
    away, alone = head.differences(workload.compared_with), replace(held, needed=ALONE)
    seen = moments(grid.values, grid.present)
    coarse = _are_coarse(away, head.logs, workload.row)
    looks, blocks = shapes(away.logs, away.both), tuple(block + 1 for block in grid.blocks)
    keys, uneven = list(head.keys), unevenness(grid, workload.compared_with, away, head)
    refused = np.asarray(_refused(grid, workload.row)[:, keys].any(axis=1))
    halves = None if head.rule.overall else head.quantity_half()
    for stack in range(len(grid.stacks)):
        cell = replace(
            _blank(workload, stack, head.keys[0] if head.keys else None),
            metric=", ".join(head.rule.metrics),
            point=None,
            better=head.rule.better,
            headline=head.rule.name,
        )
        cell = _with_description(cell, seen, (stack, head.keys[0])) if len(head.keys) == 1 else replace(cell, unit="")
        trials = int((grid.present[stack, keys].all(axis=0) & bool(keys)).sum())
        problem = _problem(workload, stack, bool(refused[stack]))
        cell = _with_comparison(replace(cell, trials=trials), workload, alone.at((stack,)), problem)
        cell = _with_coarse_caution(cell) if coarse[stack] else cell
        cell = uneven.added_to(cell, (stack,)) if uneven else cell
        if len(head.keys) == 1:
            of_baseline = _Levels(head.logs[workload.row], away.both[workload.row])
            cell = _with_usual_value(cell, of_baseline, _Levels(head.logs[stack], head.usable[stack]))
            cell = cell if halves is None else _with_own_interval(cell, float(halves[stack]))
        if cell.n and cell.verdict != "baseline":
            cell = replace(cell, notes=(*cell.notes, *looks.notes((stack,), blocks)))
        cell = replace(cell, ratios=_ratios(cell, away.logs[stack], away.both[stack]))
        is_asked = cell.verdict != "baseline" and not cell.skipped
        yield _with_interval(cell, held.at((stack,)), not judged.unconfirmed[stack]) if is_asked else cell


def _are_coarse(away: Differences, logs: NDArray[np.float64], baseline: int) -> NDArray[np.bool_]:
    """Return where the ratios, or the values of one side, come in steps that are larger than their noise.

    `logs` are those of the values; their first axis are the stacks, of which one is the baseline.
    """
    of_baseline = are_coarse(np.broadcast_to(logs[baseline], logs.shape), away.both & away.both[baseline])
    return are_coarse(away.logs, away.both) | are_coarse(logs, away.both) | of_baseline


def _with_coarse_caution(cell: Cell) -> Cell:
    """Add a caution to an interval whose values hide their noise."""
    if cell.low is None or cell.verdict == "baseline":
        return cell
    text = "values come in steps that are larger than their noise: the interval is too narrow, and no decision is firm"
    return replace(with_caution(cell, Caution("coarse-values", text)), coarse=True)


def _blank(workload: _Workload, stack: int, key: int | None) -> Cell:
    grid, own = workload.grid, workload.outcomes[stack]
    metric = grid.metric(grid.keys[key].metric) if key is not None else None
    notes = []
    if key is not None and grid.absurd[stack, key]:
        count = int(grid.absurd[stack, key])
        what = "value that is" if count == 1 else "values that are"
        notes.append(f"left out: {count} {what} no finite number, or in another unit than the metric's")
    cautions = own.cautions
    if workload.reference is not None and stack != workload.row:
        cautions += workload.outcomes[workload.row].cautions
    turns = int(grid.taken[stack, key].sum()) if key is not None and grid.taken.shape[-1] > 1 else 0
    return Cell(
        workload=workload.record.name,
        metric=metric.name if metric else "",
        point=grid.keys[key].point if key is not None else None,
        stack=grid.stacks[stack],
        unit=metric.unit if metric else "",
        better=metric.better if metric else "higher",
        verdict="no value",
        notes=tuple(notes),
        cautions=cautions if own.ok else (),
        failures=own.failures,
        skipped=own.skipped,
        turns=turns,
    )


def _with_description(cell: Cell, moments_of: Moments, index: tuple[int, ...]) -> Cell:
    seen = description(moments_of, index)
    if seen is None:
        return cell
    return replace(
        cell,
        trials=seen.n,
        mean=seen.mean,
        sd=seen.sd,
        relative_sd=seen.relative_sd,
        minimum=seen.minimum,
        maximum=seen.maximum,
    )


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


def _with_comparison(cell: Cell, workload: _Workload, ratio: Ratio | None, problem: str) -> Cell:
    """Add the ratio and the verdict, or the reason why there is none."""
    baseline = workload.grid.stacks[workload.row] if workload.reference is not None else ""
    if cell.stack == baseline and cell.trials and not problem:
        return replace(cell, verdict="baseline", n=ratio.n if ratio else 0, ratio=1.0)
    if cell.stack == baseline and cell.trials:
        return replace(cell, verdict="baseline", notes=(*cell.notes, problem))
    if problem:
        return replace(cell, verdict="no value", notes=(*cell.notes, problem))
    if ratio is None:
        text = f"no block has this value of both {cell.stack} and {baseline}"
        return replace(cell, verdict="too few blocks", notes=(*cell.notes, text))
    notes = cell.notes
    if ratio.low is None:
        have = "one block has" if ratio.n == 1 else f"{ratio.n} blocks have"
        notes += (f"{have} no interval: {least_count()} are needed",)
    if ratio.zero_width:
        notes += (f"all {ratio.n} ratios are equal" + (", so the interval has no width" if ratio.low else ""),)
    return replace(with_ratio(cell, ratio), cautions=(*cell.cautions, *_doubts(cell.stack, ratio)), notes=notes)


@dataclass(frozen=True)
class _Levels:
    """The logarithms of a usual turn of a stack in each block, and which blocks have one."""

    logs: NDArray[np.float64]
    present: NDArray[np.bool_]


def _with_usual_value(cell: Cell, of_baseline: _Levels, own: _Levels) -> Cell:
    """Add the usual value: the geometric mean of the baseline's usual turns, times the ratio; and its deviation."""
    if cell.ratio is None or not of_baseline.present.any():
        return cell
    usual = backwards(float(of_baseline.logs[of_baseline.present].mean())) * cell.ratio
    each = own.logs[own.present]
    return replace(cell, usual=usual, usual_sd=usual * float(each.std(ddof=1)) if each.size > 1 else None)


def _with_own_interval(cell: Cell, half: float) -> Cell:
    """Add the interval of the quantity itself, so wide on either side of its logarithm."""
    if cell.usual is None or not np.isfinite(half):
        return cell
    return replace(cell, usual_low=cell.usual * backwards(-half), usual_high=cell.usual * backwards(half))


def _doubts(stack: str, ratio: Ratio) -> tuple[CautionCount, ...]:
    """Return the cautions about blocks that depend on each other, and about a baseline that differs from itself."""
    cautions: list[Caution] = []
    if ratio.low is None:
        return ()
    if ratio.widening > 1:
        whose = "all stacks together: each block" if ratio.in_all_stacks else "each block"
        text = f"{whose} resembles the one before it: the interval is widened, and may still be too sure of itself"
        cautions.append(Caution("correlated-blocks", text))
    if ratio.offset:
        share = 100 * (backwards(ratio.offset) - 1)
        text = f"the baseline differs from itself by {share:.2g} % (A/A): the interval is wider by as much"
        cautions.append(Caution("unlike-itself", text))
    return tuple(CautionCount(each.kind, (each.text,), stack, ratio.n, ratio.n) for each in cautions)


def _ratios(cell: Cell, differences: NDArray[np.float64], both: NDArray[np.bool_]) -> tuple[float, ...]:
    if cell.ratio is None or cell.verdict == "baseline":
        return ()
    return tuple(float(ratio) for ratio in np.exp(differences[both]))
