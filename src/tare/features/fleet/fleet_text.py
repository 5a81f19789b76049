"""What `tare fleet compare` prints: table, Markdown and JSON, and the sentences that the page shares."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from tare.features.fleet.comparison import FleetComparison, Kind, OnKind, Transfer
from tare.model.units import counted
from tare.report.answer import Answer, Column, Gate, Row
from tare.report.data_files import cell_fields
from tare.report.findings import place
from tare.report.numbers import GLYPHS, estimate, interval, percent, some_of
from tare.report.terminal import STYLES
from tare.statistics.cells import DECIDED

_COLUMNS = (
    Column("workload", "name"),
    Column("stack", "name"),
    Column("kind", "text"),
    Column("verdict", "text"),
    Column("estimate"),
    Column("interval"),
    Column("machines"),
    Column("blocks", only_wide=True),
    Column("between machines", only_wide=True),
    Column("unlike", "text", only_wide=True),
)
ANSWERS = {"yes": "holds on all kinds", "no": "differs from kind to kind", "open": "open"}


def answer(found: FleetComparison) -> Answer:
    """Return what `tare compare` found of fleets as an answer."""
    gate = _gate(found)
    of = "what it was before, each machine against itself" if len(found.folders) > 1 else found.baseline
    return Answer(
        command="fleet compare",
        columns=_COLUMNS,
        rows=tuple(Row(_row(each), STYLES.get(each.cell.verdict, "dim")) for each in judged(found)),
        legend=(
            f"percent of {of}; the interval (95 %) holds for a machine of the kind that was not measured; ↑ more is "
            f"better, ↓ less is better; equivalent: within {percent(found.margin)}; "
            "between machines: share of the blocks' variance"
        ),
        remarks=_remarks(found),
        conclusions=tuple(filter(None, (_sentence(found), _transfer_sentence(found), gate.sentence))),
        fields=partial(_document, found, gate),
        gate=gate,
    )


def judged(found: FleetComparison) -> tuple[OnKind, ...]:
    """Return what is decided on, kinds beside each other: all but the baseline's own values."""
    every = [each for each in found.found if not each.own]
    order = list(dict.fromkeys((each.cell.headline, each.cell.stack) for each in every))
    return tuple(sorted(every, key=lambda each: order.index((each.cell.headline, each.cell.stack))))


def _sentence(found: FleetComparison) -> str:
    """Describe in one sentence what came of it."""
    every = judged(found)
    machines = sum(len(kind.machines) for kind in found.kinds)
    what = "From the first fleet to the second, on" if len(found.folders) > 1 else "On"
    head = f"{what} {counted(machines, 'machine')} of {counted(len(found.kinds), 'kind')}"
    parts = [
        f"{count} {verdict}"
        for verdict in ("worse", "better", "equivalent", "undecided", "too few blocks")
        if (count := sum(each.cell.verdict == verdict for each in every))
    ]
    texts = ", ".join(parts).replace("too few blocks", "on too few machines")
    return f"{head}, of {counted(len(every), 'result')}: {texts}."


def _transfer_sentence(found: FleetComparison) -> str:
    """Describe which verdicts hold on all kinds; empty where there is one kind."""
    if not found.transfers:
        return ""
    texts = []
    for answer in ("yes", "no"):
        own = [
            f"{each.stack} in {each.headline} ({_verdict_of(each)})"
            for each in found.transfers
            if each.answer == answer
        ]
        if own:
            texts.append(f"{ANSWERS[answer]}: {some_of(own)}")
    if not texts:
        return "Whether a verdict holds from kind to kind is open: none is decided on all of them."
    return f"What {'; what '.join(texts)}."


def unlike_sentences(found: FleetComparison) -> tuple[str, ...]:
    """Name each machine that is unlike its kind, with the value that is farthest off."""
    worst: dict[str, tuple[OnKind, float, str]] = {}
    for each in found.found:
        for one in each.unlike:
            what = f"{one.ratio / one.others * 100:.0f} % of the others' {_named(each)}"
            if one.machine not in worst or one.chance < worst[one.machine][1]:
                worst[one.machine] = each, one.chance, what
    return tuple(
        f"! {machine} is unlike the other machines of kind {each.kind}: it has {what}"
        for machine, (each, _, what) in worst.items()
    )


