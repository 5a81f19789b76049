"""Turns: how a measurement is divided, and programs that are started once and then work on request.

A turn is as short as a fiftieth of a second, so that what disturbs the machine for longer disturbs every stack alike,
and as long as a fifth, so that what a turn begins with, such as cold caches, stays a small part of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tare.hosts.host import Host, Process
from tare.model.errors import TrialFailed, printed
from tare.model.trial import Output, Raw
from tare.plugins.workload import Workload

SLOWEST = 5  # times as long as a CPU's work usually takes: an emulated one takes more than ten times as long
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.02, 0.2
_USUAL = 10  # rounds, between the two
_PATIENCE = 10  # times as long as a turn
_MOST_LINES = 1000
_PROBES = 4


class InTurns(Workload):
    """Workload whose `duration` of a point is divided into turns of the usual length."""

    duration: float

    @property
    def rounds(self) -> int:
        """Turns of a tenth of the duration."""
        return rounds_of(self.duration)


def turn_seconds(duration_seconds: float) -> float:
    """Return how long a turn is that is part of a measurement of this duration."""
    return min(duration_seconds, max(_SHORTEST_SECONDS, min(_LONGEST_SECONDS, duration_seconds / _USUAL)))


def limit_seconds(turn_seconds: float, patience_seconds: float = 30.0) -> float:
    """Return the time limit of a turn of this length: the others wait until then for a stack that never ends it."""
    return patience_seconds + _PATIENCE * turn_seconds


def rounds_of(duration_seconds: float, each_seconds: float | None = None) -> int:
    """Return how many turns a measurement of this duration is divided into; of the usual length, unless it is given."""
    return max(1, math.ceil(duration_seconds / (each_seconds or turn_seconds(duration_seconds)) - 1e-9))


def filled_turns(run: Callable[[int], Raw], filling: Callable[[Raw], int], least: int, rounds: int) -> Iterator[Raw]:
    """Take turns of as many events as fill one, at the rate of the one before.

    `run` runs so many events, `filling` judges by an output how many fill a turn. The first turn warms up and finds the
    rate, beginning with the `least` number of events.
    """
    probe, events = probed(run, filling, least)  # one turn: the rounds of every stack begin after as many turns
    yield probe.as_warm_up()
    for _ in range(rounds):
        raw = run(events)
        yield raw
        events = filling(raw)


def probed(run: Callable[[int], Raw], filling: Callable[[Raw], int], least: int) -> tuple[Raw, int]:
    """Probe until a probe has half the events of a turn; return the last one, and the events of the first turn."""
    events = least
    for _ in range(_PROBES):
        probe, tried = run(events), events
        events = filling(probe)
        if tried >= events / 2:
            break
    return probe, events


@dataclass
class Resident:
    """A program that is there from turn to turn: it answers each line with lines of which `last` is the last one."""

    process: Process
    argv: tuple[str, ...]
    last: str

    def turn(self, label: str, line: str, timeout: float, warm_up: bool = False) -> Raw:
        """Let it work, for so many seconds at most.

        Raises TrialFailed or TimedOut with what it printed. What prints without an end is cut off.
        """
        began = time.monotonic()
        self.ask(line)
        return self.answer(label, began, timeout, warm_up)

    def ask(self, line: str) -> None:
        """Let it begin to work; raises TrialFailed where it has ended."""
        try:
            self.process.send(f"{line}\n")
        except TrialFailed as error:
            raise self._failed(error, [], 0.0) from error

    def answer(self, label: str, began: float, timeout: float, warm_up: bool = False) -> Raw:
        """Return what it printed of the work that began then, on the monotonic clock; see `turn`."""
        lines = list[str]()
        try:
            while not lines or (lines[-1] != self.last and len(lines) < _MOST_LINES):
                left = began + timeout - time.monotonic()
                lines.append(self.process.read_line(max(left, 0.001)).text)
        except TrialFailed as error:
            raise self._failed(error, lines, time.monotonic() - began) from error
        text = "".join(f"{each}\n" for each in lines)
        return Raw(label, self.argv, text, time.monotonic() - began, warm_up=warm_up)

    def _failed(self, error: TrialFailed, lines: Sequence[str], seconds: float) -> TrialFailed:
        text = "".join(f"{each}\n" for each in lines)
        output = Output(self.argv, 1, text.encode(), self.process.errors().encode(), seconds)
        return type(error)(f"{error}; {printed(text)}", error.hint, output)


@contextmanager
def resident(inside: Host, *argv: str, last: str) -> Iterator[Resident]:
    """Start a program that takes turns; it is gone after the block."""
    with inside.spawn(*argv) as process:
        yield Resident(process, argv, last)
