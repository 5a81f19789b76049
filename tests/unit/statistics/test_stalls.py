"""A stack that stalls by itself is slower, and the center of its rounds does not show it: a caution does."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from runs import DHRYSTONE, MACHINE, make_run, make_trial, measured

from tare.model.run_folder import Run
from tare.model.trial import Better, Metric
from tare.report import data_files as report_csv
from tare.report import data_files as report_json
from tare.report.findings import create_findings
from tare.report.html import page as report_html
from tare.report.numbers import roughly
from tare.statistics.cells import Cell
from tare.statistics.descriptive import centers
from tare.statistics.headlines import mean_relative_to, relative_to_baseline
from tare.statistics.ratios import BaselineRows
from tare.statistics.stalls import SlowTurns, are_slow, count_slow, stall_log_evidence
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary

STACKS = ("native", "docker", "crun", "native-again")
BOTH = BaselineRows(0, 3)


def evidence(of_stack: int, others: int, chance: float = 1 / 3) -> float:
    return float(stall_log_evidence(np.array(of_stack), np.array(others), np.array(chance)))


def test_the_evidence_is_what_a_hand_computes() -> None:
    # Jeffreys' mixture of five slow turns, all the stack's: (1·3·5·7·9) / (2·4·6·8·10) against (1/3)^5.
    assert evidence(5, 0) == pytest.approx(math.log(945 / 3840 * 3**5))
    assert evidence(0, 0) == 0
    # One of either: 1/8 against 1/3 · 2/3.
    assert evidence(1, 1) == pytest.approx(math.log(1 / 8 / (2 / 9)))


@pytest.mark.parametrize("chance", [1 / 3, 1 / 2])
def test_the_expectation_of_the_evidence_is_one_where_chance_alone_decides(chance: float) -> None:
    total = sum(
        math.comb(12, of_stack)
        * chance**of_stack
        * (1 - chance) ** (12 - of_stack)
        * math.exp(evidence(of_stack, 12 - of_stack, chance))
        for of_stack in range(13)
    )
    assert total == pytest.approx(1)


def test_a_turn_is_slow_beside_its_own_stack_and_the_others_of_its_round() -> None:
    speeds = np.log(np.array([
        [100.0, 100, 100, 50, 100],
        [50.0, 50, 38, 25, 50],  # always half as fast, and in the third round a quarter less than that
        [100.0, 81, 100, 50, 100],
        [100.0, 100, 100, 50, 160],
    ]))  # fmt: skip
    slow = are_slow(speeds, np.ones(speeds.shape, dtype=bool))
    assert np.argwhere(slow).tolist() == [[1, 2]]
    assert are_slow(speeds - np.where(slow, 1, 0), ~slow).sum() == 0  # a missing turn is not slow


def test_slow_turns_are_counted_in_rounds_that_both_baselines_have() -> None:
    slow = np.zeros((4, 1, 4), dtype=bool)
    slow[1, 0, :3] = slow[0, 0, 3] = slow[3, 0, 0] = True
    there = np.ones(slow.shape, dtype=bool)
    there[3, 0, 2] = False
    found = count_slow(slow, there, BOTH)
    assert (found.turns[1], found.slow_turns[1], found.baseline_slow_turns[1], found.baseline_turns[1]) == (3, 2, 2, 6)
    assert (found.turns[3], found.slow_turns[3], found.baseline_slow_turns[3], found.baseline_turns[3]) == (3, 1, 1, 3)
    assert found.evidence[3] == pytest.approx(evidence(1, 1, 1 / 2))


def test_keys_of_the_same_turns_say_no_more_together_than_one_of_them() -> None:
    each = np.array([[4, 4, 4]])
    found = SlowTurns(each, each, each, each, evidence=np.array([[2.0, 2.0, 2.0]]))
    assert found.combine_keys((0, 1, 2)).evidence == pytest.approx([2.0])
    assert found.combine_keys(()).evidence == pytest.approx([0.0])


def run_in_turns(stalling: str, blocks: int = 8, better: Better = "higher", single: bool = False) -> Run:
    """A run in ten rounds; one stack has every tenth of its turns at half speed."""
    chance = np.random.default_rng(11)
    metric, trials = replace(DHRYSTONE.metrics[0], better=better), []
    for block in range(blocks):
        for stack in STACKS:
            speeds = np.exp(chance.normal(0, 0.01, 10))
            speeds[block % 10] *= 0.5 if stack == stalling else 1.0
            turns = 100 * (speeds if better == "higher" else 1 / speeds)
            value = replace(measured("speed", float(turns.mean()), better=better), turns=tuple(turns.tolist()))
            trials.append(make_trial(stack, block, [replace(value, turns=()) if single else value]))
    return make_run(trials, [replace(DHRYSTONE, metrics=(metric,))])


def in_turns(stalling: str, blocks: int = 8, better: Better = "higher", single: bool = False) -> Summary:
    return summarize(run_in_turns(stalling, blocks, better, single))


def cells_of(summary: Summary, stack: str) -> tuple[Cell, Cell]:
    return summary.headline("dhrystone", stack), next(c for c in summary.cells_of("dhrystone") if c.stack == stack)


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_stack_that_stalls_in_a_tenth_of_turns_is_named_with_the_cost(better: Better) -> None:
    summary = in_turns("docker", better=better)
    for cell in cells_of(summary, "docker"):
        assert cell.verdict == "equivalent"  # in a usual turn
        assert (cell.slow_turns, cell.slow_turns_of_baseline) == (0.1, 0.0)
        assert cell.mean_ratio == pytest.approx(0.95 if better == "higher" else 1.1, abs=0.005)
        [caution] = [caution for caution in cell.cautions if caution.kind == "stalls"]
        assert caution.texts[0].startswith("10 % of its turns are slower than its others by 20 % or more, 0 % of the")
        [note] = [note for note in cell.notes if "all turns" in note]
        assert cell.mean_ratio
        text = f"the mean over all turns is {100 * cell.mean_ratio:.4g} % of the baseline's"
        assert note == f"{text}: some turns are far from the usual"
        assert report_json.cell_fields(cell)["mean_ratio"] == cell.mean_ratio
    for cell in cells_of(summary, "crun"):
        assert (cell.cautions, cell.slow_turns) == ((), 0.0)
        assert not [note for note in cell.notes if "all turns" in note]


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_usual_value_is_of_usual_turns_and_their_ratio_is_the_estimate(better: Better) -> None:
    summary = in_turns("docker", better=better)
    for of_stack, of_baseline in zip(cells_of(summary, "docker"), cells_of(summary, "native"), strict=True):
        assert of_stack.usual
        assert of_baseline.usual
        assert of_stack.mean
        assert of_stack.usual / of_baseline.usual == pytest.approx(of_stack.ratio)
        assert abs(of_stack.mean / of_stack.usual - 1) > 0.03  # its mean has the slow turns
        assert of_stack.usual_sd is not None
        assert of_stack.usual_sd < 0.02 * of_stack.usual


def test_the_mean_over_all_turns_is_in_the_page_details_and_the_cell_table() -> None:
    run = run_in_turns("docker")
    summary = summarize(run)
    mean = cells_of(summary, "docker")[1].mean_ratio
    assert mean is not None
    page = report_html.render(summary, run)["index.html"].decode()
    assert f"by the mean over all turns: {roughly(mean)}" in page
    [row] = [
        row
        for row in csv.DictReader(io.StringIO(report_csv.render_csv(summary, run)["summary.csv"].decode()))
        if row["stack"] == "docker"
    ]
    assert float(row["mean_ratio"]) == pytest.approx(mean)


def test_what_stalls_is_named_among_what_to_read_with_care() -> None:
    doubts = {who: create_findings(in_turns(who), MACHINE).cautions.sentences for who in ("docker", "nothing")}
    [sentence] = [text for text in doubts["docker"] if text.endswith("(stalls).")]
    assert sentence.startswith("docker: it or the stack that it is compared with stalled now and then")
    assert not [text for text in doubts["nothing"] if "(stalls)" in text]


def test_a_baseline_that_stalls_is_said_beside_every_stack() -> None:
    cell, _ = cells_of(in_turns("native", blocks=20), "crun")
    [caution] = [caution for caution in cell.cautions if caution.kind == "stalls"]
    assert caution.texts[0].startswith("5 % of the baseline's turns are slower than its others by 20 % or more, 0 % of")


def test_without_rounds_there_is_nothing_to_say_of_turns() -> None:
    for cell in cells_of(in_turns("docker", single=True), "docker"):
        assert (cell.mean_ratio, cell.slow_turns, cell.slow_turns_of_baseline) == (None, None, None)
        assert "stalls" not in [caution.kind for caution in cell.cautions]


def test_a_workload_of_several_metrics_says_it_in_its_headline() -> None:
    metrics = tuple(Metric(name, name, "iterations/s", "higher") for name in ("one", "two"))
    chance, trials = np.random.default_rng(2), []
    for block in range(8):
        for stack in STACKS:
            turns = 100 * np.exp(chance.normal(0, 0.01, 10))
            turns[block % 10] *= 0.5 if stack == "docker" else 1.0
            values = [replace(measured("x", 1.0), metric=each.name, turns=tuple(turns)) for each in metrics]
            trials.append(make_trial(stack, block, values))
    cell = summarize(make_run(trials, [replace(DHRYSTONE, metrics=metrics)])).headline("dhrystone", "docker")
    assert cell.slow_turns == 0.1
    assert "stalls" in [caution.kind for caution in cell.cautions]


def test_the_mean_over_turns_hides_nothing() -> None:
    turns = np.log(np.array([[[100.0, 100]], [[100.0, 50]], [[90.0, 90]], [[100.0, 100]]]))
    there = np.ones(turns.shape, dtype=bool)
    assert relative_to_baseline(turns, there, BOTH, mean_relative_to).logs[1:3, 0] == pytest.approx(np.log([0.75, 0.9]))


def test_bursts_of_the_machine_are_seldom_taken_for_stalls_at_any_look() -> None:
    """A burst takes half of one turn in seven, of one or several of a round; a look after every block."""
    chance = np.random.default_rng(12)
    runs, blocks, rounds = 2000, 30, 10
    hit = chance.random((4, runs, blocks, rounds)) < np.where(chance.random((runs, blocks, rounds)) < 0.5, 0.3, 0.0)
    speeds = 0.03 * chance.normal(size=hit.shape) + np.where(hit, np.log(0.5), 0.0)
    there = np.ones(hit.shape, dtype=bool)
    slow, said = are_slow(speeds, there), np.zeros((2, runs), dtype=bool)
    assert slow.mean() > 0.05
    for count in range(1, blocks + 1):
        found = count_slow(slow[:, :, :count], there[:, :, :count], BOTH)
        said |= found.is_different[[1, 3]]
    assert (said.mean(axis=1) <= 0.05).all()
    assert np.abs(centers(speeds, there)).mean() > 0  # the median moves, and slow turns are counted relative to it
