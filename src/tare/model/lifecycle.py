"""Measurements of an instance's life: starts in a burst, and durations with their percentiles."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, Value

_MIN_DURATIONS_FOR_P95 = 16  # with fewer durations, the 95th percentile would be little else than the slowest
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_DURATIONS = TypeAdapter(Annotated[tuple[Seconds, ...], Field(min_length=1)])


@dataclass(frozen=True)
class BurstStart:
    """Start of one instance in a burst: seconds from its request to its first answer; None if it failed."""

    seconds: Seconds | None
    reason: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError unless it has either seconds or a reason."""
        if (self.seconds is None) == (not self.reason):
            raise ValueError("a start has either seconds or the reason of its failure")


@dataclass(frozen=True)
class Burst:
    """Instances that were requested together.

    `cpu_seconds` is the CPU time of the whole machine from the requests until the last instance is ready or has failed.
    It is 0 if it is unknown, and may be 0 for a short burst, because the kernel counts ticks of 10 ms.
    """

    starts: tuple[BurstStart, ...]
    cpu_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]


def duration_metrics(title: str) -> tuple[Metric, Metric]:
    """Return the metrics of repeated durations: the median, which is the headline, and the 95th percentile."""
    return (
        Metric("p50", f"{title}, median", "s", "lower", overall=False),
        Metric("p95", f"{title}, 95th percentile", "s", "lower", headline=False, overall=False),
    )


def format_durations(seconds: Sequence[float]) -> str:
    """Return the text of an output with durations, which `parse_durations` reads."""
    return f"{_DURATIONS.dump_json(tuple(seconds)).decode()}\n"


def parse_durations(text: str) -> tuple[Value, ...]:
    """Return the percentiles of the durations in an output; raises TrialFailed for any other text."""
    try:
        return compute_percentiles(_DURATIONS.validate_json(text, strict=True))
    except ValidationError as error:
        what = f"expected a list of durations in seconds; {quote_output(text)}"
        raise TrialFailed(what, "`tare show` has the whole output") from error


def compute_percentiles(seconds: Sequence[float], point: float | None = None) -> tuple[Value, ...]:
    """Return the median, and the 95th percentile of 16 and more durations.

    Percentiles are interpolated linearly between order statistics: type 7 of R. J. Hyndman and Y. Fan, "Sample
    Quantiles in Statistical Packages", The American Statistician 50 (4), 1996, which NumPy uses, too.
    """
    median = Value("p50", point, statistics.median(seconds))
    if len(seconds) < _MIN_DURATIONS_FOR_P95:
        return (median,)
    return median, Value("p95", point, statistics.quantiles(seconds, n=20, method="inclusive")[-1])
