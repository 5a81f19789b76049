"""Command `tare popularity`: VTmark's popularity score of technologies.

A row of the table is a technology, a column a count of interest in it: searches, questions, stars. tare does not
measure popularity: VTmark chose by this score which technologies to measure.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tare.cli.arguments import AsJson
from tare.cli.console import create_console
from tare.model.errors import UsageError
from tare.model.files import read_small
from tare.report.numbers import strip_control_characters

_NUMBER = re.compile(r"(\d{1,15}(\.\d{0,15})?|\.\d{1,15})([eE][+-]?\d{1,2})?", re.ASCII)
_EXAMPLE = "the first line names the columns: technology,questions,stars"


@dataclass(frozen=True)
class RankedTechnology:
    """Technology with its score, 0 to 1, and its share of the largest value of each column."""

    technology: str
    score: float
    shares: dict[str, float]


def popularity(
    file: Annotated[
        Path, typer.Argument(help="CSV file with a technology and its numbers in each line.", metavar="FILE")
    ],
    as_json: AsJson = False,
) -> None:
    """Rank technologies by popularity, with VTmark's score.

    Each number is divided by the maximum of its column. The score is the mean of a line's quotients.
    """
    ranking = rank_technologies(read_small(file, ".csv file"), str(file))
    if as_json:
        print(json.dumps({"format": 1, "technologies": [asdict(each) for each in ranking]}, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("technology", overflow="fold")
    for column in ("score", *ranking[0].shares):
        table.add_column(strip_control_characters(column), justify="right")
    for each in ranking:
        table.add_row(
            strip_control_characters(each.technology),
            *(f"{number:.3f}" for number in (each.score, *each.shares.values())),
        )
    create_console().print(table)


def rank_technologies(text: str, source: str) -> tuple[RankedTechnology, ...]:
    """Rank the lines of a CSV text, the most popular first; raises UsageError, which calls the text `source`."""
    try:
        reader = csv.reader(text.splitlines(), strict=True)
        lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise UsageError(f"{source}: not CSV: {error}", "a text with a comma in it stands in quotes") from None
    (_, header), *rows = [(number, row) for number, row in lines if any(row)] or [(1, [])]
    columns = tuple(header[1:])
    if not columns or not rows:
        raise UsageError(f"{source}: there is no table of technologies and numbers, with commas between", _EXAMPLE)
    _refuse_duplicates(columns, f"{source}: two columns are named")
    values = [_parse_values(row, columns, f"{source}: line {number}") for number, row in rows]
    names = tuple(row[0] for _, row in rows)
    _refuse_duplicates(names, f"{source}: two lines are of")
    for column, numbers in zip(columns, zip(*values, strict=True), strict=True):
        if not max(numbers) > 0:
            raise UsageError(f"{source}: column {column!r} has no number above 0", "leave the column out")
    entries = zip(names, row_scores(values), shares_of_largest(values), strict=True)
    ranked = [RankedTechnology(name, score, dict(zip(columns, shares, strict=True))) for name, score, shares in entries]
    return tuple(sorted(ranked, key=lambda each: -each.score))


def _refuse_duplicates(names: Sequence[str], message: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{message} {name!r}", "give each one once")


def _parse_values(row: Sequence[str], columns: Sequence[str], where: str) -> tuple[float, ...]:
    if len(row) != 1 + len(columns):
        raise UsageError(f"{where}: {len(row)} entries, the first line has {1 + len(columns)}", _EXAMPLE)
    for column, cell in zip(columns, row[1:], strict=True):
        if not cell:
            hint = "leave the column out, as VTmark did for technologies without stars; 0 says that nobody asked"
            raise UsageError(f"{where}: {column!r} is empty", hint)
        if not _NUMBER.fullmatch(cell) or not math.isfinite(float(cell)):
            raise UsageError(f"{where}: {column!r} is no number: {cell[:40]!r}", "write 75000, not 75K or 75,000")
    return tuple(float(cell) for cell in row[1:])


def shares_of_largest(rows: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Return each value divided by the largest of its column: 0 to 1.

    Raises ValueError for rows of different lengths, for a value below 0, and for a column with no value above 0.
    """
    columns = tuple(zip(*rows, strict=True))
    if any(min(column) < 0 or not max(column) > 0 for column in columns):
        raise ValueError("a column has values from 0 on, one of them above 0")
    largest = tuple(max(column) for column in columns)
    return tuple(tuple(value / most for value, most in zip(row, largest, strict=True)) for row in rows)


def row_scores(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the score of each row, 0 to 1: the mean of its shares, as in VTmark's formula.

    The paper's text before the formula speaks of differences from the largest value, but the formula has quotients.
    Raises ValueError as `shares_of_largest` does.
    """
    return tuple(sum(shares) / len(shares) for shares in shares_of_largest(rows))
