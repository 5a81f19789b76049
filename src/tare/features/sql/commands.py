"""`tare query`: SQL over runs."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tare.cli.arguments import become_owner
from tare.cli.console import output, printable, say
from tare.features.sql.query import QueryResult, ask
from tare.model.errors import UsageError
from tare.report.data_files import field
from tare.report.numbers import cut

_MOST_ROWS = 1000  # of a table for people
_MOST_LETTERS = 200  # of a cell
_PIPED = 100_000  # columns for what is no terminal, so that a row is one line


def query(
    words: Annotated[
        list[str],
        typer.Argument(help="Run folders, then a SELECT; - reads it from standard input.", metavar="RUN... SQL"),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Ask runs in SQL: the tables are runs, trials, values, turns, telemetry and decisions."""
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other", "call `tare query` once for each")
    *runs, sql = words
    if os.path.isdir(sql):  # noqa: PTH112 - Path refuses what is too long for a name
        raise UsageError(f"the last word is SQL, and {sql} is a folder", f"tare query {sql} 'FROM trials'")
    if not runs:
        raise UsageError("no run is named", "tare query RUN 'FROM trials'")
    for run in runs:
        become_owner(Path(run))
    answer = ask([Path(run) for run in runs], sys.stdin.read() if sql == "-" else sql)
    if as_json:
        sys.stdout.writelines(_json(answer))
    elif as_csv:
        _write_csv(answer)
    else:
        _print(answer)


def _json(answer: QueryResult) -> Iterator[str]:
    """Write a list with one row a line."""
    between = "[\n"
    for row in answer.documents():
        yield between + json.dumps(row, ensure_ascii=False, allow_nan=False)
        between = ",\n"
    yield "[]\n" if between == "[\n" else "\n]\n"


def _write_csv(answer: QueryResult) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([field(name) for name in answer.columns])
    texts = answer.are_texts
    for row in answer.texts():
        writer.writerow([field(value) if text else value for value, text in zip(row, texts, strict=True)])


def _print(answer: QueryResult) -> None:
    """Print a table, whose length people can read."""
    rows = answer.texts()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, text in zip(answer.columns, answer.are_texts, strict=True):
        table.add_column(printable(name), justify="left" if text else "right", overflow="fold", no_wrap=not text)
    for row in islice(rows, _MOST_ROWS):
        table.add_row(*_cells(row))
    output(_PIPED).print(table)
    if next(rows, None) is not None:
        say(f"more than {_MOST_ROWS} rows: --csv or --json prints all")


def _cells(row: Sequence[str | None]) -> list[str]:
    return ["" if value is None else cut(printable(" ".join(value.splitlines())), _MOST_LETTERS) for value in row]
