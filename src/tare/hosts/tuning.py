"""Kernel settings that reduce noise: inspect, apply and restore.

They are Table III of the 2017 paper, and those that are known to cut noise. The paper raised what the kernels of its
time kept low: a machine that has more already keeps it. The last row of the table, 20000 open files for each program,
is `open_files` of a suite's limits. Network settings hold in one network namespace: those of the machine's own reach a
client on another machine, and bare metal with `network = "host"`, but no other instance. tare's own client has
`CLIENT_SYSCTLS` in its namespace.

The record names the boot that it is of: when the machine starts again, the kernel's settings are back by themselves. A
change keeps the first value that a file had and all that tare has written to it, so that applying twice, or a kill
between any two steps, loses nothing; a value that is none of these is somebody else's, and stays.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from tare.hosts.facts import Read, parse_cpu_list, read_cpus
from tare.hosts.host import BOOT_ID
from tare.hosts.ledger import state_folder
from tare.model.errors import TareError, format_os_error
from tare.model.files import read_text
from tare.model.machine import Tuning

_CPUS = "/sys/devices/system/cpu"
# Below /proc/sys, as in Table III.
_MACHINE_SYSCTLS = {"fs/file-max": "20000", "net/core/somaxconn": "1024"}
CLIENT_SYSCTLS = {
    "net/ipv4/ip_local_port_range": "1024 65535",
    "net/ipv4/tcp_tw_reuse": "1",
    "net/ipv4/tcp_keepalive_time": "60",
    "net/ipv4/tcp_keepalive_intvl": "60",
}
_CPU_SETTINGS = {"intel_pstate/no_turbo": "1", "cpufreq/boost": "0"}
_ASLR = "/proc/sys/kernel/randomize_va_space"
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"

Fits = Callable[[str, str], bool]
_SETTING_FILES = re.compile(
    "|".join((
        *(re.escape(f"/proc/sys/{name}") for name in (*_MACHINE_SYSCTLS, *CLIENT_SYSCTLS)),
        *(re.escape(f"{_CPUS}/{name}") for name in _CPU_SETTINGS),
        *map(re.escape, (_ASLR, _HUGE_PAGES)),
        rf"{re.escape(_CPUS)}/cpu[0-9]+/cpufreq/scaling_governor",
        "/proc/irq/[0-9]+/smp_affinity_list",
    ))
)  # fmt: skip
_FORMAT = 1
Result = Literal["set", "put back", "refused", "gone", "somebody else's"]


def _is_equal(now: str, target: str) -> bool:
    return now == target


def _is_at_least(now: str, target: str) -> bool:
    return now.isdigit() and int(now) >= int(target)


def _is_not_always(now: str, target: str) -> bool:  # noqa: ARG001 - `never` also fits
    return now != "always"


@dataclass(frozen=True)
class Setting:
    """A setting, with its reason and its source. `target_text` is for people.

    `target` returns the wanted value for each of its files that the machine has, `fits` whether a value may stay.
    """

    name: str
    target_text: str
    why: str
    source: str
    read_targets: Callable[[Read], Mapping[str, str]]
    fits: Fits = _is_equal

    def read_values(self, read: Read) -> dict[str, str]:
        """Return the value in each of its files."""
        return {path: parse_value(read(path)) for path in self.read_targets(read)}

    def find_changes(self, read: Read) -> dict[str, str]:
        """Return the wanted value for each file whose value may not stay."""
        wanted = self.read_targets(read)
        return {path: wanted[path] for path, now in self.read_values(read).items() if not self.fits(now, wanted[path])}


def parse_value(text: str) -> str:
    """Return the value that a file of the kernel shows; of a choice, the one in brackets."""
    chosen = re.search(r"\[(\S+)\]", text)
    return chosen[1] if chosen else " ".join(text.split())


def _fixed_file(path: str, target: str) -> Callable[[Read], Mapping[str, str]]:
    return lambda read: {path: target} if read(path) else {}


def _sysctl_setting(name: str, why: str) -> Setting:
    path, fixed = f"/proc/sys/{name}", CLIENT_SYSCTLS.get(name)
    wanted = fixed or _MACHINE_SYSCTLS[name]
    wants, fits = (wanted, _is_equal) if fixed else (f"{wanted} or more", _is_at_least)
    return Setting(name.replace("/", "."), wants, why, "2017 paper, Table III", _fixed_file(path, wanted), fits)


def _turbo_setting(name: str) -> Setting:
    why = "The frequency does not depend on temperature and on how many cores are busy."
    wanted, source = _CPU_SETTINGS[name], "VTmark, section 5.1"
    return Setting(f"turbo ({name})", wanted, why, source, _fixed_file(f"{_CPUS}/{name}", wanted))


def _governor_targets(read: Read) -> Mapping[str, str]:
    folders = [f"{_CPUS}/cpu{number}/cpufreq" for number in read_cpus(read)]
    return {f"{folder}/scaling_governor": "performance" for folder in folders if read(f"{folder}/scaling_governor")}


def _interrupt_targets(read: Read) -> Mapping[str, str]:
    """Return the first core for the interrupts of all devices; nothing where there is no other core."""
    cpus = read_cpus(read)
    first = read(f"{_CPUS}/cpu{min(cpus, default=0)}/topology/thread_siblings_list").strip()
    if not first or set(cpus) <= set(parse_cpu_list(first)):
        return {}
    numbers = re.findall(r"^ *(\d+):", read("/proc/interrupts"), re.MULTILINE)
    paths = [f"/proc/irq/{number}/smp_affinity_list" for number in numbers]
    return {path: first for path in paths if read(path)}


SETTINGS = (
    _sysctl_setting("fs/file-max", "Open files of the whole machine; every connection is one."),
    _sysctl_setting("net/core/somaxconn", "Connections that wait until a server accepts them."),
    _sysctl_setting("net/ipv4/ip_local_port_range", "A client needs a port for each connection to a server."),
    _sysctl_setting("net/ipv4/tcp_tw_reuse", "A client may use a port again whose connection has just ended."),
    _sysctl_setting("net/ipv4/tcp_keepalive_time", "Seconds of silence after which a connection is probed."),
    _sysctl_setting("net/ipv4/tcp_keepalive_intvl", "Seconds from one such probe to the next."),
    Setting(
        "governor", "performance", "The CPUs keep their highest frequency.", "VTmark, section 5.1", _governor_targets
    ),
    *map(_turbo_setting, _CPU_SETTINGS),
    Setting(
        "ASLR",
        "2",
        "Every fresh instance gets another layout, so that the luck of one is averaged out.",
        "Mytkowicz et al., ASPLOS 2009",
        _fixed_file(_ASLR, "2"),
    ),
    Setting(
        "transparent huge pages",
        "madvise or never",
        "With `always`, chance decides which programs get them: it needs memory that is not fragmented.",
        "tare doctor",
        _fixed_file(_HUGE_PAGES, "madvise"),
        _is_not_always,
    ),
    Setting(
        "interrupts",
        "the first core",
        "Instances get the last CPUs: devices should not interrupt those.",
        "tare's placement of instances",
        _interrupt_targets,
    ),
)


def is_setting_file(path: str) -> bool:
    """Return whether a path is a file of one of the settings."""
    return _SETTING_FILES.fullmatch(path) is not None


def read_tuning(read: Read) -> tuple[Tuning, ...]:
    """Return the state of all settings."""
    return tuple(
        Tuning(each.name, _summarize(each.read_values(read)), each.target_text, not each.find_changes(read))
        for each in SETTINGS
    )


def _summarize(values: Mapping[str, str]) -> str:
    """Return the value of a setting's files; where they differ, each with the number of files that have it."""
    every = list(values.values())
    different = sorted(set(every))
    return ", ".join(f"{one} ({every.count(one)} of {len(every)})" if different[1:] else one for one in different)


