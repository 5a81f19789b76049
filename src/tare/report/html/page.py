"""Assemble the report page of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tare.model.journal import Run, WorkloadRecord
from tare.model.machine import Facts, Tuning
from tare.model.trial import Limits, SetLimits, Trial
from tare.model.units import counted, format_duration, format_size
from tare.plugins.feature import call_hooks
from tare.report.findings import cheapest, dearest, findings, what_was_compared
from tare.report.html.cautions import care, doubts
from tare.report.html.cells import Entry, Sources, entry, look, tried_entry
from tare.report.html.charts import (
    MOST_DOTTED,
    MOST_DRAWN,
    costs,
    headlines_map,
    layers,
    starts,
    workload_drawings,
)
from tare.report.html.sparklines import TurnsShown, turns_shown
from tare.report.html.trials import Anchors, anchors, start_rows, trials_of
from tare.report.numbers import GLYPHS, by_point, estimate, interval, listing, percent
from tare.report.overview import figure_of, overview
from tare.report.problems import not_working, steadiness
from tare.report.rendering import render_page
from tare.report.tradeoff import choice
from tare.report.trial_facts import Limit, ends, limits_of, said_lowered
from tare.statistics.anytime import least_count
from tare.statistics.cells import Cell
from tare.statistics.ranking import rankings
from tare.statistics.summarize import records
from tare.statistics.summary import Summary


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
        yield from limits_of(limits, whose)


def render(summary: Summary, run: Run, refresh_seconds: int = 0) -> dict[str, bytes]:
    """Render `index.html`, the report of a run; that of an unfinished run refreshes itself in a browser."""
    content = render_page("tare.report.html", "page.html.j2", page(summary, run), refresh_seconds=refresh_seconds)
    return {"index.html": content}


def page(summary: Summary, run: Run) -> Mapping[str, object]:
    """Return what the page shows, by the names that its template uses."""
    numbered, places = doubts(summary), anchors(summary, run)
    drawn = len(summary.stacks) <= MOST_DRAWN
    turns = turns_shown(summary, run) if places else {}
    sources = Sources(numbered, places, turns, trials_of(summary, run, places, turns))
    return {
        "summary": summary,
        "run": run,
        "margin": percent(summary.margin),
        "started": _day(run.record.started),
        "front": front(summary, run, places),
        "columns": [(workload_anchor(summary, rule.workload), rule) for rule in summary.rules],
        "rows": [_row(summary, stack, sources) for stack in summary.stacks],
        "map": headlines_map(summary.headlines, summary.stacks, summary.baseline) if drawn else (),
        "left_out": _left_out(summary, run, places),
        "care": list(care(summary, numbered)),
        "failing": _failing(summary, places),
        "sections": [_section(summary, run, record, sources) for record in records(run) if summary.stacks],
        "starts": starts(run, summary) if drawn else (),
        "costs": costs(run, summary) if drawn else (),
        "feature_sections": [*filter(None, call_hooks("sections", summary, run, places))],
        "layers": layers(run, summary),
        "machines": _machines(run),
        "tuning": [(each.name, _tuned(each)) for each in run.record.tuning],
        "image": " of ".join(filter(None, (run.record.image, run.record.image_origin))),
        "stacks": _stacks(summary, run, places),
        "glyphs": GLYPHS,
        "counts": _counts(run),
    }


def front(summary: Summary, run: Run, places: Anchors) -> Mapping[str, object]:
    """Return what the first screen of a run's page shows.

    The `figure` and the `choice` are None where there is nothing to draw. `answer` names the cheapest stack and the
    dearest; it is empty where there is nothing to rank. `anchors` lead from the names of stacks and headlines to where
    more is said.
    """
    names = {stack: stack_anchor(summary, stack) for stack in summary.stacks}
    names |= {rule.name: workload_anchor(summary, rule.workload) for rule in summary.rules}
    sections = {workload: workload_anchor(summary, workload) for workload in summary.workloads}
    machine = run.record.measured_on
    return {
        "answer": " ".join(filter(None, (cheapest(summary), dearest(summary)))),
        "about": what_was_compared(summary, machine),
        "findings": findings(summary, machine),
        "figure": figure_of(overview(summary, places, sections)),
        "choice": choice(summary, run),
        "rankings": ranking_rows(summary),
        "anchors": names,
        "places": places,
    }


def ranking_rows(summary: Summary) -> Sequence[Mapping[str, Any]]:
    """Return the ranking of each headline: by the ranks that they share, such as `2-3`, the cells; without one, why."""
    rows = []
    for rule, ranking in zip(summary.rules, rankings(summary), strict=True):
        ties: dict[str, list[Cell]] = {}
        for rank in ranking:
            shared = str(rank.best) if rank.best == rank.worst else f"{rank.best}\N{EN DASH}{rank.worst}"
            ties.setdefault(shared, []).append(rank.cell)
        most = max((cell.n for cell in summary.headlines if cell.headline == rule.name), default=0)
        why = f"measured {counted(most, 'time')}, {least_count()} are needed" if most else "nothing could be compared"
        anchor = workload_anchor(summary, rule.workload)
        rows.append({"anchor": anchor, "rule": rule, "ties": ties, "why": "" if ties else why})
    return rows


def workload_anchor(summary: Summary, workload: str) -> str:
    """Name the section of a workload."""
    return f"workload-{summary.workloads.index(workload)}"


def stack_anchor(summary: Summary, stack: str) -> str:
    """Name the place where it is said what a stack was."""
    return f"stack-{summary.stacks.index(stack)}"


def _day(started: str) -> str:
    """Write a moment as people do, to the minute."""
    try:
        moment = datetime.fromisoformat(started).astimezone(UTC)
    except ValueError:  # untrusted
        return started
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _stacks(summary: Summary, run: Run, places: Anchors) -> Iterator[Mapping[str, object]]:
    """Yield what each stack was, from its own trials, and where these are, by workload."""
    own: dict[str, list[Trial]] = {stack: [] for stack in summary.stacks}
    for trial in run.trials:
        own[trial.stack].append(trial)
    for stack, trials in own.items():
        workloads = dict.fromkeys(trial.workload for trial in trials)
        yield {
            "anchor": stack_anchor(summary, stack),
            "stack": stack,
            "path": listing(tuple(dict.fromkeys(trial.path for trial in trials if trial.path))),
            "limits": list(_limits(trials)),
            "file_systems": dict.fromkeys(system for trial in trials for system in trial.file_systems),
            "proof": dict(entry for trial in trials for entry in trial.proof),
            "trials": [(name, at) for name in workloads if (at := places.get((name, stack)))],
        }


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


def _row(summary: Summary, stack: str, sources: Sources) -> tuple[str, Entry, list[Entry]]:
    """Return a line of the matrix: a stack, its place over all workloads, and each workload."""
    entries = [entry(summary.headline(rule.name, stack), sources) for rule in summary.rules]
    return summary.title(stack), _overall(summary, stack), entries


def _overall(summary: Summary, stack: str) -> Entry:
    anchor = stack_anchor(summary, stack)
    if stack == summary.baseline:
        return Entry("baseline", GLYPHS["baseline"], "100 %", verdict="baseline", sort="1", anchor=anchor)
    if stack == summary.control:
        return Entry("none", GLYPHS["no value"], why="A/A", detail=f"{stack}: {summary.baseline} once more")
    standing = next((each for each in summary.overall.standings if each.stack == stack), None)
    if standing is None:
        return Entry("none", GLYPHS["no value"], why="not ranked", detail="has no value in some workload")
    return Entry(
        look(standing.verdict, standing),
        GLYPHS[standing.verdict],
        estimate(standing),
        interval(standing),
        detail=f"{stack}: {standing.verdict}",
        verdict=standing.verdict,
        sort=f"{standing.speed:.6g}",
        anchor=anchor,
    )


def _failing(summary: Summary, places: Anchors) -> Mapping[str, object]:
    """Return what does not work: a column for each workload, a row for each stack, and the causes."""
    found = not_working(summary)
    return {
        "columns": [(workload_anchor(summary, name), name) for name in found.workloads],
        "rows": [
            (summary.title(row[0].stack), [tried_entry(each, found, places) for each in row]) for row in found.rows
        ],
        "causes": found.causes,
    }


def _section(summary: Summary, run: Run, record: WorkloadRecord, sources: Sources) -> Mapping[str, object]:
    """Return all of one workload."""
    workload = record.name
    return {
        "anchor": workload_anchor(summary, workload),
        "record": record,
        "titles": {metric.name: metric.title for metric in record.metrics},
        "rules": summary.rules_of(workload),
        "lowered": said_lowered(record.lowered),
        "steadiness": steadiness(summary, workload),
        "drawings": workload_drawings(summary, run, record) if len(summary.stacks) <= MOST_DRAWN else (),
        "ends": ends(run, record),
        "starts": start_rows(summary, run, record),
        "rows": [(cell, entry(cell, sources)) for cell in by_point(summary.of(workload))],
        "turns": sources.turns.get(workload, TurnsShown()),
        "trials": sources.trials[workload],
    }


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
