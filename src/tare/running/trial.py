"""One trial: a fresh instance of a stack, one workload, its values and cautions."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import TypeVar

from tare.contracts import Host, Instance, Setup, Workload
from tare.errors import TareError, TrialFailed, Unavailable, in_words
from tare.hosts.control_groups import group_folder, kernel_bytes, memory_limit_of
from tare.hosts.exec import RUN
from tare.hosts.file_systems import file_systems_under
from tare.launch import Technology
from tare.model import (
    Caution,
    FileSystem,
    Footprint,
    Layer,
    Mark,
    Measured,
    Output,
    Raw,
    SeenLimits,
    SetLimits,
    Status,
    Trial,
)
from tare.running.layers import KNOCK, Notes, Part, Parts, Testbed, started, whole
from tare.running.recordable import recordable
from tare.suites.plan import Step
from tare.telemetry.files import FarFiles
from tare.telemetry.footprint import footprint
from tare.telemetry.sampler import FAR, Telemetry, sample

_SERVICE_SECONDS = 30.0
_BUSY = 0.95  # a load generator that uses this share of its CPU counts as the bottleneck
_KERNEL_SHARE = 0.15  # the share of its memory that a guest's kernel may keep for itself

_Item = TypeVar("_Item")


@dataclass
class _Notes(Notes):
    """The results of a trial so far. A failed trial keeps those up to the failure."""

    trial: str = ""
    raw: list[Raw] = field(default_factory=list)
    values: tuple[Measured, ...] = ()
    footprint: Footprint | None = None
    limits: SetLimits | None = None
    path: str = ""
    proof: tuple[tuple[str, str], ...] = ()
    cautions: list[Caution] = field(default_factory=list)
    layers: tuple[Layer, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()


def attempt(
    testbed: Testbed, step: Step, stack: Sequence[Technology], workload: Workload
) -> tuple[Trial, tuple[Raw, ...]]:
    """Run a trial of a stack, its inner technology first in `stack`; gives it with its raw output.

    Every error becomes the trial's reason, even a full disk or a bug of a plug-in. Only an interrupt is raised.
    """
    notes = _Notes(
        trial=step.trial,
    )
    if not stack[-1].gives_machine:  # a lent machine has a placement of its own
        notes.cautions += testbed.placement.cautions
    began, clock = time.time(), time.monotonic()
    status: Status = "ok"
    reason = hint = ""
    try:
        notes.path = "/".join(technology.path for technology in stack)
        _measure(testbed, stack, workload, notes)
    except Unavailable as error:
        status, reason = "skipped", f"{error} (fix: {error.hint})" if error.hint else str(error)
    except TareError as error:
        status, reason, hint = "failed", str(error), error.hint
        if isinstance(error, TrialFailed) and error.output is not None:
            notes.raw.append(_last_words(error.output))
    except Exception as error:  # noqa: BLE001 - plug-ins are anybody's, and may raise anything
        fault = in_words(error)
        status, reason, hint = "failed", str(fault), fault.hint
        notes.raw.append(Raw("traceback", (), "".join(traceback.format_exception(error)), 0.0))
    trial = Trial(
        trial=step.trial,
        block=step.block,
        order=step.order,
        workload=step.workload,
        stack=step.stack,
        status=status,
        reason=reason,
        hint=hint,
        started=began,
        seconds=time.monotonic() - clock,
        values=notes.values if status == "ok" else (),
        timeline=_since_requested(notes.marks),
        footprint=notes.footprint,
        layers=notes.layers,
        limits=notes.limits,
        file_systems=notes.file_systems,
        path=notes.path,
        proof=notes.proof,
        cautions=_each_once(notes.cautions),
        commands=_each_once([*notes.commands, *(raw.argv for raw in notes.raw)]),
    )
    return recordable(trial, notes.raw, "/".join(technology.name for technology in stack), workload.name)


def _each_once(items: Sequence[_Item]) -> tuple[_Item, ...]:
    """Leave out what was there before. Plug-ins may give what has no hash."""
    return tuple(each for index, each in enumerate(items) if each not in items[:index])


def _measure(testbed: Testbed, stack: Sequence[Technology], workload: Workload, notes: _Notes) -> None:
    for technology in stack:
        if reason := technology.refuses(workload):
            raise Unavailable(f"{technology.name}: {reason}")
        notes.cautions += [_UNPROVEN] if technology.tested == "stand-in" else []
    with started(testbed, stack, workload.port, notes) as parts:
        instance = whole(parts)
        notes.path, notes.proof = instance.path, tuple(instance.proof.items())
        notes.limits = SetLimits(testbed.limits, _seen(parts[-1]))
        if instance.inside is not None:
            notes.file_systems = file_systems_under(instance.inside, workload.paths)
        notes.cautions += [*instance.cautions, *limit_cautions(notes.limits)]
        within = parts[-1].testbed
        outermost = parts[1 if stack[-1].gives_machine else 0]  # the first layer on the machine under test
        # The server must still run at the last sample: its counters vanish with it.
        with _served(within, instance, workload, notes), _sampled(outermost, notes.trial) as telemetry:
            for raw in workload.measure(Setup(instance, within.client, tuple(notes.marks))):
                if not isinstance(raw, Raw):
                    raise TrialFailed(f"{workload.name} gave {raw!r} as raw output", "its plug-in has a bug")
                notes.raw.append(raw)  # one by one, so that a failure keeps what came before it
            notes.layers = _layers(parts)
            notes.footprint = _footprint(parts[0])
        notes.cautions += telemetry.cautions()
        notes.cautions += client_cautions(notes.raw, telemetry.busy_share(outermost.testbed.limits.cpus))
    notes.values = read_values(workload, notes.raw)


_UNPROVEN = Caution(
    "never-run", "tare's own tests have run this technology only against a program that stands in for it"
)


def _sampled(part: Part, trial: str) -> AbstractContextManager[Telemetry]:
    """Sample the machine under test and the processes of its outermost layer."""
    target = part.testbed.telemetry / f"{trial}.parquet"
    if part.testbed.local:
        return sample(target, part.instance.processes)
    return sample(target, part.instance.processes, FarFiles(part.host), FAR)


def _layers(parts: Parts) -> tuple[Layer, ...]:
    """Give what each layer of a nested stack adds; empty for a stack of one layer."""
    if len(parts) == 1:
        return ()
    return tuple(Layer(part.name, part.seconds, _footprint(part)) for part in parts)


def read_values(workload: Workload, raw: Sequence[Raw]) -> tuple[Measured, ...]:
    """Parse what the commands of a trial printed; raises TrialFailed where a value is missing or absurd."""
    metrics = {metric.name: metric for metric in workload.metrics}
    values = tuple(workload.parse(raw))
    for value in values:
        if value.metric not in metrics or not _is_number(value.value):
            raise TrialFailed(f"{workload.name} gave {value.value!r} for {value.metric!r}", "its plug-in has a bug")
        if value.point is not None and not _is_number(value.point):
            what = f"{workload.name} gave a value of {value.metric!r} at the point {value.point!r}"
            raise TrialFailed(what, "its plug-in has a bug")
    return tuple(
        Measured(value.metric, value.point, value.value, metrics[value.metric].unit, metrics[value.metric].better)
        for value in values
    )


def _is_number(value: object) -> bool:
    """Tell whether a value is a finite number that JSON has; those of numerical libraries may be none."""
    return isinstance(value, int | float) and math.isfinite(value)


@contextmanager
def _served(testbed: Testbed, instance: Instance, workload: Workload, notes: _Notes) -> Iterator[None]:
    """Run the workload's service, if it has one, until the block ends."""
    # Only bare metal shares the machine's network: its service must listen on one address alone.
    listen = instance.address if instance.path == "host" and instance.address else "0.0.0.0"  # noqa: S104
    service = workload.service(listen)
    if service is None:
        yield
        return
    if instance.address is None:
        raise TrialFailed("the workload needs a network", "choose another workload for this stack")
    if instance.inside is None:  # it has the server built in
        _wait_for(testbed.client, instance.address, workload.name, instance.serves.get(workload.name, service.port))
        yield
        return
    for path, text in service.files:
        with NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            Path(file.name).chmod(0o644)
            instance.inside.put(Path(file.name), PurePosixPath(path))
    with instance.inside.spawn(*service.argv) as process:
        try:
            _wait_for(testbed.client, instance.address, service.argv[0], service.port)
            yield
        except TrialFailed:
            notes.raw.append(Raw("service", service.argv, process.errors(), 0.0))
            raise


