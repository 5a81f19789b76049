"""The queue M/M/c, against a published table."""

from __future__ import annotations

import pytest

from tare.statistics.queue import response_seconds


@pytest.mark.parametrize(("cpus", "waits"), [(1, 9.0), (2, 4.26), (5, 1.53), (10, 0.67), (20, 0.28)])
def test_it_agrees_with_adan_and_resing(cpus: int, waits: float) -> None:
    # Adan and Resing, "Queueing Systems", 2015, table 5.1: mean waiting times at a load of 0.9, service time 1.
    found = response_seconds(0.9 * cpus, 1.0, cpus)
    assert found is not None
    assert found - 1 == pytest.approx(waits, abs=0.0051)


def test_nobody_waits_without_load_and_nothing_is_answered_with_too_much() -> None:
    assert response_seconds(1e-9, 2.0, 4) == pytest.approx(2.0)
    assert response_seconds(2.0, 2.0, 4) is None
