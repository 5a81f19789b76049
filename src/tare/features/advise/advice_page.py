"""HTML page of `tare advise`: the ranking, the cost breakdowns, and a figure of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tare.features.advise.advice import Advice, Candidate
from tare.features.advise.advice_text import (
    answer,
    format_cost,
    format_interval,
    format_share,
    format_share_interval,
    orientation_notice,
)
from tare.features.advise.cost_model import CORRECTION, REST, CostItem
from tare.features.advise.next_step import next_step
from tare.model import operations
from tare.model.units import format_quantity
from tare.report.chart_svg import Drawing, RowChart, draw_bar, draw_path, draw_text, draw_titled_group, px
from tare.report.chart_theme import STACKS, SeriesStyle
from tare.report.html.page import describe_facts
from tare.report.rendering import render_page
from tare.report.svg_axes import Scale, linear_scale

# The parts of a bar, in order, with their operation kinds: 20 kinds are more than colors that readers tell apart.
PARTS: Mapping[str, tuple[str, ...]] = {
    "user code": (operations.USER.name,),
    "system calls": (operations.CALL.name, operations.OPEN.name, operations.STAT.name),
    "memory": (operations.MAP.name, operations.FAULT.name),
    "switches and waits": (operations.SWITCH.name, operations.FUTEX.name, operations.POLL.name, operations.PIPE.name),
    "network": (operations.CONNECTION.name, operations.MESSAGE.name, operations.RECEIVED.name, operations.SENT.name),
    "files": (operations.FILE_READ.name, operations.FILE_WRITE.name, operations.SYNC.name),
    "programs and threads": (operations.THREAD.name, operations.PROCESS.name),
    "other time in the kernel": (REST,),
    "correction": (CORRECTION,),
}
COLORS = dict(zip(PARTS, STACKS, strict=False))
_PART_OF_KIND = {kind: part for part, kinds in PARTS.items() for kind in kinds}
_CAPTION = (
    "Cost breakdown of each stack: the extra cost of a unit of work over bare metal, in percent of its {} there. "
    "The parts of a bar are the costs by type of operation; the line is the 90 % interval of their sum. "
    "Savings are left of 0. "
    "A bar that ends in an arrow is longer than the axis: its parts are to scale only relative to each other."
)
_BAR_WIDTH, _VALUE_WIDTH, _ROW_HEIGHT = 400, 180, 30  # pixels
_MIN_REACH = 0.05  # least end of the axis, as a share of the time on bare metal
_MAX_REACH = 1.0  # a bar that is longer is cut, unless all are: it would make the others too short to read


def render(advice: Advice) -> bytes:
    """Return the page of `tare advise` as HTML."""
    record, step = advice.prices.record, next_step(advice)
    folder = "built into tare, for orientation" if orientation_notice(advice) else str(advice.prices.folder)
    page = {
        "title": f"Which stack for {advice.application.name}",
        "purpose": "To check it" if advice.is_settled else "To settle it",
        "step": step,
        "figure": draw_figure(advice),
        "looks": [each.decision.replace(" ", "-") for each in advice.candidates],
        "breakdowns": [
            {
                "stack": each.stack,
                "rows": [_item_row(item) for item in each.cost_items],
                "total": format_cost(each.cost),
                "interval": format_interval(each.cost),
            }
            for each in advice.candidates
        ],
        "facts": (
            ("price list", folder),
            ("measured", f"{record.started}, by tare {record.tare}"),
            *describe_facts(record.instance_machine),
        ),
    }
    return render_page(__package__, "advice.html.j2", page, answer(advice))


def _item_row(item: CostItem) -> dict[str, str]:
    return {
        "title": item.title,
        "number": "" if item.count is None else f"{float(f'{item.count:.3g}'):,.10g}",
        "unit_cost": "" if item.price is None else format_quantity(item.price, "s"),
        "ratio": "" if item.ratio is None else f"\N{MULTIPLICATION SIGN}{item.ratio:.3g}",
        "share": format_share(item.share.value),
        "interval": format_share_interval(item.share),
    }


def draw_figure(advice: Advice) -> Drawing:
    """Draw the cost breakdowns of all stacks, in the order of the ranking."""
    shown = {part for each in advice.candidates for part, _, _ in _shares_by_part(each.cost_items)}
    series = {part: SeriesStyle(color, "square") for part, color in COLORS.items() if part in shown}
    scale = _cost_scale(advice.with_decision("ranked") or advice.candidates)
    rows = RowChart([each.stack for each in advice.candidates], scale, series, size=(_BAR_WIDTH, _ROW_HEIGHT))
    zero = draw_path(f"M{px(rows.area.x_of(0.0))} {px(rows.area.top - 4)}v{px(rows.area.height + 4)}", "ink")
    chart = rows.create_chart("", [*(_draw_bar(each, rows) for each in advice.candidates), zero], room=_VALUE_WIDTH)
    return Drawing(_CAPTION.format("CPU time" if advice.by_cpu else "time"), chart)


def _cost_scale(candidates: Sequence[Candidate]) -> Scale:
    """Return the axis: long enough for all bars, except those of stacks that take twice as long or more."""
    sums = [_savings_and_costs(each.cost_items) for each in candidates]
    costs = [above for _, above in sums]
    reach = max((cost for cost in costs if cost <= _MAX_REACH), default=min(costs, default=0.0))
    bounds = [each.cost.high - 1 for each in candidates if each.cost.high is not None]
    last = max(reach, *(bound for bound in bounds if bound <= 2 * reach), _MIN_REACH) * 1.04
    first = min(0.0, *(below for below, above in sums if above <= last))
    return linear_scale(first, last, _format_extra)


def _savings_and_costs(items: Sequence[CostItem]) -> tuple[float, float]:
    """Return the sum of negative parts and the sum of positive parts."""
    shares = [share for _, share, _ in _shares_by_part(items)]
    return sum(min(each, 0.0) for each in shares), sum(max(each, 0.0) for each in shares)


def _shares_by_part(items: Sequence[CostItem]) -> Iterator[tuple[str, float, str]]:
    """Yield each part that is not 0, with its share and a text of its cost items."""
    for part in PARTS:
        items_of_part = [item for item in items if _PART_OF_KIND.get(item.kind) == part]
        share = sum(item.share.value for item in items_of_part)
        if share:
            yield part, share, ", ".join(f"{item.title} {format_share(item.share.value)}" for item in items_of_part)


def _draw_bar(candidate: Candidate, rows: RowChart) -> str:
    area, y, last = rows.area, rows.y_of(candidate.stack), rows.area.across.axis.last
    _, above = _savings_and_costs(candidate.cost_items)
    scale = last / above if above > last else 1.0  # a cut bar keeps the proportions of its parts
    left, right, parts, titles = 0.0, 0.0, [], []
    for part, share, detail in _shares_by_part(candidate.cost_items):
        length = share * scale
        start = left if share < 0 else right
        titles.append(f"{part} {format_share(share)}: {detail}")
        across = area.x_of(start), area.x_of(start + length)
        parts.append(draw_bar(across, y, 18, "segment", title=titles[-1], fill=COLORS[part]))
        left, right = (left + length, right) if share < 0 else (left, right + length)
    cost, end = candidate.cost, area.left + area.width
    if above > last:
        parts.append(draw_path(f"M{px(end + 2)} {px(y - 6)}l7 6l-7 6", "further"))
    elif cost.low is not None and cost.high is not None:
        low, high = area.x_of(cost.low - 1), area.x_of(cost.high - 1)
        parts.append(draw_path(f"M{px(low)} {px(y - 4)}v8m0 -4H{px(high)}m0 -4v8", "ends"))
    value = f"{format_cost(cost)} {format_interval(cost)}"
    parts.append(draw_text(value, end + 14, y + 4.5))
    look = "" if candidate.decision == "ranked" else "pale"
    return draw_titled_group(look, parts, f"{candidate.stack}: {value}; {'; '.join(titles)}")


def _format_extra(share: float) -> str:
    return f"{share * 100:+g} %".replace("-", "\N{MINUS SIGN}") if share else "0"
