"""The cells as JSON, for programs: estimate, interval, n, decision and cautions of every value."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tare import __version__
from tare.journal import Run, RunRecord
from tare.statistics.cells import Cell, Standing
from tare.statistics.summary import Summary

FORMAT = 1


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `report.json`. Values are in base units, ratios are stack over baseline."""
    text = json.dumps(document(summary, run), indent=1, ensure_ascii=False, allow_nan=False)
    return {"report.json": text.encode() + b"\n"}


def document(summary: Summary, run: Run) -> dict[str, Any]:
    """Return what `report.json` holds; by `computed_by` and `journal`, a later tare checks that it still holds."""
    return {
        "format": FORMAT,
        "tare": run.record.tare,
        "computed_by": __version__,
        "journal": run.digest or None,
        "suite": summary.suite,
        "started": run.record.started,
        "baseline": summary.baseline,
        "control": summary.control,
        "confidence": summary.confidence,
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
            "cells": [_standing(each) for each in summary.overall.standings],
            "tied": summary.overall.tied,
            "missing": summary.overall.missing,
        },
        "headlines": [cell_fields(cell) | {"rule": summary.rule(cell.headline).text} for cell in summary.headlines],
        "cells": [cell_fields(cell) for cell in summary.cells],
    }


def run_fields(folder: Path, record: RunRecord) -> dict[str, Any]:
    """Return which run an answer is about as what JSON can hold."""
    return {
        "folder": str(folder),
        "suite": record.suite,
        "started": record.started,
        "tare": record.tare,
        "image": record.image,
        "machine": asdict(record.machine),
    }


def cell_fields(cell: Cell) -> dict[str, Any]:
    """Return a cell as what JSON can hold; base units, ratios are stack over baseline."""
    return {
        "workload": cell.workload,
        "headline": cell.headline or None,
        "metric": cell.metric,
        "point": cell.point,
        "stack": cell.stack,
        "unit": cell.unit,
        "better": cell.better,
        "estimate": cell.ratio,
        "interval": None if cell.low is None else [cell.low, cell.high],
        "n": cell.n,
        "decision": cell.verdict,
        "log_evidence": cell.evidence,
        "resolution": cell.resolution,
        "tolerated_autocorrelation": cell.tolerated_autocorrelation,
        "mean_ratio": cell.mean_ratio,
        "slow_turns": cell.slow_turns,
        "slow_turns_of_baseline": cell.slow_turns_of_baseline,
        "trials": cell.trials,
        "turns": cell.turns,
        "mean": cell.mean,
        "sd": cell.sd,
        "relative_sd": cell.relative_sd,
        "minimum": cell.minimum,
        "maximum": cell.maximum,
        "usual": cell.usual,
        "usual_sd": cell.usual_sd,
        "notes": cell.notes,
        "cautions": [asdict(caution) for caution in cell.cautions],
        "failures": [asdict(failure) for failure in cell.failures],
        "skipped": cell.skipped or None,
    }


def _standing(standing: Standing) -> dict[str, Any]:
    return {
        "stack": standing.stack,
        "estimate": standing.speed,
        "interval": None if standing.low is None else [standing.low, standing.high],
        "decision": standing.verdict,
    }
