"""Events of a run for observers, such as the terminal or a page in a browser."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tare.model.run_folder import Run
from tare.model.trial import Problem, RawOutput, Trial
from tare.plugins.workload import Workload
from tare.runner.schedule import BlockTiming
from tare.suites.plan import PlannedTrial


class RunEvent:
    """Event of a run."""


@dataclass(frozen=True)
class PreparationStepBegins(RunEvent):
    """Begin of a preparation step, which may take seconds or minutes."""

    text: str


@dataclass(frozen=True)
class WarningIssued(RunEvent):
    """Warning to the user, for example about a leftover that cannot be removed."""

    text: str


@dataclass(frozen=True)
class StackSkipped(RunEvent):
    """Stack that cannot run here, with its problems."""

    stack: str
    problems: Sequence[Problem]


@dataclass(frozen=True)
class RunBegins(RunEvent):
    """Begin of the measurement: machines, images and networks are ready, and the first block follows.

    `run` has the trials from before a resume; `stacks` is the number of stacks that can run. `cpus` are the CPUs of
    this machine on which instances run: observers must not use them from now on.
    """

    run: Run
    stacks: int
    workloads: Mapping[str, Workload]
    cpus: Collection[int] = ()


@dataclass(frozen=True)
class BlockBegins(RunEvent):
    """Begin of a block; `timing` estimates the time left during the block."""

    timing: BlockTiming


@dataclass(frozen=True)
class TrialBegins(RunEvent):
    """Begin of a trial: its instance is started next."""

    step: PlannedTrial


@dataclass(frozen=True)
class TurnsBegin(RunEvent):
    """Begin of a round in which `stacks` stacks have a turn; rounds of a block are numbered from 0."""

    number: int
    stacks: int


@dataclass(frozen=True)
class TurnOfStack(RunEvent):
    """Begin of a stack's turn."""

    step: PlannedTrial


@dataclass(frozen=True)
class TurnEnded(RunEvent):
    """End of a stack's turn, with its output."""

    step: PlannedTrial
    raw: RawOutput


@dataclass(frozen=True)
class TrialEnded(RunEvent):
    """End of a trial, which is in the journal now."""

    trial: Trial


@dataclass(frozen=True)
class BlockEnded(RunEvent):
    """End of a block, whose trials are comparable now; `run` has all trials so far."""

    run: Run


RunObserver = Callable[[RunEvent], None]
"""Function that observes a run, called in the run's thread: it must not delay turns, and so return at once for them."""


def ignore_event(event: RunEvent) -> None:
    """Do nothing."""


def as_step_reporter(report: RunObserver) -> Callable[[str], None]:
    """Return a function that reports a text as the begin of a preparation step."""
    return lambda text: report(PreparationStepBegins(text))


def fan_out(*observers: RunObserver) -> RunObserver:
    """Return an observer that passes each event to all of these, in their order."""

    def observe_all(event: RunEvent) -> None:
        for observe in observers:
            observe(event)

    return observe_all
