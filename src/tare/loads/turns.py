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
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Output, RawOutput
from tare.plugins.workload import Workload

SLOWEST_CPU_FACTOR = 5  # times as long as a CPU's work usually takes: an emulated one takes more than ten times as long
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.02, 0.2
_USUAL_ROUNDS = 10  # rounds, between the two
_TIMEOUT_FACTOR = 10  # times as long as a turn
_MAX_LINES = 1000
_PROBES = 4


class TurnWorkload(Workload):
    """Workload whose `duration` of a point is divided into turns of the usual length."""

    duration: float

    @property
    def rounds(self) -> int:
        """Turns of a tenth of the duration."""
        return count_rounds(self.duration)


def turn_seconds(duration_seconds: float) -> float:
    """Return how long a turn is that is part of a measurement of this duration."""
    return min(duration_seconds, max(_SHORTEST_SECONDS, min(_LONGEST_SECONDS, duration_seconds / _USUAL_ROUNDS)))


def limit_seconds(turn_seconds: float, patience_seconds: float = 30.0) -> float:
    """Return the time limit of a turn of this length: the others wait until then for a stack that never ends it."""
    return patience_seconds + _TIMEOUT_FACTOR * turn_seconds


def count_rounds(duration_seconds: float, each_seconds: float | None = None) -> int:
    """Return how many turns a measurement of this duration is divided into; of the usual length, unless it is given."""
    return max(1, math.ceil(duration_seconds / (each_seconds or turn_seconds(duration_seconds)) - 1e-9))


def run_filled_turns(
    run: Callable[[int], RawOutput], fill_turn: Callable[[RawOutput], int], min_events: int, rounds: int
) -> Iterator[RawOutput]:
    """Take turns of as many events as fill one, at the rate of the one before.

    `run` runs so many events, `fill_turn` judges by an output how many fill a turn. The first turn warms up and finds
    the rate, beginning with the `min_events` number of events.
    """
    probe, events = probe_until_half_turn(
        run, fill_turn, min_events
    )  # one turn: the rounds of every stack begin after as many turns
    yield probe.as_warm_up()
    for _ in range(rounds):
        raw = run(events)
        yield raw
        events = fill_turn(raw)


def probe_until_half_turn(
    run: Callable[[int], RawOutput], fill_turn: Callable[[RawOutput], int], min_events: int
) -> tuple[RawOutput, int]:
    """Probe until a probe has half the events of a turn; return the last one, and the events of the first turn."""
    events = min_events
    for _ in range(_PROBES):
        probe, tried = run(events), events
        events = fill_turn(probe)
        if tried >= events / 2:
            break
    return probe, events


@dataclass
class ResidentProgram:
    """A program that stays alive between turns. It answers each line with lines that end with `last_line`."""

    process: Process
    argv: tuple[str, ...]
    last_line: str

    def run_turn(self, label: str, line: str, timeout: float, warm_up: bool = False) -> RawOutput:
        """Let it work, for so many seconds at most.

        Raises TrialFailed or TimedOut with what it printed. What prints without an end is cut off.
        """
        began = time.monotonic()
        self.send_line(line)
        return self.read_answer(label, began, timeout, warm_up)

    def send_line(self, line: str) -> None:
        """Let it begin to work; raises TrialFailed where it has ended."""
        try:
            self.process.send(f"{line}\n")
        except TrialFailed as error:
            raise self._to_failure(error, [], 0.0) from error

    def read_answer(self, label: str, began: float, timeout: float, warm_up: bool = False) -> RawOutput:
        """Return what it printed of the work that began then, on the monotonic clock; see `run_turn`."""
        lines = list[str]()
        try:
            while not lines or (lines[-1] != self.last_line and len(lines) < _MAX_LINES):
                left = began + timeout - time.monotonic()
                lines.append(self.process.read_line(max(left, 0.001)).text)
        except TrialFailed as error:
            raise self._to_failure(error, lines, time.monotonic() - began) from error
        text = "".join(f"{each}\n" for each in lines)
        return RawOutput(label, self.argv, text, time.monotonic() - began, warm_up=warm_up)

    def _to_failure(self, error: TrialFailed, lines: Sequence[str], seconds: float) -> TrialFailed:
        text = "".join(f"{each}\n" for each in lines)
        output = Output(self.argv, 1, text.encode(), self.process.errors().encode(), seconds)
        return type(error)(f"{error}; {quote_output(text)}", error.hint, output)


@contextmanager
def running_program(inside: Host, *argv: str, last_line: str) -> Iterator[ResidentProgram]:
    """Start a program that takes turns; it is gone after the block."""
    with inside.spawn(*argv) as process:
        yield ResidentProgram(process, argv, last_line)
