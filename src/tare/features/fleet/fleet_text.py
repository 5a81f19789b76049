"""Texts about a fleet: the answer of `tare fleet compare`, sentences that the page shares, and plan and progress."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tare.features.fleet.comparison import FleetComparison, FleetMachineType, Generalization, TypeResult
from tare.features.fleet.controller import estimate_measuring_seconds, is_uploaded
from tare.features.fleet.state import Fleet, Member, format_blocks
from tare.model.units import format_count, format_duration
from tare.report.answer import Answer, AnswerColumn, AnswerRow, Gate, describe_undecided
from tare.report.data_files import cell_fields
from tare.report.findings import describe_machine
from tare.report.numbers import (
    GLYPHS,
    format_interval,
    format_percent,
    format_ratio,
    join_some,
    strip_control_characters,
)
from tare.report.terminal import STYLES
from tare.statistics.cells import DECIDED
from tare.suites.suite import Suite
from tare.suites.user_files import list_user_files

_COLUMNS = (
    AnswerColumn("workload", "name"),
    AnswerColumn("stack", "name"),
    AnswerColumn("type", "text"),
    AnswerColumn("verdict", "text"),
    AnswerColumn("estimate"),
    AnswerColumn("interval"),
    AnswerColumn("machines"),
    AnswerColumn("blocks", only_wide=True),
    AnswerColumn("between machines", only_wide=True),
    AnswerColumn("outliers", "text", only_wide=True),
)
GENERALIZATION_TEXTS = {"yes": "holds on all types", "no": "differs between types", "open": "open"}


def answer(result: FleetComparison) -> Answer:
    """Return the answer of `tare fleet compare`: its table, sentences and gate."""
    gate = _gate(result)
    of = "before on the same machine" if len(result.folders) > 1 else result.baseline
    return Answer(
        command="fleet compare",
        columns=_COLUMNS,
        rows=tuple(AnswerRow(_row(each), STYLES.get(each.cell.verdict, "dim")) for each in decided_results(result)),
        legend=(
            f"change from {of}; 95 % interval for any machine of the type; ↑ more is better, ↓ less is better; "
            f"equivalent: within {format_percent(result.margin)}; between machines: share of the variance"
        ),
        remarks=_remarks(result),
        conclusions=tuple(filter(None, (_sentence(result), _generalization_sentence(result), gate.sentence))),
        fields=partial(_document, result, gate),
        gate=gate,
    )


def decided_results(result: FleetComparison) -> tuple[TypeResult, ...]:
    """Return the results of all stacks but the baseline, the machine types of a stack next to each other."""
    results = [each for each in result.results if not each.is_baseline]
    order = list(dict.fromkeys((each.cell.headline, each.cell.stack) for each in results))
    return tuple(sorted(results, key=lambda each: order.index((each.cell.headline, each.cell.stack))))


def _sentence(result: FleetComparison) -> str:
    """Return the result as one sentence: the number of results of each verdict."""
    results = decided_results(result)
    machines = sum(len(machine_type.machines) for machine_type in result.machine_types)
    start = "From the first fleet to the second, on" if len(result.folders) > 1 else "On"
    head = f"{start} {format_count(machines, 'machine')} of {format_count(len(result.machine_types), 'type')}"
    parts = [
        f"{count} {verdict}"
        for verdict in ("worse", "better", "equivalent", "undecided", "too few blocks")
        if (count := sum(each.cell.verdict == verdict for each in results))
    ]
    texts = ", ".join(parts).replace("too few blocks", "on too few machines")
    return f"{head}, of {format_count(len(results), 'result')}: {texts}."


def _generalization_sentence(result: FleetComparison) -> str:
    """Describe which verdicts hold on all machine types; "" with a single type."""
    if not result.generalizations:
        return ""
    texts = []
    for answer in ("yes", "no"):
        names = [
            f"{each.stack} in {each.headline} ({_format_verdicts(each)})"
            for each in result.generalizations
            if each.answer == answer
        ]
        if names:
            texts.append(f"{GENERALIZATION_TEXTS[answer]}: {join_some(names)}")
    if not texts:
        return "No verdict is decided on all types."
    text = "; ".join(texts)
    return f"{text[:1].upper()}{text[1:]}."


def outlier_sentences(result: FleetComparison) -> tuple[str, ...]:
    """Return a sentence for each outlier machine, with its most improbable value."""
    worst: dict[str, tuple[TypeResult, float, str]] = {}
    for each in result.results:
        for one in each.outliers:
            text = f"{one.ratio / one.others * 100:.0f} % of the others' {_result_name(each)}"
            if one.machine not in worst or one.chance < worst[one.machine][1]:
                worst[one.machine] = each, one.chance, text
    return tuple(
        f"! {machine} is an outlier of type {each.machine_type}: it has {text}"
        for machine, (each, _, text) in worst.items()
    )


def _gate(result: FleetComparison) -> Gate:
    """Return the gate with the results that failed it, or the reason why it cannot tell."""
    gate, why = result.gate, ""
    if gate.outcome == "cannot tell":
        why = "no comparison has an interval"
    elif gate.outcome == "failed":
        why = join_some(
            [
                f"{each.cell.stack} in {each.cell.headline} on {each.machine_type} ({each.cell.verdict})"
                for each in decided_results(result)
                if each.cell in gate.failing
            ]
        )
    elif gate.outcome == "undecided":
        why = describe_undecided([each.cell for each in decided_results(result)])
    return Gate(gate.fail_on, gate.outcome, why, "measure more machines")


def _remarks(result: FleetComparison) -> tuple[str, ...]:
    """Return the notes below the table: machine types, outliers, and statements about the runs."""
    return (*map(type_sentence, result.machine_types), *outlier_sentences(result), *result.statements)


def type_sentence(machine_type: FleetMachineType) -> str:
    """Describe a machine type, with the names of its machines."""
    facts = machine_type.facts
    system = f"Linux {facts.kernel} on {facts.architecture or 'an unknown architecture'}"
    count = format_count(len(machine_type.machines), "machine")
    return (
        f"type {machine_type.name}: {count} ({join_some(machine_type.machines)}): {describe_machine(facts)}, {system}"
    )


def _row(result: TypeResult) -> tuple[str, ...]:
    """Return the texts of a row of the table."""
    cell = result.cell
    verdict = "too few machines" if cell.verdict == "too few blocks" else cell.verdict
    arrow = "↑" if cell.better == "higher" else "↓"
    return (
        f"{cell.headline} {arrow}",
        cell.stack,
        result.machine_type,
        f"{GLYPHS[cell.verdict]} {verdict}",
        format_ratio(cell),
        format_interval(cell),
        str(cell.n),
        _format_block_counts(result),
        "" if result.share is None else format_percent(result.share),
        ", ".join(one.machine for one in result.outliers),
    )


def _format_block_counts(result: TypeResult) -> str:
    """Format the number of blocks of the machines: `8`, or the fewest and the most."""
    counts = sorted(set(result.blocks.values()))
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}\N{EN DASH}{counts[-1]}"


def _document(result: FleetComparison, gate: Gate) -> dict[str, Any]:
    """Return the fields of the JSON output. Ratios are stack over baseline; of two fleets, after over before."""
    return {
        "fleets": [str(folder) for folder in result.folders],
        "suites": result.suites,
        "baseline": result.baseline,
        "margin": result.margin,
        "kinds": [
            {"name": machine_type.name, "machine": asdict(machine_type.facts), "machines": machine_type.machines}
            for machine_type in result.machine_types
        ],
        "cells": [_result_fields(each) for each in result.results],
        "transfers": [
            {"headline": each.headline, "stack": each.stack, "answer": each.answer, "verdicts": dict(each.verdicts)}
            for each in result.generalizations
        ],
        "answer": _sentence(result),
        "remarks": _remarks(result),
        "gate": gate.fields,
    }


def _result_fields(result: TypeResult) -> dict[str, Any]:
    cell = result.cell
    return {
        "kind": result.machine_type,
        "workload": cell.workload,
        "headline": cell.headline,
        "stack": cell.stack,
        "own": result.is_baseline,
        "estimate": None if result.is_baseline else cell.ratio,
        "interval": None if cell.low is None or cell.high is None else [cell.low, cell.high],
        "decision": cell.verdict,
        "between_machines": result.share,
        "machines": {
            name: {"log": result.means[name], "blocks": result.blocks[name], "cell": cell_fields(cell_of_machine)}
            for name, cell_of_machine in result.cells.items()
        },
        "unlike": [asdict(one) for one in result.outliers],
    }


def _result_name(result: TypeResult) -> str:
    return f"{'value of ' if result.is_baseline else ''}{result.cell.stack} in {result.cell.headline}"


def _format_verdicts(generalization: Generalization) -> str:
    return ", ".join(dict.fromkeys(verdict for verdict in generalization.verdicts.values() if verdict in DECIDED))


_TIME_LEFT = re.compile(r"^(?P<what>.*), about (?P<left>.+) left$")
_STYLES = {"failed": "red", "lost": "red", "collected": "green", "ended": "green"}
_BAR_WIDTH = 16
_MAX_STATE_CHARACTERS = 60
_MIN_MACHINES = 2


def plan_table(suite: Suite, fleet: Fleet) -> Table:
    """Return the table of a plan: the blocks of each machine, with the estimated time."""
    table = Table(box=None, pad_edge=False)
    for column in ("machine", "type", "blocks", "trials", "about"):
        table.add_column(column)
    for each in fleet.members.values():
        if each.reason:
            table.add_row(each.name, "-", Text(strip_control_characters(each.reason), style="red"), "", "")
        else:
            about = format_duration(round(estimate_measuring_seconds(suite, each.blocks))) if each.blocks else "-"
            table.add_row(each.name, each.kind, format_blocks(each.blocks) or "none", str(each.trials), about)
    return table


def plan_lines(suite: Suite, fleet: Fleet, machine_types: Sequence[FleetMachineType]) -> Iterator[str]:
    """Yield notes on a plan: machine types, too few machines or blocks, files that are not uploaded, total time."""
    for machine_type in machine_types:
        yield type_sentence(machine_type)
        blocks = [len(each.blocks) for each in fleet.of_type(machine_type.name) if not each.reason]
        if len(blocks) < _MIN_MACHINES:
            yield f"type {machine_type.name}: no interval for other machines of the type: add a second machine"
        elif min(blocks) < _MIN_MACHINES:
            few = f"{suite.blocks} blocks are few for {len(blocks)} machines"
            yield f"type {machine_type.name}: {few}: set blocks = {2 * len(blocks)}"
    for path in list_user_files(suite):
        if not is_uploaded(suite, path):
            file = strip_control_characters(str(path))
            yield f"copy {file} to the machines: tare copies only files below the suite's folder"
    longest = max(
        (estimate_measuring_seconds(suite, each.blocks) for each in fleet.members.values() if each.blocks), default=0.0
    )
    yield f"about {format_duration(round(longest))} to measure, after installing and building images"


def state_table(fleet: Fleet) -> Table:
    """Return the table of the machines' progress."""
    table = Table(box=None, pad_edge=False)
    for column in ("machine", "type", "blocks", "trials", "", "left", "now", "seen"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for each in fleet.members.values():
        text, left = _split_last_line(each)
        table.add_row(
            each.name,
            each.kind,
            format_blocks(each.blocks),
            f"{each.done}/{each.trials}" if each.trials else "",
            ProgressBar(total=max(1, each.trials), completed=each.done, width=_BAR_WIDTH),
            left,
            Text(
                f"{each.state}: {text}"[:_MAX_STATE_CHARACTERS] if text else each.state,
                style=_STYLES.get(each.state, ""),
            ),
            _format_last_seen(each),
        )
    return table


def _split_last_line(member: Member) -> tuple[str, str]:
    """Return the last line of a machine and its estimated time left, both "" if unknown."""
    if member.reason:
        return strip_control_characters(member.reason), ""
    if member.state != "runs":
        return strip_control_characters(member.said) if member.state == "asked" else "", ""
    match = _TIME_LEFT.match(member.said)
    return (
        (strip_control_characters(match["what"]), strip_control_characters(match["left"]))
        if match
        else (strip_control_characters(member.said), "")
    )


def _format_last_seen(member: Member) -> str:
    return f"{max(0, round(time.time() - member.seen))} s ago" if member.seen and member.state == "runs" else ""


def log_line(member: Member) -> tuple[str, str]:
    """Return the subject of a log line (a machine, or the preparation of all), and the line, "" for no line."""
    if member.state == "asked" and not member.reason:
        return "preparing", f"preparing: {member.said}" if member.said else ""
    text = member.reason or (member.said if member.is_running else "")
    return member.name, f"{member.name}: {member.state}: {text}".removesuffix(": ")
