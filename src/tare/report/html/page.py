"""Assemble the report page of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tare.model.machine import Facts, Tuning
from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import Limits, LimitsCheck, Trial
from tare.model.units import format_count, format_duration, format_size
from tare.plugins.feature import call_hooks
from tare.report.cpu_table import column_titles, cost_texts, cpu_columns, explain_table, measured_stacks, table_title
from tare.report.findings import create_findings, describe_cheapest, describe_comparison, describe_dearest
from tare.report.html.cautions import (
    LinkTargets,
    TableCell,
    caution_rows,
    cautions_by_kind,
    create_cell,
    create_status_cell,
    style_of_verdict,
)
from tare.report.html.charts import (
    MAX_DOTTED,
    MAX_DRAWN,
    draw_costs,
    draw_headlines_map,
    draw_starts,
    draw_workload,
    layer_rows,
)
from tare.report.html.sparklines import TurnDrawings, draw_turns_by_workload
from tare.report.html.trials import Anchors, start_rows, trial_anchors, trial_rows
from tare.report.isolation_table import COLUMNS, NOTE, TITLE, isolation_rows
from tare.report.numbers import GLYPHS, format_interval, format_percent, format_ratio, join_names, sort_by_point
from tare.report.overview import create_overview, draw_page_figure
from tare.report.problems import describe_steadiness, find_failures
from tare.report.rendering import render_page
from tare.report.tradeoff import draw_page_figures
from tare.report.trial_facts import LimitRow, density_stops, describe_lowered, describe_turns, limit_rows
from tare.statistics.anytime import min_value_count
from tare.statistics.cells import Cell
from tare.statistics.ranking import rankings
from tare.statistics.summarize import workload_records
from tare.statistics.summary import Summary


def _limit_rows(trials: Sequence[Trial]) -> Iterable[LimitRow]:
    """Yield the limits of a stack; if they differ between workloads, with the names of these."""
    checks: dict[Limits, LimitsCheck] = {}
    workloads: dict[Limits, dict[str, None]] = {}
    for trial in trials:
        if trial.limits:
            checks.setdefault(trial.limits.asked, trial.limits)
            workloads.setdefault(trial.limits.asked, {})[trial.workload] = None
    for asked, limits in checks.items():
        whose = f" ({', '.join(workloads[asked])})" if len(checks) > 1 else ""
        yield from limit_rows(limits, whose)


def render(summary: Summary, run: Run, refresh_seconds: int = 0) -> dict[str, bytes]:
    """Render `index.html`, the report of a run; with `refresh_seconds`, for an unfinished run, browsers reload it."""
    content = render_page(
        "tare.report.html", "page.html.j2", page_values(summary, run), refresh_seconds=refresh_seconds
    )
    return {"index.html": content}


def page_values(summary: Summary, run: Run) -> Mapping[str, object]:
    """Return the values of the page by the names that its template uses."""
    numbered, places = cautions_by_kind(summary), trial_anchors(summary, run)
    drawn = len(summary.stacks) <= MAX_DRAWN
    turns = draw_turns_by_workload(summary, run) if places else {}
    sources = LinkTargets(numbered, places, turns, trial_rows(summary, run, places, turns))
    return {
        "summary": summary,
        "run": run,
        "margin": format_percent(summary.margin),
        "started": _format_moment(run.record.started),
        "front": front_values(summary, run, places),
        "columns": [(workload_anchor(summary, rule.workload), rule) for rule in summary.rules],
        "rows": [_matrix_row(summary, stack, sources) for stack in summary.stacks],
        "map": draw_headlines_map(summary.headlines, summary.stacks, summary.baseline) if drawn else (),
        "left_out": _describe_left_out(summary, run, places),
        "care": list(caution_rows(summary, numbered)),
        "failing": _failure_values(summary, places),
        "sections": [
            _workload_section(summary, run, record, sources) for record in workload_records(run) if summary.stacks
        ],
        "cpu": _cpu_cost_values(summary, run),
        "starts": draw_starts(run, summary) if drawn else (),
        "costs": draw_costs(run, summary) if drawn else (),
        "feature_sections": [*filter(None, call_hooks("sections", summary, run, places))],
        "layers": layer_rows(run, summary),
        "isolation": {"title": TITLE, "note": NOTE, "columns": COLUMNS, "rows": isolation_rows(summary, run)},
        "machines": _describe_machines(run),
        "tuning": [(each.name, _describe_tuning(each)) for each in run.record.tuning],
        "image": " of ".join(filter(None, (run.record.image, run.record.image_origin))),
        "stacks": _stack_sections(summary, run, places),
        "glyphs": GLYPHS,
        "counts": _describe_counts(run),
    }


def front_values(summary: Summary, run: Run, anchors_by_cell: Anchors) -> Mapping[str, object]:
    """Return the values of the first screen of a run's page.

    `figure` and `choice` are None if there is nothing to draw. `answer` names the cheapest and the dearest stack; it is
    empty if there is nothing to rank. `anchors` are the sections of stacks and headlines, `places` those of trials.
    """
    names = {stack: stack_anchor(summary, stack) for stack in summary.stacks}
    names |= {rule.name: workload_anchor(summary, rule.workload) for rule in summary.rules}
    sections = {workload: workload_anchor(summary, workload) for workload in summary.workloads}
    machine = run.record.instance_machine
    return {
        "answer": " ".join(filter(None, (describe_cheapest(summary), describe_dearest(summary)))),
        "about": describe_comparison(summary, machine),
        "findings": create_findings(summary, machine),
        "figure": draw_page_figure(create_overview(summary, anchors_by_cell, sections)),
        "choice": draw_page_figures(summary, run),
        "rankings": ranking_rows(summary),
        "anchors": names,
        "places": anchors_by_cell,
    }


def ranking_rows(summary: Summary) -> Sequence[Mapping[str, Any]]:
    """Return the ranking of each headline: cells by shared ranks such as `2-3`, or the reason for no ranking."""
    rows = []
    for rule, ranking in zip(summary.rules, rankings(summary), strict=True):
        ties: dict[str, list[Cell]] = {}
        for rank in ranking:
            shared = str(rank.best) if rank.best == rank.worst else f"{rank.best}\N{EN DASH}{rank.worst}"
            ties.setdefault(shared, []).append(rank.cell)
        most = max((cell.n for cell in summary.headlines if cell.headline == rule.name), default=0)
        why = (
            f"measured {format_count(most, 'time')}, {min_value_count()} needed"
            if most
            else "nothing could be compared"
        )
        anchor = workload_anchor(summary, rule.workload)
        rows.append({"anchor": anchor, "rule": rule, "ties": ties, "why": "" if ties else why})
    return rows


def workload_anchor(summary: Summary, workload: str) -> str:
    """Return the anchor of a workload's section."""
    return f"workload-{summary.workloads.index(workload)}"


