"""How much an application did while it was counted."""

from __future__ import annotations

import pytest

from tare.profiles.profile import CallCount, Traced
from tare.profiles.taking import Window, counts_of, speed_of
from tare.profiles.watching import Pulse


def window(*calls: CallCount, packet_rate: float | None = None) -> Window:
    return Window("bpftrace", Traced(0.5, calls, 0, 0, 0, 0, 0, 0), (), packet_rate)


def test_what_was_done_meanwhile_is_the_share_of_all_reads_and_writes() -> None:
    # In 10 s there were 100,000, so that 4,000 are the work of 0.4 s: counting slowed it by a fifth.
    calls = (CallCount("read", 1500, "network"), CallCount("write", 2500, "file"), CallCount("sendto", 9000, "network"))
    assert speed_of(window(*calls), Pulse(0, 100_000), 10.0) == pytest.approx(0.4)


def test_of_a_server_that_only_sends_and_receives_it_is_the_share_of_packets() -> None:
    calls = (CallCount("sendto", 9000, "network"),)
    assert speed_of(window(*calls, packet_rate=16_000.0), Pulse(200_000, 3), 10.0) == pytest.approx(0.4)


@pytest.mark.parametrize("pulse", [Pulse(10, 10), Pulse(0, 0), Pulse(5000, 10)])
def test_of_an_idle_application_it_is_the_time(pulse: Pulse) -> None:
    assert speed_of(window(CallCount("read", 20, "network")), pulse, 10.0) == 0.5


def test_reads_of_children_that_nobody_waited_for_are_not_in_the_sum_and_do_not_count() -> None:
    assert speed_of(window(CallCount("read", 2000, "file")), Pulse(0, 1500), 10.0) == 0.5


def test_counts_have_the_units_of_work_that_were_done_meanwhile() -> None:
    counts = counts_of(window(CallCount("read", 20, "network")), 7.0)
    assert counts is not None
    assert (counts.by, counts.seconds, counts.units) == ("bpftrace", 0.5, 7.0)
    assert counts_of(Window(missing=("all",)), 7.0) is None
