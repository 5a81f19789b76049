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

from tare.cli.console import CachedTable
from tare.model.trial import MeasuredValue, RawOutput, Trial
from tare.model.units import format_count, format_duration, format_quantity
from tare.plugins.workload import Workload
from tare.report.numbers import point, strip_control_characters
from tare.report.terminal import headline_table
from tare.runner.events import (
    BlockBegins,
    BlockEnded,
    PreparationStepBegins,
    RunBegins,
    RunEvent,
    RunObserver,
    StackSkipped,
    TrialBegins,
    TrialEnded,
    TurnEnded,
    TurnOfStack,
    TurnsBegin,
    WarningIssued,
)
from tare.runner.schedule import BlockTiming, TimeLeft
from tare.runner.values import latest_values
from tare.statistics.summarize import summarize
from tare.suites.plan import PlannedTrial

_COLUMNS = 5  # of values: the first ones of a workload
_FIRST_BLOCK_NOTE = "the latest turn of each stack; what can be compared comes with the first block"

Outputs = dict[str, RawOutput]
_FIRST_NOTE_SECONDS, _POLL_SECONDS = 10.0, 2.0  # until the first line about a start or a turn that takes long
_LONG_SECONDS = 3.0  # of a turn


@dataclass
class _FirstBlockRow:
    """A stack's latest outputs by their labels, the values in them, and how long the latest of all took."""

    workload: str
    outputs: Outputs
    seconds: float
    warms_up: bool
    values: tuple[MeasuredValue, ...] | None = None  # None until they are read


@dataclass
class FirstBlockRows:
    """A row for each stack that has had a turn, in the order of their first ones; `workloads` are a suite's.

    One thread may learn while another one draws.
    """

    workloads: Mapping[str, Workload]
    worth_drawing: bool = True  # something new is known of a stack, or a round has passed: turns may be too short
    _rows: dict[str, _FirstBlockRow] = field(default_factory=dict)

    def add_turn(self, step: PlannedTrial, raw: RawOutput) -> bool:
        """Take a turn into account; return whether it is the stack's first."""
        row = self._rows.get(step.stack)
        before = row.outputs if row and row.workload == step.workload else {}
        counted = {label: each for label, each in before.items() if not each.warm_up}
        if not (raw.warm_up and counted):  # a warm-up never replaces a counted turn
            outputs = {**(before if raw.warm_up else counted), raw.label: raw}
            self._rows[step.stack] = _FirstBlockRow(step.workload, outputs, raw.seconds, raw.warm_up)
            self.worth_drawing |= row is None or not before or row.warms_up != raw.warm_up
        return not before

    def describe_turn(self, step: PlannedTrial) -> str:
        """Describe in a line what a stack's turn has shown."""
        stack = strip_control_characters(step.stack)
        return f"{self._rows[step.stack].workload}: {stack}: {self.describe_latest(step.stack)}"

    def describe_latest(self, stack: str) -> str:
        """Describe what a stack's latest turn has shown."""
        row = self._rows[stack]
        values = [
            f"{_value_name(each)} {strip_control_characters(format_quantity(each.value, each.unit))}"
            for each in self._read_values(row)
        ]
        shown = ", ".join(values[:_COLUMNS]) or f"{format_duration(row.seconds)} in its turn"
        return f"{shown}{' (warm-up)' if row.warms_up else ''}"

    def create_table(self) -> RenderableType:
        """Make the table of the stacks that have had a turn."""
        rows = self._rows.copy()
        if not rows:
            return Text("a row for each stack comes with its first turn", style="dim")
        read = {stack: {_value_name(each): each for each in self._read_values(row)} for stack, row in rows.items()}
        shown = {name: each for values in read.values() for name, each in values.items()}
        names = list(shown)[:_COLUMNS]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(names), header_style="dim")
        table.add_column("")
        for name in names:
            table.add_column(Text(f"{name} {'↑' if shown[name].better == 'higher' else '↓'}"), no_wrap=True)
        table.add_column("")
        for stack, row in rows.items():
            values = (_format_value(read[stack].get(name)) for name in names)
            table.add_row(
                Text(strip_control_characters(stack)),
                *values,
                Text(" ".join(_remarks(row, bool(read[stack]))), style="dim"),
            )
        return Group(table, Text(_FIRST_BLOCK_NOTE, style="dim"))

    def _read_values(self, row: _FirstBlockRow) -> tuple[MeasuredValue, ...]:
        if row.values is None:
            row.values = latest_values(self.workloads[row.workload], tuple(row.outputs.values()))
        return row.values


