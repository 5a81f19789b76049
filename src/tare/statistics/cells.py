"""Cells: the results of statistics for each workload, metric, point and stack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tare.model.trial import Better, Caution

Verdict = Literal["better", "worse", "equivalent", "undecided", "too few blocks", "baseline", "no value"]
Side = Literal["more", "less", "equivalent", "undecided", "too few blocks"]
DECIDED = ("better", "worse", "equivalent")
DECIDING = ("more", "less", "equivalent")
AUDITED_AUTOCORRELATION = 0.5  # of neighboring blocks: the largest for which research/audit.md has error rates


def verdict_of_side(side: Side, better: Better) -> Verdict:
    """Return the verdict for a side of the interval, by whether higher or lower values are better."""
    if side == "more" or side == "less":  # noqa: PLR1714 - so that the type is known
        return "better" if (side == "more") == (better == "higher") else "worse"
    return side


@dataclass(frozen=True)
class CautionCount:
    """Caution of one kind with its different texts, raised in `trials` of the `of` ok trials of a stack."""

    kind: str
    texts: tuple[str, ...]
    stack: str
    trials: int
    of: int


@dataclass(frozen=True)
class Spread:
    """Spread that determines the width of an interval, in logarithms (`tare.statistics.ratios.RatioComparison`).

    `deviation` is the standard deviation of a block's ratio, `borrowed` are its degrees of freedom in addition to
    n - 1, and `offset` is the difference in the A/A comparison.
    """

    deviation: float
    borrowed: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True)
class Failure:
    """Failed trial, with the reason and a hint; the hint is empty if none is known."""

    trial: str
    block: int
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class Cell:
    """Values of one stack and one metric at one point, or of a headline, compared with the baseline's.

    Numbers are None if they do not exist; `notes` then say why.

    - `headline`: the name of the cell's headline; empty for a cell of a metric.
    - `trials`: the number of values; `mean`, `sd` and extremes describe them in `unit`.
    - `n`: the number of compared blocks; `ratios` are those of stack over baseline in each of them.
    - `ratio`: the geometric mean of `ratios`; `low` and `high` are its interval, which holds at every look. With
      rounds, it is the ratio of a usual turn, and `mean_ratio` that of the means over all turns.
    - `evidence`: the logarithm of the e-value for the verdict; `spread` determines the width of the interval.
    - `correlation`: the lag-1 autocorrelation of the log ratios; `widening` is the factor for it in the width.
    - `tolerated_autocorrelation`: the autocorrelation up to which the interval would still decide.
    - `usual`: the geometric mean of the baseline's usual turns, times `ratio`. It is an estimate for the baseline's
      blocks, so that stacks with different blocks can be compared. `usual_sd` is the standard deviation of the stack's
      usual turns from block to block. `usual_low` and `usual_high` are a single 95 % interval, for quantities only.
    - `cautions`: those of the stack and, because they concern the ratio, those of the baseline.
    - `failures`: those of all trials of the workload, equal in the cells of all metrics.
    - `coarse`: the values have steps larger than their noise, so that the interval is too narrow.
    - `turns`: the number of turns of the trials, for a headline of one of its values; 0 without turns.
    - `by_cpu_time`: the ratio compares CPU time, and `usual` is the value on a CPU without other load.
    - `slow_turns`: the share of turns that are much slower than the others; `slow_turns_of_baseline` is that of the
      baseline and its control in the same rounds.
    """

    workload: str
    metric: str
    point: float | None
    stack: str
    unit: str
    better: Better
    verdict: Verdict
    n: int = 0
    trials: int = 0
    mean: float | None = None
    sd: float | None = None
    relative_sd: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    usual: float | None = None
    usual_sd: float | None = None
    usual_low: float | None = None
    usual_high: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    evidence: float = 0.0
    spread: Spread | None = None
    correlation: float = 0.0
    widening: float = 1.0
    tolerated_autocorrelation: float | None = None
    ratios: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[CautionCount, ...] = ()
    failures: tuple[Failure, ...] = ()
    skipped: str = ""
    headline: str = ""
    coarse: bool = False
    turns: int = 0
    mean_ratio: float | None = None
    by_cpu_time: bool = False
    slow_turns: float | None = None
    slow_turns_of_baseline: float | None = None

    @property
    def name(self) -> str:
        """The name of the headline, or of the workload."""
        return self.headline or self.workload

    @property
    def resolution(self) -> float | None:
        """The smallest share of difference that an interval of this width can show; None without an interval."""
        return None if self.low is None or self.high is None else (self.high / self.low) ** 0.5 - 1

    @property
    def is_decided(self) -> bool:
        """Whether the verdict is better, worse or equivalent."""
        return self.verdict in DECIDED

    def has_caution(self, kind: str) -> bool:
        """Return whether the cell has a caution of this kind."""
        return any(caution.kind == kind for caution in self.cautions)

    def is_better_by(self, margin: float) -> bool:
        """Return whether the whole interval is better than the baseline by more than `margin`, a share."""
        if self.verdict != "better" or self.low is None or self.high is None:
            return False
        return self.low > 1 + margin if self.better == "higher" else self.high < 1 / (1 + margin)

    @property
    def is_robust(self) -> bool:
        """Whether the cell would also be decided with an autocorrelation of 0.5 between blocks."""
        return (
            self.is_decided and not self.coarse and (self.tolerated_autocorrelation or 0.0) >= AUDITED_AUTOCORRELATION
        )


def with_caution(cell: Cell, caution: Caution) -> Cell:
    """Return the cell with another caution, which concerns all of its blocks."""
    added = CautionCount(caution.kind, (caution.text,), cell.stack, cell.n, cell.n)
    return replace(cell, cautions=(*cell.cautions, added))


@dataclass(frozen=True)
class HeadlineRule:
    """Rule of a headline: the metrics of a workload that it combines, and a text that describes this.

    The first headline of a workload has the workload's name. `overall` headlines count for the overall speed.
    """

    name: str
    workload: str
    metrics: tuple[str, ...]
    better: Better
    text: str
    overall: bool = True


@dataclass(frozen=True)
class OverallSpeed:
    """Speed of a stack over several workloads, relative to the baseline's; more is better."""

    stack: str
    speed: float
    low: float | None
    high: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Overall:
    """Overall ranking of the stacks with a value in all `workloads`, the fastest first, without the baseline.

    `tied` stacks cannot be distinguished from the fastest; `missing` stacks lack a value in some workload.
    """

    workloads: tuple[str, ...]
    standings: tuple[OverallSpeed, ...]
    tied: tuple[str, ...]
    missing: tuple[str, ...]
