"""Converters of single keys of a service: names, capabilities, limits and health checks (pure: no I/O)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tare.features.compose.keys import DEPLOY_LEFT_OUT, LEFT_OUT, NO_EFFECT, OTHER_CAPABILITIES
from tare.features.compose.notes import Notes
from tare.features.compose.syntax import (
    as_list,
    dependencies_of,
    format_bytes,
    get_nested,
    parse_bytes,
    parse_duration,
    parse_port,
)
from tare.images.oci import CAPABILITIES
from tare.model.errors import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_DEFAULT_CHECK = {"interval": "30s", "timeout": "30s", "retries": "3", "start_period": "0s"}  # of Compose
_MAX_READY_SECONDS = 3600.0
_PORT_READY_WITHIN = "2m"  # until a service without a health check must take connections; Compose has no limit


def convert_names(notes: Notes, services: Mapping[str, Mapping[str, object]]) -> dict[str, tuple[str, ...]]:
    """Return the names in addition to its own by which each service is found. A name is that of the first service."""
    for name, service in services.items():
        _note_host_and_networks(notes, name, service)
    owners = {name: name for name in services}
    found: dict[str, list[str]] = {name: [] for name in services}
    for name, service in services.items():
        for key, owner, other in _list_names(name, service):
            if owner not in services:
                continue
            if not _NAME.fullmatch(other) or other == "localhost":
                notes.add_fault(key, f"{other!r} is no name of a host", "use letters, digits, dots and hyphens")
            elif owners.setdefault(other, owner) != owner:
                notes.leave_out(key, f"the name {other} leads to {owners[other]}")
            elif other != owner and other not in found[owner]:
                found[owner].append(other)
    return {name: tuple(names) for name, names in found.items()}


def _note_host_and_networks(notes: Notes, name: str, service: Mapping[str, object]) -> None:
    """Note what a host name and networks have in addition to names, which are kept."""
    key = f"services.{name}"
    if service.get("hostname", name) != name:
        notes.leave_out(f"{key}.hostname", "the others find it by this name, and its host name is tare")
    networks = service.get("networks")
    tables = networks if isinstance(networks, dict) else dict.fromkeys(map(str, as_list(networks)))
    settings = {setting for table in tables.values() for setting in (table if isinstance(table, dict) else ())}
    if {*tables} - {"default"} or settings - {"aliases"}:
        notes.leave_out(f"{key}.networks", "all services are on one network of tare's")


def _list_names(name: str, service: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """Return the key, the service and the name of each additional name that a service has or gives to others."""
    key = f"services.{name}"
    host, domain = service.get("hostname"), service.get("domainname")
    names = [(f"{key}.{each}", name, str(service[each])) for each in ("container_name", "hostname") if each in service]
    names += [(f"{key}.domainname", name, f"{host}.{domain}")] if host and domain else []
    networks = service.get("networks")
    for network in networks if isinstance(networks, dict) else ():
        aliases = as_list(get_nested(networks, network, "aliases"))
        names += [(f"{key}.networks.{network}.aliases", name, str(alias)) for alias in aliases]
    links = [str(link).partition(":") for link in as_list(service.get("links"))]
    return names + [(f"{key}.links", linked, other) for linked, _, other in links if other]


def convert_capabilities(notes: Notes, key: str, service: Mapping[str, object]) -> dict[str, object]:
    """Return the capabilities that a service keeps, if these are not Docker's default."""
    added, dropped = (_read_capabilities(notes, f"{key}.{each}", service.get(each)) for each in ("cap_add", "cap_drop"))
    for name in added:
        if name not in CAPABILITIES:
            hint = f"leave it out: an instance has no more than Docker's default, {', '.join(CAPABILITIES)}"
            what = f"{name} cannot be given: it has power over the machine, and stacks would differ in it"
            notes.add_fault(f"{key}.cap_add", what, hint)
    kept = [name for name in CAPABILITIES if name in added or not ({name, "ALL"} & {*dropped})]
    return {} if kept == [*CAPABILITIES] else {"capabilities": kept}


def _read_capabilities(notes: Notes, key: str, value: object) -> list[str]:
    names = [str(each).upper().removeprefix("CAP_") for each in as_list(value)]
    known = ("ALL", *CAPABILITIES, *OTHER_CAPABILITIES)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"name one of Docker's default: {', '.join(CAPABILITIES)}")
            notes.add_fault(key, f"{name} is no capability", hint)
    return [name for name in names if name in known]


