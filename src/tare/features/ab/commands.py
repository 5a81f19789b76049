"""Command `tare ab`: which of several commands is faster, by how much, and how sure that is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import TypeAdapter
from rich.live import Live
from rich.text import Text

from tare.cli.answer import print_answer
from tare.cli.arguments import parse_verdicts, refuse_options, split_names
from tare.cli.console import Console, print_status, replace_unprintable
from tare.cli.run import run_suite
from tare.cli.signals import INTERRUPTED, interruptible
from tare.cli.try_command import parse_metrics, warn_about_stdin
from tare.features.ab.contenders import Contender, create_contender
from tare.features.ab.measurement import Measured, Settings, choose_cpus, compare_commands
from tare.features.ab.stacks import StackComparison, to_slug
from tare.features.ab.verdict import FAIL_ON, NOT_TESTED, SLOWER, UNDECIDED, FailOn, Verdict, describe_progress
from tare.loads.user_load import UserMetric
from tare.model.errors import TareError, UsageError
from tare.model.run_folder import Run
from tare.model.trial import StopReason
from tare.model.units import format_count, parse_duration, parse_margin, parse_option
from tare.runner.job import new_job

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_EXAMPLE = "for example tare ab 'gzip -6 -c FILE' 'gzip -9 -c FILE'"
_BISECT = "git worktree add ../good GOOD; git bisect run tare ab --bisect '../good/bench' './bench'"
_ENDS_BISECTION = 128  # exit code with which `git bisect run` ends
_METRIC = TypeAdapter(UserMetric)
_Format = Literal["json", "markdown", "csv"]
_Variables = Annotated[
    list[str] | None, typer.Option(help="A variable of this command only. Repeatable.", metavar="NAME=VALUE")
]
_Folder = Annotated[str, typer.Option(help="Folder of this command only.", metavar="FOLDER")]


def ab(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    commands: Annotated[
        list[str] | None, typer.Argument(help="The commands; the first is the baseline.", metavar="COMMAND...")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("-n", "--name", help="A name of each command, in order.", metavar="NAME")
    ] = None,
    margin: Annotated[str, typer.Option(help="The smallest difference that matters.", metavar="PERCENT")] = "3%",
    budget: Annotated[str, typer.Option(help="Time limit of the measurement.", metavar="TIME")] = "60s",
    timeout: Annotated[str, typer.Option(help="Time limit of a run [default: the budget].", metavar="TIME")] = "",
    warm_up: Annotated[int, typer.Option(help="Runs that do not count.", min=1, max=1000, metavar="N")] = 1,
    prepare: Annotated[str, typer.Option(help="Command before each run, not measured.", metavar="COMMAND")] = "",
    cleanup: Annotated[str, typer.Option(help="Command after all runs of a command.", metavar="COMMAND")] = "",
    input_file: Annotated[
        Path | None, typer.Option("--input", help="Standard input [default: empty].", metavar="FILE")
    ] = None,
    output: Annotated[Literal["null", "pipe"], typer.Option(help="Where the output goes.")] = "null",
    no_shell: Annotated[bool, typer.Option("-N", "--no-shell", help="Start all commands without a shell.")] = False,
    exit_codes: Annotated[str, typer.Option(help="Exit codes that are no failure.", metavar="CODES")] = "0",
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A number of the output, which decides, as of tare try. Repeatable.", metavar="PATTERN"),
    ] = None,
    env_a: _Variables = None,
    env_b: _Variables = None,
    cwd_a: _Folder = "",
    cwd_b: _Folder = "",
    on: Annotated[
        str, typer.Option(help="Stacks in which to compare, such as docker,gvisor [default: as they are].")
    ] = "",
    source: Annotated[
        str, typer.Option("--from", help="With --on: image of the commands [default: tare's].", metavar="IMAGE")
    ] = "",
    from_a: Annotated[str, typer.Option(help="With --on: image of this command only.", metavar="IMAGE")] = "",
    from_b: Annotated[str, typer.Option(help="With --on: image of this command only.", metavar="IMAGE")] = "",
    package: Annotated[
        list[str] | None, typer.Option(help="With --on: Debian package for tare's image. Repeatable.", metavar="NAME")
    ] = None,
    cpus: Annotated[int, typer.Option(help="CPUs that a command may use.", min=1, metavar="N")] = 1,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(help=f"Exit with 1 on any of: {', '.join(FAIL_ON)} [default: slower].", metavar="VERDICT"),
    ] = None,
    bisect: Annotated[bool, typer.Option("--bisect", help="Exit with 125 if undecided, for git bisect run.")] = False,
    export: Annotated[_Format | None, typer.Option(help="Print data instead of text.", show_default=False)] = None,
) -> None:
    """Compare commands on this machine as it is.

    The answer is which is faster, by how much, and how sure that is. The commands run in turns, in random order, until
    each is decided. Slower means that the interval excludes 0, equivalent that it is within the margin. The exit code
    is 0 if none is slower than the first, 1 if one is, 2 for wrong use, and 3 if that is undecided or a command fails.
    Example: tare ab 'sort FILE' 'sort -u FILE'
    """
    conditions = parse_verdicts(fail_on, FAIL_ON, "verdict", "slower") or ("slower",)
    lines = list(commands or ())
    if len(lines) == 1 and any((env_a, env_b, cwd_a, cwd_b, from_a, from_b)):
        lines *= 2
    if bisect and len(lines) == 1:
        raise UsageError("--bisect compares a known good version with the checkout, and there is one command", _BISECT)
    names = _name_commands(lines, name or ())
    settings = _parse_settings(margin, budget, timeout, exit_codes, metric, input_file)
    settings = replace(settings, warm_up=warm_up, prepare=prepare, cleanup=cleanup, keeps_output=output == "pipe")
    if on and len(lines) == 1:
        raise UsageError("--on compares commands, and there is one", f"tare try --on {on} -- {lines[0]}")
    if input_file is None:
        warn_about_stdin("use --input FILE")
    try:
        if on:
            unavailable = {
                "--env-a": env_a,
                "--env-b": env_b,
                "--cwd-a": cwd_a,
                "--cwd-b": cwd_b,
                "--input": input_file,
            }
            why = " is for commands on this machine, not in stacks"
            refuse_options(unavailable | {"--cleanup": cleanup}, why, "leave out it or --on")
            images = {name: image for name, image in zip(names, (from_a, from_b), strict=False) if image}
            wanted = StackComparison("", dict(zip(names, lines, strict=True)), source, images, tuple(package or ()),
                                     allow_shell=not no_shell)  # fmt: skip
            code = _compare_in_stacks(wanted, on, settings, (budget, margin), conditions, export, bisect=bisect)
        elif source or from_a or from_b or package:
            raise UsageError("--from and --package are for commands in stacks", "name the stacks: --on docker")
        else:
            changes = {0: (env_a or (), cwd_a), 1: (env_b or (), cwd_b)}
            contenders = _create_contenders(names, lines, changes, allow_shell=not no_shell)
            code = _compare_here(contenders, settings, choose_cpus(cpus), conditions, export, bisect=bisect)
    except TareError as error:
        if not bisect:
            raise
        print_status(f"error: {error}", f"hint: {error.hint}", style="red")
        # A command that cannot be built or started is no slow one: `git bisect` skips this commit. If the baseline
        # fails, which is not of this commit, it would skip all of them, and so ends.
        is_baseline = lines[0] not in lines[1:] and str(error).startswith(f"{names[0]}: ")
        code = _ENDS_BISECTION if is_baseline else NOT_TESTED
    if code:
        raise typer.Exit(code)


def _compare_here(  # noqa: PLR0913 - each is an option of the command line
    contenders: Sequence[Contender],
    settings: Settings,
    cpus: Sequence[int],
    conditions: Sequence[FailOn],
    export: _Format | None,
    *,
    bisect: bool,
) -> int:
    """Compare commands on this machine, print the result, and return the exit code."""
    with interruptible(), _progress() as show:
        measured, floor_bytes = compare_commands(contenders, settings, cpus, show)
    verdict = Verdict(measured, floor_bytes)
    if measured.run.trials:
        _print_verdict(verdict, export)
    else:
        print_status("interrupted before the first block: nothing was compared", style="yellow")
    for warning in measured.warnings:
        print_status(warning, style="yellow")
    return INTERRUPTED if measured.stop == StopReason.INTERRUPT else verdict.exit_code(conditions, bisect=bisect)


def _name_commands(lines: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return a name for each command; raises UsageError for no command, and for names that do not fit."""
    if not lines:
        raise UsageError("no command is named; each is one word of the command line", _EXAMPLE)
    if len(lines) > len(_LETTERS):
        raise UsageError(f"there are {len(lines)} commands, and {len(_LETTERS)} are possible", _EXAMPLE)
    if len(names) > len(lines):
        count = format_count(len(lines), "command")
        raise UsageError(f"there are {len(names)} names for {count}", "give each command one name")
    all_names = [*names, *_LETTERS[len(names) : len(lines)]]
    slugs = [to_slug(each) for each in all_names]
    faulty = [name for name, slug in zip(all_names, slugs, strict=True) if slugs.count(slug) > 1 or not name.strip()]
    if faulty:
        raise UsageError(f"-n {faulty[0]}: the name is empty or not unique", "give each command another name")
    return all_names


