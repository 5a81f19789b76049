"""Job of a run: from a suite to a finished run folder. The module prints nothing and reports to one observer.

A resumed run must match the record of the run (run.json): otherwise its new blocks could not be compared with the old.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from pydantic import TypeAdapter

from tare import __version__
from tare.hosts.awake import falls_asleep
from tare.hosts.cgroups import require_control_groups
from tare.hosts.distributions import require_tools
from tare.hosts.ledger import ledger_folder, read_pending_undos, shorten_command
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.lock import lock_this_machine
from tare.hosts.tuning import read_tuning
from tare.images.foreign_images import require_source_files, resolve_client_root, resolve_image, resolve_sidecar_images
from tare.model.errors import Rebooted, TareError, UsageError, format_os_error
from tare.model.files import make_within
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.machine import Facts
from tare.model.run_folder import FORMAT, RunRecord, RunWriter, WorkloadRecord, holds_no_trial
from tare.model.trial import Stop, StopReason
from tare.plugins.technology import Technology
from tare.runner.cleanup import clean_up
from tare.runner.context import RunContext, RunHosts, RunImages, TelemetryConfig
from tare.runner.events import (
    PreparationStepBegins,
    RunBegins,
    RunObserver,
    StackSkipped,
    WarningIssued,
    as_step_reporter,
)
from tare.runner.loop import RemainingWork, RunLoop
from tare.runner.machines import connect_machines, find_client_architecture, find_target_architecture, open_context
from tare.runner.prepare import (
    Problems,
    build_outer_image,
    build_stack_images,
    check_programs,
    copy_to_server,
    find_unusable,
    prepare_stacks,
    require_architecture,
    require_memory,
)
from tare.runner.sanitize import find_secret_names, redact_settings
from tare.suites.suite import PlannedWorkload, Suite, read_suite
from tare.telemetry.noise import assess_noise

_SETTINGS = TypeAdapter(dict[str, Any])


def make_record(suite: Suite, hosts: RunHosts, images: RunImages) -> RunRecord:
    """Return the record (run.json) of a run whose machines and images are ready."""
    noise = tuple((each.name, f"{each.value} ({each.verdict})") for each in assess_noise(hosts.server.read))
    overrides = {
        stack.name: stack.override.describe(images.by_stack.get(stack.name)) for stack in suite.measured_stacks
    }
    return RunRecord(
        format=FORMAT,
        tare=__version__,
        suite=suite.name,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=suite.seed,
        baseline=suite.baseline,
        blocks=suite.blocks,
        stacks=tuple(stack.name for stack in suite.measured_stacks),
        workloads=tuple(workload_record(planned) for planned in suite.workloads),
        image=images.main.digest,
        image_origin=images.main.origin,
        packages=images.main.packages,
        clients={images.client.digest: images.client.packages},
        machine=hosts.server.facts(),
        noise=noise,
        margin=suite.margin,
        control=suite.control,
        machines=machines_by_role(suite, hosts),
        tuning=read_tuning(hosts.server.read),
        sample_seconds=suite.telemetry.every,
        beside=_sidecar_images(suite, images),
        own={name: override for name, override in overrides.items() if override},
        years=_find_outdated_years(suite, hosts),
        families={stack.name: tuple(layer.family for layer in stack.layers) for stack in suite.measured_stacks},
        isolation={stack.name: _describe_isolation(stack.layers) for stack in suite.measured_stacks},
        suite_folder=str(suite.folder.absolute()),
        awake_cpus=_choose_awake_cpus(suite, hosts),
        session=suite.session,
    )


def _choose_awake_cpus(suite: Suite, hosts: RunHosts) -> tuple[int, ...]:
    """Return the CPUs of the instances' machine to keep awake: those of the instances, of sidecars, of a local client.

    () where the suite or the machine needs none.
    """
    if suite.keep_awake == "off" or (suite.keep_awake == "auto" and not falls_asleep(hosts.server)):
        return ()
    client = hosts.placement.client if hosts.client_is_local else hosts.placement.server_sidecar_cpus
    return tuple(sorted({*hosts.placement.server, *client}))


def _describe_isolation(layers: Sequence[Technology]) -> tuple[Isolation, ...]:
    """Return the isolation of each layer, with the technology's name where there are several."""
    return tuple(replace(each.isolation, layer=each.name if len(layers) > 1 else "") for each in layers)