def stack_anchor(summary: Summary, stack: str) -> str:
    """Return the anchor of a stack's description."""
    return f"stack-{summary.stacks.index(stack)}"


def _format_moment(started: str) -> str:
    """Format a time in UTC, to the minute; return other texts unchanged."""
    try:
        moment = datetime.fromisoformat(started).astimezone(UTC)
    except ValueError:  # the run may be untrusted
        return started
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _stack_sections(summary: Summary, run: Run, anchors_by_cell: Anchors) -> Iterator[Mapping[str, object]]:
    """Yield the path, limits, file systems and versions of each stack from its trials, with links to these."""
    trials_by_stack: dict[str, list[Trial]] = {stack: [] for stack in summary.stacks}
    for trial in run.trials:
        trials_by_stack[trial.stack].append(trial)
    for stack, trials in trials_by_stack.items():
        workloads = dict.fromkeys(trial.workload for trial in trials)
        yield {
            "anchor": stack_anchor(summary, stack),
            "stack": stack,
            "path": join_names(tuple(dict.fromkeys(trial.path for trial in trials if trial.path))),
            "limits": list(_limit_rows(trials)),
            "file_systems": dict.fromkeys(system for trial in trials for system in trial.file_systems),
            "proof": dict(entry for trial in trials for entry in trial.proof),
            "trials": [(name, at) for name in workloads if (at := anchors_by_cell.get((name, stack)))],
        }


def _describe_left_out(summary: Summary, run: Run, anchors_by_cell: Anchors) -> str:
    """Describe the parts that the page leaves out because of many stacks or trials; "" if it has all."""
    texts = []
    if len(summary.stacks) > MAX_DRAWN:
        texts.append(f"charts, because there are {len(summary.stacks)} stacks")
    elif any(len(trials) > MAX_DOTTED for trials in run.by_workload.values()):
        texts.append(f"charts of the single trials of a workload with more than {MAX_DOTTED:,} trials")
    if not anchors_by_cell and any(trial.status != "skipped" for trial in run.trials):
        texts.append("single trials, which are in values.csv and in the output of `tare show`")
    return f"Left out to keep the page readable: {'; '.join(texts)}." if texts else ""


