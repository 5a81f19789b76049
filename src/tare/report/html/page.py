"""Assemble the report page of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tare.model.journal import Run, WorkloadRecord
from tare.model.machine import Facts, FileSystem, Tuning
from tare.model.trial import Limits, SetLimits, Trial
from tare.model.units import format_duration, format_size
from tare.plugins.feature import hooks
from tare.report.chart_svg import Drawing
from tare.report.html.cautions import CareRow, care, doubts
from tare.report.html.cells import Entry, Sources, entry, look, reach, tried_entry
from tare.report.html.charts import (
    MOST_DOTTED,
    MOST_DRAWN,
    LayerRow,
    costs,
    headlines_map,
    layers,
    starts,
    workload_drawings,
)
from tare.report.html.ranking import Front, front, stack_anchor, workload_anchor
from tare.report.html.rendering import FeatureSection, render_page
from tare.report.html.sparklines import TurnsShown, turns_shown
from tare.report.html.trials import Anchors, StartsRow, Trials, anchors, start_rows, trials_of
from tare.report.numbers import GLYPHS, estimate, interval, listing, percent, point, relative_sd, usual_value
from tare.report.problems import Cause, not_working, steadiness
from tare.report.trial_facts import Limit, ends, limits_of, said_lowered
from tare.statistics.cells import Cell, HeadlineRule
from tare.statistics.summarize import records
from tare.statistics.summary import Summary


@dataclass(frozen=True)
class StackFacts:
    """A stack as it ran. `trials` has the place of its trials, by workload."""

    anchor: str
    stack: str
    path: str
    limits: tuple[Limit, ...]
    file_systems: tuple[FileSystem, ...]
    proof: tuple[tuple[str, str], ...]
    trials: tuple[tuple[str, str], ...]


def stack_facts(stack: str, own: Sequence[Trial], anchor: str, places: Anchors) -> StackFacts:
    """Read what a stack was from its own trials."""
    paths = tuple(dict.fromkeys(trial.path for trial in own if trial.path))
    limits = tuple(_limits(own))
    proof = dict(entry for trial in own for entry in trial.proof)
    file_systems = tuple(dict.fromkeys(system for trial in own for system in trial.file_systems))
    workloads = dict.fromkeys(trial.workload for trial in own)
    there = tuple((workload, at) for workload in workloads if (at := places.get((workload, stack))))
    return StackFacts(anchor, stack, listing(paths), limits, file_systems, tuple(proof.items()), there)


def _limits(trials: Sequence[Trial]) -> Iterable[Limit]:
    """Yield the limits of a stack; where its workloads have several, each with their names."""
    seen: dict[Limits, SetLimits] = {}
    workloads: dict[Limits, dict[str, None]] = {}
    for trial in trials:
        if trial.limits:
            seen.setdefault(trial.limits.asked, trial.limits)
            workloads.setdefault(trial.limits.asked, {})[trial.workload] = None
    for asked, limits in seen.items():
        whose = f" ({', '.join(workloads[asked])})" if len(seen) > 1 else ""
        yield from (replace(limit, name=f"{limit.name}{whose}") for limit in limits_of(limits))


@dataclass(frozen=True)
class Row:
    """One line of the matrix: a stack, its place over all workloads, and each workload."""

    stack: str
    overall: Entry
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Failing:
    """What does not work: a column for each workload, with the anchor of its section, and the causes below the table.

    A row has the title of a stack.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    causes: tuple[Cause, ...]


@dataclass(frozen=True)
class ValueRow:
    """One line of the table of all values."""

    cell: Cell
    metric: str
    point: str
    usual: str
    usual_sort: str
    relative_sd: str
    entry: Entry
    notes: str


@dataclass(frozen=True)
class Section:
    """All of one workload."""

    anchor: str
    record: WorkloadRecord
    rules: tuple[HeadlineRule, ...]
    lowered: str
    steadiness: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    ends: tuple[str, ...]
    starts: tuple[StartsRow, ...]
    values: tuple[ValueRow, ...]
    turns: TurnsShown
    trials: tuple[Trials, ...]


