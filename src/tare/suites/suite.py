"""Suite: the TOML file with stacks, workloads, limits and hosts of a run, as values.

All faults of a suite are reported at once, in the order of the file. A fault names its key as `workloads[0].clients`;
numbers in brackets count from 0.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tare.model.errors import Fault, SuiteError, describe_unreadable, did_you_mean, find_nearest
from tare.model.files import read_bounded
from tare.model.image import Image, ImageSpec
from tare.model.machine import Hosts, SshTarget
from tare.model.trial import LimitsSpec, LoweredSetting, find_session_metric
from tare.plugins import registry
from tare.plugins.workload import Workload
from tare.suites.document import Catalogue, Document, TomlKey, parse_tables
from tare.suites.stacks import Stack, read_stacks, refuse_remote_clients
from tare.suites.tables import (
    MAX_WEIGHT,
    BoundsTable,
    LimitsTable,
    RunSettings,
    SuiteTable,
    TelemetryTable,
    apply_limits,
    read_image,
)

_MAX_BYTES = 1 << 20
_WITH_TIME = "command, startup and kernel-build"
_UNLIMITED = LimitsSpec(sys.maxsize, sys.maxsize)  # if [limits] has a fault, no workload gets a second one from it


@dataclass(frozen=True)
class PlannedWorkload:
    """Workload with its settings, under its name in the suite; `use` is the plug-in's name.

    `limits` are those of its instances and trials. Settings in `lowered` were reduced to fit them. `exclude` are the
    stacks that do not run it. `weight` is how often a session does what one run of it does; 0 without a weight.
    """

    name: str
    use: str
    workload: Workload
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    lowered: tuple[LoweredSetting, ...] = ()
    exclude: tuple[str, ...] = ()
    weight: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Suite(RunSettings):
    """Suite of a run; `text` is the file as the user wrote it.

    - `rounds` is the least number of rounds of a block; None lets the run find the best number.
    - `only_blocks` restricts the run to blocks with these numbers, from 0, whatever is decided earlier; None runs all.
    - Paths are relative to `folder`.
    """

    name: str
    stacks: tuple[Stack, ...]
    baseline: str
    budget_seconds: float | None
    limits: LimitsSpec
    workloads: tuple[PlannedWorkload, ...]
    text: str
    hosts: Hosts = field(default_factory=Hosts)
    telemetry: TelemetryTable = field(default_factory=TelemetryTable)
    rounds: int | None = None
    image: ImageSpec = field(default_factory=ImageSpec)
    only_blocks: frozenset[int] | None = None
    folder: Path = field(default_factory=Path)

    @property
    def control(self) -> str:
        """Name of the A/A control, which is the baseline, measured a second time."""
        return _control_name(self.baseline)

    @property
    def by_name(self) -> dict[str, Workload]:
        """Workloads with their settings, by name."""
        return {planned.name: planned.workload for planned in self.workloads}

    def excludes(self, workload: str, stack: str) -> bool:
        """Return whether the suite excludes a stack from a workload."""
        return any(stack in planned.exclude for planned in self.workloads if planned.name == workload)

    def configured_for(self, image: Image) -> Suite:
        """Return the suite with settings of servers from the image's configuration, unless set; raises TareError."""
        workloads = tuple(replace(each, workload=each.workload.adapt_to_image(image)) for each in self.workloads)
        return replace(self, workloads=workloads)

    @property
    def measured_stacks(self) -> tuple[Stack, ...]:
        """Stacks and the A/A control."""
        baseline = next(stack for stack in self.stacks if stack.name == self.baseline)
        return (*self.stacks, Stack(self.control, baseline.layers, baseline.override))


def _control_name(baseline: str) -> str:
    return f"{baseline}-again"


# --- reading it ----------------------------------------------------------------------------------------------------


