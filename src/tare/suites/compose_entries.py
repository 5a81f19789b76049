"""Entries of a compose file, which have a short and a long form, and what follows from them: order and names."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBER = re.compile(r"[0-9]{1,5}")


def needed(service: Mapping[str, object]) -> tuple[str, ...]:
    """Name the services that start before this one."""
    depends_on, links = service.get("depends_on"), service.get("links")
    depended = [str(each) for each in depends_on] if isinstance(depends_on, list | dict) else []
    linked = [str(each).partition(":")[0] for each in links] if isinstance(links, list) else []
    return (*depended, *linked)


def below(value: object, *keys: str) -> object:
    """Return what stands below these keys; None if there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def port_of(entry: object) -> tuple[str, int | None]:
    """Return the protocol and the service's own port; None for what is not one port."""
    if isinstance(entry, dict):
        protocol, text = str(entry.get("protocol", "tcp")), str(entry.get("target", ""))
    else:
        text, _, protocol = str(entry).partition("/")
        text = text.rpartition(":")[2]
    found = _NUMBER.fullmatch(text) is not None and 0 < int(text) < 65536
    return protocol or "tcp", int(text) if found else None


def mount_of(entry: object) -> tuple[str, str]:
    """Return what is mounted, and where; nothing for a volume of an engine's."""
    if isinstance(entry, dict):
        source = str(entry.get("source", "")) if entry.get("type") == "bind" else ""
        return source, str(entry.get("target", ""))
    source, colon, rest = str(entry).partition(":")
    if not colon:
        return "", source
    return source if source.startswith((".", "/", "~", "$")) else "", rest.partition(":")[0]


def in_order(services: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Name the services, each after those that it depends on, but for those of a circle and what depends on it."""
    left = {name: {each for each in needed(service) if each in services} for name, service in services.items()}
    order: list[str] = []
    while ready := next((name for name, first in left.items() if first <= {*order}), ""):
        order.append(ready)
        del left[ready]
    return tuple(order)


def project_of(name: str) -> str:
    """Return the name of a project as Compose makes it, with which the names of what it builds begin."""
    return re.sub(r"[^-_a-z0-9]", "", name.lower()).lstrip("-_")
