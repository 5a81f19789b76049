"""Terminal output for a fleet: tables and lines of its plan and of the progress of its machines."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tare.features.fleet.comparison import FleetMachineType
from tare.features.fleet.controller import estimate_measuring_seconds, is_uploaded
from tare.features.fleet.fleet_text import type_sentence
from tare.features.fleet.state import Fleet, Member, format_blocks
from tare.model.units import format_duration
from tare.report.numbers import strip_control_characters
from tare.suites.suite import Suite
from tare.suites.user_files import list_user_files

_TIME_LEFT = re.compile(r"^(?P<what>.*), about (?P<left>.+) left$")
_STYLES = {"failed": "red", "lost": "red", "collected": "green", "ended": "green"}
_BAR_WIDTH = 16
_MAX_STATE_CHARACTERS = 60
_MIN_MACHINES = 2


def plan_table(suite: Suite, fleet: Fleet) -> Table:
    """Return the table of a plan: the blocks of each machine, with the estimated time."""
    table = Table(box=None, pad_edge=False)
    for column in ("machine", "type", "blocks", "trials", "about"):
        table.add_column(column)
    for each in fleet.members.values():
        if each.reason:
            table.add_row(each.name, "-", Text(strip_control_characters(each.reason), style="red"), "", "")
        else:
            about = format_duration(round(estimate_measuring_seconds(suite, each.blocks))) if each.blocks else "-"
            table.add_row(each.name, each.kind, format_blocks(each.blocks) or "none", str(each.trials), about)
    return table


def plan_lines(suite: Suite, fleet: Fleet, machine_types: Sequence[FleetMachineType]) -> Iterator[str]:
    """Yield notes on a plan: machine types, too few machines or blocks, files that are not uploaded, total time."""
    for machine_type in machine_types:
        yield type_sentence(machine_type)
        blocks = [len(each.blocks) for each in fleet.of_type(machine_type.name) if not each.reason]
        if len(blocks) < _MIN_MACHINES:
            yield f"type {machine_type.name}: no interval for other machines of the type: add a second machine"
        elif min(blocks) < _MIN_MACHINES:
            few = f"{suite.blocks} blocks are few for {len(blocks)} machines"
            yield f"type {machine_type.name}: {few}: set blocks = {2 * len(blocks)}"
    for path in list_user_files(suite):
        if not is_uploaded(suite, path):
            file = strip_control_characters(str(path))
            yield f"copy {file} to the machines: tare copies only files below the suite's folder"
    longest = max(
        (estimate_measuring_seconds(suite, each.blocks) for each in fleet.members.values() if each.blocks), default=0.0
    )
    yield f"about {format_duration(round(longest))} to measure, after installing and building images"


def state_table(fleet: Fleet) -> Table:
    """Return the table of the machines' progress."""
    table = Table(box=None, pad_edge=False)
    for column in ("machine", "type", "blocks", "trials", "", "left", "now", "seen"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for each in fleet.members.values():
        text, left = _split_last_line(each)
        table.add_row(
            each.name,
            each.kind,
            format_blocks(each.blocks),
            f"{each.done}/{each.trials}" if each.trials else "",
            ProgressBar(total=max(1, each.trials), completed=each.done, width=_BAR_WIDTH),
            left,
            Text(
                f"{each.state}: {text}"[:_MAX_STATE_CHARACTERS] if text else each.state,
                style=_STYLES.get(each.state, ""),
            ),
            _format_last_seen(each),
        )
    return table


def _split_last_line(member: Member) -> tuple[str, str]:
    """Return the last line of a machine and its estimated time left, both "" if unknown."""
    if member.reason:
        return strip_control_characters(member.reason), ""
    if member.state != "runs":
        return strip_control_characters(member.said) if member.state == "asked" else "", ""
    match = _TIME_LEFT.match(member.said)
    return (
        (strip_control_characters(match["what"]), strip_control_characters(match["left"]))
        if match
        else (strip_control_characters(member.said), "")
    )


def _format_last_seen(member: Member) -> str:
    return f"{max(0, round(time.time() - member.seen))} s ago" if member.seen and member.state == "runs" else ""


def log_line(member: Member) -> tuple[str, str]:
    """Return the subject of a log line (a machine, or the preparation of all), and the line, "" for no line."""
    if member.state == "asked" and not member.reason:
        return "preparing", f"preparing: {member.said}" if member.said else ""
    text = member.reason or (member.said if member.is_running else "")
    return member.name, f"{member.name}: {member.state}: {text}".removesuffix(": ")
