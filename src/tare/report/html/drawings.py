"""Which charts the page shows, drawn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tare.journal import Run, WorkloadRecord
from tare.model.trials import Footprint, Layer, Mark, Trial
from tare.report import figures, heat
from tare.report.html.drawing import Drawing, drawing
from tare.report.html.swept import swept_drawings
from tare.report.html.turns import strips
from tare.statistics.cells import Cell, HeadlineRule
from tare.statistics.summary import Summary
from tare.units import format_duration, format_size

MOST_DRAWN = 60
"""Stacks: the rows of a chart of more are too many to be read."""

# Charts of single metrics beyond this many are left to the table.
_MOST_STRIPS = 4
# Columns of a map that fit beside another chart.
_MANY = 4
# A total so many times another's hides its phases on a common axis.
_HIDES = 8.0
# Trials of a workload: of more, too few could be drawn as dots.
MOST_DOTTED = 1400
# Stacks within this factor of the baseline are drawn once more where others are far off.
_NEAR = 1.25


def workload_drawings(summary: Summary, run: Run, record: WorkloadRecord, prefix: str) -> tuple[Drawing, ...]:
    """Draw a workload: ratios, then all metrics as a map, then sweeps, then raw values off the sweep, then turns."""
    drawings: list[Drawing | None] = []
    for index, rule in enumerate(summary.rules_of(record.name)):
        drawings += _ratios(summary, rule, f"{prefix}h{index}")
    drawings.append(_metrics_map(summary, record, prefix))
    drawings += swept_drawings(summary, run, record, prefix)
    drawings += _strips(summary, run, record, prefix)
    drawings += _turns(summary, run, record, prefix)
    return tuple(drawing for drawing in drawings if drawing)


def _ratios(summary: Summary, rule: HeadlineRule, prefix: str) -> list[Drawing | None]:
    """Draw a headline; the stacks near the baseline once more, where others are far off."""
    headlines = [cell for cell in summary.headlines if cell.headline == rule.name]
    ratios = figures.ratios(headlines, summary.baseline)
    what = f"{rule.name}: percent" if rule.name != rule.workload else "Percent"
    caption = f"{what} of {summary.baseline} with 95 % interval; the thin ticks are the single blocks."
    drawings = [drawing(ratios, f"{prefix}r", caption)]
    compared = [cell.ratio for cell in headlines if cell.ratio is not None and cell.verdict != "baseline"]
    near = [cell for cell in headlines if cell.ratio is not None and 1 / _NEAR < cell.ratio < _NEAR]
    if len(near) > 2 and any(not 1 / (2 * _NEAR) < ratio < 2 * _NEAR for ratio in compared):
        what = f"{rule.name}: the" if rule.name != rule.workload else "The"
        caption = f"{what} stacks near {summary.baseline} alone, on a finer scale."
        drawings.append(drawing(figures.ratios(near, summary.baseline), f"{prefix}n", caption))
    return drawings


def headlines_map(cells: Sequence[Cell], stacks: Sequence[str], of: str) -> tuple[Drawing, ...]:
    """Draw percent of the baseline, or of what it was before, of all headlines, as VTmark's Figure 4."""
    names = dict.fromkeys(cell.headline for cell in cells)
    columns = [heat.Column(name, [cell for cell in cells if cell.headline == name]) for name in names]
    caption = f"Percent of {of}. Blue is faster or less, orange is slower or more, in all columns alike."
    drawn = drawing(heat.heat(columns, stacks), "map", caption, wide=len(columns) > _MANY)
    return (drawn,) if drawn else ()


def _metrics_map(summary: Summary, record: WorkloadRecord, prefix: str) -> Drawing | None:
    """Draw all metrics of a workload's headlines that are off the sweep, as VTmark's Figure 5."""
    names = [name for rule in summary.rules_of(record.name) for name in rule.metrics]
    titles = {metric.name: metric.title for metric in record.metrics}
    cells = [cell for cell in summary.of(record.name) if cell.point is None]
    columns = [heat.Column(titles.get(name, name), [cell for cell in cells if cell.metric == name]) for name in names]
    caption = f"Percent of {summary.baseline}, in brackets the relative standard deviation over the trials."
    spec = heat.heat(columns, summary.stacks, with_spread=True)
    return drawing(spec, f"{prefix}m", caption, wide=len(columns) > _MANY)


def starts(run: Run, summary: Summary) -> tuple[Drawing, ...]:
    """Draw the timelines of starts; those of quick stacks once more, where slow ones would hide them."""
    own: dict[str, list[Trial]] = {stack: [] for stack in summary.stacks}
    for trial in run.trials:
        if trial.status == "ok" and trial.timeline:
            own[trial.stack].append(trial)
    moments = {stack: marks for stack, trials in own.items() if (marks := _moments(trials))}
    if not moments:
        return ()
    totals = {stack: marks[-1].seconds for stack, marks in moments.items()}
    drawings = [_start(moments, "start", "From the request to each mark of the timeline, medians of the trials.")]
    quick = {stack: moments[stack] for stack in moments if totals[stack] * _HIDES < max(totals.values())}
    if len(quick) > 1:
        drawings.append(_start(quick, "quick", "The quicker stacks alone, on a finer scale."))
    return tuple(drawing for drawing in drawings if drawing)