def _gate(found: FleetComparison) -> Gate:
    """Describe the gate: what failed it, or why it cannot tell."""
    gate, why = found.gate, ""
    if gate.answer == "cannot tell":
        why = "no comparison has an interval"
    elif gate.answer == "failed":
        why = some_of(
            [
                f"{each.cell.stack} in {each.cell.headline} on {each.kind} ({each.cell.verdict})"
                for each in judged(found)
                if each.cell in gate.failing
            ]
        )
    return Gate(gate.fail_on, gate.answer, why, "measure more machines", gate.is_undecided)


def _remarks(found: FleetComparison) -> tuple[str, ...]:
    """Return all that is to be known beside the table."""
    return (*map(kind_sentence, found.kinds), *unlike_sentences(found), *found.statements)


def kind_sentence(kind: Kind) -> str:
    """Describe a kind of machine, and name its machines."""
    what = f"{place(kind.facts)}, Linux {kind.facts.kernel}"
    return f"kind {kind.name}: {counted(len(kind.machines), 'machine')} ({some_of(kind.machines)}): {what}"


def _row(each: OnKind) -> tuple[str, ...]:
    """Return the texts of a row of the table."""
    cell = each.cell
    verdict = "too few machines" if cell.verdict == "too few blocks" else cell.verdict
    arrow = "↑" if cell.better == "higher" else "↓"
    return (
        f"{cell.headline} {arrow}",
        cell.stack,
        each.kind,
        f"{GLYPHS[cell.verdict]} {verdict}",
        estimate(cell),
        interval(cell),
        str(cell.n),
        _blocks(each),
        "" if each.share is None else percent(each.share),
        ", ".join(one.machine for one in each.unlike),
    )


def _blocks(each: OnKind) -> str:
    """Write how many blocks the machines have: `8`, or the fewest and the most."""
    counts = sorted(set(each.blocks.values()))
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}\N{EN DASH}{counts[-1]}"


def _document(found: FleetComparison, gate: Gate) -> dict[str, Any]:
    """Return what JSON has. Ratios are stack over baseline, and of two fleets that of after over that of before."""
    return {
        "fleets": [str(folder) for folder in found.folders],
        "suites": found.suites,
        "baseline": found.baseline,
        "margin": found.margin,
        "kinds": [
            {"name": kind.name, "machine": asdict(kind.facts), "machines": kind.machines} for kind in found.kinds
        ],
        "cells": [_fields(each) for each in found.found],
        "transfers": [
            {"headline": each.headline, "stack": each.stack, "answer": each.answer, "verdicts": dict(each.verdicts)}
            for each in found.transfers
        ],
        "answer": _sentence(found),
        "remarks": _remarks(found),
        "gate": gate.fields,
    }


def _fields(each: OnKind) -> dict[str, Any]:
    cell = each.cell
    return {
        "kind": each.kind,
        "workload": cell.workload,
        "headline": cell.headline,
        "stack": cell.stack,
        "own": each.own,
        "estimate": None if each.own else cell.ratio,
        "interval": None if cell.low is None or cell.high is None else [cell.low, cell.high],
        "decision": cell.verdict,
        "between_machines": each.share,
        "machines": {
            name: {"log": each.means[name], "blocks": each.blocks[name], "cell": cell_fields(own)}
            for name, own in each.cells.items()
        },
        "unlike": [asdict(one) for one in each.unlike],
    }


def _named(each: OnKind) -> str:
    return f"{'own value of ' if each.own else ''}{each.cell.stack} in {each.cell.headline}"


def _verdict_of(each: Transfer) -> str:
    return ", ".join(dict.fromkeys(verdict for verdict in each.verdicts.values() if verdict in DECIDED))
