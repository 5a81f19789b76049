"""A command of your own: its wall time, CPU time and memory, and what it prints.

The same command runs in an instance of every stack, from the same image. Its wall time is taken inside, from the start
of the program to its end, as are its CPU time in user mode and in the kernel and its largest resident memory (those of
the command and of all children that it waited for; the memory is that of the largest of them). Metrics of your own are
numbers of its output. With these, they make the headline; without, the wall time does. The time to start an instance is
not in it: that is the workload `startup`.

One run of the command is a turn, so that stacks alternate, however long it takes. It has no terminal, nothing on its
standard input, the environment `PATH` and `HOME`, and it is root. What it leaves running is ended. A line is split into
words as a shell does it, but no shell runs it: write `sh -c '…'` for one. In an image that others have built (`from` of
`[image]`), user, environment and folder are the image's, and its entry point comes before the words, as in engines;
what prepares the command has none.

Settings: `command`, a list of words or a line; `packages`, Debian's, which the image has for it; `metrics`, tables of
`name`, `pattern` or `pointer`, `unit` and `better`; `prepare`, a command that runs before each run and does not count;
`warm_up`, runs that do not count; `runs`, how many count, or 0 for as many as begin within `duration`, 20 at most;
`timeout` of each; `exit_codes` that are no failure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from tare.contracts.workloads import MeasurementContext, Workload
from tare.hosts.exec import WORDS
from tare.hosts.host import Host
from tare.model.trials import Metric, Raw, Value
from tare.suites.command_line import CommandLine, NoCommand, Packages, words_of
from tare.units import Duration
from tare.workloads.loads.outputs import check_labels
from tare.workloads.loads.own_metrics import OwnMetric, values_of
from tare.workloads.loads.used import METRICS, measured, read_used

_MOST_RUNS = 20  # within a duration
_USUAL_SECONDS = 0.2  # of a run, whose length is unknown before


def _some(codes: tuple[int, ...]) -> tuple[int, ...]:
    if not codes:
        raise ValueError("name at least one, as in [0]")
    return codes


@dataclass(frozen=True)
class Command(Workload):
    """A command of the user's."""

    name = "command"
    title = "A command"
    writes_anywhere = True

    command: CommandLine = "true"
    packages: Packages = ()
    metrics: tuple[OwnMetric, ...] = ()
    prepare: CommandLine | NoCommand = ""
    warm_up: Annotated[int, Field(ge=0, le=1000)] = 1
    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0
    runs: Annotated[int, Field(ge=0, le=10_000)] = 0
    timeout: Annotated[Duration, Field(gt=0, le=86400)] = 60.0
    exit_codes: Annotated[tuple[Annotated[int, Field(ge=0, le=255)], ...], AfterValidator(_some)] = (0,)

    def __post_init__(self) -> None:
        """Refuse metrics that could not be distinguished."""
        names = [metric.name for metric in self.all_metrics]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"there are two metrics named {twice[0]}: tare itself has time, user, system and memory")

    @property
    def all_metrics(self) -> Sequence[Metric]:
        """The user's metrics, which then are the headline, and what every command has."""
        time, *others = METRICS
        return (*(each.metric for each in self.metrics), replace(time, headline=not self.metrics), *others)

    @property
    def programs(self) -> Sequence[str]:
        """The command's program; that which prepares it may bring it."""
        return words_of(self.prepare or self.command)[:1]

    def commanded(self, command: tuple[str, ...]) -> Self:
        """Return it with another command."""
        return replace(self, command=command)

    @property
    def rounds(self) -> int:
        """A turn for each run."""
        return self.runs or _MOST_RUNS

    @property
    def shortened_by(self) -> str:
        """The setting that decides how long it takes."""
        return "runs" if self.runs else "duration"

    def brings(self, instances: str) -> Sequence[str]:
        """List the command, and what prepares it."""
        commands = (words_of(each) for each in (self.prepare, self.command) if each)
        return tuple(f"{instances}: {shlex.join(words)}" for words in commands)

    def measure(self, setup: MeasurementContext) -> Iterator[Raw]:
        """Run the command inside again and again; raises TrialFailed without an inside, and when it fails."""
        inside = setup.inside(self.name)
        for _ in range(self.warm_up):
            yield replace(raw := self._run(inside, setup.start), warm_up=True)
            self.parse((raw,))  # what is wrong ends the trial now, not with its last run
        spent_seconds = 0.0
        for _ in range(self.rounds):
            raw = self._run(inside, setup.start)
            yield raw
            self.parse((raw,))
            spent_seconds += raw.seconds
            if not self.runs and spent_seconds >= self.duration:
                return

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read what a run used, and the user's metrics; raises TrialFailed if one is missing, or the command failed."""
        check_labels(raw, ["run"])
        used = read_used(raw[0], self.exit_codes)
        return (*values_of(self.metrics, used.output, raw[0].errors), *used.values)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`, as if a run took a fifth of a second."""
        counted = self.runs * _USUAL_SECONDS if self.runs else self.duration
        return self.warm_up * _USUAL_SECONDS + counted

    def _run(self, inside: Host, start: Sequence[str]) -> Raw:
        if self.prepare:
            inside.run(*start, *(("--only",) if start else ()), *words_of(self.prepare), timeout=self.timeout)
        parted = (WORDS,) if start else ()
        return measured(inside, "run", *start, *parted, *words_of(self.command), timeout=self.timeout)
