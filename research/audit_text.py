"""Text of the page research/audit.md: tables and numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown."""
    names = [str(name) for name in head]
    lines = [names, ["---"] * len(names), *([str(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float, form: str, unknown: str = "") -> str:
    """Return a number in a format, or `unknown` if it is not finite."""
    return f"{value:{form}}" if np.isfinite(value) else unknown


def percent(share: float, decimals: int = 1) -> str:
    """Return a share as a percentage."""
    text = f"{100 * share:.{decimals}f}"
    return f"{text.removesuffix('.0').replace('-0.00', '0.00')} %"
