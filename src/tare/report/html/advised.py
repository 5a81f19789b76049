"""The page of `tare advise`: the answer, the bills as a picture, the ranking, and each bill line by line."""

from __future__ import annotations

from dataclasses import dataclass

from tare.answers.advice import Advice, Candidate
from tare.answers.bill import Line
from tare.report.advised import answer, cost_of, for_orientation, interval_of, share_of, shares_of
from tare.report.chart_svg import Drawing
from tare.report.drawn_bill import figure_of
from tare.report.html import render_page
from tare.report.html.page import described
from tare.report.next_step import NextStep, next_step
from tare.units import format_quantity


@dataclass(frozen=True)
class BillRow:
    """A line of a bill."""

    title: str
    count: str
    price: str
    ratio: str
    share: str
    interval: str


@dataclass(frozen=True)
class BillShown:
    """A stack's bill, with its sum."""

    stack: str
    rows: tuple[BillRow, ...]
    total: str
    interval: str


@dataclass(frozen=True)
class AdvisedPage:
    """All of the page."""

    title: str
    purpose: str  # of the next step
    step: NextStep | None
    figure: Drawing
    looks: tuple[str, ...]  # of the rows
    bills: tuple[BillShown, ...]
    facts: tuple[tuple[str, str], ...]


def render(advice: Advice) -> bytes:
    """Render what `tare advise` found."""
    return render_page("advised.html.j2", _page(advice), answer(advice))


def _page(advice: Advice) -> AdvisedPage:
    record = advice.prices.record
    return AdvisedPage(
        title=f"Which stack for {advice.application.name}",
        purpose="To check it" if advice.is_settled else "To settle it",
        step=next_step(advice),
        figure=figure_of(advice),
        looks=tuple(each.decision.replace(" ", "-") for each in advice.candidates),
        bills=tuple(_bill(each) for each in advice.candidates),
        facts=(
            (
                "price list",
                "brought by tare, for orientation" if for_orientation(advice) else str(advice.prices.folder),
            ),
            ("measured", f"{record.started}, by tare {record.tare}"),
            *described(record.measured_on),
        ),
    )


def _bill(candidate: Candidate) -> BillShown:
    cost = candidate.cost
    return BillShown(candidate.stack, tuple(map(_row, candidate.lines)), cost_of(cost), interval_of(cost))


def _row(line: Line) -> BillRow:
    return BillRow(
        line.title,
        "" if line.count is None else f"{line.count:,.3g}",
        "" if line.price is None else format_quantity(line.price, "s"),
        "" if line.ratio is None else f"\N{MULTIPLICATION SIGN}{line.ratio:.3g}",
        share_of(line.share.value),
        shares_of(line.share),
    )
