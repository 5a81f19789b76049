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

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from tare.hosts.exec import ENTRYPOINT, OPTIONS_END, SUPERVISE
from tare.hosts.host import Host
from tare.hosts.streams import last_lines
from tare.loads.parsing import check_labels
from tare.loads.user_load import UserMetric, read_metrics
from tare.model.errors import TimedOut, TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Value
from tare.model.units import Duration, format_duration, format_size
from tare.plugins.workload import MeasurementContext, Workload
from tare.suites.stack_overrides import CommandLine, NoCommand, Packages, split_words

_USAGE_METRICS = (
    Metric("user", "CPU time in user mode", "s", "lower", headline=False),
    Metric("system", "CPU time in the kernel", "s", "lower", headline=False),
    Metric("memory", "Largest resident memory", "bytes", "lower", headline=False),
)
# `rusage` (programs/rusage.c) starts the command, waits for it, and prints a line after all that it printed, which is
# read the same way on every stack. `supervise` around it ends what the command leaves behind, which would be in
# the way of the other stacks' turns. Earlier versions recorded `tare-measure` in raw outputs.
_RUSAGE_PREFIX = (SUPERVISE, "--", "/usr/lib/tare/rusage")
_SECONDS = r"\d{1,9}\.\d{6,9}"
_LINE = re.compile(
    rf"(?s:(?P<output>.*))\ntare-(?:rusage|measure): wall (?P<wall>{_SECONDS}) user (?P<user>{_SECONDS}) "
    rf"system (?P<system>{_SECONDS}) memory (?P<memory>\d{{1,18}}) exit (?P<code>\d{{1,3}})\n",
    re.ASCII,
)
_MAX_BYTES = 1 << 20  # 20 runs on ten stacks in 30 blocks would fill 6 GiB
_STDIN = "(?:stdin|standard input)"
_ASKS_FOR_INPUT = re.compile(  # not every line with `stdin`: gzip names so what it reads, whatever is wrong with it
    rf"\btty\b|terminal|end of file|\bEOF\b|inappropriate ioctl|\b(?:on|from|via) {_STDIN}|{_STDIN} (?:is|was|isn't)",
    re.IGNORECASE,
)
_NO_FILE = re.compile(r"no such file or directory|(?:can't|cannot) open", re.IGNORECASE)
_NOT_FOUND = 127  # of shells and env: there is no such program
_PROGRAM = re.compile(
    r"env: (?:can't execute )?['\u2018](?P<of_env>[^'\u2019\n]+)['\u2019]: No such file"
    r"|(?:^|: )(?P<of_shell>[^\s:]+): (?:command )?not found$",
    re.MULTILINE,
)
_OUTPUT_HINT = "`tare show` has the whole output"
_NO_INPUT = "it has no terminal, and nothing on its standard input"
_ENDLESS = (
    'a server is measured by a suite with use = "service" and a load (docs/suites.md); '
    f"all else needs a longer timeout, or less to do; {_NO_INPUT}"
)
_MAX_RUNS = 20  # within a duration
_USUAL_SECONDS = 0.2  # of a run, whose length is unknown before


def read_usage(raw: RawOutput, exit_codes: tuple[int, ...]) -> tuple[str, tuple[Value, ...]]:
    """Read what a command printed, and the values of what every command has.

    Raises TrialFailed unless it ended with one of these exit codes.
    """
    found = _LINE.fullmatch(raw.text)
    if found is None:
        raise TrialFailed(f"nobody knows what the command used; {quote_output(raw.text)}", _OUTPUT_HINT)
    name, code = _command_name(raw.argv[len(_RUSAGE_PREFIX) :]), int(found["code"])
    if code not in exit_codes:
        said = (
            last_lines(raw.errors.strip() or found["output"].strip()).removeprefix("entrypoint: ")
            or "it printed nothing"
        )
        hint = _choose_hint(code, found["output"] + raw.errors, is_foreign_image=ENTRYPOINT in raw.argv)
        raise TrialFailed(f"{name}: {_describe_exit_code(code)}: {said}", hint)
    if not float(found["wall"]) > 0:
        raise TrialFailed(f"{name} took no time that the clock can see", "the instance's clock stands still")
    others = (Value(metric.name, None, float(found[metric.name])) for metric in _USAGE_METRICS)
    return found["output"], (Value("time", None, float(found["wall"])), *others)


def _command_name(argv: Sequence[str]) -> str:
    """Name the command, without what starts it in an image that others have built."""
    return next((word for word in argv if word not in (ENTRYPOINT, OPTIONS_END)), ENTRYPOINT)


def _describe_exit_code(code: int) -> str:
    return f"ended by signal {code - 128}" if 128 < code < 160 else f"exit code {code}"


def _choose_hint(code: int, printed_text: str, is_foreign_image: bool) -> str:
    """Return what to do about an exit code; `is_foreign_image`: others have built the image."""
    if code == _NOT_FOUND:
        program = _PROGRAM.search(printed_text)
        return _describe_missing_program(program["of_env"] or program["of_shell"] if program else "", is_foreign_image)
    if code == 128 + 9:
        return f"it may want more memory than the instance has: [limits] memory; {_OUTPUT_HINT}"
    others = f"other exit codes may be accepted: exit_codes = [0, {code}]"
    if code < 128 and _ASKS_FOR_INPUT.search(printed_text):
        return f"{_NO_INPUT}: give it files and options instead"
    if code < 128 and _NO_FILE.search(printed_text):
        files = "--file PATH puts a file of this machine into the image as /srv/PATH ([image.files] in a suite)"
        return f"{files}; {_OUTPUT_HINT}"
    if code < 128 and not printed_text.strip():  # some say nothing where there is no terminal
        return f"{_NO_INPUT}; {others}"
    return f"{_OUTPUT_HINT}; {others}"


