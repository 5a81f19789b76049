"""What moved values beside the stacks: found where it was put in, and not where it was not."""

from __future__ import annotations

import numpy as np
import pytest

from tare.statistics.dependence import Effects, find_effects


def made(seed: int, slope: float = 0.0, drift: float = 0.0, blocks: int = 30) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    places = np.array([chance.permutation(5) for _ in range(blocks)]).T
    stacks, machine = chance.normal(0, 1, (5, 1)), chance.normal(0, drift, (1, blocks))
    return stacks + machine + slope * places + chance.normal(0, 0.02, (5, blocks)), places


def effects(logs: np.ndarray, usable: np.ndarray, places: np.ndarray) -> Effects:
    found = find_effects(logs, usable, places)
    assert found is not None
    return found


def test_drift_and_order_are_found_as_they_were_put_in() -> None:
    logs, places = made(1, slope=0.01, drift=0.1)
    found = effects(logs, np.ones(logs.shape, dtype=bool), places)
    assert found.place == pytest.approx(0.01, abs=0.004)
    assert found.blocks == pytest.approx(0.1, rel=0.4)
    assert found.error == pytest.approx(0.02, rel=0.2)
    assert found.ordered


def test_what_is_missing_does_not_move_the_estimates() -> None:
    logs, places = made(2, slope=0.01, drift=0.1)
    usable = np.random.default_rng(3).random(logs.shape) > 0.3
    found = effects(np.where(usable, logs, 1e6), usable, places)
    assert found.place == pytest.approx(0.01, abs=0.006)
    assert found.error == pytest.approx(0.02, rel=0.25)


def test_the_estimate_is_that_of_least_squares() -> None:
    logs, places = made(4, slope=0.02, drift=0.05, blocks=6)
    usable = np.random.default_rng(5).random(logs.shape) > 0.2
    rows = [(stack, block) for stack, block in np.ndindex(logs.shape) if usable[stack, block]]
    design = np.zeros((len(rows), 5 + 6 + 1))
    for row, (stack, block) in enumerate(rows):
        design[row, [stack, 5 + block]] = 1
        design[row, -1] = places[stack, block]
    wanted = np.linalg.lstsq(design, np.array([logs[row] for row in rows]), rcond=None)[0][-1]
    assert effects(logs, usable, places).place == pytest.approx(wanted)


def test_order_is_found_by_chance_in_one_run_of_twenty() -> None:
    runs = [made(seed, drift=0.05, blocks=12) for seed in range(400)]
    found = [find_effects(logs, np.ones(logs.shape, dtype=bool), places) for logs, places in runs]
    share = sum(each is not None and each.ordered for each in found) / 400
    assert share == pytest.approx(0.05, abs=0.035)


@pytest.mark.parametrize(("stacks", "blocks"), [(1, 9), (5, 1), (0, 0)])
def test_too_little_says_nothing(stacks: int, blocks: int) -> None:
    logs = np.zeros((stacks, blocks))
    assert find_effects(logs, np.ones(logs.shape, dtype=bool), logs.astype(int)) is None
