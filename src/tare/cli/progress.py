"""Show the progress of a run: a live table on a terminal, lines elsewhere.

Values are those of a stack's latest turn, or of the latest one with each label. They decide nothing.

A terminal redraws it in place; elsewhere each trial and block is one plain line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tare.cli.console import Once
from tare.model.trial import Measured, Raw, Trial
from tare.model.units import counted, format_duration, format_quantity
from tare.plugins.workload import Workload
from tare.report.numbers import clean, point
from tare.report.terminal import matrix
from tare.runner.events import (
    BlockBegins,
    BlockEnded,
    Event,
    Preparing,
    RunBegins,
    RunObserver,
    StackSkipped,
    TrialBegins,
    TrialEnded,
    TurnEnded,
    TurnOfStack,
    TurnsBegin,
    Warned,
)
from tare.runner.schedule import BlockTiming, TimeLeft
from tare.runner.values import latest_values
from tare.statistics.summarize import summarize
from tare.suites.plan import Step

_COLUMNS = 5  # of values: the first ones of a workload
_LATER = "the latest turn of each stack; what can be compared comes with the first block"

Outputs = dict[str, Raw]
_PATIENCE_SECONDS, _LOOK_SECONDS = 10.0, 2.0  # until the first line about a start or a turn that takes long
_LONG_SECONDS = 3.0  # of a turn


@dataclass
class _Row:
    """A stack's latest outputs by their labels, the values in them, and how long the latest of all took."""

    workload: str
    outputs: Outputs
    seconds: float
    warms_up: bool
    values: tuple[Measured, ...] | None = None  # None until they are read


@dataclass
class FirstRows:
    """A row for each stack that has had a turn, in the order of their first ones; `workloads` are a suite's.

    One thread may learn while another one draws.
    """

    workloads: Mapping[str, Workload]
    worth_drawing: bool = True  # something new is known of a stack, or a round has passed: turns may be too short
    _rows: dict[str, _Row] = field(default_factory=dict)

    def learn(self, step: Step, raw: Raw) -> bool:
        """Take a turn into account; return whether it is the stack's first."""
        row = self._rows.get(step.stack)
        before = row.outputs if row and row.workload == step.workload else {}
        counted = {label: each for label, each in before.items() if not each.warm_up}
        if not (raw.warm_up and counted):  # a warm-up never replaces a counted turn
            outputs = {**(before if raw.warm_up else counted), raw.label: raw}
            self._rows[step.stack] = _Row(step.workload, outputs, raw.seconds, raw.warm_up)
            self.worth_drawing |= row is None or not before or row.warms_up != raw.warm_up
        return not before

    def line(self, step: Step) -> str:
        """Describe in a line what a stack's turn has shown."""
        return f"{self._rows[step.stack].workload}: {clean(step.stack)}: {self.latest(step.stack)}"

    def latest(self, stack: str) -> str:
        """Describe what a stack's latest turn has shown."""
        row = self._rows[stack]
        values = [f"{_name(each)} {clean(format_quantity(each.value, each.unit))}" for each in self._values(row)]
        shown = ", ".join(values[:_COLUMNS]) or f"{format_duration(row.seconds)} in its turn"
        return f"{shown}{' (warm-up)' if row.warms_up else ''}"

    def table(self) -> RenderableType:
        """Make the table of the stacks that have had a turn."""
        rows = self._rows.copy()
        if not rows:
            return Text("a row for each stack comes with its first turn", style="dim")
        read = {stack: {_name(each): each for each in self._values(row)} for stack, row in rows.items()}
        shown = {name: each for values in read.values() for name, each in values.items()}
        names = list(shown)[:_COLUMNS]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(names), header_style="dim")
        table.add_column("")
        for name in names:
            table.add_column(Text(f"{name} {'↑' if shown[name].better == 'higher' else '↓'}"), no_wrap=True)
        table.add_column("")
        for stack, row in rows.items():
            values = (_shown(read[stack].get(name)) for name in names)
            table.add_row(Text(clean(stack)), *values, Text(" ".join(_remarks(row, bool(read[stack]))), style="dim"))
        return Group(table, Text(_LATER, style="dim"))

    def _values(self, row: _Row) -> tuple[Measured, ...]:
        if row.values is None:
            row.values = latest_values(self.workloads[row.workload], tuple(row.outputs.values()))
        return row.values


def _name(value: Measured) -> str:
    return clean(" ".join(filter(None, (value.metric, point(value.point, "")))))


def _shown(value: Measured | None) -> Text:
    return Text(clean(format_quantity(value.value, value.unit)) if value else "")


def _remarks(row: _Row, has_values: bool) -> Iterator[str]:
    if not has_values:
        yield f"{format_duration(row.seconds)} in its turn"
    if row.warms_up:
        yield "warm-up"


class Printer:
    """Prints what a run reports outside its blocks.

    `waiting` is the stack that is starting or has its turn, what it does, and since when; None between two of these.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.waiting: tuple[Step, str, float] | None = None

    def __call__(self, event: Event) -> None:
        """Print an event of the preparation, and the beginning of the run."""
        match event:
            case TrialBegins(step):
                self.waiting = step, "is starting", time.monotonic()
            case TurnOfStack(step):
                self.waiting = step, "has its turn", time.monotonic()
            case TurnEnded() | TrialEnded() | BlockEnded():
                self.waiting = None
            case Preparing(text):
                self._print(text, "dim")
            case Warned(text):
                self._print(text, "yellow")
            case StackSkipped(stack, problems):
                for problem in problems:
                    self._print(f"skipped: {stack}: {problem.what} (fix: {problem.fix})", "yellow")
            case RunBegins(run, stacks):
                self._print(f"{counted(stacks, 'stack')}, results in {run.folder}", "none")

    def _print(self, text: str, style: str = "none") -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


class Lines(Printer):
    """Plain lines, for a log: one for each trial and block, and some while a start or a turn takes long."""

    _timing: BlockTiming
    _rows: FirstRows | None = None  # until the first block is complete

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context manager: print what the run waits for, after 10 s and each time this has doubled."""
        ended = threading.Event()

        def watch() -> None:
            printed, patience = self.waiting, _PATIENCE_SECONDS
            while not ended.wait(_LOOK_SECONDS):
                if (waiting := self.waiting) is not printed:
                    patience = _PATIENCE_SECONDS
                if waiting and (seconds := time.monotonic() - waiting[2]) >= patience:
                    step, what, _ = waiting
                    block = f"{step.workload} block {step.block + 1}"
                    self._print(f"{block}: {step.stack} {what} for {format_duration(round(seconds))}", "dim")
                    printed, patience = waiting, 2 * patience

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def __call__(self, event: Event) -> None:
        """Print a line for what is worth one."""
        super().__call__(event)
        match event:
            case RunBegins():
                self._rows = FirstRows(event.workloads)
            case BlockBegins(timing):
                self._timing = timing
            case TrialBegins(step):
                self._timing.trial_begins(step)
            case TurnsBegin(number):
                self._timing.turns_begin(number)
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
        left = self._timing.block_ends()
        done = f"block {left.blocks_done + 1} of {left.blocks} ({self._timing.block.workload}) done"
        self._print(f"{done}, about {format_duration(round(left.left_seconds))} left")


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
