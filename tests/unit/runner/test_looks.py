"""Verdicts after each block: none disappears without another block of its cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import Bench, suite
from marks import slow
from runs import SPEED, make_run, make_trial, measured
from tare_fake.noise import DRAWS, Shape, shaped

from tare.model.run_folder import Run, WorkloadRecord, load_run
from tare.model.trial import Trial
from tare.runner.decisions import Decisions
from tare.statistics.cells import DECIDED, Cell
from tare.statistics.looks import Looks
from tare.statistics.ratios import BaselineRows
from tare.statistics.summarize import summarize
from tare.suites.plan import plan

ROOT = Path(__file__).resolve().parents[3]
Place = tuple[str, str, str]  # headline or workload with metric and point, metric, stack


def stored_runs() -> list[Path]:
    return sorted(path.parent for name in ("src", "tests", "examples") for path in (ROOT / name).rglob("trials.jsonl"))


def looks_at(run: Run) -> Iterator[tuple[Run, set[tuple[str, str]]]]:
    """Yield what a run was after each of its blocks, and the cells that had a trial in the block."""
    trials = run.trials
    for count in range(1, len(trials) + 1):
        block = (trials[count - 1].workload, trials[count - 1].block)
        if count == len(trials) or (trials[count].workload, trials[count].block) != block:
            new = {(each.workload, each.stack) for each in trials[:count] if (each.workload, each.block) == block}
            yield replace(run, trials=trials[:count]), new


def verdicts(run: Run) -> Mapping[Place, tuple[str, str]]:
    """Return the workload and verdict of each cell."""
    summary = summarize(run)
    cells = [(f"{cell.workload} {cell.metric} {cell.point}", cell) for cell in summary.cells]
    cells += [(cell.headline, cell) for cell in summary.headlines]
    return {(name, cell.metric, cell.stack): (cell.workload, cell.verdict) for name, cell in cells}


def assert_no_verdict_disappears(run: Run) -> int:
    """Return the number of decisions at the end."""
    before: Mapping[Place, tuple[str, str]] = {}
    for so_far, new in looks_at(run):
        now = verdicts(so_far)
        for cell, (workload, verdict) in before.items():
            if verdict in DECIDED and (workload, cell[-1]) not in new:
                assert now[cell][1] == verdict, f"{cell} after {len(so_far.trials)} trials"
        before = now
    return sum(verdict in DECIDED for _, verdict in before.values())


@pytest.mark.parametrize("folder", stored_runs(), ids=lambda folder: folder.name)
def test_no_verdict_of_a_stored_run_disappears_without_a_block_of_its_cell(folder: Path) -> None:
    assert assert_no_verdict_disappears(load_run(folder))


@pytest.mark.parametrize("shape", slow(["normal", "correlated", "drift"], ["normal", "correlated"]))
def test_no_verdict_of_a_fake_run_disappears_without_a_block_of_its_cell(bench: Bench, shape: str) -> None:
    stacks = [
        f'{name}: effect = "{effect}%"\nnoise = "2%"\nshape = "{shape}"\nseed = {seed}'
        for seed, (name, effect) in enumerate((("a", 0), ("b", 5), ("c", 30), ("d", 2), ("e", 50)))
    ]
    bench.work(suite(*stacks, blocks=20, workloads=("dhrystone", "whetstone")))
    assert assert_no_verdict_disappears(bench.read())


def simulated(shape: Shape, seed: int, blocks: int = 12) -> Run:
    """Run two workloads on simulated noise, as the schedule has it.

    One stack varies ten times as much as the others, and all vary four times as much from the fourth block on: stacks
    that were decided by then could borrow less, and would need more blocks. Odd seeds have turns, by which variances
    are moderated over both workloads.
    """
    chance, names = np.random.default_rng([seed, len(shape)]), ("dhrystone", "whetstone")
    stacks = ("a", "b", "c", "d", "e", "f", "a-again")
    logs = 0.02 * shaped(chance.normal(size=(len(names), len(stacks), blocks, DRAWS)), shape)
    logs[:, 5] *= 10
    logs[:, :, 3:] *= 4
    logs -= np.log([1.0, 1.0, 1.05, 1.3, 4.7, 1.0, 1.0])[:, np.newaxis]
    records = tuple(WorkloadRecord(name, name, name, (SPEED,), None) for name in names)
    decisions = Decisions(records, stacks, "a", "a-again", 0.03, precision=10)
    left = plan(suite(*(f"{name}:" for name in stacks[:-1]), blocks=blocks, workloads=names))
    trials: list[Trial] = []
    while needed := decisions.select_needed_blocks(left, lambda _: 1.0):
        block = needed[0]
        left = tuple(each for each in left if (each.workload, each.index) != (block.workload, block.index))
        for step in block.trials:
            log = logs[names.index(block.workload), stacks.index(step.stack), block.index]
            turns = 100 * np.exp(log + 0.05 * chance.normal(size=8 if seed % 2 else 1))
            value = replace(measured("speed", float(turns.mean())), turns=tuple(turns) if seed % 2 else ())
            trials.append(make_trial(step.stack, block.index, [value], block.workload))
            decisions.learn(trials[-1])
        so_far = {(each.workload, each.stack) for each in _headlines(make_run_of_a(trials, records)) if each.is_decided}
        assert decisions.decided_cells() == so_far, len(trials)
    return make_run_of_a(trials, records)


def make_run_of_a(trials: Sequence[Trial], records: Sequence[WorkloadRecord]) -> Run:
    """Return a run whose baseline is the stack a."""
    run = make_run(trials, records)
    return replace(run, record=replace(run.record, baseline="a", control="a-again"))


def _headlines(run: Run) -> Sequence[Cell]:
    return summarize(run).headlines


# The second seed has turns.
@pytest.mark.parametrize(
    ("shape", "seed"),
    [
        pytest.param(shape, seed, marks=() if (shape, seed) == ("correlated", 1) else pytest.mark.slow)
        for shape in ("normal", "correlated", "drift")
        for seed in range(4)
    ],
)
def test_simulated_verdicts_never_disappear_and_match_those_of_the_report(shape: Shape, seed: int) -> None:
    assert assert_no_verdict_disappears(simulated(shape, seed))


def test_a_block_completed_late_changes_no_cached_earlier_look() -> None:
    """The last trial of one workload's third block comes after a block of the other one."""
    trials = list(simulated("normal", 1).trials)
    block = ("dhrystone", 2)
    at = max(index for index, trial in enumerate(trials) if (trial.workload, trial.block) == block)
    later = next(index for index in range(at + 1, len(trials)) if trials[index].block == 4)
    trials.insert(later, trials.pop(at))
    records = tuple(WorkloadRecord(name, name, name, (SPEED,), None) for name in ("dhrystone", "whetstone"))
    stacks = ("a", "b", "c", "d", "e", "f", "a-again")
    looks = Looks(records, stacks, BaselineRows(0, 6), 0.03)
    for count, trial in enumerate(trials[: later + 20], start=1):
        looks.learn(trial)
        fresh = Looks(records, stacks, BaselineRows(0, 6), 0.03)
        if count < later:
            looks.headline_verdicts()
            continue
        for each in trials[:count]:
            fresh.learn(each)
        for name, judged in looks.headline_verdicts().items():
            for now, anew in zip(judged, fresh.headline_verdicts()[name], strict=True):
                assert now.held_comparison.half_widths == pytest.approx(anew.held_comparison.half_widths)


def test_a_stack_decided_after_three_blocks_stays_so_while_others_continue() -> None:
    """The stack then borrowed from four others; their later blocks alone would require five blocks of the stack."""
    stacks, chance = ("a", "b", "c", "d", "e", "a-again"), np.random.default_rng(0)
    records = (WorkloadRecord("dhrystone", "dhrystone", "dhrystone", (SPEED,), None),)
    trials: list[Trial] = []
    found = []
    for block, wild in enumerate((1, 1, 1, 40, 40, 1, 1)):
        for stack in stacks:
            if stack == "e" and block in {3, 4}:
                continue
            noise = 0.01 * chance.normal() * (1 if stack in {"a", "e", "a-again"} else wild)
            value = measured("speed", 100 * float(np.exp(noise)) / (4.7 if stack == "e" else 1))
            trials.append(make_trial(stack, block, [value]))
        cell = next(cell for cell in _headlines(make_run_of_a(trials, records)) if cell.stack == "e")
        found.append((cell.verdict, cell.n))
    # Four blocks have no interval any more, which contradicts nothing.
    assert found[2:] == [("worse", 3), ("worse", 3), ("worse", 3), ("worse", 3), ("worse", 5)]
