"""The bills as one picture: a bar for each stack, stacked of what its cost is for; what is saved lies left of 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tare.answers.advice import Advice, Candidate
from tare.answers.bill import CORRECTION, REST, Line
from tare.model import work
from tare.report.advised import cost_of, interval_of, share_of
from tare.report.chart_svg import Drawing, RowChart, bar, path, px, text, titled_group
from tare.report.chart_theme import STACKS, Look
from tare.report.svg_axes import Scale, scale_of

# What kinds of work are drawn as, in the order of the bars. A test has that no kind is missing.
PARTS: Mapping[str, tuple[str, ...]] = {
    "user code": (work.USER.name,),
    "system calls": (work.CALL.name, work.OPEN.name, work.STAT.name),
    "memory": (work.MAP.name, work.FAULT.name),
    "switches and waits": (work.SWITCH.name, work.FUTEX.name, work.POLL.name, work.PIPE.name),
    "network": (work.CONNECTION.name, work.MESSAGE.name, work.RECEIVED.name, work.SENT.name),
    "files": (work.FILE_READ.name, work.FILE_WRITE.name, work.SYNC.name),
    "programs and threads": (work.THREAD.name, work.PROCESS.name),
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
