"""Trade-off figure: cost against isolation, memory and start time, as SVG.

One panel for each of these that is known of the baseline or of a stack. In all of them the cost is that over all
workloads together, with its interval.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tare.model.isolation import LEVELS, Isolation, find_strongest
from tare.model.run_folder import Run
from tare.model.trial import Trial
from tare.report.chart_svg import FramedFigure
from tare.report.numbers import format_interval, format_plus_minus, format_ratio, join_names
from tare.report.overview import quantity_logs
from tare.report.rendering import render_section
from tare.report.svg_axes import Axis, Size, Ticks, classify_cost, cost_axis, cost_ticks, quantity_axis, quantity_ticks
from tare.statistics.cells import OverallSpeed
from tare.statistics.summary import Summary

UNKNOWN = "unknown"
LANES = (*LEVELS, UNKNOWN)  # in tables and figures, the weakest first
_RUNTIME = re.compile(r"[.-](runsc|kata)[.-]")  # in the name of containerd's runtime, or of its shim
_RUNTIME_ISOLATION = {
    "runsc": Isolation("user-space kernel", "its runtime is gVisor's: a kernel in user space behind a seccomp filter"),
    "kata": Isolation("own kernel", "its runtime is Kata's: a guest for each container or pod"),
}
_NOT_KATA = "shared-kernel"  # caution of an instance whose runtime has the name of Kata but started no guest
TITLE = "Cost against isolation, memory and start-up"
_LEFT, _ACROSS, _LEAD, _NAMES = 110, 170, 16, 116  # widths of a panel's parts, pixels
_WIDTH = _LEFT + _ACROSS + _LEAD + _NAMES
_TOP, _BOTTOM, _MIN_UP = 46, 40, 190  # heights
_LINE = 15  # height of a name
_NAMED = 4  # names in the sentence about stacks that are left out
_MAX_POINTS = 40
_MIN_TRIALS = 4  # fewer trials have no quartiles
Logs = tuple[float, float, float]  # of the lower bound, the middle and the upper bound


def find_isolation(run: Run, stacks: Iterable[str]) -> Mapping[str, Isolation]:
    """Return the isolation of each of the stacks for which the run has recorded it.

    The runtime that trials report (gVisor's or Kata's) counts as a layer, because containerd and Kubernetes isolate
    like their runtime.
    """
    runtimes: dict[str, set[str]] = {}
    without_guest = set()
    for trial in run.trials:
        runtime_texts = (text for name, text in trial.proof if name.rpartition(": ")[2] == "runtime")
        runtimes.setdefault(trial.stack, set()).update(
            name for text in runtime_texts for name in _RUNTIME.findall(text)
        )
        if any(caution.kind == _NOT_KATA for caution in trial.cautions):
            without_guest.add(trial.stack)
    isolation = {}
    for stack in stacks:
        if not (recorded := run.record.isolation.get(stack)):
            continue
        inner, *outer = recorded  # the innermost layer first, which `find_strongest` prefers among equal ones
        layers = [inner, *(_RUNTIME_ISOLATION[name] for name in runtimes.get(stack, ()))]
        if stack in without_guest:
            layers = [Isolation("shared kernel", "it ran on the machine's kernel, under the name of Kata", inner.layer)]
        isolation[stack] = find_strongest((*layers, *outer)) or inner
    return isolation


@dataclass(frozen=True)
class IntervalSpan:
    """Positions of an estimate and its interval bounds, as shares of an axis; bounds are None without an interval."""

    place: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Point:
    """Stack in a panel: `across` is its cost, `up` the other quantity. `isolation` is one of `LANES`."""

    stack: str
    detail: str
    isolation: str
    size: Size
    across: IntervalSpan
    up: IntervalSpan
    is_sure: bool
    is_baseline: bool


@dataclass(frozen=True)
class TradeoffPanel:
    """Panel of stacks by cost and another quantity, with the ticks and lines of the quantity's axis."""

    name: str
    what: str
    ticks: Ticks
    lines: tuple[float, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Tradeoff:
    """All panels and their common axis of costs.

    `left_out` names the stacks without a cost over all workloads; `more` stacks are not drawn because they cost most.
    """

    baseline: str
    workloads: tuple[str, ...]
    ticks: Ticks
    zero: float
    band: tuple[float, float]
    panels: tuple[TradeoffPanel, ...]
    left_out: tuple[str, ...]
    more: int = 0


@dataclass(frozen=True)
class _CostScale:
    """Stacks that have a cost, and the axis of costs."""

    summary: Summary
    standings: Mapping[str, OverallSpeed]
    isolation: Mapping[str, Isolation]
    axis: Axis

    def isolation_level(self, stack: str) -> str:
        """Return the stack's level of isolation, or `UNKNOWN`."""
        return self.isolation[stack].level if stack in self.isolation else UNKNOWN

    def create_point(self, stack: str, up: IntervalSpan, text: str) -> Point:
        """Return the point of a stack; `text` describes the other quantity."""
        standing = self.standings.get(stack)
        isolation = self.isolation_level(stack)
        if standing is None:
            across, size, cost = (
                IntervalSpan(self.axis.position(0.0)),
                classify_cost(0.0, self.summary.margin),
                "baseline",
            )
        else:
            low, at, high = _cost_logs(standing)
            ends = (None, None) if standing.low is None else (self.axis.position(low), self.axis.position(high))
            across, size = IntervalSpan(self.axis.position(at), *ends), classify_cost(at, self.summary.margin)
            cost = f"overall speed {format_ratio(standing)} {format_interval(standing)}".rstrip()
        is_sure = standing is None or standing.verdict in ("better", "worse", "equivalent")
        title = self.summary.title(stack)
        return Point(title, f"{stack}: {cost}; {text}", isolation, size, across, up, is_sure, standing is None)


def create_tradeoff(summary: Summary, run: Run) -> Tradeoff | None:
    """Return the panels of costs against other quantities; None if no stack has a cost over all workloads."""
    all_standings = summary.overall.standings
    standings = {each.stack: each for each in all_standings[:_MAX_POINTS]}
    axis = cost_axis((each for standing in standings.values() for each in _cost_logs(standing)), summary.margin)
    costs = _CostScale(summary, standings, find_isolation(run, (summary.baseline, *standings)), axis)
    found = (_isolation_panel(costs), _memory_panel(costs, run), _start_panel(costs, run))
    panels = tuple(panel for panel in found if panel)
    if not standings or not panels:
        return None
    return Tradeoff(
        baseline=summary.baseline,
        workloads=summary.overall.workloads,
        ticks=cost_ticks(axis),
        zero=axis.position(0.0),
        band=axis.band(0.0, summary.margin),
        panels=panels,
        left_out=summary.overall.missing,
        more=len(all_standings) - len(standings),
    )


def _cost_logs(standing: OverallSpeed) -> Logs:
    """Return the logarithms of the factor of time and of its interval bounds."""
    at = -math.log(standing.speed)
    if standing.low is None or standing.high is None:
        return at, at, at
    return -math.log(standing.high), at, -math.log(standing.low)


def _isolation_panel(costs: _CostScale) -> TradeoffPanel | None:
    """Return the panel with a lane for each level of isolation, the weakest level at the top."""
    if not any(stack in costs.isolation for stack in costs.standings):
        return None
    stacks = (costs.summary.baseline, *costs.standings)
    by_level = {level: [each for each in stacks if costs.isolation_level(each) == level] for level in LANES}
    rows = [(level, stack) for level, members in by_level.items() for stack in members]
    places = {stack: 1 - (at + 0.5) / len(rows) for at, (_, stack) in enumerate(rows)}
    reasons = {stack: f" ({found.explanation})" for stack, found in costs.isolation.items()}
    points = tuple(
        costs.create_point(stack, IntervalSpan(places[stack]), f"isolation: {level}{reasons.get(stack, '')}")
        for level, stack in rows
    )
    ticks = tuple(
        (statistics.mean(places[stack] for stack in members), level) for level, members in by_level.items() if members
    )
    ends = [min(places[stack] for stack in members) - 0.5 / len(rows) for members in by_level.values() if members]
    return TradeoffPanel("Isolation", "the weakest at the top", ticks, tuple(ends[:-1]), points)


def _memory_panel(costs: _CostScale, run: Run) -> TradeoffPanel | None:
    sizes = _values_by_stack(run, lambda trial: trial.footprint.total_memory_bytes if trial.footprint else None)
    return _create_panel(
        costs, ("Memory", "of an instance: median, middle half of trials", "bytes"), _median_spans(sizes)
    )


def _start_panel(costs: _CostScale, run: Run) -> TradeoffPanel | None:
    """Return the panel of starts: those of the workload `startup`, or those of all instances without it."""
    measured = {record.name for record in run.record.workloads if record.use == "startup"}
    for rule in costs.summary.rules:
        cells = [cell for cell in costs.summary.headlines if cell.headline == rule.name]
        if rule.workload in measured and cells and cells[0].unit == "s":
            known = {cell.stack: _as_logs(quantity_logs(cell)) for cell in cells if cell.usual}
            return _create_panel(costs, ("Start-up", f"{rule.name}: estimate and interval", "s"), known)
    seconds = _values_by_stack(run, lambda trial: max((mark.seconds for mark in trial.timeline), default=None))
    return _create_panel(
        costs, ("Start-up", "of an instance: median, middle half of trials", "s"), _median_spans(seconds)
    )


def _as_logs(logs: tuple[float | None, float | None, float | None]) -> Logs:
    """Return a quantity with its interval bounds, or three times itself without an interval."""
    at, low, high = logs
    middle = at or 0.0
    return (middle if low is None else low), middle, (middle if high is None else high)


def _values_by_stack(run: Run, read: Callable[[Trial], float | None]) -> Mapping[str, list[float]]:
    """Return the positive values that `read` returns for ok trials, by stack."""
    values: dict[str, list[float]] = {}
    for trial in run.trials:
        value = read(trial) if trial.status == "ok" else None
        if value is not None and value > 0:
            values.setdefault(trial.stack, []).append(float(value))
    return values


def _median_spans(values: Mapping[str, Sequence[float]]) -> Mapping[str, Logs]:
    """Return the logarithms of medians and quartiles; the bounds equal the median for few trials."""
    found = {}
    for stack, members in values.items():
        middle = statistics.median(members)
        low, high = middle, middle
        if len(members) >= _MIN_TRIALS:
            low, _, high = statistics.quantiles(members, method="inclusive")
        found[stack] = (math.log(low), math.log(middle), math.log(high))
    return found


def _create_panel(costs: _CostScale, names: tuple[str, str, str], known: Mapping[str, Logs]) -> TradeoffPanel | None:
    """Return the panel of a quantity; None if only the baseline has it."""
    shown = {stack: known[stack] for stack in (costs.summary.baseline, *costs.standings) if stack in known}
    if not shown.keys() & costs.standings.keys():
        return None
    name, what, unit = names
    axis = quantity_axis([each for logs in shown.values() for each in logs], costs.summary.margin)
    points = []
    for stack, (low, at, high) in shown.items():
        up = (
            IntervalSpan(axis.position(at), axis.position(low), axis.position(high))
            if low < high
            else IntervalSpan(axis.position(at))
        )
        points.append(costs.create_point(stack, up, f"{name.lower()} {format_plus_minus(math.exp(at), None, unit)}"))
    ticks = quantity_ticks(axis, unit, upright=True)
    return TradeoffPanel(name, what, ticks, tuple(place for place, _ in ticks), tuple(points))


@dataclass(frozen=True)
class TradeoffFigures:
    """Panels for the page, and their caption."""

    panels: tuple[Markup, ...]
    caption: str


def draw_page_figures(summary: Summary, run: Run) -> TradeoffFigures | None:
    """Draw the panels as separate pictures; None if there are none."""
    tradeoff = create_tradeoff(summary, run)
    if not tradeoff:
        return None
    return TradeoffFigures(
        tuple(_draw_panels((panel,), tradeoff) for panel in tradeoff.panels), _describe_caption(tradeoff)
    )


def draw_figure(summary: Summary, run: Run) -> str:
    """Draw the panels side by side as a file; "" if there are none."""
    tradeoff = create_tradeoff(summary, run)
    if not tradeoff:
        return ""
    size = (_WIDTH * len(tradeoff.panels), _TOP + _axis_height(tradeoff) + _BOTTOM)
    words = (TITLE, f"over {join_names(tradeoff.workloads)}", _describe_caption(tradeoff, short=True))
    return FramedFigure(_draw_panels(tradeoff.panels, tradeoff), *size, *words).file(run)


def _draw_panels(panels: Sequence[TradeoffPanel], tradeoff: Tradeoff) -> Markup:
    up = _axis_height(tradeoff)
    return render_section(
        "tare.report",
        "tradeoff.svg.j2",
        trade=tradeoff,
        panels=[(panel, place_labels(panel.points, up)) for panel in panels],
        size={"left": _LEFT, "across": _ACROSS, "lead": _LEAD, "top": _TOP, "up": up, "width": _WIDTH},
        height=_TOP + up + _BOTTOM,
        label=f"{join_names(tuple(panel.name for panel in panels))} against the cost of each stack",
    )


def _axis_height(tradeoff: Tradeoff) -> int:
    """Return the height of the axes, with room for all names."""
    return max(_MIN_UP, _LINE * max(len(panel.points) for panel in tradeoff.panels))


def place_labels(points: Sequence[Point], up: int) -> list[tuple[Point, float]]:
    """Return the points with the heights of their names, in pixels from the top of the axes.

    A name is as near to the height of its point as the other names allow.
    """
    order = sorted(points, key=lambda point: -point.up.place)
    heights: list[float] = []
    for point in order:
        least = heights[-1] + _LINE if heights else _LINE / 2
        heights.append(max(up * (1 - point.up.place), least))
    most = up - _LINE / 2
    for at in reversed(range(len(heights))):
        heights[at] = min(heights[at], most)
        most = heights[at] - _LINE
    return list(zip(order, heights, strict=True))


def _describe_caption(tradeoff: Tradeoff, *, short: bool = False) -> str:
    """Return the caption of the panels, with the stacks that are left out unless it is `short`."""
    where = "" if short else f" over {join_names(tradeoff.workloads)}"
    read = f"Horizontal: the cost{where}, with its interval. For memory and start-up, the lower left is best."
    if short:
        return read
    texts = [read, "Colors show the cost; shapes show the isolation as in the first panel."]
    if tradeoff.left_out:
        names = tradeoff.left_out[:_NAMED]
        more = len(tradeoff.left_out) - len(names)
        which = join_names((*names, *((f"{more} more",) if more else ())))
        texts.append(f"Not drawn, because some workload has too few values: {which}.")
    if tradeoff.more:
        texts.append(f"Only the cheapest stacks are drawn; {tradeoff.more} more are in the tables below.")
    return " ".join(texts)
