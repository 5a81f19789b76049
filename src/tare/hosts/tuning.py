"""Kernel settings that reduce noise: inspect, apply and restore.

The settings are those of Table III of the 2017 paper, and others that are known to reduce noise. The paper raised
limits that were low in the kernels of its time; a machine with a higher limit keeps it. The last row of the table,
20000 open files per program, is `open_files` of a suite's limits. A network setting applies to one network namespace.
The settings of the machine's namespace affect a client on another machine, and bare metal with `network = "host"`, but
no other instance. The client in a namespace gets `CLIENT_SYSCTLS` there.

The record file names the boot during which it was written, because a reboot restores the kernel's settings. For each
changed file, the record has the first value and all values that tare has written. So applying twice, or a kill between
any two steps, loses nothing. A value that is not in the record was set by another program, and stays.
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
# Paths below /proc/sys and values of Table III.
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
# `restore` writes as root to the paths of the record: only these are accepted from it.
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
    """Kernel setting with its reason and its source. Reports show `target_text`.

    `read_targets` returns the target value of each of its files that exist. `fits` returns whether a value may stay.
    """

    name: str
    target_text: str
    why: str
    source: str
    read_targets: Callable[[Read], Mapping[str, str]]
    fits: Fits = _is_equal

    def read_values(self, read: Read) -> dict[str, str]:
        """Return the current value of each of its files."""
        return {path: parse_value(read(path)) for path in self.read_targets(read)}

    def find_changes(self, read: Read) -> dict[str, str]:
        """Return the target value of each file that needs a change."""
        targets = self.read_targets(read)
        values = self.read_values(read)
        return {path: targets[path] for path, now in values.items() if not self.fits(now, targets[path])}


def parse_value(text: str) -> str:
    """Parse the text of a kernel file: the value in brackets if the file lists choices, else the whole text."""
    chosen = re.search(r"\[(\S+)\]", text)
    return chosen[1] if chosen else " ".join(text.split())


def _fixed_file(path: str, target: str) -> Callable[[Read], Mapping[str, str]]:
    return lambda read: {path: target} if read(path) else {}


def _sysctl_setting(name: str, why: str) -> Setting:
    path, fixed = f"/proc/sys/{name}", CLIENT_SYSCTLS.get(name)
    target = fixed or _MACHINE_SYSCTLS[name]
    text, fits = (target, _is_equal) if fixed else (f"{target} or more", _is_at_least)
    return Setting(name.replace("/", "."), text, why, "2017 paper, Table III", _fixed_file(path, target), fits)


def _turbo_setting(name: str) -> Setting:
    why = "The frequency does not depend on temperature and on how many cores are busy."
    target, source = _CPU_SETTINGS[name], "VTmark, section 5.1"
    return Setting(f"turbo ({name})", target, why, source, _fixed_file(f"{_CPUS}/{name}", target))


def _governor_targets(read: Read) -> Mapping[str, str]:
    folders = [f"{_CPUS}/cpu{number}/cpufreq" for number in read_cpus(read)]
    return {f"{folder}/scaling_governor": "performance" for folder in folders if read(f"{folder}/scaling_governor")}


def _interrupt_targets(read: Read) -> Mapping[str, str]:
    """Return the first core as the target of all devices' interrupts; empty if the machine has only one core."""
    cpus = read_cpus(read)
    first = read(f"{_CPUS}/cpu{min(cpus, default=0)}/topology/thread_siblings_list").strip()
    if not first or set(cpus) <= set(parse_cpu_list(first)):
        return {}
    # Interrupts without a number, such as NMI and LOC, belong to each CPU and cannot be moved.
    numbers = re.findall(r"^ *(\d+):", read("/proc/interrupts"), re.MULTILINE)
    paths = [f"/proc/irq/{number}/smp_affinity_list" for number in numbers]
    return {path: first for path in paths if read(path)}


SETTINGS = (
    _sysctl_setting("fs/file-max", "Open files of the whole machine; every connection is one."),
    _sysctl_setting("net/core/somaxconn", "Connections that wait until a server accepts them."),
    _sysctl_setting("net/ipv4/ip_local_port_range", "A client needs a port for each connection to a server."),
    _sysctl_setting("net/ipv4/tcp_tw_reuse", "A client may reuse the port of a connection that has just ended."),
    _sysctl_setting("net/ipv4/tcp_keepalive_time", "Seconds of silence after which a connection is probed."),
    _sysctl_setting("net/ipv4/tcp_keepalive_intvl", "Seconds between two such probes."),
    Setting(
        "governor", "performance", "The CPUs keep their highest frequency.", "VTmark, section 5.1", _governor_targets
    ),
    *map(_turbo_setting, _CPU_SETTINGS),
    Setting(
        "ASLR",
        "2",
        "Each instance gets another memory layout, so that the effects of layouts average out.",
        "Mytkowicz et al., ASPLOS 2009",
        _fixed_file(_ASLR, "2"),
    ),
    Setting(
        "transparent huge pages",
        "madvise or never",
        "With `always`, chance decides which programs get huge pages, as these need unfragmented memory.",
        "tare doctor",
        _fixed_file(_HUGE_PAGES, "madvise"),
        _is_not_always,
    ),
    Setting(
        "interrupts",
        "the first core",
        "Instances get the last CPUs, which devices should not interrupt.",
        "tare's placement of instances",
        _interrupt_targets,
    ),
)


