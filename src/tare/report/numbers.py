"""Numbers as text: the change from the baseline, mean ± SD in one unit, glyphs for verdicts.

`tare.model.units` writes single quantities; here are those that share a scale or need an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tare.statistics.cells import Cell, OverallSpeed

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
NAMED = 3  # in a sentence
_FACTOR_FROM = 2.0  # from here on a factor is easier to read than a percentage
_MIXED_FROM = 10.0  # an interval that begins below twice has its end as a factor from here on
_THREE_DIGITS = 1.1  # the upper end of an interval over the lower, up to which a factor has three digits
_FINE = 0.03  # half the width of an interval, up to which a cost has a decimal
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1024.0**4, "TiB"), (1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"), (1.0, "B"))
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


@dataclass(frozen=True)
class UnitScale:
    """A unit for people: what to divide base units by, and its name."""

    factor: float
    label: str


def choose_scale(value: float, unit: str) -> UnitScale:
    """Choose the scale in which a value in base units has one to three digits before the point."""
    if unit == "s":
        return _choose_from(value, _TIMES)
    if unit == "bytes":
        return _choose_from(value, _SIZES)
    chosen = _choose_from(value, _PREFIXES)
    if unit.startswith("bytes/"):
        return UnitScale(chosen.factor, f"{chosen.label}B/{unit.removeprefix('bytes/')}")
    return UnitScale(chosen.factor, f"{chosen.label} {unit}".strip())


def format_plus_minus(mean: float, sd: float | None, unit: str) -> str:
    """Write mean ± standard deviation in one scale, with as many digits as the deviation supports."""
    chosen = choose_scale(mean, unit)
    mean, spread = mean / chosen.factor, None if sd is None else sd / chosen.factor
    decimals = _count_decimals(spread) if spread else 3 - len(f"{abs(mean):.0f}")
    text = f"{mean:.{max(decimals, 0)}f}"
    if spread is not None:
        text += f" ± {spread:.{max(decimals, 0)}f}"
    return f"{text} {chosen.label}".strip()


def format_quantity_interval(cell: Cell) -> tuple[str, str]:
    """Write a usual value and its own interval in one scale, `221 ms` and `[210, 233]`; empty without an interval."""
    if cell.usual is None or cell.usual_low is None or cell.usual_high is None:
        return "", ""
    chosen = choose_scale(cell.usual, cell.unit)
    width = (cell.usual_high - cell.usual_low) / 2 / chosen.factor
    decimals = max(_count_decimals(width) if width else 3 - len(f"{cell.usual / chosen.factor:.0f}"), 0)
    at, low, high = (f"{each / chosen.factor:.{decimals}f}" for each in (cell.usual, cell.usual_low, cell.usual_high))
    return f"{at} {chosen.label}".strip(), f"[{low}, {high}]"


def format_ratio(cell: Cell | OverallSpeed) -> str:
    """Write a ratio as the change from the baseline: `+12.1 %`, or `x3.1` from twice on; empty where there is none."""
    ratio = cell.speed if isinstance(cell, OverallSpeed) else cell.ratio
    if ratio is None:
        return ""
    if is_factor(ratio):
        return f"\N{MULTIPLICATION SIGN}{format_factor(ratio, count_factor_digits(cell.low, cell.high))}"
    return f"{_change(ratio, _count_percent_decimals(ratio, cell.low, cell.high))} %"


def format_interval(cell: Cell | OverallSpeed) -> str:
    """Write the interval of a ratio in the same terms as its estimate: `[+9.8, +14.4]`; empty where there is none."""
    ratio = cell.speed if isinstance(cell, OverallSpeed) else cell.ratio
    if ratio is None or cell.low is None or cell.high is None:
        return ""
    if is_factor(ratio):
        digits = count_factor_digits(cell.low, cell.high)
        return f"[{format_factor(cell.low, digits)}, {format_factor(cell.high, digits)}]"
    decimals = _count_percent_decimals(ratio, cell.low, cell.high)
    return f"[{_change(cell.low, decimals)}, {_change(cell.high, decimals)}]"


def roughly(ratio: float) -> str:
    """Write a ratio as the change from the baseline with few digits: `+33 %`, or `x17` from twice on."""
    return _times(ratio) if is_factor(ratio) else f"{_format_percent_ratio(ratio)} %"


def format_bounds(low: float | None, high: float | None, ratio: float) -> str:
    """Write an interval as text, in the terms of its ratio: `+29 to +35 %`; empty where there is none."""
    if low is None or high is None:
        return ""
    if is_factor(ratio):
        return _format_ends(_times(low), _times(high), "")
    if high >= _MIXED_FROM:
        return f"{_format_percent_ratio(low)} % to {_times(high)}"
    return _format_ends(_format_percent_ratio(low), _format_percent_ratio(high), " %")


def format_change(ratio: float) -> str:
    """Write a ratio that somebody stated, as the change that it is: `+12.5 %`, or a factor from twice on."""
    if is_factor(ratio):
        return f"\N{MULTIPLICATION SIGN}{ratio:.4g}"
    return f"{(ratio - 1) * 100:+.4g} %".replace("-", "\N{MINUS SIGN}") if ratio != 1 else "0 %"


def is_factor(ratio: float) -> bool:
    """Return whether a ratio is written as a factor, which is easier to read than a percentage."""
    return ratio >= _FACTOR_FROM


def _format_ends(low: str, high: str, unit: str) -> str:
    return f"about {low}{unit}" if low == high else f"{low} to {high}{unit}"


def _format_few_digits(ratio: float) -> str:
    return f"{float(f'{ratio:.{3 if ratio >= 100 else 2}g}'):,.10g}"


def _times(ratio: float) -> str:
    return f"\N{MULTIPLICATION SIGN}{_format_few_digits(ratio)}"


def _format_percent_ratio(ratio: float) -> str:
    """Write a change in percent without decimals, except near no change and near -100 %."""
    away = abs(ratio - 1) * 100
    return _change(ratio, 1 if ratio < 0.1 or 0.05 <= away < 0.5 else 0)


def _change(ratio: float, decimals: int) -> str:
    """Write a ratio as a change in percent with a sign, which no change has not."""
    text = f"{abs(ratio - 1) * 100:.{decimals}f}"
    sign = "" if not float(text) else "+" if ratio > 1 else "\N{MINUS SIGN}"
    return f"{sign}{text}"


def format_cost(cell: Cell) -> str:
    """Write how much longer a stack takes, or how much more it needs: `+3.9 %`, from twice on as a factor.

    It has no more digits than its interval supports; empty where there is no ratio.
    """
    if cell.ratio is None:
        return ""
    times = cell.ratio if cell.better == "lower" else 1 / cell.ratio
    if is_factor(times):
        return _times(times)
    half = 1.0 if cell.resolution is None else cell.resolution
    return f"{_change(times, 1 if half < _FINE else 0)} %"


def format_longer(times: float) -> str:
    """Write how much longer something takes, without an interval: `+34 %`, as a factor from twice on."""
    return _times(times) if is_factor(times) else f"+{float(f'{(times - 1) * 100:.2g}'):g} %"


def format_resolution(cell: Cell) -> str:
    """Write the difference to the baseline that a cell's interval could have shown, as `± 2.1 %`."""
    return "" if cell.resolution is None else f"± {float(f'{cell.resolution * 100:.2g}'):g} %"


