"""Variables, `.env` files and short forms of compose files.

It is pure, and follows the Compose specification with one exception: a variable that is not set is refused, where an
engine warns and uses an empty text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":?[-?+]")
_MAX_SHOWN_CHARACTERS = 20  # characters of what cannot be read
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
    """Values by their names. It notes the names whose values were `used`."""

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

    `default` is the value of a variable that is not set. Raises ValueError without one, and for a wrong placeholder.
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
    """Find the brace that closes a placeholder; its default may have others."""
    depth = 1
    for found in re.finditer(r"\$\$|\$\{|\}", text[at:]):
        depth += {"$$": 0, "${": 1, "}": -1}[found[0]]
        if depth == 0:
            return at + found.start()
    raise ValueError(f"a brace is not closed in {text[:100]!r}")


def _expand_placeholder(name: str, rest: str, variables: Variables, default: str | None) -> str:
    """Return the value of a placeholder; `rest` is what follows its name, such as `:-default`."""
    how = _OPERATOR.match(rest)
    if rest and how is None:
        raise ValueError(f"{'${' + name + rest + '}'!r} is no variable: after its name come -, ? or +, or :-, :? or :+")
    there = variables.get(name)
    if how is None:
        if there is None and default is None:
            raise ValueError(f"the variable {name} is not set")
        return there if there is not None else default or ""
    instead, usable = rest[how.end() :], bool(there) if how[0].startswith(":") else there is not None
    if how[0].endswith("+"):
        return interpolate(instead, variables, default) if usable else ""
    if there is not None and usable:
        return there
    if how[0].endswith("?"):
        said = interpolate(instead, variables, default)
        raise ValueError(f"the variable {name} is not set" + (f": {said[:100]}" if said else ""))
    return interpolate(instead, variables, default)


def read_variables(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Read a file of variables, such as `.env`: lines of `NAME=value`, with quotes, comments and placeholders.

    Placeholders name variables `environment`, or of earlier lines. A name alone has the value that it has around, if
    any. Raises ValueError with the line that cannot be read.
    """
    text = text.replace("\r\n", "\n")
    found: dict[str, str] = {}
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
            value = _parse_value(match, Variables({**found, **environment}))
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from None
        if value is not None:
            found[match["name"]] = value
        at = match.end()
    return found


def _parse_value(line: re.Match[str], variables: Variables) -> str | None:
    if line["literal"] is not None:
        return line["literal"]
    if line["quoted"] is not None:
        # A backslash before a dollar sign keeps it, as $$ does.
        unescaped = _ESCAPED.sub(lambda each: _CHARACTERS.get(each[1], each[1]), line["quoted"].replace("\\$", "$$"))
        return interpolate(unescaped, variables)
    if line["plain"] is None:
        return variables.get(line["name"])
    return interpolate(re.split(r"\s#", line["plain"], maxsplit=1)[0].strip(), variables)


def dependencies_of(service: Mapping[str, object]) -> tuple[str, ...]:
    """Name the services that start before this one."""
    depends_on, links = service.get("depends_on"), service.get("links")
    depended = [str(each) for each in depends_on] if isinstance(depends_on, list | dict) else []
    linked = [str(each).partition(":")[0] for each in links] if isinstance(links, list) else []
    return (*depended, *linked)


def get_nested(value: object, *keys: str) -> object:
    """Return what stands below these keys; None if there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def parse_port(entry: object) -> tuple[str, int | None]:
    """Return the protocol and the service's own port; None for what is not one port."""
    if isinstance(entry, dict):
        protocol, text = str(entry.get("protocol", "tcp")), str(entry.get("target", ""))
    else:
        text, _, protocol = str(entry).partition("/")
        text = text.rpartition(":")[2]
    found = _NUMBER.fullmatch(text) is not None and 0 < int(text) < 65536
    return protocol or "tcp", int(text) if found else None


def parse_mount(entry: object) -> tuple[str, str]:
    """Return what is mounted, and where; nothing for a volume of an engine's."""
    if isinstance(entry, dict):
        source = str(entry.get("source", "")) if entry.get("type") == "bind" else ""
        return source, str(entry.get("target", ""))
    source, colon, rest = str(entry).partition(":")
    if not colon:
        return "", source
    return source if source.startswith((".", "/", "~", "$")) else "", rest.partition(":")[0]


def sort_by_dependency(services: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Name the services, each after those that it depends on, but for those of a circle and what depends on it."""
    left = {name: {each for each in dependencies_of(service) if each in services} for name, service in services.items()}
    order: list[str] = []
    while ready := next((name for name, first in left.items() if first <= {*order}), ""):
        order.append(ready)
        del left[ready]
    return tuple(order)


def normalize_project_name(name: str) -> str:
    """Return the name of a project as Compose makes it, with which the names of what it builds begin."""
    return re.sub(r"[^-_a-z0-9]", "", name.lower()).lstrip("-_")
