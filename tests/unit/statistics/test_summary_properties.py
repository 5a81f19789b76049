"""What must not matter to what is said of a run, whatever its values are."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some
from runs import make_run, make_trial, measured

from tare.journal import Run
from tare.model.trials import Trial
from tare.statistics.summarize import summarize

STACKS = ("native", "docker", "crun", "native-again")
Values = list[tuple[float, ...]]
# Of each block, a value for each stack: few and many blocks, near and far apart.
VALUES: some.SearchStrategy[Values] = some.lists(
    some.tuples(*(some.floats(1e-3, 1e6) for _ in STACKS)), min_size=1, max_size=12
)
FACTORS = some.floats(1e-3, 1e3)
# Stack, block and place in the file.
FAILED = some.lists(some.tuples(some.sampled_from(STACKS), some.integers(0, 14), some.integers(0, 60)), max_size=5)


def run_of(values: Values, factor: float = 1.0, stacks: tuple[str, ...] = STACKS) -> Run:
    """A run of these stacks, whose values are told in the order of `STACKS`."""
    trials = [
        make_trial(stack, block, [measured("speed", row[STACKS.index(stack)] * factor)])
        for block, row in enumerate(values)
        for stack in stacks
    ]
    return make_run(trials)


def said(run: Run) -> dict[str, dict[str, object]]:
    """All that is said of each stack, but for what was counted of trials that failed."""
    found = {cell.stack: asdict(cell) for cell in summarize(run).cells}
    for cell in found.values():
        del cell["failures"]
    return found


@given(VALUES, FACTORS)
def test_scaling_a_metric_changes_no_ratio(values: Values, factor: float) -> None:
    before, after = summarize(run_of(values)).cells, summarize(run_of(values, factor)).cells
    for one, other in zip(before, after, strict=True):
        assert other.verdict == one.verdict
        for was, now in ((one.ratio, other.ratio), (one.low, other.low), (one.high, other.high)):
            assert now == (was if was is None else pytest.approx(was, rel=1e-6))


@given(VALUES)
def test_swapping_two_stacks_flips_the_sign(values: Values) -> None:
    swapped = [(docker, native, *others) for native, docker, *others in values]
    one = summarize(run_of(values, stacks=("native", "docker"))).headline("dhrystone", "docker")
    other = summarize(run_of(swapped, stacks=("native", "docker"))).headline("dhrystone", "docker")
    turned = {"better": "worse", "worse": "better"}
    assert other.verdict == turned.get(one.verdict, one.verdict)
    assert one.ratio is not None
    assert other.ratio is not None
    assert math.log(other.ratio) == pytest.approx(-math.log(one.ratio), abs=1e-9)


@given(VALUES, some.randoms(use_true_random=False))
def test_the_order_of_the_file_is_irrelevant(values: Values, chance: Random) -> None:
    run = run_of(values)
    trials = list(run.trials)
    chance.shuffle(trials)
    assert said(replace(run, trials=tuple(trials))) == said(run)


@given(VALUES, FAILED)
def test_adding_failed_trials_changes_no_value(values: Values, failed: list[tuple[str, int, int]]) -> None:
    run = run_of(values)
    trials: list[Trial] = list(run.trials)
    for number, (stack, block, place) in enumerate(failed):
        trial = make_trial(stack, block, ())
        trials.insert(place, replace(trial, trial=f"failed-{number}", status="failed", reason="crash"))
    assert said(replace(run, trials=tuple(trials))) == said(run)
