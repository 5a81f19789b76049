"""Answer of a command: a table with its legend, remarks, conclusions and gate, as table, Markdown and JSON.

`tare.cli.answer` prints an answer, writes its page, and ends the command with its exit code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tare import __version__
from tare.model.errors import TareError
from tare.report.documents import escape_markdown
from tare.report.numbers import strip_control_characters

FORMAT = 1  # of the JSON of every command
GateOutcome = Literal["passed", "failed", "cannot tell"]
_NOTHING_DECIDED = "nothing is decided, and what is undecided does not fail it"
_TO_DECIDE = "run for longer or choose a wider --margin to decide more; --fail-on undecided fails then"
_SIGNS: Mapping[GateOutcome, str] = {"passed": "✅ ", "failed": "❌ ", "cannot tell": "⚠️ "}
_STYLES: Mapping[GateOutcome, str] = {"passed": "equivalent", "failed": "worse", "cannot tell": "undecided"}


@dataclass(frozen=True)
class Gate:
    """Outcome of `--fail-on`, which has no entry if there is no gate.

    `reason` says what follows the outcome in a sentence, `hint` what helps a gate that cannot tell. `is_undecided` says
    that the gate passed although nothing is decided.
    """

    fail_on: tuple[str, ...] = ()
    outcome: GateOutcome = "passed"
    reason: str = ""
    hint: str = ""
    is_undecided: bool = False

    @property
    def sentence(self) -> str:
        """Whether the gate passed; empty without a gate."""
        return f"The gate (--fail-on {','.join(self.fail_on)}) {self._result}." if self.fail_on else ""

    @property
    def error(self) -> TareError | None:
        """Error of a gate that can neither pass nor fail."""
        return TareError(f"the gate {self._result}", self.hint) if self.outcome == "cannot tell" else None

    @property
    def warning_lines(self) -> tuple[str, ...]:
        """Lines for a gate that passed although nothing is decided."""
        return (f"the gate {self._result}", f"hint: {_TO_DECIDE}") if self.is_undecided else ()

    @property
    def look(self) -> str:
        """Class of the style sheet for the sentence."""
        return _STYLES[self._displayed_outcome]

    @property
    def sign(self) -> str:
        """Sign for Markdown; empty without a gate."""
        return _SIGNS[self._displayed_outcome] if self.fail_on else ""

    @property
    def fields(self) -> dict[str, Any]:
        """JSON fields that every gate has."""
        return {
            "fail_on": self.fail_on,
            "answer": self.outcome if self.fail_on else None,
            "reason": self.sentence or None,
        }

    @property
    def _result(self) -> str:
        why = _NOTHING_DECIDED if self.is_undecided else self.reason
        return f"{self.outcome}: {why}" if why else self.outcome

    @property
    def _displayed_outcome(self) -> GateOutcome:
        return "cannot tell" if self.is_undecided else self.outcome


@dataclass(frozen=True)
class AnswerColumn:
    """Column of an answer's table, numbers on the right and all others on the left.

    Where a terminal is narrow, prose breaks between words, and names break anywhere, so that none is cut. Only a wide
    terminal has a column that is `only_wide`.
    """

    name: str
    kind: Literal["number", "text", "name", "prose"] = "number"
    only_wide: bool = False


@dataclass(frozen=True)
class AnswerRow:
    """Row of an answer's table, a text per column, and the style of the verdict."""

    texts: tuple[str, ...]
    style: str


@dataclass(frozen=True)
class Answer:
    """What a command found.

    `styled` names the column that has the rows' styles; all columns have them if it is empty. `wide` is the width of a
    terminal, in columns, from which it shows the whole table. `warning_lines` and `opening` stand before the table.
    `closing` ends the text and is not part of Markdown. `fields` computes the JSON document.

    The command ends with `error` or the gate's if there is one, and with exit code 1 if it `failed` or its gate did.
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
        """Return the text for a pull request or a job's summary."""
        rows = [[column.name for column in self.columns], ["---" for _ in self.columns]]
        rows += [[escape_markdown(text) for text in row.texts] for row in self.rows]
        lines = [
            f"### {self.gate.sign}tare {self.command}",
            "",
            escape_markdown(" ".join(reversed(self.conclusions))),
            "",
        ]
        lines += [f"| {' | '.join(texts)} |" for texts in rows]
        lines += ["", f"_{escape_markdown(self.legend)}_", "", *(f"- {escape_markdown(text)}" for text in self.remarks)]
        return "\n".join(lines).rstrip() + "\n"

    def document(self) -> str:
        """Return the JSON document."""
        whole = {"format": FORMAT, "tare": __version__, **self.fields()}
        return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
