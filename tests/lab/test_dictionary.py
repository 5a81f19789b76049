"""VTmark's dictionary for real, with a few users in a hurry: its images take minutes to build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab_runs import done, outcomes
from ssh_machines import Lab

from tare.journal import Run, load_raw

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
    _assert_answered(run, tmp_path / "run")


def test_users_on_two_machines_are_answered_by_a_third_one(tmp_path: Path, there: Lab) -> None:
    suite = tmp_path / "suite.toml"
    tables = (("[hosts.server]", there.server), *(("[[hosts.client]]", each) for each in there.clients))
    hosts = "".join(
        f'{table}\nssh = "{each.ssh}"\nssh_config = "{each.ssh_config}"\naddress = "{each.address}"\n'
        for table, each in tables
    )
    suite.write_text(SUITE + hosts, encoding="utf-8")
    run = done(suite, tmp_path / "run")
    _assert_answered(run, tmp_path / "run")
    for trial in run.trials:
        raw = load_raw(tmp_path / "run", trial.trial)[-1]
        assert [bool(share) for share in raw.clients_cpu] == [True, True]
        # Locust's master names each worker after its machine.
        assert {f"Worker 'tare-test-{name}_" in raw.errors for name in ("client", "client-2")} == {True}
    assert there.left() == ""


def _assert_answered(run: Run, folder: Path) -> None:
    assert set(outcomes(run).values()) == {"ok"}
    for trial in run.trials:
        result = json.loads(load_raw(folder, trial.trial)[-1].text)
        assert result["answers"] == {"200": 3 * 2 * 10, "50x": 0, "transport": 0, "other": 0}
        assert sum(result["over_time"]["200"]) == 3 * 2 * 10
        assert (result["users"], result["faults"]) == (3, [])
