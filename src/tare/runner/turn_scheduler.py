"""Scheduler of turns: lets the stacks of a block take turns in random order, until none has more to do."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import monotonic

from tare.hosts.process import raise_if_interrupted
from tare.runner.events import RunObserver, TurnEnded, TurnOfStack, TurnsBegin
from tare.runner.schedule import SLOW_FACTOR, rounds_by_label
from tare.runner.trial import TrialRun

_MIN_ROUNDS = 3  # for a far slower stack: the fewest rounds of which the median ignores one disturbed turn
_MIN_STACKS = 3  # with two stacks, the median lies between them and neither is an outlier


@dataclass
class TurnScheduler:
    """Scheduler of turns: lets attempts take turns until none has more to do.

    `labels` are those of a complete round; empty while unknown. Other stacks do not wait for a far slower one: its
    turns end after a few complete rounds, unless it is one of the `references`.

    Until a workload has worked, the references have the first turns. If the first of these times out, the command
    probably never ends: `is_hopeless` becomes true, and no more turns are taken.
    """

    rng: random.Random
    observe: RunObserver
    side_by_side: bool
    labels: Collection[str] = ()
    references: Collection[str] = ()
    count: int = 0
    started_at: float = 0.0
    ended_early: list[TrialRun] = field(default_factory=list)
    is_hopeless: bool = False
    _had_turn: set[str] = field(default_factory=set)

    def select_counted(self, attempts: Sequence[TrialRun]) -> list[TrialRun]:
        """Return the attempts to record: all, or if hopeless those that had a turn or failed to start."""
        return [
            each for each in attempts if not (self.is_hopeless and each.is_running) or each.step.trial in self._had_turn
        ]

    def run_turns(self, attempts: Sequence[TrialRun], first_round: int) -> None:
        """Let attempts take turns; `first_round` is the number of their first round in the block."""
        self.started_at = self.started_at or monotonic()
        for attempt in attempts:
            attempt.measure_from(first_round)
        going = list(attempts)
        while going:
            if self.side_by_side:
                self.observe(TurnsBegin(self.count, len(going)))
            self.rng.shuffle(going)
            if not (self.labels or self._had_turn):
                first = list(self.references)
                going.sort(key=lambda each: first.index(each.step.stack) if each.step.stack in first else len(first))
            going = [attempt for attempt in going if self._run_turn(attempt)]
            if self.is_hopeless:
                return
            slow = self._find_far_slower(going)
            self.ended_early += slow
            going = [attempt for attempt in going if attempt not in slow]
            self.count += 1

    def _run_turn(self, attempt: TrialRun) -> bool:
        raise_if_interrupted()
        if self.is_hopeless:
            return False
        self.observe(TurnOfStack(attempt.step))
        raw = attempt.run_turn(self.count, self.started_at)
        is_first = not (self.labels or self._had_turn)
        self._had_turn.add(attempt.step.trial)
        self.is_hopeless = is_first and attempt.timed_out and attempt.step.stack in self.references
        if raw is not None:
            self.observe(TurnEnded(attempt.step, raw))
        return raw is not None

    def _find_far_slower(self, going: Sequence[TrialRun]) -> list[TrialRun]:
        if not self.labels or len(going) < _MIN_STACKS:
            return []
        # The median, because a mean would grow with the slow stack itself.
        usual = SLOW_FACTOR * median(attempt.log.measured_seconds for attempt in going)
        return [
            attempt
            for attempt in going
            if attempt.step.stack not in self.references
            and attempt.log.measured_seconds > usual
            and self._count_whole_rounds(attempt) >= _MIN_ROUNDS
        ]

    def _count_whole_rounds(self, attempt: TrialRun) -> int:
        """Return the number of complete rounds, each with one turn of every label; 0 within a round."""
        counts = rounds_by_label(attempt.log.turns)
        distinct = {counts[label] for label in self.labels}
        return distinct.pop() if len(distinct) == 1 and len(counts) == len(self.labels) else 0
