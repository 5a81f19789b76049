"""Gate of a comparison: whether `--fail-on` passes, fails, or cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tare.features.compare.changes import RatioChange
from tare.report.answer import GateOutcome
from tare.statistics.cells import Cell, verdict_of_side

GateCondition = Literal["worse", "better", "different", "undecided"]
GATE_CONDITIONS: tuple[GateCondition, ...] = get_args(GateCondition)
_VERDICTS_OF_CONDITION: Mapping[GateCondition, tuple[str, ...]] = {
    "worse": ("worse",),
    "better": ("better",),
    "different": ("worse", "better"),
    "undecided": ("undecided", "too few blocks"),
}


@dataclass(frozen=True)
class GateResult:
    """Result of a gate: its conditions, the cells that failed it, and those that lost their value.

    `confounding` are cells of the baseline, which itself has changed: the gate cannot tell whether the program or the
    machine has. `is_undecided` is true if the gate passed although no cell is decided.
    """

    fail_on: tuple[GateCondition, ...]
    failing: tuple[Cell, ...]
    lost: tuple[Cell, ...]
    confounding: tuple[Cell, ...]
    outcome: GateOutcome
    is_undecided: bool = False


def judge_gate(
    fail_on: tuple[GateCondition, ...],
    cells: Sequence[Cell],
    lost: tuple[Cell, ...],
    confounding: tuple[Cell, ...] = (),
) -> GateResult:
    """Judge the cells by the conditions of a gate.

    Lost cells fail every gate, as they are neither better nor equivalent. Undecided cells fail only a gate that names
    them. A gate cannot tell if no cell has an interval, so that nothing could fail it, or if there is a confounding
    cell (see `find_confounding_cells`).
    """
    verdicts = verdicts_of(fail_on)
    without_value = tuple(cell for cell in cells if cell.verdict == "no value" and not cell.skipped)
    failing = tuple(
        cell
        for cell in cells
        if cell.verdict in verdicts or (fail_on and cell in lost) or ("undecided" in fail_on and cell in without_value)
    )
    outcome: GateOutcome = "passed"
    if failing:
        outcome = "failed"
    elif fail_on and (confounding or all(cell.low is None for cell in cells)):
        outcome = "cannot tell"
    is_undecided = bool(fail_on) and outcome == "passed" and not any(cell.is_decided for cell in cells)
    return GateResult(fail_on, failing, lost, confounding, outcome, is_undecided)


def find_confounding_cells(
    fail_on: tuple[GateCondition, ...], baseline_changes: Sequence[RatioChange], margin: float
) -> tuple[Cell, ...]:
    """Return the baseline's cells with a decided change beyond the margin in a direction that the gate fails on."""
    cells = []
    for cell in (change.cell for change in baseline_changes):
        ratio = cell.ratio or 1.0
        direction = verdict_of_side("more" if ratio > 1 else "less", cell.better)
        if cell.is_decided and max(ratio, 1 / ratio) > 1 + margin and direction in verdicts_of(fail_on):
            cells.append(cell)
    return tuple(cells)


def verdicts_of(fail_on: Sequence[GateCondition]) -> set[str]:
    """Return the verdicts that a gate fails on."""
    return {verdict for condition in fail_on for verdict in _VERDICTS_OF_CONDITION[condition]}
