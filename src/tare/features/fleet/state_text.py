"""What a fleet is to measure, and how far each machine is: tables and lines for a terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tare.features.fleet.comparison import Kind
from tare.features.fleet.controller import is_carried, seconds_of
from tare.features.fleet.fleet_text import kind_sentence
from tare.features.fleet.state import Fleet, Member, written
from tare.model.units import format_duration
from tare.report.numbers import clean
from tare.suites.suite import Suite
from tare.suites.user_files import own_files

_LEFT = re.compile(r"^(?P<what>.*), about (?P<left>.+) left$")
_STYLES = {"failed": "red", "lost": "red", "collected": "green", "ended": "green"}
_BAR = 16
_SAID = 60
_FEW = 2


def plan_table(suite: Suite, fleet: Fleet) -> Table:
    """Return what each machine is to measure, and for about how long."""
    table = Table(box=None, pad_edge=False)
    for column in ("machine", "kind", "blocks", "trials", "about"):
        table.add_column(column)
    for each in fleet.members.values():
        if each.reason:
            table.add_row(each.name, "-", Text(clean(each.reason), style="red"), "", "")
        else:
            about = format_duration(round(seconds_of(suite, each.blocks))) if each.blocks else "-"
            table.add_row(each.name, each.kind, written(each.blocks) or "none", str(each.trials), about)
    return table


def lines_of(suite: Suite, fleet: Fleet, kinds: Sequence[Kind]) -> Iterator[str]:
    """Yield what is to be known of the kinds of machines, and of the suite's files."""
    for kind in kinds:
        yield kind_sentence(kind)
        blocks = [len(each.blocks) for each in fleet.of_kind(kind.name) if not each.reason]
        if len(blocks) < _FEW:
            yield f"kind {kind.name}: one machine has no interval for others of its kind: {_FEW} have"
        elif min(blocks) < _FEW:
            yield f"kind {kind.name}: {suite.blocks} blocks are few for {len(blocks)} machines: have {2 * len(blocks)}"
    for path in own_files(suite):
        if not is_carried(suite, path):
            yield f"the machines must have {clean(str(path))}: only what is below the suite's folder is copied"
    longest = max((seconds_of(suite, each.blocks) for each in fleet.members.values() if each.blocks), default=0.0)
    yield f"about {format_duration(round(longest))} of measuring; making images and installing come before it"


def state_table(fleet: Fleet) -> Table:
    """Return how far each machine is."""
    table = Table(box=None, pad_edge=False)
    for column in ("machine", "kind", "blocks", "trials", "", "left", "now", "seen"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for each in fleet.members.values():
        what, left = _said(each)
        table.add_row(
            each.name,
            each.kind,
            written(each.blocks),
            f"{each.done}/{each.trials}" if each.trials else "",
            ProgressBar(total=max(1, each.trials), completed=each.done, width=_BAR),
            left,
            Text(f"{each.state}: {what}"[:_SAID] if what else each.state, style=_STYLES.get(each.state, "")),
            _seen(each),
        )
    return table


def _said(member: Member) -> tuple[str, str]:
    """Return what a machine said last, and the time left that it estimates."""
    if member.reason:
        return clean(member.reason), ""
    if member.state != "runs":
        return clean(member.said) if member.state == "asked" else "", ""
    match = _LEFT.match(member.said)
    return (clean(match["what"]), clean(match["left"])) if match else (clean(member.said), "")


def _seen(member: Member) -> str:
    return f"{max(0, round(time.time() - member.seen))} s ago" if member.seen and member.state == "runs" else ""


def log_line(each: Member) -> tuple[str, str]:
    """Return of whom a log's line is, a machine or the preparation of all, and the line; empty for nothing to say."""
    if each.state == "asked" and not each.reason:
        return "preparing", f"preparing: {each.said}" if each.said else ""
    what = each.reason or (each.said if each.goes_on else "")
    return each.name, f"{each.name}: {each.state}: {what}".removesuffix(": ")
