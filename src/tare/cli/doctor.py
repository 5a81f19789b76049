"""Command `tare doctor`: usable technologies, fixes for unusable ones, and noise.

The output has at most 22 lines of 80 columns, so that a terminal of 80x24 also shows the command and the next prompt.
Reasons that do not fit are only counted; `tare doctor --all` prints all.
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
from tare.plugins.technology import NEEDS_ROOT
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
_EXTRA_LINES = 2  # the title, and the number of reasons that do not fit
_LAST = "Every version, reason and fix: tare doctor --all"
_STYLES = {"noisy": "red", "watch": "yellow", "quiet": "green", "unknown": "dim"}
_WITHOUT_ROOT = "`tare ab`, and `tare try --on native`, on this machine as it is"
_STEAL_SECONDS = 1.0  # steal time is counted in steps of 10 ms: a shorter time would be too coarse


def screen_lines(
    technologies: Sequence[TechnologyStatus],
    tare_problems: Sequence[Problem],
    machine: Iterable[str],
    noise: Iterable[Noise],
    width: int,
) -> list[Text]:
    """Return the lines of the screen.

    `tare_problems` are the problems of tare itself, and `machine` are the lines that describe the machine.
    """
    width = min(width, _WIDEST)
    usable = [each for each in technologies if each.is_usable]
    rest = [each for each in technologies if not each.is_usable]
    fixed, command = find_installable(rest)
    user_supplied = [each for each in rest if _lacks_kind(each, "yours")]
    third_party = [each for each in rest if _lacks_kind(each, "program")]
    only_root = [each for each in rest if not problems_except_root(each)]
    others = [each for each in rest if each not in (*fixed, *user_supplied, *third_party, *only_root)]

    lines = [
        *(Text(_cut(line, width)) for line in machine),
        *_title_lines("tare itself", "; ".join(each.what for each in tare_problems), width, "bold red"),
        *_wrap_command(combine_fixes(tare_problems), width),
        *_title_lines(f"Usable, {len(usable)} of {len(technologies)}", _join_names(usable), width, "bold green"),
        *(line for each in usable for line in _title_lines(each.name, _describe_versions(each), width)),
        *(line for each in technologies for advice in each.advice for line in _advice_lines(each.name, advice, width)),
        *_title_lines("Needs root, as in `sudo tare doctor`", _join_names(only_root), width),
        *_title_lines(
            "Without root", _WITHOUT_ROOT if any(NEEDS_ROOT in each.problems for each in rest) else "", width
        ),
        *_title_lines("Installable", _join_names(fixed), width),
        *_wrap_command(command, width),
        *_title_lines("Needs your image or account", _join_names(user_supplied), width),
        *_title_lines("Needs a third-party program", _join_names(third_party), width),
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
    """Return the wrapped lines of a title and its text; no lines if the text is empty."""
    if not text:
        return []
    first, *more = _wrap_text(f"{title}: {text}", width)
    first = Text(first.plain.lstrip())
    first.stylize(style, 0, len(title) + 1)
    return [first, *more]


def _advice_lines(name: str, advice: Problem, width: int) -> list[Text]:
    """Return the lines of advice for a technology and of the command that follows the advice."""
    return [*_title_lines(name, advice.what, width), *_wrap_command(advice.fix, width)]


def _wrap_text(text: str, width: int) -> list[Text]:
    """Return the indented lines of a text, wrapped only at spaces so that names and commands can be copied."""
    wrapper = textwrap.TextWrapper(width, "  ", "  ", break_on_hyphens=False, break_long_words=False)
    return [Text(line) for line in wrapper.wrap(text)]


def _wrap_command(command: str, width: int) -> list[Text]:
    """Return the lines of a command, with a backslash at line ends so that it can be copied to a shell."""
    lines = _wrap_text(command, width - 2)
    return [*(Text(f"{line.plain} \\") for line in lines[:-1]), *lines[-1:]]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _reason_lines(technologies: Sequence[TechnologyStatus], width: int, room: int) -> list[Text]:
    """Return a line for each reason why technologies are unusable, in at most `room` lines, but always one."""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for each in technologies:
        problem = problems_except_root(each)[0]
        by_reason.setdefault(problem.what, []).append((each.name, problem.fix))
    if not by_reason:
        return []
    reasons = list(by_reason.items())
    if room <= _EXTRA_LINES and len(reasons) >= room:  # a title and a number alone would take two lines
        return _title_lines("Not usable here", f"{len(technologies)} more", width)
    shown = reasons if len(reasons) < room else reasons[: room - _EXTRA_LINES]
    rows = [
        (_cut(" ".join(name for name, _ in entries), width // 2), what, {fix for _, fix in entries})
        for what, entries in shown
    ]
    column = max((len(names) for names, _, _ in rows if len(names) <= width // 4), default=0)
    lines = [Text(_reason_line(f"  {names:{column}}  ", what, fixes, width)) for names, what, fixes in rows]
    left = sum(len(entries) for _, entries in reasons[len(shown) :])
    return [Text("Not usable here:", style="bold"), *lines, *([Text(f"  … and {left} more")] if left else [])]


def _reason_line(names: str, what: str, fixes: set[str], width: int) -> str:
    """Return the line of a reason, with the fix if that is short and the same for all technologies."""
    fix = next(iter(fixes)) if len(fixes) == 1 else ""
    suffix = f" → {fix}" if fix and len(fix) <= _SHORT_FIX else ""
    return names + _cut(what, width - len(names) - len(suffix)) + suffix


def _noise_lines(noise: Iterable[Noise], width: int) -> list[Text]:
    """Return the lines of each verdict: the names of the checks, with the values of "noisy" and "watch"."""
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
    """Show which technologies are usable here, fixes, and noise.

    Nothing on the machine is changed, except with --apply.
    """
    if apply and not fix:
        raise UsageError("--apply requires --fix", "print the command first: tare doctor --fix")
    waiting = Console(stderr=True)
    host = LocalHost()
    if fix:
        if os.geteuid() == 0:
            isolate_mounts(share_namespaces=False)
        with waiting.status("looking at the machine"):
            tare_problems = find_tare_problems()
            installable, command = find_installable(check_technologies(host), tare_problems)
            _print_or_run_fix(installable, command, tare_problems, distribution_of(host), apply=apply)
        return
    before, began = read_text("/proc/stat"), time.monotonic()
    facts = host.facts()
    mounts = read_text("/proc/self/mounts")  # of the machine, before this process has a private mount namespace
    if os.geteuid() == 0:
        isolate_mounts(share_namespaces=False)
    with waiting.status("looking at the machine") as status:
        technologies, tare_problems = [], find_tare_problems()
        for each in check_technologies(host):
            status.update(f"looked at {each.name}")
            technologies.append(each)
        time.sleep(max(0.0, _STEAL_SECONDS - (time.monotonic() - began)))
    noise = assess_noise(lambda path: mounts if path.endswith("/mounts") else read_text(path), before)
    if as_json:
        print(_doctor_json(technologies, tare_problems, facts, noise))
    elif everything:
        _print_all(technologies, tare_problems, facts, noise)
    else:
        console = create_console()
        for line in screen_lines(technologies, tare_problems, describe_machine(facts), noise, console.width):
            console.print(line, soft_wrap=True)


def _print_or_run_fix(
    technologies: Sequence[TechnologyStatus],
    command: str,
    tare_problems: Sequence[Problem],
    distribution: Distribution,
    *,
    apply: bool,
) -> None:
    """Print the command that installs missing packages, or run it if `apply`; raises TareError if it fails."""
    for each in tare_problems:
        if not each.packages:
            print_status(f"{each.what}: {each.fix}")
    if not command:
        print_status(f"no package of {distribution.title} is missing; see the other problems: tare doctor")
        return
    if not apply:
        print(command)
        return
    names = ", ".join(
        (*(["tare"] if any(each.packages for each in tare_problems) else []), *(each.name for each in technologies))
    )
    if os.geteuid():
        raise TareError("only root can install packages", "sudo tare doctor --fix --apply")
    program, *words = command.split()
    if shutil.which(program) is None:
        packages = command.removeprefix(f"{distribution.install} ")
        hint = f"install the contents of these packages of {distribution.title}: {packages}"
        raise TareError(f"{program} is not installed: it would install packages for {names}", hint)
    code = run_interactive((program, *words, *distribution.non_interactive_options), "kept")
    if code:
        raise TareError(f"{program} failed with exit code {code}", command)
    print_status(f"installed packages for {names}; check again: tare doctor")


def describe_machine(facts: Facts) -> tuple[str, str]:
    """Return two lines: the operating system, and the hardware with the hypervisor."""
    hypervisor = f", inside {facts.virtualization}" if facts.virtualization else ", bare metal"
    return (
        f"{facts.operating_system}, Linux {facts.kernel} on {facts.architecture}",
        f"{facts.cpu_model}, {facts.cpus} CPUs, {format_size(facts.memory_bytes)}{hypervisor}",
    )


def _doctor_json(
    technologies: list[TechnologyStatus], tare_problems: tuple[Problem, ...], facts: Facts, noise: tuple[Noise, ...]
) -> str:
    entries = [{**dataclasses.asdict(each), "usable": each.is_usable} for each in technologies]
    machine = {**dataclasses.asdict(facts), "noise": [dataclasses.asdict(each) for each in noise]}
    itself = {"problems": [dataclasses.asdict(each) for each in tare_problems]}
    return json.dumps({"format": 1, "tare": itself, "technologies": entries, "machine": machine}, indent=2)


def _print_all(
    technologies: list[TechnologyStatus], tare_problems: tuple[Problem, ...], facts: Facts, noise: tuple[Noise, ...]
) -> None:
    console = create_console()
    lines = [f"tare itself: {problem.what}\n  → {problem.fix}" for problem in tare_problems] or [
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
        is_noisy = each.verdict in {"watch", "noisy"}
        lines = [each.text] if each.verdict != "quiet" else []
        lines += [f"→ {each.fix}"] if is_noisy and each.fix else []
        table.add_row(each.name, Text(each.value, style=_STYLES[each.verdict]), "\n  ".join(lines))
    return table