def _create_contenders(
    names: Sequence[str], lines: Sequence[str], changes: Mapping[int, tuple[Sequence[str], str]], *, allow_shell: bool
) -> list[Contender]:
    """Return the commands; `changes` are variables and folders of single commands, by position.

    Raises UsageError for commands, variables and folders that do not exist.
    """
    contenders = []
    for index, (name, line) in enumerate(zip(names, lines, strict=True)):
        variables, folder = changes.get(index, ((), ""))
        environment = {**os.environ, **_parse_variables(name, variables)}
        contenders.append(create_contender(name, line, str(Path.cwd() / folder), environment, allow_shell=allow_shell))
    return contenders


def _compare_in_stacks(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    wanted: StackComparison,
    on: str,
    settings: Settings,
    texts: tuple[str, str],
    conditions: Sequence[FailOn],
    export: _Format | None,
    *,
    bisect: bool,
) -> int:
    """Compare the commands in each stack; return 1 if one fails, else 3 or 125 if one is undecided, else 0."""
    codes = []
    for stack in dict.fromkeys(split_names(on)):
        began = time.monotonic()
        job = new_job(replace(wanted, stack=stack).suite(settings, *texts), None)
        run_suite(job, "ab", results="none")
        verdict = Verdict(Measured(job.writer.run, StopReason.DECIDED, time.monotonic() - began, ()), 0)
        _print_verdict(verdict, export, stack)
        codes.append(verdict.exit_code(conditions, bisect=bisect))
    return next((code for code in (SLOWER, UNDECIDED, NOT_TESTED) if code in codes), 0)


