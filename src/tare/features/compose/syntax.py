"""Syntax of Compose files: variables, `.env` files, quantities and short forms (pure: no I/O)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

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
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(us|ms|s|m|h)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_POWERS = "kmgtp"  # of 1024, also without an i
_UNITS = ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1)


@dataclass
class Variables:
    """Values of variables by name, with the names whose values were `used`, and those that are `unset`, in order."""

    values: Mapping[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    unset: dict[str, None] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        """Return a value; None if the variable is not set."""
        value = self.values.get(name)
        if value is not None:
            self.used.add(name)
        return value

    def get_or_empty(self, name: str) -> str:
        """Return a value; "" if the variable is not set, as an engine does with a warning."""
        value = self.get(name)
        if value is None:
            self.unset[name] = None
        return value or ""


def interpolate(text: str, variables: Variables) -> str:
    """Replace the placeholders of a text, as an engine does; `$$` is a dollar sign.

    Raises ValueError for a faulty placeholder, and for a variable that must be set.
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
            done.append(_expand_placeholder(name[0], text[name.end() : end], variables))
            at = end + 1
        else:
            done.append(_expand_placeholder(name[0], "", variables))
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


def _expand_placeholder(name: str, rest: str, variables: Variables) -> str:
    """Return the value of a placeholder; `rest` is the text after its name, such as `:-default`."""
    operator = _OPERATOR.match(rest)
    if rest and operator is None:
        raise ValueError(f"{'${' + name + rest + '}'!r} is no variable: after its name come -, ? or +, or :-, :? or :+")
    if operator is None:
        return variables.get_or_empty(name)
    value = variables.get(name)
    # With a colon, an empty value counts as not set.
    operand, usable = rest[operator.end() :], bool(value) if operator[0].startswith(":") else value is not None
    if operator[0].endswith("+"):
        return interpolate(operand, variables) if usable else ""
    if value is not None and usable:
        return value
    if operator[0].endswith("?"):
        message = interpolate(operand, variables)
        raise ValueError(f"the variable {name} is not set" + (f": {message[:100]}" if message else ""))
    return interpolate(operand, variables)


def read_variables(text: str, environment: Mapping[str, str], unset: dict[str, None] | None = None) -> dict[str, str]:
    """Parse a file of variables, such as `.env`: lines of `NAME=value`, with quotes, comments and placeholders.

    Placeholders refer to variables of `environment` or of earlier lines; names of others are added to `unset`. A line
    with a name only takes the value from these, if there is one. Raises ValueError, which names the line.
    """
    unset = {} if unset is None else unset
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
            value = _parse_value(match, Variables({**variables, **environment}, unset=unset))
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


def as_list(value: object) -> list[object]:
    """Return a list as it is, and a text as a list of it; [] for anything else."""
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def parse_port(entry: object) -> tuple[str, int | None]:
    """Return the protocol and the container port of an entry; the port is None for a range or an invalid port."""
    if isinstance(entry, dict):
        protocol, text = str(entry.get("protocol", "tcp")), str(entry.get("target", ""))
    else:
        text, _, protocol = str(entry).partition("/")
        text = text.rpartition(":")[2]
    is_port = _NUMBER.fullmatch(text) is not None and 0 < int(text) < 65536
    return protocol or "tcp", int(text) if is_port else None


def parse_duration(text: object) -> float:
    """Return the seconds of a duration such as `1m30s`; raises ValueError."""
    parts = _DURATION.findall(str(text))
    if not parts or "".join("".join(part) for part in parts) != str(text):
        raise ValueError(f"{text} is no duration such as 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_bytes(text: object) -> int:
    """Return the bytes of a size such as `512m` or `2G`, whose units are powers of 1024; raises ValueError."""
    match = _BYTES.fullmatch(str(text))
    size = int(float(match[1]) * 1024 ** (_POWERS.find(match[2].lower()) + 1 if match[2] else 0)) if match else 0
    if size == 0:
        raise ValueError(f"{text} is no size such as 512m")
    return size


def format_bytes(size: int) -> str:
    """Return a size with the largest unit that gives a whole number, such as `2 GiB`."""
    return next(f"{size // factor} {unit}" for unit, factor in _UNITS if size % factor == 0)


@dataclass(frozen=True)
class ComposeMount:
    """Entry of `volumes` or `tmpfs`: `source` is a path, the name of a volume, or "".

    `options` are those after the target, such as `ro`. With `must_exist`, a missing source is an error.
    """

    kind: str
    source: str
    target: str
    options: tuple[str, ...] = ()
    must_exist: bool = False


def parse_mount(entry: object) -> ComposeMount:
    """Return an entry of `volumes`, in the short form or as a table."""
    if isinstance(entry, dict):
        flags = {"ro": entry.get("read_only"), "nocopy": get_nested(entry, "volume", "nocopy")}
        options = tuple(name for name, value in flags.items() if value is True)
        must_exist = get_nested(entry, "bind", "create_host_path") is False
        kind, source, target = (str(entry.get(name, "")) for name in ("type", "source", "target"))
        return ComposeMount(kind or "volume", source, target, options, must_exist)
    source, colon, rest = str(entry).partition(":")
    if not colon:
        return ComposeMount("volume", "", source)
    target, _, options_text = rest.partition(":")
    kind = "bind" if source.startswith((".", "/", "~")) else "volume"
    return ComposeMount(kind, source, target, tuple(filter(None, options_text.split(","))))


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
