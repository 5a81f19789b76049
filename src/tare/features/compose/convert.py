"""Converter of a parsed Compose file to `application.toml` (pure: no I/O).

`tare.features.compose.syntax` has the keys that are kept and those that are refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tare.features.compose.syntax import (
    CONFIG_HINT,
    NAME_KEYS,
    REFUSAL_HINTS,
    RENAMED_KEYS,
    SUPPORTED_KEYS,
    TOP_LEVEL_KEYS,
    Variables,
    dependencies_of,
    get_nested,
    interpolate,
    normalize_project_name,
    parse_environment,
    parse_mount,
    parse_port,
    read_variables,
    sort_by_dependency,
)
from tare.model.errors import Fault, SuiteError, did_you_mean
from tare.model.units import format_setting

_READY_WITHIN = "90s"  # the default of Compose: three checks, 30 s apart
_EXAMPLE_LOAD = """
[load]  # wrk asks for the first page: write here what your users do
packages = ["wrk"]
command = "wrk --threads 1 --connections 10 --duration 10s http://{address}:{port}/"
duration = "10s"

[[load.metrics]]
name = "throughput"
unit = "requests/s"
better = "higher"
pattern = '^Requests/sec: +{number}$'
"""


@dataclass(frozen=True)
class ConvertedCompose:
    """Result of a conversion: the `text` of `application.toml`, and a line for each key that is left out.

    `embedded_variables` are the names of variables from the shell, `.env` and environment files whose values are in the
    text, which may be secret.
    """

    text: str
    left_out: tuple[str, ...]
    embedded_variables: tuple[str, ...] = ()


def _read_nothing(_: str) -> str | None:
    return None


@dataclass(frozen=True)
class ComposeContext:
    """Surroundings of a Compose file.

    `folder` is the absolute path of its folder: files written by `docker compose config` have absolute paths.
    `variables` are those of the shell and of `.env`. `read` returns the text of a file in the folder, or None.
    """

    folder: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[str], str | None] = _read_nothing


def convert_compose(
    document: object, source: str, under_test: str = "", context: ComposeContext | None = None
) -> ConvertedCompose:
    """Convert a parsed Compose file; raises SuiteError with all keys that cannot be kept.

    If `under_test` is "", the service under test is the only one that publishes ports.
    """
    context = context or ComposeContext()
    return _Conversion(source, context, Variables(context.variables)).convert(document, under_test)


@dataclass
class _Conversion:
    """Conversion of the Compose file `source`. It collects all faults and all lines about left-out keys.

    `project` is the name of the Compose project, which is part of the names of the images that Compose builds.
    """

    source: str
    context: ComposeContext
    variables: Variables
    project: str = ""
    faults: list[Fault] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def convert(self, document: object, under_test: str) -> ConvertedCompose:
        """Convert the parsed file; raises SuiteError with all faults."""
        self.project = self._project_name(document)
        services = self._find_services(document)
        settings = {name: self._convert_service(name, service) for name, service in services.items()}
        chosen = self._choose_under_test(services, under_test) if services else ""
        if chosen and "port" not in settings[chosen]:
            hint = "write expose with the port on which it listens"
            self._add_fault(f"services.{chosen}", "it has no TCP port, and the load needs one", hint)
        order = self._sort_services(services)
        if self.faults:
            raise SuiteError(self.faults)
        tables = [f"[application]\nunder_test = {format_setting(chosen)}\n"]
        tables += [_format_table(name, settings[name]) for name in order]
        text = "\n".join(tables) + _EXAMPLE_LOAD
        return ConvertedCompose(text, tuple(self.left_out), tuple(sorted(self.variables.used)))

    def _add_fault(self, key: str, what: str, hint: str) -> None:
        self.faults.append(Fault(f"{self.source}: {key}: {what}", hint))

    def _leave_out(self, key: str, why: str = "") -> None:
        self.left_out.append(f"{key}: {why}" if why else key)

    def _project_name(self, document: object) -> str:
        """Return the name that Compose gives the project: of the shell, of the file, or else of its folder."""
        table = document if isinstance(document, dict) else {}
        in_file = str(self._interpolate("name", table["name"], None)) if "name" in table else ""
        in_shell = self.context.variables.get("COMPOSE_PROJECT_NAME", "")
        return normalize_project_name(in_shell or in_file or PurePosixPath(self.context.folder).name)

    def _find_services(self, document: object) -> dict[str, Mapping[str, object]]:
        """Return the services that an engine starts by default."""
        services = document.get("services") if isinstance(document, dict) else None
        if not isinstance(document, dict) or not isinstance(services, dict) or not services:
            self._add_fault("services", "missing", "give a compose file, which has services")
            return {}
        for name in document:
            if name == "include":
                self._add_fault("include", "the services of other files are not read", CONFIG_HINT)
            elif name not in TOP_LEVEL_KEYS and not str(name).startswith("x-"):
                self._leave_out(str(name))
        started: dict[str, Mapping[str, object]] = {}
        for name, service in services.items():
            if not isinstance(service, dict):
                self._add_fault(f"services.{name}", "not a table", "write its image and its settings below it")
            elif service.get("profiles"):
                self._leave_out(f"services.{name}", "it has a profile: an engine starts it only on request")
            else:
                started[str(name)] = self._interpolate_settings(f"services.{name}", service)
        return started

    def _interpolate_settings(self, key: str, service: Mapping[object, object]) -> dict[str, object]:
        """Return the settings that are not null; fill in variables of kept keys, others need not be set."""
        present = {str(name): value for name, value in service.items() if value is not None}
        # A variable in a published port need not be set: only the port of the service is used.
        return {
            name: self._interpolate(f"{key}.{name}", value, "" if name == "ports" else None)
            if name in SUPPORTED_KEYS
            else value
            for name, value in present.items()
        }

    def _interpolate(self, key: str, value: object, default: str | None) -> object:
        """Return a value with the variables of its texts filled in; `default` as in `interpolate`."""
        if isinstance(value, dict):
            return {name: self._interpolate(f"{key}.{name}", each, default) for name, each in value.items()}
        if isinstance(value, list):
            return [self._interpolate(key, each, default) for each in value]
        if not isinstance(value, str):
            return value
        try:
            return interpolate(value, self.variables, default)
        except ValueError as error:
            hint = "write its value into .env next to the file, or before the command: NAME=value tare application …"
            self._add_fault(key, str(error), hint if "is not set" in str(error) else "see the Compose specification")
            return value

    def _convert_service(self, name: str, service: Mapping[str, object]) -> dict[str, object]:
        """Return the settings of a service in application.toml."""
        key = f"services.{name}"
        for setting, value in service.items():
            if setting in REFUSAL_HINTS and value not in (False, [], {}, ""):
                self._add_fault(f"{key}.{setting}", "cannot be kept", REFUSAL_HINTS[setting])
            elif setting in NAME_KEYS:
                self._leave_out(f"{key}.{setting}", f"the others find it by the name {name}")
            elif setting not in {*SUPPORTED_KEYS, *REFUSAL_HINTS, "build"} and not setting.startswith("x-"):
                self._leave_out(f"{key}.{setting}")
        self._refuse_unsupported(key, service)
        settings: dict[str, object] = {"from": self._convert_image(key, service), **self._convert_program(key, service)}
        environment = self._read_env_files(f"{key}.env_file", service.get("env_file", []))
        environment |= self._convert_environment(f"{key}.environment", service.get("environment", {}))
        if environment:
            settings["environment"] = environment
        if ports := [port for name in ("ports", "expose") for port in self._convert_ports(key, service, name)]:
            settings["port"], *others = dict.fromkeys(ports)
            for each in others:
                self._leave_out(f"{key}.ports", f"port {each}, as the load knows one")
        settings |= self._convert_healthcheck(f"{key}.healthcheck", service.get("healthcheck", {}))
        if files := self._convert_volumes(f"{key}.volumes", service.get("volumes", [])):
            settings["files"] = files
        return settings

    def _refuse_unsupported(self, key: str, service: Mapping[str, object]) -> None:
        """Add faults for devices, services that end, and link aliases, which are nested in keys that may be kept."""
        if get_nested(service, "deploy", "resources", "reservations", "devices"):
            self._add_fault(f"{key}.deploy.resources.reservations.devices", "cannot be kept", REFUSAL_HINTS["devices"])
        for name in dependencies_of(service):
            if get_nested(service, "depends_on", name, "condition") == "service_completed_successfully":
                hint = f"do what {name} does in the image, or at the start of a service that stays"
                self._add_fault(f"{key}.depends_on.{name}", "the services of an application do not end", hint)
        links = service.get("links")
        for link in map(str, links) if isinstance(links, list) else ():
            name, _, other = link.partition(":")
            if other not in {"", name}:
                hint = f"let it be found by the name {name}"
                self._add_fault(f"{key}.links", f"{name} has another name, {other}", hint)

    def _convert_image(self, key: str, service: Mapping[str, object]) -> str:
        image = service.get("image")
        if image is None and "build" in service and self.project:
            image = f"{self.project}-{key.removeprefix('services.')}"  # as Compose names what it builds
        if not isinstance(image, str):
            hint = "give it a name in the file, as in image: shop-web:1, and build it: docker compose build"
            fault = "nobody has built its image" if "build" in service else "missing"
            self._add_fault(f"{key}.image", fault, hint)
            return ""
        if "build" not in service:
            return f"docker://{image}"
        if image.startswith("localhost/"):  # engines name the images that they build so: search their stores first
            self._leave_out(f"{key}.build", f"{image} is taken from Podman or Docker: build it before, as root")
            return f"docker://{image}"
        tagged = "@" in image or ":" in image.rpartition("/")[2]
        image = image if tagged else f"{image}:latest"
        self._leave_out(f"{key}.build", f"{image} is taken from Docker: build it before: docker compose build")
        return f"docker-daemon:{image}"

    def _convert_program(self, key: str, service: Mapping[str, object]) -> dict[str, object]:
        """Return the program of a service, its user and its folder; keys that the file lacks are missing."""
        settings: dict[str, object] = {}
        if "entrypoint" in service:
            words = self._split_words(f"{key}.entrypoint", service["entrypoint"])
            settings["entry_point"] = words or ""
        if "command" in service:
            if words := self._split_words(f"{key}.command", service["command"]):
                settings["command"] = words
            elif not settings.get("entry_point"):
                hint = "leave it out to use that of the image, or write the whole program in entrypoint"
                self._add_fault(f"{key}.command", "an image's command cannot be taken away alone", hint)
        for name, new_name in RENAMED_KEYS.items():
            if service.get(name, "") != "":
                settings[new_name] = str(service[name])
        return settings

    def _split_words(self, key: str, command: object) -> list[str]:
        self._refuse_placeholders(key, [command] if isinstance(command, str) else command)
        if isinstance(command, str):
            try:
                return shlex.split(command)
            except ValueError as error:
                self._add_fault(key, f"it cannot be split into words: {str(error).lower()}", "write a list of words")
                return []
        if isinstance(command, list) and all(isinstance(word, str | int | float) for word in command):
            return [str(word) for word in command]
        self._add_fault(key, "neither a line nor a list of words", 'write it as in command: ["app", "--port=80"]')
        return []

    def _convert_environment(self, key: str, environment: object) -> dict[str, str]:
        table = parse_environment(environment)
        if table is None:
            self._add_fault(key, "neither a table nor a list", "write NAME: value")
            return {}
        variables = {}
        for name, value in table.items():
            text = self.variables.get(name) if value is None else value
            if text is None:
                self._leave_out(f"{key}.{name}", "it is not set")
            else:
                variables[name] = text
        self._refuse_placeholders(key, variables.values())
        return variables

    def _refuse_placeholders(self, key: str, texts: object) -> None:
        """Add a fault for texts with placeholders of application.toml, which tare would replace."""
        for placeholder in ("{listen}", "{port}"):
            if any(placeholder in str(text) for text in (texts if isinstance(texts, Iterable) else ())):
                self._add_fault(
                    key, f"it has {placeholder}, which tare would fill in", "write it otherwise in the image"
                )

    def _read_env_files(self, key: str, entries: object) -> dict[str, str]:
        """Return the variables of environment files; later files override earlier ones."""
        variables: dict[str, str] = {}
        for each in entries if isinstance(entries, list) else [entries]:
            entry = each if isinstance(each, dict) else {"path": each}
            path = self._relative_path(key, str(entry.get("path", "")))
            text = self.context.read(path) if path else ""
            if text is None and entry.get("required", True) is not True:
                self._leave_out(key, f"there is no {path}")
            elif text is None:
                self._add_fault(key, f"there is no file {path}", "write it, or take it out of env_file")
            else:
                try:
                    variables |= read_variables(text, self.context.variables)
                except ValueError as error:
                    self._add_fault(key, f"{path}: {error}", "write NAME=value in each line")
        self.variables.used |= variables.keys()
        return variables

    def _relative_path(self, key: str, source: str) -> str:
        """Return a path relative to the folder of the file; add a fault and return "" for a path outside."""
        path = PurePosixPath(source)
        if path.is_absolute() and path.is_relative_to(self.context.folder):
            path = path.relative_to(self.context.folder)
        if path.is_absolute() or source.startswith(("~", "$")) or ".." in path.parts:
            hint = "copy it into the folder of the file, and name that"
            self._add_fault(key, f"{source} is outside of the folder", hint)
            return ""
        return str(path)

    def _convert_ports(self, service_key: str, service: Mapping[str, object], setting: str) -> Iterator[int]:
        """Yield the TCP ports on which a service listens; published ports of the machine are not used."""
        key, entries = f"{service_key}.{setting}", service.get(setting, [])
        for each in entries if isinstance(entries, list) else []:
            protocol, port = parse_port(each)
            if protocol != "tcp":
                self._leave_out(key, f"{each}, which is not TCP: services reach each other on all ports")
            elif port is None:
                self._add_fault(key, f"{each} is not one port", 'write each port by itself, as in "80:80"')
            else:
                yield port

    def _convert_healthcheck(self, key: str, check: object) -> dict[str, object]:
        if not isinstance(check, dict) or check.get("disable") or "test" not in check:
            return {}
        for setting in check.keys() - {"test", "disable"}:
            self._leave_out(f"{key}.{setting}", f"the service has {_READY_WITHIN} to be ready")
        test = check["test"]
        if isinstance(test, str):
            self._refuse_placeholders(f"{key}.test", [test])
            words = ["sh", "-c", test]
        else:
            form, *words = self._split_words(f"{key}.test", test) or ["NONE"]
            if form == "CMD-SHELL":
                words = ["sh", "-c", *words]
            elif form == "NONE":
                return {}
            elif form != "CMD":
                self._add_fault(f"{key}.test", f"it begins with {form}", "its first word is CMD, CMD-SHELL or NONE")
        return {"ready_command": words, "ready_within": _READY_WITHIN}

    def _convert_volumes(self, key: str, volumes: object) -> dict[str, str]:
        """Return the files that are mounted from the folder, by target; volumes of an engine are left out."""
        files = {}
        for each in volumes if isinstance(volumes, list) else []:
            source, target = parse_mount(each)
            if not source:
                self._leave_out(key, f"{target}, which begins as in the image in each trial")
            elif source.endswith(".sock"):
                hint = "an instance does not talk to an engine: leave this service out"
                self._add_fault(key, f"{source} is a socket of the machine", hint)
            elif path := self._relative_path(key, source):
                files[target] = path
        return files

    def _choose_under_test(self, services: Mapping[str, Mapping[str, object]], requested: str) -> str:
        if requested in services:
            return requested
        if requested:
            hint = did_you_mean(requested, services, f"it has {', '.join(services)}")
            self._add_fault("services", f'there is no service "{requested}"', hint)
            return ""
        published = [name for name, service in services.items() if service.get("ports")]
        if len(published) == 1 or len(services) == 1:
            return (published or [*services])[0]
        reason = f"{', '.join(published)} publish ports" if published else "no service publishes a port"
        hint = f"say it: --service {(published or [*services])[0]}"
        self._add_fault("services", f"{reason}: which one is under test?", hint)
        return ""

    def _sort_services(self, services: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
        """Return the names of the services in start order: dependencies first, otherwise as in the file."""
        order = sort_by_dependency(services)
        if left := [name for name in services if name not in order]:
            names = ", ".join(left)
            self._add_fault("services", f"{names} depend on each other in a circle", "take one out of depends_on")
        return order


def _format_table(name: str, settings: Mapping[str, object]) -> str:
    head = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else format_setting(name)
    return "".join((f"[services.{head}]\n", *(f"{key} = {format_setting(value)}\n" for key, value in settings.items())))
