"""Measure a suite on the machines of an inventory: find their kinds, prepare, start, watch, and bring the runs here.

A run on a machine needs no connection: it goes on when the controller is killed, which finds it again later. Blocks of
a machine that is lost are given to others of its kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

from tare.features.fleet.ansible import Playbooks, TaskResult
from tare.features.fleet.comparison import Kind, kinds_of
from tare.features.fleet.state import (
    GONE,
    JOURNAL_BYTES,
    Blocks,
    Fleet,
    Member,
    Standing,
    State,
    facts_script,
    given_over,
    read_answered_facts,
    read_standing,
    save,
    spread,
    standing_script,
    written,
)
from tare.model.errors import TareError, UsageError, why_of
from tare.model.journal import load
from tare.runner.schedule import DurationEstimates
from tare.suites.plan import Block, estimate, remaining, to_run
from tare.suites.suite import Suite
from tare.suites.user_files import own_files

ON_MACHINES = "/var/lib/tare-fleet"
_SILENT = 3  # looks in a row without an answer: then a machine is lost
_STARTS = 3  # how often the run of a machine is begun again that ended without a word, as by a reboot
_AGAIN: dict[State, State] = {"lost": "runs", "failed": "prepared"}


class Stopped(Exception):
    """The user has asked to stop."""


@dataclass(frozen=True)
class Asked:
    """What is to be measured, and where: the suite and its file, the fleet's folder, and variables for the roles."""

    suite: Suite
    path: Path
    folder: Path
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def there(self) -> str:
        """The folder of the run on the machines."""
        return f"{ON_MACHINES}/{self.folder.resolve().name}"


