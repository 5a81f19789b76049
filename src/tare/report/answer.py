"""Answer of a command: table, legend, remarks, conclusions and gate, for the terminal, in Markdown and as JSON.

`tare.cli.answer` prints an answer, writes its page, and ends the command with its exit code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tare import __version__
from tare.model.errors import TareError
from tare.model.units import format_count
from tare.report.documents import escape_markdown
from tare.report.numbers import strip_control_characters
from tare.statistics.cells import Cell

FORMAT = 1  # of the JSON of every command
GateOutcome = Literal["passed", "failed", "undecided", "cannot tell"]
TO_DECIDE = "run for longer or choose a wider --margin to decide more; --fail-on undecided would fail here"
_SIGNS: Mapping[GateOutcome, str] = {"passed": "✅ ", "failed": "❌ ", "undecided": "⚠️ ", "cannot tell": "⚠️ "}
_STYLES: Mapping[GateOutcome, str] = {
    "passed": "equivalent",
    "failed": "worse",
    "undecided": "undecided",
    "cannot tell": "undecided",
}


@dataclass(frozen=True)
class Gate:
    """Outcome of the gate `--fail-on`; `fail_on` is empty without a gate.

    `reason` explains the outcome, and `hint` is for a gate that is undecided or cannot tell. A gate is undecided if
    nothing fails it, but some verdicts are undecided and might have: the command then succeeds with a warning.
    """

    fail_on: tuple[str, ...] = ()
    outcome: GateOutcome = "passed"
    reason: str = ""
    hint: str = ""

    @property
    def sentence(self) -> str:
        """Sentence that tells how the gate ended; empty without a gate."""
        return f"The gate (--fail-on {','.join(self.fail_on)}) {self._result}." if self.fail_on else ""

    @property
    def error(self) -> TareError | None:
        """Error of a gate that can neither pass nor fail; None for other outcomes."""
        return TareError(f"the gate {self._result}", self.hint) if self.outcome == "cannot tell" else None

    @property
    def warning_lines(self) -> tuple[str, ...]:
        """Warning lines of an undecided gate; empty for other gates."""
        return (f"the gate {self._result}", f"hint: {self.hint}") if self.outcome == "undecided" else ()

    @property
    def look(self) -> str:
        """CSS class of the sentence."""
        return _STYLES[self.outcome]

    @property
    def sign(self) -> str:
        """Emoji before the Markdown title; empty without a gate."""
        return _SIGNS[self.outcome] if self.fail_on else ""

    @property
    def fields(self) -> dict[str, Any]:
        """JSON fields that all commands give for their gate."""
        return {
            "fail_on": self.fail_on,
            "answer": self.outcome if self.fail_on else None,
            "reason": self.sentence or None,
        }

    @property
    def _result(self) -> str:
        ending = "is undecided" if self.outcome == "undecided" else self.outcome
        return f"{ending}: {self.reason}" if self.reason else ending


def describe_undecided(cells: Sequence[Cell]) -> str:
    """Return the reason why a gate on these cells is undecided."""
    count = sum(cell.verdict in ("undecided", "too few blocks") for cell in cells)
    verb = "is" if count == 1 else "are"
    return f"{count} of {format_count(len(cells), 'verdict')} {verb} undecided, which does not fail it"


@dataclass(frozen=True)
class AnswerColumn:
    """Column of an answer's table. Numbers are right-aligned, all other texts left-aligned.

    On a narrow terminal, prose wraps between words, and names wrap anywhere so that none is cut. Only wide terminals
    show a column that is `only_wide`.
    """

    name: str
    kind: Literal["number", "text", "name", "prose"] = "number"
    only_wide: bool = False


@dataclass(frozen=True)
class AnswerRow:
    """Row of an answer's table: a text per column, and the style of the verdict."""

    texts: tuple[str, ...]
    style: str


@dataclass(frozen=True)
class Answer:
    """Answer of a command.

    `styled` names the column that gets the rows' styles; if it is empty, all columns get them. A terminal of at least
    `wide` columns shows the whole table. `warning` and `opening` are printed before the table. `warning` and `closing`,
    which ends the printed text, are not part of the Markdown. `fields` computes the fields of the JSON document.

    The command ends with `error` or with the gate's error if there is one, and with exit code 1 if the command
    `failed` or its gate did.
    """

    command: str
    columns: tuple[AnswerColumn, ...]
    rows: tuple[AnswerRow, ...]
    legend: str
    remarks: tuple[str, ...]
    conclusions: tuple[str, ...]
    fields: Callable[[], Mapping[str, Any]]
    gate: Gate = Gate()
    styled: str = "verdict"
    wide: int = 100
    warning: str = ""
    opening: str = ""
    closing: tuple[str, ...] = ()
    failed: bool = False
    error: TareError | None = None

    def table(self, width: int) -> Table:
        """Return the table for a terminal of `width` columns."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
        shown = [column for column in self.columns if width >= self.wide or not column.only_wide]
        for column in shown:
            justify: Literal["left", "right"] = "right" if column.kind == "number" else "left"
            table.add_column(column.name, justify=justify, no_wrap=column.kind in {"number", "text"})
        for row in self.rows:
            texts = dict(zip(self.columns, row.texts, strict=True))
            cells = [
                Text(
                    strip_control_characters(texts[column]),
                    style=row.style if column.name == self.styled else "",
                    overflow="fold" if column.kind == "name" else None,
                )
                for column in shown
            ]
            table.add_row(*cells, style="" if self.styled else row.style)
        return table

    def markdown(self) -> str:
        """Return the Markdown text for a pull request or the summary of a CI job."""
        rows = [[escape_markdown(column.name) for column in self.columns], ["---" for _ in self.columns]]
        rows += [[escape_markdown(text) for text in row.texts] for row in self.rows]
        lines = [
            f"### {self.gate.sign}tare {self.command}",
            "",
            *((escape_markdown(self.opening), "") if self.opening else ()),
            escape_markdown(" ".join(reversed(self.conclusions))),
            "",
        ]
        lines += [f"| {' | '.join(texts)} |" for texts in rows]
        lines += ["", f"_{escape_markdown(self.legend)}_", "", *(f"- {escape_markdown(text)}" for text in self.remarks)]
        return "\n".join(lines).rstrip() + "\n"

    def document(self) -> str:
        """Return the JSON document."""
        fields = {"format": FORMAT, "tare": __version__, **self.fields()}
        return json.dumps(fields, indent=1, ensure_ascii=False, allow_nan=False)
