"""Answers: the sentence, sign and end of a gate, and the table on wide and narrow terminals."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from tare.report.answer import Answer, AnswerColumn, AnswerRow, Gate

FAIL_ON = ("worse", "undecided")
ANSWER = Answer(
    command="compare",
    columns=(
        AnswerColumn("stack", "name"),
        AnswerColumn("verdict", "text"),
        AnswerColumn("estimate"),
        AnswerColumn("n", only_wide=True),
    ),
    rows=(AnswerRow(("a-long|name", "\x1b[2Jworse", "90.1 %", "12"), "red"),),
    legend="percent",
    remarks=("a remark",),
    conclusions=("docker is worse.", "The gate failed."),
    fields=lambda: {"answer": "docker is worse."},
)


@pytest.mark.parametrize(("gate", "sentence", "sign", "error", "warns"), [
    (Gate(), "", "", None, False),
    (Gate(FAIL_ON), "The gate (--fail-on worse,undecided) passed.", "✅ ", None, False),
    (Gate(FAIL_ON, "failed", "x"), "The gate (--fail-on worse,undecided) failed: x.", "❌ ", None, False),
    (
        Gate(FAIL_ON, "cannot tell", "x", "do this"),
        "The gate (--fail-on worse,undecided) cannot tell: x.",
        "⚠️ ",
        ("the gate cannot tell: x", "do this"),
        False,
    ),
    (
        Gate(("worse",), "undecided", "x", "do this"),
        "The gate (--fail-on worse) is undecided: x.",
        "⚠️ ",
        None,
        True,
    ),
])  # fmt: skip
def test_a_gate_says_how_it_ended(
    gate: Gate, sentence: str, sign: str, error: tuple[str, str] | None, warns: bool
) -> None:
    assert (gate.sentence, gate.sign, bool(gate.warning_lines)) == (sentence, sign, warns)
    assert (gate.error and (str(gate.error), gate.error.hint)) == error


def shown(width: int) -> list[str]:
    console = Console(width=width, file=StringIO())
    with console.capture() as capture:
        console.print(ANSWER.table(width))
    return [" ".join(line.split()) for line in capture.get().splitlines() if line.strip()]


def test_a_narrow_terminal_omits_wide_columns_and_wraps_only_names() -> None:
    assert shown(100)[0] == "stack verdict estimate n"
    assert shown(100)[2] == "a-long|name [2Jworse 90.1 % 12"
    assert shown(32)[2:] == ["a-long| [2Jworse 90.1 %", "name"]


def test_markdown_begins_with_the_last_conclusion_and_escapes_names() -> None:
    assert ANSWER.markdown().splitlines() == [
        "### tare compare",
        "",
        "The gate failed. docker is worse.",
        "",
        "| stack | verdict | estimate | n |",
        "| --- | --- | --- | --- |",
        "| a-long\\|name |  \\[2Jworse | 90.1 % | 12 |",
        "",
        "_percent_",
        "",
        "- a remark",
    ]
