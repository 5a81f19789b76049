"""Orders of turns and pairings with the baseline (research/partners.py): examples worked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from audit_centers import median
from partner_journals import TODAY, differences, read, read_all
from partner_pairings import PAIRINGS, Turns, value
from partners import NOISES, ORDERS, Noise, cold_losses, draw

from tare.statistics.headlines import relative_to_baseline
from tare.statistics.ratios import BaselineRows

_DRIFTING = [name for name in PAIRINGS if "interpolated" in name]


def turns_of(order: list[int], logs: np.ndarray) -> Turns:
    """Return the turns of rows that take turns in this order, one after the other."""
    at = [np.flatnonzero(np.array(order) == row) for row in range(max(order) + 1)]
    return Turns(tuple(each.astype(float) for each in at), tuple(logs[each] for each in at))


@pytest.mark.parametrize("pairing", _DRIFTING)
def test_interpolation_cancels_a_linear_drift(pairing: str) -> None:
    turns = turns_of([0, 2, 1, 0, 2], 0.1 * np.arange(5))
    assert PAIRINGS[pairing](turns, 1, (0, 2))[0] == pytest.approx(0)
    assert PAIRINGS["in the round"](turns, 1, (0, 2))[0] == pytest.approx(0.2)


def test_mirrored_rounds_cancel_a_linear_drift_together() -> None:
    turns = turns_of([1, 0, 2, 2, 0, 1], 0.1 * np.arange(6))
    assert PAIRINGS["over two rounds"](turns, 1, (0, 2)) == [pytest.approx(0), pytest.approx(0)]


def test_the_turns_right_before_and_after_count_and_each_by_itself() -> None:
    turns = turns_of([0, 1, 2, 1], np.array([0.0, 0.5, 0.3, 0.9]))
    before, after = PAIRINGS["before and after"](turns, 1, (0, 2))
    assert before == pytest.approx([0.5, 0.6])
    assert after == pytest.approx([0.2])  # no partner follows the last turn


def test_in_the_round_is_what_tare_takes() -> None:
    logs = np.random.default_rng(3).normal(size=(4, 1, 20))
    turns = Turns(tuple(np.arange(20.0) for _ in logs), tuple(logs[:, 0]))
    expected = relative_to_baseline(logs, np.ones(logs.shape, dtype=bool), BaselineRows(0, 3)).logs[1:, 0]
    assert [value(turns, row, PAIRINGS[TODAY[0]], median) for row in (1, 2, 3)] == pytest.approx(expected)


def test_all_orders_have_as_many_turns_but_not_as_many_of_stacks() -> None:
    orders = {name: order(4, 96, np.random.default_rng(1)) for name, order in ORDERS.items()}
    assert {len(order) for order in orders.values()} == {96}
    assert [int((orders[name] == 1).sum()) for name in ("random", "mirrored", "between")] == [16, 16, 12]
    assert set(orders["between"][::2]) == {0, 5}
    assert (orders["mirrored"][:6] == orders["mirrored"][6:12][::-1]).all()


def test_a_turn_after_another_stack_is_cold_most_after_the_first() -> None:
    assert cold_losses(np.array([2, 2, 1, 3, 3])) == pytest.approx([0, 0, 0.01, 0.03, 0])


@pytest.mark.parametrize("noise", NOISES[:6], ids=lambda noise: noise.name)
def test_simulated_turns_differ_by_distance_as_measured_ones_do(noise: Noise) -> None:
    blocks = draw(noise, 440, np.random.default_rng(5))
    logs = np.stack([next(blocks) for _ in range(400)])
    for lag, measured in zip((1, 10, 100), noise.apart, strict=True):
        # 1/f noise and a random walk cannot have the memory's steps exactly.
        assert (logs[:, lag:] - logs[:, :-lag]).std() == pytest.approx(measured, rel=0.2)


def test_a_journal_is_read_with_its_turns_along_time(tmp_path: Path) -> None:
    lines = []
    for place, stack in enumerate(("native", "docker", "native-again")):
        began = [0.03 * number + 0.01 * place for number in range(20)]
        warm_up = {"label": "GET 1", "warm_up": True, "began": 0.0}
        counted = [{"label": "GET 1", "warm_up": False, "began": each} for each in began]
        value_of = {"metric": "get", "point": 1.0, "label": "GET 1", "turns": [100.0 - 10 * (stack == "docker")] * 20}
        trial = {"trial": stack, "status": "ok", "workload": "redis", "stack": stack, "block": 0}
        lines.append(json.dumps({**trial, "values": [value_of], "turns": [warm_up, *counted]}))
    (tmp_path / "trials.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (measured,) = read(tmp_path)
    assert (measured.name, measured.stacks) == (f"{tmp_path.name} redis 1", (("native", "docker", "native-again"),))
    (block,) = measured.blocks
    assert block.began[1] == pytest.approx(0.01 + 0.03 * np.arange(20))
    assert value(block, 1, PAIRINGS["interpolated"], median) == pytest.approx(np.log(0.9))
    assert differences(measured)[TODAY]["odd, even"] == pytest.approx([0, 0])


@pytest.mark.parametrize(("journal", "problem"), [(None, "no run folder"), ("", "no workload has turns of native")])
def test_a_folder_without_turns_is_refused(tmp_path: Path, journal: str | None, problem: str) -> None:
    if journal is not None:
        (tmp_path / "trials.jsonl").write_text(journal, encoding="utf-8")
    with pytest.raises(SystemExit) as refused:
        read_all([tmp_path])
    error, hint = str(refused.value).splitlines()
    assert error.startswith(f"error: {tmp_path}: {problem}")
    assert hint.startswith("hint: name ")
