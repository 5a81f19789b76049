"""The display of a run: a table that fills, the current and the next trial, and the time left.

A terminal redraws it in place; elsewhere each trial and block is one plain line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tare.model.trials import Trial
from tare.report.first_rows import FirstRows
from tare.report.numbers import clean
from tare.report.terminal import matrix
from tare.running.progress import (
    BlockBegins,
    BlockEnded,
    Event,
    Preparing,
    ProgressReporter,
    RunBegins,
    StackSkipped,
    TrialBegins,
    TrialEnded,
    TurnEnded,
    TurnsBegin,
    Warned,
)
from tare.running.schedule import BlockTiming, TimeLeft
from tare.statistics.summarize import summarize
from tare.suites.plan import Step
from tare.units import format_duration


class _Printer:
    """Prints what a run reports outside its blocks."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __call__(self, event: Event) -> None:
        """Print an event of the preparation, and the beginning of the run."""
        match event:
            case Preparing(text):
                self._print(text, "dim")
            case Warned(text):
                self._print(text, "yellow")
            case StackSkipped(stack, problems):
                for problem in problems:
                    self._print(f"skipped: {stack}: {problem.what} (fix: {problem.fix})", "yellow")
            case RunBegins(run, stacks):
                self._print(f"{stacks} stacks, results in {run.folder}", "none")

    def _print(self, text: str, style: str = "none") -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


class Lines(_Printer):
    """Plain lines, for a log: one for each trial and block."""

    _timing: BlockTiming
    _left: TimeLeft
    _rows: FirstRows | None = None  # until the first block is complete

    def __call__(self, event: Event) -> None:
        """Print a line for what is worth one."""
        super().__call__(event)
        match event:
            case RunBegins():
                self._rows = FirstRows(event.workloads)
            case BlockBegins(timing):
                self._timing = timing
            case TrialBegins(step):
                self._left = self._timing.trial_begins(step)
            case TurnsBegin(number):
                self._left = self._timing.turns_begin(number)
            case TurnEnded(step, raw):
                if self._rows and self._rows.learn(step, raw):
                    self._print(self._rows.line(step))
            case TrialEnded(trial):
                self._print_trial(trial)
            case BlockEnded():
                self._rows = None
                self._print_block()

    def _print_trial(self, trial: Trial) -> None:
        what = "ok" if trial.status == "ok" else f"{trial.status}: {clean(trial.reason)}"
        self._print(f"{trial.workload} block {trial.block + 1}: {trial.stack}: {what} ({trial.seconds:.1f} s)")
        if trial.hint:
            self._print(f"  hint: {clean(trial.hint)}")

    def _print_block(self) -> None:
        left = self._left
        done = f"block {left.blocks_done + 1} of {left.blocks} ({self._timing.block.workload}) done"
        self._print(f"{done}, about {format_duration(round(left.left_seconds))} left")


@dataclass(frozen=True)
class _Now:
    """What happens now, and what follows, in markup; the time left of when it began."""

    what: str
    after: str
    left: TimeLeft
    counts: bool  # whether its own seconds are of interest
    since: float


def _starting(step: Step, timing: BlockTiming) -> _Now:
    following = timing.following(step)
    after = f"next {escape(following.stack)} {escape(following.workload)}" if following else "the last one"
    what = f"[bold]{escape(step.stack)}[/] {escape(step.workload)}"
    return _Now(what, f"[dim]{after}[/]", timing.trial_begins(step), counts=True, since=time.monotonic())


def _in_turns(number: int, stacks: int, timing: BlockTiming) -> _Now:
    turn, of = number + 1, timing.turns
    place = f"turn {min(turn, of)} of {of}" if of else f"turn {turn}"
    count = "1 stack" if stacks == 1 else f"{stacks} stacks"
    what = f"[bold]{escape(timing.block.workload)}[/] {place}"
    return _Now(what, f"[dim]{count} in turns[/]", timing.turns_begin(number), counts=False, since=time.monotonic())


@dataclass
class Once:
    """A table that is drawn once: the screen is drawn anew four times a second, on CPUs that the load may need."""

    table: RenderableType
    _lines: list[list[Segment]] = field(default_factory=list)
    _width: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it again only where the terminal has another width."""
        if self._width != options.max_width:
            self._lines, self._width = console.render_lines(self.table, options, pad=False), options.max_width
        for line in self._lines:
            yield from (*line, Segment.line())


class Screen(_Printer):
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
        now = f"{self._now.what} {running:.0f} s" if self._now.counts else self._now.what
        grid.add_row(bar, count, now, self._now.after, f"{format_duration(round(to_go))} left")
        return grid


@contextmanager
def shown(console: Console) -> Iterator[ProgressReporter]:
    """Yield what shows a run on the console: a screen on a terminal, lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console)
        return
    screen = Screen(console)
    try:
        yield screen
    finally:
        screen.live.stop()
