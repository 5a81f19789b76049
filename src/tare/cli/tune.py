"""Command `tare tune`: settings of a machine that reduce noise.

A setting consists of one or more files of the kernel, such as a file for each CPU or each interrupt. Table III
is that of Plauth, Feinbube and Polze, "A Performance Evaluation of Lightweight Approaches to Virtualization", CLOUD
COMPUTING 2017 (docs/papers.md), with settings for many connections and open files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.text import Text

from tare.cli.arguments import AsJson
from tare.cli.console import create_console, print_status
from tare.hosts.lock import lock_this_machine
from tare.hosts.tuning import SETTINGS, FileResult, SettingsStore, read_tuning
from tare.model.errors import TareError, UsageError
from tare.model.units import format_count

_INCOMPLETE_CODE = 1  # exit code if a setting was refused, or a value of somebody else was not replaced
_OPEN_FILES = "For Table III's 20000 open files of each program, set open_files = 20000 in [limits] of a suite."
_NAMESPACE_NOTE = (
    "Settings of net.* apply to this network namespace only; `tare run` also sets them in that of its client."
)


def tune(
    action: Annotated[Literal["show", "apply", "restore"], typer.Argument(help="show, apply or restore.")] = "show",
    as_json: AsJson = False,
) -> None:
    """Show, apply or restore machine settings that reduce noise.

    The settings are Table III of the 2017 paper on lightweight approaches to virtualization, governor, turbo, ASLR,
    transparent huge pages and interrupts. `apply` first records the current values. `restore` writes them back, except
    values that somebody has changed since.
    """
    store = SettingsStore()
    if action == "show":
        print(_settings_json(store)) if as_json else _show(store)
        return
    if os.geteuid():
        raise UsageError("only root can change settings of the machine", f"sudo tare tune {action}")
    with lock_this_machine():
        (_apply if action == "apply" else _restore)(store, as_json)


def _settings_json(store: SettingsStore) -> str:
    states = zip(read_tuning(store.read), SETTINGS, strict=True)
    entries = [asdict(state) | {"why": setting.why, "source": setting.source} for state, setting in states]
    return json.dumps({"format": 1, "settings": entries}, indent=2)


def _show(store: SettingsStore) -> None:
    console = create_console()
    for state, setting in zip(read_tuning(store.read), SETTINGS, strict=True):
        sign = Text(*(("✓", "green") if state.fits else ("✗", "yellow")) if state.now else "-")
        now = state.now or "not on this machine"
        console.print(sign, Text(f"{state.name}: {now}; recommended: {state.wanted}"), soft_wrap=True)
        console.print(f"  {setting.why} ({setting.source})", style="dim", soft_wrap=True)
    console.print(_NAMESPACE_NOTE, _OPEN_FILES, sep="\n", soft_wrap=True)
    if not os.geteuid() and (count := len(store.changed_paths())):
        files = format_count(count, "file")
        console.print(f"tare has changed {files}; put {_pronoun(count)} back with: tare tune restore", soft_wrap=True)


def _apply(store: SettingsStore, as_json: bool) -> None:
    results = tuple(store.apply())
    _print_results(results, as_json)
    refused = [each for each in results if each.result == "refused"]
    if refused and len(refused) == len(results):
        hint = "in a container the kernel's settings cannot be changed: tune the machine itself"
        raise TareError(f"no setting could be changed: {refused[0].path}: {refused[0].reason}", hint)
    if not as_json:
        count = len(store.changed_paths())
        already = () if results else ("all settings already have the recommended values",)
        back = (f"put {_pronoun(count)} back with: tare tune restore",) if count else ()
        print_status(*already, *back)
    # A setting is refused only if every one of its files still needs a change. The setting for interrupts has a file
    # for each interrupt, and the kernel refuses to move some of them.
    if any(len(each.read_values(store.read)) == len(each.find_changes(store.read)) > 0 for each in SETTINGS):
        raise typer.Exit(_INCOMPLETE_CODE)


def _restore(store: SettingsStore, as_json: bool) -> None:
    has_rebooted = store.is_outdated()  # a reboot makes the record of changed values outdated
    results = tuple(store.restore())
    _print_results(results, as_json)
    if refused := [each for each in results if each.result == "refused"]:
        what = "; ".join(f"{each.path}: {each.reason}" for each in refused)
        raise TareError(f"not all settings could be put back: {what}", f"see what is left to put back: {store.record}")
    if not results and not as_json:
        why = ": the machine has rebooted since, which reset its settings" if has_rebooted else ""
        print_status(f"nothing to put back{why}")
    if any(each.result == "somebody else's" for each in results):
        raise typer.Exit(_INCOMPLETE_CODE)


def _print_results(results: Sequence[FileResult], as_json: bool) -> None:
    """Print the result of each file as JSON, or as text with one line for all files that have equal results."""
    if as_json:
        print(json.dumps({"format": 1, "done": [asdict(each) for each in results]}, indent=2))
        return
    paths_by_text: dict[str, list[str]] = {}
    for each in results:
        paths_by_text.setdefault(_describe_result(each), []).append(each.path)
    for text, (path, *more) in paths_by_text.items():
        others = f" and {len(more)} more" if more else ""
        print_status(f"{path}{others}: {text}")


def _describe_result(file: FileResult) -> str:
    match file.result:
        case "set" | "put back":
            return f"{file.before} → {file.now}"
        case "refused":
            return f"stays {file.now}: refused by the kernel: {file.reason}"
        case "gone":
            return f"is gone; it was {file.before}"
        case "somebody else's":
            return f"left at {file.now}, set by somebody else; it was {file.before} before tare"


def _pronoun(count: int) -> str:
    return "it" if count == 1 else "them"
