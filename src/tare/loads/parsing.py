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

from tare.model.errors import TrialFailed, printed
from tare.model.trial import Output, Raw

_Value = TypeVar("_Value")


def each_once(values: tuple[_Value, ...]) -> tuple[_Value, ...]:
    """Return the values; raises ValueError for none at all, and where one is given twice."""
    if not values:
        raise ValueError("give at least one value")
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value} is given twice: give each value once")
    return values


def rising(what: str, least: int, most: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return a function that returns numbers; it raises ValueError unless they rise and are within the bounds."""

    def checked(numbers: tuple[int, ...]) -> tuple[int, ...]:
        bounded = (least - 1, *numbers, most + 1)
        if not numbers or any(later <= earlier for earlier, later in itertools.pairwise(bounded)):
            raise ValueError(f"give {what} that rise, from {least} to {most}, for example [{least}, {2 * least}]")
        return numbers

    return checked


EachOnce = Annotated[tuple[_Value, ...], AfterValidator(each_once)]


def check_labels(raw: Sequence[Raw], labels: Sequence[str]) -> None:
    """Raise TrialFailed unless there is one output of each label, in this order."""
    found = [each.label for each in raw]
    if found != list(labels):
        raise TrialFailed(f"expected outputs of {list(labels)}, found {found}")


def as_output(raw: Raw) -> Output:
    """Return an output as that of a command, for a failure to keep."""
    return Output(raw.argv, 0, raw.text.encode(), raw.errors.encode(), raw.seconds)


@dataclass(frozen=True)
class Part:
    """An object of a report. `text` is the whole of it, `program` what printed it."""

    found: object
    text: str
    program: str
    hint: str

    def has(self, name: str) -> bool:
        """Return whether it has something of this name."""
        return isinstance(self.found, dict) and name in self.found

    def value(self, name: str) -> object:
        """Return what has this name."""
        if not isinstance(self.found, dict) or name not in self.found:
            self.refuse(f"has no {name}")
        return self.found[name]

    def of(self, found: object) -> Part:
        """Return what was found in it as a part of the same report."""
        return Part(found, self.text, self.program, self.hint)

    def part(self, name: str) -> Part:
        """Return the object of this name."""
        return self.of(self.value(name))

    def only(self, name: str) -> Part:
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
        raise TrialFailed(f"{self.program}'s report {why}; {printed(self.text)}", self.hint)


def read_report(text: str, program: str, hint: str) -> Part:
    """Read a report of one object; raises TrialFailed for what is no JSON, such as NaN."""
    try:
        return Part(json.loads(text, parse_constant=_refuse_constant), text, program, hint)
    except (ValueError, RecursionError) as error:
        raise TrialFailed(f"{program} gave no JSON: {error}; {printed(text)}", hint) from error


def find_report(text: str, program: str, hint: str) -> Part:
    """Find the one JSON document among the lines of an output; raises TrialFailed for none, several, or a broken one.

    A line that only looks like the first of a document, such as `[1/3] reading`, is text.
    """
    try:
        found = list(_documents(text))
    except (ValueError, RecursionError) as error:
        raise TrialFailed(f"{program} gave no JSON: {error}; {printed(text)}", hint) from error
    if len(found) != 1:
        what = f"{len(found)} JSON documents" if found else "no JSON"
        raise TrialFailed(f"{program} gave {what}; {printed(text)}", hint)
    return Part(found[0], text, program, hint)


def _documents(text: str) -> Iterator[object]:
    """Yield the objects and lists of a text that begin and end with a line; raises ValueError for a broken one."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = 0
    while at < len(text):
        end = _line_end(text, at)
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
                    end = _line_end(text, stop)
        at = end + 1


def _line_end(text: str, at: int) -> int:
    """Return where the line ends that has this position."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
