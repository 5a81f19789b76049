"""How a stack's turns are compared with those of the baseline: within the round, or with the turns closest in time.

A pairing takes the turns of a block to log ratios of one stack. Most have several parts, such as the ratios to the
baseline and those to its control: each part has its own center, and the mean of the centers is the block's value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from audit_centers import mean, median, trimmed_mean
from audit_runs import Floats


@dataclass(frozen=True)
class Turns:
    """Turns of a block by row: when they began, and their log speeds. The baseline is first, its control last."""

    began: tuple[Floats, ...]
    logs: tuple[Floats, ...]

    @property
    def control(self) -> int:
        """Row of the baseline's control."""
        return len(self.logs) - 1

    def in_time(self, rows: Iterable[int]) -> tuple[Floats, Floats]:
        """Return when the turns of these rows began, in order, and their log speeds."""
        began = np.concatenate([self.began[row] for row in rows])
        logs = np.concatenate([self.logs[row] for row in rows])
        order = np.argsort(began)
        return began[order], logs[order]

    def select_half(self, rounds: int, half: int) -> Turns:
        """Return the turns of one half of the rounds, 0 or 1, which change after this number of rounds."""
        keeps = [np.arange(len(logs)) // rounds % 2 == half for logs in self.logs]
        return Turns(
            tuple(each[keep] for each, keep in zip(self.began, keeps, strict=True)),
            tuple(each[keep] for each, keep in zip(self.logs, keeps, strict=True)),
        )


Pairing = Callable[[Turns, int, Sequence[int]], list[Floats]]


def in_round(turns: Turns, row: int, partners: Sequence[int]) -> list[Floats]:
    """What tare takes: the ratios to each partner's turn of the same round."""
    count = min(len(turns.logs[each]) for each in (row, *partners))
    return [turns.logs[row][:count] - turns.logs[partner][:count] for partner in partners]


def over_two_rounds(turns: Turns, row: int, partners: Sequence[int]) -> list[Floats]:
    """Return the same of the means over two rounds; in mirrored orders, a linear drift cancels."""
    return [each[: len(each) // 2 * 2].reshape(-1, 2).mean(axis=1) for each in in_round(turns, row, partners)]


def interpolated(turns: Turns, row: int, partners: Sequence[int]) -> list[Floats]:
    """Return the ratios to the line in time between the partners' turns right before and after."""
    began, logs = turns.in_time(partners)
    return [turns.logs[row] - np.interp(turns.began[row], began, logs)]


def each_interpolated(turns: Turns, row: int, partners: Sequence[int]) -> list[Floats]:
    """Return the same for each partner by itself."""
    return [part for partner in partners for part in interpolated(turns, row, (partner,))]


def before_and_after(turns: Turns, row: int, partners: Sequence[int]) -> list[Floats]:
    """Return the ratios to the partners' turn right before, and those to the one right after."""
    began, logs = turns.in_time(partners)
    after = np.searchsorted(began, turns.began[row])
    has_before, has_after = after > 0, after < len(logs)
    own = turns.logs[row]
    return [own[has_before] - logs[after[has_before] - 1], own[has_after] - logs[after[has_after]]]


PAIRINGS: Mapping[str, Pairing] = {
    "in the round": in_round,
    "interpolated": interpolated,
    "each interpolated": each_interpolated,
    "before and after": before_and_after,
    "over two rounds": over_two_rounds,
}
CENTERS: Mapping[str, Callable[[Floats], Floats]] = {
    "median": median,
    "trimmed": lambda values: trimmed_mean(values, 0.2),
    "mean": mean,
}


def value(turns: Turns, row: int, pairing: Pairing, center: Callable[[Floats], Floats]) -> float:
    """Return a block's log ratio of a stack to both baselines, or of the control to the baseline."""
    partners = (0,) if row == turns.control else (0, turns.control)
    parts = [center(part) for part in pairing(turns, row, partners) if part.size]
    return float(np.mean(parts)) if parts else np.nan
