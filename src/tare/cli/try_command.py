"""Command `tare try`: comparison of one command on bare metal and other stacks, without a suite.

The command line becomes the text of an ad-hoc suite, which can be saved and run again. A metric is one word of the
command line: a regular expression in which `{number}` or one group is the number, or a JSON pointer, which begins with
`/`. An arrow, a name, a unit and a direction may follow: `total: {number} -> total s lower`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import struct
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from tare.cli.app import load_function
from tare.cli.arguments import AsJson, refuse_options
from tare.cli.console import print_status
from tare.cli.run import run_suite, select_stacks_to_run
from tare.model.errors import Fault, SuiteError, UsageError
from tare.model.files import convert_write_errors
from tare.model.units import format_setting, parse_duration
from tare.runner.job import new_job, require_root
from tare.suites.suite import Suite, parse_suite
from tare.suites.tables import read_source
from tare.suites.user_files import collect_files

_BUDGET = "2m"
# A block runs the command twice on three stacks or more: a run of over a sixth of the budget leaves no block.
_RUNS, _MIN_TIMEOUT, _MAX_TIMEOUT = 6, 5.0, 3600.0
_BARE_METAL = "native"
_EXAMPLE = "for example: tare try --package sysbench -- sysbench cpu --time=1 run"
_ARROW = " -> "
_DIRECTIONS = ("higher", "lower")
_MAX_MILLISECONDS, _ROUND_MILLISECONDS = 500, 3000  # of a stack's runs in a block, and of those of all stacks
_OPTIONS = {  # patterns of suite keys, and the command-line options that they come from
    r"suite\.(budget|margin)": r"--\1",
    r"(?:suite\.)?stacks": "--on",
    r"image\.from": "--from",
    r"image\.files": "--file",
    r"workloads\[0\]\.metrics": "--metric",
    r"workloads\[0\]\.packages": "--package",
    r"workloads\[0\]\.warm_up": "--warm-up",
    r"workloads\[0\]\.(prepare|timeout)": r"--\1",
    r"workloads\[0\]\.command": "COMMAND",
}
_METRIC_HINT = "for example --metric 'total: {number} -> total s lower'"

_Command = Annotated[list[str] | None, typer.Argument(help="The command and its arguments.", show_default=False)]
_On = Annotated[
    str | None,
    typer.Option(
        help="Stacks, separated by commas [default: bare metal and all usable stacks that start quickly].",
        metavar="STACKS",
    ),
]
_Package = Annotated[
    list[str] | None, typer.Option(help="A Debian package to install into the image; repeatable.", metavar="NAME")
]
_From = Annotated[
    str,
    typer.Option(
        "--from",
        help="An existing image to use, such as docker-archive:app.tar: see docs/suites.md.",
        metavar="IMAGE",
    ),
]
_File = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        help="A file or folder of this machine to copy into the image, below /srv; repeatable. The command's program "
        "is copied without this option if it is a path such as ./bench.sh.",
        metavar="PATH",
    ),
]
_Metric = Annotated[
    list[str] | None,
    typer.Option(
        help="A number of the output: a regular expression with {number}, such as 'total: {number} s', or a JSON "
        "pointer; then ' -> NAME UNIT lower' or part of it. Repeatable; more is better unless lower is given.",
        metavar="PATTERN",
    ),
]
_Prepare = Annotated[str, typer.Option(help="A command to run before each run, not measured.", metavar="COMMAND")]
_WarmUp = Annotated[
    int | None, typer.Option(help="Warm-up runs in each instance, not measured [default: 1].", metavar="N")
]
_Timeout = Annotated[
    str, typer.Option(help="Time limit of a run [default: a sixth of the budget, at least 5 s].", metavar="TIME")
]
_Budget = Annotated[
    str,
    typer.Option(
        help="Time limit of the measurement, which ends with a block. The image is built before.", metavar="TIME"
    ),
]
_Margin = Annotated[str, typer.Option(help="The smallest difference that matters [default: 3%].", metavar="PERCENT")]
_Save = Annotated[
    Path | None, typer.Option(help="Write the equivalent suite to this file, and start nothing.", metavar="FILE")
]
_Out = Annotated[
    Path | None, typer.Option(help="Run folder to create [default: runs/TIME-try-NAME].", metavar="FOLDER")
]


def try_command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    command: _Command = None,
    on: _On = None,
    package: _Package = None,
    source: _From = "",
    file: _File = None,
    metric: _Metric = None,
    prepare: _Prepare = "",
    warm_up: _WarmUp = None,
    timeout: _Timeout = "",
    budget: _Budget = _BUDGET,
    margin: _Margin = "",
    save: _Save = None,
    out: _Out = None,
    as_json: AsJson = False,
) -> None:
    """Compare the cost of one command on bare metal and other stacks.

    The command runs in a Debian image with the packages of --package, as root, without a terminal and with an empty
    standard input. With --from, it runs in that image, as the image's configuration says. A program of this machine,
    such as ./bench.sh, is copied into the image. The result is a run folder, as of `tare run`.
    """
    if not command:
        raise UsageError("no command to try", _EXAMPLE)
    if source and package:
        raise UsageError("--package and --from exclude each other", "leave out one of them")
    if os.geteuid() and on == _BARE_METAL and save is None:
        needs_root = {"--package": package, "--from": source, "--file": file, "--out": out}
        refuse_options(needs_root, ": without root, the command runs on this machine as it is", "sudo tare try …")
        settings = {"budget": budget, "margin": margin, "timeout": timeout, "prepare": prepare, "warm_up": warm_up}
        _measure_here(command, as_json=as_json, metric=metric, **settings)
        return
    collected = collect_files(command, file or (), is_foreign_image=bool(source))
    if on is None:
        require_root("tare try …", f"without root: tare try --on {_BARE_METAL} …")
    adhoc = AdhocSuite(
        command=collected.command,
        stacks=select_stacks_to_run(on, quickly=True),
        packages=tuple(package or ()),
        source=_make_absolute(source),
        files=collected.files,
        metrics=tuple(metric or ()),
        prepare=prepare,
        warm_up=warm_up,
        timeout=timeout or _timeout_for_budget(budget),
        budget=budget,
        margin=margin,
    )
    text = adhoc.suite_text()
    suite = parse_adhoc_suite(text, "tare try")
    for place, path in collected.files:
        print_status(f"copying into the image: {path}, as {place}", style="dim")
    warn_about_stdin("put the file into the image, as in --file FILE -- sh -c 'gzip < /srv/FILE'")
    if save is None:
        run_suite(new_job(suite, out), "try", results="json" if as_json else "tables")
    else:
        _save_suite(save, text)


def _measure_here(command: Sequence[str], *, as_json: bool, **settings: Any) -> None:
    """Measure a command on this machine as it is, which needs no root: `tare ab` of this command alone.

    `settings` are options as texts; that of an empty one is the default of `tare ab`.
    """
    try:
        measure = load_function("ab")
    except KeyError:  # the feature was removed
        require_root("tare try …")
        raise
    print_status("without root: on this machine as it is, without an image and limits", style="dim")
    given = {name: value for name, value in settings.items() if value not in ("", None)}
    line, name = shlex.join(command), _to_slug(PurePath(command[0]).name) or _BARE_METAL
    measure(commands=[line], name=[name], no_shell=True, export="json" if as_json else None, **given)


def _make_absolute(source: str) -> str:
    """Return the name of an image with an absolute path; unchanged if it is invalid, as the suite reports the fault."""
    try:
        return str(read_source(source)) if source else ""
    except UsageError:
        return source


def _timeout_for_budget(budget: str) -> str:
    """Return the time limit of a run within a budget; "" for an invalid budget, which the suite reports."""
    try:
        seconds = parse_duration(budget)
    except ValueError:
        return ""
    return f"{round(min(max(seconds / _RUNS, _MIN_TIMEOUT), _MAX_TIMEOUT))}s"


def warn_about_stdin(how: str) -> None:
    """Warn if standard input has data, as in `tare try -- gzip < FILE`, and tell how a command gets it."""
    with suppress(OSError):  # standard input may be closed
        waiting_bytes = struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, bytes(4)))[0]
        if waiting_bytes and not os.isatty(0):
            print_status(f"the command gets an empty standard input, not yours: {how}", style="yellow")


def _save_suite(path: Path, text: str) -> None:
    with convert_write_errors(path, "choose another name"), path.open("x", encoding="utf-8") as file:
        file.write(text)
    print_status(f"{path} written; run it with: tare run {path}")


@dataclass(frozen=True)
class AdhocSuite:
    """Command with its options, as texts of the command line; the suite's default applies to an empty option.

    `source` names a foreign image. `files` are pairs of a path in the image and a path of this machine.
    """

    command: tuple[str, ...]
    stacks: tuple[str, ...]
    packages: tuple[str, ...] = ()
    source: str = ""
    files: tuple[tuple[str, str], ...] = ()
    metrics: tuple[str, ...] = ()
    prepare: str = ""
    warm_up: int | None = None
    timeout: str = ""
    budget: str = ""
    margin: str = ""

    def suite_text(self) -> str:
        """Return the text of the suite; raises UsageError for an invalid metric, or a word that is not UTF-8."""
        name = _to_slug(PurePath(self.command[0]).name) or "command"
        suite: dict[str, object] = {
            "name": f"try-{name}",
            "stacks": self.stacks,
            "budget": self.budget,
            "margin": self.margin,
        }
        settings: dict[str, object] = {
            "use": "command",
            "name": name,
            "command": self.command,
            "packages": self.packages,
            "prepare": self.prepare,
            "warm_up": self.warm_up,
            "duration": f"{_block_milliseconds(len(self.stacks))}ms",
            "timeout": self.timeout,
        }
        image = [format_table("[image]", {"from": self.source})] if self.source else []
        files: dict[str, object] = {json.dumps(target): source for target, source in self.files}
        image += [format_table("[image.files]", files)] if files else []
        tables = [format_table("[suite]", suite), *image, format_table("[[workloads]]", settings)]
        tables += [format_table("[[workloads.metrics]]", metric) for metric in parse_metrics(self.metrics)]
        return _check_unicode("\n".join(tables))


def parse_metrics(texts: Sequence[str]) -> list[dict[str, object]]:
    """Return the tables of metrics, whose names are made unique; raises UsageError for an invalid one."""
    metrics, names = list[dict[str, object]](), list[str]()
    for text in texts:
        metric = _parse_metric(text)
        free = (f"{metric['name']}{end}" for end in ("", *(f"-{number}" for number in range(2, 1000))))
        names.append(next(each for each in free if each not in names))
        metrics.append(metric | {"name": names[-1]})
    return metrics


def _block_milliseconds(stacks: int) -> int:
    """Return the time of a stack's runs in a block: the first comparison comes soon, also of many stacks.

    A run adds rounds to later blocks where that is worth their time.
    """
    return min(_MAX_MILLISECONDS, _ROUND_MILLISECONDS // (stacks + 1))  # with the control


def parse_adhoc_suite(text: str, command: str) -> Suite:
    """Return the suite of a text from a command line; raises SuiteError, whose faults name options, not keys."""
    try:
        return parse_suite(text, command)
    except SuiteError as error:
        raise SuiteError([_translate_fault(fault, command) for fault in error.faults]) from None


def _translate_fault(fault: Fault, command: str) -> Fault:
    for key, option in _OPTIONS.items():
        what, count = re.subn(rf"^{command}: {key}[\w.\[\]-]*: ", f"{option}: ", fault.message)
        if count:
            return Fault(what, fault.hint)
    return fault


def _parse_metric(text: str) -> dict[str, object]:
    """Return the table of a metric; raises UsageError unless name, unit and direction follow the arrow in order."""
    where, arrow, description = text.rpartition(_ARROW)  # the last arrow, because the pattern itself may have one
    if not arrow:
        where, description = text, ""
    words = description.split()
    better = words.pop() if words and words[-1] in _DIRECTIONS else "higher"
    if len(words) > 2 or not where:
        raise UsageError(f"--metric {text}: after the arrow come a name, a unit, and higher or lower", _METRIC_HINT)
    name, unit = (*words, "", "")[:2]
    kind = "pointer" if where.startswith("/") else "pattern"
    return {"name": name or _name_from_pattern(where) or "metric", kind: where, "unit": unit, "better": better}


def _name_from_pattern(where: str) -> str:
    """Return a metric's name from the literal words of its pattern; "" if it has none."""
    return _to_slug(re.sub(r"\{number\}|\([^)]*\)|\\.|\[[^]]*\]", " ", where))


def _to_slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")


def format_table(head: str, settings: Mapping[str, object]) -> str:
    """Return a table of a suite as text, without settings that are empty."""
    lines = [f"{key} = {format_setting(value)}\n" for key, value in settings.items() if value not in ("", None, ())]
    return "".join((f"{head}\n", *lines))


def _check_unicode(text: str) -> str:
    """Return a text; raises UsageError if it has bytes that are not UTF-8, as a file name may have."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("a word of the command line is not UTF-8 text", "give the files other names") from error
    return text
