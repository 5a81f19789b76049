"""How much of an application's work its counts stand for."""

from __future__ import annotations

import pytest

from tare.features.advise.profiler.profile import CallCount, Traced
from tare.features.advise.profiler.recording import Pulse, counted_seconds, counts_of


def traced(seconds: float) -> Traced:
    return Traced(seconds, (CallCount("read", 20, "network"),), 0, 0, 0, 0, 0, 0)


def counted(seconds: float, part: Pulse, pulse: Pulse) -> float:
    """How much of ten seconds was counted."""
    return counted_seconds(traced(seconds), 10.0, part, pulse)


def test_counts_of_all_of_the_time_stand_for_it() -> None:
    assert counted(9.9, Pulse(5000, 5000), Pulse(6000, 9000)) == 9.9


def test_where_counting_ended_before_the_watch_it_is_the_share_of_all_reads_and_writes() -> None:
    # A burst of 3 s did four fifths of the work of 10 s: its counts are those of 8 usual seconds.
    assert counted(3.0, Pulse(0, 80_000), Pulse(0, 100_000)) == pytest.approx(8.0)


def test_of_a_server_that_only_sends_and_receives_it_is_the_share_of_packets() -> None:
    assert counted(3.0, Pulse(16_000, 3), Pulse(80_000, 9)) == pytest.approx(2.0)


@pytest.mark.parametrize("pulse", [Pulse(10, 10), Pulse(0, 0), Pulse(500, 999)])
def test_of_an_application_that_does_little_it_is_the_time(pulse: Pulse) -> None:
    assert counted(3.0, pulse, pulse) == 3.0


def test_reads_of_children_that_have_ended_are_not_in_the_sum_and_do_not_count() -> None:
    assert counted(3.0, Pulse(0, 2000), Pulse(0, 1500)) == 3.0


def test_counts_have_the_units_of_work_that_they_stand_for() -> None:
    counts = counts_of(traced(0.5), 7.0)
    assert counts is not None
    assert (counts.seconds, counts.units) == (0.5, 7.0)
