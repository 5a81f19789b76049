"""`tare run`: run a suite; write a run folder with its report."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare import __version__
from tare.cli.console import Console
from tare.cli.display import watching
from tare.cli.ending import WHY, leave, show_end
from tare.cli.resuming import check_same
from tare.cli.stopping import stoppable
from tare.contracts import Workload
from tare.doctor.noise import assess
from tare.errors import TareError, UsageError
from tare.hosts.ledger import leftovers, state_folder
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.lock import only_one
from tare.hosts.tuning import look
from tare.images.adopted import images_beside, wanted_image
from tare.images.image import built_image, carried
from tare.images.recipes import client_recipe, machine_recipe
from tare.journal import FORMAT, Journal, Run, RunRecord, WorkloadRecord, holds_no_trial, load, make_within
from tare.machines import Facts
from tare.model import Image, Limits, Problem
from tare.running.nesting import makes_machine, prepare_nested
from tare.running.own_images import check_programs, own_images
from tare.running.runner import Work, work_through
from tare.running.testbed import Reached, Wanted, find_unusable, give_image, placed, prepared_testbed, reached
from tare.suites.suite import Suite, read_suite
from tare.units import parse_duration

if TYPE_CHECKING:
    from tare.live.watch import LivePage


@dataclass(frozen=True)
class Session:
    """What a call of `tare run` works on; `resumed` is the run that it goes on with, `page` shows it in a browser.

    `own` are the images that stacks have of their own, once they are there.
    """

    suite: Suite
    journal: Journal
    budget_seconds: float | None
    resumed: Run | None
    page: LivePage | None = None
    own: Mapping[str, Image] = field(default_factory=dict)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The workloads with their settings."""
        return tuple(planned.workload for planned in self.suite.workloads)