def is_setting_file(path: str) -> bool:
    """Return whether a path is a file that one of the settings may change."""
    return _SETTING_FILES.fullmatch(path) is not None


def read_tuning(read: Read) -> tuple[Tuning, ...]:
    """Return the state of all settings: current values, target, and whether the values fit."""
    return tuple(
        Tuning(setting.name, _summarize(setting.read_values(read)), setting.target_text, not setting.find_changes(read))
        for setting in SETTINGS
    )


def _summarize(values: Mapping[str, str]) -> str:
    """Return the value of a setting's files; if the files differ, each value with its number of files."""
    every = list(values.values())
    distinct = sorted(set(every))
    return ", ".join(f"{text} ({every.count(text)} of {len(every)})" if distinct[1:] else text for text in distinct)


@dataclass(frozen=True)
class FileResult:
    """Result for one file of a setting: the value before and now, and the kernel's reason if it refused the change."""

    path: str
    result: Result
    before: str
    now: str
    reason: str = ""


@dataclass(frozen=True)
class _SettingChange:
    """First value of a file, and all values that tare has written to it since."""

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
    """Settings of a machine, whose files are below `root`, and the record of their first values."""

    def __init__(self, root: Path = Path("/"), record: Path | None = None) -> None:
        self._root = root
        self.record = record or state_folder() / "tuned.json"

    def read(self, path: str) -> str:
        """Return the text of a file of the machine; "" if it cannot be read."""
        return read_text(str(self._host_path(path)))

    def changed_paths(self) -> tuple[str, ...]:
        """Return the paths of the files that are changed and not restored; raises TareError for a damaged record."""
        return tuple(self._read_changes())

    def is_outdated(self) -> bool:
        """Return whether the record is from an earlier boot of the machine."""
        return self.record.exists() and not self._read_changes()

    def apply(self) -> Iterator[FileResult]:
        """Change the files that differ from their targets; yield the outcome of each change. Raises TareError.

        Each step of the iterator changes one file. The record of all changes is on the disk before the first change.
        """
        changes = self._read_changes()
        todo = {path: target for setting in SETTINGS for path, target in setting.find_changes(self.read).items()}
        first = {path: parse_value(self.read(path)) for path in todo}
        if not todo:
            return
        for path, target in todo.items():
            known = changes.get(path, _SettingChange(path, first[path], ()))
            written = tuple(dict.fromkeys((*known.written, target)))
            changes[path] = _SettingChange(path, known.before, written)
        self._save(changes)
        for path, target in todo.items():
            yield self._set(path, first[path], target)

    def restore(self) -> Iterator[FileResult]:
        """Restore the first values, the last change first; yield the outcome of each file. Raises TareError.

        The record stays if the kernel refuses a value.
        """
        refused = False
        for change in reversed(self._read_changes().values()):
            now = parse_value(self.read(change.path))
            if now == change.before:
                continue
            if not now:
                yield FileResult(change.path, "gone", change.before, "")
            elif now not in change.written:
                yield FileResult(change.path, "somebody else's", change.before, now)
            else:
                done = self._set(change.path, now, change.before)
                refused |= done.result == "refused"
                yield done if done.result == "refused" else FileResult(change.path, "put back", now, change.before)
        if not refused:
            self.record.unlink(missing_ok=True)

    def _set(self, path: str, before: str, target: str) -> FileResult:
        """Write a value; write the earlier value again if the kernel changes or refuses the new one."""
        try:
            self._write(path, target)
            now = parse_value(self.read(path))
            if now == target:
                return FileResult(path, "set", before, now)
            # `restore` recognizes tare's values by the record, which does not have the kernel's version.
            self._write(path, before)
        except OSError as error:
            return FileResult(path, "refused", before, parse_value(self.read(path)), format_os_error(error))
        return FileResult(path, "refused", before, parse_value(self.read(path)), f"it becomes {now}")

    def _write(self, path: str, text: str) -> None:
        # Unbuffered: the kernel takes a whole value in one write(2), and its error must be raised here.
        with open(self._host_path(path), "wb", buffering=0, opener=_open_existing) as file:
            file.write(f"{text}\n".encode())

    def _host_path(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _read_boot_id(self) -> str:
        if boot := self.read(BOOT_ID).strip():
            return boot
        raise TareError(f"{BOOT_ID} cannot be read: tare could not detect that a reboot has restored the settings")

    def _read_changes(self) -> dict[str, _SettingChange]:
        """Return the changes of the record by their paths; empty if it is missing or of another boot."""
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
        hint = "the file has the values to restore: inspect it, then remove it by hand"
        return TareError(f"{self.record}: not a record that this tare wrote", hint)

    def _save(self, changes: Mapping[str, _SettingChange]) -> None:
        """Write the record atomically, and sync it to the disk; raises TareError."""
        record = _Record(_FORMAT, self._read_boot_id(), tuple(changes.values()))
        fresh = self.record.with_suffix(".new")
        try:
            self.record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(fresh, "w", encoding="utf-8", opener=_open_private) as file:
                file.write(json.dumps(asdict(record), indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.record)
            folder = os.open(self.record.parent, os.O_RDONLY)  # a rename is on the disk once its folder is synced
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            what = f"{self.record}: cannot write the record of changes: {format_os_error(error)}"
            raise TareError(what, "free some space there; no setting was changed") from error


def _open_existing(path: str, flags: int) -> int:  # noqa: ARG001 - a setting is changed, never made
    return os.open(path, os.O_WRONLY | os.O_TRUNC)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
