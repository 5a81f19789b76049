"""Command `tare tune`: settings of a machine that reduce noise."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.text import Text

from tare.cli.arguments import AsJson
from tare.cli.console import create_console, print_status
from tare.hosts.lock import lock_this_machine
from tare.hosts.tuning import SETTINGS, SettingResult, SettingsStore, read_tuning
from tare.model.errors import TareError, UsageError
from tare.model.units import format_count

_REFUSED_CODE = 1
_OPEN_FILES = "For Table III's 20000 open files of each program, set open_files = 20000 in [limits] of a suite."
_NAMESPACE_NOTE = (
    "Settings of net.* apply to this network namespace only; `tare run` also sets them in that of its client."
)


def tune(
    action: Annotated[Literal["show", "apply", "restore"], typer.Argument(help="show, apply or restore.")] = "show",
    as_json: AsJson = False,
) -> None:
    """Show, apply or restore machine settings that reduce noise.

    The settings are Table III of the 2017 paper, governor, turbo, ASLR, transparent huge pages and interrupts. `apply`
    first records the current values. `restore` writes them back, except values that somebody has changed since.
    """
    tuned = SettingsStore()
    if action == "show":
        print(_settings_json(tuned)) if as_json else _show(tuned)
        return
    if os.geteuid():
        raise UsageError("only root can change settings of the machine", f"sudo tare tune {action}")
    with lock_this_machine():
        (_apply if action == "apply" else _restore)(tuned, as_json)


def _settings_json(tuned: SettingsStore) -> str:
    states = zip(read_tuning(tuned.read), SETTINGS, strict=True)
    entries = [asdict(state) | {"why": setting.why, "source": setting.source} for state, setting in states]
    return json.dumps({"format": 1, "settings": entries}, indent=2)


def _show(tuned: SettingsStore) -> None:
    console = create_console()
    for state, setting in zip(read_tuning(tuned.read), SETTINGS, strict=True):
        sign = Text(*(("✓", "green") if state.fits else ("✗", "yellow")) if state.now else "-")
        now = state.now or "not on this machine"
        console.print(sign, Text(f"{state.name}: {now}; recommended: {state.wanted}"), soft_wrap=True)
        console.print(f"  {setting.why} ({setting.source})", style="dim", soft_wrap=True)
    console.print(_NAMESPACE_NOTE, _OPEN_FILES, sep="\n", soft_wrap=True)
    if not os.geteuid() and (count := len(tuned.changed_paths())):
        files = format_count(count, "file")
        console.print(f"tare has changed {files}; put {_pronoun(count)} back with: tare tune restore", soft_wrap=True)


def _apply(tuned: SettingsStore, as_json: bool) -> None:
    done = _print_changes(tuned.apply(), as_json)
    refused = [each for each in done if each.result == "refused"]
    if refused and len(refused) == len(done):
        hint = "in a container the kernel's settings cannot be changed: tune the machine itself"
        raise TareError(f"no setting could be changed: {refused[0].path}: {refused[0].reason}", hint)
    if not as_json:
        count = len(tuned.changed_paths())
        already = () if done else ("all settings already have the recommended values",)
        back = (f"put {_pronoun(count)} back with: tare tune restore",) if count else ()
        print_status(*already, *back)
    # The kernel refuses to move some interrupts, so a setting counts as refused only if all of its files are refused.
    if any(len(each.read_values(tuned.read)) == len(each.find_changes(tuned.read)) > 0 for each in SETTINGS):
        raise typer.Exit(_REFUSED_CODE)


def _restore(tuned: SettingsStore, as_json: bool) -> None:
    is_outdated = tuned.is_outdated()
    done = _print_changes(tuned.restore(), as_json)
    if refused := [each for each in done if each.result == "refused"]:
        what = "; ".join(f"{each.path}: {each.reason}" for each in refused)
        raise TareError(f"not all settings could be put back: {what}", f"see what is left to put back: {tuned.record}")
    if not done and not as_json:
        why = ": the machine has rebooted since, which reset its settings" if is_outdated else ""
        print_status(f"nothing to put back{why}")
    if any(each.result == "somebody else's" for each in done):
        raise typer.Exit(_REFUSED_CODE)


def _print_changes(changes: Iterable[SettingResult], as_json: bool) -> Sequence[SettingResult]:
    """Make the changes, and print them with equal changes on one line."""
    done = tuple(changes)
    if as_json:
        print(json.dumps({"format": 1, "done": [asdict(each) for each in done]}, indent=2))
        return done
    paths_by_line: dict[str, list[str]] = {}
    for each in done:
        paths_by_line.setdefault(_describe_change(each), []).append(each.path)
    for line, (path, *more) in paths_by_line.items():
        others = f" and {len(more)} more" if more else ""
        print_status(f"{path}{others}: {line}")
    return done


def _describe_change(done: SettingResult) -> str:
    match done.result:
        case "set" | "put back":
            return f"{done.before} → {done.now}"
        case "refused":
            return f"stays {done.now}: refused by the kernel: {done.reason}"
        case "gone":
            return f"is gone; it was {done.before}"
        case "somebody else's":
            return f"left at {done.now}, set by somebody else; it was {done.before} before tare"


def _pronoun(count: int) -> str:
    return "it" if count == 1 else "them"
