"""What was captured of a workload: tests/samples/NAME/captured.toml says what the files beside it are, and hold.

refused_with = "no result"         # why a damaged output is refused: a regular expression
incomplete_with = "^expected "     # why missing outputs, or too many of them, are
accepts = ["noise before"]         # kinds of damage that change nothing

[metrics]                          # all that it declares, in their order; those in parentheses are no headline
rate = "events/s, higher"
share = "(%, lower)"

[settings]
read = [{ given = { duration = "2s" }, becomes = { duration = 2.0 } }]
refused = [{ duration = "0s" }]    # each at its key

[[captured]]
settings = { threads = 1 }
outputs = [{ label = "sysbench", file = "one-thread.txt" }]
values = { rate = 1764.9, "get 50" = 63891.74 }        # by metric, and point
other_settings = [{ threads = 2 }]                     # those of other outputs
failed = [["killed.txt", "signal 9"]]                  # other files, and why none can be the first output
changed = [["sysbench 1.", "sysbench 2."]]             # nor can that with this in its place; why, if it is special
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from plug_ins import own
from tare.model.errors import TrialFailed
from tare.model.trial import RawOutput
from tare.plugins.workload import Workload

SAMPLES = Path(__file__).parents[1] / "samples"
RUN: TypeAdapter[tuple[RawOutput, ...]] = TypeAdapter(tuple[RawOutput, ...])
Values = Mapping[tuple[str, float | None], float]
_STRICT = {"extra": "forbid"}
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)", re.ASCII)
_NO_NUMBERS = ("", "nan", "-nan", "inf", "many", "1e400", "9" * 400, f"{'9' * 400}.0", "٣")
_NO_JSON_NUMBERS = ("", "nan", "NaN", "Infinity", "1e400", "9" * 400, "null", '"12"', "true", "[]")
_MOST_PREFIXES, _NEAR_END = 300, 80


@dataclass(frozen=True)
class Printed:
    """An output: a file, or the text that tare itself writes.

    Of a file as a run folder has it, `run` takes the first output that counts, and `trial` all of them.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    label: str = ""
    file: str = ""
    text: str = ""
    run: str = ""
    trial: str = ""
    argv: tuple[str, ...] = ()
    seconds: float = 1.0
    edits: tuple[tuple[str, str], ...] = ()  # what it would hold with other settings
    times: int = 1

    def raw(self, folder: Path) -> tuple[RawOutput, ...]:
        """Return it as the workload's parser is given it, as often as it comes."""
        if file := self.run or self.trial:
            counted = [each for each in RUN.validate_json((folder / file).read_bytes()) if not each.warm_up]
            return tuple(counted[:1] if self.run else counted)
        text = ((folder / self.file).read_text(encoding="utf-8") if self.file else "") + self.text
        for old, new in self.edits:
            text = replaced(text, old, new)
        return self.times * (RawOutput(self.label, self.argv, text, self.seconds),)


