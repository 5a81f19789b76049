"""Reader of the observed isolation of a started stack, from the output of `inspect` and from files of the host.

Facts of the instance's first process come from inside (programs/inspect.c), and those of a guest's monitor from the
host. The namespaces of the host are those of a command of tare's on it, not those of the machine's first process: even
root may not be allowed to read that one's.

The number of Landlock rulesets is in no file of Linux up to 6.18, so `inspect` counts how many more the kernel accepts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from tare.hosts.facts import KernelBoot, read_kernel_boot
from tare.hosts.host import Host, HostCache
from tare.model.errors import TrialFailed
from tare.model.observed_isolation import Confinement, ObservedIsolation
from tare.runner.layers import StartedLayer

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
ISOLATION_PREFIX = "isolation "
_MAX_PROCESSES = 64  # of an instance, among which the monitor is searched
_SECONDS = 30.0
Facts = Mapping[str, str]  # by the names of `inspect`


def parse_facts(text: str) -> dict[str, str]:
    """Return the lines `isolation NAME` of the output of `inspect`, by name."""
    lines = (line.partition("\t") for line in text.splitlines() if line.startswith(ISOLATION_PREFIX))
    return {name.removeprefix(ISOLATION_PREFIX): value for name, _, value in lines}


def parse_status(text: str) -> dict[str, str]:
    """Return the fields of /proc/PID/status."""
    lines = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in lines}


def parse_namespaces(text: str) -> dict[str, str]:
    """Return the numbers of namespaces by their names, from links such as `pid:[4026531836]`, one a line."""
    return dict(re.findall(r"^(\w+):\[(\d+)\]$", text, re.MULTILINE))


def create_confinement(facts: Facts, host_namespaces: Mapping[str, str] | None) -> Confinement:
    """Return the confinement that these facts describe.

    `host_namespaces` are the numbers of the host's namespaces; None if the process has another kernel.
    """
    links = "\n".join(value for name, value in facts.items() if name.startswith("namespace "))
    namespaces = parse_namespaces(links)
    known = host_namespaces or {}
    separate = tuple(
        name for name in _NAMESPACES if name in namespaces and known.get(name, namespaces[name]) != namespaces[name]
    )
    mode, privileges = _parse_number(facts, "Seccomp"), _parse_number(facts, "NoNewPrivs")
    return Confinement(
        process=facts.get("Name", ""),
        capabilities=_parse_number(facts, "CapEff", 16),
        last_capability=_parse_number(facts, "last capability"),
        no_new_privileges=None if privileges is None else bool(privileges),
        seccomp=mode,
        seccomp_filters=_parse_number(facts, "Seccomp_filters"),
        uid_map=facts.get("uid_map", ""),
        gid_map=facts.get("gid_map", ""),
        namespaces=separate if namespaces and known else None,
        label=facts.get("label", ""),
    )


def _parse_number(facts: Facts, name: str, base: int = 10) -> int | None:
    """Return the number of a fact; None if the kernel does not report it."""
    with suppress(ValueError):
        return int(facts.get(name, ""), base)
    return None


def observe_stack(parts: Sequence[StartedLayer], inspected: Sequence[str]) -> tuple[ObservedIsolation, ...]:
    """Return the observed isolation of each layer, the outermost first, without a layer that provisions the machine.

    `inspected` has the output of `inspect` in each layer; "" where it failed and where there is no inside.
    """
    return tuple(
        observe_layer(part.name, part.host, part.instance.inside, part.instance.processes(), text, part.context.cache)
        for part, text in zip(parts, inspected, strict=True)
        if not part.spec.technology.provisions_machine
    )


def observe_layer(  # noqa: PLR0913, PLR0917 - where to look, and what was found already
    name: str, host: Host, inside: Host | None, processes: Sequence[int], inspected: str, cache: HostCache
) -> ObservedIsolation:
    """Return the observed isolation of an instance on a host; facts that cannot be read are unknown."""
    facts = parse_facts(inspected)
    private, monitor, namespaces = None, None, {}
    with suppress(TrialFailed):  # a dead instance is noticed, and reported, by its client
        namespaces = parse_namespaces(cache.read_once("namespaces of the host", lambda: _read_namespaces(host, "self")))
        if inside is not None:
            private = _parse_boot(facts, inside).differs(_read_host_boot(host, cache))
        if private is not False:
            monitor = _find_monitor(host, processes, namespaces)
    landlock = facts.get("Landlock", "")
    return ObservedIsolation(
        layer=name,
        has_private_kernel=private,
        inside=create_confinement(facts, namespaces if private is False else None) if facts else None,
        landlock=int(landlock) if landlock.isdecimal() else 0 if landlock in ("off", "not in the kernel") else None,
        landlock_note="" if landlock.isdecimal() else landlock,
        monitor=monitor,
    )


def _parse_boot(facts: Facts, inside: Host) -> KernelBoot:
    """Return the boot of the kernel inside from the facts; if they do not have it, from files inside."""
    if "boot" not in facts:
        return read_kernel_boot(inside.read)
    return KernelBoot(facts.get("command line", ""), _parse_number(facts, "boot"))


def _read_host_boot(host: Host, cache: HostCache) -> KernelBoot:
    def read() -> str:
        boot = read_kernel_boot(host.read)
        return f"{boot.seconds or ''} {boot.command_line}"

    seconds, _, command_line = cache.read_once("boot of the host's kernel", read).partition(" ")
    return KernelBoot(command_line, int(seconds) if seconds else None)


def _find_monitor(host: Host, processes: Sequence[int], host_namespaces: Mapping[str, str]) -> Confinement | None:
    """Return the confinement of the process with the most private memory, which runs the guest; None if all ended.

    Processes that only run the guest's programs, as those of gVisor's systrap platform, share their memory.
    """
    statuses = {pid: parse_status(host.read(f"/proc/{pid}/status")) for pid in processes[:_MAX_PROCESSES]}
    sizes = {pid: int(status["RssAnon"].split()[0]) for pid, status in statuses.items() if "RssAnon" in status}
    if not sizes:
        return None
    pid = max(sizes, key=sizes.__getitem__)
    maps = {name: host.read(f"/proc/{pid}/{name}") for name in ("uid_map", "gid_map")}
    links = _read_namespaces(host, str(pid)).split()
    facts = {
        **statuses[pid],
        "Name": host.read(f"/proc/{pid}/cmdline").partition("\0")[0].rpartition("/")[2]
        or statuses[pid].get("Name", ""),
        **{f"namespace {link.partition(':')[0]}": link for link in links},
        **{name: "; ".join(" ".join(line.split()) for line in text.splitlines()) for name, text in maps.items()},
        "last capability": host.read("/proc/sys/kernel/cap_last_cap").strip(),
        "label": host.read(f"/proc/{pid}/attr/current").strip("\n\0 "),
    }
    return create_confinement(facts, host_namespaces)


def _read_namespaces(host: Host, process: str) -> str:
    """Return the links to the namespaces of a process, one a line; "" if they cannot be read."""
    return host.run("readlink", *_namespace_paths(process), timeout=_SECONDS, check=False).text


def _namespace_paths(process: str) -> Iterator[str]:
    return (f"/proc/{process}/ns/{name}" for name in _NAMESPACES)
