"""The decisions of runs as rows, for SQL: those of report.json where it was made of the same journal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from tare import __version__
from tare.hosts.local import sha256_of
from tare.journal import load
from tare.report.json import FORMAT, document
from tare.statistics.summarize import summarize
from tare.tables.schema import DECISIONS
from tare.tables.sources import Source

_MADE = {"run", "low", "high", "cautions", "failures"}  # the other columns are as in the report


def decisions(source: Source) -> Iterator[dict[str, Any]]:
    """Yield the headlines and the cells of a run; raises UsageError.

    They are computed where the run has no report, or one of another journal or by another tare.
    """
    yield from _reported(source) or _rows(source.run, _computed(source))


def _reported(source: Source) -> list[dict[str, Any]]:
    """Read the report; empty if it is none that tare would write today. It may be untrusted."""
    path = source.folder / "report" / "report.json"
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        if path.is_file():
            found = json.loads(path.read_bytes())
            made = (found["format"], found["computed_by"], found["journal"])
            if made[:2] == (FORMAT, __version__) and made[2] == _digest(source):
                return list(_rows(source.run, found))
    return []


def _digest(source: Source) -> str:
    """Return the SHA-256 of the journal's whole lines, as `load` does."""
    if source.journal is None:
        return hashlib.sha256().hexdigest()
    return sha256_of(source.journal)


def _computed(source: Source) -> dict[str, Any]:
    run = load(source.folder)
    return document(summarize(run), run)


def _rows(name: str, report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in (*report["headlines"], *report["cells"]):
        low, high = cell["interval"] or (None, None)
        yield {
            "run": name,
            **{column: cell[column] for column in DECISIONS if column not in _MADE},
            "low": low,
            "high": high,
            "cautions": list(dict.fromkeys(caution["kind"] for caution in cell["cautions"])),
            "failures": len(cell["failures"]),
        }