def _find_outdated_years(suite: Suite, hosts: RunHosts) -> dict[str, str]:
    """Return the year of the installed version by stack, for stacks of one layer with an outdated technology."""
    single = {stack.name: stack.layers[0] for stack in suite.stacks if len(stack.layers) == 1}
    # Reading a version starts a program: only technologies that define `outdated_since` are asked.
    dated = {
        name: layer for name, layer in single.items() if type(layer).outdated_since is not Technology.outdated_since
    }
    years = {name: layer.outdated_since(layer.version(hosts.server)) for name, layer in dated.items()}
    return {name: year for name, year in years.items() if year}


def workload_record(planned: PlannedWorkload) -> WorkloadRecord:
    """Return the record of a workload for run.json, with its settings without secrets."""
    return WorkloadRecord(
        name=planned.name,
        use=planned.use,
        title=planned.workload.title,
        metrics=tuple(planned.workload.all_metrics),
        sweep=planned.workload.sweep,
        settings=redact_settings(_SETTINGS.dump_python(dict(vars(planned.workload)), mode="json")),
        lowered=planned.lowered,
        weight=planned.weight,
    )


def _sidecar_images(suite: Suite, images: RunImages) -> dict[str, str]:
    """Return the origin of each sidecar service's image by the service's name, or its digest if tare built it."""
    services = [service for workload in suite.by_name.values() for service in workload.sidecars]
    by_name = {service.name: images.sidecars[service.image] for service in services}
    return {name: image.origin or image.digest for name, image in by_name.items()}


def machines_by_role(suite: Suite, hosts: RunHosts) -> dict[str, Facts]:
    """Return the facts of the machines by role; machines that a technology provisions later are missing."""
    only_provisioned = all(stack.layers[-1].provisions_machine for stack in suite.stacks)
    server = {} if only_provisioned else {"server": hosts.server.facts()}
    extra_clients = {f"client {number}": host.facts() for number, host in enumerate(hosts.extra_clients, start=2)}
    return {"controller": LocalHost().facts(), **server, "client": hosts.client.facts(), **extra_clients}


def check_same(before: RunRecord, now: RunRecord) -> None:
    """Raise UsageError for a run of another machine, tare, image or settings: its blocks would not be comparable."""
    if before.tare != now.tare:
        hint = f"continue with tare {before.tare}, or start a new run"
        raise UsageError(f"the run was made by tare {before.tare}, and this is {now.tare}", hint)
    if before.machine != now.machine:  # another kernel or microcode changes the values
        raise UsageError("the run was made on another machine, or on this one before a change", "start a new run")
    if before.stacks != now.stacks:
        raise UsageError("the run was made by a tare that measured other stacks of this suite", "start a new run")
    if (before.image, before.beside, before.own) != (now.image, now.beside, now.own):
        raise UsageError("the run was made with another image", "start a new run, or use the tare that made it")
    if other := _find_changed_settings(before, now):
        hint = "a file that the suite names may have changed: restore it, or start a new run"
        raise UsageError(f"settings have changed since the run began: {', '.join(other)}", hint)
    fitted = {each.name: each.fits for each in before.tuning}
    if other := [each.name for each in now.tuning if fitted.get(each.name, each.fits) != each.fits]:
        hint = "restore them (`tare tune` shows them), or start a new run"
        raise UsageError(f"settings of the machine have changed since the run began: {', '.join(other)}", hint)


def _find_changed_settings(before: RunRecord, now: RunRecord) -> list[str]:
    """Return the changed settings of workloads, such as requests from a file; settings that are new do not count."""
    began = {each.name: each.settings for each in before.workloads}
    return [
        f"{name} of {each.name}"
        for each in now.workloads
        for name, value in _SETTINGS.dump_python(each.settings, mode="json").items()
        if began.get(each.name, {}).get(name, value) != value
    ]


@dataclass(frozen=True)
class Job:
    """Suite to run, the writer of its run folder, and its budget; None for no budget.

    The writer of a resumed run has the run's record.
    """

    suite: Suite
    writer: RunWriter
    budget_seconds: float | None


def new_job(suite: Suite, out: Path | None = None, budget_seconds: float | None = None) -> Job:
    """Return the job of a new run in the folder `out`. Raises UsageError if the folder exists and has a trial."""
    folder = out or Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{suite.name}"
    if folder.exists() and not holds_no_trial(folder):
        raise UsageError(f"{folder}: the folder already exists", "choose another --out, or continue it with --resume")
    return Job(suite, RunWriter(folder), budget_seconds or suite.budget_seconds)


