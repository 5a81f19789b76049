"""A run as a job: it takes a suite to a finished run folder, prints nothing, and reports to one observer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from tare.errors import Rebooted, TareError, UsageError, why_of
from tare.hosts.ledger import ledgers, leftovers
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.lock import only_one
from tare.hosts.needs import refuse_incomplete
from tare.hosts.undoing import in_short
from tare.images.adopted import refuse_absent, wanted_image
from tare.journal import Journal, RunRecord, holds_no_trial, make_within
from tare.model.trials import Image, Stop, StopReason
from tare.running.leftovers import remove_left
from tare.running.machines import Machines, Problems, connected_machines
from tare.running.own_images import check_programs, own_images
from tare.running.preparation import Needs, Preparation, prepare, testbed_with_images
from tare.running.progress import Preparing, ProgressReporter, RunBegins, StackSkipped, Warned, preparing
from tare.running.records import check_same, make_record
from tare.running.runner import Work, work_through
from tare.running.secrets import names_of_secrets
from tare.suites.suite import Suite, read_suite


@dataclass(frozen=True)
class Job:
    """A suite to run into a folder, within a budget. The journal of a run that is continued has its record."""

    suite: Suite
    journal: Journal
    budget_seconds: float | None


def new_job(suite: Suite, out: Path | None = None, budget_seconds: float | None = None) -> Job:
    """Return the job of a new run. Raises UsageError if its folder exists, unless a run ended there without a trial."""
    folder = out or Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{suite.name}"
    if folder.exists() and not holds_no_trial(folder):
        raise UsageError(f"{folder}: the folder already exists", "choose another --out, or continue it with --resume")
    return Job(suite, Journal(folder), budget_seconds or suite.budget_seconds)


def resumed_job(folder: Path, budget_seconds: float | None = None) -> Job:
    """Return the job that continues a run; raises UsageError if the folder is none."""
    journal = Journal(folder)
    record = journal.read()
    if not os.access(folder, os.W_OK):
        owner = folder.stat().st_uid
        own = f"it belongs to user {owner}, who may go on" if owner != os.geteuid() else "is it mounted read-only?"
        hint = f"{own}; `tare report` and other readers need not write"
        raise UsageError(f"{folder}: the run cannot go on, as nothing can be written there", hint)
    for name in ("raw", "telemetry"):
        make_within(folder, name)
    suite = read_suite(folder / "suite.toml", folder=record.paths_from)
    return Job(suite, journal, budget_seconds or suite.budget_seconds)


def of_blocks(job: Job, numbers: frozenset[int]) -> Job:
    """Return a job of some blocks, from 0, all of which are measured; raises UsageError where it has not so many."""
    if beyond := [number + 1 for number in numbers if number >= job.suite.blocks]:
        raise UsageError(f"--blocks: the suite has no block {max(beyond)}", f"its blocks are 1-{job.suite.blocks}")
    return replace(job, suite=replace(job.suite, only=numbers, until="blocks"))


def only_root(command: str) -> None:
    """Raise TareError unless this is root."""
    if os.geteuid():
        raise TareError("only root can start containers, machines and networks", f"sudo {command}")


def carry_out(job: Job, report: ProgressReporter) -> Stop:
    """Run a suite to its end, or to Ctrl-C; return why it ended. The journal then has all trials.

    It puts this process into a mount namespace of its own, for good. Raises TareError if nothing can be measured.
    """
    say, before = preparing(report), job.journal.record
    with only_one(), _usual_scheduling():
        refuse_incomplete(LocalHost())
        refuse_absent(stack.own.image(job.suite.image) for stack in job.suite.stacks)
        _remove_left(say, report)
        isolate_mounts()
        image = wanted_image(job.suite.image, job.suite.by_name.values(), say, before.image_origin if before else "")
        job = replace(job, suite=job.suite.in_image(image))
        own = own_images(job.suite, say, before)
        check_programs(job.suite, image, own)
        return _measure_through_reboots(job, image, own, report)


def _measure_through_reboots(job: Job, image: Image, own: Mapping[str, Image], report: ProgressReporter) -> Stop:
    """Measure; where a machine was rebooted, make again what is gone, and go on within what is left of the budget."""
    began, budget_seconds = monotonic(), job.budget_seconds
    while True:
        try:
            with _reported_leftovers(report), connected_machines(job.suite.hosts, image) as machines:
                return _measure(job, image, own, machines, report)
        except Rebooted as error:
            report(Warned(f"{error}: what was made there is made again, and the run goes on"))
        if budget_seconds is not None:
            job = replace(job, budget_seconds=max(1.0, budget_seconds - (monotonic() - began)))


def _measure(job: Job, image: Image, own: Mapping[str, Image], machines: Machines, report: ProgressReporter) -> Stop:
    suite, journal, say = job.suite, job.journal, preparing(report)
    before = journal.record
    needs = Needs(
        stacks=suite.stacks,
        workloads=tuple(suite.by_name.values()),
        limits=suite.limits,
        release=suite.image.release,
        telemetry=journal.folder / "telemetry",
        sample_seconds=suite.sample_seconds,
        lent=journal.keep_lent,
        beside=before.beside if before else {},
        own=own,
    )
    preparation = prepare(needs, image, machines, say)
    if machines.hosts.client is None:
        os.sched_setaffinity(0, preparation.spec.run.placement.client)
    _report_skipped(suite, preparation.unusable, report)
    record = make_record(suite, preparation)
    if before is not None:
        check_same(before, record)
    try:
        with testbed_with_images(preparation, say) as (testbed, failed):
            _report_skipped(suite, failed, report, preparation.unusable)
            _begin(job, record, report)
            work = Work(suite, journal.run.trials, {**preparation.unusable, **failed}, job.budget_seconds)
            report(_beginning(job, work, preparation))
            stop = work_through(work, testbed, journal, report)
    except KeyboardInterrupt:
        if not (journal.folder / "run.json").exists():
            raise
        stop = Stop(StopReason.INTERRUPT)
    with suppress(OSError):  # on a full disk the record keeps its empty stop reason
        journal.end(stop)
    return stop


def _begin(job: Job, record: RunRecord, report: ProgressReporter) -> None:
    """Make the run folder, or add to the record of a resumed run which client root it has now."""
    journal = job.journal
    if before := journal.record:
        journal.keep(replace(before, clients=before.clients | record.clients))
        return
    if journal.folder.exists():
        text = f"{journal.folder}: a run was ended there before its first trial; this one takes its place"
        report(Preparing(text))
    if names := names_of_secrets(job.suite.text):
        report(Warned(f"the run folder keeps the suite as it is written, with {', '.join(names)}: show it to nobody"))
    try:
        journal.create(record, job.suite.text)
    except OSError as error:
        what = f"{journal.folder}: cannot be made: {why_of(error)}"
        raise UsageError(what, "choose another folder with --out") from error


def _beginning(job: Job, work: Work, preparation: Preparation) -> RunBegins:
    cpus = () if job.suite.hosts.server else preparation.spec.run.placement.server
    return RunBegins(job.journal.run, len(job.suite.stacks) - len(work.unusable), job.suite.by_name, cpus)


def _report_skipped(
    suite: Suite, unusable: Problems, report: ProgressReporter, earlier: Problems | None = None
) -> None:
    """Report the stacks that cannot run; raises TareError if nothing remains to compare."""
    for stack, problems in unusable.items():
        report(StackSkipped(stack, problems))
    skipped = {*unusable, *(earlier or {})}
    if suite.baseline in skipped and len(skipped) < len(suite.stacks):
        what = f"the baseline {suite.baseline} cannot run here, and nothing could be compared with it"
        raise TareError(what, 'fix this, or name another stack: baseline = "…" in [suite]')
    if len(skipped) == len(suite.stacks):
        raise TareError("none of the suite's stacks can run here", "`tare doctor` says how to fix this")


@contextmanager
def _usual_scheduling() -> Iterator[None]:
    """Context manager: run at the usual priority, and give CPUs and priority back after the block.

    What this process starts inherits its priority, but what an engine's daemon starts does not. A run also keeps this
    process off the CPUs of its instances.
    """
    cpus, priority = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, priority)
        os.sched_setaffinity(0, cpus)


def _remove_left(say: Callable[[str], None], report: ProgressReporter) -> None:
    """Remove what killed runs have left; report what stays."""
    if leftovers(ledgers()):
        say("removing what a killed run has left")
    for trouble in remove_left(lambda _: None):
        report(Warned(f"a killed run left what cannot be undone: {trouble}"))


@contextmanager
def _reported_leftovers(report: ProgressReporter) -> Iterator[None]:
    """Report what a run could not undo, which stays in the ledger."""
    before = leftovers(ledgers())
    try:
        yield
    finally:
        after = leftovers(ledgers())
        stays = [(left, argv) for path, left in after.items() if path not in before for argv in left.entries]
        for left, argv in stays:
            machine = f" (on {left.machine.ssh})" if left.machine else ""
            report(Warned(f"not undone: {in_short(argv)}{machine}"))
        if stays:
            report(Warned("`tare clean` tries again, and says what is in the way"))
