"""Whether telemetry changes what is measured: turns with samples against turns without, by tare's own equivalence.

Bare metal and a container take turns. In each round each has two in succession, in random order: one while tare samples
both ten times a second, and one while it does not. A turn is a fifth of a second, so that each has two samples, and the
median of a block's rounds shows what they cost. Block by block, the two are compared with a margin of 1 %.

    PYTHONPATH=tests/support python research/telemetry_effect.py [BLOCKS [WORKLOAD...]]
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from turns import ended, going, say, testbed_for, workloads

from tare.hosts.local import isolate_mounts
from tare.model.trial import Trial
from tare.plugins import registry
from tare.plugins.workload import Workload
from tare.runner.context import RunContext
from tare.runner.trial import TrialRun
from tare.statistics.ratios import block_ratio
from tare.telemetry.sampler import Sampler

_MARGIN = 0.01
_STACKS = ("native", "crun")
_DURATION = 2.0  # ten turns
_MEASURED = 2  # times in a block
_USUAL = ("dhrystone", "nginx")


@dataclass
class _Switch:
    """Lets a sampler sample, or not; `sides` tells of each turn of each stack whether it did."""

    sampler: Sampler
    on: bool = True
    samples: int = 0
    sides: dict[tuple[str, int], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sample = self.sampler.sample_all
        self.sampler.sample_all = self._sample_if_on  # type: ignore[method-assign]

    def _sample_if_on(self) -> None:
        if self.on:
            self.samples += 1
            self._sample()

    def turn(self, attempt: TrialRun, number: int, on: bool) -> bool:
        """Take a turn with samples, or without."""
        self.on = self.sides[attempt.step.stack, number] = on
        return attempt.run_turn(number, 0.0) is not None


def effect_of(trial: Trial, sides: Mapping[tuple[str, int], bool]) -> float:
    """Return the ratio of turns with it to those without: the median over rounds."""
    rounds: dict[int, dict[bool, float]] = {}
    counted = [turn for turn in trial.turns if not turn.warm_up]
    for turn, value in zip(counted, trial.values[-1].turns, strict=True):
        rounds.setdefault(turn.number // 2, {})[sides[trial.stack, turn.number]] = math.log(value)
    whole = [each[True] - each[False] for each in rounds.values() if len(each) == 2]
    return math.exp(statistics.median(whole))


def compare(testbed: RunContext, workload: Workload, blocks: int) -> list[_Switch]:
    """Print the rows of a workload; return the switch of each block."""
    effects: dict[str, list[float]] = {name: [] for name in _STACKS}
    chance, switches = random.Random(1), list[_Switch]()  # noqa: S311 - nothing secret
    for _ in range(blocks):
        numbers = itertools.count()
        stacks = [registry.find("technologies", name)() for name in _STACKS]
        with going(testbed, stacks, workload) as (attempts, sampler):
            switches.append(_Switch(sampler))
            for _ in range(_MEASURED):
                for attempt in attempts:
                    attempt.measure_from(0)
                in_turns(attempts, switches[-1], chance, numbers)
            for attempt in attempts:
                trial = ended(attempt)
                effects[trial.stack].append(effect_of(trial, switches[-1].sides))
    for name in _STACKS:
        ratio = block_ratio(effects[name], [1.0] * blocks, _MARGIN)
        assert ratio is not None
        interval = f"[{100 * ratio.low:.2f}, {100 * ratio.high:.2f}]" if ratio.low and ratio.high else "too few blocks"
        print(f"| {workload.name} | {name} | {100 * ratio.ratio:.2f} % | {interval} | {ratio.side} |", flush=True)
    return switches


def in_turns(attempts: list[TrialRun], switch: _Switch, chance: random.Random, numbers: Iterator[int]) -> None:
    """Let each instance have two turns in each round."""
    live = list(attempts)
    for number in numbers:
        chance.shuffle(live)
        sides = {attempt.step.stack: chance.random() < 0.5 for attempt in live}
        live = [
            attempt
            for attempt in live
            if all(switch.turn(attempt, 2 * number + n, sides[attempt.step.stack] != bool(n)) for n in range(2))
        ]
        if not live:
            return


def with_long_turns(names: tuple[str, ...]) -> dict[str, Workload]:
    """Return these workloads, or the usual ones, with turns of a fifth of a second."""
    found = {name: each for name, each in workloads().items() if name in (names or _USUAL)}
    return {name: cast("Workload", replace(cast("Any", each), duration=_DURATION)) for name, each in found.items()}


def main(blocks: str = "12", *names: str) -> None:
    """Print a Markdown table."""
    isolate_mounts()
    found = with_long_turns(names)
    with testbed_for(found.values()) as testbed:
        print("| workload | stack | with samples, of without | 95 % | within 1 % |\n| --- | --- | --- | --- | --- |")
        for workload in found.values():
            samples = sum(switch.samples for switch in compare(testbed, workload, int(blocks)))
            say(f"{workload.name}: {samples} samples in {blocks} blocks")


if __name__ == "__main__":
    main(*sys.argv[1:])
