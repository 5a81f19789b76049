"""Events of a run for observers, such as the terminal or a page in a browser."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tare.model.journal import Run
from tare.model.trial import Problem, Raw, Trial
from tare.plugins.workload import Workload
from tare.runner.schedule import BlockTiming
from tare.suites.plan import Step


class Event:
    """Event of a run."""


@dataclass(frozen=True)
class Preparing(Event):
    """The next step of the preparation begins; it may take seconds or minutes."""

    text: str


@dataclass(frozen=True)
class Warned(Event):
    """Something that the user should know, such as what could not be removed."""

    text: str


@dataclass(frozen=True)
class StackSkipped(Event):
    """A stack cannot run here."""

    stack: str
    problems: Sequence[Problem]


@dataclass(frozen=True)
class RunBegins(Event):
    """Machines, images and networks are ready, and the first block follows.

    `run` has the trials of earlier calls, `stacks` counts those that can run. `cpus` are the CPUs of this machine that
    are measured: nothing else should use them from now on.
    """

    run: Run
    stacks: int
    workloads: Mapping[str, Workload]
    cpus: Collection[int] = ()


@dataclass(frozen=True)
class BlockBegins(Event):
    """A block follows; `timing` estimates the time left while it is measured."""

    timing: BlockTiming


@dataclass(frozen=True)
class TrialBegins(Event):
    """An instance is started next."""

    step: Step


@dataclass(frozen=True)
class TurnsBegin(Event):
    """As many stacks have a turn each next; the turns of a block count from 0."""

    number: int
    stacks: int


@dataclass(frozen=True)
class TurnOfStack(Event):
    """A stack has its turn next."""

    step: Step


@dataclass(frozen=True)
class TurnEnded(Event):
    """A stack has had a turn, with this output."""

    step: Step
    raw: Raw


@dataclass(frozen=True)
class TrialEnded(Event):
    """A trial is in the journal."""

    trial: Trial


@dataclass(frozen=True)
class BlockEnded(Event):
    """A block is complete, and its trials are comparable; `run` has all trials so far."""

    run: Run


RunObserver = Callable[[Event], None]
"""Called in the run's own thread. It must return at once for events of turns: those come between turns."""


def ignore_event(event: Event) -> None:
    """Ignore an event."""


def as_step_reporter(report: RunObserver) -> Callable[[str], None]:
    """Return a function that reports a text as the next step of the preparation."""
    return lambda text: report(Preparing(text))


def fan_out(*reporters: RunObserver) -> RunObserver:
    """Return a reporter that passes each event on to all of these, in their order."""

    def report(event: Event) -> None:
        for each in reporters:
            each(event)

    return report
