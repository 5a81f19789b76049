"""Change of a stack's ratio to the baseline from one run to another.

Blocks of different runs are no pairs, as they were not measured close in time. So each run is first compared within
itself, stack with baseline, block by block, which cancels the state of the machine on that day. The means of the log
ratios of the two runs are then compared as independent samples by the two-sample Bayes factor of Gönen, Johnson, Lu and
Westfall ("The Bayesian two-sample t test", The American Statistician 59 (2005), 252-257), with a normal prior on the
change that is as wide as the blocks' standard deviation.

That test assumes equal variances. Two days need not be equally noisy, and with unequal numbers of blocks the test can
then err more often than not. So the standard error and the degrees of freedom are those for unequal variances (Welch,
"The generalization of 'Student's' problem when several different population variances are involved", Biometrika 34
(1947), 28-35; Satterthwaite, Biometrics Bulletin 2 (1946), 110-114). No theorem covers repeated looks at this
combination, but simulations show that the error rate holds from five blocks in each run on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import SINGLE_STATEMENT_EVIDENCE, evidence_needed_together, min_value_count
from tare.statistics.cells import DECIDING, Cell, Verdict
from tare.statistics.dependence import explaining_correlation
from tare.statistics.headlines import Headline
from tare.statistics.ratios import ROUNDING, Ratio, classify_side, compare, exp_bounded, ratio_fields
from tare.statistics.summary import Summary

T = TypeVar("T")
BaselineLogs = Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]  # before and after, by headline
_MIN_BLOCKS = min_value_count()  # of each run: fewer blocks have no interval


@dataclass(frozen=True)
class LogRatioSample:
    """Summary of a run's log ratios; `deviation` is already widened (`widened`) if blocks are autocorrelated."""

    mean: float
    deviation: float
    count: int
    widened: bool = False


@dataclass(frozen=True)
class RatioChange:
    """Headline of a stack in two runs: both cells, and in `cell` the ratio of after to before with its verdict.

    `cell.n` is the smaller of the two numbers of blocks.
    """

    cell: Cell
    before: Cell
    after: Cell


def compare_headlines(before: Summary, after: Summary, margin: float) -> tuple[RatioChange, ...]:
    """Compare the headlines of all stacks but the baseline that both runs have; the verdicts hold together."""
    references, names = {before.baseline, before.control, after.control}, {rule.name for rule in after.rules}
    pairs = [
        (cell, after.headline(cell.headline, cell.stack))
        for cell in before.headlines
        if cell.headline in names and cell.stack in after.stacks and cell.stack not in references
    ]
    return _decide_jointly(lambda pair, needed: compare_cells(*pair, margin, needed), pairs)


def _decide_jointly(compare_pair: Callable[[T, float], RatioChange], pairs: Sequence[T]) -> tuple[RatioChange, ...]:
    """Compare each pair with the evidence that makes all verdicts hold together (`evidence_needed_together`)."""
    # Compare twice: how much evidence each statement needs depends on the evidence of all of them.
    first = [compare_pair(pair, SINGLE_STATEMENT_EVIDENCE) for pair in pairs]
    evidence = np.array([change.cell.evidence for change in first if not change.cell.skipped])
    needed = iter(evidence_needed_together(evidence, np.zeros(evidence.shape, dtype=bool)).tolist())
    return tuple(
        change if change.cell.skipped else compare_pair(pair, next(needed))
        for change, pair in zip(first, pairs, strict=True)
    )


