"""Data frames: polars handles SIGINT in a way that no longer wakes a thread that waits."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def ctrl_c_as_before() -> Iterator[None]:
    """Give SIGINT back to Python after each test, for the tests that follow."""
    yield
    signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
