"""Runs to compare, and what tests ask of `tare compare`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import Call
from runs import MACHINE, make_run, make_trial, measured

from tare.model.machine import Facts
from tare.model.run_folder import Run
from tare.model.trial import Status, Trial

STACKS = {"native": 1.0, "docker": 0.9}


Compare = Call


@pytest.fixture(name="compare")
def compare_command(call: Call) -> Compare:
    """Call `tare compare` with these words, whatever its exit code."""
    return partial(call, "compare", code=None)


@pytest.fixture(name="before")
def before_run(tmp_path: Path) -> Run:
    return made(tmp_path / "before", STACKS, seed=1)


@pytest.fixture(name="after")
def after_run(tmp_path: Path) -> Run:
    """Docker is 10 % slower than before, on a day on which the whole machine is 20 % slower."""
    return slower(tmp_path / "after")


def made(folder: Path, speeds: Mapping[str, float], blocks: int = 12, *, seed: int = 1, day: float = 1.0) -> Run:
    """A run of Dhrystone: each stack's speed times the block's mood, which all stacks share."""
    chance = np.random.default_rng(seed)
    trials = []
    for block in range(blocks):
        mood = day * math.exp(chance.normal(0, 0.05))
        for stack, speed in speeds.items():
            trials.append(make_trial(stack, block, [measured("speed", 2e7 * speed * mood * draw(chance))]))
    made_of = make_run(trials, folder=folder)
    return replace(made_of, record=replace(made_of.record, started=f"2024-05-0{seed}T10:00:00Z"))


def draw(chance: np.random.Generator) -> float:
    return math.exp(chance.normal(0, 0.01))


def changed(run: Run, **fields: object) -> Run:
    return replace(run, record=replace(run.record, **fields))  # type: ignore[arg-type]


def on_machine(run: Run, **facts: object) -> Run:
    machine: Facts = replace(MACHINE, **facts)  # type: ignore[arg-type]
    return changed(run, machine=machine)


def with_trials(run: Run, change: Any) -> Run:
    return replace(run, trials=tuple(change(trial) for trial in run.trials))


def pair(folder: Path, stacks: Mapping[str, float] = STACKS, blocks: int = 20, *, day: float = 1.0) -> tuple[Run, Run]:
    """Two runs of the same; all stacks alike may be slower on the day of the second."""
    before = made(folder / "before", stacks, blocks, seed=1)
    return before, made(folder / "after", stacks, blocks, seed=2, day=day)


def slower(folder: Path) -> Run:
    """A run in which docker is 10 % slower, on a day on which the whole machine is 20 % slower."""
    return made(folder, {"native": 1.0, "docker": 0.81}, seed=2, day=0.8)


def ends(run: Run, stack: str, status: Status) -> Run:
    """Let all trials of a stack end without values."""

    def change(trial: Trial) -> Trial:
        return replace(trial, status=status, reason="it broke", values=()) if trial.stack == stack else trial

    return with_trials(run, change)
