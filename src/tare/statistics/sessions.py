"""Sessions: seconds of several workloads, each as often as its weight says, compared with the baseline's.

A session takes S = Σ wᵢ tᵢ seconds, with the weight wᵢ and the time tᵢ of one run of each workload. Relative to the
baseline with the times bᵢ, that is R = Σ sᵢ rᵢ, the mean of the workloads' ratios rᵢ with the shares
sᵢ = wᵢ bᵢ / Σ wⱼ bⱼ. The shares are those of the baseline's usual times in this run, and count as known.

The interval of R follows from those of the ratios: its distance from R on each side is the root of the sum of the
squared distances sᵢ (rᵢ - lᵢ), or sᵢ (uᵢ - rᵢ) (MOVER: Zou and Donner, "Construction of confidence limits about
effect measures: a general approach", Statistics in Medicine 27 (2008), 1693-1702; for more than two: Zou, Huang and
Zhang, "A note on confidence interval estimation for a linear function of binomial proportions", Computational
Statistics & Data Analysis 53 (2009), 1080-1085). It needs independent workloads, as `tare.statistics.ranking` does:
each has its own blocks. The ratios' intervals hold at every look and are those of the whole matrix, so that of the
session is at least as wide as one that is made for a single look. The difference of an A/A comparison may be common to
all workloads: these parts are added, not their squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.model.run_folder import RunRecord, WorkloadRecord
from tare.model.trial import find_session_metric
from tare.statistics.cells import Cell, Verdict, verdict_of_side
from tare.statistics.ratios import classify_side
from tare.statistics.summary import Summary


@dataclass(frozen=True)
class SessionCost:
    """Session on a stack.

    - `cell`: its seconds (`usual`), and its ratio to the baseline's with the interval and the verdict. `n` is the
      fewest blocks of a workload. The interval of the seconds is that of the ratio, times the baseline's seconds.
    - `parts`: the seconds of each workload in the session, of those that the stack has a value of.
    - `missing`: the workloads without a value, with the reason; the cell then has none.
    """

    cell: Cell
    parts: Mapping[str, float]
    missing: Mapping[str, str]

    @property
    def stack(self) -> str:
        """The name of the stack."""
        return self.cell.stack


def session_weights(record: RunRecord) -> dict[str, float]:
    """Return the weights of a run's workloads, without those that are not part of the session."""
    return {each.name: each.weight for each in record.workloads if 0 < each.weight < math.inf}


def compare_sessions(summary: Summary, record: RunRecord) -> tuple[SessionCost, ...]:
    """Return the session of each stack, without the A/A control; empty if no workload of the run has a weight."""
    weights = session_weights(record)
    stacks = [stack for stack in summary.stacks if stack != summary.control]
    if not weights or summary.baseline not in stacks:
        return ()
    cells = {each.name: _find_cells(summary, each) for each in record.workloads if each.name in weights}
    return tuple(_compare_stack(stack, cells, weights, summary) for stack in stacks)


def _find_cells(summary: Summary, workload: WorkloadRecord) -> dict[str, Cell]:
    """Return the cells of a workload's time by stack: those of the headline if it is the time."""
    metric = find_session_metric(workload.metrics)
    if metric is None:  # a suite refuses such a weight, but a run folder may be damaged
        return {}
    known = (*summary.cells_of(workload.name), *summary.headlines)  # the headline's cells come last and count
    cells = (cell for cell in known if cell.workload == workload.name and cell.metric == metric.name)
    return {cell.stack: cell for cell in cells if cell.point is None}


