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


def make_turns(steal: float = 0.0) -> tuple[Turn, ...]:
    return tuple(Turn("dhrystone", number, 0.1 * number, 0.02, steal) for number in range(ROUNDS))


def make_limits(cpus: tuple[int, ...] = (0,)) -> LimitsCheck:
    return LimitsCheck(Limits(cpus, 1 << 29, 4096), ObservedLimits(len(cpus), 1 << 29, 4096))


def computing(stack: str, block: int, speed: float, shares: tuple[float, ...] = (), wanted: float = 1.0) -> Trial:
    """Trial whose turns have a speed by CPU time, and the wall speed that follows from the share of each turn."""
    walls = tuple(speed * share for share in shares) or (speed,) * ROUNDS
    value = replace(measured("speed", sum(walls) / ROUNDS), turns=walls, label="dhrystone")
    value = replace(value, cpu_shares=shares, cpu_wanted=wanted if shares else 0.0)
    return replace(make_trial(stack, block, [value]), turns=make_turns(), limits=make_limits())


BUSY, QUIET = (0.3, 0.5, 0.9, 0.4, 0.6, 0.7), (1.0,) * ROUNDS
OTHER = BUSY[::-1]


@pytest.mark.parametrize(
    ("wanted", "steal", "cpus", "is_bound"),
    [
        (0.96, 0.0, (0,), True),
        (0.94, 0.0, (0,), False),
        (0.6, 0.36, (0,), True),  # a hypervisor's other guests
        (0.6, 0.3, (0,), False),
        (1.0, 0.0, (0, 1), False),
    ],
)
def test_a_value_is_cpu_bound_if_the_program_wanted_its_only_cpu(
    wanted: float, steal: float, cpus: tuple[int, ...], is_bound: bool
) -> None:
    trial = computing("native", 0, 100.0, BUSY, wanted)
    trial = replace(trial, turns=make_turns(steal), limits=make_limits(cpus))
    assert is_cpu_bound(trial, trial.values[0]) is is_bound


def test_a_value_without_cpu_time_or_limits_is_not_known_to_be_bound() -> None:
    for trial in (computing("native", 0, 100.0), replace(computing("native", 0, 100.0, QUIET), limits=None)):
        assert not is_cpu_bound(trial, trial.values[0])


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


def test_a_stack_in_which_the_program_waits_is_compared_by_wall_time() -> None:
    trials = [
        computing(name, block, speed, QUIET, wanted)
        for block in range(3)
        for name, speed, wanted in (("native", 100.0, 1.0), ("docker", 50.0, 0.5), ("native-again", 100.0, 1.0))
    ]
    cells = {cell.stack: cell for cell in summarize(make_run(trials)).headlines}
    assert not cells["docker"].by_cpu_time
    assert cells["native-again"].by_cpu_time
    assert cells["docker"].ratio == pytest.approx(0.5, rel=0.01)


def test_the_first_block_alone_decides_whether_the_cpu_was_the_bottleneck() -> None:
    def trials(block: int, wanted: float) -> list[Trial]:
        return [computing(name, block, 100.0, QUIET, wanted) for name in ("native", "docker", "native-again")]

    for first, later in ((1.0, 0.3), (0.3, 1.0)):
        run = make_run([*trials(0, first), *trials(1, later)])
        assert all(cell.by_cpu_time is (first == 1.0) for cell in summarize(run).headlines)
