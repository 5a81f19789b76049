"""What a run notes for its live page, and what it passes on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import Watcher
from pydantic import TypeAdapter
from waiting import ENOUGH_SECONDS

from tare.live.board import Now, read_board
from tare.live.watch import LivePage, Watched, served
from tare.loads.own_metrics import OwnMetric
from tare.model import Raw
from tare.running.runner import Turns
from tare.running.schedule import TimeLeft
from tare.suites.plan import Block, Step
from tare.workloads.command import Command

SAMPLES = Path(__file__).parents[2] / "samples/command"
RATE = OwnMetric(name="rate", unit="events/s", better="higher", pattern=r"^ +events per second: +([0-9.]+)$")
STEPS = tuple(Step(f"sysbench-000-00-{stack}", "sysbench", stack, 0, 0) for stack in ("native", "gvisor"))
BLOCK = Block("sysbench", 0, STEPS)
LEFT = TimeLeft(blocks_done=2, blocks=10, spent_seconds=30.0, left_seconds=125.0)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[LivePage]:
    monkeypatch.setattr("tare.live.watch._START_SECONDS", ENOUGH_SECONDS)
    monkeypatch.setattr("tare.live.watch._NOTE_SECONDS", ENOUGH_SECONDS)  # between two notes
    with served(0, lambda _: None) as live:
        yield live


def noted(page: LivePage) -> Now:
    now = read_board(page._board.path)
    assert now
    return now


def sample(stack: str) -> Raw:
    return TypeAdapter(tuple[Raw, ...]).validate_json((SAMPLES / f"sysbench-{stack}.json").read_bytes())[-1]


def test_what_a_run_does_is_noted_and_passed_on(page: LivePage, tmp_path: Path) -> None:
    terminal = Watcher(tmp_path / "trials.jsonl")
    watched = page.with_page(terminal, {"sysbench": Command(metrics=(RATE,))})
    watched.trial_begins(STEPS[0], STEPS[1], LEFT)
    now = noted(page)
    assert (now.workload, now.stack, now.following, now.turn) == ("sysbench", "native", "gvisor, sysbench", 0)
    assert (now.block, now.blocks, now.spent_seconds, now.left_seconds) == (3, 10, 30.0, 125.0)
    assert terminal.begun == [(STEPS[0], STEPS[1], LEFT)]
    _begin(watched, 3)
    now = noted(page)
    assert (now.stack, now.turn, now.turns, now.stacks, now.latest) == ("", 4, 10, 2, ())
    watched.block_ended(BLOCK)
    assert (len(terminal.turns), terminal.blocks) == (1, [BLOCK])


def test_turns_are_noted_at_most_twice_a_second(
    page: LivePage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("tare.live.watch._NOTE_SECONDS", 0.5)
    monkeypatch.setattr("tare.live.watch.time", SimpleNamespace(monotonic=lambda: now[0]))
    watched = page.with_page(Watcher(tmp_path / "trials.jsonl"), {})
    told = []
    for number, now[0] in enumerate((1000.0, 1000.4, 1000.6, 1001.0, 1001.2)):
        watched.turns_begin(Turns(BLOCK, number, 10, 2), LEFT)
        told.append(noted(page).turn)
    assert told == [1, 1, 3, 3, 5]


def test_each_note_reads_the_latest_turn_of_one_stack_those_first_of_which_nothing_is_told(
    page: LivePage, tmp_path: Path
) -> None:
    watched = page.with_page(Watcher(tmp_path / "trials.jsonl"), {"sysbench": Command(metrics=(RATE,))})
    for step in STEPS:
        watched.turn_ended(step, sample(step.stack))
    _begin(watched, 1)
    assert [stack for stack, _ in noted(page).latest] == ["native"]
    _begin(watched, 2)
    (gvisor, slow), (native, fast) = noted(page).latest
    assert (gvisor, native) == ("gvisor", "native")
    assert slow.startswith("rate ")
    assert fast.startswith("rate ")
    watched.turn_ended(STEPS[0], sample("gvisor"))
    _begin(watched, 3)
    assert dict(noted(page).latest) == {"gvisor": slow, "native": slow}
    watched.block_ended(BLOCK)
    _begin(watched, 0)
    assert noted(page).latest == ()


def _begin(watched: Watched, number: int) -> None:
    watched._noted = -math.inf
    watched.turns_begin(Turns(BLOCK, number, 10, 2), LEFT)
