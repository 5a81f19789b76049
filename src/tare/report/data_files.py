"""Write CSV tables and the JSON report."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tare import __version__
from tare.model.run_folder import Run, RunRecord
from tare.model.trial import Caution
from tare.statistics.anytime import CONFIDENCE
from tare.statistics.cells import CautionCount, Cell, OverallSpeed
from tare.statistics.cpu_costs import CpuCost
from tare.statistics.outcomes import add_file_system_cautions
from tare.statistics.summary import Summary

VALUE_COLUMNS = (
    "suite", "workload", "stack", "block", "order", "trial", "metric", "point", "value", "unit", "better", "path",
    "cautions",
)  # fmt: skip
TURN_COLUMNS = ("suite", "workload", "stack", "block", "round", "trial", "metric", "point", "value", "unit", "better")
FOOTPRINT_COLUMNS = (
    "suite",
    "workload",
    "stack",
    "block",
    "order",
    "trial",
    "footprint",
    "value",
    "unit",
    "path",
    "cautions",
)
_FOOTPRINT = (
    ("memory", "memory_bytes", "bytes"),
    ("kernel-memory", "kernel_bytes", "bytes"),
    ("disk", "disk_bytes", "bytes"),
    ("processes", "processes", "processes"),
    ("reported-memory", "reported_bytes", "bytes"),
)
SUMMARY_COLUMNS = (
    "suite", "workload", "metric", "point", "stack", "unit", "better", "trials", "mean", "sd", "relative_sd", "minimum",
    "maximum", "baseline", "n", "ratio", "low", "high", "mean_ratio", "usual", "usual_sd", "decision", "notes",
    "cautions", "failures", "skipped",
)  # fmt: skip
_DOCUMENT = (
    "workload", "headline", "metric", "point", "stack", "unit", "better", "estimate", "interval", "n", "decision",
    "log_evidence", "resolution", "tolerated_autocorrelation", "by_cpu_time", "mean_ratio", "slow_turns",
    "slow_turns_of_baseline", "trials", "turns", "mean", "sd", "relative_sd", "minimum", "maximum", "usual",
    "usual_sd", "notes", "cautions", "failures", "skipped",
)  # fmt: skip
FORMAT = 1


def render_csv(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `values.csv`, `turns.csv`, `footprints.csv` (ok trials only) and `summary.csv`.

    Numbers are in base units. An empty field means no value.
    """
    return {
        "values.csv": _render_table(VALUE_COLUMNS, _measured_rows(run)),
        "turns.csv": _render_table(TURN_COLUMNS, _turn_rows(run)),
        "footprints.csv": _render_table(FOOTPRINT_COLUMNS, _footprint_rows(run)),
        "summary.csv": _render_table(SUMMARY_COLUMNS, _summary_rows(summary)),
    }


def _measured_rows(run: Run) -> Iterable[Sequence[object]]:
    for trial in add_file_system_cautions(run.trials, run.record.baseline):
        if trial.status != "ok":
            continue
        position = (run.record.suite, trial.workload, trial.stack, trial.block, trial.order, trial.trial)
        rest = (trial.path, _join_kinds(trial.cautions))
        for value in trial.values:
            yield (*position, value.metric, value.point, value.value, value.unit, value.better, *rest)


def _turn_rows(run: Run) -> Iterable[Sequence[object]]:
    """Yield the values of all turns; a value that was not measured in turns is one row without a round."""
    for trial in (trial for trial in run.trials if trial.status == "ok"):
        position = (run.record.suite, trial.workload, trial.stack, trial.block)
        for value in trial.values:
            rounds: Iterable[tuple[int | None, float]] = enumerate(value.turns, trial.first_round)
            for number, turn in rounds if value.turns else [(None, value.value)]:
                yield (*position, number, trial.trial, value.metric, value.point, turn, value.unit, value.better)


def _footprint_rows(run: Run) -> Iterable[Sequence[object]]:
    """Yield the known parts of each trial's footprint; for a nested stack, that of its outermost layer."""
    for trial in add_file_system_cautions(run.trials, run.record.baseline):
        if trial.status != "ok" or trial.footprint is None:
            continue
        position = (run.record.suite, trial.workload, trial.stack, trial.block, trial.order, trial.trial)
        for name, member, unit in _FOOTPRINT:
            if (value := getattr(trial.footprint, member)) is not None:
                yield (*position, name, value, unit, trial.path, _join_kinds(trial.cautions))


