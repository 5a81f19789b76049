"""The page of `tare advise`: the ranking, the bills, and a figure of the bills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tare.features.advise.advice import Advice, Candidate
from tare.features.advise.advice_text import answer, cost_of, for_orientation, interval_of, share_of, shares_of
from tare.features.advise.cost_model import CORRECTION, REST, Line
from tare.features.advise.next_step import next_step
from tare.model import operations
from tare.model.units import format_quantity
from tare.report.chart_svg import Drawing, RowChart, bar, path, px, text, titled_group
from tare.report.chart_theme import STACKS, Look
from tare.report.html.page import described
from tare.report.rendering import render_page
from tare.report.svg_axes import Scale, scale_of

# What kinds of work are drawn as, in the order of the bars. A test has that no kind is missing.
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
_OF_KIND = {kind: part for part, kinds in PARTS.items() for kind in kinds}
_CAPTION = (
    "The bill of each stack: what a unit of work costs there beyond bare metal, in percent of its {} there. "
    "The bar is what the cost is for; the line is the interval of 90 % of its sum. What is cheaper lies left of 0. "
    "A bar that ends in an arrow is longer than the axis: its parts are to scale among each other alone."
)
_ACROSS, _RIGHT, _ROW = 400, 180, 30  # widths of bars and values, and height of a row, pixels
_LEAST_REACH = 0.05  # of the axis, a share of the time on bare metal
_LONGEST = 1.0  # from here on a bar does not make the axis longer, unless all are so long


def render(advice: Advice) -> bytes:
    """Render what `tare advise` found."""
    record, step = advice.prices.record, next_step(advice)
    folder = "brought by tare, for orientation" if for_orientation(advice) else str(advice.prices.folder)
    page = {
        "title": f"Which stack for {advice.application.name}",
        "purpose": "To check it" if advice.is_settled else "To settle it",
        "step": step,
        "figure": figure_of(advice),
        "looks": [each.decision.replace(" ", "-") for each in advice.candidates],
        "bills": [
            {
                "stack": each.stack,
                "rows": [_row(line) for line in each.lines],
                "total": cost_of(each.cost),
                "interval": interval_of(each.cost),
            }
            for each in advice.candidates
        ],
        "facts": (
            ("price list", folder),
            ("measured", f"{record.started}, by tare {record.tare}"),
            *described(record.measured_on),
        ),
    }
    return render_page(__package__, "advice.html.j2", page, answer(advice))


def _row(line: Line) -> dict[str, str]:
    return {
        "title": line.title,
        "number": "" if line.count is None else f"{line.count:,.3g}",
        "price": "" if line.price is None else format_quantity(line.price, "s"),
        "ratio": "" if line.ratio is None else f"\N{MULTIPLICATION SIGN}{line.ratio:.3g}",
        "share": share_of(line.share.value),
        "interval": shares_of(line.share),
    }


def figure_of(advice: Advice) -> Drawing:
    """Draw the bills of all stacks, in the order of the ranking."""
    shown = {part for each in advice.candidates for part, _, _ in _by_part(each.lines)}
    series = {part: Look(color, "square") for part, color in COLORS.items() if part in shown}
    scale = _scale(advice.of("ranked") or advice.candidates)
    rows = RowChart([each.stack for each in advice.candidates], scale, series, size=(_ACROSS, _ROW))
    zero = path(f"M{px(rows.area.x(0.0))} {px(rows.area.top - 4)}v{px(rows.area.height + 4)}", "ink")
    chart = rows.chart("", [*(_bar(each, rows) for each in advice.candidates), zero], room=_RIGHT)
    return Drawing(_CAPTION.format("CPU time" if advice.by_cpu else "time"), chart)


def _scale(candidates: Sequence[Candidate]) -> Scale:
    """Return the axis: long enough for all bars, but for those of stacks that take twice as long and more."""
    sums = [_sums(each.lines) for each in candidates]
    costs = [above for _, above in sums]
    reach = max((cost for cost in costs if cost <= _LONGEST), default=min(costs, default=0.0))
    ends = [each.cost.high - 1 for each in candidates if each.cost.high is not None and each.cost.high - 1 <= 2 * reach]
    last = max(reach, *ends, _LEAST_REACH) * 1.04
    first = min(0.0, *(below for below, above in sums if above <= last))
    return scale_of(first, last, _more)


def _sums(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the sums of what is saved and of what is paid."""
    shares = [share for _, share, _ in _by_part(lines)]
    return sum(min(each, 0.0) for each in shares), sum(max(each, 0.0) for each in shares)


def _by_part(lines: Sequence[Line]) -> Iterator[tuple[str, float, str]]:
    """Yield each part that is not 0, with its share and what is in it."""
    for part in PARTS:
        own = [line for line in lines if _OF_KIND.get(line.kind) == part]
        share = sum(line.share.value for line in own)
        if share:
            yield part, share, ", ".join(f"{line.title} {share_of(line.share.value)}" for line in own)


def _bar(candidate: Candidate, rows: RowChart) -> str:
    area, y, last = rows.area, rows.y(candidate.stack), rows.area.across.axis.last
    _, above = _sums(candidate.lines)
    shrunk = last / above if above > last else 1.0
    left, right, parts, said = 0.0, 0.0, [], []
    for part, share, detail in _by_part(candidate.lines):
        length = share * shrunk
        start = left if share < 0 else right
        said.append(f"{part} {share_of(share)}: {detail}")
        across = area.x(start), area.x(start + length)
        parts.append(bar(across, y, 18, "segment", title=said[-1], fill=COLORS[part]))
        left, right = (left + length, right) if share < 0 else (left, right + length)
    cost, end = candidate.cost, area.left + area.width
    if above > last:
        parts.append(path(f"M{px(end + 2)} {px(y - 6)}l7 6l-7 6", "further"))
    elif cost.low is not None and cost.high is not None:
        low, high = area.x(cost.low - 1), area.x(cost.high - 1)
        parts.append(path(f"M{px(low)} {px(y - 4)}v8m0 -4H{px(high)}m0 -4v8", "ends"))
    value = f"{cost_of(cost)} {interval_of(cost)}"
    parts.append(text(value, end + 14, y + 4.5))
    look = "" if candidate.decision == "ranked" else "pale"
    return titled_group(look, parts, f"{candidate.stack}: {value}; {'; '.join(said)}")


def _more(share: float) -> str:
    return f"{share * 100:+g} %".replace("-", "\N{MINUS SIGN}") if share else "0"
