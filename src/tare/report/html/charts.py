"""Selection of the page's charts, with the captions that explain them.

A load may end its output with a JSON object that has `over_time`: for each type of response, a list of the number in
each second. The load of `examples/dictionary` does so, for VTmark's Figure 8.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import Footprint, LayerCost, Mark, Metric, Sweep, Trial
from tare.model.units import format_duration, format_size
from tare.report import charts, curve_charts
from tare.report.chart_svg import Chart, Drawing
from tare.report.html.sparklines import select_strips
from tare.report.numbers import point
from tare.report.trial_facts import load_raw_output
from tare.statistics.cells import Cell, HeadlineRule
from tare.statistics.outcomes import select_latest
from tare.statistics.summary import Summary

MAX_DRAWN = 60
"""Stacks: a chart with more rows is unreadable."""

# Charts of single metrics beyond this many are left to the table.
_MAX_STRIPS = 4
# Columns of a map that fit next to another chart.
_MANY = 4
# A start that takes this many times as long as another hides the phases of the faster one on a common axis.
_HIDING_FACTOR = 8.0
# Trials of a workload with dots. With more trials, thinning would leave too small a part of them.
MAX_DOTTED = 1400
# Stacks within this factor of the baseline get a second chart if other stacks are far off.
_NEAR_FACTOR = 1.25
_SD = "-sd"  # suffix of a metric that is the standard deviation of another metric
_PERCENTILE = re.compile(r"p(\d{2})(\d*)|(median)")
_LABEL_WITH_COUNTS = "application"  # the workload whose load is user-supplied
_PARTS = 60  # points of a line over a load's time
_MAX_READ = 100  # trials whose output is read
Counts = Mapping[str, Sequence[float]]


def create_drawing(chart: Chart | None, caption: str, *, wide: bool = False) -> Drawing | None:
    """Return a chart with its caption; None without a chart."""
    return Drawing(caption, chart, wide) if chart else None


def _without_missing(drawings: Iterable[Drawing | None]) -> tuple[Drawing, ...]:
    return tuple(drawing for drawing in drawings if drawing)


def draw_workload(summary: Summary, run: Run, record: WorkloadRecord) -> tuple[Drawing, ...]:
    """Draw a workload: ratios, a map of all metrics, sweeps, raw values without a sweep, and turns, in this order."""
    ratios = (drawing for rule in summary.rules_of(record.name) for drawing in _draw_ratios(summary, rule))
    turns = (
        create_drawing(charts.draw_turns(each.bars, summary.stacks), each.describe(how_to_read=True), wide=True)
        for each in select_strips(summary, run, record.name)
    )
    swept, strip = draw_sweeps(summary, run, record), _draw_strips(summary, run, record)
    return _without_missing((*ratios, _draw_metrics_map(summary, record), *swept, *strip, *turns))


def _draw_ratios(summary: Summary, rule: HeadlineRule) -> Iterator[Drawing | None]:
    """Draw a headline, and a second chart of the stacks near the baseline if other stacks are far off."""
    headlines = [cell for cell in summary.headlines if cell.headline == rule.name]
    what = f"{rule.name}: change" if rule.name != rule.workload else "Change"
    caption = f"{what} from {summary.baseline} with 95 % interval; the thin ticks are single blocks."
    yield create_drawing(charts.draw_ratios(headlines, summary.baseline), caption)
    compared = [cell.ratio for cell in headlines if cell.ratio is not None and cell.verdict != "baseline"]
    near = [cell for cell in headlines if cell.ratio is not None and 1 / _NEAR_FACTOR < cell.ratio < _NEAR_FACTOR]
    if len(near) > 2 and any(not 1 / (2 * _NEAR_FACTOR) < ratio < 2 * _NEAR_FACTOR for ratio in compared):
        what = f"{rule.name}: only" if rule.name != rule.workload else "Only"
        caption = f"{what} the stacks near {summary.baseline}, on a finer scale."
        yield create_drawing(charts.draw_ratios(near, summary.baseline), caption)


def draw_headlines_map(cells: Sequence[Cell], stacks: Sequence[str], reference_name: str) -> tuple[Drawing, ...]:
    """Draw the change of all headlines from the baseline or from an earlier run, as VTmark's Figure 4."""
    names = dict.fromkeys(cell.headline for cell in cells)
    columns = {name: [cell for cell in cells if cell.headline == name] for name in names}
    caption = f"Change from {reference_name}. Blue is better (faster or less), orange is worse (slower or more)."
    return _without_missing([create_drawing(charts.draw_heat_map(columns, stacks), caption, wide=len(columns) > _MANY)])


