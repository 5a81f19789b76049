"""Which machines an inventory of Ansible has. Its own command reads it: each of its formats and plug-ins works."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.errors import TareError, UsageError
from tare.fleet.ansible import ansible_command
from tare.hosts.local import LocalHost

SERVERS = "servers"
_CLIENTS = "clients"
_SECONDS = 60.0
_EXAMPLE = "[servers], and below it a line for each machine: web1 ansible_host=203.0.113.11"


@dataclass(frozen=True)
class Inventory:
    """The inventory's file, and the machines that are measured."""

    path: Path
    servers: tuple[str, ...]


def read_inventory(path: Path) -> Inventory:
    """Read an inventory; raises UsageError where it has no servers, or one machine in two places."""
    if not path.exists():
        raise UsageError(f"{path}: no such file", f"an inventory of Ansible, such as {_EXAMPLE}")
    asked = LocalHost().run(ansible_command("ansible-inventory"), "-i", str(path), "--list", timeout=_SECONDS)
    warned = asked.stderr.decode("utf-8", "replace")
    groups = _groups(asked.stdout, path)
    if "Unable to parse" in warned and not groups.get("_meta", {}).get("hostvars"):
        raise UsageError(f"{path}: Ansible cannot read it", f"ansible-inventory -i {path} --list says why")
    servers = _hosts_of(groups, SERVERS)
    if not servers:
        raise UsageError(f"{path}: no machines in the group {SERVERS}", _EXAMPLE)
    _refuse_odd_names(servers, path)
    variables = groups.get("_meta", {}).get("hostvars", {})
    _refuse_twice(servers, variables, path)
    _refuse_both(servers, _hosts_of(groups, _CLIENTS), variables, path)
    return Inventory(path, servers)


def _groups(text: bytes, path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise TareError(f"{path}: Ansible's answer is not understood", "is ansible-core installed well?") from error


def _hosts_of(groups: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the hosts of a group and of those below it, in their order."""
    group = groups.get(name, {})
    below = (host for child in group.get("children", ()) for host in _hosts_of(groups, child))
    return tuple(dict.fromkeys((*group.get("hosts", ()), *below)))


def _refuse_odd_names(servers: Sequence[str], path: Path) -> None:
    """Refuse names that can be no folder: a run folder bears the name of its machine."""
    if odd := [name for name in servers if "/" in name or name.startswith(".")]:
        raise UsageError(f"{path}: {odd[0]!r} can be no folder's name", "name the machine, and set its ansible_host")


def _refuse_twice(servers: Sequence[str], variables: Mapping[str, Any], path: Path) -> None:
    known: dict[tuple[str, str], str] = {}
    for name in servers:
        place = _place(name, variables)
        if earlier := known.get(place):
            what = f"{path}: {earlier} and {name} are one machine, {place[0]}"
            raise UsageError(what, "its runs would disturb each other: name it once")
        known[place] = name


def _refuse_both(servers: Sequence[str], clients: Sequence[str], variables: Mapping[str, Any], path: Path) -> None:
    places = {_place(name, variables): name for name in servers}
    for name in clients:
        if server := places.get(_place(name, variables)):
            what = f"{path}: {name} is a client, and the server {server}"
            raise UsageError(what, "a load beside a server takes from what is measured: name another machine")


def _place(name: str, variables: Mapping[str, Any]) -> tuple[str, str]:
    """Return the address and the port of a machine."""
    own = variables.get(name, {})
    return str(own.get("ansible_host", name)), str(own.get("ansible_port", 22))
