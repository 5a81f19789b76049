"""Parsers and formatters of quantities with units, and checks of user-chosen names.

Inside tare a quantity is a plain number in base units (seconds, bytes, a share from 0 to 1). In a suite it is a text
with a unit, and a bare number is an error. Fields of a workload or technology have the types `Duration`, `Size` and
`Percent`, with a number as the default: `timeout: Duration = 30.0`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, cast, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator

from tare.model.errors import UsageError

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", start=1)},
    "KB": 1000,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DURATION = re.compile(rf"({_NUMBER})(us|ms|s|m|h|d)")
_DURATIONS = re.compile(rf"(?:{_NUMBER}(?:us|ms|s|m|h|d))+")
_SIZE = re.compile(rf"({_NUMBER}) ?([A-Za-z]+)")
_PERCENT = re.compile(rf"({_NUMBER}) ?%")
_RATE = re.compile(rf"({_NUMBER})/([a-z]+)")
_SCALES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_SMALL_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def parse_duration(text: object) -> float:
    """Parse `90s`, `5m`, `1h30m` or `250ms` to seconds; raises ValueError for anything else."""
    if isinstance(text, str) and text.startswith("-") and _DURATIONS.fullmatch(text[1:]):
        raise ValueError("a duration is not below 0, for example 90s or 5m")
    if not isinstance(text, str) or not _DURATIONS.fullmatch(text):
        raise ValueError("a duration needs its unit, for example 90s or 5m")
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))


def parse_size(text: object) -> int:
    """Parse `512MiB`, `4KiB` or `2GB` to bytes; raises ValueError for anything else.

    `KiB`, `MiB`, `GiB` and `TiB` are powers of 1024, `kB`, `MB`, `GB` and `TB` powers of 1000 (IEC 80000-13).
    """
    match = _SIZE.fullmatch(text.removeprefix("-")) if isinstance(text, str) else None
    if match and match[2] in _BYTES and match.string != text:
        raise ValueError("a size is not below 0, for example 512MiB or 2GB")
    if match is None or match[2] not in _BYTES:
        raise ValueError("a size needs its unit, for example 512MiB or 2GB")
    size = Decimal(match[1]) * _BYTES[match[2]]  # with a float, 1.1kB would not be a whole number of bytes
    if size != int(size):
        raise ValueError("a size is a whole number of bytes, for example 512MiB or 2GB")
    return int(size)


def parse_rate(text: str, seconds: Mapping[str, float]) -> float:
    """Parse a rate such as `12000/s` or `5/h` to a number per second, which is above 0.

    `seconds` maps the accepted units to their length. Raises ValueError for anything else.
    """
    match = _RATE.fullmatch(text)
    if match is None or match[2] not in seconds or not float(match[1]):
        raise ValueError("a rate is a number above 0 per unit of time, for example 12000/s")
    return float(match[1]) / seconds[match[2]]


def parse_percent(text: object) -> float:
    """Parse a percentage to a share, such as `3%` to 0.03; raises ValueError for anything else."""
    match = _PERCENT.fullmatch(text) if isinstance(text, str) else None
    if match is None and isinstance(text, str) and text.endswith("%"):
        raise ValueError("a share is a number from 0% on, for example 3%")
    if match is None:
        raise ValueError("a share needs its percent sign, for example 3%")
    return float(Decimal(match[1]) / 100)


Duration = Annotated[float, BeforeValidator(parse_duration, json_schema_input_type=str)]
Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=str)]


def parse_margin(text: object) -> float:
    """Parse a margin such as "3%" to a share between 0 and 1; raises ValueError."""
    share = parse_percent(text)
    if not 0 < share < 1:
        raise ValueError("a margin lies between 0% and 100%, for example 3%")
    return share


def parse_margin_option(text: str | None) -> float | None:
    """Parse the command-line option --margin to a share; None if it was not given. Raises UsageError."""
    return None if text is None else parse_option("--margin", text, parse_margin, "3%")


def parse_option(option: str, text: str, parse: Callable[[str], float], example: str) -> float:
    """Parse the value of a command-line option; raises UsageError with an example of the option."""
    try:
        return parse(text)
    except ValueError as error:
        problem = str(error).partition(", for example")[0]  # the hint has an example of this option
        raise UsageError(f"{option} {text}: {problem}", f"for example {option} {example}") from error


Percent = Annotated[float, BeforeValidator(parse_percent, json_schema_input_type=str)]
Margin = Annotated[float, BeforeValidator(parse_margin, json_schema_input_type=str)]


def to_singular(unit: str) -> str:
    """Return a printed unit without a plural s: a program may print `1 second` and `2 seconds`.

    Units of up to three letters, such as `ms` and `ops`, stay as they are.
    """
    return unit.removesuffix("s") if len(unit) > 3 else unit


def format_setting(value: object, annotation: object = None) -> str:
    """Return a setting in the syntax of a suite: `"1s"`, `"32MiB"`, `"3%"`, `["GET", "SET"]`.

    `annotation` is the type of the setting, which decides the unit. A table is written inline.
    """
    if isinstance(value, dict) and value:
        return f"{{ {', '.join(f'{format_setting(name)} = {format_setting(each)}' for name, each in value.items())} }}"
    if isinstance(value, list | tuple):
        inner = [each for each in get_args(_strip_annotation(annotation)) if each is not Ellipsis] or [None]
        return f"[{', '.join(format_setting(each, inner[0]) for each in value)}]"
    if (parse := _find_parser(annotation)) and isinstance(value, float | int):
        return json.dumps(_format_with_unit(value, parse))
    # A JSON text is a TOML text, except that TOML forbids the control character DEL.
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


def format_like(example: object, value: object) -> str:
    """Return a number in the notation of an example from a suite, such as `"10m"` for 600 and the example `"90s"`."""
    if not isinstance(value, float | int):
        return str(value)
    parsers: tuple[Callable[[object], float], ...] = (parse_duration, parse_size, parse_percent)
    for parse in parsers if value else ():  # a message about a bound of 0 is clear without a unit
        try:
            parse(example)
        except ValueError:
            continue
        return json.dumps(_format_with_unit(value, parse))
    return f"{value:g}"


def _strip_annotation(annotation: object) -> object:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _find_parser(annotation: object) -> Callable[[object], float] | None:
    """Return the parser of a type's text; None if the type takes values unchanged."""
    parser = next(
        (each.func for each in getattr(annotation, "__metadata__", ()) if isinstance(each, BeforeValidator)), None
    )
    return cast("Callable[[object], float] | None", parser)


