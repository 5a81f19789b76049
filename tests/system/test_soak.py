"""Two thirds of a minute of the soak: a real run that is killed again and again loses nothing, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS

SOAK = Path(__file__).parents[1] / "bench/soak.py"
SUPPORT = Path(__file__).parents[1] / "support"
SECONDS = 40.0

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("suite_images")]


def test_a_run_that_is_killed_again_and_again_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    stacks = "native,crun,bubblewrap"
    done = subprocess.run(
        (sys.executable, str(SOAK), str(tmp_path), "--seconds", f"{SECONDS:g}", "--stacks", stacks),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS + 3 * ENOUGH_SECONDS,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
    )
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert (done.returncode, [row for row in rows if row["lost"] or row["left"]]) == (0, []), done.stderr
    assert "nothing left" in done.stdout
    assert len(rows) >= 2
    assert any(row["measuring"] for row in rows)