@dataclass(frozen=True)
class SettingResult:
    """What became of a file: its value before and now, and the kernel's reason if it was refused."""

    path: str
    result: Result
    before: str
    now: str
    reason: str = ""


@dataclass(frozen=True)
class _SettingChange:
    """The first value of a file, and what tare has written to it since."""

    path: str
    before: str
    written: tuple[str, ...]


@dataclass(frozen=True)
class _Record:
    format: int
    boot: str
    changes: tuple[_SettingChange, ...]


_RECORD = TypeAdapter(_Record)


class SettingsStore:
    """The settings of a machine, whose files are below `root`, and the record of their first values."""

    def __init__(self, root: Path = Path("/"), record: Path | None = None) -> None:
        self._root = root
        self.record = record or state_folder() / "tuned.json"

    def read(self, path: str) -> str:
        """Return the text of one of the machine's files; empty if it cannot be read."""
        return read_text(str(self._host_path(path)))

    def changed_paths(self) -> tuple[str, ...]:
        """Name the files that were changed since the machine started and not put back; raises TareError."""
        return tuple(self._read_changes())

    def is_outdated(self) -> bool:
        """Return whether the record is from before the machine started again."""
        return self.record.exists() and not self._read_changes()

    def apply(self) -> Iterator[SettingResult]:
        """Change what differs from what is wanted, one file for each that is asked for; raises TareError.

        All changes are on the disk before the first is made.
        """
        changes = self._read_changes()
        todo = {path: wanted for each in SETTINGS for path, wanted in each.find_changes(self.read).items()}
        first = {path: parse_value(self.read(path)) for path in todo}
        if not todo:
            return
        for path, wanted in todo.items():
            known = changes.get(path, _SettingChange(path, first[path], ()))
            written = tuple(dict.fromkeys((*known.written, wanted)))
            changes[path] = _SettingChange(path, known.before, written)
        self._save(changes)
        for path, wanted in todo.items():
            yield self._set(path, first[path], wanted)

    def restore(self) -> Iterator[SettingResult]:
        """Put back the first values, the last change first; raises TareError.

        The record stays while the kernel refuses one of them.
        """
        refused = False
        for change in reversed(self._read_changes().values()):
            now = parse_value(self.read(change.path))
            if now == change.before:
                continue
            if not now:
                yield SettingResult(change.path, "gone", change.before, "")
            elif now not in change.written:
                yield SettingResult(change.path, "somebody else's", change.before, now)
            else:
                done = self._set(change.path, now, change.before)
                refused |= done.result == "refused"
                yield done if done.result == "refused" else SettingResult(change.path, "put back", now, change.before)
        if not refused:
            self.record.unlink(missing_ok=True)

    def _set(self, path: str, before: str, target: str) -> SettingResult:
        """Write a value; where the kernel makes another one of it, the earlier value again."""
        try:
            self._write(path, target)
            now = parse_value(self.read(path))
            if now == target:
                return SettingResult(path, "set", before, now)
            self._write(path, before)
        except OSError as error:
            return SettingResult(path, "refused", before, parse_value(self.read(path)), format_os_error(error))
        return SettingResult(path, "refused", before, parse_value(self.read(path)), f"it becomes {now}")

    def _write(self, path: str, text: str) -> None:
        with open(self._host_path(path), "wb", buffering=0, opener=_open_existing) as file:
            file.write(f"{text}\n".encode())

    def _host_path(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _read_boot_id(self) -> str:
        if boot := self.read(BOOT_ID).strip():
            return boot
        raise TareError(f"{BOOT_ID} cannot be read: nothing would tell when settings are back by themselves")

    def _read_changes(self) -> dict[str, _SettingChange]:
        """Read the record; it is empty if it is of another boot."""
        try:
            text = self.record.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged_error() from error
        try:
            record = _RECORD.validate_json(text, strict=True)
        except ValueError as error:
            raise self._damaged_error() from error
        if record.format != _FORMAT or not all(is_setting_file(change.path) for change in record.changes):
            raise self._damaged_error()
        return {change.path: change for change in record.changes} if record.boot == self._read_boot_id() else {}

    def _damaged_error(self) -> TareError:
        hint = "it has the values to put back: look at it, then remove it by hand"
        return TareError(f"{self.record}: not a record that this tare wrote", hint)

    def _save(self, changes: Mapping[str, _SettingChange]) -> None:
        """Write the record, whole or not at all, to the disk itself; raises TareError."""
        record = _Record(_FORMAT, self._read_boot_id(), tuple(changes.values()))
        fresh = self.record.with_suffix(".new")
        try:
            self.record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(fresh, "w", encoding="utf-8", opener=_open_private) as file:
                file.write(json.dumps(asdict(record), indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.record)
            folder = os.open(self.record.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            what = f"{self.record}: what was set cannot be written down: {format_os_error(error)}"
            raise TareError(what, "nothing was changed; make room there") from error


def _open_existing(path: str, flags: int) -> int:  # noqa: ARG001 - a setting is changed, never made
    return os.open(path, os.O_WRONLY | os.O_TRUNC)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
