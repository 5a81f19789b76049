"""Numbers as text: the change from the baseline, mean ± SD in one unit, glyphs for verdicts.

`tare.model.units` formats single quantities. This module formats those that share a scale or have an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tare.statistics.cells import Cell, OverallSpeed
from tare.statistics.cpu_costs import CpuCost

# A verdict has both a glyph and a color, so that neither color blindness nor a grey print hides it.
GLYPHS = {
    "better": "▲",
    "worse": "▼",
    "equivalent": "≈",
    "undecided": "○",
    "too few blocks": "?",
    "baseline": "◆",
    "no value": "\N{EN DASH}",
    "skipped": "⊘",
    "failed": "✕",
}
NAMED = 3  # names in a sentence; the others are counted
_FACTOR_FROM = 2.0  # from this ratio on, a factor is easier to read than a percentage
_MIXED_FROM = 10.0  # from here on, the upper bound of a change in percent is a factor
_THREE_DIGITS = 1.1  # upper over lower bound of an interval up to which a factor has three digits
_FINE = 0.03  # half the width of an interval up to which a cost has a decimal
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1024.0**4, "TiB"), (1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"), (1.0, "B"))
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


@dataclass(frozen=True)
class UnitScale:
    """Unit for display: its name, and the factor to divide base units by."""

    factor: float
    label: str


def choose_scale(value: float, unit: str) -> UnitScale:
    """Return the scale in which a value in base units has one to three digits before the decimal point."""
    if unit == "s":
        return _choose_from(value, _TIMES)
    if unit == "bytes":
        return _choose_from(value, _SIZES)
    chosen = _choose_from(value, _PREFIXES)
    if unit.startswith("bytes/"):
        return UnitScale(chosen.factor, f"{chosen.label}B/{unit.removeprefix('bytes/')}")
    return UnitScale(chosen.factor, f"{chosen.label} {unit}".strip())


def format_plus_minus(mean: float, sd: float | None, unit: str) -> str:
    """Format mean ± standard deviation in one unit, with as many digits as the deviation supports."""
    chosen = choose_scale(mean, unit)
    mean, spread = mean / chosen.factor, None if sd is None else sd / chosen.factor
    decimals = _count_decimals(spread) if spread else 3 - len(f"{abs(mean):.0f}")
    text = f"{mean:.{max(decimals, 0)}f}"
    if spread is not None:
        text += f" ± {spread:.{max(decimals, 0)}f}"
    return f"{text} {chosen.label}".strip()


def format_quantity_interval(cell: Cell) -> tuple[str, str]:
    """Format a usual value and its interval in one unit, `221 ms` and `[210, 233]`; two "" without an interval."""
    if cell.usual is None or cell.usual_low is None or cell.usual_high is None:
        return "", ""
    chosen = choose_scale(cell.usual, cell.unit)
    width = (cell.usual_high - cell.usual_low) / 2 / chosen.factor
    decimals = max(_count_decimals(width) if width else 3 - len(f"{cell.usual / chosen.factor:.0f}"), 0)
    at, low, high = (f"{each / chosen.factor:.{decimals}f}" for each in (cell.usual, cell.usual_low, cell.usual_high))
    return f"{at} {chosen.label}".strip(), f"[{low}, {high}]"


def format_ratio(cell: Cell | OverallSpeed | CpuCost) -> str:
    """Format a ratio as the change from the baseline: `+12.1 %`, or `x3.1` from 2 on; "" without a ratio."""
    ratio = cell.speed if isinstance(cell, OverallSpeed) else cell.ratio
    if ratio is None:
        return ""
    if is_factor(ratio):
        return f"\N{MULTIPLICATION SIGN}{format_factor(ratio, count_factor_digits(cell.low, cell.high))}"
    return f"{_change(ratio, _count_percent_decimals(ratio, cell.low, cell.high))} %"


def format_interval(cell: Cell | OverallSpeed | CpuCost) -> str:
    """Format the interval of a ratio in the same form as its estimate: `[+9.8, +14.4]`; "" without an interval."""
    ratio = cell.speed if isinstance(cell, OverallSpeed) else cell.ratio
    if ratio is None or cell.low is None or cell.high is None:
        return ""
    if is_factor(ratio):
        digits = count_factor_digits(cell.low, cell.high)
        return f"[{format_factor(cell.low, digits)}, {format_factor(cell.high, digits)}]"
    decimals = _count_percent_decimals(ratio, cell.low, cell.high)
    return f"[{_change(cell.low, decimals)}, {_change(cell.high, decimals)}]"


def roughly(ratio: float) -> str:
    """Format a ratio as the change from the baseline with few digits: `+33 %`, or `x17` from 2 on."""
    return _times(ratio) if is_factor(ratio) else f"{_format_percent_ratio(ratio)} %"


def format_bounds(low: float | None, high: float | None, ratio: float) -> str:
    """Format an interval for a sentence, in the same form as its ratio: `+29 to +35 %`; "" without an interval."""
    if low is None or high is None:
        return ""
    if is_factor(ratio):
        return _format_ends(_times(low), _times(high), "")
    if high >= _MIXED_FROM:
        return f"{_format_percent_ratio(low)} % to {_times(high)}"
    return _format_ends(_format_percent_ratio(low), _format_percent_ratio(high), " %")


def format_change(ratio: float) -> str:
    """Format a ratio that was given, not measured, as a change: `+12.5 %`, or a factor from 2 on."""
    if is_factor(ratio):
        return f"\N{MULTIPLICATION SIGN}{ratio:.4g}"
    return f"{(ratio - 1) * 100:+.4g} %".replace("-", "\N{MINUS SIGN}") if ratio != 1 else "0 %"


def is_factor(ratio: float) -> bool:
    """Return whether a ratio is formatted as a factor and not as a percentage."""
    return ratio >= _FACTOR_FROM


def _format_ends(low: str, high: str, unit: str) -> str:
    return f"about {low}{unit}" if low == high else f"{low} to {high}{unit}"


def _format_few_digits(ratio: float) -> str:
    return f"{float(f'{ratio:.{3 if ratio >= 100 else 2}g}'):,.10g}"


def _times(ratio: float) -> str:
    return f"\N{MULTIPLICATION SIGN}{_format_few_digits(ratio)}"


def _format_percent_ratio(ratio: float) -> str:
    """Format a change in percent without decimals, except near 0 % and near -100 %."""
    away = abs(ratio - 1) * 100
    return _change(ratio, 1 if ratio < 0.1 or 0.05 <= away < 0.5 else 0)


def _change(ratio: float, decimals: int) -> str:
    """Format a ratio as a change in percent with a sign; 0 has none."""
    text = f"{abs(ratio - 1) * 100:.{decimals}f}"
    sign = "" if not float(text) else "+" if ratio > 1 else "\N{MINUS SIGN}"
    return f"{sign}{text}"


def format_cost(cell: Cell) -> str:
    """Format the cost of a stack, how much longer it takes or how much more it needs: `+3.9 %`, or a factor from 2 on.

    The text has no more digits than the interval supports. It is "" without a ratio.
    """
    if cell.ratio is None:
        return ""
    times = cell.ratio if cell.better == "lower" else 1 / cell.ratio
    if is_factor(times):
        return _times(times)
    half = 1.0 if cell.resolution is None else cell.resolution
    return f"{_change(times, 1 if half < _FINE else 0)} %"


def format_longer(times: float) -> str:
    """Format a factor of time without an interval: `+34 %`, or a factor from 2 on."""
    return _times(times) if is_factor(times) else f"+{float(f'{(times - 1) * 100:.2g}'):g} %"


def format_resolution(cell: Cell) -> str:
    """Format the smallest difference that a cell's interval can detect, as `± 2.1 %`."""
    return "" if cell.resolution is None else f"± {float(f'{cell.resolution * 100:.2g}'):g} %"