def resume_job(folder: Path, budget_seconds: float | None = None) -> Job:
    """Return the job that continues the run in `folder`. Raises UsageError if that is no writable run folder."""
    writer = RunWriter(folder)
    record = writer.read()
    if not os.access(folder, os.W_OK):
        owner = folder.stat().st_uid
        fix = (
            f"continue as user {owner}, its owner" if owner != os.geteuid() else "check whether it is mounted read-only"
        )
        hint = f"{fix}; `tare report` and other readers need not write"
        raise UsageError(f"{folder}: the run cannot continue: the folder is not writable", hint)
    for name in ("raw", "telemetry"):
        make_within(folder, name)
    suite = read_suite(folder / "suite.toml", folder=record.base_folder)
    return Job(suite, writer, budget_seconds or suite.budget_seconds)


def restrict_to_blocks(job: Job, numbers: frozenset[int]) -> Job:
    """Return the job with only these blocks, counted from 0; all their trials are measured, decided or not.

    Raises UsageError if the suite has fewer blocks.
    """
    if beyond := [number + 1 for number in numbers if number >= job.suite.blocks]:
        raise UsageError(f"--blocks: the suite has no block {max(beyond)}", f"its blocks are 1-{job.suite.blocks}")
    return Job(replace(job.suite, only_blocks=numbers, until="blocks"), job.writer, job.budget_seconds)


def require_root(command: str, *others: str) -> None:
    """Raise TareError unless this process runs as root; the hint has `command` and `others`, which need no root."""
    if os.geteuid():
        hint = "; ".join((f"sudo {command}", *others))
        raise TareError("only root can start containers, machines and networks", hint)


def execute(job: Job, observe: RunObserver) -> Stop:
    """Run a suite until its end or Ctrl-C; return why it ended. The journal then has all trials.

    After a reboot of a machine, tare prepares the machine again and continues within the rest of the budget. The
    process stays in a private mount namespace afterwards. Raises TareError if nothing can be measured.
    """
    say, writer, before = as_step_reporter(observe), job.writer, job.writer.record
    with lock_this_machine(), _usual_scheduling():
        require_tools(LocalHost())
        if job.suite.hosts.server is None:
            require_control_groups(LocalHost())
            require_memory(job.suite, LocalHost())
        require_source_files(stack.override.apply_to_image(job.suite.image) for stack in job.suite.stacks)
        _remove_leftovers(say, observe)
        isolate_mounts()  # the kernel removes all mounts of this namespace if tare is killed
        origin = before.image_origin if before else ""
        spec = replace(job.suite.image, architecture=find_target_architecture(job.suite.hosts.server))
        require_architecture(job.suite.stacks, spec.architecture)
        main = resolve_image(spec, job.suite.by_name.values(), say, origin)
        suite = job.suite.configured_for(main)
        by_stack = build_stack_images(suite, spec, say, before)
        check_programs(suite, main, by_stack)
        began, stop, left_seconds = monotonic(), None, job.budget_seconds
        while stop is None:
            try:
                with _prepare_run(suite, writer, main, by_stack, observe) as (context, unusable):
                    work = RemainingWork(suite, writer.run.trials, unusable, left_seconds)
                    cpus = () if suite.hosts.server else context.hosts.placement.server
                    observe(RunBegins(writer.run, len(suite.stacks) - len(unusable), suite.by_name, cpus))
                    stop = RunLoop(work, context, writer, observe).run()
            except Rebooted as error:
                observe(WarningIssued(f"{error}: preparing it again; the run continues"))
                if job.budget_seconds is not None:
                    left_seconds = max(1.0, job.budget_seconds - (monotonic() - began))
            except KeyboardInterrupt:
                if not (writer.folder / "run.json").exists():  # nothing was recorded: there is no run to end
                    raise
                stop = Stop(StopReason.INTERRUPT)
        with suppress(OSError):  # on a full disk the record keeps its empty stop reason
            writer.end(stop)
        return stop


