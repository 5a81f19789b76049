"""Marks a test's parameters as `slow`: `make test` leaves them out, and `make test-slow` runs them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")


def slow(values: Iterable[Value], slow_values: Collection[Value]) -> list[Any]:
    """Return the values as parameters, those in `slow_values` with the mark."""
    return [pytest.param(value, marks=pytest.mark.slow if value in slow_values else ()) for value in values]
