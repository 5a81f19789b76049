"""What a run notes for its live page, and what it passes on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import fixed_timing
from pydantic import TypeAdapter
from runs import make_run
from waiting import ENOUGH_SECONDS

from tare.live.board import Now, read_board
from tare.live.watch import LivePage, PageReporter, served
from tare.model.trials import Raw
from tare.running.progress import BlockBegins, BlockEnded, RunBegins, TrialBegins, TurnEnded, TurnsBegin
from tare.running.schedule import TimeLeft
from tare.suites.plan import Block, Step
from tare.workloads.command import Command
from tare.workloads.loads.own_metrics import OwnMetric

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


@pytest.fixture
def report(page: LivePage) -> PageReporter:
    """What shows a run on the page; the run and its block have begun."""
    reporter = PageReporter(page)
    reporter(RunBegins(make_run([]), 2, {"sysbench": Command(metrics=(RATE,))}))
    reporter(BlockBegins(fixed_timing(BLOCK, LEFT, 10)))
    return reporter


def test_what_a_run_does_is_noted(page: LivePage, report: PageReporter) -> None:
    report(TrialBegins(STEPS[0]))
    now = noted(page)
    assert (now.workload, now.stack, now.following, now.turn) == ("sysbench", "native", "gvisor, sysbench", 0)
    assert (now.block, now.blocks, now.spent_seconds, now.left_seconds) == (3, 10, 30.0, 125.0)
    _begin(report, 3)
    now = noted(page)
    assert (now.stack, now.turn, now.turns, now.stacks, now.latest) == ("", 4, 10, 2, ())


def test_turns_are_noted_at_most_twice_a_second(
    page: LivePage, report: PageReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("tare.live.watch._NOTE_SECONDS", 0.5)
    monkeypatch.setattr("tare.live.watch.time", SimpleNamespace(monotonic=lambda: now[0]))
    told = []
    for number, now[0] in enumerate((1000.0, 1000.4, 1000.6, 1001.0, 1001.2)):
        report(TurnsBegin(number, 2))
        told.append(noted(page).turn)
    assert told == [1, 1, 3, 3, 5]


def test_each_note_reads_the_latest_turn_of_one_stack_those_first_of_which_nothing_is_known(
    page: LivePage, report: PageReporter
) -> None:
    for step in STEPS:
        report(TurnEnded(step, sample(step.stack)))
    _begin(report, 1)
    assert [stack for stack, _ in noted(page).latest] == ["native"]
    _begin(report, 2)
    (gvisor, slow), (native, fast) = noted(page).latest
    assert (gvisor, native) == ("gvisor", "native")
    assert slow.startswith("rate ")
    assert fast.startswith("rate ")
    report(TurnEnded(STEPS[0], sample("gvisor")))
    _begin(report, 3)
    assert dict(noted(page).latest) == {"gvisor": slow, "native": slow}
    report(BlockEnded(make_run([])))
    _begin(report, 0)
    assert noted(page).latest == ()


def _begin(report: PageReporter, number: int) -> None:
    report._noted = -math.inf
    report(TurnsBegin(number, 2))
