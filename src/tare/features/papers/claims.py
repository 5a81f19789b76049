"""Published claims, and equivalence regions that test them.

What a published claim says of a ratio is a region: all above 1, or all within a tolerance of a size. The interval is
that of 95 % alone (`tare.statistics.anytime`): it holds the ratios against which the e-value has not reached 20. So it
excludes a border exactly where the evidence against that border is large enough, and the evidence of many claims can be
judged together (`tare.statistics.anytime.e_bh`).

docs/papers.md has the format of the file that they are written in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field

from tare.model.units import Percent
from tare.statistics.anytime import log_evidence, widths_per_deviation
from tare.statistics.cells import Spread

Direction = Literal["more", "less", "equivalent"]
RegionPosition = Literal["inside", "outside", "across", "unknown"]
FOOTPRINT = "footprint"  # a metric that every trial has, whatever its workload
Share = Annotated[Percent, Field(gt=0)]
Number = Annotated[float, Field(gt=0)]
Tolerance = Annotated[Percent, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class ClaimSource:
    """Where claims were published, and what was measured there with what: the table `[sources.NAME]`.

    `cpu` is the model as Linux names it, or a part of that: numbers of another machine cannot be compared. `suite` is
    the path of one that tests the claims. `versions` are those of technologies and programs.
    """

    title: str
    authors: str
    published: str
    hardware: str
    cpu: str = ""
    link: str = ""
    suite: str = ""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AbsoluteClaim:
    """A number in the metric's unit: its size, or the least or the most that it is.

    It holds on machines like the source's alone, unless it holds `anywhere`.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    unit: str
    size: Number | None = None
    least: Number | None = None
    most: Number | None = None
    anywhere: bool = False


@dataclass(frozen=True)
class Claim:
    """One statement about one stack: the table `[[claims]]`.

    It is about `metric` of `workload`, the workload's headline if empty: at each of the `points`, or of those between
    `from_point` and `to_point`, or else in the mean over all points. What is claimed is a ratio to the stack `than`: a
    direction and, as far as it was published, a size, or the least or the most that it is; or a `value` alone.
    With `than_point`, it is that ratio in multiples of the one at this point: how the standing changes from there.
    `tolerance` is how far, as a factor, a size may be off; `reading` how exactly it could be read off a picture.
    `inverse`: published is the inverse of tare's metric, such as a speed in place of a time. `printed` is the number as
    it was printed; p, n and the standard deviations are those that were published. `quotes` names others whom the
    source quotes, `contradicts` the claims that say otherwise; `differs` says what is not the same in tare. `suite`
    takes the place of the source's, and is empty if none tests it.
    """

    id: str
    source: str
    place: str
    says: str
    stack: str
    workload: str
    printed: str = ""
    metric: str = ""
    than: str = "native"
    points: tuple[float, ...] = ()
    from_point: float | None = None
    to_point: float | None = None
    than_point: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    direction: Direction | None = None
    size: Share | None = None
    least: Share | None = None
    most: Share | None = None
    tolerance: Tolerance = 0.0
    reading: Tolerance = 0.0
    inverse: bool = False
    value: AbsoluteClaim | None = None
    same_versions: tuple[str, ...] = ()
    p: str = ""
    n: Annotated[int, Field(ge=1)] | None = None
    sd: Percent | None = None
    sd_of_other: Percent | None = None
    quotes: str = ""
    contradicts: tuple[str, ...] = ()
    differs: str = ""
    suite: str | None = None

    @property
    def has_size(self) -> bool:
        """Whether it says how large the ratio or the value is."""
        stated = self.value or self
        return any(each is not None for each in (stated.size, stated.least, stated.most))

    def region(self, margin: float) -> Region:
        """Return the ratios, or values, of which it can be true; the margin says what is equivalent."""
        stated, factor = self.value or self, (1 + self.tolerance) * (1 + self.reading)
        if not self.has_size:
            return region_of(self.direction or "equivalent", self.tolerance or margin)
        low, high = (stated.size, stated.size) if stated.size is not None else (stated.least, stated.most)
        return Region(0.0 if low is None else low / factor, math.inf if high is None else high * factor)


@dataclass(frozen=True)
class Claims:
    """The claims of a file, and their sources by name."""

    origins: dict[str, ClaimSource]
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Region:
    """The ratios, or values, from `low` to `high`: 0 and infinity where it has no end."""

    low: float = 0.0
    high: float = math.inf


def region_of(direction: Direction, margin: float) -> Region:
    """Return the ratios that lie in a direction; those within the margin of 1 are equivalent."""
    if direction == "equivalent":
        return Region(1 / (1 + margin), 1 + margin)
    return Region(low=1.0) if direction == "more" else Region(high=1.0)


@dataclass(frozen=True)
class IntervalEstimate:
    """An estimate from so many blocks, and what its interval follows from; the interval is None for too few blocks."""

    value: float
    n: int
    spread: Spread | None

    @cached_property
    def half_width(self) -> float:
        """Half the width of the interval, a logarithm; infinite for too few blocks."""
        if self.spread is None:
            return math.inf
        width = float(widths_per_deviation(np.array(self.n), np.array(self.spread.borrowed)))
        return width * self.spread.deviation + self.spread.offset if width < math.inf else math.inf

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return self.value * math.exp(-self.half_width) if self.half_width < math.inf else None

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""
        return self.value * math.exp(self.half_width) if self.half_width < math.inf else None

    @property
    def inverse(self) -> IntervalEstimate:
        """That of the inverse quantity."""
        return IntervalEstimate(1 / self.value, self.n, self.spread)


@dataclass(frozen=True)
class RegionVerdict:
    """Where an interval lies, and the logarithm of the e-value for that; 0 where nothing is decided."""

    position: RegionPosition
    evidence: float = 0.0


def locate_interval(estimate: IntervalEstimate, region: Region) -> RegionVerdict:
    """Return where the interval lies beside the region."""
    if estimate.low is None or estimate.high is None:
        return RegionVerdict("unknown")
    borders = [border for border in (region.low, region.high) if 0 < border < math.inf]
    if region.low <= estimate.low and estimate.high <= region.high:
        return RegionVerdict("inside", min((_evidence(estimate, border) for border in borders), default=math.inf))
    if estimate.high < region.low:
        return RegionVerdict("outside", _evidence(estimate, region.low))
    if estimate.low > region.high:
        return RegionVerdict("outside", _evidence(estimate, region.high))
    return RegionVerdict("across")


def _evidence(estimate: IntervalEstimate, border: float) -> float:
    """Return the logarithm of the e-value against the true ratio being on the border."""
    assert estimate.spread is not None  # noqa: S101 - only asked for intervals
    away = max(abs(math.log(estimate.value / border)) - estimate.spread.offset, 0.0)
    deviation, borrowed = np.array(estimate.spread.deviation), np.array(estimate.spread.borrowed)
    return float(log_evidence(np.array(away), deviation, np.array(estimate.n), borrowed))
