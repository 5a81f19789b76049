"""The display of a run: a table that fills, the current and the next trial, and the time left.

A terminal redraws it in place; elsewhere each trial and block is one plain line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tare.cli.console import Once
from tare.cli.lines import Lines, Printer
from tare.report.first_rows import FirstRows
from tare.report.numbers import clean
from tare.report.terminal import matrix
from tare.runner.events import (
    BlockBegins,
    BlockEnded,
    Event,
    RunBegins,
    RunObserver,
    TrialBegins,
    TrialEnded,
    TurnEnded,
    TurnsBegin,
)
from tare.runner.schedule import BlockTiming, TimeLeft
from tare.statistics.summarize import summarize
from tare.suites.plan import Step
from tare.units import counted, format_duration

_LONG_SECONDS = 3.0  # of a turn


@dataclass(frozen=True)
class _Now:
    """What happens now, and what follows; the time left of when it began."""

    what: str
    further: str
    after: str
    left: TimeLeft
    counts: bool  # whether its own seconds are of interest
    since: float


def _starting(step: Step, timing: BlockTiming) -> _Now:
    following = timing.following(step)
    after = f"next {following.stack} {following.workload}" if following else "the last one"
    return _Now(step.stack, f" {step.workload}", after, timing.trial_begins(step), counts=True, since=time.monotonic())


def _in_turns(number: int, stacks: int, timing: BlockTiming) -> _Now:
    turn, of = number + 1, timing.turns
    place = f"turn {min(turn, of)} of {of}" if of else f"turn {turn}"
    after, left = f"{counted(stacks, 'stack')} in turns", timing.turns_begin(number)
    return _Now(timing.block.workload, f" {place}", after, left, counts=False, since=time.monotonic())


class Screen(Printer):
    """The table of results with a line of progress below, redrawn in place once the run begins."""

    _timing: BlockTiming

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.live = Live(self, console=console, refresh_per_second=4, transient=True)
        self._table: RenderableType | None = None  # before the first block is complete
        self._rows = FirstRows({})
        self._drawn: RenderableType = ""  # the rows, as they were when it was worth it
        self._failed: list[tuple[str, str]] = []  # each with its hint
        self._now: _Now | None = None

    def __call__(self, event: Event) -> None:
        """Keep what the next drawing shows."""
        super().__call__(event)
        match event:
            case RunBegins():
                self._rows = FirstRows(event.workloads)
                self.live.start()
            case BlockBegins(timing):
                self._timing = timing
            case TrialBegins(step):
                self._now = _starting(step, self._timing)
            case TurnsBegin(number, stacks):
                self._now = _in_turns(number, stacks, self._timing)
                self._rows.worth_drawing = True
            case TurnEnded(step, raw):
                if self._table is None:
                    self._rows.learn(step, raw)
            case TrialEnded(trial):
                if trial.status == "failed":
                    self._failed.append((f"{trial.stack}, {trial.workload}: {trial.reason}", trial.hint))
            case BlockEnded(run):
                self._table = Once(matrix(summarize(run), self.console.width))

    def __rich__(self) -> RenderableType:
        """Draw."""
        lines = [
            Text(f"{word}: {clean(text)}", style=style, overflow="ellipsis", no_wrap=True)
            for what, hint in self._failed[-3:]
            for word, text, style in (("failed", what, "red"), ("  hint", hint, "dim"))
            if text
        ]
        return Group(self._table or self._first(), *lines, self._progress())

    def _first(self) -> RenderableType:
        if self._rows.worth_drawing:
            self._rows.worth_drawing = False
            self._drawn = Once(self._rows.table())
        return self._drawn

    def _progress(self) -> RenderableType:
        if self._now is None:
            return Text("starting …", style="dim")
        running = time.monotonic() - self._now.since
        left = self._now.left
        spent, to_go = left.spent_seconds + running, max(0.0, left.left_seconds - running)
        grid = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=spent + to_go, completed=spent, width=24)
        count = f"block {left.blocks_done + 1}/{left.blocks}"
        further, then = self._now.further, self._now.after
        if self._now.counts:
            further += f" {running:.0f} s"
        elif self.waiting and (seconds := time.monotonic() - self.waiting[2]) >= _LONG_SECONDS:
            then = f"{self.waiting[0].stack} {self.waiting[1]} for {seconds:.0f} s"
        now, after = Text.assemble((self._now.what, "bold"), further), Text(then, style="dim")
        grid.add_row(bar, count, now, after, f"{format_duration(round(to_go))} left")
        return grid


@contextmanager
def shown(console: Console) -> Iterator[RunObserver]:
    """Yield what shows a run on the console: a screen on a terminal, lines elsewhere."""
    if not console.is_terminal:
        lines = Lines(console)
        with lines.watching():
            yield lines
        return
    screen = Screen(console)
    try:
        yield screen
    finally:
        screen.live.stop()