def format_tolerated_autocorrelation(cell: Cell) -> str:
    """Format the lag-1 autocorrelation of blocks up to which a cell would still be decided, rounded down."""
    most = cell.tolerated_autocorrelation
    return "" if most is None else f"{math.floor(most * 100) / 100:.2f}"


def reach(cell: Cell) -> tuple[str, ...]:
    """Return the remarks of a cell: smallest detectable difference if undecided, robustness, mean over all turns."""
    remarks = []
    if cell.verdict == "undecided":
        remarks.append(f"smallest detectable difference: {format_resolution(cell)}")
    elif cell.is_decided:
        remarks.append(
            f"verdict holds up to an autocorrelation of {format_tolerated_autocorrelation(cell)} between blocks"
        )
    if cell.mean_ratio is not None:
        remarks.append(f"by the mean over all turns: {roughly(cell.mean_ratio)}")
    return tuple(remarks)


def format_percent(share: float) -> str:
    """Format a share that was chosen, not measured, as `3 %`."""
    return f"{share * 100:.3g} %"


def usual_value(cell: Cell) -> str:
    """Format the usual value ± its standard deviation; without a ratio, the mean of all trials with a star."""
    if cell.usual is not None:
        return format_plus_minus(cell.usual, cell.usual_sd, cell.unit)
    return "" if cell.mean is None else f"{format_plus_minus(cell.mean, cell.sd, cell.unit)}*"