def _compare_stack(
    stack: str, cells: Mapping[str, Mapping[str, Cell]], weights: Mapping[str, float], summary: Summary
) -> SessionCost:
    found, missing = dict[str, Cell](), dict[str, str]()
    baseline_seconds = dict[str, float]()
    for name, by_stack in cells.items():
        cell, reference = by_stack.get(stack), by_stack.get(summary.baseline)
        if cell and cell.ratio and reference and reference.usual:
            found[name], baseline_seconds[name] = cell, weights[name] * reference.usual
        else:
            missing[name] = _find_reason(summary, name, stack)
    parts = {name: baseline_seconds[name] * (cell.ratio or 0.0) for name, cell in found.items()}
    fields: dict[str, Any] = {"verdict": "no value"}
    if not missing:
        whole = math.fsum(baseline_seconds.values())
        shares = [each / whole for each in baseline_seconds.values()]
        fields = _ratio_fields(list(found.values()), shares, summary.margin)
        bounds = {f"usual_{end}": whole * fields[end] for end in ("low", "high") if fields[end] is not None}
        fields |= {"usual": whole * fields["ratio"], "n": min(cell.n for cell in found.values())} | bounds
        if stack == summary.baseline:
            fields["verdict"] = "baseline"
    cell = Cell(workload="", metric="session", point=None, stack=stack, unit="s", better="lower", **fields)
    return SessionCost(cell, parts, missing)


def _ratio_fields(cells: Sequence[Cell], shares: Sequence[float], margin: float) -> dict[str, Any]:
    """Return the ratio of a session with its interval and verdict; all bounds are None unless each cell has both."""
    ratio, low, high = combine_ratios(cells, shares)
    verdict: Verdict = "too few blocks"
    if low is not None and high is not None:
        middle, half = math.log(low * high) / 2, math.log(high / low) / 2
        verdict = verdict_of_side(classify_side(middle, half, math.log1p(margin)), "lower")
    return {"ratio": ratio, "low": low, "high": high, "verdict": verdict}


def combine_ratios(cells: Sequence[Cell], shares: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the mean of the cells' ratios with these shares, and its interval; None for its bounds without one."""
    ratio = math.fsum(share * (cell.ratio or 0.0) for cell, share in zip(cells, shares, strict=True))
    below, above, common_below, common_above = [0.0], [0.0], [0.0], [0.0]
    for cell, share in zip(cells, shares, strict=True):
        if cell.ratio is None or cell.low is None or cell.high is None:
            return ratio, None, None
        offset = cell.spread.offset if cell.spread else 0.0
        common_below.append(share * (cell.ratio - max(cell.ratio * math.exp(-offset), cell.low)))
        common_above.append(share * (min(cell.ratio * math.exp(offset), cell.high) - cell.ratio))
        below.append(share * (cell.ratio - cell.low) - common_below[-1])
        above.append(share * (cell.high - cell.ratio) - common_above[-1])
    low = ratio - math.hypot(*below) - math.fsum(common_below)
    return ratio, low, ratio + math.hypot(*above) + math.fsum(common_above)


def _find_reason(summary: Summary, workload: str, stack: str) -> str:
    """Return why a stack has no value of a workload relative to the baseline."""
    cell = summary.headline(workload, stack)
    if cell.skipped:
        return "skipped"
    if cell.failures and not cell.trials:
        return "failed"
    is_measured = cell.trials and stack != summary.baseline
    return f"not measured on {summary.baseline}" if is_measured else "not measured"


def find_best(costs: Sequence[SessionCost]) -> frozenset[str]:
    """Return the stack with the shortest session, and the stacks whose intervals overlap with its interval.

    Return nothing if the shortest has no interval, because another may be shorter. The baseline's interval is its
    value.
    """
    cells = sorted((cost.cell for cost in costs if cost.cell.ratio is not None), key=lambda cell: cell.ratio or 0.0)
    bounds = [(cell.ratio, cell.ratio) if cell.verdict == "baseline" else (cell.low, cell.high) for cell in cells]
    most = bounds[0][1] if bounds else None
    if most is None:
        return frozenset()
    overlapping = zip(cells, bounds, strict=True)
    return frozenset(cell.stack for cell, (low, _) in overlapping if low is not None and low <= most)
