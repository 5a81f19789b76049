"""Length of the turns of resident programs, and the measurements from which a run chooses it."""

from __future__ import annotations

from dataclasses import dataclass

CHOICE_SECONDS = 2.2  # the longest time that the turns of a choice take


@dataclass(frozen=True)
class TurnLength:
    """Length of a turn: the seconds of its first part, which does not count, and those that count."""

    discard_seconds: float
    measure_seconds: float

    @property
    def seconds(self) -> float:
        """The seconds of both parts."""
        return self.discard_seconds + self.measure_seconds

    def __str__(self) -> str:
        """Return the length as text, such as `1 + 5 ms`."""
        return f"{1000 * self.discard_seconds:g} + {1000 * self.measure_seconds:g} ms"


@dataclass(frozen=True)
class TurnProbe:
    """Turn that serves the choice of a length, as its program reported it. Both rates have the same unit."""

    discarded_seconds: float
    discarded_rate: float
    measured_seconds: float
    measured_rate: float


@dataclass(frozen=True)
class TurnCost:
    """Cost of turns of a length.

    - `pairs` is the number of pairs of turns of baseline and control that were compared.
    - `seconds` is the time of a turn with its overhead.
    - `deviation` is the robust standard deviation of a pair's log ratio; `smoothed` is that of a power of the length
      that fits all lengths.
    - `cold_share` is the share of the work that turns lack because they begin cold, `cold_error` its standard error.
    """

    length: TurnLength
    pairs: int
    seconds: float
    deviation: float
    smoothed: float
    cold_share: float
    cold_error: float

    @property
    def cost(self) -> float:
        """Seconds times variance: the time that a given precision takes, in proportion."""
        return self.seconds * self.smoothed**2


@dataclass(frozen=True)
class ColdPart:
    """Cold part of a turn: seconds of work that turns lack in their first `seconds`, with the standard error."""

    seconds: float
    lost_seconds: float
    error_seconds: float


@dataclass(frozen=True)
class TurnChoice:
    """Chosen length of turns, with the costs of all lengths and the cold start from which it follows.

    `seconds` is the time that the measurement took.
    """

    length: TurnLength
    costs: tuple[TurnCost, ...]
    cold_parts: tuple[ColdPart, ...]
    seconds: float
