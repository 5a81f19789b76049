"""Ad-hoc suites of `tare try`: the command line becomes the text of a suite, which can be saved and run again.

A metric is one word of the command line: a regular expression in which `{number}` or one group is the number, or a JSON
pointer, which begins with `/`. An arrow, a name, a unit and a direction may follow: `total: {number} -> total s lower`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from tare.model.errors import Fault, SuiteError, UsageError
from tare.model.units import format_setting
from tare.suites.suite import Suite, parse_suite

_ARROW = " -> "
_DIRECTIONS = ("higher", "lower")
_OPTIONS = {  # patterns of suite keys, and the command-line options that they come from
    r"suite\.(budget|margin)": r"--\1",
    r"(?:suite\.)?stacks": "--on",
    r"image\.from": "--from",
    r"image\.files": "--file",
    r"workloads\[0\]\.metrics": "--metric",
    r"workloads\[0\]\.packages": "--package",
    r"workloads\[0\]\.warm_up": "--warm-up",
    r"workloads\[0\]\.(prepare|timeout)": r"--\1",
    r"workloads\[0\]\.command": "COMMAND",
}
_METRIC_HINT = "for example --metric 'total: {number} -> total s lower'"


@dataclass(frozen=True)
class AdhocSuite:
    """Command with its options, as texts of the command line; the suite's default applies to an empty option.

    `source` names a foreign image. `files` are pairs of a path in the image and a path of this machine.
    """

    command: tuple[str, ...]
    stacks: tuple[str, ...]
    packages: tuple[str, ...] = ()
    source: str = ""
    files: tuple[tuple[str, str], ...] = ()
    metrics: tuple[str, ...] = ()
    prepare: str = ""
    warm_up: int | None = None
    timeout: str = ""
    budget: str = ""
    margin: str = ""

    def suite_text(self) -> str:
        """Return the text of the suite; raises UsageError for an invalid metric, or a word that is not UTF-8."""
        name = _to_slug(PurePath(self.command[0]).name) or "command"
        suite: dict[str, object] = {
            "name": f"try-{name}",
            "stacks": self.stacks,
            "budget": self.budget,
            "margin": self.margin,
        }
        settings: dict[str, object] = {
            "use": "command",
            "name": name,
            "command": self.command,
            "packages": self.packages,
            "prepare": self.prepare,
            "warm_up": self.warm_up,
            "duration": "500ms",  # so that the first block ends soon
            "timeout": self.timeout,
        }
        image = [_format_table("[image]", {"from": self.source})] if self.source else []
        files: dict[str, object] = {json.dumps(target): source for target, source in self.files}
        image += [_format_table("[image.files]", files)] if files else []
        tables = [_format_table("[suite]", suite), *image, _format_table("[[workloads]]", settings)]
        tables += [_format_table("[[workloads.metrics]]", metric) for metric in self._parse_metrics()]
        return _check_unicode("\n".join(tables))

    def _parse_metrics(self) -> Iterator[dict[str, object]]:
        names: list[str] = []
        for text in self.metrics:
            metric = _parse_metric(text)
            free = (f"{metric['name']}{end}" for end in ("", *(f"-{number}" for number in range(2, 1000))))
            name = next(each for each in free if each not in names)
            names.append(name)
            yield metric | {"name": name}


def parse_adhoc_suite(text: str, command: str) -> Suite:
    """Return the suite of a text from a command line; raises SuiteError, whose faults name options, not keys."""
    try:
        return parse_suite(text, command)
    except SuiteError as error:
        raise SuiteError([_translate_fault(fault, command) for fault in error.faults]) from None


def _translate_fault(fault: Fault, command: str) -> Fault:
    for key, option in _OPTIONS.items():
        what, count = re.subn(rf"^{command}: {key}[\w.\[\]-]*: ", f"{option}: ", fault.message)
        if count:
            return Fault(what, fault.hint)
    return fault


def _parse_metric(text: str) -> dict[str, object]:
    """Return the table of a metric; raises UsageError unless name, unit and direction follow the arrow in order."""
    where, arrow, description = text.rpartition(_ARROW)  # the last arrow, because the pattern itself may have one
    if not arrow:
        where, description = text, ""
    words = description.split()
    better = words.pop() if words and words[-1] in _DIRECTIONS else "higher"
    if len(words) > 2 or not where:
        raise UsageError(f"--metric {text}: after the arrow come a name, a unit, and higher or lower", _METRIC_HINT)
    name, unit = (*words, "", "")[:2]
    kind = "pointer" if where.startswith("/") else "pattern"
    return {"name": name or _name_from_pattern(where) or "metric", kind: where, "unit": unit, "better": better}


def _name_from_pattern(where: str) -> str:
    """Return a metric's name from the literal words of its pattern; "" if it has none."""
    return _to_slug(re.sub(r"\{number\}|\([^)]*\)|\\.|\[[^]]*\]", " ", where))


def _to_slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")


def _format_table(head: str, settings: dict[str, object]) -> str:
    lines = [f"{key} = {format_setting(value)}\n" for key, value in settings.items() if value not in ("", None, ())]
    return "".join((f"{head}\n", *lines))


def _check_unicode(text: str) -> str:
    """Return a text; raises UsageError if it has bytes that are not UTF-8, as a file name may have."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("a word of the command line is not UTF-8 text", "give the files other names") from error
    return text
