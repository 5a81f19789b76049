"""Classical tests as Markdown: means, standard deviations and the tests that papers use, for each metric and point.

VTmark's Figures 4 to 6 have mean, relative standard deviation and percent of bare metal; the 2017 paper has mean and
standard deviation over 30 trials, an analysis of variance, and Tukey's test after it. Such tests need a number of
trials that was fixed before: if tare stopped because all was decided, their p-values are too small, and the file says
so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tare.features.papers.classical import ClassicalRow, ClassicalTests, GroupTest, Pairs, run_classical_tests
from tare.model.run_folder import Run
from tare.model.trial import Trial
from tare.report.documents import escape_markdown
from tare.report.numbers import format_plus_minus, point
from tare.statistics.bootstrap import Interval
from tare.statistics.grid import Grid, GridKey, build_grid
from tare.statistics.outcomes import select_latest
from tare.statistics.summarize import workload_records
from tare.statistics.summary import Summary

_TABLE_HEAD = (
    *("stack", "n", "mean ± SD", "relative SD", "of {baseline}", "Tukey p", "Games-Howell p", "Dunn p"),
    *("Mann-Whitney p", "smallest p"),
)


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Return `papers.md` by its name. It takes about 5 ms for each pair of stacks, metric and point."""
    title = f"# {escape_markdown(run.record.suite)}, the papers' way"
    return {"papers.md": "\n".join([title, "", *_lines(summary, run)]).encode()}


def _lines(summary: Summary, run: Run) -> Iterator[str]:
    trials = select_latest(run.trials)
    baseline = escape_markdown(summary.baseline)
    yield f"Values are means over trials, each a fresh instance; shares are of {baseline}'s mean, with BCa"
    yield "bootstrap intervals at 95 %. Tests of pairs are against it, adjusted for all pairs but Mann-Whitney's."
    if _has_stopped_early(run, trials):
        yield ""
        yield "**Decided stacks got no more trials, whose number was not fixed before: these tests are too sure.**"
    for record in workload_records(run):
        grid = build_grid(record, summary.stacks, [trial for trial in trials if trial.workload == record.name])
        unit = record.sweep.unit if record.sweep else ""
        for index, key in enumerate(grid.keys):
            groups = _groups(grid, index)
            if groups:
                tests = run_classical_tests(groups, summary.baseline, run.record.seed)
                yield from ("", f"## {escape_markdown(f'{record.name}: {_title(grid, key, unit)}')}", "")
                yield from _table_lines(tests, grid.find_metric(key.metric).unit)


def _has_stopped_early(run: Run, trials: Sequence[Trial]) -> bool:
    """Return whether the values determined the number of trials, for all stacks or for some of a workload."""
    measured = {(trial.workload, trial.stack) for trial in trials if trial.status == "ok"}
    last: dict[tuple[str, str], int] = {}
    for trial in trials:
        cell = (trial.workload, trial.stack)
        if cell in measured:
            last[cell] = max(last.get(cell, 0), trial.block)
    ends = {(workload, block) for (workload, _), block in last.items()}
    return run.record.stop_reason == "decided" or len(ends) > len({workload for workload, _ in ends})


def _groups(grid: Grid, index: int) -> dict[str, list[float]]:
    """Return the values of a key by stack; a trial is a value."""
    rows = zip(grid.stacks, grid.values[:, index], grid.present[:, index], strict=True)
    return {stack: [float(value) for value in values[present]] for stack, values, present in rows if present.any()}


def _title(grid: Grid, key: GridKey, unit: str) -> str:
    at = f" at {point(key.point, unit)}" if key.point is not None else ""
    return f"{grid.find_metric(key.metric).title}{at}"


def _table_lines(tests: ClassicalTests, unit: str) -> Iterator[str]:
    yield _format_row([word.format(baseline=tests.baseline) for word in _TABLE_HEAD])
    yield _format_row(["---"] * len(_TABLE_HEAD))
    pairs = [_p_values_with_baseline(tests.baseline, chances) for chances in tests.pairs]
    for row in tests.rows:
        chances = [*(each.get(row.stack) for each in pairs), row.ranks.p, row.ranks.smallest_p]
        yield _format_row([*_description_cells(row, unit), *map(_format_p_value, chances)])
    yield ""
    for test in tests.groups:
        yield f"- {_format_group_test(test)}"


def _description_cells(row: ClassicalRow, unit: str) -> list[str]:
    values = row.description
    if values is None:
        return [row.stack, "0", "", "", ""]
    spread = "" if values.relative_sd is None else f"{values.relative_sd * 100:.1f} %"
    mean = format_plus_minus(values.mean, values.sd, unit)
    return [row.stack, str(values.n), mean, spread, _format_share(row.share)]


def _format_share(share: Interval) -> str:
    if share.estimate is None:
        return ""
    interval = "" if share.low is None or share.high is None else f" [{share.low * 100:.1f}, {share.high * 100:.1f}]"
    return f"{share.estimate * 100:.1f} %{interval}"


def _p_values_with_baseline(baseline: str, chances: Pairs) -> dict[str, float | None]:
    """Return the p-values of pairs with the baseline, by the other stack."""
    return {two if one == baseline else one: p for (one, two), p in chances.items() if baseline in (one, two)}


def _format_p_value(p: float | None) -> str:
    return "" if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def _format_group_test(test: GroupTest) -> str:
    if test.statistic is None:
        return f"{test.test}: {test.reason}"
    freedom = f"{test.between:.4g}" + (f", {test.within:.4g}" if test.within is not None else "")
    sign = "H" if test.within is None else "F"
    chance = _format_p_value(test.p) if (test.p or 0.0) < 0.0001 else f"= {_format_p_value(test.p)}"
    return f"{test.test}: {sign}({freedom}) = {test.statistic:.4g}, p {chance}"


def _format_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escape_markdown(cell) for cell in cells)} |"
