"""Facts about trials as text: limits, commands and the stop reason of density trials."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.loads.density import DensityStop
from tare.model.errors import SHOW_COMMAND, UsageError
from tare.model.run_folder import Run, WorkloadRecord, load_raw
from tare.model.trial import LimitsCheck, LoweredSetting, RawOutput, Trial
from tare.model.units import format_size
from tare.report.numbers import cut, strip_control_characters

_SWEEP, _END = "instances", "end: "
_MAX_LETTERS = 300
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
CommandLine = tuple[str, ...]


def density_stops(run: Run, record: WorkloadRecord) -> tuple[str, ...]:
    """Describe how many instances of each stack started and why no more did; empty for other workloads."""
    if record.sweep is None or record.sweep.name != _SWEEP:
        return ()
    trials = [trial for trial in run.trials if trial.workload == record.name and trial.status == "ok"]
    counted: dict[str, Counter[str]] = {}
    for trial in trials:
        counted.setdefault(trial.stack, Counter()).update(_describe_stop(run, trial))
    return tuple(
        f"{stack}: {text} ({times} of {found.total()} trials)."
        for stack, found in counted.items()
        for text, times in found.most_common()
    )


def complete_hint(trial: Trial, folder: Path) -> str:
    """Return the hint of a failed trial of the run in `folder`, with the command that shows its raw output in full."""
    command = f"`tare show {shlex.quote(str(folder))} {trial.trial}`"
    return strip_control_characters(trial.hint.replace(SHOW_COMMAND, command))


def load_raw_output(run: Run, trial: Trial) -> tuple[RawOutput, ...]:
    """Return the raw output of a trial; empty if its file is missing or unreadable."""
    if "/" in trial.trial:  # the run may be untrusted
        return ()
    try:
        return load_raw(run.folder, trial.trial)
    except UsageError:
        return ()


def _describe_stop(run: Run, trial: Trial) -> Iterator[str]:
    """Yield the number of instances with the stop reason; nothing if the output is missing or has no reason."""
    raw = load_raw_output(run, trial)
    word = raw[-1].label.removeprefix(_END) if raw else ""
    if word not in frozenset(DensityStop):
        return
    counts = {value.metric: value.value for value in trial.values if value.point is None}
    points = [value.point for value in trial.values if value.metric == "memory" and value.point is not None]
    count = counts.get("instances", max(points, default=0.0))
    reason = " ".join(raw[-1].text.split())
    words = DensityStop(word).words
    why = f"{words}: {reason}" if reason else words
    yield cut(f"{count:g} instance{'' if count == 1 else 's'}; {why}", _MAX_LETTERS)


@dataclass(frozen=True)
class CommandGroup:
    """First of the command lines that are equal except for numbers, and the number of the others."""

    first: CommandLine
    more: int

    @property
    def rest(self) -> str:
        """Text about the other command lines; "" if there are none."""
        return f"and {self.more} more like it, with other numbers" if self.more else ""


def group_commands(commands: Sequence[CommandLine]) -> Iterator[CommandGroup]:
    """Yield groups of command lines that are equal except for numbers, in order of their first lines."""
    groups: dict[CommandLine, list[CommandLine]] = {}
    for argv in commands:
        groups.setdefault(tuple("" if _NUMBER.fullmatch(word) else word for word in argv), []).append(argv)
    for first, *rest in groups.values():
        yield CommandGroup(first, len(rest))


@dataclass(frozen=True)
class LimitRow:
    """Limit of an instance: requested, observed inside, and whether the two differ."""

    name: str
    asked: str
    seen: str
    differs: bool


def describe_lowered(lowered: Iterable[LoweredSetting]) -> str:
    """Describe which settings of a workload were lowered, and why; "" if none were."""
    return " ".join(f"{each.setting} = {each.used} instead of {each.asked}: {each.bound}." for each in lowered)


def describe_turns(record: WorkloadRecord) -> str:
    """Describe the length of a workload's turns that its run has chosen; "" if it chose none."""
    return f"Turns of {record.turns.length} (discarded + counted), chosen by measurement." if record.turns else ""


def limit_rows(limits: LimitsCheck, whose: str = "") -> Iterator[LimitRow]:
    """Yield each limit as text; `whose` follows its name."""
    asked, seen = limits.asked, limits.seen
    cpus = f"{len(asked.cpus)} (number {', '.join(map(str, asked.cpus))})"
    for name, wanted, found, write, text in (
        ("CPUs", len(asked.cpus), seen.cpus, str, cpus),
        ("memory", asked.memory_bytes, seen.memory_bytes, format_size, format_size(asked.memory_bytes)),
        ("open files", asked.open_files, seen.open_files, str, str(asked.open_files)),
    ):
        is_known = found is not None
        yield LimitRow(
            f"{name}{whose}", text, write(found) if found is not None else "unknown", is_known and found != wanted
        )
