"""Turns: the division of a measurement, and resident programs that are started once and then work on request.

A turn of a resident program takes 3 to 60 ms, of which the first part does not count: caches are cold there. A run
chooses its length by measurement (tare/runner/turn_lengths.py). A turn of any other program has 20 to 200 ms. The upper
bound keeps a turn shorter than most disturbances of the machine, which then affect every stack. The lower bound keeps
costs at the begin of a turn a small part of it.
"""

from __future__ import annotations

import math
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Annotated, ClassVar, Self

from pydantic import Field

from tare.hosts.host import Host, Process
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Output, RawOutput
from tare.model.turn_length import TurnLength
from tare.model.units import Duration
from tare.plugins.workload import Workload

SLOWEST_CPU_FACTOR = 5  # extends time limits of CPU work: an emulated CPU takes more than ten times as long
# Longer turns were no steadier, except for Redis: more and shorter turns give more precision (docs/decisions/turns.md).
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.02, 0.2
_USUAL_ROUNDS = 10  # for durations between 0.2 s and 2 s
# Turns of programs that stay resident, where no length was chosen, and all lengths that can be. With 1 ms that does not
# count, nginx and Redis had 15 and 16 % of bare metal's rate in gVisor, with 5 and with 20 ms 18 to 20 %; nginx behind
# a bridge had 82.6 %, then 83.6 %. The baseline, by which a run chooses, shows neither.
SHORT_TURN = TurnLength(0.005, 0.005)
_DISCARDS = (0.005, 0.01)
_MEASURES = (0.005, 0.01, 0.02, 0.05)
_FEWEST_TURNS, MOST_TURNS = 10, 200  # of a measurement: the least that a median needs, and enough for any precision
# Of programs that compute. gVisor's kernel runs on the instance's CPU for milliseconds after a request: with 4 ms that
# do not count, dhrystone was a third slower there than with 10 or 20 ms, which agree. The baseline does not show this.
COMPUTE_TURN = TurnLength(0.01, 0.01)
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


@dataclass(frozen=True)
class ShortTurnWorkload(Workload):
    """Workload of a resident program with short turns, of a length that the suite sets or the run chooses.

    The settings `turn` and `discard` are the seconds of a turn that count and those of its first part, which do not; 0
    lets the run choose both. `usual_turn` is the length where nothing was chosen; no shorter first part is chosen.
    """

    usual_turn: ClassVar[TurnLength] = SHORT_TURN
    turn: Annotated[Duration, Field(ge=0, le=3600)] = field(default=0.0, kw_only=True)
    discard: Annotated[Duration, Field(ge=0, le=3600)] = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        """Raise ValueError for settings of turns that the workload does not have."""
        if self.discard and not self.turn:
            raise ValueError("discard is the first part of a turn: give turn, too")
        if self.turn and not self.has_short_turns:
            raise ValueError("turn is of programs that stay resident between turns: leave it out")

    @property
    @abstractmethod
    def duration(self) -> float:
        """The seconds that count in all turns of a point together."""

    @property
    def has_short_turns(self) -> bool:
        """Whether its program stays resident with these settings."""
        return True

    @property
    def least_measure_seconds(self) -> float:
        """The shortest part that counts."""
        return 0.0

    @property
    def turn_length(self) -> TurnLength:
        """The length of its turns."""
        usual = self.usual_turn
        return TurnLength(self.discard or usual.discard_seconds, self.turn or usual.measure_seconds)

    def with_turn_length(self, length: TurnLength) -> Self:
        """Return a copy whose turns have this length, and take as long together as they do now."""
        rounds = math.ceil(self.rounds * self.turn_length.seconds / length.seconds)
        settings = {"turn": length.measure_seconds, "discard": length.discard_seconds}
        settings["duration"] = rounds * length.measure_seconds
        return replace(self, **settings)

    @property
    def turn_lengths(self) -> Sequence[TurnLength]:
        """The lengths that can be chosen, with 10 to 200 turns in its duration; () if the length is fixed.

        No part is shorter than the usual one: the pairs of a choice, which are the baseline's, cannot show what other
        stacks need. With 2 ms that count after 10 ms, dhrystone was 3.0 % slower in gVisor, with 10 to 100 ms 0.8 to
        1.3 %.
        """
        least = max(self.usual_turn.measure_seconds, self.least_measure_seconds, self.duration / MOST_TURNS)
        measures = [each for each in _MEASURES if least <= each <= self.duration / _FEWEST_TURNS]
        if self.turn or not self.has_short_turns or len(measures) <= 1:
            return ()
        discards = [each for each in _DISCARDS if each >= self.usual_turn.discard_seconds]
        return tuple(TurnLength(*each) for each in product(discards, measures))


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


def run_compute_turns(
    inside: Host, argv: Sequence[str], label: str, lengths: Iterable[TurnLength]
) -> Iterator[RawOutput]:
    """Run a computing program of the image, which stays resident, and yield the output of a turn of each length."""
    with running_program(inside, *argv, "--turns", last_line="verified: yes") as program:
        for each in lengths:  # the program finds its rate before the first turn
            line = f"{each.discard_seconds:g} {each.measure_seconds:g}"
            yield program.run_turn(label, line, limit_seconds(each.measure_seconds))


# The part of a turn that does not count, as programs print it before the counted one.
DISCARDED = r"discarded_seconds: (?P<discarded>\d+\.\d+)\ndiscarded_rate: (?P<discarded_rate>\d+\.\d+)\n"


def drop_discarded(text: str) -> str:
    """Return the output of a turn without its part to discard."""
    return re.sub(f"^{DISCARDED}", "", text, flags=re.ASCII)


def read_discarded(text: str) -> tuple[float, float]:
    """Return the seconds of the part of a turn that did not count, and the rate in it; raises TrialFailed."""
    if found := re.search(DISCARDED, text, re.ASCII):
        return float(found["discarded"]), float(found["discarded_rate"])
    raise TrialFailed(f"the program did not print the part to discard; {quote_output(text)}")