def compare_cells(
    before: Cell, after: Cell, margin: float, required_evidence: float = SINGLE_STATEMENT_EVIDENCE
) -> RatioChange:
    """Compare a stack's ratios in two runs. Ratios between 1 / (1 + margin) and 1 + margin count as equivalent.

    A verdict needs `required_evidence`, a logarithm. The verdict is "no value" if one of the cells has no ratios.
    """
    cells = {"before": before, "after": after}
    notes = tuple(f"{when}: {_missing_reason(cell)}" for when, cell in cells.items() if not cell.ratios)
    if notes:
        if len(notes) == 2 and _missing_reason(before) == _missing_reason(after):
            notes = (f"before and after: {_missing_reason(after)}",)
        without = after if not after.ratios else before
        why = {"trials": without.trials, "failures": without.failures, "skipped": without.skipped}
        return RatioChange(make_cell_like(after, "no value", notes=notes, **why), before, after)
    samples = (
        summarize_logs(np.log(before.ratios), before.widening),
        summarize_logs(np.log(after.ratios), after.widening),
    )
    return _compare_samples_of_cells(before, after, samples, margin, required_evidence)


def compare_baselines(before: Summary, after: Summary, logs: BaselineLogs, margin: float) -> tuple[RatioChange, ...]:
    """Compare the values of the baseline itself in two runs, headline by headline; the verdicts hold together.

    Nothing cancels the state of the machine: a change may be of the program, of the machine, or of the day.
    """
    samples = [
        (
            before.headline(name, before.baseline),
            after.headline(name, after.baseline),
            (summarize_logs(earlier), summarize_logs(later)),
        )
        for name, (earlier, later) in logs.items()
    ]
    return _decide_jointly(lambda sample, needed: _compare_samples_of_cells(*sample, margin, needed), samples)


def baseline_logs(before: Summary, after: Summary) -> BaselineLogs:
    """Return the logarithms of the baseline's values in both runs, by headlines of which both have values."""
    heads = {head.rule.name: head for head in after.headline_data}
    found = {}
    for old in before.headline_data:
        new = heads.get(old.rule.name)
        compared = any(cell.headline == old.rule.name for cell in before.headlines)
        if new is not None and compared and before.baseline in old.grid.stacks:
            logs = stack_logs(old, before.baseline), stack_logs(new, after.baseline)
            if logs[0].size and logs[1].size:
                found[old.rule.name] = logs
    return found


def make_cell_like(template: Cell, verdict: Verdict, **fields: Any) -> Cell:
    """Return a new cell with the headline and stack of `template`, but with other values (`fields`)."""
    return Cell(
        template.workload,
        template.metric,
        template.point,
        template.stack,
        "",
        template.better,
        verdict,
        headline=template.headline,
        **fields,
    )


def _compare_samples_of_cells(
    before: Cell, after: Cell, samples: tuple[LogRatioSample, LogRatioSample], margin: float, required_evidence: float
) -> RatioChange:
    """Compare two cells that have values; return the ratio of after to before with its verdict."""
    ratio = compare_samples(*samples, margin, required_evidence)
    coarse, cautions = before.coarse or after.coarse, (*after.cautions, *before.cautions)
    known = ratio_fields(ratio, after.better) | {"notes": _notes(ratio, samples)}
    return RatioChange(make_cell_like(after, coarse=coarse, cautions=cautions, **known), before, after)


def compare_samples(
    before: LogRatioSample, after: LogRatioSample, margin: float, required_evidence: float = SINGLE_STATEMENT_EVIDENCE
) -> Ratio:
    """Compare the means of two independent samples of logarithms; return the ratio of after to before.

    The interval holds all ratios with less evidence against them than `required_evidence`.
    """
    difference, limit = after.mean - before.mean, float(np.log1p(margin))
    mean = difference if abs(difference) >= ROUNDING else 0.0
    half = half_width(before, after, required_evidence)
    known, side = math.isfinite(half), classify_side(mean, half, limit)
    nearer = min(evidence(mean - limit, before, after), evidence(mean + limit, before, after))
    room = limit - abs(mean) if abs(mean) + half < limit else abs(mean)
    return Ratio(
        ratio=exp_bounded(mean),
        low=exp_bounded(mean - half) if known else None,
        high=exp_bounded(mean + half) if known else None,
        n=min(before.count, after.count),
        side=side,
        evidence=max(evidence(mean, before, after), nearer if abs(mean) < limit else -math.inf),
        zero_width=max(before.deviation, after.deviation) == 0 and min(before.count, after.count) > 1,
        correlation=0.0,
        tolerated_autocorrelation=float(explaining_correlation(np.array(room), np.array(half)))
        if side in DECIDING
        else None,
    )


