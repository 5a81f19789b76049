"""End of commands that print an answer: the text or JSON, the HTML page, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer
from rich.text import Text

from tare.cli.console import create_console, print_status, replace_unprintable
from tare.model.errors import UsageError
from tare.model.files import convert_write_errors
from tare.report.answer import Answer
from tare.report.numbers import strip_control_characters

_LOG_WIDTH = 180  # columns without a terminal, such as in a CI log: table rows of many stacks still do not wrap


def print_and_exit(
    answer: Answer,
    page: Path | None = None,
    render: Callable[[], bytes] = bytes,
    *,
    as_json: bool = False,
    as_markdown: bool = False,
) -> None:
    """Print an answer, and write the result of `render` to the file `page` unless that is None.

    Raises UsageError for --json with --markdown, the error of the answer or its gate, or typer.Exit with 1 if the
    answer or its gate failed. Prints a warning if the gate is undecided.
    """
    if as_json and as_markdown:
        raise UsageError("--json and --markdown exclude each other", f"run tare {answer.command} once for each")
    if page is not None:
        with convert_write_errors(page, "choose another file with --html"):
            page.write_bytes(render())
    if as_json:
        print(answer.document())
    elif as_markdown:
        print(replace_unprintable(answer.markdown()), end="")
    else:
        print_answer(answer)
    if error := answer.error or answer.gate.error:
        raise error
    if answer.failed or answer.gate.outcome == "failed":
        raise typer.Exit(1)
    if answer.gate.warning_lines:
        print_status(*answer.gate.warning_lines, style="yellow")


def print_answer(answer: Answer) -> None:
    """Print an answer as text. The table is as wide as the terminal, which wraps the other lines."""
    console = create_console(_LOG_WIDTH)

    def print_lines(style: str, *lines: str) -> None:
        for line in filter(None, lines):
            console.print(Text(strip_control_characters(line), style), soft_wrap=True)

    print_lines("bold yellow", answer.warning)
    print_lines("bold", answer.opening)
    if answer.rows:
        console.print(answer.table(console.width))
        print_lines("dim", answer.legend)
    print_lines("dim", *(line for line in answer.remarks if line != answer.warning))
    print_lines("bold", *answer.conclusions)
    print_lines("", *answer.closing)
