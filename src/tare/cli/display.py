"""The display of a run: a table that fills, the current and the next trial, and the time left.

A terminal redraws it in place; elsewhere each trial and block is one plain line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tare.contracts import Workload
from tare.journal import Run
from tare.model import Raw, Trial
from tare.report.first_rows import FirstRows
from tare.report.numbers import clean
from tare.report.terminal import matrix
from tare.running.runner import Turns, Watch
from tare.running.schedule import TimeLeft
from tare.statistics.summarize import summarize
from tare.suites.plan import Block, Step
from tare.units import format_duration


class Lines:
    """Plain lines, for a log."""

    def __init__(self, console: Console, workloads: Mapping[str, Workload]) -> None:
        self._console = console
        self._rows: FirstRows | None = FirstRows(workloads)  # until the first block is complete

    def trial_begins(self, step: Step, following: Step | None, left: TimeLeft) -> None:  # noqa: ARG002 - see Watch
        """Print nothing: the line comes with the result."""
        self._left = left

    def turns_begin(self, begun: Turns, left: TimeLeft) -> None:  # noqa: ARG002 - see Watch
        """Keep the time left, and print nothing: there are many rounds."""
        self._left = left

    def turn_ended(self, step: Step, raw: Raw) -> None:
        """Print what each stack's first turn of the first block shows, and nothing of the others."""
        if self._rows and self._rows.learn(step, raw):
            self._console.print(self._rows.line(step), markup=False, highlight=False, soft_wrap=True)

    def trial_ended(self, trial: Trial) -> None:
        """Print the result of a trial."""
        what = "ok" if trial.status == "ok" else f"{trial.status}: {clean(trial.reason)}"
        line = f"{trial.workload} block {trial.block + 1}: {trial.stack}: {what} ({trial.seconds:.1f} s)"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        if trial.hint:
            self._console.print(f"  hint: {clean(trial.hint)}", markup=False, highlight=False, soft_wrap=True)

    def block_ended(self, block: Block) -> None:
        """Print the progress."""
        self._rows = None
        left = self._left
        text = f"block {left.blocks_done + 1} of {left.blocks} ({block.workload}) done"
        self._console.print(
            f"{text}, about {format_duration(round(left.left_seconds))} left", markup=False, highlight=False
        )


@dataclass(frozen=True)
class _Now:
    """What was said last: the step or the turns that begin."""

    what: Step | Turns
    following: Step | None
    left: TimeLeft
    since: float

    def told(self, running: float) -> tuple[str, str]:
        """Say what is going on, and what comes next."""
        if isinstance(self.what, Turns):
            number, of = self.what.number + 1, self.what.of
            place = f"turn {min(number, of)} of {of}" if of else f"turn {number}"
            stacks = "1 stack" if self.what.stacks == 1 else f"{self.what.stacks} stacks"
            return f"[bold]{escape(self.what.block.workload)}[/] {place}", f"[dim]{stacks} in turns[/]"
        now = f"[bold]{escape(self.what.stack)}[/] {escape(self.what.workload)} {running:.0f} s"
        after = f"next {escape(self.following.stack)} {escape(self.following.workload)}" if self.following else ""
        return now, f"[dim]{after or 'the last one'}[/]"


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


class Screen:
    """The table of results with a line of progress below, redrawn in place."""

    def __init__(self, live: Live, run: Callable[[], Run], workloads: Mapping[str, Workload]) -> None:
        self._live = live
        self._run = run
        self._table: RenderableType | None = None  # before the first block is complete
        self._rows = FirstRows(workloads)
        self._drawn: RenderableType = ""  # the rows, as they were when it was worth it
        self._failed: list[tuple[str, str]] = []  # each with its hint
        self._now: _Now | None = None

    def trial_begins(self, step: Step, following: Step | None, left: TimeLeft) -> None:
        """Show what runs."""
        self._now = _Now(step, following, left, time.monotonic())

    def turns_begin(self, begun: Turns, left: TimeLeft) -> None:
        """Show which turns these are."""
        self._now = _Now(begun, None, left, time.monotonic())
        self._rows.worth_drawing = True

    def turn_ended(self, step: Step, raw: Raw) -> None:
        """Keep what it gave, for as long as there is no table; what draws reads it."""
        if self._table is None:
            self._rows.learn(step, raw)

    def trial_ended(self, trial: Trial) -> None:
        """Show a failure at once."""
        if trial.status == "failed":
            self._failed.append((f"{trial.stack}, {trial.workload}: {trial.reason}", trial.hint))

    def block_ended(self, block: Block) -> None:  # noqa: ARG002 - see Watch
        """Draw the table with the complete block."""
        self._table = Once(matrix(summarize(self._run()), self._live.console.width))

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
        grid.add_row(bar, count, *self._now.told(running), f"{format_duration(round(to_go))} left")
        return grid


@contextmanager
def watching(console: Console, run: Callable[[], Run], workloads: Mapping[str, Workload]) -> Iterator[Watch]:
    """Give the watch for the console; `run` reads the current run folder, `workloads` are a suite's by their names."""
    if not console.is_terminal:
        yield Lines(console, workloads)
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        screen = Screen(live, run, workloads)
        live.update(screen)
        yield screen