def _draw_metrics_map(summary: Summary, record: WorkloadRecord) -> Drawing | None:
    """Draw all metrics of a workload's headlines that have no sweep, as VTmark's Figure 5."""
    names = [name for rule in summary.rules_of(record.name) for name in rule.metrics]
    titles = {metric.name: metric.title for metric in record.metrics}
    cells = [cell for cell in summary.cells_of(record.name) if cell.point is None]
    columns = {titles.get(name, name): [cell for cell in cells if cell.metric == name] for name in names}
    caption = f"Change from {summary.baseline}; in brackets, the relative standard deviation over the trials."
    spec = charts.draw_heat_map(columns, summary.stacks, with_spread=True)
    return create_drawing(spec, caption, wide=len(columns) > _MANY)


def draw_starts(run: Run, summary: Summary) -> tuple[Drawing, ...]:
    """Draw the timelines of starts, and a second chart of the fast stacks if slow ones would hide their phases."""
    trials_by_stack: dict[str, list[Trial]] = {stack: [] for stack in summary.stacks}
    for trial in run.trials:
        if trial.status == "ok" and trial.timeline:
            trials_by_stack[trial.stack].append(trial)
    moments = {stack: marks for stack, trials in trials_by_stack.items() if (marks := _median_marks(trials))}
    if not moments:
        return ()
    totals = {stack: marks[-1].seconds for stack, marks in moments.items()}
    every = create_drawing(
        charts.draw_starts(moments), "Time from the request to each mark of the timeline; medians of the trials."
    )
    quick = {stack: moments[stack] for stack in moments if totals[stack] * _HIDING_FACTOR < max(totals.values())}
    finer = charts.draw_starts(quick) if len(quick) > 1 else None
    return _without_missing([every, create_drawing(finer, "Only the faster stacks, on a finer scale.")])


def draw_costs(run: Run, summary: Summary) -> tuple[Drawing, ...]:
    """Draw the memory and disk use of instances: medians over the trials whose footprints are known."""
    memory = charts.draw_bars(
        _median_footprints(run, summary, lambda footprint: footprint.total_memory_bytes), "memory"
    )
    disk = charts.draw_bars(_median_footprints(run, summary, lambda footprint: footprint.disk_bytes), "disk")
    text = (
        "Memory: proportional set size of all processes of an instance, and kernel memory where it is known; medians."
    )
    return _without_missing(
        [create_drawing(memory, text), create_drawing(disk, "Disk: bytes that an instance wrote; medians.")]
    )


def layer_rows(run: Run, summary: Summary) -> list[tuple[str, str, str, str, str, int]]:
    """Return the cost of each layer of the nested stacks, from the outermost to the innermost.

    A row has stack, layer, median time, memory and disk as texts, and the number of trials.
    """
    by_depth: dict[tuple[str, int], list[LayerCost]] = {}
    for trial in run.trials:
        if trial.status == "ok":
            for depth, layer in enumerate(trial.layers):
                by_depth.setdefault((trial.stack, depth), []).append(layer)
    rows = []
    for stack, depth in sorted(by_depth, key=lambda each: (summary.stacks.index(each[0]), each[1])):
        layers = by_depth[stack, depth]
        seconds = format_duration(round(statistics.median(layer.seconds for layer in layers), 3))
        memory = _median_size(layer.footprint.total_memory_bytes for layer in layers)
        disk = _median_size(layer.footprint.disk_bytes for layer in layers)
        rows.append((stack, layers[0].name, seconds, memory, disk, len(layers)))
    return rows


def _median_size(sizes: Iterable[int | None]) -> str:
    known = [size for size in sizes if size is not None]
    return format_size(int(statistics.median(known))) if known else "unknown"