def read_suite(path: Path, catalogue: Catalogue = registry, folder: Path | None = None) -> Suite:
    """Return the suite of a file; raises SuiteError with all its faults.

    Paths in it are relative to the folder of the file, or to `folder` for the copy of a suite in a run folder.
    """
    try:
        text = read_bounded(path, _MAX_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        meant = find_nearest(path.stem, [file.stem for file in path.parent.glob("*.toml")])
        hint = f'did you mean "{path.parent / meant}.toml"?' if meant else "give a suite such as examples/quick.toml"
        raise SuiteError([Fault(f"{path}: no such file", hint)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(
            [describe_unreadable(path, error, "give the path of a .toml file that you may read")]
        ) from None
    return parse_suite(text, str(path), catalogue, path.parent if folder is None else folder)


def parse_suite(text: str, source: str, catalogue: Catalogue = registry, folder: Path | None = None) -> Suite:
    """Return the suite of a text, which messages call `source`; raises SuiteError with all its faults.

    Paths in it are relative to `folder`, or to the current folder if None.
    """
    tables = parse_tables(text, source)
    tables |= {name: tables.get(name, {}) for name in ("limits", "image", "telemetry")}
    document = Document(tables, catalogue, folder or Path())
    suite = _read_document(document, source, text)
    if suite is None:
        raise SuiteError(document.in_file_order(source))
    return suite


def _read_document(document: Document, source: str, text: str) -> Suite | None:
    """Return the suite of all tables; None if there is a fault."""
    _check_tables(document)
    suite = document.build(("suite",), SuiteTable)
    limits = document.build(("limits",), LimitsTable)
    image = read_image(document)
    telemetry = document.build(("telemetry",), TelemetryTable)
    stacks = read_stacks(document)
    requested = LimitsSpec(limits.cpus, limits.memory, limits.open_files, limits.time) if limits else _UNLIMITED
    workloads = _read_workloads(document, requested)
    hosts = _read_hosts(document)
    _refuse_undividable_loads(document, hosts, workloads)
    refuse_remote_clients(document, stacks, client_is_local=hosts.server == hosts.client)
    # The name of a suite becomes the name of its run folder, and a file may be named in any way.
    stem = re.sub(r"[^a-z0-9.-]+", "-", Path(source).stem.lower()).lstrip("-.")[:64]
    name = document.name(("suite", "name"), stem or "suite")
    baseline = _read_baseline(document)
    image = _read_run_image(document, workloads, image)
    _check_image_settings(document, workloads, stacks, image)
    _check_overrides(document, stacks, workloads)
    if document.faults or document.other_file_faults:
        return None
    return Suite(
        name=name,
        stacks=stacks,
        baseline=baseline,
        rounds=None if suite.rounds == "auto" else suite.rounds,
        budget_seconds=suite.budget,
        limits=requested,
        workloads=workloads,
        text=text,
        hosts=hosts,
        telemetry=telemetry,
        image=image,
        folder=document.folder,
        **{each.name: getattr(suite, each.name) for each in fields(RunSettings)},
    )


def _check_tables(document: Document) -> None:
    guesses = document.refuse_unknown((), ("suite", "limits", "image", "telemetry", "stacks", "workloads", "hosts"))
    if "suite" not in guesses | document.tables.keys():
        document.add_fault(("suite",), "missing", 'write [suite] and below it stacks = ["native", "docker"]')
    if "workloads" not in guesses and document.tables.get("workloads", []) == []:
        document.add_fault(("workloads",), "missing", 'write [[workloads]] and below it use = "redis"')
    for name in ("suite", "limits", "image", "telemetry", "stacks", "hosts"):
        if not isinstance(document.tables.get(name, {}), dict):
            document.add_fault((name,), "not a table", f"write [{name}] in one pair of brackets")


def _read_workloads(document: Document, suite: LimitsSpec) -> tuple[PlannedWorkload, ...]:
    tables = document.tables.get("workloads", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        document.add_fault(("workloads",), "not a list of tables", "write [[workloads]] in two pairs of brackets")
        return ()
    workloads: dict[str, PlannedWorkload] = {}
    for index, table in enumerate(tables):
        key = ("workloads", index)
        use = document.read_required_text(key, "use", "redis")
        name = document.name((*key, "name"), use or f"{index}")
        if name in workloads:
            free = next(f"{name}-{number}" for number in itertools.count(2) if f"{name}-{number}" not in workloads)
            path = (*key, "name") if "name" in table else key
            document.add_fault(path, f'a second workload named "{name}"', f'write name = "{free}"')
        workload, limits = _read_workload(document, key, use), _read_bounds(document, key, suite)
        excluded = _read_excluded(document, (*key, "exclude"))
        fitting, lowered = _apply_limits(document, key, workload, limits)
        weight = _read_weight(document, (*key, "weight"), fitting)
        workloads[name] = PlannedWorkload(name, use or "", fitting, limits, lowered, excluded, weight)
    return tuple(workloads.values())


def _read_workload(document: Document, key: TomlKey, use: str | None) -> Any:
    names = document.catalogue.names("workloads")
    if use is None:
        return None
    if use not in names:
        hint = did_you_mean(use, names, "`tare workloads` lists the names")
        document.add_fault((*key, "use"), f'no workload named "{use}"', hint)
        return None
    workload = document.plugin((*key, "use"), "workloads", use)
    return document.build(key, workload, ("use", "name", "limits", "exclude", "weight")) if workload else None


def _read_run_image(document: Document, workloads: Sequence[PlannedWorkload], suite_image: ImageSpec) -> ImageSpec:
    """Return the image of a run: that of the table [image], or that of a workload which provides one."""
    run_image: ImageSpec | None = None
    for index, planned in enumerate(workloads):
        provided = planned.workload.image if isinstance(planned.workload, Workload) else None
        if provided is None:
            continue
        if document.table(("image",)):
            document.add_fault(("image",), f'"{planned.name}" brings the image of its service', "leave [image] out")
        if run_image not in {None, provided}:
            what = f'"{planned.name}" brings another image than a workload before it'
            document.add_fault(("workloads", index), what, "a run has one image: move the workload to a separate suite")
        run_image = run_image or provided
    return run_image or suite_image


def _check_image_settings(
    document: Document, workloads: Sequence[PlannedWorkload], stacks: Sequence[Stack], image: ImageSpec
) -> None:
    """Record faults of workload settings and stack commands that do not fit the image."""
    if any(key[0] == "image" for key in document.faults):  # a wrong image would cause misleading faults here
        return
    for index, workload in enumerate(planned.workload for planned in workloads):
        if isinstance(workload, Workload):
            for setting, fault in workload.find_image_faults(image).items():
                document.add_fault(("workloads", index, setting), fault.message, fault.hint)
            for stack in stacks:
                overridden = stack.override.apply_to_workload(workload) if stack.override.command else workload
                if overridden != workload:
                    faults = overridden.find_image_faults(stack.override.apply_to_image(image))
                    for fault in faults.values():
                        document.add_fault(("stacks", stack.name, "command"), fault.message, fault.hint)


def _check_overrides(document: Document, stacks: Sequence[Stack], workloads: Sequence[PlannedWorkload]) -> None:
    """Record a fault for per-stack commands that no workload runs, and per-stack images of provisioned machines."""
    known = [planned.workload for planned in workloads if isinstance(planned.workload, Workload)]
    for stack in stacks:
        override, key = stack.override, ("stacks", stack.name)
        if override.command and known and not any(workload.with_command(override.command) for workload in known):
            what = "no workload of this suite runs a user-supplied command"
            document.add_fault((*key, "command"), what, 'use = "command", "service" or "application" has one')
        if override.source and stack.layers and getattr(stack.layers[-1], "provisions_machine", False):
            what = f"the machine that {stack.layers[-1].name} gives gets the image of the run"
            document.add_fault((*key, "image"), what, "leave image out, or measure the versions in two suites")


def _read_excluded(document: Document, key: TomlKey) -> tuple[str, ...]:
    """Return the stacks that do not run a workload. The baseline must run it, as the others are compared with it."""
    excluded, written = document.texts(key), document.at(key)
    if written is not None and not (isinstance(written, list) and len(written) == len(excluded)):
        document.add_fault(key, "not a list of stacks", 'write names of stacks in brackets, for example ["qemu-tcg"]')
    stacks = tuple(document.texts(("suite", "stacks")).values())
    for index, name in excluded.items():
        if name not in stacks:
            hint = did_you_mean(name, stacks, f"write one of {', '.join(stacks)}")
            document.add_fault((*key, index), f'"{name}" is not among the stacks', hint)
        elif name == _baseline_name(document):
            document.add_fault((*key, index), "the others are compared with the baseline", "leave it in")
    return tuple(excluded.values())


def _read_weight(document: Document, key: TomlKey, workload: Any) -> float:
    """Return how often a session does a workload; 0 without the key, and with a fault."""
    weight = document.read_number(key, least=0, most=MAX_WEIGHT)
    if weight is None or not isinstance(workload, Workload):
        return 0.0
    if find_session_metric(workload.all_metrics) is None or workload.sweep is not None:
        hint = f"leave weight out here: it counts the runs of workloads such as {_WITH_TIME}"
        document.add_fault(key, "the workload has no single time of one run", hint)
    return weight


def _read_bounds(document: Document, workload: TomlKey, suite: LimitsSpec) -> LimitsSpec:
    """Return the limits of a workload's instances; a fault is recorded unless they are within those of the suite."""
    key = (*workload, "limits")
    if "limits" in document.table(workload) and not isinstance(document.at(key), dict):
        document.add_fault(key, "not a table", "write [workloads.limits] below the workload, in one pair of brackets")
    table: BoundsTable = document.build(key, BoundsTable) or BoundsTable()
    for name, bound, most in (
        ("cpus", table.cpus, suite.cpus),
        ("memory", table.memory, suite.memory_bytes),
        ("time", table.time, suite.seconds),
    ):
        if bound is not None and most is not None and bound > most:
            document.add_fault(
                (*key, name), "more than [limits] allows all workloads", f"raise {name} in [limits], too"
            )
    cpus, memory_bytes = table.cpus or suite.cpus, table.memory or suite.memory_bytes
    return LimitsSpec(cpus, memory_bytes, suite.open_files, table.time or suite.seconds)


def _apply_limits(
    document: Document, key: TomlKey, workload: Any, limits: LimitsSpec
) -> tuple[Any, tuple[LoweredSetting, ...]]:
    """Return the workload with settings that fit its limits, and the settings that were lowered."""
    if isinstance(workload, Workload):
        try:
            return apply_limits(workload, limits)
        except ValueError as error:
            document.add_fault((*key, "limits"), str(error), "change its settings or its limits, or leave it out")
    return workload, ()


def _read_hosts(document: Document) -> Hosts:
    """Return the machines of a run. Their paths become absolute, because `tare clean` may run in another folder."""
    document.refuse_unknown(("hosts",), ("server", "client"))
    key: TomlKey = ("hosts", "client")
    clients = document.at(key)
    if not isinstance(clients, list) or not clients:
        return Hosts(_read_machine(document, ("hosts", "server")), _read_machine(document, key))
    server = _read_machine(document, ("hosts", "server"))
    first, *others = [_read_machine(document, (*key, index)) for index in range(len(clients))]
    extra = tuple(machine for machine in others if machine is not None)
    names = [server.ssh if server else "", *(str(document.table((*key, n)).get("ssh")) for n in range(len(clients)))]
    for index, name in enumerate(names[1:] if extra else ()):
        if name == names[0]:
            hint = "name other machines; the server can only be the client alone, in one [hosts.client]"
            document.add_fault((*key, index, "ssh"), f"{name} is the server, and one of several clients", hint)
        elif name in names[1 : 1 + index]:
            document.add_fault((*key, index, "ssh"), f"{name} is a client already", "name each machine once")
    return Hosts(server, first, extra)


def _read_machine(document: Document, key: TomlKey) -> SshTarget | None:
    """Return the machine of a table; None without such a table, or if it has a fault."""
    read: SshTarget | None = document.build(key, SshTarget)
    if read is not None and (not read.ssh or read.ssh.startswith("-")):
        document.add_fault((*key, "ssh"), "not a machine", 'write ssh = "user@address"')
    if document.at(key) is not None and not isinstance(document.at(key), dict):
        document.add_fault(key, "not a table", f'write [hosts.{key[1]}] and below it ssh = "user@address"')
    if read is not None and read.ssh_config:
        return SshTarget(read.ssh, str((document.folder / read.ssh_config).absolute()), read.address)
    return read


def _refuse_undividable_loads(document: Document, hosts: Hosts, workloads: Sequence[PlannedWorkload]) -> None:
    """Record a fault for several clients if a load cannot be divided among them."""
    if not hosts.extra_clients:
        return
    known = [planned for planned in workloads if isinstance(planned.workload, Workload)]
    undividable = [each.name for each in known if each.workload.port is not None and not each.workload.can_split_load]
    if undividable:
        names = " and ".join(undividable)
        hint = f"name one client, or leave out {names}; the HTTP loads of wrk can be divided, such as that of nginx"
        document.add_fault(("hosts", "client"), f"the load of {names} cannot be divided among several clients", hint)


def _read_baseline(document: Document) -> str:
    names = tuple(document.texts(("suite", "stacks")).values())
    baseline = _baseline_name(document)
    control = _control_name(baseline)
    if control in names:
        document.add_fault(("stacks", control), "this is the name of the A/A control", "give the stack another name")
    if names and baseline not in names:
        hint = did_you_mean(baseline, names, f"write one of {', '.join(names)}")
        document.add_fault(("suite", "baseline"), f'"{baseline}" is not among the stacks', hint)
    return baseline


def _baseline_name(document: Document) -> str:
    names = tuple(document.texts(("suite", "stacks")).values())
    written = document.table(("suite",)).get("baseline")
    return written if isinstance(written, str) else "native" if "native" in names else "".join(names[:1])