def run(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    suite: Annotated[Path | None, typer.Argument(help="The suite to run, a TOML file.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to make for the run [default: runs/TIME-SUITE].")] = None,
    budget: Annotated[str | None, typer.Option(help="Time to spend, such as 30m; ends at a block's end.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with a run that was stopped.", metavar="RUN")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Show the report in a browser while it grows.")] = False,
    port: Annotated[
        int | None, typer.Option(help="The port of --serve [default: a free one].", min=1, max=65535, metavar="PORT")
    ] = None,
) -> None:
    """Run a suite: every stack, every workload, in randomized blocks, and write the report."""
    session = _session(suite, out, _seconds(budget), resume)
    carry_out(session, "run", (port or 0) if serve or port else None)


def carry_out(session: Session, command: str, port: int | None = None) -> None:
    """Run a suite, print its table and write its report; raises typer.Exit after Ctrl-C, and TareError.

    Meanwhile the report is served on a port of the loopback address, if one is given; 0 is a free one.
    """
    only_root(command)
    console = Console(stderr=True)
    say = partial(console.print, style="dim", markup=False, highlight=False, soft_wrap=True)
    with nullcontext() if port is None else _served(port, say) as page:
        stopped = _measure(replace(session, page=page), console)
        report = show_end(session.journal.folder, console, stopped)
        if page:
            page.end(WHY.get(stopped, stopped), report)
    leave(session.journal.folder, stopped)


def _served(port: int, say: Callable[[str], None]) -> AbstractContextManager[LivePage]:
    from tare.live.watch import served  # noqa: PLC0415 - only who asks for it loads its libraries

    return served(port, say)


def _measure(session: Session, console: Console) -> str:
    """Run the suite with all that it needs, and take that away again; gives the stop reason."""
    with only_one(), stoppable():
        _warn_of_leftovers(console)
        isolate_mounts()
        again = session.resumed.record.image_origin if session.resumed else ""
        say = partial(console.print, style="dim", markup=False)
        image = wanted_image(session.suite.image, session.workloads, say, again)
        session = replace(session, suite=session.suite.in_image(image))
        before = session.resumed.record.own if session.resumed else {}
        own = own_images(session.suite, say, {name: each.get("image", "") for name, each in before.items()})
        check_programs(session.suite, image, own)
        with _saying_what_stays(console), reached(session.suite.hosts, image) as machines:
            return _work(replace(session, own=own), machines, image, console)


def _session(suite: Path | None, out: Path | None, budget_seconds: float | None, resume: Path | None) -> Session:
    if (suite is None) == (resume is None):
        raise UsageError("give a suite to run, or --resume with a run", "tare run examples/quick.toml")
    if resume is not None:
        resumed = load(resume)
        for name in ("raw", "telemetry"):
            make_within(resume, name)
        read = read_suite(resume / "suite.toml")
        return Session(read, Journal(resume), budget_seconds or read.budget_seconds, resumed)
    assert suite is not None  # noqa: S101 - one of the two is given
    read = read_suite(suite)
    return fresh_session(read, out, budget_seconds)


def fresh_session(suite: Suite, out: Path | None, budget_seconds: float | None = None) -> Session:
    """Return the session of a new run; raises UsageError if its folder exists, and holds more than an empty run."""
    folder = out or Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{suite.name}"
    if folder.exists() and not holds_no_trial(folder):
        raise UsageError(f"{folder}: is there already", "choose another folder, or go on with --resume")
    return Session(suite, Journal(folder), budget_seconds or suite.budget_seconds, None)


def only_root(command: str) -> None:
    """Raise TareError unless this is root."""
    if os.geteuid():
        raise TareError("only root can start containers, machines and networks", f"sudo tare {command} …")


def _seconds(budget: str | None) -> float | None:
    try:
        seconds = None if budget is None else parse_duration(budget)
    except ValueError as error:
        raise UsageError(f"--budget {budget}: {error}", "for example --budget 5m") from error
    if seconds == 0:
        raise UsageError(f"--budget {budget}: a budget is more than 0", "for example --budget 5m")
    return seconds


def _work(session: Session, machines: Reached, image: Image, console: Console) -> str:
    """Run the suite; gives the stop reason."""
    suite, folder = session.suite, session.journal.folder
    say = partial(console.print, style="dim", markup=False)
    if suite.hosts.server is not None:
        say(f"bringing the image to {suite.hosts.server.ssh}, which is done once")
        for each in (image, *session.own.values()):
            carried(machines.server, each)
    unusable = find_unusable(suite.stacks, machines.server, say)
    nested = [stack for stack in suite.stacks if makes_machine(stack.layers) and stack.name not in unusable]
    inner = [layer for stack in nested for layer in stack.layers[:-1]]
    outer = built_image(say, machine_recipe(inner)) if nested else None
    loads = built_image(say, client_recipe(session.workloads, suite.image.release))
    earlier = session.resumed.record.beside if session.resumed else {}
    beside = images_beside(session.workloads, say, earlier)
    placement = placed(machines, suite.limits.cpus)
    if machines.hosts.client is None:
        os.sched_setaffinity(0, placement.client)
    limits = Limits(placement.server, suite.limits.memory_bytes, suite.limits.open_files)
    wanted = Wanted(
        image,
        loads,
        outer,
        limits,
        telemetry=folder / "telemetry",
        lent=session.journal.keep_lent,
        sample_seconds=suite.sample_seconds,
        beside=beside,
        own=session.own,
    )
    _say_unusable(console, suite, unusable)
    record = _record(session, machines, wanted)
    if session.resumed is not None:
        check_same(session.resumed.record, record)
    try:
        with prepared_testbed(machines, wanted, placement) as here:
            usable = [stack for stack in suite.stacks if stack.name not in unusable]
            failed = give_image(usable, here, say) | prepare_nested(nested, here, say)
            _say_unusable(console, suite, unusable | failed, already=unusable)
            if session.resumed is None:
                if folder.exists():
                    say(f"{folder}: a run was ended there before its first trial; this one takes its place")
                _create(session.journal, record, suite)
            else:
                before = session.resumed.record
                session.journal.keep(replace(before, clients=before.clients | record.clients))
            done = session.resumed.trials if session.resumed else ()
            work = Work(suite, done, unusable | failed, session.budget_seconds)
            console.print(f"{len(suite.stacks) - len(work.unusable)} stacks, results in {folder}", highlight=False)
            workloads = {planned.name: planned.workload for planned in suite.workloads}
            if session.page:
                session.page.begin(folder, () if suite.hosts.server else placement.server)
            with watching(console, lambda: load(folder), workloads) as terminal:
                watch = session.page.with_page(terminal, workloads) if session.page else terminal
                stopped = work_through(work, here, session.journal, watch)
    except KeyboardInterrupt:
        if not (folder / "run.json").exists():
            raise
        stopped = "interrupt"
    with suppress(OSError):  # on a full disk the record keeps its empty stop reason
        session.journal.keep(replace(load(folder).record, stop_reason=stopped))
    return stopped


def _say_unusable(
    console: Console, suite: Suite, unusable: Mapping[str, tuple[Problem, ...]], already: Collection[str] = ()
) -> None:
    """Print the skipped stacks with their reasons; raises TareError if nothing remains to compare."""
    for stack, problems in unusable.items():
        if stack not in already:
            _print_problem(console, stack, problems)
    if suite.baseline in unusable and len(unusable) < len(suite.stacks):
        what = f"the baseline {suite.baseline} cannot run here, and nothing could be compared with it"
        raise TareError(what, 'mend that, or name another stack: baseline = "…" in [suite]')
    if len(unusable) == len(suite.stacks):
        raise TareError("none of the suite's stacks can run here", "`tare doctor` says how to mend that")


def _record(session: Session, machines: Reached, wanted: Wanted) -> RunRecord:
    suite = session.suite
    noise = tuple((each.name, f"{each.value} ({each.verdict})") for each in assess(machines.server.read))
    return RunRecord(
        format=FORMAT,
        tare=__version__,
        suite=suite.name,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=suite.seed,
        baseline=suite.baseline,
        blocks=suite.blocks,
        stacks=tuple(stack.name for stack in suite.measured),
        workloads=tuple(
            WorkloadRecord(
                name=planned.name,
                use=planned.use,
                title=planned.workload.title,
                metrics=tuple(planned.workload.all_metrics),
                sweep=planned.workload.sweep,
                settings=dict(vars(planned.workload)),
                lowered=planned.lowered,
            )
            for planned in suite.workloads
        ),
        image=wanted.image.digest,
        image_origin=wanted.image.origin,
        packages=wanted.image.packages,
        clients={wanted.loads.digest: wanted.loads.packages},
        machine=machines.server.facts(),
        noise=noise,
        margin=suite.margin,
        control=suite.control,
        machines=_machines(suite, machines),
        tuning=look(machines.server.read),
        sample_seconds=suite.sample_seconds,
        beside=_beside(session, wanted),
        own={stack.name: own for stack in suite.measured if (own := stack.own.described(wanted.own.get(stack.name)))},
        families={stack.name: tuple(layer.family for layer in stack.layers) for stack in suite.measured},
    )


def _beside(session: Session, wanted: Wanted) -> dict[str, str]:
    """Name the images of services beside those under test, by the services' names."""
    images = {each.name: wanted.beside[each.image] for workload in session.workloads for each in workload.beside}
    return {name: image.origin or image.digest for name, image in images.items()}


def _machines(suite: Suite, machines: Reached) -> dict[str, Facts]:
    """Give the machines that take part, by role, except those that a technology will lend."""
    lent = all(stack.layers[-1].gives_machine for stack in suite.stacks)
    server = {} if lent else {"server": machines.server.facts()}
    return {"controller": LocalHost().facts(), **server, "client": machines.client.facts()}


def _create(journal: Journal, record: RunRecord, suite: Suite) -> None:
    try:
        journal.create(record, suite.text)
    except OSError as error:
        what = f"{journal.folder}: cannot be made: {(error.strerror or str(error)).lower()}"
        raise UsageError(what, "give another folder by --out") from error


def _print_problem(console: Console, stack: str, problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        console.print(f"skipped: {stack}: {problem.what} (fix: {problem.fix})", style="yellow", markup=False)


def _warn_of_leftovers(console: Console) -> None:
    if leftovers(state_folder() / "ledger"):
        console.print("a killed run left things on this machine: `tare clean` removes them", style="yellow")


@contextmanager
def _saying_what_stays(console: Console) -> Iterator[None]:
    """Print what a run could not undo, which stays in the ledger."""
    before = leftovers(state_folder() / "ledger")
    try:
        yield
    finally:
        after = leftovers(state_folder() / "ledger")
        stays = [(left, argv) for path, left in after.items() if path not in before for argv in left.entries]
        for left, argv in stays:
            machine = f" (on {left.machine.ssh})" if left.machine else ""
            console.print(f"not undone: {' '.join(argv)}{machine}", style="yellow", markup=False, highlight=False)
        if stays:
            console.print("`tare clean` tries again, and says what is in the way", style="yellow")
