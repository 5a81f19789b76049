"""The noise of fakes: each shape is what its name says, and a machine is shared."""

from __future__ import annotations

import numpy as np
import pytest
from tare_fake.noise import DRAWS, Shape, draws_of, shaped
from tare_fake.technology import Fake

SHAPES: tuple[Shape, ...] = ("normal", "heavy", "drift", "correlated", "modes", "1/f")


def noise(shape: Shape, runs: int = 4000, trials: int = 100) -> np.ndarray:
    return shaped(np.random.default_rng(1908).standard_normal((runs, trials, DRAWS)), shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_of_every_shape_has_no_mean_and_a_deviation_of_one(shape: Shape) -> None:
    found = noise(shape)
    assert found.mean() == pytest.approx(0, abs=0.02)
    assert found.std() == pytest.approx(1, abs=0.1 if shape == "heavy" else 0.02)


def test_correlated_noise_is_as_correlated_as_it_should_be() -> None:
    found = noise("correlated")
    assert (found[:, 1:] * found[:, :-1]).mean() == pytest.approx(0.5, abs=0.02)


def test_close_trials_of_1_f_noise_agree_better_than_distant_ones() -> None:
    found = noise("1/f", trials=400)
    deviations = [(found[:, distance:] - found[:, :-distance]).std() for distance in (1, 10, 100)]
    assert np.array(deviations) / deviations[-1] == pytest.approx([0.54, 0.81, 1], abs=0.06)


def test_a_drift_is_slow_and_comes_back_after_its_period() -> None:
    found = noise("drift", trials=200)
    for distance, expected in ((1, 0.5), (50, -0.5), (100, 0.5)):
        assert (found[:, distance:] * found[:, :-distance]).mean() == pytest.approx(expected, abs=0.03)


def test_fakes_of_one_machine_share_its_drift_and_those_of_another_do_not() -> None:
    fakes = [Fake(noise=0.03, seed=seed, shape="drift", machine=machine) for seed, machine in ((1, 901), (2, 901))]
    drawn = np.log([fakes[number % 2]._next_speed() for number in range(40)]) / 0.03
    own = np.array([draws_of(str(1 + number % 2), number // 2)[0] for number in range(40)])
    mood = shaped(np.array([draws_of("machine 901", number) for number in range(40)]), "drift")
    assert drawn == pytest.approx(own + mood)
    alone = Fake(noise=0.03, seed=1, shape="drift", machine=902)
    assert np.log(alone._next_speed()) / 0.03 != pytest.approx(drawn[0])


def test_fakes_of_a_machine_share_bursts_for_the_requested_share_of_time() -> None:
    turns = [Fake(seed=seed, machine=903, bursts=0.5)._turns(1) for seed in (1, 2)]
    one, other = np.array([[turn(0.02) for turn in turns] for _ in range(20_000)]).T
    assert ((one < 1).mean(), (other < 1).mean()) == pytest.approx((0.5, 0.5), abs=0.08)
    assert (one.min(), one.max()) == (pytest.approx(0.1, abs=0.05), pytest.approx(1))
    assert (one < 1).mean() == pytest.approx(((one < 1) & (other < 1)).mean(), abs=0.02)  # a burst has many turns


def test_a_fake_stalls_and_shivers_in_single_turns_as_it_is_set_to() -> None:
    turn = Fake(jitter=0.02, stalls=0.05)._turns(1)
    logs = np.log([turn(0.02) for _ in range(20_000)])
    assert (logs < -0.35).mean() == pytest.approx(0.05, abs=0.006)
    assert logs[logs > -0.35].std() == pytest.approx(0.02, abs=0.001)
