"""Claims for tests, and what a run says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tare.features.papers.claim_file import parse_claims
from tare.features.papers.claims import Claims
from tare.features.papers.judging import ClaimVerdict, judge
from tare.model.run_folder import Run
from tare.model.units import format_setting

HEAD = """\
format = 1

[sources.paper]
title = "A paper"
authors = "Somebody"
published = "2024"
hardware = "A server"
cpu = "Imaginary CPU 9000"
suite = "examples/quick.toml"

[sources.paper.versions]
docker = "19.03.8"
redis-server = "7.0.1"
kernel = "4.19.0"
unheard-of = "1"
"""
USUAL = {
    "id": "one",
    "source": "paper",
    "place": "Table 1",
    "says": "It is so.",
    "stack": "docker",
    "workload": "dhrystone",
    "direction": "less",
}


def text_of(*changes: dict[str, object]) -> str:
    """The text of a file: each claim is the usual one, changed; None leaves a key out."""
    tables = []
    for number, change in enumerate(changes):
        fields = USUAL | ({"id": f"claim-{number}"} if len(changes) > 1 else {}) | change
        lines = (f"{name} = {_written(value)}\n" for name, value in fields.items() if value is not None)
        tables.append("\n[[claims]]\n" + "".join(lines))
    return HEAD + "".join(tables)


def claims(*changes: dict[str, object]) -> Claims:
    return parse_claims(text_of(*changes), "claims.toml")


def judged(run: Run, **changes: object) -> ClaimVerdict:
    """Judge the usual claim with these changes."""
    (one,) = judge(run, claims(changes)).verdicts
    return one


def remarks(one: ClaimVerdict) -> Sequence[str]:
    return [note for finding in one.points for note in finding.notes]


def _written(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_written(each)}" for name, each in value.items()) + " }"
    return format_setting(tuple(value) if isinstance(value, list) else value)
