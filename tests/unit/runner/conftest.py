"""A bench on fakes, which needs nothing of the machine."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import TICKS, Bench, Watcher

import tare.runner.trial
import tare.runner.turn_scheduler
from tare.loads.cpu_programs import ComputeWorkload
from tare.model.turn_length import TurnLength
from tare.workloads.ramspeed import Ramspeed


@pytest.fixture(autouse=True)
def _ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let turns go by a clock that ticks when it is read: no stall of this machine makes a stack seem slower."""
    ticks = SimpleNamespace(monotonic=lambda: next(TICKS) / 1000, time=lambda: time.time())  # noqa: PLW0108 - a test may set the clock
    monkeypatch.setattr(tare.runner.trial, "time", ticks)
    monkeypatch.setattr(tare.runner.turn_scheduler, "monotonic", ticks.monotonic)


@pytest.fixture(autouse=True)
def _ten_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let dhrystone and ramspeed have ten turns, as most tests here count them."""
    for workload in (ComputeWorkload, Ramspeed):
        monkeypatch.setattr(workload, "usual_turn", TurnLength(0.01, 0.02))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    folder = tmp_path / "run"
    return Bench(folder, Watcher(folder / "trials.jsonl"))
