"""What is found of a fleet: as a table for the terminal, as sentences, as JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tare import __version__
from tare.answers.comparing import PASSED_UNDECIDED
from tare.answers.fleet import Fleet, Kind, OnKind, Transfer
from tare.report.findings import place
from tare.report.json import cell_fields
from tare.report.numbers import GLYPHS, clean, estimate, interval, percent, some_of
from tare.report.terminal import STYLES
from tare.statistics.cells import DECIDED

FORMAT = 1
_WIDE = 100
ANSWERS = {"yes": "holds on all kinds", "no": "differs from kind to kind", "open": "open"}


def judged(found: Fleet) -> tuple[OnKind, ...]:
    """Return what is decided on, kinds beside each other: all but the baseline's own values."""
    every = [each for each in found.found if not each.own]
    order = list(dict.fromkeys((each.cell.headline, each.cell.stack) for each in every))
    return tuple(sorted(every, key=lambda each: order.index((each.cell.headline, each.cell.stack))))


def sentence(found: Fleet) -> str:
    """Describe in one sentence what came of it."""
    every = judged(found)
    machines = sum(len(kind.machines) for kind in found.kinds)
    what = "From the first fleet to the second, on" if len(found.folders) > 1 else "On"
    head = f"{what} {_count(machines, 'machine')} of {_count(len(found.kinds), 'kind')}"
    parts = [
        f"{count} {verdict}"
        for verdict in ("worse", "better", "equivalent", "undecided", "too few blocks")
        if (count := sum(each.cell.verdict == verdict for each in every))
    ]
    texts = ", ".join(parts).replace("too few blocks", "on too few machines")
    return f"{head}, of {_count(len(every), 'result')}: {texts}."


def transfer_sentence(found: Fleet) -> str:
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


def unlike_sentences(found: Fleet) -> tuple[str, ...]:
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


def gate_sentence(found: Fleet) -> str:
    """Describe whether the gate passed; empty where there is none."""
    gate = found.gate
    if not gate.fail_on:
        return ""
    asked = f"--fail-on {','.join(gate.fail_on)}"
    if gate.answer == "cannot tell":
        return f"The gate ({asked}) cannot tell: no comparison has an interval."
    if gate.answer == "passed":
        return f"The gate ({asked}) {PASSED_UNDECIDED if gate.is_undecided else 'passed'}."
    texts = [
        f"{each.cell.stack} in {each.cell.headline} on {each.kind} ({each.cell.verdict})"
        for each in judged(found)
        if each.cell in gate.failing
    ]
    return f"The gate ({asked}) failed: {some_of(texts)}."


def conclusions(found: Fleet) -> tuple[str, ...]:
    """Return the sentences that answer what was asked."""
    return tuple(filter(None, (sentence(found), transfer_sentence(found), gate_sentence(found))))


def remarks(found: Fleet) -> tuple[str, ...]:
    """Return all that is to be known beside the table."""
    return (*(kind_sentence(kind) for kind in found.kinds), *unlike_sentences(found), *found.statements)


def kind_sentence(kind: Kind) -> str:
    """Describe a kind of machine, and name its machines."""
    what = f"{place(kind.facts)}, Linux {kind.facts.kernel}"
    return f"kind {kind.name}: {_count(len(kind.machines), 'machine')} ({some_of(kind.machines)}): {what}"


def legend(found: Fleet) -> str:
    """Describe what the numbers of the table are."""
    of = "what it was before, each machine against itself" if len(found.folders) > 1 else found.baseline
    return (
        f"percent of {of}; the interval (95 %) holds for a machine of the kind that was not measured; ↑ more is "
        f"better, ↓ less is better; equivalent: within {percent(found.margin)}; "
        "between machines: share of the blocks' variance"
    )


def row(each: OnKind) -> tuple[str, ...]:
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
        blocks(each),
        "" if each.share is None else percent(each.share),
        ", ".join(one.machine for one in each.unlike),
    )


HEADER = (
    *("workload", "stack", "kind", "verdict", "estimate", "interval", "machines", "blocks"),
    *("between machines", "unlike"),
)


def blocks(each: OnKind) -> str:
    """Write how many blocks the machines have: `8`, or the fewest and the most."""
    counts = sorted(set(each.blocks.values()))
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}\N{EN DASH}{counts[-1]}"


def table(found: Fleet, width: int) -> Table:
    """Make the table for a terminal. A narrow one lacks what machines differ by."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    columns = len(HEADER) if width >= _WIDE else 7
    for title in HEADER[:columns]:
        left = title in ("workload", "stack", "kind", "verdict", "unlike")
        made.add_column(title, justify="left" if left else "right", no_wrap=title not in ("workload", "stack"))
    for each in judged(found):
        style = STYLES.get(each.cell.verdict, "dim")
        texts = [clean(text) for text in row(each)[:columns]]
        made.add_row(*(Text(text, style=style if at == 3 else "", overflow="fold") for at, text in enumerate(texts)))
    return made


def document(found: Fleet) -> str:
    """Write JSON. Ratios are stack over baseline, and of two fleets that of after over that of before."""
    gate = found.gate
    whole = {
        "format": FORMAT,
        "tare": __version__,
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
        "answer": sentence(found),
        "remarks": remarks(found),
        "gate": {
            "fail_on": gate.fail_on,
            "answer": gate.answer if gate.fail_on else None,
            "reason": gate_sentence(found) or None,
        },
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)


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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
