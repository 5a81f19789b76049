"""What statistics finds, as values: one cell for each workload, metric, point and stack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tare.model.trial import Better, Caution

Verdict = Literal["better", "worse", "equivalent", "undecided", "too few blocks", "baseline", "no value"]
Side = Literal["more", "less", "equivalent", "undecided", "too few blocks"]
DECIDED = ("better", "worse", "equivalent")
DECIDING = ("more", "less", "equivalent")
AUDITED_AUTOCORRELATION = 0.5  # correlation of neighboring blocks, as large as the audit tries (research/audit.md)


def verdict_of_side(side: Side, better: Better) -> Verdict:
    """Return whether more or less is better."""
    if side == "more" or side == "less":  # noqa: PLR1714 - so that the type is known
        return "better" if (side == "more") == (better == "higher") else "worse"
    return side


@dataclass(frozen=True)
class CautionCount:
    """A kind of doubt, what it said (each text once), and in how many of a stack's ok trials it was raised."""

    kind: str
    texts: tuple[str, ...]
    stack: str
    trials: int
    of: int


@dataclass(frozen=True)
class Spread:
    """What makes an interval as wide as it is, in logarithms: see `tare.statistics.ratios.half_width`.

    The standard deviation of a block's ratio, the degrees of freedom that it has beyond n - 1, and the difference of
    the baseline to itself.
    """

    deviation: float
    borrowed: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True)
class Failure:
    """A trial that has no result, why, and what may fix that."""

    trial: str
    block: int
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class Cell:
    """One stack's values of one metric at one point, and how they compare with the baseline's.

    `trials` values have `mean`, `sd` and extremes in `unit`; `n` blocks were compared, with the `ratios` stack over
    baseline; `ratio` is their geometric mean, `low` and `high` its interval, which holds at every look. None where
    there is no such number; `notes` then say why. `evidence` is the logarithm of the e-value for the verdict,
    `spread` what the interval follows from, and
    `correlation` the lag-1 autocorrelation of the log ratios. `widening` is the factor by which the interval is
    wider because blocks depend on each other, and
    `tolerated_autocorrelation` the lag-1 autocorrelation of blocks up to which the interval would still decide, None
    where it does not. `cautions` are the stack's own and, since they touch the ratio,
    the baseline's. `headline` is the name of the headline that the cell is of, if it is of one.
    `failures` are those of all its trials of the workload, equal in each metric's cell.
    `coarse` says that the values come in steps that are larger than their noise, so that the interval is too narrow.
    `turns` are those of its trials, of a headline those of one of its values; 0 where none was divided into turns.
    `usual` is the geometric mean of the baseline's usual turns, one for each block, and for other stacks that times
    `ratio`: what the stack usually has in the baseline's blocks, whichever blocks it has itself. `usual_sd` is the
    standard deviation of the stack's own usual turns from block to block. `usual_low` and `usual_high` are the ends of
    its own interval, of 95 % alone, in a headline that is read as a quantity, such as a time to start.
    Where blocks have rounds, `ratio` is that of a usual turn, and `mean_ratio` that of the means over all turns;
    `slow_turns` is the share of turns that are much slower than the others, and `slow_turns_of_baseline` that of the
    baseline's and its control's in the same rounds.
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
    slow_turns: float | None = None
    slow_turns_of_baseline: float | None = None

    @property
    def name(self) -> str:
        """What the cell is of: the headline's name, or the workload's."""
        return self.headline or self.workload

    @property
    def resolution(self) -> float | None:
        """The smallest difference to the baseline, a share, that the interval could have shown; None without one."""
        return None if self.low is None or self.high is None else (self.high / self.low) ** 0.5 - 1

    @property
    def is_decided(self) -> bool:
        """Whether it is known how the stack compares with the baseline."""
        return self.verdict in DECIDED

    def has_caution(self, kind: str) -> bool:
        """Whether it has a caution of this kind."""
        return any(caution.kind == kind for caution in self.cautions)

    def is_better_by(self, margin: float) -> bool:
        """Whether it is surely better than the baseline by more than a margin, a share."""
        if self.verdict != "better" or self.low is None or self.high is None:
            return False
        return self.low > 1 + margin if self.better == "higher" else self.high < 1 / (1 + margin)

    @property
    def is_robust(self) -> bool:
        """Whether it would also be decided if each block kept half of what moved the one before."""
        return (
            self.is_decided and not self.coarse and (self.tolerated_autocorrelation or 0.0) >= AUDITED_AUTOCORRELATION
        )


def with_caution(cell: Cell, caution: Caution) -> Cell:
    """Add a caution that is about all blocks of a cell."""
    added = CautionCount(caution.kind, (caution.text,), cell.stack, cell.n, cell.n)
    return replace(cell, cautions=(*cell.cautions, added))


@dataclass(frozen=True)
class HeadlineRule:
    """Which of a workload's metrics a headline is made of, and the sentence that says so.

    The first headline of a workload has its name. `overall` says whether it counts for the overall speed of a stack.
    """

    name: str
    workload: str
    metrics: tuple[str, ...]
    better: Better
    text: str
    overall: bool = True


@dataclass(frozen=True)
class OverallSpeed:
    """A stack's speed over several workloads, relative to the baseline's; more is better."""

    stack: str
    speed: float
    low: float | None
    high: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Overall:
    """The stacks that have a value in all of these workloads, the cheapest first, without the baseline.

    `tied` cannot be separated from the cheapest; `missing` have no value in some of the workloads.
    """

    workloads: tuple[str, ...]
    standings: tuple[OverallSpeed, ...]
    tied: tuple[str, ...]
    missing: tuple[str, ...]
