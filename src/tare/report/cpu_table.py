"""Table of CPU time per request or run: a row for each stack, a column for each workload, metric and point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tare.model.run_folder import Run
from tare.report.numbers import format_interval, format_plus_minus, format_ratio, join_names, point
from tare.statistics.cpu_costs import NO_TRIAL, RUN, CpuCost
from tare.statistics.summarize import workload_records
from tare.statistics.summary import Summary

_SHOWN_UNITS: Mapping[str, tuple[str, float]] = {"byte": ("MiB", float(1 << 20))}  # with the number of base units
_WHY = (
    "Other tenants hardly change it, as steal time and other tasks are not part of it, and the number of machines that "
    "a load needs follows from it."
)
_LEFT_OUT = (
    "Not included is work for the instance outside of its control group: by the client, soft interrupts, kernel "
    "threads, and proxies such as Docker's. The CPU time of a guest is that of its monitor."
)
_OF_RUNS = "A run includes the start of the command in the instance, and its `prepare`."


@dataclass(frozen=True)
class CpuColumn:
    """Column of the table. `name` is the workload, with its metric if several have CPU costs; `at` is the point."""

    workload: str
    name: str
    at: str
    unit: str
    costs: Mapping[str, CpuCost]


@dataclass(frozen=True)
class CpuTexts:
    """Texts of a cell: CPU time, change from the baseline and its interval, or `why` one of them is missing.

    `sort` is the CPU time as a plain number.
    """

    quantity: str = ""
    change: str = ""
    interval: str = ""
    n: str = ""
    why: str = ""
    sort: str = ""


def cpu_columns(summary: Summary, run: Run) -> tuple[CpuColumn, ...]:
    """Return the columns of the table in the order of the workloads; empty if no CPU time is known."""
    return tuple(_create_columns(summary, run))


def _create_columns(summary: Summary, run: Run) -> Iterator[CpuColumn]:
    sweeps = {record.name: record.sweep for record in workload_records(run)}
    by_key: dict[tuple[str, str, float | None], dict[str, CpuCost]] = {}
    for cost in summary.cpu_costs:
        by_key.setdefault((cost.workload, cost.metric, cost.point), {})[cost.stack] = cost
    metrics = {(workload, metric) for workload, metric, _ in by_key}
    for (workload, metric, at), costs in by_key.items():
        several = sum(name == workload for name, _ in metrics) > 1
        sweep, counted = sweeps[workload], next(iter(costs.values())).unit
        text = f"{sweep.name} {point(at, sweep.unit)}" if sweep and at is not None else point(at, "")
        unit = _SHOWN_UNITS.get(counted, (counted, 1.0))[0]
        yield CpuColumn(workload, f"{workload} {metric}" if several else workload, text, unit, costs)


def select_last_points(columns: Sequence[CpuColumn]) -> tuple[CpuColumn, ...]:
    """Return the columns without all points of a sweep but the last, which has the highest load."""
    return tuple({column.name: column for column in columns}.values())


def measured_stacks(summary: Summary, columns: Sequence[CpuColumn]) -> list[str]:
    """Return the stacks of the run that have a trial with a value in any of the columns."""
    return [stack for stack in summary.stacks if any(column.costs[stack].reason != NO_TRIAL for column in columns)]


def table_title(columns: Sequence[CpuColumn]) -> str:
    """Return the title of the table, which names what is counted: `CPU time per request and run`."""
    return f"CPU time per {join_names(tuple(dict.fromkeys(column.unit for column in columns)))}"


def explain_table(columns: Sequence[CpuColumn]) -> str:
    """Return why the table exists, and what it includes and leaves out."""
    has_runs = any(column.unit == RUN for column in columns)
    return " ".join((_WHY, _LEFT_OUT, *(_OF_RUNS,) * has_runs))


def column_titles(columns: Sequence[CpuColumn]) -> list[str]:
    """Return the titles of columns, with the unit if it is not that of all."""
    several = len({column.unit for column in columns}) > 1
    return [
        ", ".join(filter(None, (column.name, column.at, f"per {column.unit}" if several else ""))) for column in columns
    ]


def cost_text(cost: CpuCost) -> str:
    """Return CPU time, change and interval as one text, such as `10.4 µs +50.5 % [+45.0, +56.2]`; "" if unknown."""
    texts = cost_texts(cost)
    return " ".join(filter(None, (texts.quantity, texts.change, texts.interval)))


def cost_texts(cost: CpuCost) -> CpuTexts:
    """Return the texts of a cell."""
    if cost.seconds is None:
        return CpuTexts(why=cost.reason)
    quantity = format_plus_minus(cost.seconds * _SHOWN_UNITS.get(cost.unit, ("", 1.0))[1], None, "s")
    is_baseline = cost.ratio == 1 and cost.low is None
    return CpuTexts(
        quantity,
        "" if is_baseline else format_ratio(cost),
        format_interval(cost),
        f"n={cost.n}" if cost.n else "",
        cost.reason,
        f"{cost.seconds:.6g}",
    )