@dataclass(frozen=True)
class Page:
    """All of the page. Much of it is shown as the run and the summary have it."""

    summary: Summary
    run: Run
    margin: str
    started: str
    front: Front
    columns: tuple[tuple[str, HeadlineRule], ...]  # with the anchor of the workload
    rows: tuple[Row, ...]
    map: tuple[Drawing, ...]
    left_out: str
    care: tuple[CareRow, ...]
    failing: Failing
    sections: tuple[Section, ...]
    starts: tuple[Drawing, ...]
    costs: tuple[Drawing, ...]
    feature_sections: tuple[FeatureSection, ...]
    layers: tuple[LayerRow, ...]
    machines: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    tuning: tuple[tuple[str, str], ...]
    image: str
    stacks: tuple[StackFacts, ...]
    glyphs: dict[str, str]
    counts: str


def render(summary: Summary, run: Run, refresh_seconds: int = 0) -> dict[str, bytes]:
    """Render `index.html`, the report of a run; that of an unfinished run refreshes itself in a browser."""
    content = render_page("tare.report.html", "page.html.j2", page(summary, run), refresh_seconds=refresh_seconds)
    return {"index.html": content}


def page(summary: Summary, run: Run) -> Page:
    """Make the page of a run."""
    numbered, places = doubts(summary), anchors(summary, run)
    drawn = len(summary.stacks) <= MOST_DRAWN
    turns = turns_shown(summary, run) if places else {}
    sources = Sources(numbered, places, turns, trials_of(summary, run, places, turns))
    return Page(
        summary=summary,
        run=run,
        margin=percent(summary.margin),
        started=_day(run.record.started),
        front=front(summary, run, places),
        columns=tuple((workload_anchor(summary, rule.workload), rule) for rule in summary.rules),
        rows=tuple(_row(summary, stack, sources) for stack in summary.stacks),
        map=headlines_map(summary.headlines, summary.stacks, summary.baseline) if drawn else (),
        left_out=_left_out(summary, run, places),
        care=care(summary, numbered),
        failing=_failing(summary, places),
        sections=tuple(_section(summary, run, record, sources) for record in records(run) if summary.stacks),
        starts=starts(run, summary) if drawn else (),
        costs=costs(run, summary) if drawn else (),
        feature_sections=tuple(filter(None, (section(summary, run, places) for section in hooks("sections")))),
        layers=layers(run, summary),
        machines=_machines(run),
        tuning=tuple((each.name, _tuned(each)) for each in run.record.tuning),
        image=" of ".join(filter(None, (run.record.image, run.record.image_origin))),
        stacks=_stacks(summary, run, places),
        glyphs=GLYPHS,
        counts=_counts(run),
    )


def _day(started: str) -> str:
    """Write a moment as people do, to the minute."""
    try:
        moment = datetime.fromisoformat(started).astimezone(UTC)
    except ValueError:  # untrusted
        return started
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _stacks(summary: Summary, run: Run, places: Anchors) -> tuple[StackFacts, ...]:
    own: dict[str, list[Trial]] = {stack: [] for stack in summary.stacks}
    for trial in run.trials:
        own[trial.stack].append(trial)
    return tuple(stack_facts(stack, own[stack], stack_anchor(summary, stack), places) for stack in summary.stacks)


def _left_out(summary: Summary, run: Run, places: Anchors) -> str:
    """Describe what a page of so many stacks or trials does not have."""
    texts = []
    if len(summary.stacks) > MOST_DRAWN:
        texts.append(f"charts, as there are {len(summary.stacks)} stacks")
    elif any(len(trials) > MOST_DOTTED for trials in run.by_workload.values()):
        texts.append(f"the charts of single trials of a workload that has more than {MOST_DOTTED:,}")
    if not places and any(trial.status != "skipped" for trial in run.trials):
        texts.append("trials, which values.csv has, and tare show shows")
    return f"Left out, so that the page can be read: {'; '.join(texts)}." if texts else ""


def _row(summary: Summary, stack: str, sources: Sources) -> Row:
    cells = [summary.headline(rule.name, stack) for rule in summary.rules]
    overall = replace(_overall(summary, stack), anchor=stack_anchor(summary, stack))
    return Row(summary.title(stack), overall, tuple(entry(cell, sources) for cell in cells))