def costs(run: Run, summary: Summary) -> tuple[Drawing, ...]:
    """Draw what instances cost the machine, in memory and on disk: medians over the trials in which it is known."""
    memory = figures.bars(_medians(run, summary, lambda footprint: footprint.all_memory_bytes), "memory", "bytes")
    disk = figures.bars(_medians(run, summary, lambda footprint: footprint.disk_bytes), "disk", "bytes")
    text = (
        "Memory: proportional set size of all processes of an instance, and kernel memory where it is known; medians."
    )
    drawings = (
        drawing(memory, "memory", text),
        drawing(disk, "disk", "Bytes that an instance wrote to disk; medians."),
    )
    return tuple(drawing for drawing in drawings if drawing)


@dataclass(frozen=True)
class LayerRow:
    """What one layer of a nested stack adds: medians over the trials, as texts."""

    stack: str
    layer: str
    seconds: str
    memory: str
    disk: str
    trials: int


def layers(run: Run, summary: Summary) -> tuple[LayerRow, ...]:
    """Return what each layer of the nested stacks adds, from the outermost to the innermost."""
    by_depth: dict[tuple[str, int], list[Layer]] = {}
    for trial in run.trials:
        if trial.status == "ok":
            for depth, layer in enumerate(trial.layers):
                by_depth.setdefault((trial.stack, depth), []).append(layer)
    rows = [(stack, depth) for stack in summary.stacks for depth in range(len(by_depth)) if (stack, depth) in by_depth]
    return tuple(_layer_row(stack, by_depth[stack, depth]) for stack, depth in rows)


def _layer_row(stack: str, seen: Sequence[Layer]) -> LayerRow:
    memory = [value for layer in seen if (value := layer.footprint.all_memory_bytes) is not None]
    disk = [layer.footprint.disk_bytes for layer in seen if layer.footprint.disk_bytes is not None]
    return LayerRow(
        stack,
        seen[0].name,
        format_duration(round(statistics.median(layer.seconds for layer in seen), 3)),
        format_size(int(statistics.median(memory))) if memory else "unknown",
        format_size(int(statistics.median(disk))) if disk else "unknown",
        len(seen),
    )


def _strips(summary: Summary, run: Run, record: WorkloadRecord, prefix: str) -> list[Drawing | None]:
    drawings: list[Drawing | None] = []
    names = {name for rule in summary.rules_of(record.name) for name in rule.metrics}
    metrics = [metric for metric in record.metrics if metric.name in names]
    trials = [trial for trial in run.of(record.name) if trial.status == "ok"]
    if len(trials) > MOST_DOTTED:
        return []
    for index, metric in enumerate(metrics[:_MOST_STRIPS]):
        cells = [cell for cell in summary.of(record.name) if cell.metric == metric.name and cell.point is None]
        dots = [
            figures.Dot(trial.stack, trial.block, value.value)
            for trial in trials
            for value in trial.values
            if value.metric == metric.name and value.point is None
        ]
        shown = figures.fewer(dots)
        which = "every trial a dot" if len(shown) == len(dots) else f"{len(shown):,} of {len(dots):,} trials a dot"
        caption = f"{metric.title}: {which}, the mean a bar."
        drawings.append(drawing(figures.strip(cells, shown, metric.title), f"{prefix}p{index}", caption))
    return drawings


def _turns(summary: Summary, run: Run, record: WorkloadRecord, prefix: str) -> list[Drawing | None]:
    drawings = []
    for index, strip in enumerate(strips(summary, run, record.name)):
        present = {bar.stack for bar in strip.bars}
        spec = figures.turns(strip.bars, [stack for stack in summary.stacks if stack in present])
        drawings.append(drawing(spec, f"{prefix}t{index}", strip.caption, wide=True))
    return drawings


def _start(moments: dict[str, list[Mark]], prefix: str, caption: str) -> Drawing | None:
    phases, totals = [], []
    for stack, marks in moments.items():
        for before, mark in zip([Mark("", 0.0), *marks], marks, strict=False):
            phases.append(figures.Phase(stack, mark.name, max(mark.seconds - before.seconds, 0.0)))
        totals.append(figures.Total(stack, marks[-1].seconds, format_duration(marks[-1].seconds)))
    return drawing(figures.starts(phases, totals), prefix, caption)


def _moments(trials: Sequence[Trial]) -> list[Mark]:
    """Return the median of each mark that most trials have, in order of time: an instance starts alike for all."""
    seen: dict[str, list[float]] = {}
    for trial in trials:
        for mark in trial.timeline:
            seen.setdefault(mark.name, []).append(mark.seconds)
    medians = [Mark(name, statistics.median(times)) for name, times in seen.items() if 2 * len(times) > len(trials)]
    return _of_the_stack(sorted((mark for mark in medians if mark.name != "requested"), key=lambda mark: mark.seconds))


def _of_the_stack(moments: list[Mark]) -> list[Mark]:
    """Sum the outer layers of a nested stack up, until the last of them was ready and the inner engine ran."""
    ready = [Mark("outer layers", mark.seconds) for mark in moments if mark.name.endswith(":ready")]
    asked = [Mark("engine", mark.seconds) for mark in moments if mark.name.endswith(":requested")]
    return [*ready[-1:], *asked[-1:], *(mark for mark in moments if ":" not in mark.name)]


def _medians(run: Run, summary: Summary, read: Callable[[Footprint], int | None]) -> list[figures.Bar]:
    """Return the median of each stack and workload, in the run's order."""
    values: dict[tuple[str, str], list[int]] = {}
    for trial in run.trials:
        value = read(trial.footprint) if trial.footprint and trial.status == "ok" else None
        if value is not None:
            values.setdefault((trial.stack, trial.workload), []).append(value)
    cells = [(stack, workload) for stack in summary.stacks for workload in summary.workloads]
    return [figures.Bar(*cell, float(statistics.median(values[cell]))) for cell in cells if cell in values]
