"""Events of a run for observers, such as the terminal or a page in a browser."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tare.model.journal import Run
from tare.model.trial import Problem, RawOutput, Trial
from tare.plugins.workload import Workload
from tare.runner.schedule import BlockTiming
from tare.suites.plan import PlannedTrial


class RunEvent:
    """Event of a run."""


@dataclass(frozen=True)
class PreparationStepBegins(RunEvent):
    """The next step of the preparation begins; it may take seconds or minutes."""

    text: str


@dataclass(frozen=True)
class WarningIssued(RunEvent):
    """Something that the user should know, such as what could not be removed."""

    text: str


@dataclass(frozen=True)
class StackSkipped(RunEvent):
    """A stack cannot run here."""

    stack: str
    problems: Sequence[Problem]


@dataclass(frozen=True)
class RunBegins(RunEvent):
    """Machines, images and networks are ready, and the first block follows.

    `run` has the trials of earlier calls, `stacks` counts those that can run. `cpus` are the CPUs of this machine that
    are measured: nothing else should use them from now on.
    """

    run: Run
    stacks: int
    workloads: Mapping[str, Workload]
    cpus: Collection[int] = ()


@dataclass(frozen=True)
class BlockBegins(RunEvent):
    """A block follows; `timing` estimates the time left while it is measured."""

    timing: BlockTiming


@dataclass(frozen=True)
class TrialBegins(RunEvent):
    """An instance is started next."""

    step: PlannedTrial


@dataclass(frozen=True)
class TurnsBegin(RunEvent):
    """As many stacks have a turn each next; the turns of a block count from 0."""

    number: int
    stacks: int


@dataclass(frozen=True)
class TurnOfStack(RunEvent):
    """A stack has its turn next."""

    step: PlannedTrial


@dataclass(frozen=True)
class TurnEnded(RunEvent):
    """A stack has had a turn, with this output."""

    step: PlannedTrial
    raw: RawOutput


@dataclass(frozen=True)
class TrialEnded(RunEvent):
    """A trial is in the journal."""

    trial: Trial


@dataclass(frozen=True)
class BlockEnded(RunEvent):
    """A block is complete, and its trials are comparable; `run` has all trials so far."""

    run: Run


RunObserver = Callable[[RunEvent], None]
"""Called in the run's own thread. It must return at once for events of turns: those come between turns."""


def ignore_event(event: RunEvent) -> None:
    """Ignore an event."""


def as_step_reporter(report: RunObserver) -> Callable[[str], None]:
    """Return a function that reports a text as the next step of the preparation."""
    return lambda text: report(PreparationStepBegins(text))


def fan_out(*reporters: RunObserver) -> RunObserver:
    """Return a reporter that passes each event on to all of these, in their order."""

    def report(event: RunEvent) -> None:
        for each in reporters:
            each(event)

    return report
