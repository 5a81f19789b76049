"""The bills as one picture: a bar for each stack, stacked of what its cost is for; what is saved lies left of 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tare.answers.advice import Advice, Candidate
from tare.answers.bill import CORRECTION, REST, Line
from tare.model import work
from tare.report.advised import cost_of, interval_of, share_of
from tare.report.chart_svg import template
from tare.report.chart_theme import STACKS

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
_LEFT, _ACROSS, _RIGHT = 130, 400, 180  # widths of names, bars and values, pixels
_HEAD, _ROW, _FOOT = 8, 30, 26  # heights
_LEAST_REACH = 0.05  # of the axis, a share of the time on bare metal
_LONGEST = 1.0  # from here on a bar does not make the axis longer, unless all are so long
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_MOST_TICKS = 6


@dataclass(frozen=True)
class Segment:
    """A part of a bar, from one place of the axis to another."""

    part: str
    color: str
    start: float
    end: float
    detail: str


@dataclass(frozen=True)
class Bar:
    """A stack: places are shares of the axis. `ends` is its interval, None where it has none or is cut."""

    stack: str
    segments: tuple[Segment, ...]
    ends: tuple[float, float] | None
    is_cut: bool
    is_pale: bool
    value: str
    interval: str
    detail: str


@dataclass(frozen=True)
class BillFigure:
    """The picture, the parts that are in it with their colors, and how to read it."""

    svg: Markup
    parts: tuple[tuple[str, str], ...]
    caption: str


@dataclass(frozen=True)
class _Axis:
    first: float
    last: float

    def place(self, share: float) -> float:
        return min(max((share - self.first) / (self.last - self.first), 0.0), 1.0)


def figure_of(advice: Advice) -> BillFigure:
    """Draw the bills of all stacks, in the order of the ranking."""
    axis = _axis(advice.of("ranked") or advice.candidates)
    bars = [_bar(each, axis) for each in advice.candidates]
    shown = {segment.part for bar in bars for segment in bar.segments}
    text = template("bill.svg.j2").render(
        bars=bars,
        ticks=tuple(_ticks(axis)),
        zero=axis.place(0.0),
        size={"left": _LEFT, "across": _ACROSS, "head": _HEAD, "row": _ROW},
        width=_LEFT + _ACROSS + _RIGHT,
        height=_HEAD + _ROW * len(bars) + _FOOT,
        baseline=advice.baseline,
    )
    parts = tuple((part, color) for part, color in COLORS.items() if part in shown)
    caption = _CAPTION.format("CPU time" if advice.by_cpu else "time")
    return BillFigure(Markup(text), parts, caption)  # noqa: S704  # the template escapes what is from a run


def _axis(candidates: Sequence[Candidate]) -> _Axis:
    """Return the axis: long enough for all bars, but for those of stacks that take twice as long and more."""
    sums = [_sums(each.lines) for each in candidates]
    costs = [above for _, above in sums]
    reach = max((cost for cost in costs if cost <= _LONGEST), default=min(costs, default=0.0))
    ends = [each.cost.high - 1 for each in candidates if each.cost.high is not None and each.cost.high - 1 <= 2 * reach]
    last = max(reach, *ends, _LEAST_REACH) * 1.04
    first = min(0.0, *(below for below, above in sums if above <= last))
    return _Axis(first, last)


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


def _bar(candidate: Candidate, axis: _Axis) -> Bar:
    _, above = _sums(candidate.lines)
    is_cut = above > axis.last
    shrunk = axis.last / above if is_cut else 1.0
    left, right, segments = 0.0, 0.0, []
    for part, share, detail in _by_part(candidate.lines):
        length = share * shrunk
        start = left if share < 0 else right
        ends = sorted((axis.place(start), axis.place(start + length)))
        segments.append(Segment(part, COLORS[part], ends[0], ends[1], f"{part} {share_of(share)}: {detail}"))
        left, right = (left + length, right) if share < 0 else (left, right + length)
    cost = candidate.cost
    ends_of = None
    if not is_cut and cost.low is not None and cost.high is not None:
        ends_of = (axis.place(cost.low - 1), axis.place(cost.high - 1))
    text = f"{candidate.stack}: {cost_of(cost)} {interval_of(cost)}; {'; '.join(each.detail for each in segments)}"
    return Bar(
        candidate.stack,
        tuple(segments),
        ends_of,
        is_cut,
        candidate.decision != "ranked",
        cost_of(cost),
        interval_of(cost),
        text,
    )


def _ticks(axis: _Axis) -> Iterator[tuple[float, str]]:
    """Yield round shares: the finest step that gives few of them."""
    whole = axis.last - axis.first
    step = next((each for each in _TICKS if whole / each <= _MOST_TICKS), whole)
    for number in range(int(axis.first / step), int(axis.last / step) + 1):
        share = number * step
        yield axis.place(share), f"{share * 100:+.0f} %".replace("-", "\N{MINUS SIGN}") if number else "0"
