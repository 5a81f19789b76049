"""Axes of all charts: positions of values as shares of an axis, and labels of ticks.

An axis of costs is linear near 0 and logarithmic beyond (Webber, "A bi-symmetric log transformation for wide-range
data", Measurement Science and Technology 24 (2013), 027001), so that costs of 1 % and of a factor of 600 are both
readable. An axis of quantities is logarithmic.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tare.report.numbers import format_change, format_plus_minus

Size = Literal["gain", "none", "small", "medium", "large", "unknown"]
Ticks = tuple[tuple[float, str], ...]
_SMALL, _MEDIUM = math.log(1.25), math.log(3)
_FASTEST = math.log(1.25)  # largest reach of the side of gains
_TICKS = (0.8, 1.0, 1.1, 2.0, 10.0, 100.0, 1000.0, 1e4, 1e5)
_PERCENTS = (1.0, 0.5, 2.0, 0.1, 10.0, 0.7, 1.5, 0.2, 5.0, 0.9, 1.1, 0.8, 1.2)  # in order of importance
_MIN_REACH = math.log(1.2)  # smallest reach of the side of costs
_LETTER_SHARE = 0.058  # width of a character of a label, as a share of the axis
_LABEL_GAP = 0.05  # between two labels, as a share of the axis
_LABEL_OVERHANG = 0.08  # of a label before the start of the axis, as a share of the axis
_FEW, _MAX_TICKS = 2, 4
_ROOM = 0.04  # beyond the outermost dots, as a share of the axis
_ROUNDING = 1e-9  # tolerance for floating-point errors
_WIDE = 4.0  # ratios that spread more widely are drawn on a logarithmic axis
_MAX_LABELS = 6


@dataclass(frozen=True)
class Axis:
    """Axis of logarithms from `first` to `last`: symmetric-log with a `threshold`, else linear in the logarithms."""

    first: float
    last: float
    threshold: float | None

    def position(self, logarithm: float) -> float:
        """Return the position of a logarithm as a share of the axis, clipped to 0 and 1."""
        first, last, at = (self._to_linear(each) for each in (self.first, self.last, logarithm))
        return min(max((at - first) / (last - first), 0.0), 1.0)

    def band(self, logarithm: float, margin: float) -> tuple[float, float]:
        """Return the positions of the bounds of the margin around a value."""
        band = math.log1p(margin)
        return self.position(logarithm - band), self.position(logarithm + band)

    def _to_linear(self, logarithm: float) -> float:
        return logarithm if self.threshold is None else math.asinh(logarithm / self.threshold)


def cost_axis(known: Iterable[float], margin: float) -> Axis:
    """Return the axis of costs, which are logarithms of factors."""
    band, costs = math.log1p(margin), [0.0, *known]
    least, most = min(costs), max(costs)
    return Axis(max(min(least, -band), -_FASTEST) - band / 2, max(most * (1 + _ROOM), _MIN_REACH), band)


def quantity_axis(known: Sequence[float], margin: float) -> Axis:
    """Return the axis of quantities, which are logarithms; as wide as the margin if all are equal."""
    room = (max(known) - min(known)) * _ROOM or math.log1p(margin)
    return Axis(min(known) - room, max(known) + room, None)


@dataclass(frozen=True)
class Scale:
    """Axis of values with its ticks; with `is_log`, positions are those of the values' logarithms."""

    axis: Axis
    ticks: Ticks
    is_log: bool = False

    def position(self, value: float) -> float:
        """Return the position of a value as a share of the axis."""
        return self.axis.position(math.log(max(value, sys.float_info.min)) if self.is_log else value)


def linear_scale(
    minimum: float, maximum: float, label: Callable[[float], str], tick_values: Sequence[float] = ()
) -> Scale:
    """Return a linear axis with ticks at `tick_values`, or at round numbers if there are none."""
    axis = Axis(minimum, maximum if maximum > minimum else minimum + 1.0, None)
    return Scale(
        axis, tuple((axis.position(each), label(each)) for each in tick_values or round_numbers(axis.first, axis.last))
    )


