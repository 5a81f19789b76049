"""How much of an application's work its counts stand for."""

from __future__ import annotations

import pytest

from tare.features.advise.profiler.profile import CallCount, TraceCounts
from tare.features.advise.profiler.recording import UsageSnapshot, counted_seconds, counts_of


def traced(seconds: float) -> TraceCounts:
    return TraceCounts(seconds, (CallCount("read", 20, "network"),), 0, 0, 0, 0, 0, 0)


def counted(seconds: float, part: UsageSnapshot, pulse: UsageSnapshot) -> float:
    """How much of ten seconds was counted."""
    return counted_seconds(traced(seconds), 10.0, part, pulse)


def test_counts_of_all_of_the_time_stand_for_it() -> None:
    assert counted(9.9, UsageSnapshot(5000, 5000), UsageSnapshot(6000, 9000)) == 9.9


def test_after_early_counting_the_share_is_that_of_all_reads_and_writes() -> None:
    # A burst of 3 s did four fifths of the work of 10 s: its counts are those of 8 usual seconds.
    assert counted(3.0, UsageSnapshot(0, 80_000), UsageSnapshot(0, 100_000)) == pytest.approx(8.0)


def test_for_a_server_that_only_sends_and_receives_it_is_the_packet_share() -> None:
    assert counted(3.0, UsageSnapshot(16_000, 3), UsageSnapshot(80_000, 9)) == pytest.approx(2.0)


@pytest.mark.parametrize("pulse", [UsageSnapshot(10, 10), UsageSnapshot(0, 0), UsageSnapshot(500, 999)])
def test_of_an_application_that_does_little_it_is_the_time(pulse: UsageSnapshot) -> None:
    assert counted(3.0, pulse, pulse) == 3.0


def test_reads_of_ended_children_that_lower_the_sum_are_ignored() -> None:
    assert counted(3.0, UsageSnapshot(0, 2000), UsageSnapshot(0, 1500)) == 3.0


def test_counts_have_the_units_of_work_that_they_stand_for() -> None:
    counts = counts_of(traced(0.5), 7.0)
    assert counts is not None
    assert (counts.seconds, counts.units) == (0.5, 7.0)