def _parse_variables(name: str, variables: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in variables]
    if faulty := next((each for each, pair in zip(variables, pairs, strict=True) if not pair[0] or not pair[1]), None):
        raise UsageError(f"{name}: {faulty} is no variable", "write NAME=VALUE")
    return {variable: value for variable, _, value in pairs}


def _parse_settings(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    margin: str, budget: str, timeout: str, exit_codes: str, metric: Sequence[str] | None, input_file: Path | None
) -> Settings:
    seconds = parse_option("--budget", budget, parse_duration, "60s")
    if input_file is not None and not input_file.is_file():
        raise UsageError(f"--input {input_file}: there is no such file", "name a file")
    try:
        codes = tuple(int(each) for each in exit_codes.split(","))
    except ValueError:
        raise UsageError(f"--exit-codes {exit_codes}: not a list of numbers", "for example --exit-codes 0,1") from None
    return Settings(
        margin=parse_option("--margin", margin, parse_margin, "3%"),
        budget_seconds=seconds,
        timeout_seconds=parse_option("--timeout", timeout, parse_duration, "10s") if timeout else max(seconds, 1.0),
        exit_codes=codes,
        stdin="" if input_file is None else str(input_file.absolute()),
        metrics=tuple(map(_METRIC.validate_python, parse_metrics(metric or ()))),
    )


@contextmanager
def _progress() -> Iterator[Callable[[Run], None]]:
    """Context manager: yield a function that shows the comparison so far on a terminal, and nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield lambda run: live.update(Text("\n".join(describe_progress(run))))


def _print_verdict(verdict: Verdict, export: _Format | None, stack: str = "") -> None:
    answer = verdict.answer(stack)
    if export:  # a CI log shows the verdict, too
        print_status(*answer.conclusions)
    if export == "json":
        print(answer.document())
    elif export == "markdown":
        print(replace_unprintable(answer.markdown()), end="")
    elif export == "csv":
        print(verdict.csv(), end="")
    else:
        print_answer(answer)