@dataclass
class Controller:
    """Measures a fleet; tells `report` after each change. `every` is the seconds from one look to the next.

    Unless it `keeps` it, what is known is not written: another process may measure the fleet.
    """

    asked: Asked
    fleet: Fleet
    playbooks: Playbooks
    report: Callable[[], None]
    stop: Event
    every: float
    keeps: bool = True

    # --- before ------------------------------------------------------------------------------------------------------

    def look(self) -> tuple[Kind, ...]:
        """Ask the machines what they are, and spread the blocks over them; return their kinds.

        One that was lost, or has failed, has another chance. Raises TareError if none answers.
        """
        members = self.fleet.members

        def learn(member: Member, result: TaskResult) -> None:
            if result.outcome == "ok":
                member.facts, member.seen = read_answered_facts(result.text), time.time()
                if member.state in GONE and member.blocks:
                    member.state, member.reason = _AGAIN[member.state] if member.start else "asked", ""
            elif member.state not in GONE:
                self._gone(member, "lost", result.reason)
            self.report()

        self._run("ask", [*members.values()], learn, tare_scripts=dict.fromkeys(members, facts_script()))
        answered = {name: each.facts for name, each in members.items() if each.facts}
        if not any(each.state not in GONE for each in members.values()):
            first = next(iter(members.values()))
            what = f"no machine can be reached; {first.name}: {first.reason}"
            raise TareError(what, "ansible -i INVENTORY servers -m ping tries it")
        kinds = kinds_of(answered)
        if not any(each.blocks for each in members.values()):
            for kind in kinds:
                self._spread(kind)
        self._keep()
        return kinds

    def _spread(self, kind: Kind) -> None:
        alive = [name for name in kind.machines if self.fleet.members[name].state not in GONE]
        for name, blocks in spread(self.asked.suite.blocks, alive).items():
            member = self.fleet.members[name]
            member.kind = kind.name
            self._assign(member, blocks)

    def _assign(self, member: Member, blocks: Blocks) -> None:
        member.blocks = blocks
        member.trials = sum(len(block.steps) for block in blocks_of(self.asked.suite, blocks))

    def prepare(self) -> None:
        """Install tare and make the images where these are not there. Where that fails, others get the blocks."""
        waiting = [each for each in self.fleet.having("asked") if each.blocks]

        def learn(member: Member, result: TaskResult) -> None:
            member.seen, member.said = time.time(), result.step
            if result.outcome != "ok":
                self._gone(
                    member, "failed" if result.outcome == "failed" else "lost", f"{result.step}: {result.reason}"
                )
            self.report()

        self._run("prepare", waiting, learn)
        for each in waiting:
            if each.state == "asked":
                each.state, each.said = "prepared", ""
        self._give_over()
        self._keep()

    # --- measuring ---------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Start the runs, and look after them until all have ended and are here."""
        self._start([each for each in self.fleet.having("prepared") if each.blocks])
        while self.fleet.having("runs", "ended"):
            self._look_after()
            self._give_over()
            self.collect(self.fleet.having("ended"))
            if self.fleet.having("runs") and self.stop.wait(self.every):
                raise Stopped

    def _start(self, members: Sequence[Member]) -> None:
        if not members:
            return
        for member in members:
            member.start += 1
            member.state, member.said, member.silent = "runs", "starts", 0
        self._keep()

        def learn(member: Member, result: TaskResult) -> None:
            if result.outcome == "failed":
                self._gone(member, "failed", result.reason)
            self.report()

        self._run(
            "start",
            members,
            learn,
            tare_blocks_of={each.name: written(each.blocks) for each in members},
            tare_starts={each.name: each.start for each in members},
        )

    def _look_after(self) -> None:
        """Look how far the runs are, and bring what is new of their journals."""
        going = self.fleet.having("runs")
        again: list[Member] = []

        def learn(member: Member, result: TaskResult) -> None:
            if result.outcome == "ok":
                if not self._learn(member, read_standing(result.text)):
                    again.append(member)
            else:
                member.silent += 1
                member.reason = result.reason
                if member.silent >= _SILENT:
                    self._gone(member, "lost", result.reason)
            self.report()

        scripts = {each.name: standing_script(self.asked.there, each.start, each.size) for each in going}
        self._run("ask", going, learn, tare_scripts=scripts)
        self._start(again)
        self._keep()

    def _learn(self, member: Member, standing: Standing) -> bool:
        """Learn how far a run is; return False if it is to be begun again, as it has gone without a word."""
        member.seen, member.silent, member.reason = time.time(), 0, ""
        member.said = standing.left or standing.said or member.said
        self._add(member, standing)
        if standing.exit_code is not None and len(standing.new) < JOURNAL_BYTES:
            if standing.exit_code:
                self._gone(member, "failed", standing.said or f"exit code {standing.exit_code}")
            else:
                member.state = "ended"
        elif standing.exit_code is None and not standing.runs:
            if member.start < _STARTS:
                return False
            self._gone(member, "failed", f"the run ended {member.start} times without a word")
        return True

    def _add(self, member: Member, standing: Standing) -> None:
        """Add what is new of a machine's journal to what is here."""
        place = self.asked.folder / member.name
        try:
            place.mkdir(exist_ok=True)
            if standing.size < member.size:  # the machine was set up anew
                member.size = member.done = 0
                return
            if standing.record:
                (place / "run.json").write_bytes(standing.record)
                (place / "suite.toml").write_text(self.asked.suite.text, encoding="utf-8")
            if standing.new:
                mode = "r+b" if member.size else "wb"
                with (place / "trials.jsonl").open(mode) as file:
                    file.seek(member.size)
                    file.write(standing.new)
                    file.truncate()
        except OSError as error:
            member.reason = f"cannot be kept here: {why_of(error)}"
            return
        member.size += len(standing.new)
        member.done += standing.new.count(b"\n")

    def _give_over(self) -> None:
        """Deal out the blocks that machines have not measured, and never will, to others of their kind."""
        for lost in [each for each in self.fleet.having(*GONE) if each.blocks]:
            missing = frozenset(block.index for block in self._missing(lost))
            others = [each for each in self.fleet.of_kind(lost.kind) if each.state not in GONE]
            if missing and not others:
                self._note(f"no machine of kind {lost.kind} is left for blocks {written(missing)} of {lost.name}")
            if not missing or not others:
                continue
            self._assign(lost, lost.blocks - missing)
            dealt = given_over(missing, {each.name: each.blocks for each in others})
            more = [each for each in others if dealt[each.name] != each.blocks]
            self._note(
                f"{lost.name} is {'lost' if lost.state == 'lost' else 'failing'} ({lost.reason}): its blocks "
                f"{written(missing)} go to {', '.join(each.name for each in more)}"
            )
            for each in more:
                self._assign(each, dealt[each.name])
            self._start([each for each in more if each.start])

    def _missing(self, member: Member) -> Sequence[Block]:
        """Return the blocks of a machine of which trials are not here; a stack that it skips is not missing."""
        blocks = blocks_of(self.asked.suite, member.blocks)
        try:
            trials = load(self.asked.folder / member.name).trials
        except UsageError:
            return blocks
        skipped = {(trial.workload, trial.stack) for trial in trials if trial.status == "skipped"}
        steps = (step for block in blocks for step in block.steps)
        cannot = {step.trial for step in steps if (step.workload, step.stack) in skipped}
        return remaining(blocks, cannot | {trial.trial for trial in trials})

    # --- afterwards --------------------------------------------------------------------------------------------------

    def collect(self, members: Sequence[Member]) -> None:
        """Bring the runs of these machines here, whole; what cannot be brought is said."""
        if not members:
            return
        failed: dict[str, str] = {}

        def learn(member: Member, result: TaskResult) -> None:
            if result.outcome != "ok":
                failed[member.name] = f"{result.step}: {result.reason}"

        self._run("collect", members, learn, tare_fleet=str(self.asked.folder.resolve()))
        for member in members:
            member.reason = failed.get(member.name, member.reason)
            if member.name in failed:
                self._note(f"{member.name}: not all of its run is here: {member.reason}")
            else:
                self._count(member)
            if member.state == "ended":
                member.state = "collected"
        self._keep()

    def _count(self, member: Member) -> None:
        """Take from the run that is here how far it is."""
        try:
            member.done = len(load(self.asked.folder / member.name).trials)
            member.size = (self.asked.folder / member.name / "trials.jsonl").stat().st_size
        except (UsageError, OSError) as error:
            member.reason = str(error)

    def end_runs(self) -> None:
        """Ask the runs to end, after the trial that they are in, and bring what they have."""
        going = self.fleet.having("runs")
        self._run("end", going, lambda *_: None)
        self.collect(going)
        for each in going:
            each.state = "prepared"
        self._keep()

    def clean(self) -> None:
        """Remove the runs, which are here, from the machines."""
        here = [each for each in self.fleet.having("collected") if not each.reason]

        def learn(member: Member, result: TaskResult) -> None:
            if result.outcome != "ok":
                self._note(f"{member.name}: not all could be removed: {result.task}: {result.reason}")

        self._run("clean", here, learn)
        self._keep()

    # --- what all need -----------------------------------------------------------------------------------------------

    def _run(
        self, name: str, members: Sequence[Member], told: Callable[[Member, TaskResult], None], **variables: Any
    ) -> None:
        """Run a playbook on these machines, if there are any; raises Stopped, and TareError."""
        common = {"tare_suite": str(self.asked.path.resolve()), "tare_folder": self.asked.there}
        known = {each.name: each for each in members}

        def heed(result: TaskResult) -> None:
            if result.machine in known:
                told(known[result.machine], result)

        if not known:
            return
        self.playbooks.run(name, [*known], {**common, **self.asked.variables, **variables}, heed)
        if self.stop.is_set():
            raise Stopped

    def _gone(self, member: Member, state: State, reason: str) -> None:
        member.state, member.reason = state, reason

    def _note(self, text: str) -> None:
        if text not in self.fleet.notes:
            self.fleet.notes.append(text)
        self.report()

    def _keep(self) -> None:
        """Write what is known, for other terminals; a full disk does not end the measurement."""
        try:
            if self.keeps:
                save(self.asked.folder, self.fleet)
        except OSError as error:
            self._note(f"{self.asked.folder}: cannot be written: {why_of(error)}")
        self.report()


def blocks_of(suite: Suite, numbers: Blocks) -> tuple[Block, ...]:
    """Return the blocks of a suite with these numbers, without the trials that it excludes."""
    return to_run(replace(suite, only=numbers))


def is_carried(suite: Suite, path: Path) -> bool:
    """Return whether machines get a file or folder that a suite names: if it is below the suite's folder.

    None with a brace in its path: a suite is not trusted, and Ansible would run what stands in two of them.
    """
    return path.is_relative_to(suite.folder.absolute()) and "{" not in str(path)


def carried(suite: Suite) -> dict[str, str]:
    """Return the files and folders that machines get, by their paths below the suite's folder."""
    folder = suite.folder.absolute()
    return {str(path.relative_to(folder)): str(path) for path in own_files(suite) if is_carried(suite, path)}


def seconds_of(suite: Suite, numbers: Blocks) -> float:
    """Estimate how long these blocks take a machine."""
    return estimate(blocks_of(suite, numbers), DurationEstimates(suite.by_name).seconds_of)