def _wait_for(client: Host, address: str, name: str, port: int) -> None:
    knock = (KNOCK, address, str(port), f"{_SERVICE_SECONDS:g}", "connect")
    if client.run(*knock, timeout=_SERVICE_SECONDS + 5, check=False).exit_code:
        raise TrialFailed(f"{name} does not answer within {_SERVICE_SECONDS:g} s", "see its raw output")


def _seen(part: Part) -> SeenLimits:
    """Read the limits back from inside; for memory also from the control groups of the first process."""
    values: dict[str, int] = {}
    instance = part.instance
    if instance.inside is not None:
        text = instance.inside.run(RUN, "--limits", timeout=30).text
        values = {
            name: int(value)
            for name, _, value in (line.partition(": ") for line in text.splitlines())
            if value.isdigit()
        }
    # Without an inside, the group is the monitor's, which has more memory than the instance.
    first = instance.processes()[:1] if instance.inside is not None else ()
    around = [memory_limit_of(part.host, pid) for pid in first]
    memory = [limit for limit in (*around, values.get("memory")) if limit is not None]
    return SeenLimits(values.get("cpus"), min(memory, default=None), values.get("open_files"))


def limit_cautions(limits: SetLimits) -> tuple[Caution, ...]:
    """Compare the limits asked for with those seen. A guest's kernel may keep up to 15 % of the memory for itself."""
    asked, seen = limits.asked, limits.seen
    cautions = []
    if seen.cpus is not None and seen.cpus != len(asked.cpus):
        cautions.append(Caution("limits-differ", f"sees {seen.cpus} CPUs, {len(asked.cpus)} were asked for"))
    if seen.open_files is not None and seen.open_files != asked.open_files:
        text = f"may open {seen.open_files} files, {asked.open_files} were asked for"
        cautions.append(Caution("limits-differ", text))
    if seen.memory_bytes is not None:
        share = seen.memory_bytes / asked.memory_bytes
        if not 1 - _KERNEL_SHARE <= share <= 1:
            text = f"has {seen.memory_bytes >> 20} MiB of memory, {asked.memory_bytes >> 20} MiB were asked for"
            cautions.append(Caution("limits-differ", text))
    return tuple(cautions)