def log_scale(
    minimum: float, maximum: float, label: Callable[[float], str], tick_values: Sequence[float] = ()
) -> Scale:
    """Return a logarithmic axis with 10 % of room at both ends."""
    minimum, maximum = minimum * 0.9, maximum * 1.1
    axis = Axis(math.log(minimum), math.log(maximum), None)
    round_ones = tick_values or _round_quantities(minimum, maximum, 3)
    if len(round_ones) < _FEW:
        round_ones = round_numbers(minimum, maximum)
    every = max(-(-len(round_ones) // _MAX_LABELS), 1)
    return Scale(axis, tuple((axis.position(math.log(each)), label(each)) for each in round_ones[::every]), is_log=True)


def ratio_scale(ratios: Sequence[float]) -> Scale:
    """Return an axis of ratios that includes 1; logarithmic if the ratios spread widely."""
    least, most = min(*ratios, 1.0), max(*ratios, 1.0)
    if least > 0 and most / least > _WIDE:
        return log_scale(least, most, format_change)
    room = (most - least) * 0.06 or 0.01
    return linear_scale(least - room, most + room, format_change)


def round_numbers(first: float, last: float, max_count: int = _MAX_LABELS) -> list[float]:
    """Return at most `max_count` + 1 multiples of 1, 2 or 5 times a power of ten between two values."""
    least = max((last - first) / max_count, sys.float_info.min)
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - _ROUNDING))
    return [step * at for at in range(math.ceil(first / step - _ROUNDING), math.floor(last / step + _ROUNDING) + 1)]


def format_tick(value: float) -> str:
    """Format a number on an axis with as many digits as needed, without an exponent."""
    return f"{float(f'{value:.6g}'):,}".removesuffix(".0")


def classify_cost(away: float, margin: float) -> Size:
    """Return the size class of a cost, given as the logarithm of a factor; negative costs are gains."""
    if abs(away) <= math.log1p(margin):
        return "none"
    if away < 0:
        return "gain"
    return "small" if away < _SMALL else "medium" if away < _MEDIUM else "large"


def cost_ticks(axis: Axis) -> Ticks:
    """Return the ticks of an axis of costs."""
    ticks = [(tick, axis.position(math.log(tick))) for tick in _TICKS if axis.first <= math.log(tick) <= axis.last]
    return drop_overlapping_labels([(place, _format_factor(tick)) for tick, place in ticks])


def percent_ticks(axis: Axis) -> Ticks:
    """Return the ticks of an axis of ratios: changes in percent, and factors from 2 on."""
    shown: list[tuple[float, str]] = []
    for each in _PERCENTS:
        place, label = axis.position(math.log(each)), format_change(each)
        room = [(len(label) + len(other)) * _LETTER_SHARE / 2 + _LABEL_GAP for _, other in shown]
        is_free = all(abs(place - at) >= needed for (at, _), needed in zip(shown, room, strict=True))
        if axis.first <= math.log(each) <= axis.last and is_free:
            shown.append((place, label))
    return tuple(shown)


def quantity_ticks(axis: Axis, unit: str, *, upright: bool = False) -> Ticks:
    """Return at most four ticks at powers of ten, or at multiples of 1, 2 and 5 if there are few powers.

    Labels of an `upright` axis are above each other, so none overlaps another.
    """
    least, most = math.exp(axis.first), math.exp(axis.last)
    if unit == "bytes":
        first = math.ceil(math.log2(least))
        round_ones = [2.0**power for power in range(first, math.floor(math.log2(most)) + 1)]
    else:
        round_ones = _round_quantities(least, most)
    every = max(-(-len(round_ones) // _MAX_TICKS), 1)
    ticks = tuple((axis.position(math.log(each)), _format_quantity(each, unit)) for each in round_ones[::every])
    return ticks if upright else drop_overlapping_labels(ticks)


def _round_quantities(minimum: float, maximum: float, few: int = _FEW) -> list[float]:
    """Return the powers of ten between two quantities, with their multiples of 2 and 5 if there are few powers."""
    powers = range(math.floor(math.log10(minimum) + _ROUNDING), math.floor(math.log10(maximum) + _ROUNDING) + 1)
    for digits in ((1,), (1, 2, 5)):
        found = [digit * 10.0**power for power in powers for digit in digits]
        found = [each for each in found if minimum <= each * (1 + _ROUNDING) and each <= maximum * (1 + _ROUNDING)]
        if len(found) >= few:
            break
    return found


def _format_quantity(quantity: float, unit: str) -> str:
    """Format a round quantity without trailing zeros."""
    amount, _, label = format_plus_minus(quantity, None, unit).partition(" ")
    return f"{float(amount):g} {label}".rstrip()


def drop_overlapping_labels(ticks: Iterable[tuple[float, str]], letter: float = _LETTER_SHARE) -> Ticks:
    """Return the ticks without labels that would overlap another label or begin far before the axis.

    `letter` is the width of a character as a share of the axis.
    """
    shown: list[tuple[float, str]] = []
    end = -_LABEL_OVERHANG
    for place, label in ticks:
        half = len(label) * letter / 2
        fits = place - half >= end
        shown.append((place, label if fits else ""))
        end = place + half if fits else end
    return tuple(shown)


def _format_factor(tick: float) -> str:
    if tick == 1:
        return "0"
    if tick < 2:
        sign = "+" if tick > 1 else "\N{MINUS SIGN}"
        return f"{sign}{abs(tick - 1) * 100:.0f} %"
    return f"\N{MULTIPLICATION SIGN}{tick:,.0f}"
