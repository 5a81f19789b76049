"""Syntax of Compose files: keys, variables, `.env` files and short forms (pure: no I/O).

Keys that decide what runs are kept: images, entry points and commands, users and folders, environments, ports, the
start order, health checks and mounted files, with the values of variables. Keys about restarting, naming or counting
services are left out, with a note. Keys without which the application would be another one are refused, all at once.

The module follows the Compose specification with one exception: a variable that is not set is refused. An engine warns
and uses an empty text, which would silently measure another application.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Keys that are copied, with their names in application.toml.
RENAMED_KEYS = {"user": "user", "working_dir": "folder", "stop_signal": "stop_signal"}
SUPPORTED_KEYS = (
    *("image", "entrypoint", "command", *RENAMED_KEYS, "environment", "env_file", "ports", "expose"),
    *("depends_on", "links", "healthcheck", "volumes"),
)
CONFIG_HINT = "let `docker compose config` write a file that has all values in it, and give that"
REFUSAL_HINTS = {  # keys that are refused, each with a hint
    "privileged": "an instance has no more rights than an application needs: leave this service out",
    "devices": "an instance has no devices of the machine: leave this service out",
    "cap_add": "an instance has no rights of the machine's administrator: leave this service out",
    "device_cgroup_rules": "an instance has no devices of the machine: leave this service out",
    "gpus": "an instance has no devices of the machine: leave this service out",
    "userns_mode": "an instance has no rights of the machine's administrator: leave this service out",
    "pid": "an instance sees only its processes: leave this service out",
    "ipc": "services find each other over the network alone: leave this service out",
    "volumes_from": "services find each other over the network alone: leave this service out",
    "network_mode": "all services are on one network of tare's: leave it out",
    "external_links": "what is outside of the file is no part of the application: leave it out",
    "extra_hosts": "what is outside of the file is no part of the application: leave it out",
    "secrets": "mount the file from the folder, in volumes",
    "configs": "mount the file from the folder, in volumes",
    "extends": CONFIG_HINT,
}
# Left out: services of tare's applications find each other by the names of their tables.
NAME_KEYS = ("container_name", "hostname", "domainname")
TOP_LEVEL_KEYS = ("services", "version", "name")


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":?[-?+]")
_MAX_SHOWN_CHARACTERS = 20  # of a faulty placeholder, in messages
_EMPTY = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_LINE = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*
    (?:[=:](?:[ \t]*(?:'(?P<literal>[^']*)'|"(?P<quoted>(?:[^"\\]|\\.)*)")[ \t]*(?:\#[^\n]*)?
    |(?P<plain>[ \t]*(?:[^'"\s][^\n]*)?)))?
    (?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r'\\([nrt"\\])')
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t"}
_NUMBER = re.compile(r"[0-9]{1,5}")


@dataclass
class Variables:
    """Values of variables by name, with the set of names whose values were `used`."""

    values: Mapping[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def get(self, name: str) -> str | None:
        """Return a value; None if the variable is not set."""
        value = self.values.get(name)
        if value is not None:
            self.used.add(name)
        return value


def interpolate(text: str, variables: Variables, default: str | None = None) -> str:
    """Replace the placeholders of a text, as an engine does; `$$` is a dollar sign.

    `default` is the value of variables that are not set. Raises ValueError for a faulty placeholder, and for a variable
    that is not set if `default` is None.
    """
    done, at = [], 0
    while (start := text.find("$", at)) >= 0:
        done.append(text[at:start])
        after = start + 1
        braced = text.startswith("{", after)
        name = _NAME.match(text, after + braced)
        if text.startswith("$", after):
            done.append("$")
            at = after + 1
        elif name is None:
            raise ValueError(
                f"{text[start : start + _MAX_SHOWN_CHARACTERS]!r} is no variable: a dollar sign is written $$"
            )
        elif braced:
            end = _find_closing_brace(text, name.end())
            done.append(_expand_placeholder(name[0], text[name.end() : end], variables, default))
            at = end + 1
        else:
            done.append(_expand_placeholder(name[0], "", variables, default))
            at = name.end()
    return "".join((*done, text[at:]))


def _find_closing_brace(text: str, at: int) -> int:
    """Return the index of the brace that closes a placeholder, whose default may contain placeholders."""
    depth = 1
    for match in re.finditer(r"\$\$|\$\{|\}", text[at:]):
        depth += {"$$": 0, "${": 1, "}": -1}[match[0]]
        if depth == 0:
            return at + match.start()
    raise ValueError(f"a brace is not closed in {text[:100]!r}")


def _expand_placeholder(name: str, rest: str, variables: Variables, default: str | None) -> str:
    """Return the value of a placeholder; `rest` is the text after its name, such as `:-default`."""
    operator = _OPERATOR.match(rest)
    if rest and operator is None:
        raise ValueError(f"{'${' + name + rest + '}'!r} is no variable: after its name come -, ? or +, or :-, :? or :+")
    value = variables.get(name)
    if operator is None:
        if value is None and default is None:
            raise ValueError(f"the variable {name} is not set")
        return value if value is not None else default or ""
    # With a colon, an empty value counts as not set.
    operand, usable = rest[operator.end() :], bool(value) if operator[0].startswith(":") else value is not None
    if operator[0].endswith("+"):
        return interpolate(operand, variables, default) if usable else ""
    if value is not None and usable:
        return value
    if operator[0].endswith("?"):
        message = interpolate(operand, variables, default)
        raise ValueError(f"the variable {name} is not set" + (f": {message[:100]}" if message else ""))
    return interpolate(operand, variables, default)


def read_variables(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Parse a file of variables, such as `.env`: lines of `NAME=value`, with quotes, comments and placeholders.

    Placeholders refer to variables of `environment` or of earlier lines. A line with a name only takes the value from
    these, if there is one. Raises ValueError, which names the line.
    """
    text = text.replace("\r\n", "\n")
    variables: dict[str, str] = {}
    at = 0
    while at < len(text):
        if empty := _EMPTY.match(text, at):
            at = empty.end()
            continue
        line = text.count("\n", 0, at) + 1
        match = _LINE.match(text, at)
        if match is None:
            raise ValueError(f"line {line}: neither NAME=value nor a comment")
        try:
            value = _parse_value(match, Variables({**variables, **environment}))
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from None
        if value is not None:
            variables[match["name"]] = value
        at = match.end()
    return variables