def evidence(distance: float, before: LogRatioSample, after: LogRatioSample) -> float:
    """Return the logarithm of the evidence against a difference of means at `distance` from the observed one.

    0 if one of the samples is too small for an interval.
    """
    if min(before.count, after.count) < _MIN_BLOCKS:
        return 0.0
    squared_error, freedom, known = _standard_error(before, after)
    square = distance**2 / freedom
    ratio = (squared_error + square) / (squared_error + known * square) if squared_error + square > 0 else 1.0
    return float(np.log(known) / 2 + (freedom + 1) / 2 * np.log(ratio))


def half_width(
    before: LogRatioSample, after: LogRatioSample, required_evidence: float = SINGLE_STATEMENT_EVIDENCE
) -> float:
    """Return half the width of the interval of the difference of means: `evidence` solved for its distance.

    Infinite if a sample is too small.
    """
    if min(before.count, after.count) < _MIN_BLOCKS:
        return float("inf")
    squared_error, freedom, known = _standard_error(before, after)
    growth = float(np.exp((2 * required_evidence - np.log(known)) / (freedom + 1)))
    room = 1 - known * growth
    return float(np.sqrt(squared_error * freedom * (growth - 1) / room)) if room > 0 else float("inf")


def _standard_error(before: LogRatioSample, after: LogRatioSample) -> tuple[float, float, float]:
    """Return the squared standard error of the difference, its degrees of freedom, and its share in the prior."""
    parts = [(each.deviation**2 / each.count, each.count - 1) for each in (before, after)]
    squared_error = sum(part for part, _ in parts)
    squares = sum(part**2 / freedom for part, freedom in parts)
    freedom = squared_error**2 / squares if squares > 0 else float(before.count + after.count - 2)
    together_count = before.count * after.count / (before.count + after.count)
    return squared_error, freedom, 1 / (1 + together_count)


def summarize_logs(logs: NDArray[np.float64], widening: float | None = None) -> LogRatioSample:
    """Summarize logarithms; estimate the `widening` for autocorrelation from them if it is None."""
    comparison = compare(logs, np.ones(logs.shape, dtype=bool))
    factor = float(comparison.widening) if widening is None else widening
    return LogRatioSample(
        float(comparison.mean), float(comparison.deviation) * factor, int(comparison.count), factor > 1
    )


def stack_logs(head: Headline, stack: str) -> NDArray[np.float64]:
    """Return the logarithms of a stack's values, one per block with a value."""
    row = head.grid.stacks.index(stack)
    return np.asarray(head.logs[row][head.usable[row]])


def _missing_reason(cell: Cell) -> str:
    return cell.skipped or "; ".join(cell.notes) or "no value"


def _notes(ratio: Ratio, samples: tuple[LogRatioSample, LogRatioSample]) -> tuple[str, ...]:
    counts = f"{samples[0].count} and {samples[1].count}"
    notes: list[str] = []
    if ratio.low is None and ratio.n < _MIN_BLOCKS:
        notes.append(f"{counts} blocks have no interval: {_MIN_BLOCKS} are needed in each run")
    elif ratio.low is None:
        errors = [sample.deviation**2 / sample.count for sample in samples]
        noisier = "before" if errors[0] >= errors[1] else "after"
        few = f"{counts} blocks are too few for an interval"
        notes.append(f"{few}: those of the run {noisier} differ far more from each other, and need to be more")
    if ratio.zero_width:
        notes.append("all ratios of a run are equal" + (", so the interval has no width" if ratio.low else ""))
    for when, sample in zip(("before", "after"), samples, strict=True):
        if sample.widened:
            notes.append(f"{when}: each block resembles the one before: the interval is widened")
    return tuple(notes)
