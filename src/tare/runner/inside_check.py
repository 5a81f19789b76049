"""Inside check: comparison of the conditions of a process in each stack with those in the baseline.

A *stack* is a technology, or several nested ones, in which workloads are measured; the *baseline* is the stack that all
others are compared with. Conditions are the environment, host name, mounts, devices, capabilities, limits, umask,
locale and time zone of one process in an instance (programs/inspect.c). A technology declares the conditions that it
cannot make equal (`expected_differences`). Any other difference is a caution on all trials of the stack.
docs/decisions/guests.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tare.hosts.host import Host
from tare.model.errors import TrialFailed
from tare.model.observed_isolation import ObservedIsolation, find_all_contradictions
from tare.model.trial import Caution
from tare.plugins.instance import VOLUME
from tare.plugins.technology import Technology, list_by_reason
from tare.runner.layers import StartedLayers
from tare.runner.observe_isolation import ISOLATION_PREFIX, observe_stack
from tare.runner.trial_log import TrialLog

INSPECT = "/usr/lib/tare/inspect"
_INSPECT_SECONDS = 30.0
_MAX_SHOWN = 3  # differences in the text of a caution
# Mount options that change what a program can do with the mount's files; others are parameters of the file system.
_OPTIONS = frozenset(("ro", "rw", "nosuid", "nodev", "noexec"))
# Technologies differ in the file systems of the root and of the data volume, and only some workloads use them. So the
# reports compare these two for each trial (`Trial.file_systems`), instead of once for each stack as is done here.
# A volume is also mounted only for the workloads that request it, so its presence depends on the first trial.
_NOT_COMPARED = frozenset(("mount /", f"mount {VOLUME}"))

Conditions = Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """Condition with different values in a stack and in the baseline.

    `value` is the stack's value. A value is None where the condition, such as a mount, is absent. `pattern` and
    `reason` are an entry of a technology's `expected_differences`, and empty if no technology declares the difference.
    """

    name: str
    value: str | None
    baseline_value: str | None
    pattern: str = ""
    reason: str = ""

    def __str__(self) -> str:
        value, expected = ("absent" if each is None else repr(each) for each in (self.value, self.baseline_value))
        return f"{self.name} is {value}, the baseline's {expected}"


@dataclass
class InsideCheck:
    """Conditions of each stack of a run, read once, and their differences from the baseline's.

    `baseline_stack` is the name of the baseline. `stacks` has the technologies of each stack by its name.
    """

    baseline_stack: str
    stacks: Mapping[str, Sequence[Technology]]
    _conditions: dict[str, Conditions] = field(default_factory=dict)
    _isolation: dict[str, tuple[ObservedIsolation, ...]] = field(default_factory=dict)

    def read(self, stack: str, parts: StartedLayers) -> tuple[ObservedIsolation, ...]:
        """Read the conditions in an instance of a stack and its isolation; return the isolation of each layer.

        An earlier call for the stack counts: all its instances have the same, as they follow from the technology. A
        failed attempt is not repeated: the conditions of the stack stay unknown.
        """
        if stack not in self._conditions:
            printed = [run_inspect(part.instance.inside) for part in parts]
            self._conditions[stack] = parse_conditions(printed[-1])
            self._isolation[stack] = observe_stack(parts, printed)
        return self._isolation[stack]

    def differences(self, stack: str) -> tuple[Difference, ...]:
        """Return a stack's differences from the baseline; empty if the conditions of one of the two are unknown."""
        conditions, expected = self._conditions.get(stack), self._conditions.get(self.baseline_stack)
        if not conditions or not expected:
            return ()
        technologies = (*self.stacks[stack], *self.stacks[self.baseline_stack])
        return compare_conditions(conditions, expected, technologies)

    def record_differences(self, stack: str, log: TrialLog) -> None:
        """Add the differences of a stack to the log of its trial.

        Undeclared differences become a caution. Declared differences, grouped by their reasons, become an entry of the
        trial's proof, the recorded facts that show which software really ran in the instance.
        """
        differences = self.differences(stack)
        if undeclared := [each for each in differences if not each.reason]:
            more = f"; and {len(undeclared) - _MAX_SHOWN} more" if len(undeclared) > _MAX_SHOWN else ""
            log.cautions.append(Caution("inside-differs", "; ".join(map(str, undeclared[:_MAX_SHOWN])) + more))
        if declared := list_by_reason((each.pattern, each.reason) for each in differences if each.reason):
            log.proof += (("not equal inside", "; ".join(declared)),)
        layers = [each for each in reversed(self.stacks[stack]) if not each.provisions_machine]
        if texts := find_all_contradictions([each.isolation for each in layers], log.isolation):
            log.cautions.append(Caution("isolation-differs", "; ".join(texts)))


def run_inspect(inside: Host | None) -> str:
    """Return the output of `inspect` in an instance; "" if it fails there, or without an inside."""
    with suppress(TrialFailed):  # the machine of an outer layer may lack the program
        if inside is not None:
            output = inside.run(INSPECT, timeout=_INSPECT_SECONDS, check=False)
            return "" if output.exit_code else output.text
    return ""


def parse_conditions(text: str) -> dict[str, str]:
    """Return conditions by name from the output of `inspect`, lines of NAME, a tab and VALUE.

    The mounts of the root and of the data volume (`_NOT_COMPARED`) and the facts about isolation are left out. If
    several mounts have the same path, the last one counts, because it hides the others.
    """
    conditions = {}
    for line in text.splitlines():
        name, _, value = line.partition("\t")
        if name.startswith("mount "):
            value = _describe_mount(name.removeprefix("mount "), *value.split(" ", 1))
        if name not in _NOT_COMPARED and not name.startswith(ISOLATION_PREFIX):
            conditions[name] = value
    return conditions


def _describe_mount(path: str, file_system: str, options: str) -> str:
    """Return the file system of a mount and its options that matter to programs.

    For mounts below /proc and /sys/firmware, return only whether the path is hidden, read-only or writable: container
    runtimes protect the same paths there by different mounts (tmpfs, /dev/null, a read-only bind mount), with the same
    effect.
    """
    relevant = [each for each in options.split(",") if each in _OPTIONS]
    if path.startswith(("/proc/", "/sys/firmware")):
        return "hidden" if file_system not in {"proc", "sysfs"} else "read-only" if "ro" in relevant else "writable"
    return f"{file_system} {','.join(relevant)}"


def compare_conditions(
    conditions: Conditions, baseline_conditions: Conditions, technologies: Iterable[Technology]
) -> tuple[Difference, ...]:
    """Return the differences between the conditions of a stack and of the baseline, sorted by the conditions' names.

    Each has the first entry of the technologies' `expected_differences` that matches the condition's name.
    """
    declared = [entry for technology in technologies for entry in technology.expected_differences.items()]
    return tuple(
        Difference(name, conditions.get(name), baseline_conditions.get(name), *_find_entry(name, declared))
        for name in sorted(conditions.keys() | baseline_conditions.keys())
        if conditions.get(name) != baseline_conditions.get(name)
    )


def _find_entry(name: str, declared: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the first pair of pattern and reason whose pattern matches a condition's name; two empty texts if none."""
    return next(((pattern, reason) for pattern, reason in declared if fnmatchcase(name, pattern)), ("", ""))
