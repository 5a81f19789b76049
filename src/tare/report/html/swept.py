"""Which charts a workload has of values along something: its sweep, percentiles of a latency, the time of its load."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tare.journal import Run, WorkloadRecord
from tare.model.trials import Metric, Sweep
from tare.report import curves
from tare.report.html.drawing import Drawing, drawing
from tare.report.html.over_time import over_time
from tare.report.numbers import point
from tare.statistics.cells import Cell
from tare.statistics.summary import Summary

_SPREAD = "-sd"  # the end of the name of a metric that is the standard deviation of another one
_PERCENTILE = re.compile(r"p(\d{2})(\d*)|(median)")
_RATES = 2  # for which percentiles are drawn


def swept_drawings(summary: Summary, run: Run, record: WorkloadRecord, prefix: str) -> Iterator[Drawing | None]:
    """Draw each metric along the sweep, headlines also in percent of the baseline; then percentiles; then answers."""
    swept = record.sweep or Sweep("point")
    names = {metric.name for metric in record.metrics}
    headlines = {name for rule in summary.rules_of(record.name) for name in rule.metrics}
    for index, metric in enumerate(record.metrics):
        if metric.name.endswith(_SPREAD) and metric.name.removesuffix(_SPREAD) in names:
            continue
        cells = _cells(summary, record, metric.name)
        along = curves.Along(metric.title, swept, summary.stacks)
        spread = f"{metric.name}{_SPREAD}"
        spreads = _means(summary, record, spread) if spread in names else None
        how = "the mean, with one SD above it shaded" if spreads is not None else "mean ± SD of the trials"
        asked = cells and curves.is_answered(cells[0], swept)
        caption = (
            f"{metric.title} against {swept.name}, {how}.{' The dashed line is what was asked for.' if asked else ''}"
        )
        yield drawing(curves.sweep(cells, along, spreads), f"{prefix}s{index}", caption)
        if metric.name in headlines:
            caption = f"{metric.title} against {swept.name}: percent of {summary.baseline} with 95 % interval."
            yield drawing(curves.percents(cells, along, summary.baseline), f"{prefix}c{index}", caption)
    yield from _percentiles(summary, record, prefix)
    rates = over_time(run, record)
    caption = "Answers of each kind along the time of the load, means of the trials; the axis is logarithmic above one."
    yield drawing(curves.kinds(rates, summary.stacks), f"{prefix}k", caption)


def _cells(summary: Summary, record: WorkloadRecord, metric: str) -> list[Cell]:
    """Return the cells of a metric. The A/A control is left out: its line would hide the baseline's."""
    return [cell for cell in summary.of(record.name) if cell.metric == metric and cell.stack != summary.control]


def _means(summary: Summary, record: WorkloadRecord, metric: str) -> dict[tuple[str, float | None], float]:
    cells = _cells(summary, record, metric)
    return {(cell.stack, cell.point): cell.mean for cell in cells if cell.mean is not None}


def _percentiles(summary: Summary, record: WorkloadRecord, prefix: str) -> Iterator[Drawing | None]:
    """Draw the latency from percentile to percentile, at the first and the last point that all of them have."""
    named = sorted((found, metric.name) for metric in record.metrics if (found := percentile(metric)))
    cells = {name: _cells(summary, record, name) for _, name in named}
    points = sorted({cell.point for own in cells.values() for cell in own if cell.mean}, key=lambda at: at or 0.0)
    for index, at in enumerate(dict.fromkeys((*points[:1], *points[-1:]))):
        latencies = [
            curves.Percentile(cell.stack, f"{share:g} %", cell.mean)
            for share, name in named
            for cell in cells[name]
            if cell.point == at and cell.mean is not None
        ]
        unit = record.sweep.unit if record.sweep else ""
        where = f" at {point(at, unit)}" if at is not None else ""
        caption = f"Latency{where}: this share of the requests took at most so long. The axis is logarithmic."
        yield drawing(curves.percentiles(latencies, summary.stacks), f"{prefix}l{index}", caption)


def percentile(metric: Metric) -> float | None:
    """Read which percentile of a time a metric is, by its name: `p50`, `p999`, `median`; None for others."""
    match = _PERCENTILE.fullmatch(metric.name)
    if match is None or metric.unit != "s":
        return None
    return 50.0 if match[3] else float(f"{match[1]}.{match[2] or 0}")
