"""The bar of the live page: what a run does now, how far it is, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from tare.live.board import Now
from tare.units import format_duration

_BAR = Markup(
    '<div id="live" role="region" aria-label="The run now" data-page="{page}" data-state="{state}"'
    ' data-run="{run}">{content}</div>'
)
_PROGRESS = Markup(
    '<progress max="1000" value="{done}" aria-label="Share of the time that has passed">{percent} %</progress>'
)
_LATEST = Markup("<details{opened}><summary>What turns show now</summary><dl>{rows}</dl></details>")
_ROW = Markup("<dt>{stack}</dt><dd>{text}</dd>")
_PART = Markup('<span class="{look}">{text}</span>')


@dataclass(frozen=True)
class Ended:
    """How a run ended, and the file of its report; empty if it has none."""

    why: str
    report: str = ""


@dataclass(frozen=True)
class Going:
    """How a run goes on at a moment; `folder` is empty as long as there is none."""

    now: Now | None
    moment: float
    folder: str = ""
    trouble: str = ""


def bar(page: int, going: Going) -> str:
    """Write the bar of a run that goes on; `page` is the number of the page that is shown."""
    parts = (*_progress(going.now, going.moment), *((_part("trouble", going.trouble),) if going.trouble else ()))
    return _BAR.format(page=page, state="running", run=going.folder, content=Markup(" ").join(parts))


def last_bar(page: int, ended: Ended) -> str:
    """Write the bar of a run that has ended, with the command that served it."""
    where = f"Its report is {ended.report}." if ended.report else "It has no report."
    words = f"{where} This page stays as it is until you close it; its links to files lead nowhere any more."
    parts = (_part("now", f"The run has ended: {ended.why}."), _part("next", words))
    return _BAR.format(page=page, state="ended", run="", content=Markup(" ").join(parts))


def _progress(now: Now | None, moment: float) -> tuple[Markup, ...]:
    if now is None:
        return (_part("now", "The run begins: nothing is measured yet."),)
    running = max(0.0, moment - now.since)
    spent, left = now.spent_seconds + running, max(0.0, now.left_seconds - running)
    share = spent / (spent + left) if spent + left else 0.0
    return (
        _PROGRESS.format(done=round(1000 * share), percent=round(100 * share)),
        _part("now", _doing(now, running)),
        _part("next", _after(now)),
        _part("count", f"block {now.block} of {now.blocks}"),
        _part("left", f"about {format_duration(round(left))} left"),
        *_latest(now),
    )


def _latest(now: Now) -> tuple[Markup, ...]:
    """List the latest turns; they are open in the first block, when the page has no values."""
    rows = Markup("").join(_ROW.format(stack=stack, text=text) for stack, text in now.latest)
    return (_LATEST.format(opened=Markup(" open") if now.block == 1 else "", rows=rows),) if rows else ()


def _doing(now: Now, running: float) -> str:
    if now.turn:
        place = f"turn {min(now.turn, now.turns)} of {now.turns}" if now.turns else f"turn {now.turn}"
        return f"{now.workload}, {place}"
    return f"{now.stack}, {now.workload}, {running:.0f} s"


def _after(now: Now) -> str:
    if now.turn:
        return "1 stack takes turns" if now.stacks == 1 else f"{now.stacks} stacks in turns"
    return f"next {now.following}" if now.following else "the last one"


def _part(look: str, text: str) -> Markup:
    return _PART.format(look=look, text=text)
