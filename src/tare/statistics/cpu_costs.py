"""CPU costs: CPU time of an instance per request of a client, or per run of a command, relative to the baseline's.

The cost in a block is the CPU time of all turns over the number of their requests or runs. CPU time contains neither
steal time nor the time of other tasks, so other tenants of a machine change the cost less than throughput. Ratios and
intervals are computed like those of other cells (`tare.statistics.ratios`), but no verdict depends on them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tare.model.run_folder import RunRecord, WorkloadRecord
from tare.model.trial import WALL_TIME, MeasuredValue, Trial, Turn
from tare.statistics.headlines import relative_to_baseline
from tare.statistics.ratios import BaselineRows, RatioComparison, exp_bounded

RUN = "run"  # unit of a workload whose turns are runs of a command
_PER_SECOND = "/s"
_NOT_COUNTED = "the machine does not count the CPU time of a type 1 hypervisor's guest"
_UNKNOWN = "the CPU time in its turns is unknown"
NO_TRIAL = "no trial has a value"
_NO_BASELINE = "the baseline is not part of this run"
_NO_PAIR = "no block has the CPU time of both this stack and the baseline"

# Logarithms of a workload's CPU costs: by metric and point, then by stack and block.
_LogCosts = Mapping[tuple[str, float | None], Mapping[tuple[str, int], float]]


class TurnTotals(NamedTuple):
    """CPU time in the turns of a value, and the number of requests, bytes or runs in them."""

    seconds: float
    units: float

    @property
    def seconds_per_unit(self) -> float | None:
        """CPU time per unit; None if one of the two is missing or, in an untrusted run, out of range."""
        is_known = 0 < self.seconds < math.inf and 0 < self.units < math.inf
        return self.seconds / self.units or None if is_known else None


@dataclass(frozen=True)
class CpuCost:
    """CPU time of a stack's instance per unit of a metric at a point, compared with the baseline's in the same blocks.

    - `unit` is what is counted, in the singular: `request`, `byte`, or `run` of a command.
    - `seconds` is the geometric mean over the baseline's blocks, for other stacks times `ratio`. Without a ratio, it is
      the geometric mean over the stack's blocks.
    - `low` and `high` are the bounds of the ratio's interval, and `n` is the number of compared blocks.
    - `reason` tells why there is no CPU time or no ratio; "" if there are both.
    """

    workload: str
    metric: str
    point: float | None
    stack: str
    unit: str
    seconds: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: str = ""


def cpu_usage(value: MeasuredValue, turns: Sequence[Turn]) -> TurnTotals | None:
    """Return the CPU time and the units of a value, in those of a trial's turns whose CPU time is known.

    None if the value is neither a rate at which a client got answers nor the wall time of a command, or if the turns
    of the value are unknown.
    """
    measured = [turn for turn in turns if not turn.warm_up and value.label in ("", turn.label)]
    if value.metric == WALL_TIME and value.unit == "s":  # each turn is a run
        of_client = any(turn.sending_seconds is not None for turn in measured)
        seconds = [turn.cpu_seconds for turn in measured if turn.cpu_seconds is not None]
        return None if of_client else TurnTotals(sum(seconds), len(seconds))
    rates = value.turns or (value.value,)
    if value.better != "higher" or not value.unit.endswith(_PER_SECOND) or len(measured) != len(rates):
        return None
    known = [
        (turn.cpu_seconds, rate * turn.sending_seconds)
        for turn, rate in zip(measured, rates, strict=True)
        if turn.cpu_seconds is not None and turn.sending_seconds is not None
    ]
    return TurnTotals(sum(seconds for seconds, _ in known), sum(units for _, units in known))


def counted_unit(unit: str) -> str:
    """Return what is counted, in the singular: `request` for `requests/s`, `query` for `queries/s`, `run` for `s`."""
    counted = unit.removesuffix(_PER_SECOND)
    if unit == counted:
        return RUN
    return f"{counted.removesuffix('ies')}y" if counted.endswith("ies") else counted.removesuffix("s")


def compare_cpu_costs(
    record: RunRecord,
    workloads: Sequence[WorkloadRecord],
    trials: Mapping[str, Sequence[Trial]],
    stacks: Sequence[str],
    reference: BaselineRows | None,
) -> tuple[CpuCost, ...]:
    """Return the CPU costs of all workloads: for each headline metric and point with any, a row for each stack.

    `trials` are those of each workload, at most one of a stack and a block. `stacks` are all of the run, in the order
    of the rows of `reference`.
    """
    return tuple(
        cost
        for workload in workloads
        for cost in _compare_workload(record, workload, trials[workload.name], stacks, reference)
    )


def _compare_workload(
    record: RunRecord,
    workload: WorkloadRecord,
    trials: Sequence[Trial],
    stacks: Sequence[str],
    reference: BaselineRows | None,
) -> Iterator[CpuCost]:
    """Yield the CPU costs of a workload; the arithmetic is done once for all metrics and points."""
    uncounted = {stack for stack, families in record.families.items() if families[-1:] == ("type 1",)}
    measured = {trial.stack for trial in trials if trial.status == "ok"}
    units = {metric.name: counted_unit(metric.unit) for metric in workload.metrics}
    log_costs = _read_log_costs(workload, [trial for trial in trials if trial.stack not in uncounted])
    compared = _compare(log_costs, stacks, reference, record.margin)
    for key, (metric, point) in enumerate(log_costs):
        for row, stack in enumerate(stacks):
            cost = CpuCost(workload.name, metric, point, stack, units[metric])
            if compared.present[row, key].any():
                yield replace(cost, **compared.fields(row, key))
            else:
                why = _NOT_COUNTED if stack in uncounted else _UNKNOWN if stack in measured else NO_TRIAL
                yield replace(cost, reason=why)


def _read_log_costs(workload: WorkloadRecord, trials: Sequence[Trial]) -> _LogCosts:
    """Return the logarithms of the CPU costs of a workload, in the order of its metrics and points."""
    metrics = {metric.name: metric for metric in workload.metrics if metric.headline or metric.name == WALL_TIME}
    logs: dict[tuple[str, float | None], dict[tuple[str, int], float]] = defaultdict(dict)
    for trial in trials:
        by_label: dict[str, list[Turn]] = defaultdict(list)  # trials may have hundreds of turns, and many values
        for turn in trial.turns:
            by_label[turn.label].append(turn)
        for value in trial.values if trial.status == "ok" else ():
            if value.metric in metrics and value.unit == metrics[value.metric].unit:
                usage = cpu_usage(value, by_label[value.label] if value.label else trial.turns)
                if usage and (seconds := usage.seconds_per_unit):
                    logs[value.metric, value.point][trial.stack, trial.block] = math.log(seconds)
    order = list(metrics)
    return {key: logs[key] for key in sorted(logs, key=lambda key: (order.index(key[0]), key[1] or 0.0))}


@dataclass(frozen=True)
class _ComparedCosts:
    """CPU costs of a workload as arrays of logarithms with the axes stack, key, block; keys are metrics with a point.

    `reference` and `comparison` are None in a run without the baseline.
    """

    logs: NDArray[np.float64]
    present: NDArray[np.bool_]
    reference: BaselineRows | None
    comparison: RatioComparison | None

    def fields(self, row: int, key: int) -> dict[str, Any]:
        """Return the fields of a CPU cost that depend on the numbers of a stack, which has at least one."""
        seconds = exp_bounded(float(self.logs[row, key][self.present[row, key]].mean()))
        if self.reference is None or self.comparison is None:
            return {"seconds": seconds, "reason": _NO_BASELINE}
        if row == self.reference.row:
            return {"seconds": seconds, "ratio": 1.0, "n": int(self.present[row, key].sum())}
        ratio = self.comparison.ratio_at((row, key))
        in_baseline = self.present[self.reference.row, key]
        if ratio is None or not in_baseline.any():
            return {"seconds": seconds, "reason": _NO_PAIR}
        of_baseline = exp_bounded(float(self.logs[self.reference.row, key][in_baseline].mean()))
        names = ("ratio", "low", "high", "n")
        return {"seconds": of_baseline * ratio.ratio} | {name: getattr(ratio, name) for name in names}


def _compare(
    log_costs: _LogCosts, stacks: Sequence[str], reference: BaselineRows | None, margin: float
) -> _ComparedCosts:
    """Compare the costs of all stacks with the baseline's, key by key."""
    blocks = sorted({block for costs in log_costs.values() for _, block in costs})
    logs = np.zeros((len(stacks), len(log_costs), len(blocks)))
    present = np.zeros(logs.shape, dtype=bool)
    rows, columns = ({each: at for at, each in enumerate(names)} for names in (stacks, blocks))
    for key, costs in enumerate(log_costs.values()):
        for (stack, block), log in costs.items():
            logs[rows[stack], key, columns[block]], present[rows[stack], key, columns[block]] = log, True
    if reference is None:
        return _ComparedCosts(logs, present, None, None)
    # A block counts like a single round: its turns are added up.
    ratios = relative_to_baseline(logs[..., np.newaxis], present[..., np.newaxis], reference)
    return _ComparedCosts(logs, present, reference, ratios.compare(margin, reference))
