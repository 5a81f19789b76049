"""Runs of one suite, night after night, on a machine that is updated on one of the days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from runs import DHRYSTONE, make_run, make_trial, measured, write

from tare.model.run_folder import Run

KERNELS = ("6.1.0-26-amd64", "6.1.0-27-amd64")
_FIRST = datetime(2026, 11, 1, 2, 0, tzinfo=UTC)
_NIGHTLY, _WITHIN = 0.006, 0.01  # standard deviations of a night's ratios, and of a block's
_BLOCKS, _SPEED = 6, 20e6


def nights(folder: Path, docker: Sequence[float], native: Sequence[float] = (), updated: int = -1) -> list[Path]:
    """Write a run for each night, with what Docker and crun have of native, and native of its first speed.

    From the night `updated` on, the kernel is another one. Without `native`, it stays as it is.
    """
    chance = np.random.default_rng(1)
    folders = []
    for number, level in enumerate(docker):
        own = native[number] if native else 1.0
        run = _night(chance, number, {"native": own, "docker": own * level, "crun": own * 0.99})
        kernel = KERNELS[0 <= updated <= number]
        started = (_FIRST + timedelta(days=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
        machine = replace(run.record.machine, kernel=kernel)
        record = replace(run.record, suite="nightly", started=started, machine=machine)
        folders.append(write(replace(run, folder=folder / f"{started[:10]}-nightly", record=record)))
    return folders


def _night(chance: np.random.Generator, number: int, levels: dict[str, float]) -> Run:
    nightly = {stack: chance.normal(0, _NIGHTLY) for stack in levels}
    trials = []
    for block in range(_BLOCKS):
        mood = chance.normal(0, 0.03)
        for stack, level in levels.items():
            noise = nightly[stack] + mood + chance.normal(0, _WITHIN)
            trial = make_trial(stack, block, [measured("speed", float(_SPEED * level * np.exp(noise)))])
            trials.append(replace(trial, trial=f"{number}-{trial.trial}"))
    return make_run(trials, [DHRYSTONE])