def convert_limits(notes: Notes, key: str, service: Mapping[str, object], is_tested: bool) -> dict[str, object]:
    """Return the memory limit of a sidecar service; record which limits do not hold."""
    settings: dict[str, object] = {}
    if "mem_limit" in service:
        settings |= _convert_memory(notes, f"{key}.mem_limit", service["mem_limit"], is_tested)
    deploy = service.get("deploy")
    for name, value in deploy.items() if isinstance(deploy, dict) else ():
        if name != "resources":
            text = DEPLOY_LEFT_OUT.get(str(name), NO_EFFECT).format(value)
            if (name, str(value)) != ("replicas", "1"):
                notes.leave_out(f"{key}.deploy.{name}", text)
            continue
        for limit, amount in _items(get_nested(value, "limits")):
            if limit == "memory":
                settings |= _convert_memory(notes, f"{key}.deploy", amount, is_tested)
            else:
                form = {"cpus": LEFT_OUT["cpus"], "pids": LEFT_OUT["pids_limit"]}.get(limit, "")
                notes.leave_out(f"{key}.deploy", form.format(amount) or f"{limit}: {NO_EFFECT}")
        if reserved := [name for name, _ in _items(get_nested(value, "reservations")) if name != "devices"]:
            notes.leave_out(f"{key}.deploy", f"nothing is reserved: {', '.join(reserved)}")
    return settings


def _convert_memory(notes: Notes, key: str, amount: object, is_tested: bool) -> dict[str, object]:
    try:
        size = parse_bytes(amount)
    except ValueError as error:
        notes.add_fault(key, str(error), "write it as in 512m or 2G")
        return {}
    if not is_tested:
        return {"memory": format_bytes(size).replace(" bytes", "B").replace(" ", "")}
    notes.leave_out(key, f"the memory limit of {format_bytes(size)} does not hold: a suite has [limits] memory for it")
    return {}


def _items(value: object) -> list[tuple[str, object]]:
    return [(str(name), each) for name, each in value.items()] if isinstance(value, dict) else []


def convert_ports(notes: Notes, service_key: str, service: Mapping[str, object]) -> dict[str, object]:
    """Return the first TCP port on which a service listens; published ports of the machine are not used."""
    found: dict[int, str] = {}
    for setting in ("ports", "expose"):
        key = f"{service_key}.{setting}"
        for each in as_list(service.get(setting)):
            protocol, port = parse_port(each)
            if protocol != "tcp":
                notes.leave_out(key, f"{each}, which is not TCP: services reach each other on all ports")
            elif port is None and "-" in str(each):
                notes.leave_out(key, f"{each}, a range: services reach each other on all ports")
            elif port is None:
                notes.add_fault(key, f"{each} is not one port", 'write each port by itself, as in "80:80"')
            else:
                found.setdefault(port, key)
    for port, key in [*found.items()][1:]:
        notes.leave_out(key, f"port {port}, as the load knows one")
    return {"port": next(iter(found)), "ready_within": _PORT_READY_WITHIN} if found else {}


def convert_check_times(notes: Notes, key: str, check: Mapping[object, object]) -> dict[str, object]:
    """Return the time limits of a health check.

    A service is not ready if its check has failed `retries` times after the start period: so the last check begins that
    many intervals after it. tare checks more often, because the time until a service is ready is measured.
    """
    values = {name: str(check.get(name) or default) for name, default in _DEFAULT_CHECK.items()}
    try:
        interval, timeout, start = (parse_duration(values[each]) for each in ("interval", "timeout", "start_period"))
    except ValueError as error:
        notes.add_fault(key, str(error), "write it as in interval: 30s")
        return {}
    if not re.fullmatch(r"[0-9]{1,4}", values["retries"]):
        notes.add_fault(f"{key}.retries", f"{values['retries']} is no number", "write it as in retries: 3")
        return {}
    # Zero stands for the default.
    interval, timeout = interval or 30.0, timeout or 30.0
    within = start + (int(values["retries"]) or 3) * interval
    if within > _MAX_READY_SECONDS:
        notes.leave_out(key, f"the service has an hour to be ready, not {within:g} s")
    for name in check:
        if name in {*_DEFAULT_CHECK, "test", "disable"}:
            continue
        notes.leave_out(f"{key}.{name}", "tare checks at once, and more often")
    return {
        "ready_within": _format_seconds(min(within, _MAX_READY_SECONDS)),
        "ready_timeout": _format_seconds(min(timeout, _MAX_READY_SECONDS)),
    }


def _format_seconds(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1e-3 else f"{seconds * 1e6:g}us"


def find_waiting(services: Mapping[str, Mapping[str, object]], tested: str) -> set[str]:
    """Return the names of the services that depend on the service under test, directly or through others."""
    waiting = {tested}
    while more := {name for name, each in services.items() if waiting & {*dependencies_of(each)}} - waiting:
        waiting |= more
    return waiting - {tested}


def convert_after(service: Mapping[str, object], services: Sequence[str], tested: str, waits: bool) -> tuple[str, ...]:
    """Return the services that must be ready before this one starts, in the order of `services`.

    These are the healthy ones of `depends_on`, and the service under test if this one `waits` for it.
    """
    depends_on = service.get("depends_on")
    healthy = {
        name for name in dependencies_of(service) if get_nested(depends_on, name, "condition") == "service_healthy"
    }
    return tuple(name for name in services if name in healthy or (waits and name == tested))
