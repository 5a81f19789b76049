"""Comparison by CPU time: which cells it applies to, and what they compare."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runs import make_run, make_trial, measured

from tare.model.trial import Limits, LimitsCheck, MeasuredValue, ObservedLimits, Trial, Turn
from tare.statistics.cells import Cell
from tare.statistics.cpu_time import is_cpu_bound, turns_by_cpu_time
from tare.statistics.summarize import summarize

ROUNDS = 6
TURN_SECONDS = 0.02


def make_turns(cpu: float | None, waited: float = 0.0, steal: float = 0.0) -> tuple[Turn, ...]:
    """Turns with these shares of CPU time, run delay and steal time."""
    used = None if cpu is None else cpu * TURN_SECONDS
    turn = Turn("dhrystone", 0, 0.0, TURN_SECONDS, steal, cpu_seconds=used, waited_seconds=waited * TURN_SECONDS)
    return tuple(replace(turn, number=number, began=0.1 * number) for number in range(ROUNDS))


def make_limits(cpus: tuple[int, ...] = (0,)) -> LimitsCheck:
    return LimitsCheck(Limits(cpus, 1 << 29, 4096), ObservedLimits(len(cpus), 1 << 29, 4096))


def computing(stack: str, block: int, speed: float, shares: tuple[float, ...] = ()) -> Trial:
    """Trial whose turns have a speed by CPU time, and the wall speed that follows from the share of each turn."""
    walls = tuple(speed * share for share in shares) or (speed,) * ROUNDS
    value = replace(measured("speed", sum(walls) / ROUNDS), turns=walls, cpu_shares=shares)
    cpu = sum(shares) / ROUNDS if shares else 1.0
    return replace(make_trial(stack, block, [value]), turns=make_turns(cpu, 1 - cpu), limits=make_limits())


BUSY, QUIET = (0.3, 0.5, 0.9, 0.4, 0.6, 0.7), (1.0,) * ROUNDS
OTHER = BUSY[::-1]


@pytest.mark.parametrize(
    ("turns", "is_bound"),
    [
        (make_turns(0.97), True),
        (make_turns(0.5, waited=0.47), True),
        (make_turns(0.5, waited=0.2, steal=0.26), True),
        (make_turns(0.9), False),
        (make_turns(0.5, waited=0.3), False),
        (make_turns(None, waited=1.0), False),
        ((), False),
    ],
)
def test_a_trial_is_cpu_bound_if_its_cpu_was_busy_for_it_or_others(turns: tuple[Turn, ...], is_bound: bool) -> None:
    trial = replace(make_trial("native", 0, []), turns=turns, limits=make_limits())
    assert is_cpu_bound([trial]) is is_bound


def test_several_cpus_or_unknown_limits_are_no_bottleneck() -> None:
    trial = replace(make_trial("native", 0, []), turns=make_turns(1.0))
    assert not is_cpu_bound([trial])
    assert not is_cpu_bound([replace(trial, limits=make_limits((0, 1)))])


def test_waits_of_several_tasks_do_not_hide_that_the_instance_sleeps() -> None:
    crowded, asleep = make_turns(0.5, waited=3.0), make_turns(0.1)
    trial = replace(make_trial("native", 0, []), turns=crowded + asleep, limits=make_limits())
    assert not is_cpu_bound([trial])


def test_turns_by_cpu_time_lack_the_time_of_others() -> None:
    rate = replace(measured("speed", 1.0), turns=(30.0, 50.0), cpu_shares=(0.3, 0.5))
    assert turns_by_cpu_time(rate) == pytest.approx((100.0, 100.0))
    seconds = MeasuredValue("time", None, 1.0, "s", "lower", (2.0, 4.0), cpu_shares=(0.5, 0.25))
    assert turns_by_cpu_time(seconds) == pytest.approx((1.0, 1.0))
    assert turns_by_cpu_time(replace(rate, unit="bytes", better="lower")) == ()
    assert turns_by_cpu_time(replace(rate, cpu_shares=())) == ()


def summarize_blocks(*stacks: tuple[str, float, tuple[float, ...]], blocks: int = 3) -> dict[str, Cell]:
    trials = [computing(name, block, speed, shares) for block in range(blocks) for name, speed, shares in stacks]
    run = make_run(trials)
    return {cell.stack: cell for cell in summarize(run).headlines}


def test_a_busy_neighbor_changes_no_ratio_by_cpu_time() -> None:
    cells = summarize_blocks(("native", 100.0, BUSY), ("docker", 90.0, OTHER), ("native-again", 100.0, QUIET))
    assert cells["docker"].ratio == pytest.approx(0.9)
    assert cells["docker"].by_cpu_time
    assert cells["docker"].usual == pytest.approx(90.0)
    assert any("compared by CPU time" in note for note in cells["docker"].notes)


def test_a_stack_without_cpu_time_is_compared_with_the_baselines_wall_time() -> None:
    cells = summarize_blocks(("native", 100.0, BUSY), ("gvisor", 45.0, ()), ("native-again", 100.0, BUSY))
    assert not cells["gvisor"].by_cpu_time
    assert cells["gvisor"].ratio == pytest.approx(45 / 55, rel=0.01)  # the median of BUSY is 0.55
    assert cells["native-again"].by_cpu_time


def test_a_control_without_cpu_time_leaves_all_cells_to_wall_time() -> None:
    cells = summarize_blocks(("native", 100.0, BUSY), ("docker", 90.0, BUSY), ("native-again", 100.0, ()))
    assert not any(cell.by_cpu_time for cell in cells.values())


def test_the_first_block_alone_decides_whether_the_cpu_was_the_bottleneck() -> None:
    def trials(block: int, waits: bool) -> list[Trial]:
        found = [computing(name, block, 100.0, QUIET) for name in ("native", "docker", "native-again")]
        return [replace(each, turns=make_turns(0.3)) if waits else each for each in found]

    for waits in (True, False):
        run = make_run([*trials(0, waits), *trials(1, not waits)])
        assert all(cell.by_cpu_time is not waits for cell in summarize(run).headlines)
