"""Limits and commands of a trial, and why a density trial stopped, as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tare.model.errors import UsageError
from tare.model.journal import Run, WorkloadRecord, load_raw
from tare.model.trial import DensityStop, LimitsCheck, LoweredSetting, RawOutput, Trial
from tare.model.units import format_size
from tare.report.numbers import cut

_SWEEP, _END = "instances", "end: "
_MAX_LETTERS = 300
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
CommandLine = tuple[str, ...]


def density_stops(run: Run, record: WorkloadRecord) -> tuple[str, ...]:
    """Describe how many instances of each stack there were and what ended that; nothing for other workloads."""
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


def load_raw_output(run: Run, trial: Trial) -> tuple[RawOutput, ...]:
    """Return the raw output of a trial; nothing where its file is not there or cannot be read."""
    if "/" in trial.trial:  # the run may be untrusted
        return ()
    try:
        return load_raw(run.folder, trial.trial)
    except UsageError:
        return ()


def _describe_stop(run: Run, trial: Trial) -> Iterator[str]:
    """Yield what ended a trial; nothing where its output is not there or says something else."""
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
    """The first of the command lines that are the same but for their numbers, and how many more there are."""

    first: CommandLine
    more: int

    @property
    def rest(self) -> str:
        """Describe the others; empty without any."""
        return f"and {self.more} more like it, with other numbers" if self.more else ""


def group_commands(commands: Sequence[CommandLine]) -> Iterator[CommandGroup]:
    """Yield one of each kind, in the order in which they came."""
    kinds: dict[CommandLine, list[CommandLine]] = {}
    for argv in commands:
        kinds.setdefault(tuple("" if _NUMBER.fullmatch(word) else word for word in argv), []).append(argv)
    for first, *rest in kinds.values():
        yield CommandGroup(first, len(rest))


@dataclass(frozen=True)
class LimitRow:
    """One limit: asked for, seen from inside, and whether they differ."""

    name: str
    asked: str
    seen: str
    differs: bool


def describe_lowered(lowered: Iterable[LoweredSetting]) -> str:
    """Describe which settings of a workload were lowered, and why; empty if none were."""
    return " ".join(f"{each.setting} = {each.used} instead of {each.asked}: {each.bound}." for each in lowered)


def limit_rows(limits: LimitsCheck, whose: str = "") -> Iterator[LimitRow]:
    """Yield each limit as text; `whose` is put after its name."""
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
