"""VTmark's dictionary for real, with three users in a hurry: its images take minutes to build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab_runs import done, outcomes

from tare.journal import load_raw

pytestmark = [pytest.mark.machine, pytest.mark.lab]

SUITE = f"""\
[suite]
stacks = ["native", "crun"]
blocks = 1

[limits]
memory = "2GiB"

[[workloads]]
use = "application"
folder = "{Path(__file__).parents[2] / "examples" / "dictionary"}"
parameters = {{ users = 3, factor = 100, searches = 2 }}
duration = "10s"
"""


def test_users_of_the_dictionary_are_answered_on_bare_metal_and_in_a_container(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE, encoding="utf-8")
    run = done(suite, tmp_path / "run")
    assert set(outcomes(run).values()) == {"ok"}
    for trial in run.trials:
        result = json.loads(load_raw(tmp_path / "run", trial.trial)[-1].text)
        assert result["answers"] == {"200": 3 * 2 * 10, "50x": 0, "transport": 0, "other": 0}
        assert sum(result["over_time"]["200"]) == 3 * 2 * 10
        assert (result["users"], result["faults"]) == (3, [])
