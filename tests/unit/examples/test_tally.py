"""The counting of answers: kinds, seconds, what workers report, and what shows that the load was the bottleneck."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tally import KINDS, Tally, bottlenecks_of, faults_of, kind_of, result_of

ASKED = {"users": 2, "factor": 10.0, "searches": 25, "seed": 1}
SOUND = {"cpu_warning": False, "missing": 0, "exceptions": []}


def counted(*answers: tuple[float, int | None, float]) -> Tally:
    tally = Tally()
    for second, status, seconds in answers:
        tally.count_answer(second, status, seconds)
    return tally


def result(**others: Any) -> dict[str, Any]:
    tally = counted((0.5, 200, 0.01))
    for _ in range(2):
        tally.count_user()
    for number in range(50):
        tally.count_search(whole=True, late_seconds=0.2 if number < others.get("late", 0) else 0.0)
    return result_of(tally, ASKED)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, "200"),
        (500, "50x"),
        (502, "50x"),
        (503, "50x"),
        (504, "50x"),
        (509, "50x"),
        (510, "other"),
        (404, "other"),
        (302, "other"),
        (204, "other"),
        (0, "other"),
        (None, "transport"),
    ],
)
def test_an_answer_has_a_kind(status: int | None, kind: str) -> None:
    assert kind_of(status) == kind


def test_answers_are_counted_by_second_including_seconds_without_any() -> None:
    tally = counted((0.0, 200, 0.1), (0.99, 503, 0.1), (3.2, None, 5.0), (3.3, 200, 0.1), (3.4, 404, 0.1))
    assert tally.over_time() == {
        "200": [1, 0, 0, 1],
        "50x": [1, 0, 0, 0],
        "transport": [0, 0, 0, 1],
        "other": [0, 0, 0, 1],
    }
    assert Tally().over_time() == {kind: [] for kind in KINDS}


def test_reports_of_workers_add_up_to_what_one_would_have_counted() -> None:
    answers = [(second / 7, (200, 200, 503, None)[second % 4], 0.001 * (second + 1)) for second in range(100)]
    together, one, other = counted(*answers), counted(*answers[::2]), counted(*answers[1::2])
    one.count_search(whole=False, late_seconds=0.3)
    other.count_user()
    together.count_search(whole=False, late_seconds=0.3)
    together.count_user()
    master = Tally()
    for worker in (one, other, one):  # what was reported is not reported again
        master.add(json.loads(json.dumps(worker.taken())))
    assert result_of(master, ASKED) == result_of(together, ASKED)


def test_response_times_are_those_of_good_answers_and_one_percent_fine() -> None:
    tally = counted(*((0.0, 200, 0.001 * (number + 1)) for number in range(100)), (0.0, 503, 60.0), (0.0, None, 60.0))
    for share in (0.5, 0.95, 0.99, 1.0):
        found = tally.seconds_at(share)
        assert found is not None
        assert 0.1 * share <= found <= 0.1 * share * 1.02
    assert counted((0.0, 503, 1.0)).seconds_at(0.5) is None
    assert counted((0.0, 200, 0.0)).seconds_at(0.5) is not None  # a clock may not have moved


def test_a_result_has_rates_over_the_seconds_until_its_last_answer() -> None:
    found = result_of(counted((0.1, 200, 0.01), (1.5, 200, 0.01), (3.2, 503, 0.01), (3.2, None, 30.0)), ASKED)
    assert found["seconds"] == 3.2
    assert found["answers"] == {"200": 2, "50x": 1, "transport": 1, "other": 0}
    assert found["rates"] == {"200": 0.625, "50x": 0.3125, "transport": 0.3125, "other": 0.0}
    assert found["failed_share"] == 0.5
    assert {len(counts) for counts in found["over_time"].values()} == {4}


def test_a_result_without_any_answer_is_written_and_is_none() -> None:
    found = result_of(Tally(), ASKED)
    assert (found["seconds"], found["response_seconds"]["median"]) == (1, None)
    assert "there is no good answer" in faults_of(found, SOUND)


def test_a_sound_load_has_neither_faults_nor_bottlenecks() -> None:
    assert faults_of(result(), SOUND) == bottlenecks_of(result(), SOUND) == []


def test_why_a_result_is_none_is_said() -> None:
    lost = SOUND | {"missing": 1, "exceptions": ["KeyError: 'x'"]}
    assert faults_of(result(), lost) == ["a user failed: KeyError: 'x'", "1 workers were lost"]
    assert faults_of(result() | {"users": 1}, SOUND) == ["1 of 2 users made all their searches"]


def test_statuses_that_no_user_expects_are_named() -> None:
    workers = [counted((0.5, 200, 0.01), (0.5, 403, 0.01)), counted((0.5, 404, 0.01), (0.6, 403, 0.01))]
    master = Tally()
    for each in workers:
        master.add(json.loads(json.dumps(each.taken())))
    found = result_of(master, ASKED | {"users": 0})
    assert faults_of(found, SOUND) == [
        "3 answers were neither 200 nor 50x but 403, 404: users ask for what is not there"
    ]


def test_a_load_that_was_its_own_bottleneck_is_noticed() -> None:
    assert bottlenecks_of(result(), SOUND | {"cpu_warning": True}) == ["a worker used more than 90 % of its CPU"]
    assert bottlenecks_of(result(late=1), SOUND) == ["1 of 50 searches began 0.1 s after their time, or later"]
