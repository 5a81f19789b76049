"""Measurement of commands in turns, until each comparison is decided or the budget is used up.

In a round, every command runs once, in random order, and the first command runs twice: as the baseline, and as its A/A
control. A single command is compared with itself. A block has as many rounds as fill a fifth of a second, two at least.
Blocks are compared as those of a run (tare.statistics): intervals and verdicts hold at every look.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from tare import __version__
from tare.features.ab.contenders import SHELL, CommandUsage, Contender, Spawner, create_contender, running_spawner
from tare.hosts.local import LocalHost
from tare.loads.user_load import UserMetric, read_metrics
from tare.model.errors import TareError, TrialFailed, UsageError
from tare.model.run_folder import FORMAT, Run, RunRecord, WorkloadRecord
from tare.model.trial import (
    WALL_TIME,
    Limits,
    LimitsCheck,
    MeasuredValue,
    Metric,
    ObservedLimits,
    StopReason,
    Trial,
    Turn,
)
from tare.runner.decisions import Decisions

WORKLOAD = "time"
_BLOCK_SECONDS = 0.2
_MIN_ROUNDS, _MAX_ROUNDS = 2, 50  # of a block
_SHELL_RUNS = 20
_SHELL_FACTOR = 2  # below this multiple of an empty shell's time, noise would leave nothing of a run
_DOUBTFUL_FACTOR, _DOUBTFUL_RUNS = 20, 5
_FIRST, _LATER = "its first run", "a later run"
_MAX_OUTPUT = 1 << 20  # bytes from which metrics are read
_USAGE = (
    Metric("cpu", "CPU time", "s", "lower", headline=False),
    Metric("user", "CPU time in user mode", "s", "lower", headline=False),
    Metric("system", "CPU time in the kernel", "s", "lower", headline=False),
    Metric("memory", "Peak memory", "bytes", "lower", headline=False),
)


@dataclass(frozen=True)
class Settings:
    """Settings of a comparison.

    - `budget_seconds` bounds the whole measurement, `timeout_seconds` a single run.
    - `prepare` runs in a shell before each run, `cleanup` once for each command after all of its runs.
    - `stdin` is the path of the commands' standard input, or "" for an empty one. `keeps_output` reads the output
      through a pipe instead of sending it to /dev/null.
    - `metrics` are numbers of the output; the first ones in each direction decide instead of the time.
    """

    margin: float
    budget_seconds: float
    timeout_seconds: float
    warm_up: int = 1
    prepare: str = ""
    cleanup: str = ""
    exit_codes: tuple[int, ...] = (0,)
    stdin: str = ""
    keeps_output: bool = False
    metrics: tuple[UserMetric, ...] = ()

    @property
    def all_metrics(self) -> tuple[Metric, ...]:
        """The metrics of the output, which decide if there are any, and the usage of the commands."""
        time_metric = Metric(WALL_TIME, "Wall time", "s", "lower", headline=not self.metrics)
        return (*(each.metric for each in self.metrics), time_metric, *_USAGE)


@dataclass(frozen=True)
class _Turns:
    """Runs of one contender in a block: its usages, their values of the user's metrics, and when they began."""

    usages: list[CommandUsage] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    began: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Measured:
    """Result of a comparison: a run without a folder, the reason of its end, its duration, and warnings."""

    run: Run
    stop: StopReason
    seconds: float
    warnings: tuple[str, ...]


