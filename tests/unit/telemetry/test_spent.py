from __future__ import annotations

import pytest

from tare.telemetry.spent import Spent

BEFORE = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0 0 0\n"
AFTER = "cpu  160 0 120 900 0 0 0 20 0 0\ncpu0 50 0 50 500 0 0 0 0 0 0\ncpu1 110 0 70 400 0 0 0 20 0 0\n"


def test_what_was_stolen_is_a_share_of_what_was_wanted() -> None:
    spent = Spent((1,))
    spent.begin(BEFORE)
    assert spent.end(AFTER, 0.0) == pytest.approx(20 / 100)


@pytest.mark.parametrize(("cpus", "share"), [((0,), 0.0), ((1,), 1.0), ((0, 1), 0.5), ((7,), None)])
def test_how_busy_cpus_were_is_counted_over_turns_alone(cpus: tuple[int, ...], share: float | None) -> None:
    between = AFTER.replace("cpu0 50", "cpu0 9999")  # what happens between two turns is nobody's business
    spent = Spent(cpus)
    for before, after in ((BEFORE, AFTER), (between, between)):
        spent.begin(before)
        spent.end(after, 0.0)
    assert spent.busy_share == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("first", "rest_seconds", "busy_cpus"),
    [
        ("cpu0 50 0 50 500 0", 0.0, 1.0),  # it is idle, and the other one works all the time
        ("cpu0 80 0 50 470 0", 0.0, 1.3),
        ("cpu0 50 0 50 440 60", 0.0, 1.6),  # a disk lets it wait
        ("cpu0 50 0 50 500 0", 0.2, 1.25),
        ("", 0.0, 1.0),
    ],
)
def test_of_the_latest_turn_is_known_how_many_cpus_were_busy(first: str, rest_seconds: float, busy_cpus: float) -> None:
    spent = Spent((0, 1))
    spent.begin(BEFORE)
    spent.end(AFTER.replace("cpu0 50 0 50 500 0", first), rest_seconds)
    assert spent.latest == pytest.approx(busy_cpus)
    spent.begin("")
    spent.end("", 0.0)
    assert spent.latest is None


def test_what_was_begun_and_is_no_turn_does_not_count() -> None:
    spent = Spent((1,))
    spent.begin(BEFORE)
    spent.begin(AFTER)
    spent.end(AFTER.replace("cpu1 110 0 70 400", "cpu1 110 0 70 500"), 0.0)
    assert spent.busy_share == 0.0


def test_a_machine_that_reports_nothing_leaves_both_unknown() -> None:
    spent = Spent((0,))
    spent.begin("")
    assert (spent.end("", 0.0), spent.busy_share) == (None, None)


@pytest.mark.parametrize(("rest_seconds", "share"), [(0.0, 0.8), (0.2, 1.0)])
def test_the_time_in_which_a_load_does_not_send_yet_makes_a_server_no_less_busy(
    rest_seconds: float, share: float
) -> None:
    spent = Spent((1,))
    spent.begin(BEFORE)
    spent.end(AFTER.replace("cpu1 110 0 70 400", "cpu1 110 0 50 420"), rest_seconds)
    assert spent.busy_share == pytest.approx(share)