def format_tolerated_autocorrelation(cell: Cell) -> str:
    """Write the lag-1 autocorrelation of blocks up to which a cell's interval would still decide, rounded down."""
    most = cell.tolerated_autocorrelation
    return "" if most is None else f"{math.floor(most * 100) / 100:.2f}"


def reach(cell: Cell) -> tuple[str, ...]:
    """Describe what an open cell would have shown, what a decided one rests on, and the mean over all turns."""
    said = []
    if cell.verdict == "undecided":
        said.append(f"could have shown a difference of {format_resolution(cell)}")
    elif cell.is_decided:
        said.append(f"would hold up to a correlation of {format_tolerated_autocorrelation(cell)} between blocks")
    if cell.mean_ratio is not None:
        said.append(f"by the mean over all turns {roughly(cell.mean_ratio)}")
    return tuple(said)


def format_percent(share: float) -> str:
    """Write a share that somebody chose, as `3 %`."""
    return f"{share * 100:.3g} %"


def usual_value(cell: Cell) -> str:
    """Write the usual value ± its standard deviation; the mean of all trials, with a star, where there is no ratio."""
    if cell.usual is not None:
        return format_plus_minus(cell.usual, cell.usual_sd, cell.unit)
    return "" if cell.mean is None else f"{format_plus_minus(cell.mean, cell.sd, cell.unit)}*"