def _describe_missing_program(program: str, is_foreign_image: bool) -> str:
    """Return how a program, empty if it is unknown, gets into the image."""
    if not program:
        return f"the image lacks the program, or the interpreter that its first line (#!) names; {_OUTPUT_HINT}"
    if "/" in program:
        return f"the image has no {program}: --file PATH puts a file of this machine into it ([image.files] in a suite)"
    if is_foreign_image:
        return f"the image has no {program}: it is taken as it is, so build it with {program}"
    package = f'--package {program}, or packages = ["{program}"] in a suite'
    return f"the image has no {program}: add the Debian package that has it, for example {package}"


def _check_some(codes: tuple[int, ...]) -> tuple[int, ...]:
    if not codes:
        raise ValueError("name at least one, as in [0]")
    return codes


@dataclass(frozen=True)
class UserCommand(Workload):
    """A command of the user's."""

    name = "command"
    title = "A command"
    has_unknown_paths = True

    command: CommandLine = "true"
    packages: Packages = ()
    metrics: tuple[UserMetric, ...] = ()
    prepare: CommandLine | NoCommand = ""
    warm_up: Annotated[int, Field(ge=0, le=1000)] = 1
    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0
    runs: Annotated[int, Field(ge=0, le=10_000)] = 0
    timeout: Annotated[Duration, Field(gt=0, le=86400)] = 60.0
    exit_codes: Annotated[tuple[Annotated[int, Field(ge=0, le=255)], ...], AfterValidator(_check_some)] = (0,)

    def __post_init__(self) -> None:
        """Refuse metrics that could not be distinguished."""
        names = [metric.name for metric in self.all_metrics]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"there are two metrics named {twice[0]}: tare itself has time, user, system and memory")

    @property
    def all_metrics(self) -> Sequence[Metric]:
        """The user's metrics, which then are the headline, and what every command has."""
        time = Metric("time", "Wall time", "s", "lower", headline=not self.metrics)
        return (*(each.metric for each in self.metrics), time, *_USAGE_METRICS)

    @property
    def programs(self) -> Sequence[str]:
        """The command's program; that which prepares it may bring it."""
        return split_words(self.prepare or self.command)[:1]

    def with_command(self, command: tuple[str, ...]) -> Self:
        """Return it with another command."""
        return replace(self, command=command)

    @property
    def rounds(self) -> int:
        """A turn for each run."""
        return self.runs or _MAX_RUNS

    @property
    def duration_setting(self) -> str:
        """The setting that decides how long it takes."""
        return "runs" if self.runs else "duration"

    def external_effects(self, instances: str) -> Sequence[str]:
        """List the command, and what prepares it."""
        commands = (split_words(each) for each in (self.prepare, self.command) if each)
        return tuple(f"{instances}: {shlex.join(words)}" for words in commands)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the command inside again and again; raises TrialFailed without an inside, and when it fails."""
        inside = setup.require_inside(self.name)
        for _ in range(self.warm_up):
            yield (raw := self._run(inside, setup.start_command)).as_warm_up()
            self.parse((raw,))  # what is wrong ends the trial now, not with its last run
        spent_seconds = 0.0
        for _ in range(self.rounds):
            raw = self._run(inside, setup.start_command)
            yield raw
            self.parse((raw,))
            spent_seconds += raw.seconds
            if not self.runs and spent_seconds >= self.duration:
                return

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Read what a run used, and the user's metrics; raises TrialFailed if one is missing, or the command failed."""
        check_labels(raw, ["run"])
        output, used = read_usage(raw[0], self.exit_codes)
        return (*read_metrics(self.metrics, output, raw[0].errors), *used)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, as if a run took a fifth of a second."""
        counted = self.runs * _USUAL_SECONDS if self.runs else self.duration
        return self.warm_up * _USUAL_SECONDS + counted

    def _run(self, inside: Host, start: Sequence[str]) -> RawOutput:
        """Run the command inside; raises TimedOut with what it had printed, and TrialFailed if it cannot be started."""
        if self.prepare:
            inside.run(*start, *(("--only",) if start else ()), *split_words(self.prepare), timeout=self.timeout)
        words = (*start, *((OPTIONS_END,) if start else ()), *split_words(self.command))
        try:
            output = inside.run(*_RUSAGE_PREFIX, *words, timeout=self.timeout, check=False)
        except TimedOut as error:
            what = f"{_command_name(words)}: did not end within {format_duration(self.timeout)}"
            raise TimedOut(what, _ENDLESS, error.output) from error
        if (size := len(output.stdout) + len(output.stderr)) > _MAX_BYTES:
            most = format_size(_MAX_BYTES)
            what = f"{_command_name(words)}: it printed {format_size(size)}, and a run folder keeps {most} of each run"
            hint = "let it write to a file in the instance, or to /dev/null, as in sh -c '… > /dev/null'"
            raise TrialFailed(what, hint)
        errors = output.stderr.decode("utf-8", "replace")
        if output.exit_code:
            ended = f"{_command_name(words)}: {output.argv[0]} ended with exit code {output.exit_code}"
            raise TrialFailed((last_lines(errors.strip()) or ended).removeprefix("rusage: "), _OUTPUT_HINT, output)
        return RawOutput("run", output.argv, output.text, output.seconds, errors=errors)