def relative_sd(cell: Cell) -> str:
    """Format the relative standard deviation of the usual value in percent; "" if unknown."""
    return "" if not cell.usual or cell.usual_sd is None else f"{cell.usual_sd / cell.usual * 100:.1f} %"


def point(value: float | None, unit: str) -> str:
    """Format a point of a sweep: a count, or a quantity in its unit; "" for None."""
    if value is None:
        return ""
    if not unit:
        return f"{value:,.10g}"
    chosen = choose_scale(value, unit)
    return f"{value / chosen.factor:.4g} {chosen.label}"


def sort_by_point(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with values, sorted so that the stacks of a metric and point are next to each other."""
    places = {key: at for at, key in enumerate(dict.fromkeys((cell.metric, cell.point) for cell in cells))}
    return sorted((cell for cell in cells if cell.trials), key=lambda cell: places[cell.metric, cell.point])


def cell_state(cell: Cell) -> str:
    """Return a cell's verdict, or `skipped` or `failed` if that is why it has no value."""
    if cell.verdict != "no value":
        return cell.verdict
    if cell.skipped:
        return "skipped"
    return "failed" if cell.failures and not cell.trials else "no value"


def describe_missing_value(cell: Cell) -> str:
    """Return the reason why a cell has no value; "" if it has one."""
    if cell.verdict != "no value":
        return ""
    if cell.skipped or not cell.failures or cell.trials:
        return cell.skipped or "; ".join(cell.notes)
    return "; ".join(dict.fromkeys(failure.reason for failure in cell.failures))


def strip_control_characters(text: str) -> str:
    """Replace control characters, which would steer a terminal; texts may come from an untrusted run folder."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def cut(text: str, length: int) -> str:
    """Shorten a text to `length` characters, at the end of a word if possible."""
    if len(text) <= length:
        return text
    short = text[: length - 1]
    return (short.rsplit(" ", 1)[0] if " " in short[length // 2 :] else short).rstrip(" ,;:") + "…"


def join_names(items: tuple[str, ...]) -> str:
    """Join names for a sentence: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def join_some(names: Sequence[str]) -> str:
    """Join the first names for a sentence, with the number of the others: `a, b, c and 4 more`."""
    more = (f"{len(names) - NAMED} more",) if len(names) > NAMED + 1 else ()
    return join_names((*names[:NAMED], *more) if more else tuple(names))


def _choose_from(value: float, scales: tuple[tuple[float, str], ...]) -> UnitScale:
    if value == 0:
        return UnitScale(1.0, next(label for factor, label in scales if factor == 1.0))
    factor, label = next((entry for entry in scales if abs(value) >= entry[0] * 0.9995), scales[-1])
    return UnitScale(factor, label)


def _count_decimals(spread: float) -> int:
    """Return the number of decimals that shows two digits of a deviation, at most four."""
    return next((decimals for decimals in range(4) if spread * 10**decimals >= 9.5), 4)


def _count_percent_decimals(ratio: float, low: float | None, high: float | None) -> int:
    if low is None or high is None:
        return 1
    if high - low >= 0.2:
        return 0
    return 2 if ratio < 0.1 and high - low < 0.004 else 1


def count_factor_digits(low: float | None, high: float | None) -> int:
    """Return the number of significant digits of a factor that its interval supports."""
    if low is None or high is None:
        return 2
    return 3 if high / low < _THREE_DIGITS else 2


def format_factor(ratio: float, digits: int) -> str:
    """Format a factor with `digits` significant digits; only factors of a million or more have an exponent."""
    if ratio >= 1e6:
        return f"{ratio:.1e}"
    rounded = float(f"{ratio:.{digits}g}")
    return f"{rounded:,.{max(digits - 1 - math.floor(math.log10(rounded)), 0)}f}" if rounded else "0"
