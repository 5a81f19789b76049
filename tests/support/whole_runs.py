"""Suites of whole runs on real technologies, and what has to be there after one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tare.model.run_folder import load_run
from tare.model.trial import SERVICE_READY, Trial
from tare.suites.plan import plan
from tare.suites.suite import read_suite

# As that of examples/quick.toml: for each set of packages, a machine builds another image, in half a minute.
IMAGE = """
[image]
packages = ["nginx-light", "redis-server"]
"""
SUITE = """\
[suite]
stacks = ["native", "crun", "bubblewrap", "docker"]
blocks = 2
seed = 5

[[workloads]]
use = "dhrystone"
duration = "200ms"

[[workloads]]
use = "startup"
"""
SERVED = f"""\
[suite]
stacks = ["native", "crun", "nspawn"]
blocks = 1
{IMAGE}
[[workloads]]
use = "nginx"
clients = [5]
duration = "200ms"
"""
# What a run of tare's own fakes takes depends on nothing but tare; this one hangs in its first trial for a minute.
HANGING = """\
[suite]
stacks = ["stuck"]

[stacks.stuck]
stack = "fake"
fails = "hang"

[[workloads]]
use = "dhrystone"
"""


def planned(suite: Path) -> list[str]:
    """Trials of a suite that are no skips."""
    return [step.trial for block in plan(read_suite(suite)) for step in block.trials if step.stack != "docker"]


def assert_in_turns(trials: Sequence[Trial]) -> None:
    """Check that the stacks of a block had turns side by side: each one of a number before any had the next."""
    in_time = sorted((turn.began, turn.number) for trial in trials for turn in trial.turns)
    numbers = [number for _, number in in_time]
    assert numbers == sorted(numbers)
    assert set(Counter(numbers).values()) == {len(trials)}
    in_turns = (value for trial in trials for value in trial.values if value.metric != SERVICE_READY)
    counts = {len(value.turns) for value in in_turns}
    assert len(counts) == 1
    assert min(counts) > 1


def assert_complete(run: Path, suite: Path) -> tuple[Trial, ...]:
    """Check that no trial of a run is lost or doubled, and give them."""
    trials = load_run(run).trials
    counts = Counter(trial.trial for trial in trials if trial.status != "skipped")
    assert set(counts) == set(planned(suite))
    assert set(counts.values()) == {1}
    assert [(trial.trial, trial.reason) for trial in trials if trial.status == "failed"] == []
    assert Counter((trial.stack, trial.workload) for trial in trials if trial.status == "skipped") == {
        ("docker", "dhrystone"): 1,
        ("docker", "startup"): 1,
    }
    return trials