def _value_name(value: MeasuredValue) -> str:
    return strip_control_characters(" ".join(filter(None, (value.metric, point(value.point, "")))))


def _format_value(value: MeasuredValue | None) -> Text:
    return Text(strip_control_characters(format_quantity(value.value, value.unit)) if value else "")


def _remarks(row: _FirstBlockRow, has_values: bool) -> Iterator[str]:
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
        self.waiting: tuple[PlannedTrial, str, float] | None = None

    def __call__(self, event: RunEvent) -> None:
        """Print an event of the preparation, and the beginning of the run."""
        match event:
            case TrialBegins(step):
                self.waiting = step, "is starting", time.monotonic()
            case TurnOfStack(step):
                self.waiting = step, "has its turn", time.monotonic()
            case TurnEnded() | TrialEnded() | BlockEnded():
                self.waiting = None
            case PreparationStepBegins(text):
                self._print(text, "dim")
            case WarningIssued(text):
                self._print(text, "yellow")
            case StackSkipped(stack, problems):
                for problem in problems:
                    self._print(f"skipped: {stack}: {problem.what} (fix: {problem.fix})", "yellow")
            case RunBegins(run, stacks):
                self._print(f"{format_count(stacks, 'stack')}, results in {run.folder}", "none")

    def _print(self, text: str, style: str = "none") -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


