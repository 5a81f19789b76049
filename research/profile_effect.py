"""What `tare profile` costs a server at full speed: its throughput while it is profiled, against that while it is not.

Bare metal serves turn after turn, as in a run. Its turns come in stretches of 14 s, by twos in random order: one begins
with `tare profile --seconds 10s`, which starts, counts, watches and ends in it; in the other there is none. A stretch
counts with its mean, because counting is short: a median would not see it. What was not served is told in seconds.

A profile of 90 s, which is usual, costs as much to start and end, and 1.25 % to count. So it costs at most 3 %
where the seconds lost are fewer than 1.575: this is decided block by block.

    PYTHONPATH=tests/support python research/profile_effect.py [BLOCKS [WORKLOAD...]]
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from turns import ended, going, testbed_for, workloads

from tare.hosts.cgroups import group_folder
from tare.hosts.local import LocalHost, isolate_mounts
from tare.plugins import registry
from tare.plugins.workload import Workload
from tare.runner.context import RunContext
from tare.runner.trial import TrialRun
from tare.statistics.ratios import block_ratio

_USUAL_SECONDS, _COUNTING, _MOST = 90.0, 0.0125, 0.03
_STRETCH_SECONDS = 14.0
_MARGIN = (_MOST - _COUNTING) * _USUAL_SECONDS / _STRETCH_SECONDS
_TURNS = 70  # of a fifth of a second
_PAIRS = 3
_USUAL = ("nginx", "redis")
_WAIT_SECONDS = 30.0


@dataclass
class _Stretches:
    """Takes turns in stretches; `sides` has of each turn which pair it belongs to, and whether it was profiled."""

    attempt: TrialRun
    out: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)
    sides: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def take(self, pair: int, profiled: bool) -> None:
        """Take a stretch."""
        with ExitStack() as stack:
            if profiled:
                going = self.attempt.live
                assert going is not None
                folder = group_folder(LocalHost(), going.layers[0].instance.processes()[0])
                words = ("--cgroup", folder, "--seconds", "10s", "--out", str(self.out))
                process = stack.enter_context(LocalHost().spawn(sys.executable, "-m", "tare", "profile", *words))
            for number in itertools.islice(self.numbers, _TURNS):
                self.sides[number] = pair, profiled
                assert self.attempt.run_turn(number, 0.0) is not None
            if profiled:
                assert not process.is_running(), "the profile took longer than its stretch"
                assert process.exit_code() == 0, process.errors()


def block(testbed: RunContext, workload: Workload, chance: random.Random, out: Path) -> float:
    """Return the ratio of throughput with a profile to that without."""
    with going(testbed, [registry.find("technologies", "native")()], workload) as ((attempt,), _):
        attempt.measure_from(0)
        stretches = _Stretches(attempt, out)
        for pair in range(_PAIRS):
            for profiled in chance.sample((True, False), 2):
                stretches.take(pair, profiled)
        while attempt.run_turn(next(stretches.numbers), 0.0) is not None:
            pass
        trial = ended(attempt)
    rates: dict[tuple[int, bool], list[float]] = {}
    counted = [turn for turn in trial.turns if not turn.warm_up]
    value = next(each for each in trial.values if each.turns)
    for turn, rate in zip(counted, value.turns, strict=True):
        if turn.number in stretches.sides:
            rates.setdefault(stretches.sides[turn.number], []).append(rate)
    logs = [
        math.log(statistics.mean(rates[pair, True]) / statistics.mean(rates[pair, False])) for pair in range(_PAIRS)
    ]
    return math.exp(statistics.mean(logs))


def found(names: tuple[str, ...]) -> list[Workload]:
    """Return these workloads, or the usual ones, with so many turns as are needed and a few more."""
    seconds = 0.2 * _TURNS * 2 * _PAIRS + 1.0
    usual = {name: each for name, each in workloads().items() if name in (names or _USUAL)}
    return [cast("Workload", replace(cast("Any", each), duration=seconds)) for each in usual.values()]


def main(blocks: str = "6", *names: str) -> None:
    """Print a Markdown table."""
    isolate_mounts()
    measured, chance = found(names), random.Random(1)  # noqa: S311 - nothing secret
    with testbed_for(measured) as testbed, tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
        print("| workload | seconds lost | 95 % | of 90 s, with its counting | at most 3 % |\n|" + 5 * " --- |")
        for workload in measured:
            effects = [block(testbed, workload, chance, Path(folder) / "app.json") for _ in range(int(blocks))]
            ratio = block_ratio(effects, [1.0] * len(effects), _MARGIN)
            assert ratio is not None
            assert ratio.low is not None, "too few blocks"
            assert ratio.high is not None
            lost, most, least = (_STRETCH_SECONDS * (1 - at) for at in (ratio.ratio, ratio.low, ratio.high))
            share = f"{100 * (lost / _USUAL_SECONDS + _COUNTING):.1f} %"
            row = (workload.name, f"{lost:.2f}", f"[{least:.2f}, {most:.2f}]", share, ratio.side)
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