def _overall(summary: Summary, stack: str) -> Entry:
    if stack == summary.baseline:
        return Entry("baseline", GLYPHS["baseline"], "100 %", verdict="baseline", sort="1")
    if stack == summary.control:
        return Entry("none", GLYPHS["no value"], why="A/A", detail=f"{stack}: {summary.baseline} once more")
    standing = next((each for each in summary.overall.standings if each.stack == stack), None)
    if standing is None:
        return Entry("none", GLYPHS["no value"], why="not ranked", detail="has no value in some workload")
    detail = f"{stack}: {standing.verdict}"
    return Entry(
        look(standing.verdict, standing),
        GLYPHS[standing.verdict],
        estimate(standing),
        interval(standing),
        detail=detail,
        verdict=standing.verdict,
        sort=f"{standing.speed:.6g}",
    )


def _failing(summary: Summary, places: Anchors) -> Failing:
    found = not_working(summary)
    columns = tuple((workload_anchor(summary, name), name) for name in found.workloads)
    rows = (
        (summary.title(row[0].stack), tuple(tried_entry(each, found, places) for each in row)) for row in found.rows
    )
    return Failing(columns, tuple(rows), found.causes)


def _section(summary: Summary, run: Run, record: WorkloadRecord, sources: Sources) -> Section:
    workload = record.name
    titles = {metric.name: metric.title for metric in record.metrics}
    unit = record.sweep.unit if record.sweep else ""
    drawn = len(summary.stacks) <= MOST_DRAWN
    return Section(
        anchor=workload_anchor(summary, workload),
        record=record,
        rules=summary.rules_of(workload),
        lowered=said_lowered(record.lowered),
        steadiness=steadiness(summary, workload),
        drawings=workload_drawings(summary, run, record) if drawn else (),
        ends=ends(run, record),
        starts=start_rows(summary, run, record),
        values=tuple(_value(cell, titles, unit, sources) for cell in _by_point(summary.of(workload))),
        turns=sources.turns.get(workload, TurnsShown()),
        trials=sources.trials[workload],
    )


def _by_point(cells: Sequence[Cell]) -> list[Cell]:
    """Put the stacks of one metric and point below each other, where the eye compares them."""
    order = {point: index for index, point in enumerate(dict.fromkeys((cell.metric, cell.point) for cell in cells))}
    return sorted((cell for cell in cells if cell.trials), key=lambda cell: order[cell.metric, cell.point])


def _value(cell: Cell, titles: dict[str, str], unit: str, sources: Sources) -> ValueRow:
    return ValueRow(
        cell=cell,
        metric=titles.get(cell.metric, cell.metric),
        point=point(cell.point, unit),
        usual=usual_value(cell),
        usual_sort="" if cell.usual is None else f"{cell.usual:.6g}",
        relative_sd=relative_sd(cell),
        entry=entry(cell, sources),
        notes="; ".join((*reach(cell), *cell.notes)),
    )


def _machines(run: Run) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Describe each machine once, with its roles."""
    roles: dict[Facts, list[str]] = {}
    for role, facts in run.record.machines.items():
        roles.setdefault(facts, []).append(role)
    return tuple((", ".join(names), described(facts)) for facts, names in roles.items())


def described(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Describe what a machine is, in rows of a name and a text; all machines have the same rows."""
    rows = (
        ("CPU", facts.cpu_model),
        ("CPUs", str(facts.cpus) if facts.cpus else ""),
        ("memory", format_size(facts.memory_bytes) if facts.memory_bytes else ""),
        ("operating system", facts.operating_system),
        ("kernel", facts.kernel),
        ("architecture", facts.architecture),
        ("microcode", facts.microcode),
        ("clock source", facts.clock_source),
        ("virtualization", facts.virtualization),
    )
    return tuple((name, text or "unknown") for name, text in rows)


def _tuned(setting: Tuning) -> str:
    if not setting.now:
        return "not on this machine"
    return f"{setting.now}, as wanted" if setting.fits else f"{setting.now}; wanted: {setting.wanted}"


def _counts(run: Run) -> str:
    states = [trial.status for trial in run.trials]
    seconds = sum(trial.seconds for trial in run.trials)
    counts = ", ".join(
        f"{states.count(status)} {status}" for status in ("ok", "failed", "skipped") if states.count(status)
    )
    return f"{len(states)} trials ({counts or 'none'}) in {format_duration(seconds)}, seed {run.record.seed}"