def _format_with_unit(value: float, parse: Callable[[object], float]) -> str:
    """Return the shortest text that parses to this value, or to the nearest one."""
    units = _SECONDS if parse is parse_duration else _BYTES if parse is parse_size else {"%": 0.01}
    texts = (f"{value / scale:.6f}".rstrip("0").rstrip(".") + unit for unit, scale in units.items())

    def error(text: str) -> float:
        try:
            return abs(parse(text) - value)
        except ValueError:
            return math.inf

    return min(texts, key=lambda text: (error(text), len(text)))


def format_count(number: int, word: str) -> str:
    """Return a number with a noun in singular or plural, such as `1 stack` or `2 stacks`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def format_duration(seconds: float) -> str:
    """Return seconds as text: `4.2 ms`, `1.5 s`, `2 min 5 s`, `1 h 30 min`."""
    if not abs(seconds) >= 59.95 or math.isinf(seconds):  # negated, so that NaN takes this branch, too
        return _format_short_time(seconds)
    sign = "-" if seconds < 0 else ""
    minutes, rest = divmod(round(abs(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min")) if hours else ((minutes, "min"), (rest, "s"))
    return sign + " ".join(f"{number} {unit}" for number, unit in parts if number)


def format_size(size_bytes: float) -> str:
    """Return bytes as text, in powers of 1024: `512 MiB`, `1.5 KiB`."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{_format_three_digits(size)} {unit}"


def format_quantity(value: float, unit: str) -> str:
    """Return a value in base units as text of three significant digits: `146k requests/s`, `4.2 ms`, `12.3 GB/s`.

    The prefix is part of the unit for seconds and bytes, and part of the number for all others. The unit may be "".
    """
    if unit == "s":
        return _format_short_time(value)
    if unit == "bytes":
        return format_size(value)
    if unit == "%":
        return f"{_format_three_digits(value)}%"
    prefix, scale = _choose_prefix(value)
    number = _format_three_digits(value / scale)
    if unit.startswith("bytes/"):
        return f"{number} {prefix}B/{unit.removeprefix('bytes/')}"
    return f"{number}{prefix} {unit}".rstrip()


def _format_short_time(seconds: float) -> str:
    for unit, scale in _SMALL_TIMES:
        if math.isfinite(seconds) and _round_to_three_digits(seconds / scale) >= 1:
            return f"{_format_three_digits(seconds / scale)} {unit}"
    nothing_finer = seconds == 0 or not math.isfinite(seconds)
    return f"{seconds:g} s" if nothing_finer else f"{_format_three_digits(seconds / 1e-9)} ns"


def _choose_prefix(value: float) -> tuple[str, float]:
    if not math.isfinite(value):
        return "", 1.0
    return next(((prefix, scale) for prefix, scale in _SCALES if _round_to_three_digits(value / scale) >= 1), ("", 1.0))


def _round_to_three_digits(value: float) -> float:
    """Return the absolute value in three digits, to choose a unit: 999.96 k is printed as 1 M."""
    return abs(float(f"{value:.3g}"))


def _format_three_digits(value: float) -> str:
    """Return three significant digits without an exponent. Digits before the point stay, trailing zeros go."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(_round_to_three_digits(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def check_given_name(text: str) -> str:
    """Return a name that can be part of a file name; raises ValueError for any other."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,63}", text):
        raise ValueError("use up to 64 of a-z, 0-9, dot and hyphen, a letter or digit first")
    return text


def _check_package_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", text):
        raise ValueError('write names of Debian packages, for example "php-fpm"')
    return text


GivenName = Annotated[str, AfterValidator(check_given_name)]
PackageName = Annotated[str, AfterValidator(_check_package_name)]
