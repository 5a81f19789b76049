"""The limits of an instance, as asked for and as seen from inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tare.model.trials import Lowered, SetLimits
from tare.units import format_size


@dataclass(frozen=True)
class Limit:
    """One limit: asked for, seen from inside, and whether they differ."""

    name: str
    asked: str
    seen: str
    differs: bool


def said_lowered(lowered: Iterable[Lowered]) -> str:
    """Describe which settings of a workload were lowered, and why; empty if none were."""
    return " ".join(f"{each.setting} = {each.used} instead of {each.asked}: {each.bound}." for each in lowered)


def limits_of(limits: SetLimits) -> tuple[Limit, ...]:
    """Write each limit as text."""
    asked, seen = limits.asked, limits.seen
    numbers = ", ".join(str(cpu) for cpu in asked.cpus)
    return (
        _limit("CPUs", f"{len(asked.cpus)} (number {numbers})", (len(asked.cpus), seen.cpus), str),
        _limit("memory", format_size(asked.memory_bytes), (asked.memory_bytes, seen.memory_bytes), format_size),
        _limit("open files", str(asked.open_files), (asked.open_files, seen.open_files), str),
    )


def _limit(name: str, asked: str, values: tuple[int, int | None], write: Callable[[int], str]) -> Limit:
    wanted, seen = values
    if seen is None:
        return Limit(name, asked, "unknown", differs=False)
    return Limit(name, asked, write(seen), differs=seen != wanted)
