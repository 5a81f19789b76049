"""Options that several commands have, such as `--fail-on`: on which verdicts a command exits with 1."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tare.errors import UsageError, did_you_mean

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
ChartsFile = Annotated[
    Path | None, typer.Option("--html", help="Write a page with charts to this file, too.", show_default=False)
]

Verdict = TypeVar("Verdict", bound=str)


def verdicts_named(
    texts: Sequence[str] | None, known: Collection[Verdict], noun: str, example: str
) -> tuple[Verdict, ...]:
    """Return the known verdicts that the option names, in their order; it may be repeated. Raises UsageError."""
    names = [name.strip() for text in texts or () for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"there are {', '.join(known)}")
            raise UsageError(f"--fail-on {name}: there is no such {noun} to fail on", hint)
    if texts and not names:
        raise UsageError(f"--fail-on: no {noun} is named", f"for example --fail-on {example}")
    return tuple(verdict for verdict in known if verdict in names)
