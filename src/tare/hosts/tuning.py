"""The settings of a machine that `tare tune` changes: what is wanted of each, and why.

They are Table III of the 2017 paper, and those that are known to cut noise. The paper raised what the kernels of its
time kept low: a machine that has more already keeps it. The last row of the table, 20000 open files for each program,
is `open_files` of a suite's limits. Network settings hold in one network namespace: those of the machine's own reach a
client on another machine, and bare metal with `network = "host"`, but no other instance. tare's own client has
`OF_THE_CLIENT` in its namespace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tare.hosts.facts import Read, parse_cpu_list, read_cpus
from tare.model.machines import Tuning

_CPUS = "/sys/devices/system/cpu"
# Below /proc/sys, as in Table III.
_OF_THE_MACHINE = {"fs/file-max": "20000", "net/core/somaxconn": "1024"}
OF_THE_CLIENT = {
    "net/ipv4/ip_local_port_range": "1024 65535",
    "net/ipv4/tcp_tw_reuse": "1",
    "net/ipv4/tcp_keepalive_time": "60",
    "net/ipv4/tcp_keepalive_intvl": "60",
}
_OF_CPUS = {"intel_pstate/no_turbo": "1", "cpufreq/boost": "0"}
_ASLR = "/proc/sys/kernel/randomize_va_space"
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"

Fits = Callable[[str, str], bool]


def _equal(now: str, wanted: str) -> bool:
    return now == wanted


def _at_least(now: str, wanted: str) -> bool:
    return now.isdigit() and int(now) >= int(wanted)


def _not_always(now: str, wanted: str) -> bool:  # noqa: ARG001 - `never` also fits
    return now != "always"


@dataclass(frozen=True)
class Setting:
    """A setting, with its reason and its source. `wants` is for people.

    `wanted` returns the wanted value for each of its files that the machine has, `fits` whether a value may stay.
    """

    name: str
    wants: str
    why: str
    source: str
    wanted: Callable[[Read], Mapping[str, str]]
    fits: Fits = _equal

    def now(self, read: Read) -> dict[str, str]:
        """Return the value in each of its files."""
        return {path: value(read(path)) for path in self.wanted(read)}

    def to_change(self, read: Read) -> dict[str, str]:
        """Return the wanted value for each file whose value may not stay."""
        wanted = self.wanted(read)
        return {path: wanted[path] for path, now in self.now(read).items() if not self.fits(now, wanted[path])}


def value(text: str) -> str:
    """Return the value that a file of the kernel shows; of a choice, the one in brackets."""
    chosen = re.search(r"\[(\S+)\]", text)
    return chosen[1] if chosen else " ".join(text.split())


def _file(path: str, wanted: str) -> Callable[[Read], Mapping[str, str]]:
    return lambda read: {path: wanted} if read(path) else {}


def _of_table(name: str, why: str) -> Setting:
    path, fixed = f"/proc/sys/{name}", OF_THE_CLIENT.get(name)
    wanted = fixed or _OF_THE_MACHINE[name]
    wants, fits = (wanted, _equal) if fixed else (f"{wanted} or more", _at_least)
    return Setting(name.replace("/", "."), wants, why, "2017 paper, Table III", _file(path, wanted), fits)


def _turbo(name: str) -> Setting:
    why = "The frequency does not depend on temperature and on how many cores are busy."
    wanted, source = _OF_CPUS[name], "VTmark, section 5.1"
    return Setting(f"turbo ({name})", wanted, why, source, _file(f"{_CPUS}/{name}", wanted))


def _governors(read: Read) -> Mapping[str, str]:
    folders = [f"{_CPUS}/cpu{number}/cpufreq" for number in read_cpus(read)]
    return {f"{folder}/scaling_governor": "performance" for folder in folders if read(f"{folder}/scaling_governor")}


def _interrupts(read: Read) -> Mapping[str, str]:
    """Return the first core for the interrupts of all devices; nothing where there is no other core."""
    cpus = read_cpus(read)
    first = read(f"{_CPUS}/cpu{min(cpus, default=0)}/topology/thread_siblings_list").strip()
    if not first or set(cpus) <= set(parse_cpu_list(first)):
        return {}
    numbers = re.findall(r"^ *(\d+):", read("/proc/interrupts"), re.MULTILINE)
    paths = [f"/proc/irq/{number}/smp_affinity_list" for number in numbers]
    return {path: first for path in paths if read(path)}


SETTINGS = (
    _of_table("fs/file-max", "Open files of the whole machine; every connection is one."),
    _of_table("net/core/somaxconn", "Connections that wait until a server accepts them."),
    _of_table("net/ipv4/ip_local_port_range", "A client needs a port for each connection to a server."),
    _of_table("net/ipv4/tcp_tw_reuse", "A client may use a port again whose connection has just ended."),
    _of_table("net/ipv4/tcp_keepalive_time", "Seconds of silence after which a connection is probed."),
    _of_table("net/ipv4/tcp_keepalive_intvl", "Seconds from one such probe to the next."),
    Setting("governor", "performance", "The CPUs keep their highest frequency.", "VTmark, section 5.1", _governors),
    *map(_turbo, _OF_CPUS),
    Setting(
        "ASLR",
        "2",
        "Every fresh instance gets another layout, so that the luck of one is averaged out.",
        "Mytkowicz et al., ASPLOS 2009",
        _file(_ASLR, "2"),
    ),
    Setting(
        "transparent huge pages",
        "madvise or never",
        "With `always`, chance decides which programs get them: it needs memory that is not fragmented.",
        "tare doctor",
        _file(_HUGE_PAGES, "madvise"),
        _not_always,
    ),
    Setting(
        "interrupts",
        "the first core",
        "Instances get the last CPUs: devices should not interrupt those.",
        "tare's placement of instances",
        _interrupts,
    ),
)
_OURS = re.compile(
    "|".join((
        *(re.escape(f"/proc/sys/{name}") for name in (*_OF_THE_MACHINE, *OF_THE_CLIENT)),
        *(re.escape(f"{_CPUS}/{name}") for name in _OF_CPUS),
        *map(re.escape, (_ASLR, _HUGE_PAGES)),
        rf"{re.escape(_CPUS)}/cpu[0-9]+/cpufreq/scaling_governor",
        "/proc/irq/[0-9]+/smp_affinity_list",
    ))
)  # fmt: skip


def is_ours(path: str) -> bool:
    """Return whether a path is a file of one of the settings."""
    return _OURS.fullmatch(path) is not None


def look(read: Read) -> tuple[Tuning, ...]:
    """Return the state of all settings."""
    return tuple(Tuning(each.name, _summary(each.now(read)), each.wants, not each.to_change(read)) for each in SETTINGS)


def _summary(values: Mapping[str, str]) -> str:
    """Return the value of a setting's files; where they differ, each with the number of files that have it."""
    every = list(values.values())
    different = sorted(set(every))
    return ", ".join(f"{one} ({every.count(one)} of {len(every)})" if different[1:] else one for one in different)