def _summary_rows(summary: Summary) -> Iterable[Sequence[object]]:
    for cell in summary.cells:
        computed = {
            "suite": summary.suite,
            "baseline": summary.baseline,
            "decision": cell.verdict,
            "notes": "; ".join(cell.notes),
            "cautions": _join_kinds(cell.cautions),
            "failures": "; ".join(f"{failure.trial}: {failure.reason}" for failure in cell.failures),
        }
        yield [computed[name] if name in computed else getattr(cell, name) for name in SUMMARY_COLUMNS]


def _join_kinds(cautions: Sequence[Caution | CautionCount]) -> str:
    return "; ".join(dict.fromkeys(caution.kind for caution in cautions))


def _render_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    table = io.BytesIO()  # a StringIO would hold three copies, and the values of turns can be 200 MB
    with io.TextIOWrapper(table, encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        texts = _Fields()
        writer.writerows([texts[value] if type(value) is str else value for value in row] for row in rows)
        text.flush()
        return table.getvalue()


class _Fields(dict[str, object]):
    """Cache of escaped texts, because the same few texts fill most fields."""

    def __missing__(self, text: str) -> object:
        self[text] = escape_formula(text)
        return self[text]


def escape_formula(value: object) -> object:
    """Escape text that a spreadsheet would run as a formula; a run folder may come from an untrusted source."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "@", "-", "\t", "\r")) else value


def render_json(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `report.json`. Values are in base units, ratios are stack over baseline."""
    text = json.dumps(create_document(summary, run), indent=1, ensure_ascii=False, allow_nan=False)
    return {"report.json": text.encode() + b"\n"}


def create_document(summary: Summary, run: Run) -> dict[str, Any]:
    """Return the content of `report.json`; a later tare checks by `computed_by` and `journal` whether it is current."""
    return {
        "format": FORMAT,
        "tare": run.record.tare,
        "computed_by": __version__,
        "journal": run.digest or None,
        "suite": summary.suite,
        "started": run.record.started,
        "baseline": summary.baseline,
        "control": summary.control,
        "confidence": CONFIDENCE,
        "margin": summary.margin,
        "stop_reason": run.record.stop_reason,
        "stop_detail": run.record.stop_detail,
        "stacks": summary.stacks,
        "workloads": summary.workloads,
        "machine": asdict(run.record.machine),
        "machines": {role: asdict(facts) for role, facts in run.record.machines.items()},
        "image": run.record.image,
        "overall": {
            "workloads": summary.overall.workloads,
            "cells": [_standing_fields(each) for each in summary.overall.standings],
            "tied": summary.overall.tied,
            "missing": summary.overall.missing,
        },
        "headlines": [cell_fields(cell) | {"rule": summary.rule(cell.headline).text} for cell in summary.headlines],
        "cells": [cell_fields(cell) for cell in summary.cells],
        "cpu_costs": [_cpu_cost_fields(cost) for cost in summary.cpu_costs],
    }


def run_fields(folder: Path, record: RunRecord) -> dict[str, Any]:
    """Return the JSON fields that identify a run."""
    return {
        "folder": str(folder),
        "suite": record.suite,
        "started": record.started,
        "tare": record.tare,
        "image": record.image,
        "machine": asdict(record.machine),
    }


def cell_fields(cell: Cell) -> dict[str, Any]:
    """Return the JSON fields of a cell, in base units; ratios are stack over baseline."""
    computed = {
        "headline": cell.headline or None,
        "estimate": cell.ratio,
        "interval": None if cell.low is None else [cell.low, cell.high],
        "decision": cell.verdict,
        "log_evidence": cell.evidence,
        "cautions": [asdict(caution) for caution in cell.cautions],
        "failures": [asdict(failure) for failure in cell.failures],
        "skipped": cell.skipped or None,
    }
    return {name: computed[name] if name in computed else getattr(cell, name) for name in _DOCUMENT}


def _cpu_cost_fields(cost: CpuCost) -> dict[str, Any]:
    return {
        "workload": cost.workload,
        "metric": cost.metric,
        "point": cost.point,
        "stack": cost.stack,
        "unit": cost.unit,
        "seconds": cost.seconds,
        "estimate": cost.ratio,
        "interval": None if cost.low is None else [cost.low, cost.high],
        "n": cost.n,
        "reason": cost.reason or None,
    }


def _standing_fields(standing: OverallSpeed) -> dict[str, Any]:
    return {
        "stack": standing.stack,
        "estimate": standing.speed,
        "interval": None if standing.low is None else [standing.low, standing.high],
        "decision": standing.verdict,
    }
