"""A fleet: the runs of one suite on many machines of several kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from runs import DHRYSTONE, MACHINE, make_run, make_trial, measured, write

from tare.model.machine import Facts

_SPEED = 20e6


@dataclass(frozen=True)
class Make:
    """A kind of machine: how many, what each stack has of native there, and what machines and blocks differ by."""

    count: int
    levels: dict[str, float] = field(default_factory=lambda: {"docker": 0.9, "crun": 1.0})
    between: float = 0.005
    within: float = 0.01
    facts: Facts = MACHINE
    sick: float = 1.0  # of what its own native has, the last machine
    blocks: int = 6


def fleet(folder: Path, kinds: Sequence[Make], seed: int = 1, started: str = "2026-11-02T10:00:00Z") -> Path:
    """Write a run for each machine into a folder, and return it."""
    chance = np.random.default_rng(seed)
    for letter, kind in zip("abcdef", kinds, strict=False):
        for number in range(kind.count):
            own = kind.sick if number == kind.count - 1 else 1.0
            own *= float(np.exp(chance.normal(0, 0.01)))
            parts = {stack: chance.normal(0, kind.between) for stack in kind.levels}
            trials = []
            for block in range(kind.blocks):
                mood = chance.normal(0, 0.02)
                for stack, level in {"native": 1.0, **kind.levels}.items():
                    noise = mood + parts.get(stack, 0.0) + chance.normal(0, kind.within)
                    value = measured("speed", float(_SPEED * own * level * np.exp(noise)))
                    trials.append(make_trial(stack, block, [value]))
            run = make_run(trials, [DHRYSTONE], folder / f"{letter}{number + 1}")
            write(replace(run, record=replace(run.record, machine=kind.facts, started=started)))
    return folder
