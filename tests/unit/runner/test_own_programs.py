"""A run whose stacks have commands and images of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes import bare_context, planned_of, suite
from runs import MACHINE, make_run, pairs
from tare_fake.technology import Fake

from tare.contracts.workloads import Setup
from tare.errors import UsageError
from tare.hosts.local import LocalHost
from tare.model.trials import Raw, Trial
from tare.report.findings import findings
from tare.runner.block import BlockRunner
from tare.runner.events import ignore_event
from tare.runner.job import check_same
from tare.statistics.summarize import summarize
from tare.suites.own_program import OwnProgram
from tare.suites.plan import plan
from tare.workloads.dhrystone import Dhrystone


@dataclass(frozen=True)
class Commanded(Dhrystone):
    """Dhrystone that says which command it was given."""

    command: tuple[str, ...] = ("usual",)

    def commanded(self, command: tuple[str, ...]) -> Commanded:
        return replace(self, command=command)

    def measure(self, setup: Setup) -> Iterator[Raw]:
        for raw in super().measure(setup):
            yield replace(raw, argv=self.command)


def measured(folder: Path) -> dict[str, Trial]:
    testbed = bare_context(folder, LocalHost())
    new = replace(testbed.images.main, digest="new", origin="docker-archive:new.tar@1")
    testbed = replace(testbed, images=replace(testbed.images, by_stack={"new": new}))
    stacks = {stack: (Fake(),) for stack in ("old", "old-again", "new")}
    programs = {"new": OwnProgram(("better",))}
    rounds = BlockRunner(testbed, stacks, ("old", "old-again"), 1, programs=programs)
    block = plan(suite("old:", "new:", blocks=1, workloads=("dhrystone",)))[0]
    return {trial.stack: trial for trial, _ in rounds.run(block, planned_of(Commanded()), ignore_event)}


def test_each_stack_runs_its_own_command(tmp_path: Path) -> None:
    trials = measured(tmp_path)
    assert {stack: trial.status for stack, trial in trials.items()} == dict.fromkeys(trials, "ok")
    commands = {stack: trial.commands[-1] for stack, trial in trials.items()}
    assert commands == {"old": ("usual",), "old-again": ("usual",), "new": ("better",)}


def test_a_trial_proves_which_image_of_its_own_it_ran(tmp_path: Path) -> None:
    trials = measured(tmp_path)
    assert dict(trials["new"].proof)["image"] == "docker-archive:new.tar@1"
    assert "image" not in dict(trials["old"].proof)


def test_what_differs_by_wish_is_said_and_may_be_faster_than_bare_metal() -> None:
    run = pairs([117.0, 116.0, 118.0, 117.5, 116.5, 117.2], [100.0] * 6)
    families = {"native": ("bare metal",), "docker": ("container",)}
    own = {"docker": {"command": "gzip -1"}}
    summary = summarize(replace(run, record=replace(run.record, families=families, own=own)))  # type: ignore[arg-type]
    cell = summary.headline("dhrystone", "docker")
    assert cell.verdict == "better"
    assert "faster-than-bare-metal" not in {caution.kind for caution in cell.cautions}
    doubt, *_ = findings(summary, MACHINE).doubts.sentences
    assert doubt.startswith("docker: the suite sets what runs there, ")
    assert doubt.endswith(": command gzip -1.")


def test_a_run_does_not_go_on_with_another_program_of_a_stack() -> None:
    before = make_run([]).record
    now = replace(before, own={"docker": {"image": "docker://app@sha256:2"}})
    check_same(before, before)
    with pytest.raises(UsageError, match="the run was made with another image"):
        check_same(before, now)
