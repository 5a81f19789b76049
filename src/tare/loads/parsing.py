"""Rules for settings that are lists, and readers of outputs: labels, and reports of programs as JSON.

What is missing in a report, or absurd, fails the trial with a reason that quotes it. `read_report` takes an output that
is one report as a whole, as that of tare's own loads. `find_report` also takes lines of text before and after it, as
other programs print them.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NoReturn, TypeVar

from pydantic import AfterValidator

from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Output, RawOutput

_Value = TypeVar("_Value")


def check_unique(values: tuple[_Value, ...]) -> tuple[_Value, ...]:
    """Return the values; raises ValueError for none at all, and where one is given twice."""
    if not values:
        raise ValueError("give at least one value")
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value} is given twice: give each value once")
    return values


def rising_check(noun: str, minimum: int, maximum: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return a function that returns numbers; it raises ValueError unless they rise and are within the bounds."""

    def check(numbers: tuple[int, ...]) -> tuple[int, ...]:
        bounded = (minimum - 1, *numbers, maximum + 1)
        if not numbers or any(later <= earlier for earlier, later in itertools.pairwise(bounded)):
            raise ValueError(
                f"give {noun} that rise, from {minimum} to {maximum}, for example [{minimum}, {2 * minimum}]"
            )
        return numbers

    return check


EachOnce = Annotated[tuple[_Value, ...], AfterValidator(check_unique)]


def check_labels(raw: Sequence[RawOutput], labels: Sequence[str]) -> None:
    """Raise TrialFailed unless there is one output of each label, in this order."""
    found = [each.label for each in raw]
    if found != list(labels):
        raise TrialFailed(f"expected outputs of {list(labels)}, found {found}")


def as_output(raw: RawOutput) -> Output:
    """Return an output as that of a command, for a failure to keep."""
    return Output(raw.argv, 0, raw.text.encode(), raw.errors.encode(), raw.seconds)


@dataclass(frozen=True)
class ReportObject:
    """An object of a report. `text` is the whole of it, `program` what printed it."""

    content: object
    text: str
    program: str
    hint: str

    def has_key(self, name: str) -> bool:
        """Return whether it has something of this name."""
        return isinstance(self.content, dict) and name in self.content

    def value(self, name: str) -> object:
        """Return what has this name."""
        if not isinstance(self.content, dict) or name not in self.content:
            self.refuse(f"has no {name}")
        return self.content[name]

    def of(self, found: object) -> ReportObject:
        """Return what was found in it as a part of the same report."""
        return ReportObject(found, self.text, self.program, self.hint)

    def child(self, name: str) -> ReportObject:
        """Return the object of this name."""
        return self.of(self.value(name))

    def only_entry(self, name: str) -> ReportObject:
        """Return the one object of a list."""
        found = self.value(name)
        if not isinstance(found, list) or len(found) != 1:
            self.refuse(f"has not one of {name}")
        return self.of(found[0])

    def word(self, name: str) -> str:
        """Return a text, or the beginning of it."""
        return str(self.value(name))[:200]

    def number(self, name: str) -> float:
        """Return a number that is not negative."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
            self.refuse(f"has {str(value)[:50]} for {name}")
        return float(value)

    def positive(self, name: str) -> float:
        """Return a number that is more than 0."""
        value = self.number(name)
        if not value:
            self.refuse(f"has 0 for {name}")
        return value

    def refuse(self, why: str) -> NoReturn:
        """Raise TrialFailed."""
        raise TrialFailed(f"{self.program}'s report {why}; {quote_output(self.text)}", self.hint)


def read_report(text: str, program: str, hint: str) -> ReportObject:
    """Read a report of one object; raises TrialFailed for what is no JSON, such as NaN."""
    try:
        return ReportObject(json.loads(text, parse_constant=_refuse_constant), text, program, hint)
    except (ValueError, RecursionError) as error:
        raise TrialFailed(f"{program} gave no JSON: {error}; {quote_output(text)}", hint) from error


def find_report(text: str, program: str, hint: str) -> ReportObject:
    """Find the one JSON document among the lines of an output; raises TrialFailed for none, several, or a broken one.

    A line that only looks like the first of a document, such as `[1/3] reading`, is text.
    """
    try:
        found = list(_find_documents(text))
    except (ValueError, RecursionError) as error:
        raise TrialFailed(f"{program} gave no JSON: {error}; {quote_output(text)}", hint) from error
    if len(found) != 1:
        what = f"{len(found)} JSON documents" if found else "no JSON"
        raise TrialFailed(f"{program} gave {what}; {quote_output(text)}", hint)
    return ReportObject(found[0], text, program, hint)


def _find_documents(text: str) -> Iterator[object]:
    """Yield the objects and lists of a text that begin and end with a line; raises ValueError for a broken one."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = 0
    while at < len(text):
        end = _find_line_end(text, at)
        line = text[at:end].lstrip()
        if line.startswith(("{", "[")):
            try:
                found, stop = decoder.raw_decode(text, end - len(line))
            except json.JSONDecodeError as error:
                if error.pos > end:  # a document of several lines: those within it are none
                    raise
            else:
                if found and (stop > end or not text[stop:end].strip()):
                    yield found
                    end = _find_line_end(text, stop)
        at = end + 1


def _find_line_end(text: str, at: int) -> int:
    """Return where the line ends that has this position."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
