"""What a command used inside an instance: wall time, CPU time, memory and exit code, read the same way on every stack.

`measure` (programs/measure.c) starts the command, waits for it, and prints a line after all that it printed. Around it
is `run`, which ends what the command leaves behind: it would be in the way of the other stacks' turns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tare.errors import TimedOut, TrialFailed, printed
from tare.hosts.exec import RUN, START, WORDS
from tare.hosts.host import Host
from tare.hosts.lines import last_lines
from tare.model.trials import Metric, Raw, Value
from tare.units import format_duration, format_size

METRICS = (
    Metric("time", "Wall time", "s", "lower"),
    Metric("user", "CPU time in user mode", "s", "lower", headline=False),
    Metric("system", "CPU time in the kernel", "s", "lower", headline=False),
    Metric("memory", "Largest resident memory", "bytes", "lower", headline=False),
)
_MEASURED = (RUN, "--", "/usr/lib/tare/measure")
_SECONDS = r"\d{1,9}\.\d{6,9}"
_LINE = re.compile(
    rf"(?s:(?P<output>.*))\ntare-measure: wall (?P<wall>{_SECONDS}) user (?P<user>{_SECONDS}) "
    rf"system (?P<system>{_SECONDS}) memory (?P<memory>\d{{1,18}}) exit (?P<code>\d{{1,3}})\n",
    re.ASCII,
)
_MOST_BYTES = 1 << 20  # 20 runs on ten stacks in 30 blocks would fill 6 GiB
_STDIN = "(?:stdin|standard input)"
_ASKS = re.compile(  # not every line with `stdin`: gzip names so what it reads, whatever is wrong with it
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
_SHOWN = "`tare show` has the whole output"
_NOBODY = "it has no terminal, and nothing on its standard input"
_ENDLESS = (
    'a server is measured by a suite with use = "service" and a load (docs/suites.md); '
    f"all else needs a longer timeout, or less to do; {_NOBODY}"
)


@dataclass(frozen=True)
class Used:
    """What a command used and printed: `values` are those of `METRICS`."""

    output: str
    values: tuple[Value, ...]
    exit_code: int


def measured(inside: Host, label: str, *argv: str, timeout: float) -> Raw:
    """Run a command inside; raises TimedOut with what it had printed, and TrialFailed if it cannot be started."""
    try:
        output = inside.run(*_MEASURED, *argv, timeout=timeout, check=False)
    except TimedOut as error:
        what = f"{_name(argv)}: did not end within {format_duration(timeout)}"
        raise TimedOut(what, _ENDLESS, error.output) from error
    if (size := len(output.stdout) + len(output.stderr)) > _MOST_BYTES:
        most = format_size(_MOST_BYTES)
        what = f"{_name(argv)}: it printed {format_size(size)}, and a run folder keeps {most} of each run"
        raise TrialFailed(what, "let it write to a file in the instance, or to /dev/null, as in sh -c '… > /dev/null'")
    errors = output.stderr.decode("utf-8", "replace")
    if output.exit_code:
        what = last_lines(errors.strip()) or f"{_name(argv)}: {output.argv[0]} ended with exit code {output.exit_code}"
        raise TrialFailed(what.removeprefix("measure: "), _SHOWN, output)
    return Raw(label, output.argv, output.text, output.seconds, errors=errors)


def read_used(raw: Raw, exit_codes: tuple[int, ...]) -> Used:
    """Read what a command used; raises TrialFailed unless it ended with one of these exit codes."""
    found = _LINE.fullmatch(raw.text)
    if found is None:
        raise TrialFailed(f"nobody knows what the command used; {printed(raw.text)}", _SHOWN)
    name, code = _name(raw.argv[len(_MEASURED) :]), int(found["code"])
    if code not in exit_codes:
        said = last_lines(raw.errors.strip() or found["output"].strip()).removeprefix("start: ") or "it printed nothing"
        hint = _hint(code, found["output"] + raw.errors, of_others=START in raw.argv)
        raise TrialFailed(f"{name}: {_ending(code)}: {said}", hint)
    if not float(found["wall"]) > 0:
        raise TrialFailed(f"{name} took no time that the clock can see", "the instance's clock stands still")
    numbers = (float(found["wall"]), float(found["user"]), float(found["system"]), float(found["memory"]))
    values = (Value(metric.name, None, number) for metric, number in zip(METRICS, numbers, strict=True))
    return Used(found["output"], tuple(values), code)


def _name(argv: Sequence[str]) -> str:
    """Name the command, without what starts it in an image that others have built."""
    return next((word for word in argv if word not in (START, WORDS)), START)


def _ending(code: int) -> str:
    return f"ended by signal {code - 128}" if 128 < code < 160 else f"exit code {code}"


def _hint(code: int, said: str, of_others: bool) -> str:
    """Return what to do about an exit code; `of_others`: others have built the image."""
    if code == _NOT_FOUND:
        program = _PROGRAM.search(said)
        return _missing_program(program["of_env"] or program["of_shell"] if program else "", of_others)
    if code == 128 + 9:
        return f"it may want more memory than the instance has: [limits] memory; {_SHOWN}"
    others = f"other exit codes may be accepted: exit_codes = [0, {code}]"
    if code < 128 and _ASKS.search(said):
        return f"{_NOBODY}: give it files and options instead"
    if code < 128 and _NO_FILE.search(said):
        return (
            f"--file PATH puts a file of this machine into the image as /srv/PATH ([image.files] in a suite); {_SHOWN}"
        )
    if code < 128 and not said.strip():  # some say nothing where there is no terminal
        return f"{_NOBODY}; {others}"
    return f"{_SHOWN}; {others}"


def _missing_program(program: str, of_others: bool) -> str:
    """Return how a program, empty if it is unknown, gets into the image."""
    if not program:
        return f"the image lacks the program, or the interpreter that its first line (#!) names; {_SHOWN}"
    if "/" in program:
        return f"the image has no {program}: --file PATH puts a file of this machine into it ([image.files] in a suite)"
    if of_others:
        return f"the image has no {program}: it is taken as it is, so build it with {program}"
    package = f'--package {program}, or packages = ["{program}"] in a suite'
    return f"the image has no {program}: add the Debian package that has it, for example {package}"