def _draw_strips(summary: Summary, run: Run, record: WorkloadRecord) -> Iterator[Drawing | None]:
    names = {name for rule in summary.rules_of(record.name) for name in rule.metrics}
    metrics = [metric for metric in record.metrics if metric.name in names]
    trials = [trial for trial in run.trials_of(record.name) if trial.status == "ok"]
    for metric in metrics[:_MAX_STRIPS] if len(trials) <= MAX_DOTTED else ():
        cells = [cell for cell in summary.cells_of(record.name) if cell.metric == metric.name and cell.point is None]
        values: dict[str, list[float]] = {}
        for trial in trials:
            without_sweep = [each.value for each in trial.values if each.metric == metric.name and each.point is None]
            values.setdefault(trial.stack, []).extend(without_sweep)
        shown = charts.thin_out_values(values)
        drawn, of = (sum(map(len, each.values())) for each in (shown, values))
        which = "each dot is a trial" if drawn == of else f"the dots are {drawn:,} of {of:,} trials"
        yield create_drawing(
            charts.draw_strip(cells, shown, metric.title), f"{metric.title}: {which}, each bar the mean of a stack."
        )


def _median_marks(trials: Sequence[Trial]) -> list[Mark]:
    """Return the median of each mark that more than half of the trials have, in order of time."""
    seen: dict[str, list[float]] = {}
    for trial in trials:
        for mark in trial.timeline:
            seen.setdefault(mark.name, []).append(mark.seconds)
    medians = [Mark(name, statistics.median(times)) for name, times in seen.items() if 2 * len(times) > len(trials)]
    return _merge_outer_layers(
        sorted((mark for mark in medians if mark.name != "requested"), key=lambda mark: mark.seconds)
    )


def _merge_outer_layers(moments: list[Mark]) -> list[Mark]:
    """Replace the marks of a nested stack's outer layers by two: the last layer is ready, and the inner engine runs."""
    ready = [Mark("outer layers", mark.seconds) for mark in moments if mark.name.endswith(":ready")]
    asked = [Mark("engine", mark.seconds) for mark in moments if mark.name.endswith(":requested")]
    return [*ready[-1:], *asked[-1:], *(mark for mark in moments if ":" not in mark.name)]


def _median_footprints(
    run: Run, summary: Summary, read: Callable[[Footprint], int | None]
) -> Mapping[tuple[str, str], float]:
    """Return the median footprint of each stack and workload, in the run's order."""
    values: dict[tuple[str, str], list[int]] = {}
    for trial in run.trials:
        value = read(trial.footprint) if trial.footprint and trial.status == "ok" else None
        if value is not None:
            values.setdefault((trial.stack, trial.workload), []).append(value)
    cells = [(stack, workload) for stack in summary.stacks for workload in summary.workloads]
    return {cell: float(statistics.median(values[cell])) for cell in cells if cell in values}


def draw_sweeps(summary: Summary, run: Run, record: WorkloadRecord) -> Iterator[Drawing | None]:
    """Draw metrics along the sweep, headlines also as changes from the baseline, latency percentiles, and responses."""
    swept = record.sweep or Sweep("point")
    names = {metric.name for metric in record.metrics}
    headlines = {name for rule in summary.rules_of(record.name) for name in rule.metrics}
    for metric in record.metrics:
        if metric.name.endswith(_SD) and metric.name.removesuffix(_SD) in names:
            continue
        cells = _metric_cells(summary, record, metric.name)
        along = curve_charts.SweepContext(metric.title, swept, summary.stacks)
        spread = f"{metric.name}{_SD}"
        spreads = _means(summary, record, spread) if spread in names else None
        how = "the mean, with one SD above it shaded" if spreads is not None else "mean ± SD of the trials"
        has_rate = cells and curve_charts.is_answer_rate(cells[0], swept)
        dashed = " The dashed line is the requested rate." if has_rate else ""
        caption = f"{metric.title} against {swept.name}, {how}.{dashed}"
        yield create_drawing(curve_charts.draw_sweep(cells, along, spreads), caption)
        if metric.name in headlines:
            caption = f"{metric.title} against {swept.name}: change from {summary.baseline} with 95 % interval."
            yield create_drawing(curve_charts.draw_percents(cells, along, summary.baseline), caption)
    yield from _draw_percentiles(summary, record)
    rates = answer_rates(run, record)
    caption = "Responses of each type over time, means of the trials; the axis is logarithmic above 1."
    yield create_drawing(curve_charts.draw_answer_kinds(rates, summary.stacks), caption)


