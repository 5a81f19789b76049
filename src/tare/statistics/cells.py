"""What statistics finds, as values: one cell for each workload, metric, point and stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tare.model import Better

Verdict = Literal["better", "worse", "cannot be separated", "baseline", "too few blocks", "no value"]


@dataclass(frozen=True)
class CautionCount:
    """A kind of doubt, what it said (each text once), and in how many of a stack's ok trials it was raised."""

    kind: str
    texts: tuple[str, ...]
    stack: str
    trials: int
    of: int


@dataclass(frozen=True)
class Failure:
    """A trial that has no result, and why."""

    trial: str
    block: int
    reason: str


@dataclass(frozen=True)
class Cell:
    """One stack's values of one metric at one point, and how they compare with the baseline's.

    `trials` values have `mean`, `sd` and extremes in `unit`; `n` blocks were compared, with the `ratios` stack over
    baseline; `ratio` is their geometric mean, `low` and `high` its 95 % interval. None where there is no such number;
    `notes` then say why. `cautions` are the stack's own and, since they touch the ratio, the baseline's.
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
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    ratios: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[CautionCount, ...] = ()
    failures: tuple[Failure, ...] = ()
    skipped: str = ""

    @property
    def separated(self) -> bool:
        """Whether the interval excludes 1."""
        return self.verdict in ("better", "worse")


@dataclass(frozen=True)
class HeadlineRule:
    """Which of a workload's metrics its headline is made of, and the sentence that says so."""

    workload: str
    metrics: tuple[str, ...]
    better: Better
    text: str


@dataclass(frozen=True)
class Standing:
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
    standings: tuple[Standing, ...]
    tied: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """Everything that can be said of a run's values."""

    suite: str
    baseline: str
    confidence: float
    stacks: tuple[str, ...]
    workloads: tuple[str, ...]
    cells: tuple[Cell, ...]
    headlines: tuple[Cell, ...]
    rules: tuple[HeadlineRule, ...]
    overall: Overall

    def of(self, workload: str) -> tuple[Cell, ...]:
        """All cells of a workload, headline apart."""
        return tuple(cell for cell in self.cells if cell.workload == workload)

    def headline(self, workload: str, stack: str) -> Cell:
        """Find the cell that stands for a workload on a stack; every pair has one, if only to say why not."""
        return next(cell for cell in self.headlines if cell.workload == workload and cell.stack == stack)

    def rule(self, workload: str) -> HeadlineRule:
        """How the headline of a workload was made."""
        return next(rule for rule in self.rules if rule.workload == workload)