class LineProgress(Printer):
    """Plain lines, for a log: one for each trial and block, and some while a start or a turn takes long."""

    _timing: BlockTiming
    _rows: FirstBlockRows | None = None  # until the first block is complete

    @contextmanager
    def report_waits(self) -> Iterator[None]:
        """Context manager: print what the run waits for, after 10 s and each time this has doubled."""
        ended = threading.Event()

        def print_waits() -> None:
            printed, patience = self.waiting, _FIRST_NOTE_SECONDS
            while not ended.wait(_POLL_SECONDS):
                if (waiting := self.waiting) is not printed:
                    patience = _FIRST_NOTE_SECONDS
                if waiting and (seconds := time.monotonic() - waiting[2]) >= patience:
                    step, what, _ = waiting
                    block = f"{step.workload} block {step.block + 1}"
                    self._print(f"{block}: {step.stack} {what} for {format_duration(round(seconds))}", "dim")
                    printed, patience = waiting, 2 * patience

        thread = threading.Thread(target=print_waits, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def __call__(self, event: RunEvent) -> None:
        """Print a line for what is worth one."""
        super().__call__(event)
        match event:
            case RunBegins():
                self._rows = FirstBlockRows(event.workloads)
            case BlockBegins(timing):
                self._timing = timing
            case TrialBegins(step):
                self._timing.begin_trial(step)
            case TurnsBegin(number):
                self._timing.begin_turns(number)
            case TurnEnded(step, raw):
                if self._rows and self._rows.add_turn(step, raw):
                    self._print(self._rows.describe_turn(step))
            case TrialEnded(trial):
                self._print_trial(trial)
            case BlockEnded():
                self._rows = None
                self._print_block()

    def _print_trial(self, trial: Trial) -> None:
        what = "ok" if trial.status == "ok" else f"{trial.status}: {strip_control_characters(trial.reason)}"
        self._print(f"{trial.workload} block {trial.block + 1}: {trial.stack}: {what} ({trial.seconds:.1f} s)")
        if trial.hint:
            self._print(f"  hint: {strip_control_characters(trial.hint)}")

    def _print_block(self) -> None:
        left = self._timing.time_left_after()
        done = f"block {left.blocks_done + 1} of {left.blocks} ({self._timing.block.workload}) done"
        self._print(f"{done}, about {format_duration(round(left.left_seconds))} left")


@dataclass(frozen=True)
class _CurrentStep:
    """What happens now, and what follows; the time left of when it began."""

    what: str
    detail: str
    after: str
    left: TimeLeft
    counts: bool  # whether its own seconds are of interest
    since: float


def _starting_step(step: PlannedTrial, timing: BlockTiming) -> _CurrentStep:
    following = timing.next_trial(step)
    after = f"next {following.stack} {following.workload}" if following else "the last one"
    return _CurrentStep(
        step.stack, f" {step.workload}", after, timing.begin_trial(step), counts=True, since=time.monotonic()
    )


def _turns_step(number: int, stacks: int, timing: BlockTiming) -> _CurrentStep:
    turn, of = number + 1, timing.turns
    place = f"turn {min(turn, of)} of {of}" if of else f"turn {turn}"
    after, left = f"{format_count(stacks, 'stack')} in turns", timing.begin_turns(number)
    return _CurrentStep(timing.block.workload, f" {place}", after, left, counts=False, since=time.monotonic())


class Screen(Printer):
    """The table of results with a line of progress below, updated in place once the run begins."""

    _timing: BlockTiming

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.live = Live(self, console=console, refresh_per_second=4, transient=True)
        self._table: RenderableType | None = None  # before the first block is complete
        self._rows = FirstBlockRows({})
        self._drawn: RenderableType = ""  # the rows, as they were when it was worth it
        self._failed: list[tuple[str, str]] = []  # each with its hint
        self._now: _CurrentStep | None = None

    def __call__(self, event: RunEvent) -> None:
        """Keep what the next drawing shows."""
        super().__call__(event)
        match event:
            case RunBegins():
                self._rows = FirstBlockRows(event.workloads)
                self.live.start()
            case BlockBegins(timing):
                self._timing = timing
            case TrialBegins(step):
                self._now = _starting_step(step, self._timing)
            case TurnsBegin(number, stacks):
                self._now = _turns_step(number, stacks, self._timing)
                self._rows.worth_drawing = True
            case TurnEnded(step, raw):
                if self._table is None:
                    self._rows.add_turn(step, raw)
            case TrialEnded(trial):
                if trial.status == "failed":
                    self._failed.append((f"{trial.stack}, {trial.workload}: {trial.reason}", trial.hint))
            case BlockEnded(run):
                self._table = CachedTable(headline_table(summarize(run), self.console.width))

    def __rich__(self) -> RenderableType:
        """Draw."""
        lines = [
            Text(f"{word}: {strip_control_characters(text)}", style=style, overflow="ellipsis", no_wrap=True)
            for what, hint in self._failed[-3:]
            for word, text, style in (("failed", what, "red"), ("  hint", hint, "dim"))
            if text
        ]
        return Group(self._table or self._first_block_table(), *lines, self._progress_line())

    def _first_block_table(self) -> RenderableType:
        if self._rows.worth_drawing:
            self._rows.worth_drawing = False
            self._drawn = CachedTable(self._rows.create_table())
        return self._drawn

    def _progress_line(self) -> RenderableType:
        if self._now is None:
            return Text("starting …", style="dim")
        running = time.monotonic() - self._now.since
        left = self._now.left
        spent, to_go = left.spent_seconds + running, max(0.0, left.left_seconds - running)
        grid = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=spent + to_go, completed=spent, width=24)
        count = f"block {left.blocks_done + 1}/{left.blocks}"
        further, then = self._now.detail, self._now.after
        if self._now.counts:
            further += f" {running:.0f} s"
        elif self.waiting and (seconds := time.monotonic() - self.waiting[2]) >= _LONG_SECONDS:
            then = f"{self.waiting[0].stack} {self.waiting[1]} for {seconds:.0f} s"
        now, after = Text.assemble((self._now.what, "bold"), further), Text(then, style="dim")
        grid.add_row(bar, count, now, after, f"{format_duration(round(to_go))} left")
        return grid


@contextmanager
def show_progress(console: Console) -> Iterator[RunObserver]:
    """Yield what shows a run on the console: a screen on a terminal, lines elsewhere."""
    if not console.is_terminal:
        lines = LineProgress(console)
        with lines.report_waits():
            yield lines
        return
    screen = Screen(console)
    try:
        yield screen
    finally:
        screen.live.stop()
