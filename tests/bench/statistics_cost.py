"""What tare's statistics cost: the summary of 100,000 trials, and the decision after a block of 20 stacks, 100 metrics.

    make bench

Times are medians of CPU seconds of this process: a machine that is busy with something else changes them least.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from runs import make_run, make_trial, measured

from tare.journal import Run, WorkloadRecord
from tare.model import Metric, Trial
from tare.running.deciding import Decisions
from tare.statistics.summarize import summarize

_TRIALS = 100_000
_STACKS = ("native", "native-again", *(f"s{number}" for number in range(18)))
_METRICS = tuple(Metric(f"m{number}", f"M{number}", "1/s", "higher") for number in range(100))
_BLOCKS = 30


def many_trials() -> Run:
    """Make a run of 20 stacks, 10 workloads of 3 metrics, and 500 blocks."""
    chance, metrics, trials = np.random.default_rng(1), _METRICS[:3], []
    workloads = [WorkloadRecord(f"w{number}", f"w{number}", f"W{number}", metrics, None) for number in range(10)]
    blocks = _TRIALS // len(_STACKS) // len(workloads)
    for record in workloads:
        for block in range(blocks):
            speeds = np.exp(chance.normal(0, 0.026, (len(_STACKS), len(metrics))))
            for stack, row in zip(_STACKS, speeds.tolist(), strict=True):
                values = [measured(metric.name, 100 * value) for metric, value in zip(metrics, row, strict=True)]
                trials.append(make_trial(stack, block, values, record.name))
    return make_run(trials, workloads)


def block_of(record: WorkloadRecord, block: int, chance: np.random.Generator) -> list[Trial]:
    """Make the trials of one block of all stacks, with all metrics."""
    speeds = np.exp(chance.normal(0, 0.026, (len(_STACKS), len(_METRICS)))).tolist()
    return [
        make_trial(
            stack,
            block,
            [measured(metric.name, 100 * value) for metric, value in zip(_METRICS, row, strict=True)],
            record.name,
        )
        for stack, row in zip(_STACKS, speeds, strict=True)
    ]


def deciding() -> tuple[Callable[[], object], Callable[[], object]]:
    """Give what a decision comes to after thirty blocks: taking one more block in, and deciding."""
    record, chance = WorkloadRecord("big", "big", "Big", _METRICS, None), np.random.default_rng(2)
    decisions = Decisions((record,), _STACKS, "native", "native-again", 0.03)
    for block in range(_BLOCKS):
        for trial in block_of(record, block, chance):
            decisions.learn(trial)
    blocks = iter([block_of(record, _BLOCKS + number, chance) for number in range(10)])

    def learn() -> None:
        for trial in next(blocks):
            decisions.learn(trial)

    return learn, decisions.decided


def seconds(call: Callable[[], object], times: int) -> float:
    """Give the median of the CPU seconds that a call takes."""
    took = []
    for _ in range(times):
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return statistics.median(took)


def peak_bytes() -> int:
    """Give the most memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    """Print a Markdown table."""
    print("| what | target | found |\n| --- | --- | --- |")
    learn, decide = deciding()
    took = seconds(learn, 5) + seconds(decide, 5)
    print(
        f"| the decision after a block, {len(_STACKS)} stacks, {len(_METRICS)} metrics | 50 ms | {1000 * took:.1f} ms |"
    )
    run = many_trials()
    print(f"{peak_bytes() >> 20} MiB before, with the trials themselves", file=sys.stderr)
    took = seconds(lambda: summarize(run), 3)
    memory = f"{peak_bytes() / 1e6:.0f} MB"
    print(f"| the statistics of {len(run.trials):,} trials | 5 s, 500 MB | {took:.2f} s, {memory} with the trials |")


if __name__ == "__main__":
    main()
