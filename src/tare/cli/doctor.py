"""Command `tare doctor`: usable technologies, fixes for unusable ones, and noise.

The output has at most 22 lines of 80 columns, so that a terminal of 80x24 also shows the command and the next prompt.
Reasons that do not fit are counted; `tare doctor --all` prints them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tare.cli.arguments import AsJson
from tare.cli.console import Console, create_console, print_status
from tare.hosts.distributions import Distribution, combine_fixes, distribution_of
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.process import run_interactive
from tare.model.errors import TareError, UsageError
from tare.model.files import read_text
from tare.model.machine import Facts
from tare.model.trial import Problem
from tare.model.units import format_size
from tare.runner.availability import (
    TechnologyStatus,
    check_technologies,
    find_installable,
    find_tare_problems,
    problems_except_root,
)
from tare.telemetry.noise import Noise, assess_noise

LINES = 22
_WIDEST = 100
_SHORT_FIX = 32
_WITH_TITLE = 2  # lines: the title, and how many there are more
_LAST = "Every version, reason and fix: tare doctor --all"
_STYLES = {"noisy": "red", "watch": "yellow", "quiet": "green", "unknown": "dim"}
_STEAL_SECONDS = 1.0


def screen_lines(
    technologies: Sequence[TechnologyStatus],
    own_problems: Sequence[Problem],
    machine: Iterable[str],
    noise: Iterable[Noise],
    width: int,
) -> list[Text]:
    """Return the lines of the screen; `machine` describe the machine; `own_problems` is what tare itself lacks."""
    width = min(width, _WIDEST)
    usable = [each for each in technologies if each.is_usable]
    rest = [each for each in technologies if not each.is_usable]
    fixed, command = find_installable(rest)
    yours = [each for each in rest if _lacks_kind(each, "yours")]
    foreign = [each for each in rest if _lacks_kind(each, "program")]
    only_root = [each for each in rest if not problems_except_root(each)]
    others = [each for each in rest if each not in (*fixed, *yours, *foreign, *only_root)]

    lines = [
        *(Text(_cut(line, width)) for line in machine),
        *_title_lines("tare itself", "; ".join(each.what for each in own_problems), width, "bold red"),
        *_wrap_command(combine_fixes(own_problems), width),
        *_title_lines(f"Usable, {len(usable)} of {len(technologies)}", _join_names(usable), width, "bold green"),
        *(line for each in usable for line in _title_lines(each.name, _describe_versions(each), width)),
        *(line for each in technologies for advice in each.advice for line in _advice_lines(each.name, advice, width)),
        *_title_lines("Needs root, as in `sudo tare doctor`", _join_names(only_root), width),
        *_title_lines("Installable", _join_names(fixed), width),
        *_wrap_command(command, width),
        *_title_lines("Needs your image or account", _join_names(yours), width),
        *_title_lines("Needs a program of another project", _join_names(foreign), width),
    ]
    after = [*_noise_lines(noise, width), Text(_LAST, style="dim")]
    return [*lines, *_reason_lines(others, width, LINES - len(lines) - len(after)), *after]


def _lacks_kind(technology: TechnologyStatus, missing: str) -> bool:
    return any(problem.missing == missing for problem in technology.problems)


def _join_names(technologies: Iterable[TechnologyStatus]) -> str:
    return " ".join(each.name for each in technologies)


def _describe_versions(technology: TechnologyStatus) -> str:
    return f"also {' '.join(technology.also)}" if technology.also else ""


def _title_lines(title: str, text: str, width: int, style: str = "bold") -> list[Text]:
    """Return a title and its text; nothing without a text."""
    if not text:
        return []
    first, *more = _wrap_text(f"{title}: {text}", width, "  ")
    first = Text(first.plain.lstrip())
    first.stylize(style, 0, len(title) + 1)
    return [first, *more]


def _advice_lines(name: str, advice: Problem, width: int) -> list[Text]:
    """Return the lines of advice, and the command that follows the advice."""
    return [*_title_lines(name, advice.what, width), *_wrap_command(advice.fix, width)]


def _wrap_text(text: str, width: int, indent: str) -> list[Text]:
    """Wrap at spaces only, so that names and commands can be copied."""
    wrapper = textwrap.TextWrapper(width, indent, indent, break_on_hyphens=False, break_long_words=False)
    return [Text(line) for line in wrapper.wrap(text)]


def _wrap_command(command: str, width: int) -> list[Text]:
    """Wrap a command so that it can be copied to a shell."""
    lines = _wrap_text(command, width - 2, "  ")
    return [*(Text(f"{line.plain} \\") for line in lines[:-1]), *lines[-1:]]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _reason_lines(technologies: Sequence[TechnologyStatus], width: int, room: int) -> list[Text]:
    """Return the reasons why technologies cannot be used, a line each; count those that do not fit."""
    sharing: dict[str, list[tuple[str, str]]] = {}
    for each in technologies:
        problem = problems_except_root(each)[0]
        sharing.setdefault(problem.what, []).append((each.name, problem.fix))
    if not sharing:
        return []
    reasons = list(sharing.items())
    if room < _WITH_TITLE:
        return _title_lines("Not on this machine", f"{len(technologies)} more", width)
    kept = reasons if len(reasons) < room else reasons[: room - _WITH_TITLE]
    rows = [
        (_cut(" ".join(name for name, _ in those), width // 2), what, {fix for _, fix in those}) for what, those in kept
    ]
    column = max((len(names) for names, _, _ in rows if len(names) <= width // 4), default=0)
    lines = [Text(_reason_line(f"  {names:{column}}  ", what, fixes, width)) for names, what, fixes in rows]
    left = sum(len(those) for _, those in reasons[len(kept) :])
    return [Text("Not on this machine:", style="bold"), *lines, *([Text(f"  … and {left} more")] if left else [])]


def _reason_line(names: str, what: str, fixes: set[str], width: int) -> str:
    """Return one line, with the fix if it is short and the same for all."""
    fix = next(iter(fixes)) if len(fixes) == 1 else ""
    fixed = f" → {fix}" if fix and len(fix) <= _SHORT_FIX else ""
    return names + _cut(what, width - len(names) - len(fixed)) + fixed


def _noise_lines(noise: Iterable[Noise], width: int) -> list[Text]:
    """Return the names for each verdict, with the values of those that are noisy or to watch."""
    by_verdict: dict[str, list[str]] = {verdict: [] for verdict in _STYLES}
    for each in noise:
        shown = f"{each.name} ({each.value})" if each.verdict in {"noisy", "watch"} else each.name
        by_verdict[each.verdict].append(shown)
    return [
        line
        for verdict, shown in by_verdict.items()
        for line in _title_lines(f"Noise, {verdict}", ", ".join(shown), width, _STYLES[verdict])
    ]


def doctor(
    everything: Annotated[bool, typer.Option("--all", help="Print every version, reason and fix in full.")] = False,
    as_json: AsJson = False,
    fix: Annotated[bool, typer.Option("--fix", help="Print only the command that installs missing packages.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="With --fix: run the command.")] = False,
) -> None:
    """Check which technologies can be used here and how noisy this machine is, and show fixes.

    The check changes nothing on the machine, except with --apply.
    """
    if apply and not fix:
        raise UsageError("--apply is of --fix", "tare doctor --fix prints the command first")
    waiting = Console(stderr=True)
    host = LocalHost()
    if fix:
        if os.geteuid() == 0:
            isolate_mounts(share_namespaces=False)
        with waiting.status("looking at the machine"):
            own = find_tare_problems()
            _print_or_run_fix(*find_installable(check_technologies(host), own), own, distribution_of(host), apply=apply)
        return
    before, began = read_text("/proc/stat"), time.monotonic()
    facts = host.facts()
    mounts = read_text("/proc/self/mounts")
    if os.geteuid() == 0:
        isolate_mounts(share_namespaces=False)
    with waiting.status("looking at the machine") as status:
        technologies, own = [], find_tare_problems()
        for each in check_technologies(host):
            status.update(f"looked at {each.name}")
            technologies.append(each)
        time.sleep(max(0.0, _STEAL_SECONDS - (time.monotonic() - began)))
    # The machine's mounts, not those of tare's own namespace.
    noise = assess_noise(lambda path: mounts if path.endswith("/mounts") else read_text(path), before)
    if as_json:
        print(_doctor_json(technologies, own, facts, noise))
    elif everything:
        _print_all(technologies, own, facts, noise)
    else:
        console = create_console()
        for line in screen_lines(technologies, own, describe_machine(facts), noise, console.width):
            console.print(line, soft_wrap=True)


def _print_or_run_fix(
    technologies: Sequence[TechnologyStatus],
    command: str,
    own_problems: Sequence[Problem],
    distribution: Distribution,
    *,
    apply: bool,
) -> None:
    """Print the command that installs missing packages, or run it."""
    for each in own_problems:
        if not each.packages:
            print_status(f"{each.what}: {each.fix}")
    if not command:
        print_status(f"nothing is missing that packages of {distribution.title} would fix: `tare doctor` has the rest")
        return
    if not apply:
        print(command)
        return
    names = ", ".join(
        (*(["tare"] if any(each.packages for each in own_problems) else []), *(each.name for each in technologies))
    )
    if os.geteuid():
        raise TareError("only root can install packages", "sudo tare doctor --fix --apply")
    program, *words = command.split()
    if shutil.which(program) is None:
        packages = command.removeprefix(f"{distribution.install} ")
        hint = f"install what these packages of {distribution.title} have: {packages}"
        raise TareError(f"no {program} here, for {names}", hint)
    code = run_interactive((program, *words, *distribution.non_interactive_options), "kept")
    if code:
        raise TareError(f"{program} failed with exit code {code}", command)
    print_status(f"installed what {names} lacked; `tare doctor` looks again")


def describe_machine(facts: Facts) -> tuple[str, str]:
    """Describe a machine in two lines."""
    around = f", inside {facts.virtualization}" if facts.virtualization else ", bare metal"
    return (
        f"{facts.operating_system}, Linux {facts.kernel} on {facts.architecture}",
        f"{facts.cpu_model}, {facts.cpus} CPUs, {format_size(facts.memory_bytes)}{around}",
    )


def _doctor_json(
    technologies: list[TechnologyStatus], own_problems: tuple[Problem, ...], facts: Facts, noise: tuple[Noise, ...]
) -> str:
    entries = [{**dataclasses.asdict(each), "usable": each.is_usable} for each in technologies]
    machine = {**dataclasses.asdict(facts), "noise": [dataclasses.asdict(each) for each in noise]}
    itself = {"problems": [dataclasses.asdict(each) for each in own_problems]}
    return json.dumps({"format": 1, "tare": itself, "technologies": entries, "machine": machine}, indent=2)


def _print_all(
    technologies: list[TechnologyStatus], own_problems: tuple[Problem, ...], facts: Facts, noise: tuple[Noise, ...]
) -> None:
    console = create_console()
    lines = [f"tare itself: {problem.what}\n  → {problem.fix}" for problem in own_problems] or [
        "tare itself lacks nothing"
    ]
    console.print(*lines, "", sep="\n", markup=False, highlight=False)
    console.print(_technology_table(technologies))
    usable = sum(each.is_usable for each in technologies)
    console.print(f"\n{usable} of {len(technologies)} technologies can be used here\n", style="bold")
    console.print("\n".join(describe_machine(facts)), "\n", sep="")
    console.print(_noise_table(noise))


def _technology_table(technologies: list[TechnologyStatus]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "technology", "family", "version", "problem and fix"):
        table.add_column(column, overflow="fold")
    for each in technologies:
        sign = Text("✓", style="green") if each.is_usable else Text("✗", style="red")
        shown = (*each.problems, *each.advice)
        lines = [f"{problem.what}\n  → {problem.fix}" for problem in shown]
        lines += [f"also named {', '.join(each.also)}"] if each.also else []
        problems = Text("\n").join(map(Text, lines))
        table.add_row(sign, each.name, each.family, each.version, problems)
    return table


def _noise_table(noise: tuple[Noise, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("noise", "is", "what it means and what to do"):
        table.add_column(column, overflow="fold")
    for each in noise:
        doubtful = each.verdict in {"watch", "noisy"}
        lines = [each.text] if each.verdict != "quiet" else []
        lines += [f"→ {each.fix}"] if doubtful and each.fix else []
        table.add_row(each.name, Text(each.value, style=_STYLES[each.verdict]), "\n  ".join(lines))
    return table
