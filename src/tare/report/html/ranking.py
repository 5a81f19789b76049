"""The first screen of the page: what the run found, and the ranking of each headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.model.journal import Run
from tare.model.units import counted
from tare.report.findings import Findings, cheapest, dearest, findings, what_was_compared
from tare.report.html.trials import Anchors
from tare.report.numbers import roughly
from tare.report.overview import Figure, figure_of, overview
from tare.report.tradeoff import Choice, choice
from tare.statistics.anytime import least_count
from tare.statistics.cells import Cell, HeadlineRule
from tare.statistics.ranking import Rank, rankings
from tare.statistics.summary import Summary


@dataclass(frozen=True)
class Placed:
    """A stack in a ranking: its name, how it stands to the baseline, and where its trials are."""

    stack: str
    share: str
    anchor: str


@dataclass(frozen=True)
class Tie:
    """Stacks with the same possible ranks, such as `2-3`: these cannot be distinguished."""

    ranks: str
    stacks: tuple[Placed, ...]


@dataclass(frozen=True)
class RankingRow:
    """The ranking of a headline; without one, `why`."""

    anchor: str
    name: str
    what: str
    ties: tuple[Tie, ...]
    why: str


@dataclass(frozen=True)
class Front:
    """All of the first screen. The `figure` and the `choice` are None where there is nothing to draw.

    `answer` names the cheapest stack and the dearest; it is empty where there is nothing to rank. `about` says what
    was compared. `anchors` lead from the names of stacks and headlines to where more is said.
    """

    answer: str
    about: str
    findings: Findings
    figure: Figure | None
    choice: Choice | None
    rankings: tuple[RankingRow, ...]
    anchors: Mapping[str, str]


def front(summary: Summary, run: Run, places: Anchors) -> Front:
    """Make the first screen of a run's page."""
    names = {stack: stack_anchor(summary, stack) for stack in summary.stacks}
    names |= {rule.name: workload_anchor(summary, rule.workload) for rule in summary.rules}
    sections = {workload: workload_anchor(summary, workload) for workload in summary.workloads}
    rows = zip(summary.rules, rankings(summary), strict=True)
    machine = run.record.measured_on
    return Front(
        " ".join(filter(None, (cheapest(summary), dearest(summary)))),
        what_was_compared(summary, machine),
        findings(summary, machine),
        figure_of(overview(summary, places, sections)),
        choice(summary, run),
        tuple(_row(summary, rule, ranking, places) for rule, ranking in rows),
        names,
    )


def workload_anchor(summary: Summary, workload: str) -> str:
    """Name the section of a workload."""
    return f"workload-{summary.workloads.index(workload)}"


def stack_anchor(summary: Summary, stack: str) -> str:
    """Name the place where it is said what a stack was."""
    return f"stack-{summary.stacks.index(stack)}"


def _row(summary: Summary, rule: HeadlineRule, ranking: Sequence[Rank], places: Anchors) -> RankingRow:
    groups: dict[tuple[int, int], list[Rank]] = {}
    for rank in ranking:
        groups.setdefault((rank.best, rank.worst), []).append(rank)
    ties = tuple(Tie(_ranks(*ends), tuple(_placed(rank.cell, places) for rank in own)) for ends, own in groups.items())
    most = max((cell.n for cell in summary.headlines if cell.headline == rule.name), default=0)
    why = f"measured {counted(most, 'time')}, {least_count()} are needed" if most else "nothing could be compared"
    what = f"{rule.text}; {'more' if rule.better == 'higher' else 'less'} is better"
    return RankingRow(workload_anchor(summary, rule.workload), rule.name, what, ties, "" if ties else why)


def _ranks(best: int, worst: int) -> str:
    return str(best) if best == worst else f"{best}\N{EN DASH}{worst}"


def _placed(cell: Cell, places: Anchors) -> Placed:
    share = "" if cell.verdict == "baseline" else roughly(cell.ratio or 1.0)
    return Placed(cell.stack, share, places.get((cell.workload, cell.stack), ""))
