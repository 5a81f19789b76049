"""The suite: the TOML file with what to run, as values.

All faults of a suite are reported at once, in the order of the file. A fault names its key as `workloads[0].clients`;
numbers in brackets count from 0.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tare.model.errors import Fault, SuiteError, did_you_mean, nearest, unreadable
from tare.model.files import contents
from tare.model.image import Image, ImageWanted
from tare.model.machine import Hosts, Machine
from tare.model.trial import LimitsWanted, Lowered
from tare.plugins import registry
from tare.plugins.workload import Workload
from tare.suites.document import Catalogue, Document, Key, parse_tables
from tare.suites.stacks import Stack, read_stacks, refuse_far_clients
from tare.suites.tables import (
    PRECISION,
    BoundsTable,
    LimitsTable,
    SuiteTable,
    TelemetryTable,
    Until,
    bounded,
    read_image,
)

_MOST_BYTES = 1 << 20
_UNKNOWN = LimitsWanted(sys.maxsize, sys.maxsize)  # where [limits] has a fault, no workload exceeds it

# --- what a suite is -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """A workload with its settings, under the name that the suite gives it; `use` is the plug-in's name.

    `limits` are those of its instances and trials. `workload` fits them: `lowered` are the settings that did not.
    `exclude` are the stacks that do not run it.
    """

    name: str
    use: str
    workload: Workload
    limits: LimitsWanted = field(default_factory=LimitsWanted)
    lowered: tuple[Lowered, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """What to run. `margin` is a share (0.03 is 3 %); `text` is the file as it was written.

    A stack gets no more blocks of a workload `until` its cell is decided, or until all blocks are done, as in the
    papers. A block has at least so many `rounds`; None: as many as the run finds best. A decided cell goes on until
    half its interval is at most the `precision`: a factor of 1 and this share, or this share of its ratio's logarithm.
    Of its blocks, `only` those with these numbers, from 0, are measured, whatever is decided earlier; None: all. Paths
    are relative to the `folder`.
    """

    name: str
    stacks: tuple[Stack, ...]
    baseline: str
    blocks: int
    until: Until
    budget_seconds: float | None
    margin: float
    seed: int
    limits: LimitsWanted
    workloads: tuple[Planned, ...]
    text: str
    hosts: Hosts = field(default_factory=Hosts)
    telemetry: TelemetryTable = field(default_factory=TelemetryTable)
    rounds: int | None = None
    precision: float = PRECISION
    image: ImageWanted = field(default_factory=ImageWanted)
    only: frozenset[int] | None = None
    folder: Path = field(default_factory=Path)

    @property
    def control(self) -> str:
        """Name the A/A control: the baseline, measured a second time under this name."""
        return _control_of(self.baseline)

    @property
    def by_name(self) -> dict[str, Workload]:
        """The workloads with their settings, by name."""
        return {planned.name: planned.workload for planned in self.workloads}

    def excludes(self, workload: str, stack: str) -> bool:
        """Return whether a stack does not run a workload because the suite says so."""
        return any(stack in planned.exclude for planned in self.workloads if planned.name == workload)

    def in_image(self, image: Image) -> Suite:
        """Return it with the image's configuration of its servers where the suite has none; raises TareError."""
        workloads = tuple(replace(each, workload=each.workload.in_image(image)) for each in self.workloads)
        return replace(self, workloads=workloads)

    @property
    def measured(self) -> tuple[Stack, ...]:
        """The stacks and the A/A control."""
        baseline = next(stack for stack in self.stacks if stack.name == self.baseline)
        return (*self.stacks, Stack(self.control, baseline.layers, baseline.own))


def _control_of(baseline: str) -> str:
    return f"{baseline}-again"


# --- reading it ----------------------------------------------------------------------------------------------------