def relative_sd(cell: Cell) -> str:
    """Write the relative standard deviation of the usual value in percent; empty where there is none."""
    return "" if not cell.usual or cell.usual_sd is None else f"{cell.usual_sd / cell.usual * 100:.1f} %"


def point(value: float | None, unit: str) -> str:
    """Write a point of a sweep: a plain count, or a quantity in its unit."""
    if value is None:
        return ""
    if not unit:
        return f"{value:,.10g}"
    chosen = choose_scale(value, unit)
    return f"{value / chosen.factor:.4g} {chosen.label}"


def sort_by_point(cells: Sequence[Cell]) -> list[Cell]:
    """Put the stacks of one metric and point next to each other, where the eye compares them, if they have a value."""
    places = {key: at for at, key in enumerate(dict.fromkeys((cell.metric, cell.point) for cell in cells))}
    return sorted((cell for cell in cells if cell.trials), key=lambda cell: places[cell.metric, cell.point])


def cell_state(cell: Cell) -> str:
    """Describe in one word what a cell is: its verdict, or `skipped` or `failed` where that is why it has no value."""
    if cell.verdict != "no value":
        return cell.verdict
    if cell.skipped:
        return "skipped"
    return "failed" if cell.failures and not cell.trials else "no value"


def describe_missing_value(cell: Cell) -> str:
    """Describe why a cell has no value; empty where it has one."""
    if cell.verdict != "no value":
        return ""
    if cell.skipped or not cell.failures or cell.trials:
        return cell.skipped or "; ".join(cell.notes)
    return "; ".join(dict.fromkeys(failure.reason for failure in cell.failures))


def strip_control_characters(text: str) -> str:
    """Leave out what would steer a terminal: names and reasons may come from an untrusted run folder."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def cut(text: str, length: int) -> str:
    """Shorten a text to a length, at a word where there is one."""
    if len(text) <= length:
        return text
    short = text[: length - 1]
    return (short.rsplit(" ", 1)[0] if " " in short[length // 2 :] else short).rstrip(" ,;:") + "…"


def join_names(items: tuple[str, ...]) -> str:
    """Write a list as a sentence does: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def join_some(names: Sequence[str]) -> str:
    """Write the first of several names as a sentence does, and how many more there are."""
    more = (f"{len(names) - NAMED} more",) if len(names) > NAMED + 1 else ()
    return join_names((*names[:NAMED], *more) if more else tuple(names))


def _choose_from(value: float, scales: tuple[tuple[float, str], ...]) -> UnitScale:
    if value == 0:
        return UnitScale(1.0, next(label for factor, label in scales if factor == 1.0))
    factor, label = next((entry for entry in scales if abs(value) >= entry[0] * 0.9995), scales[-1])
    return UnitScale(factor, label)


def _count_decimals(spread: float) -> int:
    """Return the decimals that show two digits of a deviation, at most four."""
    return next((decimals for decimals in range(4) if spread * 10**decimals >= 9.5), 4)


def _count_percent_decimals(ratio: float, low: float | None, high: float | None) -> int:
    if low is None or high is None:
        return 1
    if high - low >= 0.2:
        return 0
    return 2 if ratio < 0.1 and high - low < 0.004 else 1


def count_factor_digits(low: float | None, high: float | None) -> int:
    """Return the significant digits of a factor that its interval supports."""
    if low is None or high is None:
        return 2
    return 3 if high / low < _THREE_DIGITS else 2


def format_factor(ratio: float, digits: int) -> str:
    """Write a factor with so many significant digits, and without an exponent below a million."""
    if ratio >= 1e6:
        return f"{ratio:.1e}"
    rounded = float(f"{ratio:.{digits}g}")
    return f"{rounded:,.{max(digits - 1 - math.floor(math.log10(rounded)), 0)}f}" if rounded else "0"
