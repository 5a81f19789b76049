"""The search for the smallest memory: what became of each try, and which memory comes next. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tare.errors import TrialFailed, printed
from tare.model.trials import Raw

Fate = Literal["answered", "swapped", "out of memory", "late", "failed"]
_Bytes = Annotated[int, Field(ge=0, le=2**63 - 1)]
_FATE = "fate "
_LOOKS = 5  # one look in five misses by chance where turns are short (30 of 158), and there are ten steps
_FINE_BELOW = 32 << 20  # guests have whole MiB, but none is as small as this
_FINE_STEP, _STEP = 4096, 1 << 20


@dataclass(frozen=True)
class Outcome:
    """What is written of a try: the limit, all the memory, and how it went."""

    limit_bytes: Annotated[_Bytes, Field(gt=0)]
    full_bytes: Annotated[_Bytes, Field(gt=0)]
    fate: Fate
    swapped_bytes: _Bytes = 0
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether it was measured to the end of its rounds."""
        return self.fate in ("answered", "swapped")

    def written(self, number: int) -> Raw:
        """Return the last output of a try; each has a label of its own, so that `tare show` has them all."""
        return Raw(f"{_FATE}{number}", (), f"{_OUTCOME.dump_json(self).decode()}\n", 0.0)


_OUTCOME = TypeAdapter(Outcome)


def is_fate(raw: Raw) -> bool:
    """Return whether an output is the last of a try."""
    return raw.label.startswith(_FATE)


def read_outcome(raw: Raw) -> Outcome:
    """Read the last output of a try; raises TrialFailed."""
    try:
        return _OUTCOME.validate_json(raw.text, strict=True)
    except ValidationError as error:
        raise TrialFailed(f"a try has an unknown fate; {printed(raw.text)}") from error


@dataclass(frozen=True)
class Try:
    """A try, and the rates of both instances in its rounds, if it came to their end."""

    outcome: Outcome
    full: Sequence[float] = ()
    less: Sequence[float] = ()

    def meets(self, goal: float) -> bool:
        """Return whether the usual round has at least this share of the throughput with all the memory."""
        return bool(self.less) and median(b / a for a, b in zip(self.full, self.less, strict=True)) >= goal


@dataclass(frozen=True)
class Search:
    """What is known of the smallest memory: `high` meets the goal, `low` does not; `low` is 0 as long as all do.

    `slow` counts how often the goal was missed, with the memory that follows, by an instance that answered. `met`: an
    instance with less memory has met the goal.
    """

    high: int
    low: int = 0
    slow: int = 0
    met: bool = False

    def after(self, one: Try, goal: float) -> Search:
        """Return what is known after one more try."""
        if one.meets(goal):
            return Search(one.outcome.limit_bytes, self.low, met=True)
        if one.less and self.slow + 1 < _LOOKS:
            return replace(self, slow=self.slow + 1)
        return Search(self.high, one.outcome.limit_bytes, met=self.met)

    def following(self, precision: float) -> int | None:
        """Return the memory to try next: half, or the middle; None where it is known as exactly as it should be."""
        if not self.low:
            return self.high // 2
        if self.high <= self.low * (1 + precision):
            return None
        step = _FINE_STEP if self.high < _FINE_BELOW else _STEP
        middle = round(math.sqrt(self.low * self.high) / step) * step
        return middle if self.low < middle < self.high else None
