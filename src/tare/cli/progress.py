"""Progress of a run: a live table on a terminal, plain lines elsewhere.

Until the first block is complete, the table has the values of each stack's latest turn, or of the latest turn of each
label. No verdict depends on them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tare.cli.console import CachedTable, is_verbose
from tare.model.trial import MeasuredValue, RawOutput, Trial
from tare.model.units import format_count, format_duration, format_quantity
from tare.plugins.workload import Workload
from tare.report.numbers import point, strip_control_characters
from tare.report.terminal import headline_table
from tare.report.trial_facts import complete_hint
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

_COLUMNS = 5  # shown values of a workload
_FIRST_BLOCK_NOTE = "latest turn of each stack; the comparison follows after the first block"

Outputs = dict[str, RawOutput]
_FIRST_NOTE_SECONDS, _POLL_SECONDS = 10.0, 2.0  # until the first line about a slow start or turn
_LONG_SECONDS = 3.0  # from which on the screen shows the time of the current turn


@dataclass
class _FirstBlockRow:
    """Row of a stack: its latest output of each label, their values, and the seconds of its latest turn."""

    workload: str
    outputs: Outputs
    seconds: float
    warms_up: bool
    values: tuple[MeasuredValue, ...] | None = None  # None until they are read
    failed: bool = False  # whether the command of the latest turn failed


@dataclass
class FirstBlockRows:
    """Rows of the stacks that have had a turn, in the order of their first turns.

    `workloads` are those of the suite by name. One thread may add turns while another thread draws.
    """

    workloads: Mapping[str, Workload]
    # Turns may take milliseconds, so the table is drawn again for a new stack or a new round, not for each turn.
    worth_drawing: bool = True
    _rows: dict[str, _FirstBlockRow] = field(default_factory=dict)

    def add_turn(self, step: PlannedTrial, raw: RawOutput) -> bool:
        """Add a turn; return whether it is the first turn of the stack in this workload."""
        row = self._rows.get(step.stack)
        before = row.outputs if row and row.workload == step.workload else {}
        counted = {label: each for label, each in before.items() if not each.warm_up}
        if not (raw.warm_up and counted):  # a warm-up never replaces a counted turn
            outputs = {**(before if raw.warm_up else counted), raw.label: raw}
            self._rows[step.stack] = _FirstBlockRow(step.workload, outputs, raw.seconds, raw.warm_up)
            self.worth_drawing |= row is None or not before or row.warms_up != raw.warm_up
        return not before

    def describe_turn(self, step: PlannedTrial) -> str:
        """Return the workload, the stack and the values of its latest turn as one line."""
        stack = strip_control_characters(step.stack)
        return f"{self._rows[step.stack].workload}: {stack}: {self.describe_latest(step.stack)}"

    def describe_latest(self, stack: str) -> str:
        """Return the values of a stack's latest turn as text; its duration if it has no values, "" if it failed."""
        row = self._rows[stack]
        values = [
            f"{_value_name(each)} {strip_control_characters(format_quantity(each.value, each.unit))}"
            for each in self._read_values(row)
        ]
        shown = ", ".join(values[:_COLUMNS]) or _format_turn(row)
        return shown and f"{shown}{' (warm-up)' if row.warms_up else ''}"

    def create_table(self) -> RenderableType:
        """Return the table of the stacks that have had a turn."""
        rows = self._rows.copy()
        if not rows:
            return Text("waiting for the first turn", style="dim")
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
                Text(" ".join(_format_remarks(row, bool(read[stack]))), style="dim"),
            )
        return Group(table, Text(_FIRST_BLOCK_NOTE, style="dim"))

    def _read_values(self, row: _FirstBlockRow) -> tuple[MeasuredValue, ...]:
        if row.values is None:
            values = latest_values(self.workloads[row.workload], tuple(row.outputs.values()))
            row.values, row.failed = values or (), values is None
        return row.values


def _value_name(value: MeasuredValue) -> str:
    return strip_control_characters(" ".join(filter(None, (value.metric, point(value.point, "")))))


def _format_value(value: MeasuredValue | None) -> Text:
    return Text(strip_control_characters(format_quantity(value.value, value.unit)) if value else "")


def _format_turn(row: _FirstBlockRow) -> str:
    """Return the duration of a turn; "" if its command failed: a time would look like a result."""
    return "" if row.failed else f"{format_duration(row.seconds)} in its turn"


def _format_remarks(row: _FirstBlockRow, has_values: bool) -> Iterator[str]:
    if not has_values and (turn := _format_turn(row)):
        yield turn
    if row.warms_up:
        yield "warm-up"


