"""The record of a run, and whether a resumed run still is the one that it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from tare import __version__
from tare.contracts.technologies import Technology
from tare.errors import UsageError
from tare.hosts.local import LocalHost
from tare.hosts.tuning import look
from tare.journal import FORMAT, RunRecord, WorkloadRecord
from tare.model.isolation import Isolation
from tare.model.machines import Facts
from tare.running.machines import Machines
from tare.running.preparation import Preparation
from tare.running.secrets import settings_without_secrets
from tare.suites.suite import Planned, Suite
from tare.telemetry.noise import assess

_SETTINGS = TypeAdapter(dict[str, Any])


def make_record(suite: Suite, preparation: Preparation) -> RunRecord:
    """Return the record of a run that is prepared."""
    machines, spec = preparation.machines, preparation.spec
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
        workloads=tuple(workload_record(planned) for planned in suite.workloads),
        image=spec.image.digest,
        image_origin=spec.image.origin,
        packages=spec.image.packages,
        clients={spec.loads.digest: spec.loads.packages},
        machine=machines.server.facts(),
        noise=noise,
        margin=suite.margin,
        control=suite.control,
        machines=machines_by_role(suite, machines),
        tuning=look(machines.server.read),
        sample_seconds=suite.sample_seconds,
        beside=_beside(preparation),
        own={stack.name: own for stack in suite.measured if (own := stack.own.described(spec.run.own.get(stack.name)))},
        years=_years(suite, machines),
        families={stack.name: tuple(layer.family for layer in stack.layers) for stack in suite.measured},
        isolation={stack.name: _isolation(stack.layers) for stack in suite.measured},
        suite_folder=str(suite.folder.absolute()),
    )


def _isolation(layers: Sequence[Technology]) -> tuple[Isolation, ...]:
    """Return the isolation of each layer, with the technology's name where there are several."""
    return tuple(replace(each.isolation, layer=each.name if len(layers) > 1 else "") for each in layers)


def _years(suite: Suite, machines: Machines) -> dict[str, str]:
    """Return the year of each stack of one layer whose technology is an old one."""
    own = {stack.name: stack.layers[0] for stack in suite.stacks if len(stack.layers) == 1}
    asked = {name: layer for name, layer in own.items() if type(layer).old is not Technology.old}
    years = {name: layer.old(layer.version(machines.server)) for name, layer in asked.items()}
    return {name: year for name, year in years.items() if year}


def workload_record(planned: Planned) -> WorkloadRecord:
    """Return what the record of a run has of a workload."""
    return WorkloadRecord(
        name=planned.name,
        use=planned.use,
        title=planned.workload.title,
        metrics=tuple(planned.workload.all_metrics),
        sweep=planned.workload.sweep,
        settings=settings_without_secrets(_SETTINGS.dump_python(dict(vars(planned.workload)), mode="json")),
        lowered=planned.lowered,
    )


def _beside(preparation: Preparation) -> dict[str, str]:
    """Return the images of services beside those under test, by the services' names."""
    found = {
        each.name: preparation.spec.run.beside[each.image]
        for workload in preparation.needs.workloads
        for each in workload.beside
    }
    return {name: image.origin or image.digest for name, image in found.items()}


def machines_by_role(suite: Suite, machines: Machines) -> dict[str, Facts]:
    """Return the machines that take part, by role, except those that a technology will lend."""
    lent = all(stack.layers[-1].gives_machine for stack in suite.stacks)
    server = {} if lent else {"server": machines.server.facts()}
    further = {f"client {number}": each.facts() for number, each in enumerate(machines.further_clients, start=2)}
    return {"controller": LocalHost().facts(), **server, "client": machines.client.facts(), **further}


def check_same(before: RunRecord, now: RunRecord) -> None:
    """Raise UsageError for a run of another machine, tare, image or settings: its blocks would not be comparable."""
    if before.tare != now.tare:
        hint = f"go on with tare {before.tare}, or start a new run"
        raise UsageError(f"the run was made by tare {before.tare}, and this is {now.tare}", hint)
    if before.machine != now.machine:
        raise UsageError("the run was made on another machine, or on this one before a change", "start a new run")
    if before.stacks != now.stacks:
        raise UsageError("the run was made by a tare that measured other stacks of this suite", "start a new run")
    if (before.image, before.beside, before.own) != (now.image, now.beside, now.own):
        raise UsageError("the run was made with another image", "start a new run, or use the tare that made it")
    if other := _other_settings(before, now):
        hint = "a file that the suite names may have changed: restore it, or start a new run"
        raise UsageError(f"settings are not those that the run began with: {', '.join(other)}", hint)
    fitted = {each.name: each.fits for each in before.tuning}
    if other := [each.name for each in now.tuning if fitted.get(each.name, each.fits) != each.fits]:
        hint = "`tare tune` shows them: set them as they were, or start a new run"
        raise UsageError(f"settings of the machine are not those that the run began with: {', '.join(other)}", hint)


def _other_settings(before: RunRecord, now: RunRecord) -> list[str]:
    """Return the settings of workloads that have changed, such as requests that come from a file; new ones have not."""
    began = {each.name: each.settings for each in before.workloads}
    return [
        f"{name} of {each.name}"
        for each in now.workloads
        for name, value in _SETTINGS.dump_python(each.settings, mode="json").items()
        if began.get(each.name, {}).get(name, value) != value
    ]
