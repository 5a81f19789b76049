"""A bench on fakes, which needs nothing of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import Bench, Watcher


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    folder = tmp_path / "run"
    return Bench(folder, Watcher(folder / "trials.jsonl"))
