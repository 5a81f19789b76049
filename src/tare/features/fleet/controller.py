"""Controller of a fleet: identifies the machines of an inventory, prepares, starts, polls, and collects the runs.

A run on a machine needs no connection: it continues if the controller is killed, and the next controller finds it. The
blocks of a lost machine are reassigned to others of its type.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

from tare.features.fleet.ansible import Playbooks, TaskResult
from tare.features.fleet.comparison import FleetMachineType, group_by_type
from tare.features.fleet.state import (
    GONE_STATES,
    JOURNAL_BYTES,
    Blocks,
    Fleet,
    Member,
    RunProgress,
    State,
    assign_blocks,
    facts_script,
    format_blocks,
    parse_facts,
    parse_progress,
    progress_script,
    reassign_missing_blocks,
    save,
)
from tare.model.errors import TareError, UsageError, format_os_error
from tare.model.run_folder import load_run
from tare.runner.schedule import DurationEstimates
from tare.suites.plan import Block, estimate_total_seconds, plan_to_run, select_remaining
from tare.suites.suite import Suite
from tare.suites.user_files import list_user_files

REMOTE_FOLDER = "/var/lib/tare-fleet"
_MAX_SILENT_POLLS = 3  # polls in a row without an answer, after which a machine is lost
_MAX_STARTS = 3  # starts of a run that ends without an exit code, as by a reboot
_RETRY_STATES: dict[State, State] = {"lost": "runs", "failed": "prepared"}


class StopRequested(Exception):
    """The user has requested a stop."""


@dataclass(frozen=True)
class FleetOptions:
    """Options of a controller: the suite and its file, the folder of the fleet, and variables of the roles."""

    suite: Suite
    suite_path: Path
    folder: Path
    role_variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def remote_folder(self) -> str:
        """The folder of the run on the machines."""
        return f"{REMOTE_FOLDER}/{self.folder.resolve().name}"


@dataclass
class Controller:
    """Controller of a fleet; calls `report` after each change, and polls every `poll_interval_seconds`.

    Without `saves_state`, the state file is not written, as another process may measure the fleet.
    """

    options: FleetOptions
    fleet: Fleet
    playbooks: Playbooks
    report: Callable[[], None]
    stop: Event
    poll_interval_seconds: float
    saves_state: bool = True

    # --- before ------------------------------------------------------------------------------------------------------

    def identify_machines(self) -> tuple[FleetMachineType, ...]:
        """Read the facts of the machines, assign the blocks of a new fleet, and return the machine types.

        Machines that were lost or have failed are retried. Raises TareError if no machine can be reached.
        """
        members = self.fleet.members

        def handle_result(member: Member, result: TaskResult) -> None:
            if result.outcome == "ok":
                member.facts, member.seen = parse_facts(result.text), time.time()
                if member.state in GONE_STATES and member.blocks:
                    member.state, member.reason = _RETRY_STATES[member.state] if member.start else "asked", ""
            elif member.state not in GONE_STATES:
                self._mark_gone(member, "lost", result.reason)
            self.report()

        self._run_playbook(
            "ask", [*members.values()], handle_result, tare_scripts=dict.fromkeys(members, facts_script())
        )
        answered = {name: each.facts for name, each in members.items() if each.facts}
        if not any(each.state not in GONE_STATES for each in members.values()):
            first = next(iter(members.values()))
            message = f"no machine can be reached; {first.name}: {first.reason}"
            raise TareError(message, "ansible -i INVENTORY servers -m ping tries it")
        machine_types = group_by_type(answered)
        if not any(each.blocks for each in members.values()):
            for machine_type in machine_types:
                self._assign_to_type(machine_type)
        self._save()
        return machine_types

    def _assign_to_type(self, machine_type: FleetMachineType) -> None:
        """Assign the suite's blocks to the machines of a type that can be reached."""
        reachable = [name for name in machine_type.machines if self.fleet.members[name].state not in GONE_STATES]
        for name, blocks in assign_blocks(self.options.suite.blocks, reachable).items():
            member = self.fleet.members[name]
            member.kind = machine_type.name
            self._assign(member, blocks)

    def _assign(self, member: Member, blocks: Blocks) -> None:
        member.blocks = blocks
        member.trials = sum(len(block.trials) for block in select_blocks(self.options.suite, blocks))

    def prepare(self) -> None:
        """Install tare and build the images on each machine; reassign the blocks of machines where that fails."""
        waiting = [each for each in self.fleet.in_states("asked") if each.blocks]

        def handle_result(member: Member, result: TaskResult) -> None:
            member.seen, member.said = time.time(), result.step
            if result.outcome != "ok":
                self._mark_gone(
                    member, "failed" if result.outcome == "failed" else "lost", f"{result.step}: {result.reason}"
                )
            self.report()

        self._run_playbook("prepare", waiting, handle_result)
        for each in waiting:
            if each.state == "asked":
                each.state, each.said = "prepared", ""
        self._reassign_missing()
        self._save()

    # --- measuring ---------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Start the runs, and poll until all have ended and are collected; raises StopRequested."""
        self._start([each for each in self.fleet.in_states("prepared") if each.blocks])
        while self.fleet.in_states("runs", "ended"):
            self._poll()
            self._reassign_missing()
            self.collect(self.fleet.in_states("ended"))
            if self.fleet.in_states("runs") and self.stop.wait(self.poll_interval_seconds):
                raise StopRequested

    def _start(self, members: Sequence[Member]) -> None:
        if not members:
            return
        for member in members:
            member.start += 1
            member.state, member.said, member.silent = "runs", "starts", 0
        self._save()

        def handle_result(member: Member, result: TaskResult) -> None:
            if result.outcome == "failed":
                self._mark_gone(member, "failed", result.reason)
            self.report()

        self._run_playbook(
            "start",
            members,
            handle_result,
            tare_blocks_of={each.name: format_blocks(each.blocks) for each in members},
            tare_starts={each.name: each.start for each in members},
        )

    def _poll(self) -> None:
        """Read the progress of the runs and the new part of their journals; restart runs that have vanished."""
        running = self.fleet.in_states("runs")
        to_restart: list[Member] = []

        def handle_result(member: Member, result: TaskResult) -> None:
            if result.outcome == "ok":
                if not self._update_progress(member, parse_progress(result.text)):
                    to_restart.append(member)
            else:
                member.silent += 1
                member.reason = result.reason
                if member.silent >= _MAX_SILENT_POLLS:
                    self._mark_gone(member, "lost", result.reason)
            self.report()

        scripts = {each.name: progress_script(self.options.remote_folder, each.start, each.size) for each in running}
        self._run_playbook("ask", running, handle_result, tare_scripts=scripts)
        self._start(to_restart)
        self._save()

    def _update_progress(self, member: Member, progress: RunProgress) -> bool:
        """Update a machine's state; return False if its run must be restarted, as it vanished without an exit code."""
        member.seen, member.silent, member.reason = time.time(), 0, ""
        member.said = progress.time_left_line or progress.last_line or member.said
        self._append_journal(member, progress)
        # A poll that got the most bytes may have left some: the run has ended once all of its journal is here.
        if progress.exit_code is not None and len(progress.new_bytes) < JOURNAL_BYTES:
            if progress.exit_code:
                self._mark_gone(member, "failed", progress.last_line or f"exit code {progress.exit_code}")
            else:
                member.state = "ended"
        elif progress.exit_code is None and not progress.is_running:
            if member.start < _MAX_STARTS:
                return False
            self._mark_gone(member, "failed", f"the run ended {member.start} times without a word")
        return True

    def _append_journal(self, member: Member, progress: RunProgress) -> None:
        """Append the new part of a machine's journal to the local copy, so that a dead machine loses little."""
        copy = self.options.folder / member.name
        try:
            copy.mkdir(exist_ok=True)
            if progress.journal_bytes < member.size:  # the machine was reinstalled: its journal starts again
                member.size = member.done = 0
                return
            if progress.record:
                (copy / "run.json").write_bytes(progress.record)
                (copy / "suite.toml").write_text(self.options.suite.text, encoding="utf-8")
            if progress.new_bytes:
                mode = "r+b" if member.size else "wb"
                with (copy / "trials.jsonl").open(mode) as file:
                    file.seek(member.size)
                    file.write(progress.new_bytes)
                    file.truncate()
        except OSError as error:
            member.reason = f"cannot be kept here: {format_os_error(error)}"
            return
        member.size += len(progress.new_bytes)
        member.done += progress.new_bytes.count(b"\n")

    def _reassign_missing(self) -> None:
        """Reassign the missing blocks of lost and failed machines to others of their type."""
        for lost in [each for each in self.fleet.in_states(*GONE_STATES) if each.blocks]:
            missing = frozenset(block.index for block in self._find_missing_blocks(lost))
            others = [each for each in self.fleet.of_type(lost.kind) if each.state not in GONE_STATES]
            if missing and not others:
                self._add_note(
                    f"no machine of type {lost.kind} is left for blocks {format_blocks(missing)} of {lost.name}"
                )
            if not missing or not others:
                continue
            self._assign(lost, lost.blocks - missing)
            reassigned = reassign_missing_blocks(missing, {each.name: each.blocks for each in others})
            receivers = [each for each in others if reassigned[each.name] != each.blocks]
            self._add_note(
                f"{lost.name} is {'lost' if lost.state == 'lost' else 'failing'} ({lost.reason}): its blocks "
                f"{format_blocks(missing)} go to {', '.join(each.name for each in receivers)}"
            )
            for each in receivers:
                self._assign(each, reassigned[each.name])
            self._start([each for each in receivers if each.start])

    def _find_missing_blocks(self, member: Member) -> Sequence[Block]:
        """Return the blocks of a machine with trials that are not here; trials of a skipped stack are not missing."""
        blocks = select_blocks(self.options.suite, member.blocks)
        try:
            trials = load_run(self.options.folder / member.name).trials
        except UsageError:
            return blocks
        skipped = {(trial.workload, trial.stack) for trial in trials if trial.status == "skipped"}
        steps = (step for block in blocks for step in block.trials)
        impossible = {step.trial for step in steps if (step.workload, step.stack) in skipped}
        return select_remaining(blocks, impossible | {trial.trial for trial in trials})

    # --- afterwards --------------------------------------------------------------------------------------------------

    def collect(self, members: Sequence[Member]) -> None:
        """Copy the whole runs of these machines here; add a note for each run that cannot be copied."""
        if not members:
            return
        failed: dict[str, str] = {}

        def handle_result(member: Member, result: TaskResult) -> None:
            if result.outcome != "ok":
                failed[member.name] = f"{result.step}: {result.reason}"

        self._run_playbook("collect", members, handle_result, tare_fleet=str(self.options.folder.resolve()))
        for member in members:
            member.reason = failed.get(member.name, member.reason)
            if member.name in failed:
                self._add_note(f"{member.name}: not all of its run is here: {member.reason}")
            else:
                self._count_results(member)
            if member.state == "ended":
                member.state = "collected"
        self._save()

    def _count_results(self, member: Member) -> None:
        """Set the progress of a machine from the local copy of its run."""
        try:
            member.done = len(load_run(self.options.folder / member.name).trials)
            member.size = (self.options.folder / member.name / "trials.jsonl").stat().st_size
        except (UsageError, OSError) as error:
            member.reason = str(error)

    def end_runs(self) -> None:
        """Stop the runs after their current trials, and collect them."""
        running = self.fleet.in_states("runs")
        self._run_playbook("end", running, lambda *_: None)
        self.collect(running)
        for each in running:
            each.state = "prepared"  # the next `tare fleet run` continues them
        self._save()

    def clean(self) -> None:
        """Remove the collected runs from the machines."""
        collected = [each for each in self.fleet.in_states("collected") if not each.reason]

        def handle_result(member: Member, result: TaskResult) -> None:
            if result.outcome != "ok":
                self._add_note(f"{member.name}: not all could be removed: {result.task}: {result.reason}")

        self._run_playbook("clean", collected, handle_result)
        self._save()

    # --- shared ------------------------------------------------------------------------------------------------------

    def _run_playbook(
        self, name: str, members: Sequence[Member], on_result: Callable[[Member, TaskResult], None], **variables: Any
    ) -> None:
        """Run a playbook on these machines, if there are any; raises StopRequested and TareError."""
        common = {"tare_suite": str(self.options.suite_path.resolve()), "tare_folder": self.options.remote_folder}
        known = {each.name: each for each in members}

        def forward_result(result: TaskResult) -> None:
            if result.machine in known:
                on_result(known[result.machine], result)

        if not known:
            return
        self.playbooks.run(name, [*known], {**common, **self.options.role_variables, **variables}, forward_result)
        if self.stop.is_set():
            raise StopRequested

    def _mark_gone(self, member: Member, state: State, reason: str) -> None:
        member.state, member.reason = state, reason

    def _add_note(self, text: str) -> None:
        if text not in self.fleet.notes:
            self.fleet.notes.append(text)
        self.report()

    def _save(self) -> None:
        """Write the state file, for other terminals and for resuming; a full disk does not end the measurement."""
        try:
            if self.saves_state:
                save(self.options.folder, self.fleet)
        except OSError as error:
            self._add_note(f"{self.options.folder}: cannot be written: {format_os_error(error)}")
        self.report()


def select_blocks(suite: Suite, numbers: Blocks) -> tuple[Block, ...]:
    """Return the blocks of a suite with these numbers, without the trials that it excludes."""
    return plan_to_run(replace(suite, only_blocks=numbers))


def is_uploaded(suite: Suite, path: Path) -> bool:
    """Return whether a file or folder of a suite is uploaded: it must be below the suite's folder.

    Paths with a brace are not uploaded: a suite is untrusted, and Ansible evaluates `{{ … }}` as a template.
    """
    return path.is_relative_to(suite.folder.absolute()) and "{" not in str(path)


def files_to_upload(suite: Suite) -> dict[str, str]:
    """Return the files and folders to upload, by their paths relative to the suite's folder."""
    folder = suite.folder.absolute()
    return {str(path.relative_to(folder)): str(path) for path in list_user_files(suite) if is_uploaded(suite, path)}


def estimate_measuring_seconds(suite: Suite, numbers: Blocks) -> float:
    """Return the estimated seconds that a machine needs for these blocks."""
    return estimate_total_seconds(
        select_blocks(suite, numbers), DurationEstimates(suite.by_name, control=suite.control).seconds_of
    )
