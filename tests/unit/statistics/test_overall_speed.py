"""Overall speed: the interval over several workloads, of which a stack may have different numbers of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from runs import DHRYSTONE, NGINX, make_run, make_trial, measured

from tare.model.trial import MeasuredValue, Trial
from tare.statistics.anytime import SINGLE_STATEMENT_EVIDENCE
from tare.statistics.cells import HeadlineRule, Overall
from tare.statistics.ranking import _combine
from tare.statistics.ratios import BaselineRows, Moderation, RatioComparison, compare_together
from tare.statistics.summarize import summarize

SPEEDS = {"native": 1.0, "native-again": 1.0, "crun": 1.0, "podman": 0.83}
ALL = range(9)
ROUNDS = 8
BOTH = BaselineRows(0, 3)


def _overall(blocks: Mapping[str, Sequence[int]], noise: float = 0.01) -> Overall:
    """Return the ranking of a run of two workloads, in which stacks have these blocks; by default nine."""
    chance = np.random.default_rng(1)

    def measure(metric: str, point: float | None, speed: float) -> MeasuredValue:
        turns = 1000.0 * speed * np.exp(chance.normal(0, noise, ROUNDS) + chance.normal(0, noise / 4))
        plain = measured(metric, float(turns.mean()), point)
        return MeasuredValue(metric, point, plain.value, plain.unit, "higher", tuple(turns.tolist()))

    trials: list[Trial] = []
    for block in ALL:
        for workload, metric, point in (("dhrystone", "speed", None), ("nginx", "throughput", 50.0)):
            trials += [
                make_trial(stack, block, [measure(metric, point, speed)], workload)
                for stack, speed in SPEEDS.items()
                if block in blocks.get(stack, ALL)
            ]
    return summarize(make_run(trials, [DHRYSTONE, NGINX])).overall


@pytest.mark.parametrize("podman", [range(3), range(3, 6)], ids=["same blocks", "other blocks"])
def test_a_dear_stack_that_left_early_is_not_tied_with_the_cheapest(podman: range) -> None:
    overall = _overall({"crun": range(3), "podman": podman})
    cheapest, dearest = overall.standings
    assert (cheapest.stack, cheapest.verdict) == ("crun", "equivalent")
    assert (dearest.stack, dearest.verdict) == ("podman", "worse")
    assert dearest.low is not None
    assert dearest.high is not None
    assert dearest.low < 0.83 < dearest.high < 0.86
    assert overall.tied == ()


def test_two_blocks_of_a_workload_rank_nothing() -> None:
    overall = _overall({"crun": range(2)})
    assert ([each.stack for each in overall.standings], overall.missing) == (["podman"], ("crun",))


def test_stacks_that_noise_hides_are_tied() -> None:
    assert _overall({"crun": range(3), "podman": range(3)}, noise=0.4).tied != ()


@pytest.mark.parametrize("noisy", [1.0, 5.0])
@pytest.mark.parametrize("leaves", [False, True], ids=["all blocks", "leaves when decided"])
def test_the_interval_over_workloads_covers_the_truth_at_every_look(noisy: float, leaves: bool) -> None:
    """Two stacks in three workloads, the first of which is noisier; most intervals are wider than they need to be."""
    runs, blocks, truths = 200, 12, np.array([-0.17, 0.0, 0.015])
    chance, rules = np.random.default_rng(9), [HeadlineRule("", "", (), "higher", "")] * len(truths)
    noise = chance.normal(0, 0.007, (len(truths), 4, runs, blocks))
    noise[0, 1:3] *= noisy
    logs = noise - (noise[:, :1] + noise[:, 3:]) / 2
    logs[:, 3], logs[:, 0] = noise[:, 3] - noise[:, 0], 0.0
    logs[:, 1:3] += truths[:, np.newaxis, np.newaxis, np.newaxis]
    present, left = np.zeros(logs.shape, dtype=bool), np.zeros(logs.shape[:-1], dtype=bool)
    held: list[RatioComparison] = []
    missed, known = np.zeros((2, runs), dtype=bool), np.zeros((2, runs), dtype=bool)
    for block in range(blocks):
        present[..., block] = ~left
        until = slice(block + 1)
        looks = [
            compare_together(logs[at][..., until], present[at][..., until], 0.03, BOTH, Moderation())
            for at in range(len(truths))
        ]
        looks = [each.with_needed_evidence(np.full(each.mean.shape, SINGLE_STATEMENT_EVIDENCE)) for each in looks]
        held = [old.with_rows(new, ~gone) for old, new, gone in zip(held or looks, looks, left, strict=True)]
        if leaves:
            left[:, 1:3] |= np.array([each.is_decided[1:3] for each in held])
        overall = _combine(rules, held)
        missed |= np.abs(overall.mean - truths.mean())[1:3] > overall.half_widths[1:3]
        known |= np.isfinite(overall.half_widths[1:3])
    assert known.all()
    assert missed.mean() < 0.05