def _parse_value(line: re.Match[str], variables: Variables) -> str | None:
    if line["literal"] is not None:
        return line["literal"]
    if line["quoted"] is not None:
        # `\$` is a dollar sign, like `$$`.
        unescaped = _ESCAPED.sub(lambda each: _CHARACTERS.get(each[1], each[1]), line["quoted"].replace("\\$", "$$"))
        return interpolate(unescaped, variables)
    if line["plain"] is None:
        return variables.get(line["name"])
    return interpolate(re.split(r"\s#", line["plain"], maxsplit=1)[0].strip(), variables)


def dependencies_of(service: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the services that must start before this one."""
    depends_on, links = service.get("depends_on"), service.get("links")
    depended = [str(each) for each in depends_on] if isinstance(depends_on, list | dict) else []
    linked = [str(each).partition(":")[0] for each in links] if isinstance(links, list) else []
    return (*depended, *linked)


def get_nested(value: object, *keys: str) -> object:
    """Return the value at a path of keys in nested tables; None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def parse_port(entry: object) -> tuple[str, int | None]:
    """Return the protocol and the container port of an entry; the port is None for a range or an invalid port."""
    if isinstance(entry, dict):
        protocol, text = str(entry.get("protocol", "tcp")), str(entry.get("target", ""))
    else:
        text, _, protocol = str(entry).partition("/")
        text = text.rpartition(":")[2]
    is_port = _NUMBER.fullmatch(text) is not None and 0 < int(text) < 65536
    return protocol or "tcp", int(text) if is_port else None


def parse_mount(entry: object) -> tuple[str, str]:
    """Return source and target of a mount; the source is "" for a volume of the engine."""
    if isinstance(entry, dict):
        source = str(entry.get("source", "")) if entry.get("type") == "bind" else ""
        return source, str(entry.get("target", ""))
    source, colon, rest = str(entry).partition(":")
    if not colon:
        return "", source
    return source if source.startswith((".", "/", "~", "$")) else "", rest.partition(":")[0]


def parse_environment(environment: object) -> dict[str, str | None] | None:
    """Return the variables of a table or a list of NAME=value; None for any other value.

    The value of a variable is None if the file has only its name: engines then take the value from the shell.
    """
    if isinstance(environment, list):
        entries = (str(each).partition("=") for each in environment)
        return {name: value if equals else None for name, equals, value in entries}
    if not isinstance(environment, dict):
        return None
    return {
        # YAML's true is a text for engines, and spelled as in the file.
        str(name): json.dumps(value) if isinstance(value, bool) else None if value is None else str(value)
        for name, value in environment.items()
    }


def sort_by_dependency(services: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Return the names of services, dependencies first, without those of a cycle and those that depend on it."""
    left = {name: {each for each in dependencies_of(service) if each in services} for name, service in services.items()}
    order: list[str] = []
    while ready := next((name for name, first in left.items() if first <= {*order}), ""):
        order.append(ready)
        del left[ready]
    return tuple(order)


def normalize_project_name(name: str) -> str:
    """Return the project name as Compose normalizes it; names of the images that Compose builds begin with it."""
    return re.sub(r"[^-_a-z0-9]", "", name.lower()).lstrip("-_")
