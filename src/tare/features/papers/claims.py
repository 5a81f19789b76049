"""Published claims, and the regions of ratios that test them.

A claim about a ratio is a region: all ratios above 1, or all within a tolerance of a size. Overlapping intervals of
paper and run would make the noisiest paper agree best. The interval of a run is that of a single statement
(`tare.statistics.anytime`): it holds the ratios against which the e-value has not reached 20. So it excludes a border
exactly if the evidence against that border is large enough, and the evidence of many claims can be judged together
(`tare.statistics.anytime.e_bh`).

docs/papers.md describes the file format of claims.
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
FOOTPRINT = "footprint"  # metric that trials of every workload have
Share = Annotated[Percent, Field(gt=0)]
Number = Annotated[float, Field(gt=0)]
Tolerance = Annotated[Percent, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class ClaimSource:
    """Source of claims: publication, hardware and versions, the table `[sources.NAME]`.

    `cpu` is the model name of Linux or a part of it: absolute numbers of another CPU cannot be compared. `suite` is the
    path of a suite that tests the claims. `versions` has the versions of technologies and programs by name.
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
    """Claim about a number in the metric's unit: its size, or a lower or upper bound.

    The claim is about machines like the source's only, unless it holds `anywhere`.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    unit: str
    size: Number | None = None
    least: Number | None = None
    most: Number | None = None
    anywhere: bool = False


@dataclass(frozen=True)
class Claim:
    """Claim about a stack: a table of `[[claims]]`.

    `place` is where the source states the claim, such as a figure or a section, and `says` is the claim in a sentence.

    The claim is about `metric` of `workload` (the headline if ""): at each of the `points`, or at those between
    `from_point` and `to_point`, or in the mean over all points. It states a ratio to the stack `than`, by a direction
    and, if published, a size or a lower or upper bound; or a `value` instead. With `than_point`, the ratio is relative
    to the ratio at that point.

    `tolerance` and `reading` are the error of a size, and of reading it off a picture, as factors. `inverse` is true if
    the inverse of tare's metric was published, such as a speed instead of a time. `printed` is the number as printed;
    `p`, `n` and the standard deviations are as published. `quotes` names the authors whom the source quotes,
    `contradicts` lists claims that say otherwise, and `differs` describes differences of tare's measurement. `suite`
    overrides that of the source, and is "" if no suite tests the claim.
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
        """Whether the claim has a size or a bound, not only a direction."""
        stated = self.value or self
        return any(each is not None for each in (stated.size, stated.least, stated.most))

    def region(self, margin: float) -> Region:
        """Return the ratios, or values, for which the claim is true; ratios within `margin` are equivalent."""
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
    """Region of ratios or values from `low` to `high`; 0 and infinity stand for no bound."""

    low: float = 0.0
    high: float = math.inf


def region_of(direction: Direction, margin: float) -> Region:
    """Return the region of a direction; only "equivalent" depends on the margin."""
    if direction == "equivalent":
        return Region(1 / (1 + margin), 1 + margin)
    return Region(low=1.0) if direction == "more" else Region(high=1.0)


@dataclass(frozen=True)
class IntervalEstimate:
    """Estimate from `n` blocks, with the spread that determines its interval; `spread` is None for too few blocks."""

    value: float
    n: int
    spread: Spread | None

    @cached_property
    def half_width(self) -> float:
        """Half the width of the interval, as a logarithm; infinite for too few blocks."""
        if self.spread is None:
            return math.inf
        width = float(widths_per_deviation(np.array(self.n), np.array(self.spread.borrowed)))
        return width * self.spread.deviation + self.spread.offset if width < math.inf else math.inf

    @property
    def low(self) -> float | None:
        """The lower bound of the interval; None for too few blocks."""
        return self.value * math.exp(-self.half_width) if self.half_width < math.inf else None

    @property
    def high(self) -> float | None:
        """The upper bound of the interval; None for too few blocks."""
        return self.value * math.exp(self.half_width) if self.half_width < math.inf else None

    @property
    def inverse(self) -> IntervalEstimate:
        """The estimate of the inverse quantity."""
        return IntervalEstimate(1 / self.value, self.n, self.spread)


@dataclass(frozen=True)
class RegionVerdict:
    """Position of an interval relative to a region, and the logarithm of its e-value; 0 if undecided."""

    position: RegionPosition
    evidence: float = 0.0


def locate_interval(estimate: IntervalEstimate, region: Region) -> RegionVerdict:
    """Return the position of the interval relative to the region (an equivalence test)."""
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
    """Return the logarithm of the e-value against a true ratio on the border."""
    assert estimate.spread is not None  # noqa: S101 - only called for intervals
    away = max(abs(math.log(estimate.value / border)) - estimate.spread.offset, 0.0)
    deviation, borrowed = np.array(estimate.spread.deviation), np.array(estimate.spread.borrowed)
    return float(log_evidence(np.array(away), deviation, np.array(estimate.n), borrowed))
