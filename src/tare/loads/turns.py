"""Turns: the division of a measurement, and resident programs that are started once and then work on request.

A turn of a resident program takes 6 to 20 ms, of which the first part does not count: caches are cold there. A turn of
any other program has 20 to 200 ms. The upper bound keeps a turn shorter than most disturbances of the machine, which
then affect every stack. The lower bound keeps costs at the begin of a turn a small part of it.
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

SLOWEST_CPU_FACTOR = 5  # extends time limits of CPU work: an emulated CPU takes more than ten times as long
# Longer turns were no steadier, except for Redis: more and shorter turns give more precision (docs/decisions/turns.md).
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.02, 0.2
_USUAL_ROUNDS = 10  # for durations between 0.2 s and 2 s
# Turns of programs that stay resident, and the part at the begin of a turn that does not count: there, caches are cold.
SHORT_TURN_SECONDS, DISCARDED_SECONDS = 0.005, 0.001
# Of programs that compute. gVisor's kernel runs on the instance's CPU for milliseconds after a request: with 4 ms that
# do not count, dhrystone was a third slower there than with 10 or 20 ms, which agree.
COMPUTE_TURN_SECONDS, COMPUTE_DISCARDED_SECONDS = 0.01, 0.01
_TIMEOUT_FACTOR = 10
_MAX_LINES = 1000  # a program that prints without an end would fill the memory
_PROBES = 4


class TurnWorkload(Workload):
    """Workload whose `duration` of a point is divided into turns of the usual length."""

    duration: float

    @property
    def rounds(self) -> int:
        """Number of turns of a tenth of the duration."""
        return count_rounds(self.duration)


def turn_seconds(duration_seconds: float) -> float:
    """Return the length of a turn in a measurement of this duration."""
    return min(duration_seconds, max(_SHORTEST_SECONDS, min(_LONGEST_SECONDS, duration_seconds / _USUAL_ROUNDS)))


def limit_seconds(turn_seconds: float, patience_seconds: float = 30.0) -> float:
    """Return the time limit of a turn of this length. All other stacks wait so long for a stack that hangs."""
    return patience_seconds + _TIMEOUT_FACTOR * turn_seconds


def count_rounds(duration_seconds: float, each_seconds: float | None = None) -> int:
    """Return the number of turns of a measurement; their length is `each_seconds`, or the usual length if None."""
    # 1e-9 keeps floating-point error from adding a turn, as for 0.3 / 0.1.
    return max(1, math.ceil(duration_seconds / (each_seconds or turn_seconds(duration_seconds)) - 1e-9))


def run_filled_turns(
    run: Callable[[int], RawOutput], fill_turn: Callable[[RawOutput], int], min_events: int, rounds: int
) -> Iterator[RawOutput]:
    """Yield the outputs of turns that are filled with events, at the rate of the turn before.

    `run` runs a number of events; `fill_turn` returns from an output how many events fill a turn. The first turn warms
    up and finds the rate, beginning with `min_events` events.
    """
    # All probes together are one turn, so that the rounds of every stack begin after the same number of turns.
    probe, events = probe_until_half_turn(run, fill_turn, min_events)
    yield probe.as_warm_up()
    for _ in range(rounds):
        raw = run(events)
        yield raw
        events = fill_turn(raw)


def probe_until_half_turn(
    run: Callable[[int], RawOutput], fill_turn: Callable[[RawOutput], int], min_events: int
) -> tuple[RawOutput, int]:
    """Probe until a probe has half the events of a turn; return the last probe and the events of the first turn."""
    events = min_events
    for _ in range(_PROBES):
        probe, probed = run(events), events
        events = fill_turn(probe)
        if probed >= events / 2:
            break
    return probe, events


@dataclass
class ResidentProgram:
    """Program that stays alive between turns. It answers each line of its input with lines up to `last_line`."""

    process: Process
    argv: tuple[str, ...]
    last_line: str

    def run_turn(self, label: str, line: str, timeout: float, warm_up: bool = False) -> RawOutput:
        """Send a line, and return the answer, which may take up to `timeout` seconds.

        Raises TrialFailed or TimedOut with the program's output. An answer of more than 1000 lines is cut off.
        """
        began = time.monotonic()
        self.send_line(line)
        return self.read_answer(label, began, timeout, warm_up)

    def send_line(self, line: str) -> None:
        """Send a line, on which the program begins to work; raises TrialFailed if the program has ended."""
        try:
            self.process.send(f"{line}\n")
        except TrialFailed as error:
            raise self._to_failure(error, [], 0.0) from error

    def read_answer(self, label: str, began: float, timeout: float, warm_up: bool = False) -> RawOutput:
        """Return the answer to a line that was sent at `began` on the monotonic clock (see `run_turn`)."""
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
    """Context manager: run a program that takes turns."""
    with inside.spawn(*argv) as process:
        yield ResidentProgram(process, argv, last_line)


def count_compute_rounds(duration_seconds: float) -> int:
    """Return the number of turns of a resident computing program in a measurement of this duration."""
    return count_rounds(duration_seconds, COMPUTE_TURN_SECONDS)


def run_compute_turns(inside: Host, argv: Sequence[str], label: str, rounds: int) -> Iterator[RawOutput]:
    """Run a computing program of the image, which stays resident, and yield the output of each turn."""
    line, limit = f"{COMPUTE_DISCARDED_SECONDS:g} {COMPUTE_TURN_SECONDS:g}", limit_seconds(COMPUTE_TURN_SECONDS)
    with running_program(inside, *argv, "--turns", last_line="verified: yes") as program:
        for _ in range(rounds):  # the program finds its rate before the first turn
            yield program.run_turn(label, line, limit)


def estimate_compute_seconds(rounds: int) -> float:
    """Estimate the seconds of these turns, with the parts that do not count."""
    return rounds * (COMPUTE_DISCARDED_SECONDS + COMPUTE_TURN_SECONDS)
