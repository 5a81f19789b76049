"""Which blocks go first, and whether they fit the budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from fakes import suite

from tare.model.trial import Trial, Turn
from tare.runner.schedule import BlockTiming, DurationEstimates, Schedule
from tare.suites.plan import plan
from tare.workloads.dhrystone import Dhrystone

BEGAN = 1000.0  # of the clock


class Clock:
    """A clock that stands until the test moves it."""

    def __init__(self) -> None:
        self.now = BEGAN

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tare.runner.schedule.time", clock)
    return clock


def _schedule(budget: float | None, done: int = 0, blocks: int = 8) -> Schedule:
    """Schedule blocks of workloads whose blocks take 2, 20 and 200 s; the first ones may be done."""
    seconds = {"startup": 1.0, "dhrystone": 10.0, "whetstone": 100.0}
    what = suite("a:", blocks=blocks, workloads=("whetstone", "startup", "dhrystone"))
    pace = DurationEstimates({each.name: each.workload for each in what.workloads})
    for name, each in seconds.items():
        for stack in ("a", "a-again"):
            pace.learn(Trial("t", 0, 0, name, stack, "ok", "", 0.0, each))
    return Schedule(plan(what)[done:], budget, BEGAN, pace, done)


def _order(schedule: Schedule, nearness: Mapping[str, float] | None = None) -> str:
    """Put blocks in order; every workload is as near to a decision as the others unless said."""
    near = nearness or {"startup": 1.0, "dhrystone": 1.0, "whetstone": 1.0}
    return " ".join(f"{block.workload[0]}{block.index}" for block in schedule.order_blocks(near).blocks)


_ROUNDS = " ".join(f"{name}{index}" for index in range(8) for name in "wsd")


def test_without_a_budget_or_with_one_that_lasts_the_order_is_the_plans() -> None:
    assert _order(_schedule(None)) == _order(_schedule(1777.0)) == _ROUNDS


def test_every_workload_gets_the_minimum_of_blocks_before_any_gets_more() -> None:
    early = " ".join(f"{name}{index}" for index in range(5) for name in "wsd")
    assert _order(_schedule(1111.0)) == f"{early} s5 s6 s7 d5 d6 d7 w5 w6 w7"


def test_if_the_budget_is_short_the_quickest_workloads_get_intervals_first() -> None:
    without_whetstone = "s1 s2 s3 s4 d1 d2 d3 d4 s5 s6 s7 d5 d6 d7 w1 w2 w3 w4 w5 w6 w7"
    assert _order(_schedule(1109.0)) == _order(_schedule(111.0)) == f"w0 s0 d0 {without_whetstone}"
    assert _order(_schedule(101.0, done=3)) == without_whetstone


def test_with_borrowing_all_workloads_get_3_blocks_before_any_gets_5() -> None:
    short = replace(_schedule(700.0), min_blocks=3)
    assert _order(short).startswith("w0 s0 d0 w1 s1 d1 w2 s2 d2 s3 s4 d3 d4 ")
    shorter = replace(_schedule(660.0), min_blocks=3)
    assert _order(shorter).startswith("w0 s0 d0 s1 s2 d1 d2 s3 s4 d3 d4 ")


def test_after_that_blocks_go_where_most_decisions_are_near_for_their_time() -> None:
    late = _schedule(300.0, done=15)
    assert _order(late, {"startup": 0.001, "dhrystone": 0.1, "whetstone": 1.1}) == "w5 w6 w7 d5 d6 d7 s5 s6 s7"
    assert _order(late, {"startup": 0.0, "dhrystone": 0.2, "whetstone": 1.1}) == "d5 d6 d7 w5 w6 w7 s5 s6 s7"


def test_a_workload_with_a_distant_interval_precedes_an_undecidable_one() -> None:
    """Only its first trials may have been slow: 80 s of blocks are to come, and 60 s are left."""
    order = _order(_schedule(60.0, done=3), {"startup": 0.001, "dhrystone": 0.5, "whetstone": 0.5})
    assert order.startswith("s1 s2 s3 s4 d1 d2 d3 d4 d5 d6 d7")


def test_an_order_made_for_a_short_time_is_dropped_once_everything_fits() -> None:
    short = _schedule(111.0).order_blocks({"startup": 1.0, "dhrystone": 1.0, "whetstone": 1.0})
    assert _order(replace(short, budget_seconds=1777.0)) == _ROUNDS


def test_after_a_block_exceeds_the_budget_the_others_are_still_ordered() -> None:
    late = replace(_schedule(60.0, done=15), started_at=BEGAN - 61.0)
    assert _order(late, {"startup": 0.0, "dhrystone": 0.2, "whetstone": 1.1}) == "d5 d6 d7 w5 w6 w7 s5 s6 s7"
    assert not late.has_time_for_next()


def test_the_pace_soon_forgets_a_first_trial_with_cold_caches() -> None:
    pace = DurationEstimates({"dhrystone": Dhrystone()})
    for seconds in (40.0, 2.0, 3.0):
        pace.learn(Trial("t", 0, 0, "dhrystone", "a", "ok", "", 0.0, seconds))
    [block] = plan(suite("a:", blocks=1, workloads=("dhrystone",)))
    assert {pace.seconds_of(step) for step in block.trials if step.stack == "a"} == {3.0}


def test_the_pace_is_what_workloads_say_until_trials_have_been_seen() -> None:
    pace = DurationEstimates({"dhrystone": Dhrystone(duration=1.0)})
    [block] = plan(suite("a:", blocks=1, workloads=("dhrystone",)))
    step = next(step for step in block.trials if step.stack == "a")
    assert pace.seconds_of(step) == pytest.approx(3.6)  # 1.6 of the workload, 2 to start and end
    for seconds, status in ((2.0, "ok"), (4.0, "ok"), (100.0, "failed")):
        pace.learn(Trial("t", 0, 0, "dhrystone", "a", "failed" if status == "failed" else "ok", "", 0.0, seconds))
    assert pace.seconds_of(step) == 3.0
    assert pace.seconds_of(replace(step, stack="b")) == pytest.approx(3.6)


def _timing(*lasted: float, count: int = 11) -> BlockTiming:
    """Make the timing of a block of dhrystone, whose trials took so long before: 2 s of it in turns."""
    what = suite("a:", blocks=3, workloads=("dhrystone",))
    pace = DurationEstimates({"dhrystone": Dhrystone(duration=1.0)})
    for stack, seconds in zip(("a", "a-again"), lasted, strict=False):
        turns = tuple(Turn("dhrystone", number, 0.0, 2 / count) for number in range(count))
        pace.learn(replace(Trial("t", 0, 0, "dhrystone", stack, "ok", "", 0.0, seconds), turns=turns))
    return Schedule(plan(what), None, BEGAN, pace).estimate_next_block()


def test_all_instances_start_before_the_turns_which_count_as_time_left() -> None:
    timing = _timing(3.0, 7.0)
    first, second = sorted(timing.start_seconds, key=lambda step: step.stack)
    assert timing.begin_trial(first).left_seconds == pytest.approx(10.0 + 2 * 10.0)
    assert timing.begin_trial(second).left_seconds == pytest.approx(5.0 + 4.0 + 2 * 10.0)
    assert timing.begin_turns(0).left_seconds == pytest.approx(4.0 + 2 * 10.0)


def test_the_seconds_left_of_a_block_go_down_with_its_turns() -> None:
    timing = _timing(3.0, 7.0)
    for step in list(timing.start_seconds):
        timing.begin_trial(step)
    left = [timing.begin_turns(number).left_seconds for number in (0, 1, 10, 11, 12)]
    assert timing.turns == 11
    assert left == pytest.approx([24.0, 24.0 - 4 / 11, 20.0 + 4 / 11, 20.0, 20.0])


def test_the_seconds_left_of_a_first_block_go_down_with_time(clock: Clock) -> None:
    timing = _timing()
    timing.start_seconds.clear()
    first = timing.begin_turns(0).left_seconds
    clock.now += 0.1
    third = timing.begin_turns(1).left_seconds
    assert timing.turns is None
    assert first - third == pytest.approx(0.1)
    assert timing.later_seconds <= third < first == pytest.approx(timing.turn_seconds + timing.later_seconds)


def test_the_turns_to_expect_are_those_of_the_latest_block() -> None:
    pace = DurationEstimates({"redis": Dhrystone()})

    def learn(block: int, count: int) -> None:
        turns = tuple(Turn("GET 1", number, 0.0, 0.1) for number in range(count))
        pace.learn(replace(Trial("t", block, 0, "redis", "a", "ok", "", 0.0, 1.0), turns=turns))

    assert pace.turns_of("redis") is None
    for count in (12, 14, 11):
        learn(0, count)
    assert pace.turns_of("redis") == 14
    learn(1, 12)
    assert pace.turns_of("redis") == 12


def test_a_workload_without_turns_is_one_trial_after_the_other() -> None:
    what = suite("a:", blocks=1, workloads=("startup",))
    pace = DurationEstimates({"startup": what.workloads[0].workload})
    for stack, seconds in (("a", 3.0), ("a-again", 7.0)):
        turns = (Turn("timeline", 0, 0.0, 0.5),)
        pace.learn(replace(Trial("t", 0, 0, "startup", stack, "ok", "", 0.0, seconds), turns=turns))
    timing = Schedule(plan(what), None, BEGAN, pace).estimate_next_block()
    first, second = plan(what)[0].trials
    left = [timing.begin_trial(step).left_seconds for step in (first, second)]
    assert left == [10.0, {"a": 3.0, "a-again": 7.0}[second.stack]]
