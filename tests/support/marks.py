"""Parameters of tests with the mark `slow`, which `make test` leaves out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow(names: Iterable[str], these: Collection[str]) -> list[Any]:
    """Return the names as parameters, with the mark for these."""
    return [pytest.param(name, marks=pytest.mark.slow if name in these else ()) for name in names]
