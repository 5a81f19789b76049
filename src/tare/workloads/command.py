"""User-supplied command: its wall time, CPU time and memory, and numbers of its output.

The same command runs in an instance of every stack, from the same image. Its wall time is measured inside, from the
start of the program to its end. So are its CPU time in user mode and in the kernel, and its largest resident memory.
Both include the children that it waited for; the memory is that of the largest process. User-defined metrics are
numbers of the output. They are the headline; without them, the wall time is. The time to start an instance is not
included: the workload `startup` measures it.

One run of the command is a turn, so that stacks alternate, however long it takes. The command has no terminal, no
standard input, and the environment `PATH` and `HOME`. It runs as root. tare ends all processes that it leaves behind. A
line is split into words as by a shell, but no shell runs it: write `sh -c '…'` for a shell. In a foreign image (`from`
of `[image]`), user, environment and folder are the image's, and its entry point comes before the command, as in
container engines. The entry point does not apply to `prepare`.

Settings: `command`, a list of words or a line; `packages`, the Debian packages that the image gets for it; `metrics`,
tables of `name`, `pattern` or `pointer`, `unit` and `better`; `prepare`, a command that runs before each run and does
not count; `warm_up`, runs that do not count; `runs`, the number of runs that count, or 0 for the runs that begin within
`duration`, 20 at most; `timeout` of each run; `exit_codes` that are no failure.
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
from tare.model.trial import WALL_TIME, Caution, CpuShare, Metric, RawOutput, Value
from tare.model.units import Duration, format_duration, format_size
from tare.plugins.workload import MeasurementContext, Workload
from tare.suites.stacks import CommandLine, NoCommand, Packages, split_words

_USAGE_METRICS = (
    Metric("user", "CPU time in user mode", "s", "lower", headline=False),
    Metric("system", "CPU time in the kernel", "s", "lower", headline=False),
    Metric("memory", "Largest resident memory", "bytes", "lower", headline=False),
)
# `rusage` (programs/rusage.c) starts the command, waits for it, and prints its usage as the last line, in the same
# way on every stack. `supervise` ends the processes that the command leaves behind, which would disturb other stacks'
# turns.
_RUSAGE_PREFIX = (SUPERVISE, "--", "/usr/lib/tare/rusage")
_SECONDS = r"\d{1,9}\.\d{6,9}"
_LINE = re.compile(
    rf"(?s:(?P<output>.*))\ntare-rusage: wall (?P<wall>{_SECONDS}) user (?P<user>{_SECONDS}) "
    rf"system (?P<system>{_SECONDS})(?: waited (?P<waited>{_SECONDS}))? memory (?P<memory>\d{{1,18}}) "
    r"exit (?P<code>\d{1,3})\n",
    re.ASCII,
)
_MAX_BYTES = 1 << 20  # of output: 20 runs on ten stacks in 30 blocks would fill 6 GiB of the run folder
_STDIN = "(?:stdin|standard input)"
_ASKS_FOR_INPUT = re.compile(  # not every line with `stdin`: gzip calls its input so in all of its errors
    rf"\btty\b|terminal|end of file|\bEOF\b|inappropriate ioctl|\b(?:on|from|via) {_STDIN}|{_STDIN} (?:is|was|isn't)",
    re.IGNORECASE,
)
_NO_FILE = re.compile(r"no such file or directory|(?:can't|cannot) open", re.IGNORECASE)
_CANNOT_START = re.compile(r"permission denied|cannot execute|exec format error", re.IGNORECASE)
_CANNOT_EXECUTE = 126  # exit code of shells and env for a file that cannot be executed
_NOT_FOUND = 127  # exit code of shells and env for a missing program
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
_USUAL_SECONDS = 0.2  # estimate of a run, whose length is unknown beforehand


def read_usage(raw: RawOutput, exit_codes: tuple[int, ...]) -> tuple[str, tuple[Value, ...]]:
    """Return the output of a command, and the values of time, CPU usage and memory.

    Raises TrialFailed unless it ended with one of these exit codes.
    """
    found = _LINE.fullmatch(raw.text)
    if found is None:
        raise TrialFailed(f"the output lacks the line with the command's usage; {quote_output(raw.text)}", _OUTPUT_HINT)
    name, code = _command_name(raw.argv[len(_RUSAGE_PREFIX) :]), int(found["code"])
    if code not in exit_codes:
        printed = last_lines(raw.errors.strip() or found["output"].strip()).removeprefix("entrypoint: ")
        hint = _choose_hint(code, found["output"] + raw.errors, is_foreign_image=ENTRYPOINT in raw.argv)
        raise TrialFailed(f"{name}: {_describe_exit_code(code)}: {printed or 'it printed nothing'}", hint)
    if not float(found["wall"]) > 0:
        raise TrialFailed(f"{name} took no time that the clock can see", "the instance's clock stands still")
    others = (Value(metric.name, None, float(found[metric.name])) for metric in _USAGE_METRICS)
    wall, used = float(found["wall"]), float(found["user"]) + float(found["system"])
    wanted = used + float(found["waited"]) if found["waited"] else 0.0  # not in outputs of earlier runs
    share = CpuShare(used / wall, wanted / wall) if wanted else None
    return found["output"], (Value(WALL_TIME, None, wall, cpu_share=share), *others)


def _command_name(argv: Sequence[str]) -> str:
    """Return the program of a command line, without the prefix that starts it in a foreign image."""
    return next((word for word in argv if word not in (ENTRYPOINT, OPTIONS_END)), ENTRYPOINT)


def _describe_exit_code(code: int) -> str:
    return f"ended by signal {code - 128}" if 128 < code < 160 else f"exit code {code}"


def _choose_hint(code: int, printed_text: str, is_foreign_image: bool) -> str:
    """Return the hint for an exit code that is a failure."""
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
    if code == _CANNOT_EXECUTE or (code < 128 and _CANNOT_START.search(printed_text)):
        return _OUTPUT_HINT  # to accept this exit code would measure nothing
    is_silent = code < 128 and not printed_text.strip()  # some programs fail silently without a terminal
    return f"{_NO_INPUT if is_silent else _OUTPUT_HINT}; {others}"


def _describe_missing_program(program: str, is_foreign_image: bool) -> str:
    """Return the hint how to get a missing program into the image; `program` is "" if its name is unknown."""
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
    """User-supplied command."""

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
        """Raise ValueError for two metrics of one name."""
        names = [metric.name for metric in self.all_metrics]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            what = f"there are two metrics named {duplicates[0]}"
            raise ValueError(f"{what}: tare itself has time, user, system and memory")

    @property
    def all_metrics(self) -> Sequence[Metric]:
        """User-defined metrics, which are the headline if there are any, and the usage of the command."""
        time = Metric(WALL_TIME, "Wall time", "s", "lower", headline=not self.metrics)
        return (*(each.metric for each in self.metrics), time, *_USAGE_METRICS)

    @property
    def programs(self) -> Sequence[str]:
        """Program that the image must have. With `prepare`, only the program of that, which may install the other."""
        return split_words(self.prepare or self.command)[:1]

    def with_command(self, command: tuple[str, ...]) -> Self:
        """Return the workload with another command."""
        return replace(self, command=command)

    @property
    def rounds(self) -> int:
        """Number of turns, one for each run."""
        return self.runs or _MAX_RUNS

    @property
    def duration_setting(self) -> str:
        """Setting that decides how long the workload takes."""
        return "runs" if self.runs else "duration"

    def external_effects(self, instances: str) -> Sequence[str]:
        """Return a line for the command, and a line for `prepare`."""
        commands = (split_words(each) for each in (self.prepare, self.command) if each)
        return tuple(f"{instances}: {shlex.join(words)}" for words in commands)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the command inside repeatedly; raises TrialFailed without an inside, and if the command fails."""
        inside = setup.require_inside(self.name)
        for _ in range(self.warm_up):
            yield (raw := self._run(inside, setup.start_command)).as_warm_up()
            self.parse((raw,))  # a missing metric fails the trial now, not after its last run
        spent_seconds = 0.0
        for _ in range(self.rounds):
            raw = self._run(inside, setup.start_command)
            yield raw
            self.parse((raw,))
            spent_seconds += raw.seconds
            if not self.runs and spent_seconds >= self.duration:
                return

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return usage and user-defined metrics of a run; raises TrialFailed for a failed command or missing metric."""
        check_labels(raw, ["run"])
        output, used = read_usage(raw[0], self.exit_codes)
        return (*read_metrics(self.metrics, output, raw[0].errors), *used)

    def find_cautions(self, raw: Sequence[RawOutput]) -> Sequence[Caution]:
        """Return a caution if a run wrote to standard error, as a pipe whose first part fails does."""
        lines = [line.strip() for entry in raw for line in entry.errors.splitlines() if line.strip()]
        what = f"it succeeded and wrote to standard error: {lines[0][:200]}" if lines else ""
        return (Caution("printed-errors", what),) if what else ()

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, as if a run took a fifth of a second."""
        counted = self.runs * _USUAL_SECONDS if self.runs else self.duration
        return self.warm_up * _USUAL_SECONDS + counted

    def _run(self, inside: Host, start: Sequence[str]) -> RawOutput:
        """Run the command inside once.

        Raises TimedOut with the output so far, and TrialFailed if the command cannot be started or prints too much.
        """
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
