"""Parser of `application.toml`. It reports all faults of a file at once, each under its key, as for a suite.

Paths in the file are relative to its folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tare.images.oci import CAPABILITIES
from tare.loads.application import BUILT_IN_PARAMETERS, Application, ApplicationLoad, UserService, has_placeholder
from tare.loads.http import check_path
from tare.loads.user_load import UserMetric
from tare.model.errors import SuiteError, UsageError, describe_unreadable, did_you_mean
from tare.model.files import exists, is_below, read_bounded
from tare.model.image import ImageCommand, ImageSpec, Release
from tare.model.units import Duration, Size
from tare.plugins import registry
from tare.suites.document import Document, TomlKey, parse_tables
from tare.suites.stacks import CommandLine, NoCommand, Packages, split_words
from tare.suites.tables import EXAMPLE, check_image_path, read_source

FILE = "application.toml"
_TABLES = ("application", "parameters", "services", "load")
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_OTHER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_USER = re.compile(r"[^\s:\0]+(?::[^\s:\0]+)?")
_SIGNAL = re.compile(r"(?:SIG)?[A-Z][A-Z0-9+-]*|[1-9][0-9]?")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MAX_BYTES = 1 << 20

ImagePath = Annotated[str, AfterValidator(check_image_path)]
Files = dict[ImagePath, str]


def _check_variables(variables: dict[str, str]) -> dict[str, str]:
    for name, text in variables.items():
        if not _VARIABLE.fullmatch(name) or "\0" in text:
            raise ValueError(f"{name[:100]!r} cannot be a variable: use letters, digits and _")
    return variables


def _check_user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise ValueError('write a name or a number, or two of user and group: "www-data", "1000:1000"')
    return text


def _check_signal(text: str) -> str:
    if not _SIGNAL.fullmatch(text):
        raise ValueError('write a signal\'s name or number, such as "SIGQUIT"')
    return text


def _check_expression(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"this is no regular expression: {error}") from error
    return text


def _check_capabilities(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in CAPABILITIES:
            hint = did_you_mean(name, CAPABILITIES, f"choose of {', '.join(CAPABILITIES)}")
            raise ValueError(f'"{name}" is no capability of an instance: {hint}')
    return names


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _OTHER_NAME.fullmatch(name) or name == "localhost":
            raise ValueError(f"the others could not find it by the name {name[:100]!r}: use a-z, 0-9, dot and hyphen")
    return names


@dataclass(frozen=True)
class _ApplicationTable:
    """Table `[application]`."""

    under_test: str
    release: Release = "bookworm"
    memory: Annotated[Size, Field(gt=0)] = 1 << 30


@dataclass(frozen=True)
class _ServiceTable:
    """Table `[services.NAME]`. `from` is a keyword of Python, and is read separately."""

    packages: Packages = ()
    files: Files = field(default_factory=dict)
    mounts: Files = field(default_factory=dict)
    folders: dict[ImagePath, Literal["empty", "tmpfs", "volume"]] = field(default_factory=dict)
    credentials: str = ""
    command: CommandLine | NoCommand = ""
    entry_point: CommandLine | NoCommand | None = None
    user: Annotated[str, AfterValidator(_check_user)] | None = None
    folder: Annotated[str, AfterValidator(check_image_path)] | None = None
    stop_signal: Annotated[str, AfterValidator(_check_signal)] | None = None
    capabilities: Annotated[tuple[str, ...], AfterValidator(_check_capabilities)] | None = None
    memory: Annotated[Size, Field(gt=0)] | None = None
    names: Annotated[tuple[str, ...], AfterValidator(_check_names)] = ()
    after: tuple[str, ...] | None = None
    environment: Annotated[dict[str, str], AfterValidator(_check_variables)] = field(default_factory=dict)
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    ready: Annotated[str, AfterValidator(lambda path: check_path(path) if path else path)] = ""
    ready_status: Annotated[int, Field(ge=200, le=599)] = 200
    ready_command: CommandLine | NoCommand = ""
    ready_within: Annotated[Duration, Field(gt=0, le=3600)] = 30.0
    ready_timeout: Annotated[Duration, Field(gt=0, le=3600)] | None = None


@dataclass(frozen=True)
class _LoadTable:
    """Table `[load]`."""

    command: CommandLine
    metrics: Annotated[tuple[UserMetric, ...], Field(min_length=1)]
    packages: Packages = ()
    files: Files = field(default_factory=dict)
    duration: Annotated[Duration, Field(gt=0, le=86400)] = 60.0
    timeout: Annotated[Duration, Field(gt=0, le=86400)] = 600.0
    bottleneck: Annotated[str, AfterValidator(_check_expression)] = ""
    worker: CommandLine | NoCommand = ""


def read_application(folder: Path, written: str = "") -> Application:
    """Return the application in a folder; raises SuiteError with all its faults.

    `written` is the folder as the suite writes it, "" without a suite.
    """
    path = folder / FILE
    try:
        text = read_bounded(path, _MAX_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"give the folder of an application, which has {FILE}; a path is relative to the suite's folder"
        raise SuiteError([describe_unreadable(path, error, hint)]) from None
    return parse_application(text, folder.absolute(), written)


def parse_application(text: str, folder: Path, written: str = "") -> Application:
    """Return the application of a text, with paths relative to the folder; raises SuiteError with all its faults."""
    source = str(folder / FILE)
    document = Document(parse_tables(text, source), registry)
    application = _ApplicationReader(document, folder).read_application(written)
    if application is None:
        raise SuiteError(document.in_file_order(source))
    return application


@dataclass(frozen=True)
class _ApplicationReader:
    """Reader of the tables of an application, which records faults in the document."""

    document: Document
    folder: Path

    def read_application(self, written: str) -> Application | None:
        """Return the application, whose folder the suite names `written`; None if there is a fault."""
        document = self.document
        self._check_tables()
        table: _ApplicationTable | None = document.build(("application",), _ApplicationTable)
        load = self._read_load()
        release: Release = table.release if table else "bookworm"
        read = {name: self._read_service(name, release) for name in document.table(("services",))}
        parameters = self._read_parameters()
        services = [service for service in read.values() if service]
        if table is not None:
            self._check_under_test(table.under_test, tuple(read), services)
            self._check_shared_instance([service for service in services if service.name != table.under_test])
            self._check_names(services)
            self._check_memory(services, table.under_test)
        if document.faults or table is None or load is None:
            return None
        application = Application(
            name=self.folder.name,
            under_test=next(service for service in services if service.name == table.under_test),
            load=load,
            beside=tuple(service for service in services if service.name != table.under_test),
            parameters=parameters,
            memory_bytes=table.memory,
            folder=written,
        )
        self._check_parameters_used(application)
        self._check_order(application.start_order)
        return None if document.faults else application

    def _check_tables(self) -> None:
        guesses = self.document.refuse_unknown((), _TABLES)
        examples = {"application": 'under_test = "web"', "services": "[services.web]", "load": 'command = "wrk …"'}
        for name in _TABLES:
            if name in self.document.tables:
                if not isinstance(self.document.tables[name], dict):
                    self.document.add_fault((name,), "not a table", f"write [{name}] in one pair of brackets")
            elif name in examples and name not in guesses:
                below = examples[name] if name == "services" else f"[{name}] and below it {examples[name]}"
                self.document.add_fault((name,), "missing", f"write {below}")

    def _read_service(self, name: str, release: Release) -> UserService | None:
        document, key = self.document, ("services", name)
        if not _HOST_NAME.fullmatch(name) or name == "localhost":
            hint = "use up to 63 of a-z, 0-9, dot, hyphen and underscore, but not localhost"
            document.add_fault(key, "the others could not find it by this name", hint)
        if not isinstance(document.at(key), dict):
            document.add_fault(key, "not a table", f"write [services.{name}] and below it its settings")
            return None
        table: _ServiceTable | None = document.build(key, _ServiceTable, ("from",))
        if table is None:
            return None
        if (table.ready or table.ready_status != 200) and not table.port:
            document.add_fault((*key, "ready"), "there is no port to ask", "write port = …")
        if not table.command and "from" not in document.table(key):
            document.add_fault((*key, "command"), "missing", 'write command = "…", or from = an image that has one')
        return UserService(
            name=name,
            image=self._read_image(key, table, release),
            command=split_words(table.command),
            port=table.port or 0,
            environment=tuple(table.environment.items()),
            ready=table.ready,
            ready_status=table.ready_status,
            ready_command=split_words(table.ready_command),
            ready_within=table.ready_within,
            ready_timeout=table.ready_timeout or 0.0,
            names=table.names,
            after=table.after,
            memory_bytes=table.memory or 0,
        )

    def _read_image(self, key: TomlKey, table: _ServiceTable, release: Release) -> ImageSpec:
        document = self.document
        files = self._read_files((*key, "files"), table.files)
        mounts = (*self._read_mounts((*key, "mounts"), table.mounts), *sorted(table.folders.items()))
        if "from" not in document.table(key):
            if table.credentials:
                document.add_fault((*key, "credentials"), "there is no image to get", f'write from = "{EXAMPLE}"')
            for name in ("entry_point", "user", "folder", "stop_signal", "capabilities", "mounts", "folders"):
                if name in document.table(key):
                    what = "it changes an image that others have built, and this one is of Debian's packages"
                    document.add_fault((*key, name), what, "let the command do it: sh -c '…', setpriv, env")
            return ImageSpec(release, table.packages, files)
        if table.packages:
            what = "an image that others have built is taken as it is"
            document.add_fault((*key, "packages"), what, "leave packages out")
        text = document.read_required_text(key, "from", EXAMPLE)
        try:
            source = read_source(EXAMPLE if text is None else text, self.folder)
        except UsageError as error:
            document.add_fault((*key, "from"), str(error), error.hint)
            return ImageSpec()
        credentials = str(self.folder / table.credentials) if table.credentials else ""
        entry_point = None if table.entry_point is None else split_words(table.entry_point)
        if any(has_placeholder(word, name) for word in entry_point or () for name in BUILT_IN_PARAMETERS):
            document.add_fault((*key, "entry_point"), "nothing is filled in there", "write the places in command")
        started = ImageCommand(entry_point, table.user, table.folder, table.stop_signal, table.capabilities)
        return ImageSpec(source=replace(source, credentials=credentials, started=started), files=files, mounts=mounts)

    def _read_mounts(self, key: TomlKey, mounts: dict[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the mounts with absolute paths; a path that leads out of the folder, also by a link, is a fault."""
        for name in mounts.values():
            if not is_below(self.folder, name):
                hint = "copy it into the application's folder, and name that"
                self.document.add_fault(key, f'"{name}" leads out of the folder', hint)
        return self._read_files(key, mounts)

    def _read_files(self, key: TomlKey, files: dict[str, str]) -> tuple[tuple[str, str], ...]:
        for name in files.values():
            if not exists(self.folder / name):
                hint = "paths on the right are of the application's folder"
                self.document.add_fault(key, f'there is no file or folder "{name}"', hint)
        return tuple((target, str(self.folder / name)) for target, name in sorted(files.items()))

    def _read_load(self) -> ApplicationLoad | None:
        table: _LoadTable | None = self.document.build(("load",), _LoadTable)
        if table is None:
            return None
        names = [each.name for each in table.metrics]
        for index, name in enumerate(names):
            if name in names[:index]:
                key = ("load", "metrics", index, "name")
                self.document.add_fault(key, f'there are two metrics named "{name}"', "give one of them another name")
        return ApplicationLoad(
            command=split_words(table.command),
            metrics=table.metrics,
            packages=table.packages,
            files=self._read_files(("load", "files"), table.files),
            duration=table.duration,
            timeout=table.timeout,
            bottleneck=table.bottleneck,
            worker=split_words(table.worker),
        )

    def _read_parameters(self) -> dict[str, str | int | float]:
        found = self.document.table(("parameters",))
        for name, value in found.items():
            key = ("parameters", name)
            if not _PARAMETER.fullmatch(name):
                self.document.add_fault(key, "not a name of a parameter", "use a-z, 0-9 and _, a letter first")
            elif name in BUILT_IN_PARAMETERS:
                self.document.add_fault(key, "tare gives this itself", "choose another name")
            # In Python, a bool is an int. Commands would get the text "True", which TOML does not write so.
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                self.document.add_fault(key, "neither a text nor a number", 'write 200 or "200"')
        return dict(found)

    def _check_under_test(self, under_test: str, names: Sequence[str], found: Sequence[UserService]) -> None:
        key = ("application", "under_test")
        if under_test not in names:
            hint = did_you_mean(under_test, names, f"write a table [services.{under_test}]")
            self.document.add_fault(key, f'there is no service "{under_test}"', hint)
        if any(each.name == under_test and not (each.port or each.image.source) for each in found):
            self.document.add_fault(("services", under_test, "port"), "missing", "the load needs it: write port = 80")

    def _check_names(self, services: Sequence[UserService]) -> None:
        """Record a fault for a name that two services have."""
        owners = {service.name: service.name for service in services}
        for service in services:
            for name in service.names:
                if (other := owners.setdefault(name, service.name)) != service.name:
                    what = f'"{other}" has the name {name}, too'
                    self.document.add_fault(("services", service.name, "names"), what, "let one of them have it")

    def _check_memory(self, services: Sequence[UserService], under_test: str) -> None:
        """Record a fault for a memory limit of the service under test, or of one that shares an instance."""
        for service in services:
            key = ("services", service.name, "memory")
            if service.memory_bytes and service.name == under_test:
                self.document.add_fault(key, "a suite limits the service under test", "write memory in its [limits]")
            elif service.memory_bytes and not service.image.source:
                hint = "write memory in [application]"
                self.document.add_fault(key, "it shares an instance with the others of Debian's packages", hint)

    def _check_order(self, order: Sequence[UserService]) -> None:
        """Record a fault for a service that waits for one that does not start before it."""
        for number, service in enumerate(order):
            earlier = [each.name for each in order[:number]]
            for name in service.after or ():
                if name not in earlier:
                    known = [each.name for each in order if each.name != service.name]
                    there = f"write [services.{name}] above [services.{service.name}]"
                    there = there if name in known else did_you_mean(name, known, there)
                    what = f"{name} does not start before {service.name}"
                    self.document.add_fault(("services", service.name, "after"), what, there)

    def _check_shared_instance(self, sidecars: Sequence[UserService]) -> None:
        """Record a fault for equal ports, or different files at one path, of services that share an instance."""
        ports: dict[int, str] = {}
        files: dict[str, tuple[str, str]] = {}
        for service in sidecars:
            if service.image.source:  # a foreign image runs in a separate instance
                continue
            key = ("services", service.name)
            if other := ports.get(service.port) if service.port else None:
                what = f'"{other}" has this port, and they share a host'
                self.document.add_fault((*key, "port"), what, "let one of them listen on another port")
            ports[service.port] = service.name
            for target, source in service.image.files:
                name, first_source = files.setdefault(target, (service.name, source))
                if first_source != source:
                    what = f'"{name}" has another file at {target}, and they share an image'
                    self.document.add_fault((*key, "files"), what, "put one of them elsewhere")

    def _check_parameters_used(self, application: Application) -> None:
        texts = tuple(application.texts)
        for name in application.parameters:
            if not any(has_placeholder(text, name) for text in texts):
                hint = f"write {{{name}}} in a command or an environment, or leave it out"
                self.document.add_fault(("parameters", name), "nothing has a place for it", hint)
