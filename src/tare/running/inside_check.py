"""Inside check: whether every stack gives a process the same conditions as the baseline does.

Conditions are the environment, host name, mounts, devices, capabilities, limits, umask, locale and time zone of one
process in an instance (programs/inspect.c). A technology declares those that it cannot make equal; any other difference
is a caution on all trials of the stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from tare.contracts.technologies import Technology, list_by_reason
from tare.contracts.workloads import VOLUME
from tare.hosts.host import Host
from tare.model.trials import Caution, Trial

INSPECT = "/usr/lib/tare/inspect"
_SECONDS = 30.0
_NAMED = 3  # differences in the text of a caution
# Options of a mount that change what a program can do there; others are the file system's own.
_OPTIONS = frozenset(("ro", "rw", "nosuid", "nodev", "noexec"))
# The root's type is a trial's `file_systems`; a data volume is the workload's.
_NOT_COMPARED = frozenset(("mount /", f"mount {VOLUME}"))

Conditions = Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """Condition that is not the baseline's; None where there is no such thing.

    `pattern` and `reason` are those that a technology declares, and empty if none does.
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
    """The conditions of each stack of a run, read once, and what differs from the baseline's."""

    baseline: str
    stacks: Mapping[str, Sequence[Technology]]
    _conditions: dict[str, Conditions] = field(default_factory=dict)

    def read(self, stack: str, inside: Host) -> None:
        """Read the conditions in an instance of a stack, unless they are known."""
        if stack not in self._conditions:
            self._conditions[stack] = read_conditions(inside)

    def differences(self, stack: str) -> tuple[Difference, ...]:
        """Return what differs from the baseline; empty where the conditions of one of the two are unknown."""
        here, there = self._conditions.get(stack), self._conditions.get(self.baseline)
        if not here or not there:
            return ()
        technologies = (*self.stacks[stack], *self.stacks[self.baseline])
        return compare_conditions(here, there, technologies)

    def describe(self, trial: Trial) -> Trial:
        """Return a trial with the differences of its stack: a caution about those that no technology declares.

        The declared ones, by their reasons, are part of the trial's proof.
        """
        differences = self.differences(trial.stack)
        if not differences:
            return trial
        unknown = [each for each in differences if not each.reason]
        more = f"; and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        text = "; ".join(map(str, unknown[:_NAMED])) + more
        cautions = (Caution("inside-differs", text),) if unknown else ()
        known = list_by_reason((each.pattern, each.reason) for each in differences if each.reason)
        proof = (("not equal inside", known),) if known else ()
        return replace(trial, cautions=(*trial.cautions, *cautions), proof=(*trial.proof, *proof))


def read_conditions(inside: Host) -> Conditions:
    """Read the conditions of a process in an instance; empty where the program for it cannot run."""
    output = inside.run(INSPECT, timeout=_SECONDS, check=False)
    return {} if output.exit_code else parse_conditions(output.text)


def parse_conditions(text: str) -> dict[str, str]:
    """Return conditions by name from the output of `inspect`; the last mount of a path hides those before it."""
    conditions = {}
    for line in text.splitlines():
        name, _, value = line.partition("\t")
        if name.startswith("mount "):
            value = _mount_of(name.removeprefix("mount "), *value.split(" ", 1))
        if name not in _NOT_COMPARED:
            conditions[name] = value
    return conditions


def _mount_of(path: str, kind: str, options: str) -> str:
    """Describe a mount by what a program can do there; runtimes protect a part of /proc by unlike mounts."""
    kept = [each for each in options.split(",") if each in _OPTIONS]
    if path.startswith(("/proc/", "/sys/firmware")):
        return "hidden" if kind not in {"proc", "sysfs"} else "read-only" if "ro" in kept else "writable"
    return f"{kind} {','.join(kept)}"


def compare_conditions(
    here: Conditions, baseline: Conditions, technologies: Iterable[Technology]
) -> tuple[Difference, ...]:
    """Return the conditions that differ, each with the reason that one of the technologies declares."""
    reasons = [each for technology in technologies for each in technology.differs.items()]
    return tuple(
        Difference(name, here.get(name), baseline.get(name), *_reason(name, reasons))
        for name in sorted(here.keys() | baseline.keys())
        if here.get(name) != baseline.get(name)
    )


def _reason(name: str, reasons: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return next(((pattern, reason) for pattern, reason in reasons if fnmatchcase(name, pattern)), ("", ""))
