"""Reports of programs as JSON: what is missing in one, or absurd, fails the trial with a reason that quotes it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from typing import NoReturn

from tare.errors import TrialFailed, printed


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

    def part(self, name: str) -> Part:
        """Return the object of this name."""
        return replace(self, found=self.value(name))

    def only(self, name: str) -> Part:
        """Return the one object of a list."""
        found = self.value(name)
        if not isinstance(found, list) or len(found) != 1:
            self.refuse(f"has not one of {name}")
        return replace(self, found=found[0])

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

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number")

    try:
        return Part(json.loads(text, parse_constant=refuse), text, program, hint)
    except (ValueError, RecursionError) as error:
        raise TrialFailed(f"{program} gave no JSON: {error}; {printed(text)}", hint) from error
