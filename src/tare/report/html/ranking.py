"""The first screen of the page: what the run found, and the ranking of each headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.model.journal import Run
from tare.model.units import counted
from tare.report.findings import cheapest, dearest, findings, what_was_compared
from tare.report.html.trials import Anchors
from tare.report.overview import figure_of, overview
from tare.report.tradeoff import choice
from tare.statistics.anytime import least_count
from tare.statistics.cells import Cell
from tare.statistics.ranking import rankings
from tare.statistics.summary import Summary


def front(summary: Summary, run: Run, places: Anchors) -> Mapping[str, object]:
    """Return what the first screen of a run's page shows.

    The `figure` and the `choice` are None where there is nothing to draw. `answer` names the cheapest stack and the
    dearest; it is empty where there is nothing to rank. `anchors` lead from the names of stacks and headlines to where
    more is said.
    """
    names = {stack: stack_anchor(summary, stack) for stack in summary.stacks}
    names |= {rule.name: workload_anchor(summary, rule.workload) for rule in summary.rules}
    sections = {workload: workload_anchor(summary, workload) for workload in summary.workloads}
    machine = run.record.measured_on
    return {
        "answer": " ".join(filter(None, (cheapest(summary), dearest(summary)))),
        "about": what_was_compared(summary, machine),
        "findings": findings(summary, machine),
        "figure": figure_of(overview(summary, places, sections)),
        "choice": choice(summary, run),
        "rankings": ranking_rows(summary),
        "anchors": names,
        "places": places,
    }


def ranking_rows(summary: Summary) -> Sequence[Mapping[str, Any]]:
    """Return the ranking of each headline: by the ranks that they share, such as `2-3`, the cells; without one, why."""
    rows = []
    for rule, ranking in zip(summary.rules, rankings(summary), strict=True):
        ties: dict[str, list[Cell]] = {}
        for rank in ranking:
            shared = str(rank.best) if rank.best == rank.worst else f"{rank.best}\N{EN DASH}{rank.worst}"
            ties.setdefault(shared, []).append(rank.cell)
        most = max((cell.n for cell in summary.headlines if cell.headline == rule.name), default=0)
        why = f"measured {counted(most, 'time')}, {least_count()} are needed" if most else "nothing could be compared"
        anchor = workload_anchor(summary, rule.workload)
        rows.append({"anchor": anchor, "rule": rule, "ties": ties, "why": "" if ties else why})
    return rows


def workload_anchor(summary: Summary, workload: str) -> str:
    """Name the section of a workload."""
    return f"workload-{summary.workloads.index(workload)}"


def stack_anchor(summary: Summary, stack: str) -> str:
    """Name the place where it is said what a stack was."""
    return f"stack-{summary.stacks.index(stack)}"