def _matrix_row(summary: Summary, stack: str, sources: LinkTargets) -> tuple[str, TableCell, list[TableCell]]:
    """Return a line of the matrix: a stack, its place over all workloads, and each workload."""
    entries = [create_cell(summary.headline(rule.name, stack), sources) for rule in summary.rules]
    return summary.title(stack), _overall_cell(summary, stack), entries


def _overall_cell(summary: Summary, stack: str) -> TableCell:
    anchor = stack_anchor(summary, stack)
    if stack == summary.baseline:
        return TableCell("baseline", GLYPHS["baseline"], "0 %", verdict="baseline", sort="1", anchor=anchor)
    if stack == summary.control:
        return TableCell(
            "none", GLYPHS["no value"], why="A/A", detail=f"{stack}: {summary.baseline} under a second name"
        )
    standing = next((each for each in summary.overall.standings if each.stack == stack), None)
    if standing is None:
        return TableCell("none", GLYPHS["no value"], why="not ranked", detail="has no value in some workload")
    return TableCell(
        style_of_verdict(standing.verdict, standing),
        GLYPHS[standing.verdict],
        format_ratio(standing),
        format_interval(standing),
        detail=f"{stack}: {standing.verdict}",
        verdict=standing.verdict,
        sort=f"{standing.speed:.6g}",
        anchor=anchor,
    )


def _failure_values(summary: Summary, anchors_by_cell: Anchors) -> Mapping[str, object]:
    """Return the table of failures: a column for each workload, a row for each stack, and the causes."""
    failures = find_failures(summary)
    return {
        "columns": [(workload_anchor(summary, name), name) for name in failures.workloads],
        "rows": [
            (summary.title(row[0].stack), [create_status_cell(each, failures, anchors_by_cell) for each in row])
            for row in failures.rows
        ],
        "causes": failures.causes,
    }


def _workload_section(summary: Summary, run: Run, record: WorkloadRecord, sources: LinkTargets) -> Mapping[str, object]:
    """Return the values of a workload's section."""
    workload = record.name
    return {
        "anchor": workload_anchor(summary, workload),
        "record": record,
        "titles": {metric.name: metric.title for metric in record.metrics},
        "rules": summary.rules_of(workload),
        "lowered": " ".join(filter(None, (describe_lowered(record.lowered), describe_turns(record)))),
        "steadiness": describe_steadiness(summary, workload),
        "drawings": draw_workload(summary, run, record) if len(summary.stacks) <= MAX_DRAWN else (),
        "ends": density_stops(run, record),
        "starts": start_rows(summary, run, record),
        "rows": [(cell, create_cell(cell, sources)) for cell in sort_by_point(summary.cells_of(workload))],
        "turns": sources.turns.get(workload, TurnDrawings()),
        "trials": sources.trials[workload],
    }


def _cpu_cost_values(summary: Summary, run: Run) -> Mapping[str, object] | None:
    """Return the values of the table of CPU time per request or run; None if it is unknown."""
    columns = cpu_columns(summary, run)
    if not columns:
        return None
    return {
        "title": table_title(columns),
        "columns": [(workload_anchor(summary, each.workload), each) for each in columns],
        "labels": column_titles(columns),
        "rows": [
            (summary.title(stack), [cost_texts(each.costs[stack]) for each in columns])
            for stack in measured_stacks(summary, columns)
        ],
        "note": explain_table(columns),
    }


def _describe_machines(run: Run) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return each machine once, with its roles and its facts."""
    roles: dict[Facts, list[str]] = {}
    for role, facts in run.record.machines.items():
        roles.setdefault(facts, []).append(role)
    return tuple((", ".join(names), describe_facts(facts)) for facts, names in roles.items())


def describe_facts(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Return the facts of a machine as rows of a name and a text; all machines have the same rows."""
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


def _describe_tuning(setting: Tuning) -> str:
    if not setting.now:
        return "not on this machine"
    return f"{setting.now}, as recommended" if setting.fits else f"{setting.now}; recommended: {setting.wanted}"


def _describe_counts(run: Run) -> str:
    states = [trial.status for trial in run.trials]
    seconds = sum(trial.seconds for trial in run.trials)
    counts = ", ".join(
        f"{states.count(status)} {status}" for status in ("ok", "failed", "skipped") if states.count(status)
    )
    return f"{len(states)} trials ({counts or 'none'}) in {format_duration(seconds)}, seed {run.record.seed}"