@dataclass(frozen=True)
class Captured:
    """The outputs of one round with these settings, and what is known of them."""

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    outputs: tuple[Printed, ...]
    settings: dict[str, Any]
    values: dict[str, float]
    partial: bool = False  # there are others
    unread_end: int = 0  # so many last characters that nobody reads
    other_settings: tuple[dict[str, Any], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    changed: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Read:
    """Settings as a suite has them, and what they become."""

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    given: dict[str, Any]
    becomes: dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Settings that are read, and that are refused."""

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    read: tuple[Read, ...] = ()
    refused: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Sheet:
    """All that is known of the outputs and the settings of a workload."""

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    metrics: dict[str, tuple[str, ...]]
    captured: tuple[Captured, ...]
    settings: Settings = Settings()
    refused_with: str = "."
    incomplete_with: str = "^expected "
    accepts: tuple[str, ...] = ()
    port: int | None = None
    sweep: str | None = None


@dataclass(frozen=True)
class Case:
    """A workload with settings, the outputs that were captured of it, and what is known of them."""

    name: str
    number: int
    workload: Workload
    raw: tuple[RawOutput, ...]
    sheet: Sheet

    @property
    def known(self) -> Captured:
        """What its sheet says."""
        return self.sheet.captured[self.number]

    @property
    def expected(self) -> Values:
        """The values that its outputs hold."""
        named = {key.partition(" ")[::2]: value for key, value in self.known.values.items()}
        return {(metric, float(point) if point else None): value for (metric, point), value in named.items()}

    def other(self, settings: Mapping[str, Any]) -> Workload:
        """Return the workload with some other settings."""
        return made(self.name, self.known.settings | dict(settings))

    def read(self, *raw: RawOutput) -> Values:
        """Parse outputs; raises TrialFailed."""
        return {(each.metric, each.point): each.value for each in self.workload.parse(raw)}

    def outcome(self, raw: tuple[RawOutput, ...]) -> Values | None:
        """Parse outputs; None for a failed trial."""
        try:
            return self.read(*raw)
        except TrialFailed:
            return None

    def damaged(self, at: int, text: str) -> tuple[RawOutput, ...]:
        """Return the outputs with a text in place of one."""
        return (*self.raw[:at], replace(self.raw[at], text=text), *self.raw[at + 1 :])

    def distinct(self) -> Iterator[int]:
        """Return the place of the first output of each label; only of programs, if there are others."""
        labels = [each.label for each in self.raw]
        by_programs = any(each.argv for each in self.raw)
        first = (at for at, label in enumerate(labels) if label not in labels[:at] and self.raw[at].text)
        return (at for at in first if self.raw[at].argv or not by_programs)


@cache
def sheet_of(name: str) -> Sheet:
    """Read what was captured of a workload."""
    path = SAMPLES / name / "captured.toml"
    assert path.exists(), f"{name} has no tests/samples/{name}/captured.toml; {__file__} says what it holds"
    text = path.read_text(encoding="utf-8")
    return TypeAdapter(Sheet).validate_python(tomllib.loads(text))


def cases() -> list[Case]:
    """Return all captures of tare's own workloads that have a sheet."""
    return [
        Case(name, number, made(name, known.settings), raw, sheet)
        for name in own("workloads")
        if (SAMPLES / name / "captured.toml").exists()
        for sheet in (sheet_of(name),)
        for number, known in enumerate(sheet.captured)
        for raw in (tuple(raw for each in known.outputs for raw in each.raw(SAMPLES / name)),)
    ]


def made(name: str, settings: Mapping[str, Any]) -> Workload:
    """Make a workload with settings as a suite has them."""
    workload: Workload = TypeAdapter(own("workloads")[name]).validate_python(dict(settings))
    return workload


def replaced(text: str, old: str, new: str) -> str:
    """Exchange what is in a text: it has to be there."""
    assert old in text, f"{old!r} is not in {text[:200]!r}"
    return text.replace(old, new)


def is_json(text: str) -> bool:
    """Return whether a text begins as JSON does."""
    return text.lstrip().startswith(("{", "["))


def broken(text: str) -> Iterator[tuple[str, str]]:
    """Yield outputs that are not one whole result, whatever the program; each with the kind of its damage."""
    nothing = ("", "\n", "program: not found\n", "Segmentation fault\n", "{\n", "{}\n", "[]", "null")
    lines = text.splitlines(keepends=True)
    yield from (("nothing", each) for each in nothing)
    yield from (("beginning missing", "".join(lines[at:])) for at in range(1, len(lines)))
    yield "last line again and again", 10_000 * lines[-1]
    if is_json(text):
        yield "nested 100,000 deep", 100_000 * "[" + 100_000 * "]"
    yield from (("first half", text[: len(text) // 2]), ("second half", text[len(text) // 2 :]))
    yield from (("noise before", f"noise\n{text}"), ("noise after", f"{text}Killed\n"), ("twice", text + text))


def prefixes(text: str, unread_end: int) -> Iterator[str]:
    """Yield beginnings of a text without its end: every one, or evenly spread ones and all near the end."""
    whole = len(text.rstrip()) - unread_end
    near = max(1, whole - _NEAR_END)
    yield from (text[:end] for end in (*range(1, near, max(1, near // _MOST_PREFIXES)), *range(near, whole)))


def reordered(text: str) -> Iterator[tuple[str, str]]:
    """Yield a text backwards, and with each line exchanged with the next, left out, and twice; each with its kind."""
    lines = text.splitlines(keepends=True)
    yield "backwards", "".join(reversed(lines))
    for at, line in enumerate(lines):
        before, rest = lines[:at], lines[at + 1 :]
        if rest and rest[0] != line:
            yield "lines exchanged", "".join((*before, rest[0], line, *rest[1:]))
        yield "line missing", "".join((*before, *rest))
        yield "line twice", "".join((*before, line, line, *rest))


def with_numbers(text: str) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield each number of a text, the text with another one there, and what is no number there, with its kind."""
    for found in _NUMBER.finditer(text):
        before, number, after = text[: found.start()], found[0], text[found.end() :]
        other = re.sub(r"\d", lambda digit: f"{(int(digit[0]) + 1) % 9 + 1}", number, count=1)
        wrong = [(each or "empty", each) for each in (_NO_JSON_NUMBERS if is_json(text) else _NO_NUMBERS)]
        wrong += [("negative", f"-{number}")] if float(number) > 0 else []
        zero = re.sub(r"\d", "0", number)
        wrong += [("zero", zero)] if zero != number else []
        wrong = [(kind, before + each + after) for kind, each in wrong if (number, each) != ("1", "true")]
        yield number, before + other + after, wrong
