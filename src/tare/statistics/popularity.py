"""The popularity of technologies, as VTmark (2021, section 2.2) scores the rows of a table.

A row is a technology, a column a count that says how much people use or ask about it: searches, questions, stars.
Popularity is no measurement of tare's: VTmark chose by it what to measure.
"""

from __future__ import annotations

from collections.abc import Sequence


def shares_of_largest(rows: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Divide each value by the largest of its column: 0 to 1.

    Raises ValueError for rows of unlike lengths, for a value below 0, and for a column with no value above 0.
    """
    columns = tuple(zip(*rows, strict=True))
    if any(min(column) < 0 or not max(column) > 0 for column in columns):
        raise ValueError("a column has values from 0 on, one of them above 0")
    largest = tuple(max(column) for column in columns)
    return tuple(tuple(value / most for value, most in zip(row, largest, strict=True)) for row in rows)


def row_scores(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Score the rows, 0 to 1: `row_score` is the mean over the columns of c[i] / max(c).

    A row with the largest value in every column has 1. The paper's sentence before the formula speaks of differences
    from the largest value; the formula has quotients, and is what counts here. Raises ValueError as `shares_of_largest`
    does.
    """
    return tuple(sum(shares) / len(shares) for shares in shares_of_largest(rows))
