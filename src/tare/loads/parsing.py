"""Validators of settings that are lists, and parsers of outputs: labels and JSON reports.

A missing or impossible value in a report fails the trial with a reason that quotes the report. `read_report` parses an
output that is a single report. `find_report` also accepts lines of text before and after it, as user-supplied programs
print them.
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
    """Return the values; raises ValueError for an empty tuple and for duplicates."""
    if not values:
        raise ValueError("give at least one value")
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value} is given twice: give each value once")
    return values


def rising_check(noun: str, minimum: int, maximum: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return a validator that raises ValueError unless numbers rise from `minimum` to at most `maximum`."""

    def check(numbers: tuple[int, ...]) -> tuple[int, ...]:
        bounded = (minimum - 1, *numbers, maximum + 1)
        if not numbers or any(later <= earlier for earlier, later in itertools.pairwise(bounded)):
            raise ValueError(
                f"give {noun} that rise, from {minimum} to {maximum}, for example [{minimum}, {2 * minimum}]"
            )
        return numbers

    return check


EachOnce = Annotated[tuple[_Value, ...], AfterValidator(check_unique)]


class UnexpectedLabels(TrialFailed):
    """Outputs are missing or have other labels, as in an incomplete round."""


def check_labels(raw: Sequence[RawOutput], labels: Sequence[str]) -> None:
    """Raise UnexpectedLabels unless the outputs have exactly these labels, in this order."""
    found = [each.label for each in raw]
    if found != list(labels):
        raise UnexpectedLabels(f"expected outputs of {list(labels)}, found {found}")


def as_output(raw: RawOutput) -> Output:
    """Convert a raw output to a command's output, as a TrialFailed stores it."""
    return Output(raw.argv, 0, raw.text.encode(), raw.errors.encode(), raw.seconds)


@dataclass(frozen=True)
class ReportObject:
    """Part of a report. `text` is the whole report, `program` the program that printed it, both for errors."""

    content: object
    text: str
    program: str
    hint: str

    def has_key(self, name: str) -> bool:
        """Return whether the object has this key."""
        return isinstance(self.content, dict) and name in self.content

    def value(self, name: str) -> object:
        """Return the value of a key; raises TrialFailed if it is missing."""
        if not isinstance(self.content, dict) or name not in self.content:
            self.refuse(f"has no {name}")
        return self.content[name]

    def of(self, content: object) -> ReportObject:
        """Return this content as a part of the same report."""
        return ReportObject(content, self.text, self.program, self.hint)

    def child(self, name: str) -> ReportObject:
        """Return the object under a key; raises TrialFailed if it is missing."""
        return self.of(self.value(name))

    def only_entry(self, name: str) -> ReportObject:
        """Return the only entry of the list under a key; raises TrialFailed for any other number of entries."""
        found = self.value(name)
        if not isinstance(found, list) or len(found) != 1:
            self.refuse(f"has not one of {name}")
        return self.of(found[0])

    def word(self, name: str) -> str:
        """Return the value of a key as text of at most 200 characters; raises TrialFailed if it is missing."""
        return str(self.value(name))[:200]  # a broken program may print megabytes, which the message would repeat

    def number(self, name: str) -> float:
        """Return the number under a key; raises TrialFailed for a negative or infinite one, or for no number."""
        value = self.value(name)
        # JSON has integers of any size: one above the largest float would raise OverflowError in float().
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
            self.refuse(f"has {str(value)[:50]} for {name}")
        return float(value)

    def positive(self, name: str) -> float:
        """Return the number under a key; raises TrialFailed unless it is above 0."""
        value = self.number(name)
        if not value:
            self.refuse(f"has 0 for {name}")
        return value

    def refuse(self, why: str) -> NoReturn:
        """Raise TrialFailed with this reason, quoting the report."""
        raise TrialFailed(f"{self.program}'s report {why}; {quote_output(self.text)}", self.hint)


def read_report(text: str, program: str, hint: str) -> ReportObject:
    """Parse an output that is one report; raises TrialFailed for text that is no JSON, such as NaN."""
    try:
        return ReportObject(json.loads(text, parse_constant=_refuse_constant), text, program, hint)
    except (ValueError, RecursionError) as error:
        raise TrialFailed(f"{program} gave no JSON: {error}; {quote_output(text)}", hint) from error


def find_report(text: str, program: str, hint: str) -> ReportObject:
    """Parse the only JSON document among the lines of an output; raises TrialFailed for none, several or a broken one.

    A line that only resembles the begin of a document, such as `[1/3] reading`, is text.
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
    """Yield the objects and lists of a text that fill whole lines; raises ValueError for a broken one."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = 0
    while at < len(text):
        end = _find_line_end(text, at)
        line = text[at:end].lstrip()
        if line.startswith(("{", "[")):
            try:
                found, stop = decoder.raw_decode(text, end - len(line))
            except json.JSONDecodeError as error:
                if error.pos > end:  # a broken document of several lines; an error in its first line means text
                    raise
            else:
                if found and (stop > end or not text[stop:end].strip()):
                    yield found
                    end = _find_line_end(text, stop)
        at = end + 1


def _find_line_end(text: str, at: int) -> int:
    """Return the end of the line at a position."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