class Comparison:
    """Comparison of several commands with the first one, or of a single one with itself, on CPUs of this machine."""

    def __init__(
        self, contenders: Sequence[Contender], settings: Settings, spawner: Spawner, cpus: Sequence[int]
    ) -> None:
        self._contenders, self._settings, self._spawner, self._cpus = contenders, settings, spawner, tuple(cpus)
        again = f"{contenders[0].name} again"
        self._control = again if len(contenders) > 1 else ""
        self._by_stack = {each.name: each for each in contenders} | {again: contenders[0]}
        self._shells: dict[str, CommandUsage] = {}
        self._warnings: dict[str, None] = {}
        self._trials: list[Trial] = []
        self._began = time.monotonic()
        record = WorkloadRecord(WORKLOAD, "command", "Commands", settings.all_metrics, None)
        self._record = self._create_record(record)
        self._decisions = Decisions(
            (record,), self._record.stacks, contenders[0].name, self._control, settings.margin, precision=1.0
        )

    def run(self, show: Callable[[Run], None]) -> Measured:
        """Measure until all is decided or the budget is used up; call `show` after each block.

        Raises TrialFailed if a command fails, in its first or in a later run.
        """
        reason = StopReason.BUDGET
        try:
            seconds_per_round = self._warm_up()
            rounds = min(_MAX_ROUNDS, max(_MIN_ROUNDS, round(_BLOCK_SECONDS / seconds_per_round)))
            chance = random.Random(1)  # noqa: S311 - it orders runs
            while not self._trials or self._elapsed() + rounds * seconds_per_round <= self._settings.budget_seconds:
                began = self._elapsed()
                self._run_block(rounds, chance)
                seconds_per_round = (self._elapsed() - began) / rounds
                show(self._create_run())
                if self._decisions.are_complete():
                    reason = StopReason.DECIDED
                    break
        except KeyboardInterrupt:
            reason = StopReason.INTERRUPT
        finally:
            self._clean_up()
        return Measured(self._create_run(), reason, self._elapsed(), tuple(self._warnings))

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _warm_up(self) -> float:
        """Run each command for the first time, and the shells that start them; return the seconds of a round."""
        seconds = {each.name: 0.0 for each in self._contenders}
        for contender in self._contenders:
            files = _stat_arguments(contender, self._settings.stdin)
            for number in range(self._settings.warm_up):
                usage = self._run_once(contender, _FIRST if number == 0 else _LATER)
                seconds[contender.name] = usage.wall
            self._warn_of_changes(contender, files)
            if contender.uses_shell:
                self._learn_shell(contender, usage)
        return sum(seconds[each.name] for each in self._by_stack.values())

    def _learn_shell(self, contender: Contender, usage: CommandUsage) -> None:
        """Measure the shell of a command, whose last run is given; warn if the shell may hide what happens."""
        shell = self._measure_shell(contender)
        wall = usage.wall
        if wall < _DOUBTFUL_FACTOR * shell.wall:  # a single run this short may have waited for a CPU
            wall = min(wall, *(self._run_once(contender, _LATER).wall for _ in range(_DOUBTFUL_RUNS)))
        if wall >= _SHELL_FACTOR * shell.wall:
            self._shells[contender.name] = shell
        else:
            what = f"{contender.name} takes hardly longer than its shell ({1000 * shell.wall:.1f} ms), which counts"
            self._warn(what, "let it do more, or start it without a shell: -N")
        if re.search("[|;]", contender.line) and usage.errors.strip():
            printed = usage.errors.strip().rpartition("\n")[2][:200]
            what = f"{contender.name} succeeds, and prints an error: {printed}"
            hint = "a shell returns the exit code of the last command: && and bash -o pipefail -c '…' have that of all"
            self._warn(what, hint)

    def _measure_shell(self, contender: Contender) -> CommandUsage:
        """Return the usage of a shell that does nothing: the medians of several runs."""
        argv = (*contender.argv[:2], "")
        used = [
            self._spawner.run(contender, timeout=self._settings.timeout_seconds, argv=argv) for _ in range(_SHELL_RUNS)
        ]
        middle = {
            name: sorted(getattr(each, name) for each in used)[_SHELL_RUNS // 2] for name in ("wall", "user", "system")
        }
        return CommandUsage(**{**vars(used[0]), **middle})

    def _run_block(self, rounds: int, chance: random.Random) -> None:
        """Run a block of rounds, and add its trials."""
        turns = {stack: _Turns() for stack in self._by_stack}
        started, block = time.time(), len(self._trials) // len(self._by_stack)
        first = time.monotonic()
        for _ in range(rounds):
            order = list(self._by_stack)
            chance.shuffle(order)
            for stack in order:
                contender, of_stack = self._by_stack[stack], turns[stack]
                of_stack.began.append(time.monotonic() - first)
                usage = self._run_once(contender, _LATER)
                of_stack.usages.append(usage.without(self._shells.get(contender.name)))
                for value in read_metrics(self._settings.metrics, usage.output, usage.errors):
                    of_stack.values.setdefault(value.metric, []).append(value.value)
        for order_in_block, (stack, of_stack) in enumerate(turns.items()):
            trial = self._create_trial(stack, block, order_in_block, started, of_stack)
            self._trials.append(trial)
            self._decisions.learn(trial)

    def _run_once(self, contender: Contender, which: str) -> CommandUsage:
        """Prepare and run a command; raises TrialFailed if it fails."""
        settings = self._settings
        if settings.prepare:
            self._run_helper(contender, "--prepare", settings.prepare)
        usage = self._spawner.run(
            contender,
            timeout=settings.timeout_seconds,
            stdin=settings.stdin,
            keep=_MAX_OUTPUT if settings.keeps_output or settings.metrics else 0,
        )
        if usage.timed_out:
            what = f"{contender.name}: {contender.line} did not end within {settings.timeout_seconds:g} s, in {which}"
            raise TrialFailed(what, "give it less to do, or a longer --budget and --timeout")
        if usage.code not in settings.exit_codes:
            raise _describe_failure(contender, usage, which)
        if settings.metrics and usage.output_bytes > _MAX_OUTPUT:
            what = f"{contender.name}: it printed {usage.output_bytes:,} bytes, and metrics are read from the first MiB"
            raise TrialFailed(what, "let the command print less")
        if usage.left_behind:
            self._warn(
                f"{contender.name} left processes behind, which were ended",
                "let the command wait for them: what they do is not measured, and would disturb the next run",
            )
        return usage

    def _run_helper(self, contender: Contender, option: str, line: str) -> None:
        helper = create_contender(f"{contender.name}: {option}", line, contender.folder, contender.environment)
        usage = self._spawner.run(helper, timeout=self._settings.timeout_seconds)
        if usage.code or usage.timed_out:
            raise TrialFailed(
                f"{helper.name}: {line}: exit code {usage.code}", usage.errors.strip()[-300:] or "check it"
            )

    def _clean_up(self) -> None:
        """Run `cleanup` for each command; a failure is a warning."""
        for contender in self._contenders if self._settings.cleanup else ():
            try:
                self._run_helper(contender, "--cleanup", self._settings.cleanup)
            except TareError as error:
                self._warn(f"{error}", error.hint)

    def _warn(self, what: str, hint: str) -> None:
        self._warnings[f"warning: {what}\nhint: {hint}"] = None

    def _warn_of_changes(self, contender: Contender, before: dict[str, tuple[int, int, int]]) -> None:
        """Warn if the first runs of a command changed a file that it was given."""
        after = _stat_arguments(contender, self._settings.stdin)
        if changed := sorted(path for path, state in before.items() if after.get(path) != state):
            self._warn(
                f"{contender.name} changed {', '.join(changed)}, which its line names",
                "if later runs then do other work, let --prepare restore it",
            )

    def _create_trial(self, stack: str, block: int, order: int, started: float, turns: _Turns) -> Trial:
        usages = turns.usages
        named = {WALL_TIME: [each.wall for each in usages], "user": [each.user for each in usages]}
        named |= {"system": [each.system for each in usages], "cpu": [each.user + each.system for each in usages]}
        named["memory"] = [float(each.memory) for each in usages]
        named |= turns.values
        values = [
            MeasuredValue(
                each.name, None, fmean(named[each.name]), each.unit, each.better, tuple(named[each.name]), "run"
            )
            for each in self._settings.all_metrics
        ]
        at = next(index for index, each in enumerate(values) if each.metric == WALL_TIME)
        values[at] = _with_cpu_shares(values[at], usages)
        asked = Limits(self._cpus, 0, 0)
        return Trial(
            trial=f"{WORKLOAD}-{stack}-{block}",
            block=block,
            order=order,
            workload=WORKLOAD,
            stack=stack,
            status="ok",
            reason="",
            started=started,
            seconds=sum(each.wall for each in usages),
            values=tuple(values),
            limits=LimitsCheck(asked, ObservedLimits(len(self._cpus), None, None)),
            turns=tuple(
                Turn("run", number, began, usage.wall)
                for number, (began, usage) in enumerate(zip(turns.began, usages, strict=True))
            ),
            ended=time.time(),
        )

    def _create_record(self, workload: WorkloadRecord) -> RunRecord:
        stacks = tuple(self._by_stack)
        return RunRecord(
            format=FORMAT,
            tare=__version__,
            suite="ab",
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            seed=1,
            baseline=stacks[0],
            blocks=1,
            stacks=stacks,
            workloads=(workload,),
            image="",
            packages="",
            machine=LocalHost().facts(),
            margin=self._settings.margin,
            control=self._control,
            sample_seconds=1.0,
            own={each.name: {"command": each.line} for each in self._contenders},
        )

    def _create_run(self) -> Run:
        return Run(Path(), self._record, tuple(self._trials))


def compare_commands(
    contenders: Sequence[Contender], settings: Settings, cpus: Sequence[int], show: Callable[[Run], None]
) -> tuple[Measured, int]:
    """Compare commands on these CPUs; tare itself moves to the others, if there are any.

    Also return the least peak memory that a command can show, that of the process which starts it.
    """
    with _leaving(cpus), running_spawner(cpus) as spawner:
        nothing = (*SHELL, ":")
        floor_bytes = spawner.run(contenders[0], timeout=settings.timeout_seconds, argv=nothing).memory
        return Comparison(contenders, settings, spawner, cpus).run(show), floor_bytes


def choose_cpus(count: int) -> tuple[int, ...]:
    """Return the last CPUs that this process may use, as the first ones have more interrupts.

    Raises UsageError if there are fewer.
    """
    usable = sorted(os.sched_getaffinity(0))
    if count > len(usable):
        raise UsageError(f"--cpus {count}: this process may use {len(usable)}", "ask for fewer CPUs")
    return tuple(usable[-count:])


@contextmanager
def _leaving(cpus: Sequence[int]) -> Iterator[None]:
    """Context manager: keep this process off the given CPUs, if others are left."""
    before = os.sched_getaffinity(0)
    if others := before - {*cpus}:
        os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _with_cpu_shares(value: MeasuredValue, usages: Sequence[CommandUsage]) -> MeasuredValue:
    """Return the wall time with the shares of CPU time that the command had and wanted."""
    if any(each.wall <= 0 for each in usages):
        return value
    had = [(each.user + each.system) / each.wall for each in usages]
    wanted = fmean(share + each.waited / each.wall for share, each in zip(had, usages, strict=True))
    return replace(value, cpu_shares=tuple(had), cpu_wanted=wanted)


def _stat_arguments(contender: Contender, stdin: str) -> dict[str, tuple[int, int, int]]:
    """Return the state of the files that a command's line names, and of its standard input."""
    try:
        words = shlex.split(contender.line)[1:]
    except ValueError:
        words = []
    found = {}
    for word in (*words, *filter(None, [stdin])):
        with suppress(OSError, ValueError):
            status = (Path(contender.folder) / word).stat()
            if stat.S_ISREG(status.st_mode):
                found[word] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _describe_failure(contender: Contender, usage: CommandUsage, which: str) -> TrialFailed:
    """Return the error of a run with an exit code that is a failure."""
    code = f"ended by signal {usage.code - 128}" if 128 < usage.code < 160 else f"exit code {usage.code}"
    printed = usage.errors.strip().rpartition("\n")[2][:300]
    what = f"{contender.name}: {contender.line}: {code} in {which}: {printed or 'it printed no error'}"
    if which != _FIRST:
        return TrialFailed(what, "if the command changes its own input, restore it: --prepare COMMAND")
    if usage.code in (126, 127):
        return TrialFailed(what, "run it by itself first: it cannot be started")
    return TrialFailed(
        what,
        f"run it by itself; it has an empty standard input (--input FILE), and may fail (--exit-codes 0,{usage.code})",
    )
