"""What tare's statistics cost: the summary of 100,000 trials, and the decision after a block of 20 stacks, 100 metrics.

Each with a single turn of every stack in a block, and in ten rounds.

    make bench

Times are medians of CPU seconds of this process: a machine that is busy with something else changes them least.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from runs import make_run, make_trial, measured

from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import MeasuredValue, Metric, Trial
from tare.runner.decisions import Decisions
from tare.statistics.summarize import summarize

_TRIALS = 100_000
_STACKS = ("native", "native-again", *(f"s{number}" for number in range(18)))
_METRICS = tuple(Metric(f"m{number}", f"M{number}", "1/s", "higher") for number in range(100))
_BLOCKS = 30


def values_of(speeds: np.ndarray, metrics: tuple[Metric, ...]) -> list[MeasuredValue]:
    """Return a trial's values, from the speeds of its turns (axes: metric, turn)."""
    rows = zip(metrics, speeds.mean(axis=1).tolist(), speeds.tolist(), strict=True)
    turns = speeds.shape[1] > 1
    return [replace(measured(each.name, mean), turns=tuple(row) if turns else ()) for each, mean, row in rows]


def many_trials(rounds: int, times: int = 1) -> Run:
    """Make a run of 20 stacks, 10 workloads of 3 metrics, and 500 blocks, or so many times as many."""
    metrics, trials = _METRICS[:3], []
    chance = np.random.default_rng(1)
    workloads = [WorkloadRecord(f"w{number}", f"w{number}", f"W{number}", metrics, None) for number in range(10)]
    for record in workloads:
        for block in range(times * _TRIALS // len(_STACKS) // len(workloads)):
            trials += block_of(record, block, chance, rounds)
    return make_run(trials, workloads)


def as_stacks_leave(run: Run) -> Run:
    """Return a run in the order of its blocks, whose stacks leave one after the other, other ones in each workload."""
    blocks = max(trial.block for trial in run.trials) + 1

    def stays(trial: Trial) -> bool:
        place = (_STACKS.index(trial.stack) + int(trial.workload[1:])) % len(_STACKS)
        return trial.stack in _STACKS[:2] or trial.block < max(5, blocks * place // len(_STACKS))

    kept = sorted(filter(stays, run.trials), key=lambda trial: (trial.block, trial.workload))
    return replace(run, trials=tuple(kept))


def block_of(record: WorkloadRecord, block: int, chance: np.random.Generator, rounds: int) -> list[Trial]:
    """Make the trials of one block of all stacks."""
    speeds = 100 * np.exp(chance.normal(0, 0.026, (len(_STACKS), len(record.metrics), rounds)))
    return [
        make_trial(stack, block, values_of(row, record.metrics), record.name)
        for stack, row in zip(_STACKS, speeds, strict=True)
    ]


def deciding(rounds: int) -> Callable[[], object]:
    """Return what a decision comes to after thirty blocks: taking one more block in, and deciding."""
    record, chance = WorkloadRecord("big", "big", "Big", _METRICS, None), np.random.default_rng(2)
    decisions = Decisions((record,), _STACKS, "native", "native-again", 0.03)
    for block in range(_BLOCKS):
        for trial in block_of(record, block, chance, rounds):
            decisions.learn(trial)
    blocks = iter([block_of(record, _BLOCKS + number, chance, rounds) for number in range(10)])

    def decide() -> object:
        for trial in next(blocks):
            decisions.learn(trial)
        return decisions.decided_cells()

    return decide


def seconds(call: Callable[[], object], times: int) -> float:
    """Return the median of the CPU seconds that a call takes."""
    took = []
    for _ in range(times):
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return statistics.median(took)


def peak_bytes() -> int:
    """Return the most memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    """Print a Markdown table."""
    print("| what | target | found |\n| --- | --- | --- |")
    for rounds in (1, 10):
        how, target = ("", "50 ms") if rounds == 1 else (f", {rounds} rounds", "100 ms")
        took, what = seconds(deciding(rounds), 5), f"{len(_STACKS)} stacks, {len(_METRICS)} metrics"
        print(f"| the decision after a block, {what}{how} | {target} | {1000 * took:.1f} ms |", flush=True)
    for rounds in (1, 10):
        how = "" if rounds == 1 else f" in {rounds} rounds"
        run = many_trials(rounds)
        print(f"{peak_bytes() >> 20} MiB before, with the trials themselves", file=sys.stderr)
        took = seconds(lambda run=run: summarize(run), 3)  # type: ignore[misc]
        memory = f"{peak_bytes() / 1e6:.0f} MB"
        for leaving in (as_stacks_leave(run), as_stacks_leave(many_trials(rounds, 2))) if rounds == 1 else ():
            left = seconds(lambda run=leaving: summarize(run), 3)  # type: ignore[misc]
            number = f"{len(leaving.trials):,} trials of stacks that leave one after the other"
            print(f"| the statistics of {number} | in proportion to the trials | {left:.2f} s |", flush=True)
        number = f"{len(run.trials):,} trials{how}"
        print(f"| the statistics of {number} | 5 s, 500 MB | {took:.2f} s, {memory} with the trials |", flush=True)


if __name__ == "__main__":
    main()
