"""Command `tare query`: SQL over runs."""

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
from tare.cli.console import create_console, print_status, replace_unprintable
from tare.features.sql.query import QueryResult, run_query
from tare.model.errors import UsageError
from tare.report.data_files import escape_formula
from tare.report.numbers import cut

_MAX_ROWS = 1000  # of a printed table
_MAX_CELL_CHARACTERS = 200
_PIPED_COLUMNS = 100_000  # width without a terminal, so that a row is one line for grep


def query(
    words: Annotated[
        list[str],
        typer.Argument(help="Run folders, then a SELECT; - reads it from standard input.", metavar="RUN... SQL"),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Query runs in SQL.

    The tables are runs, trials, marks, values, turns, telemetry and decisions.
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other", "run tare query once for each")
    *runs, sql = words
    if os.path.isdir(sql):  # noqa: PTH112 - Path refuses what is too long for a name
        raise UsageError(f"no SQL: the last argument, {sql}, is a folder", f"tare query {sql} 'FROM trials'")
    if not runs:
        raise UsageError("no run is named", "tare query RUN 'FROM trials'")
    for run in runs:
        become_owner(Path(run))
    answer = run_query([Path(run) for run in runs], sys.stdin.read() if sql == "-" else sql)
    if as_json:
        sys.stdout.writelines(_format_json(answer))
    elif as_csv:
        _write_csv(answer)
    else:
        _print(answer)


def _format_json(result: QueryResult) -> Iterator[str]:
    """Yield a JSON list, one row per line and without holding all rows in memory."""
    separator = "[\n"
    for row in result.documents():
        yield separator + json.dumps(row, ensure_ascii=False, allow_nan=False)
        separator = ",\n"
    yield "[]\n" if separator == "[\n" else "\n]\n"


def _write_csv(result: QueryResult) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([escape_formula(name) for name in result.columns])
    texts = result.are_texts
    for row in result.texts():
        writer.writerow([escape_formula(value) if text else value for value, text in zip(row, texts, strict=True)])


def _print(result: QueryResult) -> None:
    """Print at most 1000 rows as a table, with a note if there are more."""
    rows = result.texts()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, text in zip(result.columns, result.are_texts, strict=True):
        table.add_column(
            replace_unprintable(name), justify="left" if text else "right", overflow="fold", no_wrap=not text
        )
    for row in islice(rows, _MAX_ROWS):
        table.add_row(*_format_cells(row))
    create_console(_PIPED_COLUMNS).print(table)
    if next(rows, None) is not None:
        print_status(f"more than {_MAX_ROWS} rows: --csv or --json prints all")


def _format_cells(row: Sequence[str | None]) -> list[str]:
    return [
        "" if value is None else cut(replace_unprintable(" ".join(value.splitlines())), _MAX_CELL_CHARACTERS)
        for value in row
    ]
