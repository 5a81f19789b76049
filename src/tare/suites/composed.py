"""A compose file as `application.toml`: what is kept, what is left out, and what is refused.

It is pure: the parsed document in, a text out. Kept is what decides what runs: images, commands, environments, ports,
the order of the start, health checks and mounted files. What says how an engine restarts, names or counts services is
left out, and named. What would be another application without it is refused, all of it at once.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tare.errors import Fault, SuiteError, did_you_mean

_KEPT = ("image", "command", "environment", "ports", "expose", "depends_on", "links", "healthcheck", "volumes")
_CONFIG = "let `docker compose config` write a file that has all values in it, and give that"
_BUILD = "set it in the image: build one with it, and name that"
_REFUSED = {  # with what to do
    "privileged": "an instance has no more rights than an application needs: leave this service out",
    "devices": "an instance has no devices of the machine: leave this service out",
    "cap_add": "an instance has no rights of the machine's administrator: leave this service out",
    "device_cgroup_rules": "an instance has no devices of the machine: leave this service out",
    "gpus": "an instance has no devices of the machine: leave this service out",
    "userns_mode": "an instance has no rights of the machine's administrator: leave this service out",
    "pid": "an instance sees its own processes alone: leave this service out",
    "ipc": "services find each other over the network alone: leave this service out",
    "volumes_from": "services find each other over the network alone: leave this service out",
    "network_mode": "all services are on one network of tare's: leave it out",
    "external_links": "what is outside of the file is no part of the application: leave it out",
    "extra_hosts": "what is outside of the file is no part of the application: leave it out",
    "entrypoint": _BUILD,
    "user": _BUILD,
    "working_dir": _BUILD,
    "secrets": "mount the file from the folder, in volumes",
    "configs": "mount the file from the folder, in volumes",
    "extends": _CONFIG,
    "env_file": _CONFIG,
}
_NAMES = ("container_name", "hostname", "domainname")
_OF_THE_FILE = ("services", "version", "name")
_READY_WITHIN = "90s"  # three checks, 30 s apart: what Compose does if not said
_NUMBER = re.compile(r"[0-9]{1,5}")
_PLACES = re.compile(r"\$(\$|[A-Za-z_{])")
_LOAD = """
[load]  # wrk asks for the first page: write here what your users do
packages = ["wrk"]
command = "wrk --threads 1 --connections 10 --duration 10s http://{address}:{port}/"
duration = "10s"

