"""The command lines of a trial: one of each kind, as a load that is started for each turn has a count of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)

CommandLine = tuple[str, ...]


@dataclass(frozen=True)
class Alike:
    """The first of the command lines that are the same but for their numbers, and how many more there are."""

    first: CommandLine
    more: int

    @property
    def rest(self) -> str:
        """Describe the others; empty without any."""
        return f"and {self.more} more like it, with other numbers" if self.more else ""


def alike(commands: Sequence[CommandLine]) -> Iterator[Alike]:
    """Yield one of each kind, in the order in which they came."""
    kinds: dict[CommandLine, list[CommandLine]] = {}
    for argv in commands:
        kinds.setdefault(tuple("" if _NUMBER.fullmatch(word) else word for word in argv), []).append(argv)
    for first, *rest in kinds.values():
        yield Alike(first, len(rest))