@contextmanager
def _prepare_run(
    suite: Suite, writer: RunWriter, main: Image, by_stack: Mapping[str, Image], observe: RunObserver
) -> Iterator[tuple[RunContext, Problems]]:
    """Context manager: connect to the machines, prepare images and stacks, and begin or continue the run's record.

    Yield the context, and the problems of the stacks that cannot run.
    """
    say, before, workloads = as_step_reporter(observe), writer.record, tuple(suite.by_name.values())
    architecture = find_client_architecture(suite.hosts, main.architecture)
    client = resolve_client_root(workloads, suite.image.release, say, architecture=architecture)
    with _report_leftovers(observe), connect_machines(suite.hosts, (main, client), suite.limits.cpus) as hosts:
        if suite.hosts.server is not None:
            require_control_groups(hosts.server)
            require_memory(suite, hosts.server)
        copy_to_server(hosts, (main, *by_stack.values()), say)
        unusable = find_unusable(suite.stacks, hosts.server, say)
        usable = [stack for stack in suite.stacks if stack.name not in unusable]
        outer = build_outer_image(usable, main.architecture, say)
        earlier = before.beside if before else {}
        sidecars = resolve_sidecar_images(workloads, say, earlier, architecture=main.architecture)
        images = RunImages(main, client, outer, by_stack, sidecars)
        if suite.hosts.client is None:  # tare's work would disturb the instances on their CPUs
            os.sched_setaffinity(0, hosts.placement.client)
        _report_skipped(suite, unusable, observe)
        record = make_record(suite, hosts, images)
        if before is not None:
            check_same(before, record)
        sampling = TelemetryConfig(writer.folder / "telemetry", suite.telemetry)
        with open_context(hosts, images, suite.limits, sampling, writer.add_provisioned_machine) as context:
            failed = prepare_stacks(context, usable, say)
            _report_skipped(suite, failed, observe, unusable)
            _create_folder(writer, record, suite.text, observe)
            yield context, {**unusable, **failed}


def _create_folder(writer: RunWriter, record: RunRecord, suite_text: str, observe: RunObserver) -> None:
    """Create the run folder; for a resumed run, add the packages of the present client root to the record.

    Raises UsageError if the folder cannot be created.
    """
    if before := writer.record:
        writer.amend(clients=before.clients | record.clients)
        return
    if writer.folder.exists():
        text = f"{writer.folder}: replacing a run that ended before its first trial"
        observe(PreparationStepBegins(text))
    if names := find_secret_names(suite_text):
        observe(
            WarningIssued(
                f"the run folder contains the suite as it is written, with {', '.join(names)}: do not share it"
            )
        )
    try:
        writer.create(record, suite_text)
    except OSError as error:
        what = f"{writer.folder}: cannot create the folder: {format_os_error(error)}"
        raise UsageError(what, "choose another folder with --out") from error


def _report_skipped(suite: Suite, unusable: Problems, observe: RunObserver, earlier: Problems | None = None) -> None:
    """Report the stacks that cannot run. Raises TareError without a baseline, or if no stack remains."""
    for stack, problems in unusable.items():
        observe(StackSkipped(stack, problems))
    skipped = {*unusable, *(earlier or {})}
    if suite.baseline in skipped and len(skipped) < len(suite.stacks):
        what = f"the baseline {suite.baseline} cannot run here: no stack can be compared with it"
        raise TareError(what, 'fix this, or name another stack: baseline = "…" in [suite]')
    if len(skipped) == len(suite.stacks):
        raise TareError("none of the suite's stacks can run here", "`tare doctor` says how to fix this")


@contextmanager
def _usual_scheduling() -> Iterator[None]:
    """Context manager: run at priority 0, and restore CPU affinity and priority after the block.

    Under `nice`, stacks would not be comparable: children of this process inherit its priority, children of an engine's
    daemon do not. The affinity is restored because a run moves this process off the CPUs of its instances.
    """
    cpus, priority = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, priority)
        os.sched_setaffinity(0, cpus)


def _remove_leftovers(say: Callable[[str], None], observe: RunObserver) -> None:
    """Remove the leftovers of killed runs, and report those that cannot be removed."""
    if read_pending_undos(ledger_folder()):
        say("removing leftovers of a killed run")
    for trouble in clean_up(lambda _: None):
        observe(WarningIssued(f"a leftover of a killed run cannot be removed: {trouble}"))


@contextmanager
def _report_leftovers(observe: RunObserver) -> Iterator[None]:
    """Context manager: report the undo commands that fail at the end of a run; they stay in the ledger."""
    before = read_pending_undos(ledger_folder())
    try:
        yield
    finally:
        after = read_pending_undos(ledger_folder())
        stays = [(left, argv) for path, left in after.items() if path not in before for argv in left.entries]
        for left, argv in stays:
            machine = f" (on {left.machine.ssh})" if left.machine else ""
            observe(WarningIssued(f"not undone: {shorten_command(argv)}{machine}"))
        if stays:
            observe(WarningIssued("`tare clean` retries them and prints the errors"))