[[load.metrics]]
name = "throughput"
unit = "requests/s"
better = "higher"
pattern = "Requests/sec: +([0-9.]+)"
"""


@dataclass(frozen=True)
class Composed:
    """The text of `application.toml`, and a line for each thing that is left out."""

    text: str
    left_out: tuple[str, ...]


def composed(document: object, source: str, under_test: str = "", folder: str = "") -> Composed:
    """Convert a parsed compose file; raises SuiteError with all that cannot be kept, each under its key.

    Without a name, the service under test is the one that publishes ports. `folder` is the absolute path of the file's
    folder: what `docker compose config` has written names all files by such paths.
    """
    return _Conversion(source, PurePosixPath(folder)).of(document, under_test)


@dataclass
class _Conversion:
    source: str
    folder: PurePosixPath
    faults: list[Fault] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def of(self, document: object, under_test: str) -> Composed:
        services = self._services(document)
        texts = {name: self._service(name, service) for name, service in services.items()}
        chosen = self._chosen(services, under_test) if services else ""
        if chosen and "port" not in texts[chosen]:
            hint = "write expose with the port on which it listens"
            self._fault(f"services.{chosen}", "it has no TCP port, and the load needs one", hint)
        order = self._order(services)
        if self.faults:
            raise SuiteError(self.faults)
        tables = [f"[application]\nunder_test = {_text(chosen)}\n"]
        tables += [_table(name, texts[name]) for name in order]
        return Composed("\n".join(tables) + _LOAD, tuple(self.left_out))

    def _fault(self, key: str, what: str, hint: str) -> None:
        self.faults.append(Fault(f"{self.source}: {key}: {what}", hint))

    def _leave_out(self, key: str, why: str = "") -> None:
        self.left_out.append(f"{key}: {why}" if why else key)

    def _services(self, document: object) -> dict[str, Mapping[str, object]]:
        """Give the services that an engine would start if it is not told more."""
        services = document.get("services") if isinstance(document, dict) else None
        if not isinstance(document, dict) or not isinstance(services, dict) or not services:
            self._fault("services", "missing", "give a compose file, which has services")
            return {}
        for name in document:
            if name == "include":
                self._fault("include", "the services of other files are not read", _CONFIG)
            elif name not in _OF_THE_FILE and not str(name).startswith("x-"):
                self._leave_out(str(name))
        found: dict[str, Mapping[str, object]] = {}
        for name, service in services.items():
            if not isinstance(service, dict):
                self._fault(f"services.{name}", "not a table", "write its image and its settings below it")
            elif service.get("profiles"):
                self._leave_out(f"services.{name}", "it has a profile: an engine starts it only when it is told to")
            else:
                found[str(name)] = {str(key): value for key, value in service.items() if value is not None}
        return found

    def _service(self, name: str, service: Mapping[str, object]) -> dict[str, object]:
        """Give the settings of a service in application.toml."""
        key = f"services.{name}"
        for setting, value in service.items():
            if setting in _REFUSED and value not in (False, [], {}, ""):
                self._fault(f"{key}.{setting}", "cannot be kept", _REFUSED[setting])
            elif setting in _NAMES:
                self._leave_out(f"{key}.{setting}", f"the others find it by the name {name}")
            elif setting not in {*_KEPT, *_REFUSED, "build"} and not setting.startswith("x-"):
                self._leave_out(f"{key}.{setting}")
        self._refuse_wishes(key, service)
        settings: dict[str, object] = {"from": self._image(key, service)}
        if "command" in service:
            settings["command"] = self._words(f"{key}.command", service["command"])
        if environment := self._environment(f"{key}.environment", service.get("environment", {})):
            settings["environment"] = environment
        if ports := [*self._ports(f"{key}.ports", service, "ports"), *self._ports(f"{key}.expose", service, "expose")]:
            settings["port"], *others = dict.fromkeys(ports)
            for each in others:
                self._leave_out(f"{key}.ports", f"port {each}, as the load knows one")
        settings |= self._health(f"{key}.healthcheck", service.get("healthcheck", {}))
        if files := self._files(f"{key}.volumes", service.get("volumes", [])):
            settings["files"] = files
        return settings

    def _refuse_wishes(self, key: str, service: Mapping[str, object]) -> None:
        """Refuse devices, services that end, and other names, which stand below settings that may be kept."""
        if _below(service, "deploy", "resources", "reservations", "devices"):
            self._fault(f"{key}.deploy.resources.reservations.devices", "cannot be kept", _REFUSED["devices"])
        for name in _needed(service):
            if _below(service, "depends_on", name, "condition") == "service_completed_successfully":
                hint = f"do what {name} does in the image, or at the start of a service that stays"
                self._fault(f"{key}.depends_on.{name}", "the services of an application do not end", hint)
        links = service.get("links")
        for link in map(str, links) if isinstance(links, list) else ():
            name, _, other = link.partition(":")
            if other not in {"", name}:
                self._fault(f"{key}.links", f"{name} has another name, {other}", f"let it be found by the name {name}")

    def _image(self, key: str, service: Mapping[str, object]) -> str:
        image = service.get("image")
        if not isinstance(image, str):
            hint = "give it a name in the file, as in image: shop-web:1, and build it: docker compose build"
            what = "nobody has built its image" if "build" in service else "missing"
            self._fault(f"{key}.image", what, hint)
            return ""
        name = self._filled(f"{key}.image", image)
        if "build" not in service:
            return f"docker://{name}"
        self._leave_out(f"{key}.build", "its image is taken from Docker: build it before: docker compose build")
        tagged = "@" in name or ":" in name.rpartition("/")[2]
        return f"docker-daemon:{name}" if tagged else f"docker-daemon:{name}:latest"

    def _filled(self, key: str, text: str) -> str:
        """Give a text as an engine reads it: `$$` is `$`, and a variable is nobody's to guess."""
        if any(found[1] != "$" for found in _PLACES.finditer(text)):
            self._fault(key, "it has a variable, whose value is not in the file", _CONFIG)
        return text.replace("$$", "$")

    def _words(self, key: str, command: object) -> list[str]:
        if isinstance(command, str):
            try:
                return [self._filled(key, word) for word in shlex.split(command)]
            except ValueError as error:
                self._fault(key, f"it cannot be split into words: {str(error).lower()}", "write a list of words")
                return []
        if isinstance(command, list) and all(isinstance(word, str | int | float) for word in command):
            return [self._filled(key, str(word)) for word in command]
        self._fault(key, "neither a line nor a list of words", 'write it as in command: ["app", "--port=80"]')
        return []

    def _environment(self, key: str, environment: object) -> dict[str, str]:
        if isinstance(environment, list):
            pairs = [str(each).partition("=")[::2] if "=" in str(each) else (str(each), None) for each in environment]
            environment = dict(pairs)
        if not isinstance(environment, dict):
            self._fault(key, "neither a table nor a list", "write NAME: value")
            return {}
        found = {}
        for name, value in environment.items():
            if value is None:
                self._fault(f"{key}.{name}", "it has no value in the file", "give it one, or leave it out")
            else:
                text = json.dumps(value) if isinstance(value, bool) else str(value)
                found[str(name)] = self._filled(f"{key}.{name}", text)
        return found

    def _ports(self, key: str, service: Mapping[str, object], setting: str) -> Iterator[int]:
        """Give the TCP ports on which a service listens; those of the machine are not needed."""
        entries = service.get(setting, [])
        for each in entries if isinstance(entries, list) else []:
            protocol, port = _port(each)
            if protocol != "tcp":
                self._leave_out(key, f"{each}, which is not TCP: services reach each other on all ports")
            elif port is None:
                self._fault(key, f"{each} is not one port", 'write each port by itself, as in "80:80"')
            else:
                yield port

    def _health(self, key: str, check: object) -> dict[str, object]:
        if not isinstance(check, dict) or check.get("disable") or "test" not in check:
            return {}
        for setting in check.keys() - {"test", "disable"}:
            self._leave_out(f"{key}.{setting}", f"the service has {_READY_WITHIN} to be ready")
        test = check["test"]
        if isinstance(test, str):
            words = ["sh", "-c", self._filled(f"{key}.test", test)]
        else:
            kind, *words = self._words(f"{key}.test", test) or ["NONE"]
            if kind == "CMD-SHELL":
                words = ["sh", "-c", *words]
            elif kind == "NONE":
                return {}
            elif kind != "CMD":
                self._fault(f"{key}.test", f"it begins with {kind}", "its first word is CMD, CMD-SHELL or NONE")
        return {"ready_command": words, "ready_within": _READY_WITHIN}

    def _files(self, key: str, volumes: object) -> dict[str, str]:
        """Give the files that are mounted from below the folder; volumes of an engine begin empty in each trial."""
        files = {}
        for each in volumes if isinstance(volumes, list) else []:
            source, target = _mount(each)
            if source.startswith("/") and PurePosixPath(source).is_relative_to(self.folder):
                source = str(PurePosixPath(source).relative_to(self.folder))
            if not source:
                self._leave_out(key, f"{target}, which begins as in the image in each trial")
            elif source.endswith(".sock"):
                hint = "an instance does not talk to an engine: leave this service out"
                self._fault(key, f"{source} is a socket of the machine", hint)
            elif source.startswith(("/", "~", "$")) or ".." in PurePosixPath(source).parts:
                hint = "copy it into the folder of the file, and mount it from there"
                self._fault(key, f"{source} is outside of the folder", hint)
            else:
                files[target] = str(PurePosixPath(source))
        return files

    def _chosen(self, services: Mapping[str, Mapping[str, object]], wanted: str) -> str:
        if wanted in services:
            return wanted
        if wanted:
            hint = did_you_mean(wanted, services, f"it has {', '.join(services)}")
            self._fault("services", f'there is no service "{wanted}"', hint)
            return ""
        published = [name for name, service in services.items() if service.get("ports")]
        if len(published) == 1 or len(services) == 1:
            return (published or [*services])[0]
        what = f"{', '.join(published)} publish ports" if published else "no service publishes a port"
        self._fault(
            "services", f"{what}: which one is under test?", f"say it: --service {(published or [*services])[0]}"
        )
        return ""

    def _order(self, services: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
        """Give the names of the services, each after those that it depends on, and as in the file otherwise."""
        left = {name: {each for each in _needed(service) if each in services} for name, service in services.items()}
        order: list[str] = []
        while left:
            ready = next((name for name, needed in left.items() if needed <= {*order}), None)
            if ready is None:
                names = ", ".join(left)
                self._fault("services", f"{names} depend on each other in a circle", "take one out of depends_on")
                return (*order, *left)
            order.append(ready)
            del left[ready]
        return tuple(order)


def _needed(service: Mapping[str, object]) -> tuple[str, ...]:
    depends_on, links = service.get("depends_on"), service.get("links")
    needed = [str(each) for each in depends_on] if isinstance(depends_on, list | dict) else []
    linked = [str(each).partition(":")[0] for each in links] if isinstance(links, list) else []
    return (*needed, *linked)


def _below(value: object, *keys: str) -> object:
    """Give what stands below these keys; None if there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _port(entry: object) -> tuple[str, int | None]:
    """Give the protocol and the service's own port; None for what is not one port."""
    if isinstance(entry, dict):
        protocol, text = str(entry.get("protocol", "tcp")), str(entry.get("target", ""))
    else:
        text, _, protocol = str(entry).partition("/")
        text = text.rpartition(":")[2]
    found = _NUMBER.fullmatch(text) is not None and 0 < int(text) < 65536
    return protocol or "tcp", int(text) if found else None


def _mount(entry: object) -> tuple[str, str]:
    """Give what is mounted, and where; nothing for a volume of an engine's."""
    if isinstance(entry, dict):
        source = str(entry.get("source", "")) if entry.get("type") == "bind" else ""
        return source, str(entry.get("target", ""))
    source, colon, rest = str(entry).partition(":")
    if not colon:
        return "", source
    return source if source.startswith((".", "/", "~", "$")) else "", rest.partition(":")[0]


def _table(name: str, settings: Mapping[str, object]) -> str:
    head = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)
    return "".join((f"[services.{head}]\n", *(f"{key} = {_written(value)}\n" for key, value in settings.items())))


def _written(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_text(name)} = {_written(each)}' for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return str(value) if isinstance(value, int) else _text(str(value))


def _text(text: str) -> str:
    """Write a text as TOML, which is as JSON but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
