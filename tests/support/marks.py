"""Parameters of tests with the mark `slow`, which `make test` leaves out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")


def slow(values: Iterable[Value], these: Collection[Value]) -> list[Any]:
    """Return the values as parameters, with the mark for these."""
    return [pytest.param(value, marks=pytest.mark.slow if value in these else ()) for value in values]
