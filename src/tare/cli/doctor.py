"""`tare doctor`: what can be used here, fixes for the rest, and how noisy this machine is."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tare.cli.console import Console, output, say
from tare.cli.screen import screen
from tare.cli.verdicts import AsJson
from tare.doctor.usable import Usable, installable, lacked_by_tare, look_at
from tare.errors import TareError, UsageError
from tare.hosts.distributions import Distribution, distribution_of
from tare.hosts.local import LocalHost, isolate_mounts, read_text
from tare.hosts.process import attached
from tare.model.machines import Facts
from tare.model.trials import Problem
from tare.telemetry.noise import Noise, assess
from tare.units import format_size

_STEAL_SECONDS = 1.0
_STYLES = {"quiet": "green", "watch": "yellow", "noisy": "red", "unknown": "dim"}


def doctor(
    everything: Annotated[bool, typer.Option("--all", help="Print every version, reason and fix in full.")] = False,
    as_json: AsJson = False,
    fix: Annotated[bool, typer.Option("--fix", help="Print only the command that installs what is missing.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="With --fix: run that command.")] = False,
) -> None:
    """Show which technologies can be used here, fixes for the rest, and how noisy this machine is.

    It only observes: without --apply, it changes nothing on the machine.
    """
    if apply and not fix:
        raise UsageError("--apply is of --fix", "tare doctor --fix prints the command first")
    waiting = Console(stderr=True)
    host = LocalHost()
    if fix:
        if os.geteuid() == 0:
            isolate_mounts(names_shown=False)
        with waiting.status("looking at the machine"):
            own = lacked_by_tare()
            _fix(*installable(look_at(host), own), own, distribution_of(host), apply=apply)
        return
    before, began = read_text("/proc/stat"), time.monotonic()
    facts = host.facts()
    mounts = read_text("/proc/self/mounts")
    if os.geteuid() == 0:
        isolate_mounts(names_shown=False)
    with waiting.status("looking at the machine") as status:
        technologies, own = [], lacked_by_tare()
        for each in look_at(host):
            status.update(f"looked at {each.name}")
            technologies.append(each)
        time.sleep(max(0.0, _STEAL_SECONDS - (time.monotonic() - began)))
    # The machine's mounts, not those of tare's own namespace.
    noise = assess(lambda path: mounts if path.endswith("/mounts") else read_text(path), before)
    if as_json:
        print(_json(technologies, own, facts, noise))
    elif everything:
        _print_all(technologies, own, facts, noise)
    else:
        console = output()
        for line in screen(technologies, own, about(facts), noise, console.width):
            console.print(line, soft_wrap=True)


def _fix(
    technologies: Sequence[Usable],
    command: str,
    own: Sequence[Problem],
    distribution: Distribution,
    *,
    apply: bool,
) -> None:
    """Print the command that installs what is missing, or run it."""
    for each in own:
        if not each.packages:
            say(f"{each.what}: {each.fix}")
    if not command:
        say(f"nothing is missing that packages of {distribution.title} would fix: `tare doctor` has the rest")
        return
    if not apply:
        print(command)
        return
    names = ", ".join(
        (*(["tare"] if any(each.packages for each in own) else []), *(each.name for each in technologies))
    )
    if os.geteuid():
        raise TareError("only root can install packages", "sudo tare doctor --fix --apply")
    program, *words = command.split()
    if shutil.which(program) is None:
        packages = command.removeprefix(f"{distribution.install} ")
        hint = f"install what these packages of {distribution.title} have: {packages}"
        raise TareError(f"no {program} here, for {names}", hint)
    code = attached((program, *words, *distribution.unasked), "kept")
    if code:
        raise TareError(f"{program} failed with exit code {code}", command)
    say(f"installed what {names} lacked; `tare doctor` looks again")


def about(facts: Facts) -> tuple[str, str]:
    """Describe a machine in two lines."""
    around = f", inside {facts.virtualization}" if facts.virtualization else ", bare metal"
    return (
        f"{facts.operating_system}, Linux {facts.kernel} on {facts.architecture}",
        f"{facts.cpu_model}, {facts.cpus} CPUs, {format_size(facts.memory_bytes)}{around}",
    )


def _json(technologies: list[Usable], own: tuple[Problem, ...], facts: Facts, noise: tuple[Noise, ...]) -> str:
    entries = [{**dataclasses.asdict(each), "usable": each.usable} for each in technologies]
    machine = {**dataclasses.asdict(facts), "noise": [dataclasses.asdict(each) for each in noise]}
    itself = {"problems": [dataclasses.asdict(each) for each in own]}
    return json.dumps({"format": 1, "tare": itself, "technologies": entries, "machine": machine}, indent=2)


def _print_all(technologies: list[Usable], own: tuple[Problem, ...], facts: Facts, noise: tuple[Noise, ...]) -> None:
    console = output()
    lines = [f"tare itself: {problem.what}\n  → {problem.fix}" for problem in own] or ["tare itself lacks nothing"]
    console.print(*lines, "", sep="\n", markup=False, highlight=False)
    console.print(_technologies(technologies))
    usable = sum(each.usable for each in technologies)
    console.print(f"\n{usable} of {len(technologies)} technologies can be used here\n", style="bold")
    console.print("\n".join(about(facts)), "\n", sep="")
    console.print(_noise(noise))


def _technologies(technologies: list[Usable]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "technology", "family", "version", "problem and fix"):
        table.add_column(column, overflow="fold")
    for each in technologies:
        sign = Text("✓", style="green") if each.usable else Text("✗", style="red")
        shown = (*each.problems, *each.advice)
        lines = [f"{problem.what}\n  → {problem.fix}" for problem in shown]
        lines += [f"also named {', '.join(each.also)}"] if each.also else []
        problems = Text("\n").join(map(Text, lines))
        table.add_row(sign, each.name, each.family, each.version, problems)
    return table


def _noise(noise: tuple[Noise, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("noise", "is", "what it means and what to do"):
        table.add_column(column, overflow="fold")
    for each in noise:
        doubtful = each.verdict in {"watch", "noisy"}
        lines = [each.text] if each.verdict != "quiet" else []
        lines += [f"→ {each.fix}"] if doubtful and each.fix else []
        table.add_row(each.name, Text(each.value, style=_STYLES[each.verdict]), "\n  ".join(lines))
    return table
