"""Metrics of the user's own: where in what a program printed each one is, its unit and its direction.

A regular expression has one group, which holds the number; it is searched in standard output and standard error, line
by line (`^` and `$` are the ends of lines), and matches once. A JSON pointer (RFC 6901), such as `/results/0/time`,
leads to a number of the one JSON document that standard output is. What is missing, or is there twice, fails the trial.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field

from tare.errors import TrialFailed, printed
from tare.model.names import GivenName
from tare.model.trials import Better, Metric, Value
from tare.workloads.loads.json_report import Part, read_report

_HINT = "`tare show` has the whole output; `tare shell STACK -- COMMAND` prints it"


def _has_one_group(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"this is no regular expression: {error}") from error
    if groups != 1 and text:
        raise ValueError(f"put one group in parentheses around the number, as in ([0-9.]+); it has {groups}")
    return text


def _is_pointer(text: str) -> str:
    if text and (not text.startswith("/") or re.search(r"~(?![01])", text)):
        raise ValueError("write a JSON pointer, such as /results/0/time; ~1 stands for / and ~0 for ~ in a name")
    return text


@dataclass(frozen=True, kw_only=True)
class OwnMetric(Metric):
    """A metric, and how to find its number: by `pattern` or by `pointer`. Its title is its name if not said."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: GivenName
    title: str = ""
    unit: Annotated[str, Field(max_length=32)] = ""
    better: Better
    pattern: Annotated[str, AfterValidator(_has_one_group)] = ""
    pointer: Annotated[str, AfterValidator(_is_pointer)] = ""

    def __post_init__(self) -> None:
        """Refuse one that cannot be found, or in two ways."""
        if bool(self.pattern) == bool(self.pointer):
            raise ValueError("a metric has either a pattern or a pointer")

    @property
    def metric(self) -> Metric:
        """As the report has it."""
        return Metric(self.name, self.title or self.name, self.unit, self.better, self.headline, self.overall)

    def number(self, output: str, errors: str) -> float:
        """Find its number in what a program printed; raises TrialFailed."""
        return self._pointed(output) if self.pointer else self._matched(f"{output}\n{errors}")

    def _matched(self, text: str) -> float:
        found = [match[1] for match in re.finditer(self.pattern, text, re.MULTILINE)]
        if len(found) != 1:
            often = f"matches {len(found)} times" if found else "does not match"
            raise TrialFailed(f"the pattern of {self.name} {often}; {printed(text.strip())}", _HINT)
        try:
            return self._finite(float(found[0]))
        except (TypeError, ValueError):  # an optional group may be None
            raise TrialFailed(f"the pattern of {self.name} finds {found[0]!r}, which is no number", _HINT) from None

    def _pointed(self, output: str) -> float:
        part = read_report(output, "the command", _HINT)
        for token in self.pointer.split("/")[1:]:
            part = _below(part, token.replace("~1", "/").replace("~0", "~"))
        value = part.found
        if isinstance(value, bool) or not isinstance(value, int | float):
            part.refuse(f"has no number at {self.pointer}")
        try:
            return self._finite(float(value))
        except (OverflowError, ValueError):
            part.refuse(f"has {str(value)[:50]} at {self.pointer}")

    def _finite(self, number: float) -> float:
        if not math.isfinite(number):
            raise ValueError
        return number


def values_of(metrics: Iterable[OwnMetric], output: str, errors: str) -> tuple[Value, ...]:
    """Read the values of a user's metrics; raises TrialFailed."""
    return tuple(Value(each.name, None, each.number(output, errors)) for each in metrics)


def _below(part: Part, token: str) -> Part:
    """Go down by one name or one position of a list."""
    found = part.found
    if isinstance(found, list) and re.fullmatch(r"0|[1-9][0-9]{0,9}", token) and int(token) < len(found):
        return Part(found[int(token)], part.text, part.program, part.hint)
    return part.part(token)