def client_cautions(raw: Sequence[Raw], server_busy: float | None) -> tuple[Caution, ...]:
    """Warn if the load was the bottleneck: its CPU was busy and the server's were not. Shares are from 0 to 1."""
    if server_busy is not None and server_busy >= _BUSY:
        return ()
    bound = [entry.label for entry in raw if entry.client_cpu is not None and entry.client_cpu >= _BUSY]
    if not bound:
        return ()
    text = f"the load had no CPU time to spare at {', '.join(bound)}"
    return (Caution("client-bound", text),)


def _last_words(output: Output) -> Raw:
    text = (output.stdout + output.stderr).decode("utf-8", "replace")
    return Raw("failed command", output.argv, text, output.seconds)


def _footprint(part: Part) -> Footprint:
    host, instance = part.host, part.instance
    pids = instance.processes()
    others = (pid for other in part.testbed.alive if other is not instance for pid in other.processes())
    memory, processes = footprint(host, part.testbed.image.root, pids, others)
    kernel = kernel_bytes(host, group_folder(host, pids[0])) if pids else None
    return Footprint(memory, kernel, instance.disk(), processes)


def _since_requested(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Put the marks in order, in seconds since `requested`."""
    if not marks:
        return ()
    start = next((mark.seconds for mark in marks if mark.name == "requested"), marks[0].seconds)
    ordered = sorted(marks, key=lambda mark: mark.seconds)
    return tuple(replace(mark, seconds=mark.seconds - start) for mark in ordered)
