"""Converter of a parsed Compose file to `application.toml` (pure: no I/O).

`tare.features.compose.keys` has the keys that are kept and those that are refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from tare.features.compose.context import ComposeContext
from tare.features.compose.keys import (
    CONFIG_HINT,
    LEFT_OUT,
    NO_EFFECT,
    REFUSAL_HINTS,
    RENAMED_KEYS,
    SUPPORTED_KEYS,
    TOP_LEVEL_KEYS,
    TOP_LEVEL_LEFT_OUT,
)
from tare.features.compose.mounts import MountConverter, find_sharers
from tare.features.compose.notes import Notes
from tare.features.compose.services import (
    convert_after,
    convert_capabilities,
    convert_check_times,
    convert_limits,
    convert_names,
    convert_ports,
    find_waiting,
)
from tare.features.compose.syntax import (
    Variables,
    dependencies_of,
    get_nested,
    interpolate,
    normalize_project_name,
    parse_environment,
    read_variables,
    sort_by_dependency,
)
from tare.model.errors import SuiteError, did_you_mean
from tare.model.units import format_setting

_FALSE: tuple[object, ...] = (False, "false", [], {}, "")
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
    """Result of a conversion: the `text` of `application.toml`, and a line for each key that is left out or replaced.

    `embedded_variables` are the names of variables from the shell, `.env` and environment files whose values are in the
    text, which may be secret.
    """

    text: str
    notes: tuple[str, ...]
    embedded_variables: tuple[str, ...] = ()


def convert_compose(
    document: object, source: str, under_test: str = "", context: ComposeContext | None = None
) -> ConvertedCompose:
    """Convert a parsed Compose file; raises SuiteError with all keys that cannot be kept.

    If `under_test` is "", the service under test is the only one that publishes ports.
    """
    context = context or ComposeContext()
    return _Conversion(Notes(source), context, Variables(context.variables)).convert(document, under_test)


@dataclass
class _Conversion:
    """Conversion of a Compose file, which collects all faults and all lines about keys.

    `project` is the name of the Compose project, which is part of the names of the images that Compose builds.
    """

    notes: Notes
    context: ComposeContext
    variables: Variables
    project: str = ""

    def convert(self, document: object, under_test: str) -> ConvertedCompose:
        """Convert the parsed file; raises SuiteError with all faults."""
        self.project = self._project_name(document)
        services = self._find_services(document)
        chosen = self._choose_under_test(services, under_test) if services else ""
        settings = self._convert_services(services, document, chosen)
        if chosen and "port" not in settings[chosen]:
            hint = "write expose with the port on which it listens"
            self.notes.add_fault(f"services.{chosen}", "it has no TCP port, and the load needs one", hint)
        order = self._sort_services(services)
        if self.notes.faults:
            raise SuiteError(self.notes.faults)
        tables = [f"[application]\nunder_test = {format_setting(chosen)}\n"]
        tables += [_format_table(name, settings[name]) for name in order]
        text = "\n".join(tables) + _EXAMPLE_LOAD
        unset = tuple(f"warning: .env: {_describe_unset(name)}" for name in self.context.unset)
        lines = unset + self.notes.in_file_order(document)
        return ConvertedCompose(text, lines, tuple(sorted(self.variables.used)))

    def _convert_services(
        self, services: Mapping[str, Mapping[str, object]], document: object, chosen: str
    ) -> dict[str, dict[str, object]]:
        """Return the settings of all services in application.toml."""
        names, waiting = convert_names(self.notes, services), find_waiting(services, chosen)
        tables = self._interpolate_tables(document)
        sharers = find_sharers(services)
        converted = {}
        for name, service in services.items():
            key = f"services.{name}"
            settings = self._convert_service(name, service)
            self._check_dependencies(key, service, services, get_nested(document, "services"))
            settings["after"] = convert_after(service, [*services], chosen, name in waiting)
            settings |= {"names": names[name]} if names[name] else {}
            settings |= convert_limits(self.notes, key, service, name == chosen)
            settings |= MountConverter(self.notes, self.context, tables, key, sharers).convert(service)
            converted[name] = settings
        return converted

    def _check_dependencies(
        self, key: str, service: Mapping[str, object], started: Mapping[str, object], every: object
    ) -> None:
        """Note dependencies on services that do not start; a service that is not in the file is a fault."""
        for name in dict.fromkeys(each for each in dependencies_of(service) if each not in started):
            optional = get_nested(service, "depends_on", name, "required") is False
            if optional or (isinstance(every, dict) and name in every):
                self.notes.leave_out(f"{key}.depends_on.{name}", "it does not start")
            else:
                hint = did_you_mean(name, started, f"write a service {name}, or leave it out")
                self.notes.add_fault(f"{key}.depends_on", f'there is no service "{name}"', hint)

    def _interpolate_tables(self, document: object) -> dict[str, object]:
        """Return the tables of secrets and configurations, with their variables filled in."""
        tables = document if isinstance(document, dict) else {}
        return {name: self._interpolate(name, tables[name]) for name in ("secrets", "configs") if name in tables}

    def _project_name(self, document: object) -> str:
        """Return the name that Compose gives the project: of the shell, of the file, or else of its folder."""
        table = document if isinstance(document, dict) else {}
        in_file = str(self._interpolate("name", table["name"])) if "name" in table else ""
        in_shell = self.context.variables.get("COMPOSE_PROJECT_NAME", "")
        return normalize_project_name(in_shell or in_file or PurePosixPath(self.context.folder).name)

    def _find_services(self, document: object) -> dict[str, Mapping[str, object]]:
        """Return the services that an engine starts by default."""
        services = document.get("services") if isinstance(document, dict) else None
        if not isinstance(document, dict) or not isinstance(services, dict) or not services:
            self.notes.add_fault("services", "missing", "give a compose file, which has services")
            return {}
        for name in document:
            if name == "include":
                self.notes.add_fault("include", "the services of other files are not read", CONFIG_HINT)
            elif name not in TOP_LEVEL_KEYS and not str(name).startswith("x-"):
                self.notes.leave_out(str(name), TOP_LEVEL_LEFT_OUT.get(str(name), NO_EFFECT))
        started: dict[str, Mapping[str, object]] = {}
        for name, service in services.items():
            if not isinstance(service, dict):
                self.notes.add_fault(f"services.{name}", "not a table", "write its image and its settings below it")
            elif service.get("profiles"):
                self.notes.leave_out(f"services.{name}", "it has a profile: an engine starts it only on request")
            else:
                started[str(name)] = self._interpolate_settings(f"services.{name}", service)
        return started

    def _interpolate_settings(self, key: str, service: Mapping[object, object]) -> dict[str, object]:
        """Return the settings that are not null; fill in the variables of keys that are kept or refused."""
        present = {str(name): value for name, value in service.items() if value is not None}
        read = {*SUPPORTED_KEYS, *REFUSAL_HINTS, *(name for name, text in LEFT_OUT.items() if "{}" in text)}
        return {
            name: self._interpolate(f"{key}.{name}", value) if name in read else value
            for name, value in present.items()
        }

    def _interpolate(self, key: str, value: object) -> object:
        """Return a value with the variables of its texts filled in."""
        if isinstance(value, dict):
            return {name: self._interpolate(f"{key}.{name}", each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._interpolate(key, each) for each in value]
        if not isinstance(value, str):
            return value
        known = len(self.variables.unset)
        try:
            return interpolate(value, self.variables)
        except ValueError as error:
            hint = "write its value into .env next to the file, or before the command: NAME=value tare application …"
            is_unset = "is not set" in str(error)
            self.notes.add_fault(key, str(error), hint if is_unset else "see the Compose specification")
            return value
        finally:
            for name in [*self.variables.unset][known:]:
                self.notes.add("warning", key, _describe_unset(name))

    def _convert_service(self, name: str, service: Mapping[str, object]) -> dict[str, object]:
        """Return the settings of a service in application.toml."""
        key = f"services.{name}"
        known = {*SUPPORTED_KEYS, *REFUSAL_HINTS, "build"}
        for setting, value in service.items():
            if setting in REFUSAL_HINTS and value not in _FALSE:
                self.notes.add_fault(f"{key}.{setting}", "cannot be kept", REFUSAL_HINTS[setting])
            elif not (setting in known or setting.startswith("x-") or value in (*_FALSE, "no")):
                self.notes.leave_out(f"{key}.{setting}", LEFT_OUT.get(setting, NO_EFFECT).format(value))
        self._refuse_unsupported(key, service)
        settings: dict[str, object] = {"from": self._convert_image(key, service), **self._convert_program(key, service)}
        settings |= convert_capabilities(self.notes, key, service)
        environment = self._read_env_files(f"{key}.env_file", service.get("env_file", []))
        environment |= self._convert_environment(f"{key}.environment", service.get("environment", {}))
        if environment:
            settings["environment"] = environment
        settings |= convert_ports(self.notes, key, service)
        return settings | self._convert_healthcheck(f"{key}.healthcheck", service.get("healthcheck", {}))

    def _refuse_unsupported(self, key: str, service: Mapping[str, object]) -> None:
        """Add faults for devices and services that end, which are nested in keys that may be kept."""
        if get_nested(service, "deploy", "resources", "reservations", "devices"):
            self.notes.add_fault(
                f"{key}.deploy.resources.reservations.devices", "cannot be kept", REFUSAL_HINTS["devices"]
            )
        for name in dependencies_of(service):
            if get_nested(service, "depends_on", name, "condition") == "service_completed_successfully":
                hint = f"do what {name} does in the image, or at the start of a service that stays"
                self.notes.add_fault(f"{key}.depends_on.{name}", "the services of an application do not end", hint)

    def _convert_image(self, key: str, service: Mapping[str, object]) -> str:
        image = service.get("image")
        if image is None and "build" in service and self.project:
            image = f"{self.project}-{key.removeprefix('services.')}"  # as Compose names what it builds
        if not isinstance(image, str):
            hint = "give it a name in the file, as in image: shop-web:1, and build it: docker compose build"
            fault = "nobody has built its image" if "build" in service else "missing"
            self.notes.add_fault(f"{key}.image", fault, hint)
            return ""
        if "build" not in service:
            return f"docker://{image}"
        if image.startswith("localhost/"):  # engines name the images that they build so: search their stores first
            self.notes.leave_out(f"{key}.build", f"{image} is taken from Podman or Docker: build it before, as root")
            return f"docker://{image}"
        tagged = "@" in image or ":" in image.rpartition("/")[2]
        image = image if tagged else f"{image}:latest"
        self.notes.leave_out(f"{key}.build", f"{image} is taken from Docker: build it before: docker compose build")
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
                self.notes.add_fault(f"{key}.command", "an image's command cannot be taken away alone", hint)
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
                self.notes.add_fault(
                    key, f"it cannot be split into words: {str(error).lower()}", "write a list of words"
                )
                return []
        if isinstance(command, list) and all(isinstance(word, str | int | float) for word in command):
            return [str(word) for word in command]
        self.notes.add_fault(key, "neither a line nor a list of words", 'write it as in command: ["app", "--port=80"]')
        return []

    def _convert_environment(self, key: str, environment: object) -> dict[str, str]:
        table = parse_environment(environment)
        if table is None:
            self.notes.add_fault(key, "neither a table nor a list", "write NAME: value")
            return {}
        variables = {}
        for name, value in table.items():
            text = self.variables.get(name) if value is None else value
            if text is None:
                self.notes.leave_out(f"{key}.{name}", "it is not set")
            else:
                variables[name] = text
        self._refuse_placeholders(key, variables.values())
        return variables

    def _refuse_placeholders(self, key: str, texts: object) -> None:
        """Add a fault for texts with placeholders of application.toml, which tare would replace."""
        for placeholder in ("{listen}", "{port}"):
            if any(placeholder in str(text) for text in (texts if isinstance(texts, Iterable) else ())):
                self.notes.add_fault(
                    key, f"it has {placeholder}, which tare would fill in", "write it otherwise in the image"
                )

    def _read_env_files(self, key: str, entries: object) -> dict[str, str]:
        """Return the variables of environment files; later files override earlier ones."""
        variables: dict[str, str] = {}
        for each in entries if isinstance(entries, list) else [entries]:
            entry = each if isinstance(each, dict) else {"path": each}
            path = self.context.relative_path(self.notes, key, str(entry.get("path", "")))
            text = self.context.read(path) if path else ""
            if text is None and entry.get("required", True) is not True:
                self.notes.leave_out(key, f"there is no {path}")
            elif text is None:
                self.notes.add_fault(key, f"there is no file {path}", "write it, or take it out of env_file")
            else:
                unset: dict[str, None] = {}
                try:
                    variables |= read_variables(text, self.context.variables, unset)
                except ValueError as error:
                    self.notes.add_fault(key, f"{path}: {error}", "write NAME=value in each line")
                for name in unset:
                    self.notes.add("warning", key, f"{path}: {_describe_unset(name)}")
        self.variables.used |= variables.keys()
        return variables

    def _convert_healthcheck(self, key: str, check: object) -> dict[str, object]:
        if not (isinstance(check, dict) and check) or check.get("disable"):
            return {}
        if "test" not in check:
            self.notes.leave_out(key, "the check of an image does not run")
            return {}
        times = convert_check_times(self.notes, key, check)
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
                self.notes.add_fault(
                    f"{key}.test", f"it begins with {form}", "its first word is CMD, CMD-SHELL or NONE"
                )
        return {"ready_command": words, **times}

    def _choose_under_test(self, services: Mapping[str, Mapping[str, object]], requested: str) -> str:
        if requested in services:
            return requested
        if requested:
            hint = did_you_mean(requested, services, f"it has {', '.join(services)}")
            self.notes.add_fault("services", f'there is no service "{requested}"', hint)
            return ""
        published = [name for name, service in services.items() if service.get("ports")]
        if len(published) == 1 or len(services) == 1:
            return (published or [*services])[0]
        reason = f"{', '.join(published)} publish ports" if published else "no service publishes a port"
        hint = f"say it: --service {(published or [*services])[0]}"
        self.notes.add_fault("services", f"{reason}: which one is under test?", hint)
        return ""

    def _sort_services(self, services: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
        """Return the names of the services in start order: dependencies first, otherwise as in the file."""
        order = sort_by_dependency(services)
        if left := [name for name in services if name not in order]:
            names = ", ".join(left)
            self.notes.add_fault("services", f"{names} depend on each other in a circle", "take one out of depends_on")
        return order


def _format_table(name: str, settings: Mapping[str, object]) -> str:
    head = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else format_setting(name)
    return "".join((f"[services.{head}]\n", *(f"{key} = {format_setting(value)}\n" for key, value in settings.items())))


def _describe_unset(name: str) -> str:
    return f"the variable {name} is not set: an empty text stands for it"
