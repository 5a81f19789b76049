"""Inside check: comparison of the conditions of a process in each stack with those in the baseline.

Conditions are the environment, host name, mounts, devices, capabilities, limits, umask, locale and time zone of one
process in an instance (programs/inspect.c). A technology declares those that it cannot make equal
(`expected_differences`); any other difference is a caution on all trials of the stack. docs/decisions/guests.md has the
reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tare.hosts.host import Host
from tare.model.trial import Caution
from tare.plugins.technology import Technology, list_by_reason
from tare.plugins.workload import VOLUME
from tare.runner.trial_log import TrialLog

INSPECT = "/usr/lib/tare/inspect"
_INSPECT_SECONDS = 30.0
_MAX_SHOWN = 3  # differences in the text of a caution
# Mount options that change what a program can do there; the others are parameters of the file system.
_OPTIONS = frozenset(("ro", "rw", "nosuid", "nodev", "noexec"))
# A trial records the root's file system in `file_systems`; the workload asks for the data volume.
_NOT_COMPARED = frozenset(("mount /", f"mount {VOLUME}"))

Conditions = Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """Condition whose value in a stack is not that in the baseline.

    `here` is the value in the stack. A value is None if the condition is absent, as a mount may be. `pattern` and
    `reason` are an entry of a technology's `expected_differences`, and empty if no technology declares the difference.
    """

    name: str
    here: str | None
    baseline: str | None
    pattern: str = ""
    reason: str = ""

    def __str__(self) -> str:
        here, there = (repr(value) if value is not None else "absent" for value in (self.here, self.baseline))
        return f"{self.name} is {here}, the baseline's {there}"


@dataclass
class InsideCheck:
    """Conditions of each stack of a run, read once, and their differences from the baseline's."""

    baseline: str
    stacks: Mapping[str, Sequence[Technology]]
    _conditions: dict[str, Conditions] = field(default_factory=dict)

    def read(self, stack: str, inside: Host) -> None:
        """Read the conditions in an instance of a stack, the first time only, even if they could not be read then."""
        if stack not in self._conditions:  # conditions follow from the technology: once a run is enough
            self._conditions[stack] = read_conditions(inside)

    def differences(self, stack: str) -> tuple[Difference, ...]:
        """Return a stack's differences from the baseline; empty if the conditions of one of the two are unknown."""
        here, there = self._conditions.get(stack), self._conditions.get(self.baseline)
        if not here or not there:
            return ()
        technologies = (*self.stacks[stack], *self.stacks[self.baseline])
        return compare_conditions(here, there, technologies)

    def record_differences(self, stack: str, log: TrialLog) -> None:
        """Add the differences of a stack to the log of its trial.

        Undeclared differences become a caution. Declared ones, grouped by their reasons, become part of the proof.
        """
        differences = self.differences(stack)
        if undeclared := [each for each in differences if not each.reason]:
            more = f"; and {len(undeclared) - _MAX_SHOWN} more" if len(undeclared) > _MAX_SHOWN else ""
            log.cautions.append(Caution("inside-differs", "; ".join(map(str, undeclared[:_MAX_SHOWN])) + more))
        if known := list_by_reason((each.pattern, each.reason) for each in differences if each.reason):
            log.proof += (("not equal inside", "; ".join(known)),)


def read_conditions(inside: Host) -> Conditions:
    """Return the conditions of a process in an instance; empty if `inspect` fails there."""
    output = inside.run(INSPECT, timeout=_INSPECT_SECONDS, check=False)
    return {} if output.exit_code else parse_conditions(output.text)


def parse_conditions(text: str) -> dict[str, str]:
    """Return conditions by name from the output of `inspect`, lines of NAME, a tab and VALUE.

    Of several mounts at a path, the last counts, as it hides the others.
    """
    conditions = {}
    for line in text.splitlines():
        name, _, value = line.partition("\t")
        if name.startswith("mount "):
            value = _describe_mount(name.removeprefix("mount "), *value.split(" ", 1))
        if name not in _NOT_COMPARED:
            conditions[name] = value
    return conditions


def _describe_mount(path: str, file_system: str, options: str) -> str:
    """Return a mount's file system and relevant options, or only the access to it, below /proc and /sys/firmware.

    Runtimes protect the same paths there by different mounts (tmpfs, /dev/null, a read-only bind mount), to one effect.
    """
    relevant = [each for each in options.split(",") if each in _OPTIONS]
    if path.startswith(("/proc/", "/sys/firmware")):
        return "hidden" if file_system not in {"proc", "sysfs"} else "read-only" if "ro" in relevant else "writable"
    return f"{file_system} {','.join(relevant)}"


def compare_conditions(
    here: Conditions, baseline: Conditions, technologies: Iterable[Technology]
) -> tuple[Difference, ...]:
    """Return the conditions that differ, by name, each with the first matching entry of `expected_differences`."""
    reasons = [each for technology in technologies for each in technology.expected_differences.items()]
    return tuple(
        Difference(name, here.get(name), baseline.get(name), *_find_reason(name, reasons))
        for name in sorted(here.keys() | baseline.keys())
        if here.get(name) != baseline.get(name)
    )


def _find_reason(name: str, reasons: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the first pair of pattern and reason whose pattern matches a condition's name; two empty texts if none."""
    return next(((pattern, reason) for pattern, reason in reasons if fnmatchcase(name, pattern)), ("", ""))
