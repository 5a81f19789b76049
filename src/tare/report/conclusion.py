"""Conclusion of a run on the terminal: at most three sentences, cautions by name, and failures with their fix.

The report has the rest: each finding with its interval, and what each caution means.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from tare.model.journal import Run
from tare.model.units import format_duration
from tare.report.findings import describe_cheapest, describe_dearest, relative_to_baseline
from tare.report.numbers import cut, format_bounds, format_percent, join_names, join_some, strip_control_characters
from tare.report.problems import find_failures
from tare.statistics.anytime import min_value_count
from tare.statistics.cells import Cell
from tare.statistics.summary import Summary

_OPEN = ("undecided", "too few blocks")
_MAX_FAILURES = 3  # with their hints; the report has all
_REASON_LENGTH = 110
_MAX_SECONDS = 4 * 3600.0  # beyond this, the estimate is too rough to name


def describe_conclusion(summary: Summary, run: Run) -> Text:
    """Return the lines that follow the table: conclusion, cautions and failures; empty where there are none."""
    cells = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    conclusion = (*_describe_costs(summary, cells), *_describe_open(summary, run, cells))
    lines = (*conclusion, *_describe_cautions(summary), *_describe_failures(summary))
    return Text("\n".join(map(strip_control_characters, lines)))


def _describe_costs(summary: Summary, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the cheapest and the dearest stack over several workloads, or which stacks cost nothing or something."""
    if len(summary.overall.workloads) > 1 and len(summary.overall.standings) > 1:
        yield from filter(None, (describe_cheapest(summary), describe_dearest(summary)))
        return
    if free := list(dict.fromkeys(cell.stack for cell in cells if cell.verdict == "equivalent")):
        yield f"No measurable cost (within {format_percent(summary.margin)} of {summary.baseline}): {join_some(free)}."
    worse = sorted((cell for cell in cells if cell.verdict == "worse"), key=lambda cell: abs(math.log(cell.ratio or 1)))
    if worse:
        texts = [f"{cell.stack} {relative_to_baseline(cell)}" for cell in worse]
        yield f"Measurable cost: {join_some(texts)}."


def _describe_open(summary: Summary, run: Run, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a sentence about undecided cells with their intervals, and about how long deciding them would take."""
    open_cells = [cell for cell in cells if cell.verdict in _OPEN]
    if not open_cells:
        return
    several = len(open_cells) > 1
    texts = []
    for cell in open_cells:
        where = f"{cell.stack} in {cell.name}" if len(summary.rules) > 1 else cell.stack
        between = format_bounds(cell.low, cell.high, cell.ratio or 1.0)
        texts.append(f"{where} {between}" if between else f"{where} (fewer than {min_value_count()} blocks)")
    seconds = seconds_to_decide(summary, run, open_cells)
    more = f"; about {format_duration(60 * math.ceil(seconds / 60))} more" if seconds <= _MAX_SECONDS else ""
    count = f" ({len(open_cells)} of {len(cells)})" if several else ""
    yield f"Undecided{count}: {join_some(texts)}{more}."


def seconds_to_decide(summary: Summary, run: Run, open_cells: Sequence[Cell]) -> float:
    """Return about how many seconds of more blocks decide all these cells; infinite where that cannot be estimated.

    It is assumed that means stay, and that intervals become narrower with the root of the number of blocks.
    """
    seconds: dict[str, float] = {}
    for cell in open_cells:
        trials = [trial for trial in run.trials if trial.workload == cell.workload and trial.status != "skipped"]
        blocks = len({trial.block for trial in trials})
        each = sum(trial.seconds for trial in trials) / blocks if blocks else math.inf
        seconds[cell.workload] = max(seconds.get(cell.workload, 0.0), each * _blocks_to_decide(cell, summary.margin))
    return sum(seconds.values())


def _blocks_to_decide(cell: Cell, margin: float) -> float:
    if cell.low is None or cell.high is None or cell.ratio is None:
        return float(max(min_value_count() - cell.n, 1))
    half, away, limit = math.log(cell.high / cell.low) / 2, abs(math.log(cell.ratio)), math.log1p(margin)
    room = max(away, limit - away)  # an interval this narrow excludes either no change or the margin
    return max(math.ceil(cell.n * (half / room) ** 2) - cell.n, 1)


def _describe_cautions(summary: Summary) -> Iterator[str]:
    """Yield the kinds of cautions, each with the number of values that have it."""
    kinds = Counter(
        kind
        for cell in summary.headlines
        if cell.stack != summary.control
        for kind in dict.fromkeys(caution.kind for caution in cell.cautions if caution.stack == cell.stack)
    )
    if kinds:
        yield f"! Cautions: {join_names(tuple(f'{kind} ({count})' for kind, count in kinds.most_common()))}."


def _describe_failures(summary: Summary) -> Iterator[str]:
    """Yield the first causes of failures and skipped stacks, each followed by its hint."""
    causes = find_failures(summary).causes
    for cause in causes[:_MAX_FAILURES]:
        what = "skipped" if all(site.status == "skipped" for site in cause.sites) else "failed"
        workloads = list(dict.fromkeys(site.workload for site in cause.sites))
        where = "" if workloads == list(summary.workloads) else f" in {join_some(workloads)}"
        stacks = join_some(list(dict.fromkeys(site.stack for site in cause.sites)))
        yield f"{what}: {stacks}{where}: {cut(cause.text, _REASON_LENGTH)}"
        if cause.hint:
            yield f"  hint: {cause.hint}"
    if len(causes) > _MAX_FAILURES:
        yield f"{len(causes) - _MAX_FAILURES} more reasons why trials failed are in the report."
