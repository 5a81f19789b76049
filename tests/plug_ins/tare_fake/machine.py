"""The machine that fakes share in turns: its time passes with them, and bursts take CPU time away from all of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SHORTEST, LONGEST = 0.1, 3.0  # seconds of a burst
_LEAST, _MOST = 0.1, 0.9  # of the CPU, that a burst takes


@dataclass
class Machine:
    """Bursts take a part of the CPU for a `share` of the time: the same ones for the same seed."""

    seed: int
    share: float
    _now: float = 0.0
    _begin: float = 0.0
    _end: float = 0.0
    _lost: float = 0.0
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(f"bursts {self.seed}")  # noqa: S311 - nothing secret

    def speed(self, seconds: float) -> float:
        """Let so many seconds pass; return the share of the CPU that a turn had meanwhile."""
        if not self.share:
            return 1.0
        left, work = seconds, 0.0
        while left > 0:
            if self._now >= self._end:
                self._draw()
            inside = self._now >= self._begin
            step = min(left, (self._end if inside else self._begin) - self._now)
            work += step * (1 - self._lost if inside else 1.0)
            self._now += step
            left -= step
        return work / seconds

    def _draw(self) -> None:
        pause = (SHORTEST + LONGEST) / 2 * (1 - self.share) / self.share
        self._begin = self._end + self._chance.expovariate(1 / pause)
        self._end = self._begin + self._chance.uniform(SHORTEST, LONGEST)
        self._lost = self._chance.uniform(_LEAST, _MOST)
