"""The lines of a run, for a log: one for each trial and block."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from tare.model.trials import Trial
from tare.report.first_rows import FirstRows
from tare.report.numbers import clean
from tare.runner.events import (
    BlockBegins,
    BlockEnded,
    Event,
    Preparing,
    RunBegins,
    StackSkipped,
    TrialBegins,
    TrialEnded,
    TurnEnded,
    TurnOfStack,
    TurnsBegin,
    Warned,
)
from tare.runner.schedule import BlockTiming
from tare.suites.plan import Step
from tare.units import counted, format_duration


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


_PATIENCE_SECONDS, _LOOK_SECONDS = 10.0, 2.0  # until the first line about a start or a turn that takes long


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
