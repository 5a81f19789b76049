"""The machine's clock is set, forwards and back, while a run measures: no duration depends on it."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from fakes import Bench, Watcher, suite

WHAT = suite("a:", 'b: effect = "10 %"', blocks=4)
HOUR = 3600.0


def test_a_clock_that_is_set_by_an_hour_either_way_changes_no_value(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.work(WHAT)
    stepped = Bench(tmp_path / "stepped", Watcher(tmp_path / "stepped" / "trials.jsonl"))
    clock, steps = time.time, itertools.cycle((0.0, HOUR, -HOUR, HOUR, 0.0, -HOUR))
    monkeypatch.setattr(time, "time", lambda: clock() + next(steps))
    assert stepped.work(WHAT) == "plan"
    monkeypatch.undo()
    assert [trial.values for trial in stepped.trials] == [trial.values for trial in bench.trials]
    assert len({round(trial.started / HOUR) for trial in stepped.trials}) > 1, "the clock was not read"
    for trial in stepped.trials:
        assert trial.status == "ok"
        assert 0 <= trial.seconds < 60
        assert all(0 <= mark.seconds < 60 for mark in trial.timeline)