def _metric_cells(summary: Summary, record: WorkloadRecord, metric: str) -> list[Cell]:
    """Return the cells of a metric. The A/A control is left out: its line would hide the baseline's."""
    return [cell for cell in summary.cells_of(record.name) if cell.metric == metric and cell.stack != summary.control]


def _means(summary: Summary, record: WorkloadRecord, metric: str) -> dict[tuple[str, float | None], float]:
    cells = _metric_cells(summary, record, metric)
    return {(cell.stack, cell.point): cell.mean for cell in cells if cell.mean is not None}


def _draw_percentiles(summary: Summary, record: WorkloadRecord) -> Iterator[Drawing | None]:
    """Draw latency against the percentile, at the first and the last point of the sweep."""
    named = sorted((found, metric.name) for metric in record.metrics if (found := parse_percentile(metric)))
    cells = {name: _metric_cells(summary, record, name) for _, name in named}
    points = sorted({cell.point for group in cells.values() for cell in group if cell.mean}, key=lambda at: at or 0.0)
    for at in dict.fromkeys((*points[:1], *points[-1:])):
        latencies = [
            curve_charts.Percentile(cell.stack, f"{share:g} %", cell.mean)
            for share, name in named
            for cell in cells[name]
            if cell.point == at and cell.mean is not None
        ]
        unit = record.sweep.unit if record.sweep else ""
        where = f" at {point(at, unit)}" if at is not None else ""
        caption = f"Latency{where}: the time within which this share of requests was answered. The axis is logarithmic."
        yield create_drawing(curve_charts.draw_percentiles(latencies, summary.stacks), caption)


def parse_percentile(metric: Metric) -> float | None:
    """Return the percentile that a metric's name denotes, such as `p50`, `p999` or `median`; None for other metrics."""
    match = _PERCENTILE.fullmatch(metric.name)
    if match is None or metric.unit != "s":
        return None
    return 50.0 if match[3] else float(f"{match[1]}.{match[2] or 0}")


def answer_rates(run: Run, record: WorkloadRecord) -> list[curve_charts.Rate]:
    """Return the response rates of each stack, averaged over its trials; empty for a workload without them."""
    if record.use != _LABEL_WITH_COUNTS:
        return []
    counts_by_stack: dict[str, list[Counts]] = {}
    trials = [trial for trial in select_latest(run.trials_of(record.name)) if trial.status == "ok"]
    for trial in trials[:_MAX_READ]:
        raw = load_raw_output(run, trial)
        if counts := parse_counts(raw[-1].text) if raw else {}:
            counts_by_stack.setdefault(trial.stack, []).append(counts)
    return average_rates(counts_by_stack)


def parse_counts(text: str) -> Counts:
    """Return the counts in an output; empty if it has none or if they are no lists of numbers."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    found = document.get("over_time") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not all(map(_are_counts, found.values())):
        return {}
    return found


def average_rates(counts_by_stack: Mapping[str, Sequence[Counts]]) -> list[curve_charts.Rate]:
    """Return rates averaged over the trials of each stack, in steps that divide the longest load into few parts."""
    longest = {stack: max(map(_seconds_of, trials), default=0) for stack, trials in counts_by_stack.items()}
    width = max(1, -(-max(longest.values(), default=0) // _PARTS))
    kinds = list(dict.fromkeys(kind for trials in counts_by_stack.values() for counts in trials for kind in counts))
    return [
        curve_charts.Rate(
            stack, kind, begin + width / 2, _mean([counts.get(kind, ()) for counts in trials], begin, width)
        )
        for stack, trials in counts_by_stack.items()
        for kind in kinds
        for begin in range(0, longest[stack], width)
    ]


def _seconds_of(counts: Counts) -> int:
    return max(map(len, counts.values()), default=0)


def _mean(trials: Sequence[Sequence[float]], begin: int, width: int) -> float:
    return round(sum(sum(seconds[begin : begin + width]) for seconds in trials) / (len(trials) * width), 2)


def _are_counts(seconds: object) -> bool:
    return isinstance(seconds, list) and all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 <= each < math.inf for each in seconds
    )