class Printer:
    """Observer that prints the events of a run outside its blocks.

    `waiting` is the step that may take long, such as the build of an image, and when it began (monotonic clock); None
    between two of these.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.waiting: tuple[str, float] | None = None
        self.folder = Path("RUN")  # of the run, once it has begun

    def __call__(self, event: RunEvent) -> None:
        """Print an event of the preparation or the beginning of the run; update `waiting`."""
        match event:
            case TrialBegins(step):
                self.waiting = f"{step.workload}: {step.stack} is starting", time.monotonic()
            case TurnOfStack(step):
                self.waiting = f"{step.workload}: {step.stack} has its turn", time.monotonic()
            case TurnEnded() | TrialEnded() | BlockEnded():
                self.waiting = None
            case PreparationStepBegins(text):
                self.waiting = text, time.monotonic()
            case WarningIssued(text):
                self._print(text, "yellow")
            case StackSkipped(stack, problems):
                for problem in problems:
                    self._print(f"skipped: {stack}: {problem.what} (fix: {problem.fix})", "yellow")
            case RunBegins(run, stacks):
                self.folder, self.waiting = run.folder, None
                self._print(f"{format_count(stacks, 'stack')}, results in {run.folder}", "none")

    def _print(self, text: str, style: str = "none") -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


class LineProgress(Printer):
    """Observer that prints plain lines for a log: one for each trial and block, and more for slow starts and turns."""

    _timing: BlockTiming
    _rows: FirstBlockRows | None = None  # until the first block is complete

    @contextmanager
    def report_waits(self) -> Iterator[None]:
        """Context manager: print what the run waits for, after 10 s and whenever the time has doubled."""
        ended = threading.Event()

        def print_waits() -> None:
            printed, next_seconds = self.waiting, _FIRST_NOTE_SECONDS
            while not ended.wait(_POLL_SECONDS):
                if (waiting := self.waiting) is not printed:
                    next_seconds = _FIRST_NOTE_SECONDS
                if waiting and (seconds := time.monotonic() - waiting[1]) >= next_seconds:
                    self._print(f"{waiting[0]} for {format_duration(round(seconds))}", "dim")
                    printed, next_seconds = waiting, 2 * next_seconds

        thread = threading.Thread(target=print_waits, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def __call__(self, event: RunEvent) -> None:
        """Print a line for an event, if it needs one."""
        super().__call__(event)
        match event:
            case PreparationStepBegins(text):
                self._print(text, "dim")
            case RunBegins():
                self._rows = FirstBlockRows(event.workloads)
            case BlockBegins(timing):
                self._timing = timing
            case TrialBegins(step):
                self._timing.begin_trial(step)
            case TurnsBegin(number):
                self._timing.begin_turns(number)
            case TurnEnded(step, raw):
                if self._rows and self._rows.add_turn(step, raw) and self._rows.describe_latest(step.stack):
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
            self._print(f"  hint: {complete_hint(trial, self.folder)}")

    def _print_block(self) -> None:
        left = self._timing.time_left_after()
        done = f"block {left.blocks_done + 1} of {left.blocks} ({self._timing.block.workload}) done"
        self._print(f"{done}, about {format_duration(round(left.left_seconds))} left")


@dataclass(frozen=True)
class _CurrentStep:
    """Current step of a run, the next step, and the time left when the step began."""

    what: str
    detail: str
    after: str
    left: TimeLeft
    shows_seconds: bool
    since: float


def _starting_step(step: PlannedTrial, timing: BlockTiming) -> _CurrentStep:
    following = timing.next_trial(step)
    after = f"next {following.stack} {following.workload}" if following else "last trial"
    return _CurrentStep(
        step.stack, f" {step.workload}", after, timing.begin_trial(step), shows_seconds=True, since=time.monotonic()
    )


def _turns_step(number: int, stacks: int, timing: BlockTiming) -> _CurrentStep:
    turn, of = number + 1, timing.turns
    place = f"turn {min(turn, of)} of {of}" if of else f"turn {turn}"
    after, left = f"{format_count(stacks, 'stack')} in turns", timing.begin_turns(number)
    return _CurrentStep(timing.block.workload, f" {place}", after, left, shows_seconds=False, since=time.monotonic())


class Screen(Printer):
    """Observer that draws the table of results with a progress line below, in place, while `live` is active."""

    _timing: BlockTiming

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.live = Live(self, console=console, refresh_per_second=4, transient=True)
        self._table: RenderableType | None = None  # None until the first block is complete
        self._rows = FirstBlockRows({})
        self._drawn: RenderableType = ""  # the rows when they were last worth drawing
        self._failed: list[tuple[str, str]] = []  # failures with their hints
        self._now: _CurrentStep | None = None
        self._has_begun = False

    def __call__(self, event: RunEvent) -> None:
        """Store what the next refresh shows."""
        super().__call__(event)
        match event:
            case RunBegins():
                self._rows, self._has_begun = FirstBlockRows(event.workloads), True
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
                    hint = complete_hint(trial, self.folder)
                    self._failed.append((f"{trial.stack}, {trial.workload}: {trial.reason}", hint))
            case BlockEnded(run):
                self._table = CachedTable(headline_table(summarize(run), self.console.width))

    def __rich__(self) -> RenderableType:
        """Return the table, the last three failures and the progress line; before the run, the step and its time."""
        if not self._has_begun:
            text, began = self.waiting or ("starting", time.monotonic())
            return Text(f"{text} {time.monotonic() - began:.0f} s", style="dim", overflow="ellipsis", no_wrap=True)
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
        detail, then = self._now.detail, self._now.after
        if self._now.shows_seconds:
            detail += f" {running:.0f} s"
        elif self.waiting and (seconds := time.monotonic() - self.waiting[1]) >= _LONG_SECONDS:
            then = f"{self.waiting[0]} for {seconds:.0f} s"
        now, after = Text.assemble((self._now.what, "bold"), detail), Text(then, style="dim")
        grid.add_row(bar, count, now, after, f"{format_duration(round(to_go))} left")
        return grid


@contextmanager
def show_progress(console: Console) -> Iterator[RunObserver]:
    """Context manager: yield the observer that shows a run: a screen on a terminal, plain lines elsewhere."""
    if not console.is_terminal or is_verbose():
        lines = LineProgress(console)
        with lines.report_waits():
            yield lines
        return
    screen = Screen(console)
    with screen.live:
        yield screen
