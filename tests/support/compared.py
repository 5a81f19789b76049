"""Runs to compare, and what tests ask of `tare compare`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import MACHINE, make_run, make_trial, measured, write

from tare.__main__ import run as command_line
from tare.cli import app
from tare.journal import Run
from tare.model.machines import Facts
from tare.model.trials import Status, Trial

STACKS = {"native": 1.0, "docker": 0.9}


@dataclass(frozen=True)
class Printed:
    """How `tare compare` ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> tuple[str, str]:
        """The two lines of an error, and nothing else on standard error."""
        what, hint = self.err.splitlines()
        return what.removeprefix("error: "), hint.removeprefix("hint: ")

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out, parse_constant=refuse)
        return found

    @property
    def cells(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(cell["workload"], cell["stack"]): cell for cell in self.document["cells"]}


Compare = Callable[..., Printed]


@pytest.fixture(name="compare")
def compare_command(capsys: pytest.CaptureFixture[str]) -> Compare:
    """Call `tare compare` with these words; a run among them is written, and stands for its folder."""

    def compare(*words: object) -> Printed:
        argv = (str(write(each) if isinstance(each, Run) else each) for each in words)
        return Printed(command_line(app, ["compare", *argv]), *capsys.readouterr())

    return compare


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


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in JSON")


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