def read_suite(path: Path, catalogue: Catalogue = registry, folder: Path | None = None) -> Suite:
    """Read a suite's file; raises SuiteError with all its faults.

    Paths in it are relative to the folder of the file, or to another `folder` for the copy of a suite.
    """
    try:
        text = contents(path, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        meant = nearest(path.stem, [file.stem for file in path.parent.glob("*.toml")])
        hint = f'did you mean "{path.parent / meant}.toml"?' if meant else "give a suite such as examples/quick.toml"
        raise SuiteError([Fault(f"{path}: no such file", hint)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError([unreadable(path, error, "give the path of a .toml file that you may read")]) from None
    return parse_suite(text, str(path), catalogue, path.parent if folder is None else folder)


def parse_suite(text: str, source: str, catalogue: Catalogue = registry, folder: Path | None = None) -> Suite:
    """Read a suite's text; messages call it `source`. Raises SuiteError with all its faults.

    Paths in it are relative to the folder, or else to the current one.
    """
    tables = parse_tables(text, source)
    tables |= {name: tables.get(name, {}) for name in ("limits", "image", "telemetry")}
    document = Document(tables, catalogue, folder or Path())
    suite = _read_document(document, source, text)
    if suite is None:
        raise SuiteError(document.in_file_order(source))
    return suite


def _read_document(document: Document, source: str, text: str) -> Suite | None:
    """Read all tables; None if there is a fault."""
    _check_tables(document)
    suite = document.build(("suite",), SuiteTable)
    limits = document.build(("limits",), LimitsTable)
    image = read_image(document)
    telemetry = document.build(("telemetry",), TelemetryTable)
    stacks = read_stacks(document)
    wanted = LimitsWanted(limits.cpus, limits.memory, limits.open_files, limits.time) if limits else _UNKNOWN
    workloads = _read_workloads(document, wanted)
    hosts = _read_hosts(document)
    _refuse_one_client_only(document, hosts, workloads)
    refuse_far_clients(document, stacks, near=hosts.server == hosts.client)
    stem = re.sub(r"[^a-z0-9.-]+", "-", Path(source).stem.lower()).lstrip("-.")[:64]
    name = document.name(("suite", "name"), stem or "suite")
    baseline = _read_baseline(document)
    image = _read_brought(document, workloads, image)
    _check_in_image(document, workloads, stacks, image)
    _check_own_programs(document, stacks, workloads)
    if document.faults or document.elsewhere:
        return None
    return Suite(
        name=name,
        stacks=stacks,
        baseline=baseline,
        blocks=suite.blocks,
        until=suite.until,
        rounds=None if suite.rounds == "auto" else suite.rounds,
        budget_seconds=suite.budget,
        margin=suite.margin,
        precision=suite.precision,
        seed=suite.seed,
        limits=wanted,
        workloads=workloads,
        text=text,
        hosts=hosts,
        telemetry=telemetry,
        image=image,
        folder=document.folder,
    )


def _check_tables(document: Document) -> None:
    guesses = document.refuse_unknown((), ("suite", "limits", "image", "telemetry", "stacks", "workloads", "hosts"))
    if "suite" not in guesses | document.tables.keys():
        document.fault(("suite",), "missing", 'write [suite] and below it stacks = ["native", "docker"]')
    if "workloads" not in guesses and document.tables.get("workloads", []) == []:
        document.fault(("workloads",), "missing", 'write [[workloads]] and below it use = "redis"')
    for name in ("suite", "limits", "image", "telemetry", "stacks", "hosts"):
        if not isinstance(document.tables.get(name, {}), dict):
            document.fault((name,), "not a table", f"write [{name}] in one pair of brackets")


def _read_workloads(document: Document, suite: LimitsWanted) -> tuple[Planned, ...]:
    tables = document.tables.get("workloads", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        document.fault(("workloads",), "not a list of tables", "write [[workloads]] in two pairs of brackets")
        return ()
    workloads: dict[str, Planned] = {}
    for index, table in enumerate(tables):
        key = ("workloads", index)
        use = document.required(key, "use", "redis")
        name = document.name((*key, "name"), use or f"{index}")
        if name in workloads:
            free = next(f"{name}-{number}" for number in itertools.count(2) if f"{name}-{number}" not in workloads)
            path = (*key, "name") if "name" in table else key
            document.fault(path, f'a second workload named "{name}"', f'write name = "{free}"')
        workload, limits = _read_workload(document, key, use), _read_bounds(document, key, suite)
        excluded = _read_excluded(document, (*key, "exclude"))
        fitting, lowered = _bounded(document, key, workload, limits)
        workloads[name] = Planned(name, use or "", fitting, limits, lowered, excluded)
    return tuple(workloads.values())


def _read_workload(document: Document, key: Key, use: str | None) -> Any:
    names = document.catalogue.names("workloads")
    if use is None:
        return None
    if use not in names:
        hint = did_you_mean(use, names, "`tare workloads` lists the names")
        document.fault((*key, "use"), f'no workload named "{use}"', hint)
        return None
    workload = document.plugin((*key, "use"), "workloads", use)
    return document.build(key, workload, ("use", "name", "limits", "exclude")) if workload else None


def _read_brought(document: Document, workloads: Sequence[Planned], own: ImageWanted) -> ImageWanted:
    """Return the image of a run: the suite's own, or the one that a workload brings in its place."""
    brought: ImageWanted | None = None
    for index, planned in enumerate(workloads):
        wanted = planned.workload.image if isinstance(planned.workload, Workload) else None
        if wanted is None:
            continue
        if document.table(("image",)):
            document.fault(("image",), f'"{planned.name}" brings the image of its service', "leave [image] out")
        if brought not in {None, wanted}:
            what = f'"{planned.name}" brings another image than a workload before it'
            document.fault(("workloads", index), what, "an image is of a whole run: give it a suite of its own")
        brought = brought or wanted
    return brought or own


def _check_in_image(
    document: Document, workloads: Sequence[Planned], stacks: Sequence[Stack], image: ImageWanted
) -> None:
    """Refuse settings of workloads, and commands of stacks, that cannot be right in their image."""
    if any(key[0] == "image" for key in document.faults):
        return
    for index, workload in enumerate(planned.workload for planned in workloads):
        if isinstance(workload, Workload):
            for setting, fault in workload.faults_in(image).items():
                document.fault(("workloads", index, setting), fault.what, fault.hint)
            for stack in stacks:
                own = stack.own.workload(workload) if stack.own.command else workload
                for fault in own.faults_in(stack.own.image(image)).values() if own != workload else ():
                    document.fault(("stacks", stack.name, "command"), fault.what, fault.hint)


def _check_own_programs(document: Document, stacks: Sequence[Stack], workloads: Sequence[Planned]) -> None:
    """Refuse own commands that no workload takes, and own images where an image cannot be chosen."""
    known = [planned.workload for planned in workloads if isinstance(planned.workload, Workload)]
    for stack in stacks:
        own, key = stack.own, ("stacks", stack.name)
        if own.command and known and not any(workload.commanded(own.command) for workload in known):
            what = "no workload of this suite runs a command of yours"
            document.fault((*key, "command"), what, 'use = "command", "service" or "application" has one')
        if own.source and stack.layers and getattr(stack.layers[-1], "gives_machine", False):
            what = f"the machine that {stack.layers[-1].name} gives gets the image of the run"
            document.fault((*key, "image"), what, "leave image out, or measure the versions in two suites")


def _read_excluded(document: Document, key: Key) -> tuple[str, ...]:
    """Return the stacks that do not run a workload; any but the baseline, with which the others are compared."""
    excluded, written = document.texts(key), document.at(key)
    if written is not None and not (isinstance(written, list) and len(written) == len(excluded)):
        document.fault(key, "not a list of stacks", 'write names of stacks in brackets, for example ["qemu-tcg"]')
    stacks = tuple(document.texts(("suite", "stacks")).values())
    for index, name in excluded.items():
        if name not in stacks:
            hint = did_you_mean(name, stacks, f"write one of {', '.join(stacks)}")
            document.fault((*key, index), f'"{name}" is not among the stacks', hint)
        elif name == _baseline_of(document):
            document.fault((*key, index), "the others are compared with the baseline", "leave it in")
    return tuple(excluded.values())


def _read_bounds(document: Document, workload: Key, suite: LimitsWanted) -> LimitsWanted:
    """Return the limits of a workload's instances, which lie within those of the suite."""
    key = (*workload, "limits")
    if "limits" in document.table(workload) and not isinstance(document.at(key), dict):
        document.fault(key, "not a table", "write [workloads.limits] below the workload, in one pair of brackets")
    own: BoundsTable = document.build(key, BoundsTable) or BoundsTable()
    for name, bound, most in (
        ("cpus", own.cpus, suite.cpus),
        ("memory", own.memory, suite.memory_bytes),
        ("time", own.time, suite.seconds),
    ):
        if bound is not None and most is not None and bound > most:
            document.fault((*key, name), "more than [limits] allows all workloads", f"raise {name} in [limits], too")
    limits = (own.cpus or suite.cpus, own.memory or suite.memory_bytes, suite.open_files, own.time or suite.seconds)
    return LimitsWanted(*limits)


def _bounded(document: Document, key: Key, workload: Any, limits: LimitsWanted) -> tuple[Any, tuple[Lowered, ...]]:
    """Return the workload with settings that fit its limits, and those that were lowered."""
    if isinstance(workload, Workload):
        try:
            return bounded(workload, limits)
        except ValueError as error:
            document.fault((*key, "limits"), str(error), "change its settings or its limits, or leave it out")
    return workload, ()


def _read_hosts(document: Document) -> Hosts:
    """Read the machines of a run. Their paths become absolute, because `tare clean` may run in another folder."""
    document.refuse_unknown(("hosts",), ("server", "client"))
    key: Key = ("hosts", "client")
    clients = document.at(key)
    if not isinstance(clients, list) or not clients:
        return Hosts(_read_machine(document, ("hosts", "server")), _read_machine(document, key))
    server = _read_machine(document, ("hosts", "server"))
    first, *others = [_read_machine(document, (*key, index)) for index in range(len(clients))]
    further = tuple(each for each in others if each is not None)
    names = [server.ssh if server else "", *(str(document.table((*key, n)).get("ssh")) for n in range(len(clients)))]
    for index, name in enumerate(names[1:] if further else ()):
        if name == names[0]:
            hint = "name other machines; the server can only be the client alone, in one [hosts.client]"
            document.fault((*key, index, "ssh"), f"{name} is the server, and one of several clients", hint)
        elif name in names[1 : 1 + index]:
            document.fault((*key, index, "ssh"), f"{name} is a client already", "name each machine once")
    return Hosts(server, first, further)


def _read_machine(document: Document, key: Key) -> Machine | None:
    """Read the table of a machine, if there is one."""
    read: Machine | None = document.build(key, Machine)
    if read is not None and (not read.ssh or read.ssh.startswith("-")):
        document.fault((*key, "ssh"), "not a machine", 'write ssh = "user@address"')
    if document.at(key) is not None and not isinstance(document.at(key), dict):
        document.fault(key, "not a table", f'write [hosts.{key[1]}] and below it ssh = "user@address"')
    if read is not None and read.ssh_config:
        return Machine(read.ssh, str((document.folder / read.ssh_config).absolute()), read.address)
    return read


def _refuse_one_client_only(document: Document, hosts: Hosts, workloads: Sequence[Planned]) -> None:
    """Refuse several clients for loads that cannot be divided."""
    if not hosts.further_clients:
        return
    known = [planned for planned in workloads if isinstance(planned.workload, Workload)]
    whole = [each.name for each in known if each.workload.port is not None and not each.workload.splits]
    if whole:
        names = " and ".join(whole)
        hint = f"name one client, or leave out {names}; the HTTP loads of wrk can be divided, such as that of nginx"
        document.fault(("hosts", "client"), f"the load of {names} cannot be divided among several clients", hint)


def _read_baseline(document: Document) -> str:
    names = tuple(document.texts(("suite", "stacks")).values())
    wanted = _baseline_of(document)
    if _control_of(wanted) in names:
        document.fault(
            ("stacks", _control_of(wanted)), "this is the name of the A/A control", "give the stack another name"
        )
    if names and wanted not in names:
        hint = did_you_mean(wanted, names, f"write one of {', '.join(names)}")
        document.fault(("suite", "baseline"), f'"{wanted}" is not among the stacks', hint)
    return wanted


def _baseline_of(document: Document) -> str:
    names = tuple(document.texts(("suite", "stacks")).values())
    wanted = document.table(("suite",)).get("baseline")
    return wanted if isinstance(wanted, str) else "native" if "native" in names else "".join(names[:1])
