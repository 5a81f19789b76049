"""The decisions of a run as rows, for SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tare.journal import Run
from tare.statistics.cells import Cell
from tare.statistics.summarize import summarize


def decisions(run: Run, name: str) -> Iterator[dict[str, Any]]:
    """Give the headlines and the cells, as in report.json; `name` is the run's."""
    summary = summarize(run)
    for cell in (*summary.headlines, *summary.cells):
        yield {"run": name} | _fields(cell)


def _fields(cell: Cell) -> dict[str, Any]:
    return {
        "workload": cell.workload,
        "headline": cell.headline or None,
        "metric": cell.metric,
        "point": cell.point,
        "stack": cell.stack,
        "unit": cell.unit,
        "better": cell.better,
        "decision": cell.verdict,
        "estimate": cell.ratio,
        "low": cell.low,
        "high": cell.high,
        "n": cell.n,
        "trials": cell.trials,
        "mean": cell.mean,
        "sd": cell.sd,
        "minimum": cell.minimum,
        "maximum": cell.maximum,
        "mean_ratio": cell.mean_ratio,
        "resolution": cell.resolution,
        "tolerated_autocorrelation": cell.tolerated_autocorrelation,
        "cautions": list(dict.fromkeys(caution.kind for caution in cell.cautions)),
        "notes": cell.notes,
        "failures": len(cell.failures),
        "skipped": cell.skipped or None,
    }
