"""The screen of `tare doctor`: what can be used, the rest in groups by fix, and the noise in brief.

It has at most 22 lines of 80 columns, so that a terminal of 80x24 also shows the command and the next prompt. It counts
the reasons that do not fit; `tare doctor --all` has them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.text import Text

from tare.doctor.usable import Usable, installable, problems_but_root
from tare.hosts.distributions import fix_of
from tare.model.trials import Problem
from tare.telemetry.noise import Noise

LINES = 22
_WIDEST = 100
_SHORT_FIX = 32
_WITH_TITLE = 2  # lines: the title, and how many there are more
_LAST = "Every version, reason and fix: tare doctor --all"
_STYLES = {"noisy": "red", "watch": "yellow", "quiet": "green", "unknown": "dim"}


def screen(
    technologies: Sequence[Usable],
    own: Sequence[Problem],
    machine: Iterable[str],
    noise: Iterable[Noise],
    width: int,
) -> list[Text]:
    """Return the lines of the screen; `machine` describe the machine; `own` is what tare itself lacks."""
    width = min(width, _WIDEST)
    usable = [each for each in technologies if each.usable]
    rest = [each for each in technologies if not each.usable]
    fixed, command = installable(rest)
    yours = [each for each in rest if _lacks(each, "yours")]
    foreign = [each for each in rest if _lacks(each, "program")]
    only_root = [each for each in rest if not problems_but_root(each)]
    others = [each for each in rest if each not in (*fixed, *yours, *foreign, *only_root)]

    lines = [
        *(Text(_cut(line, width)) for line in machine),
        *_titled("tare itself", "; ".join(each.what for each in own), width, "bold red"),
        *_continued(fix_of(own), width),
        *_titled(f"Usable, {len(usable)} of {len(technologies)}", _names(usable), width, "bold green"),
        *(line for each in usable for line in _titled(each.name, _also(each), width)),
        *(line for each in technologies for advice in each.advice for line in _advised(each.name, advice, width)),
        *_titled("Needs root, as in `sudo tare doctor`", _names(only_root), width),
        *_titled("Installable", _names(fixed), width),
        *_continued(command, width),
        *_titled("Needs an image or an account of yours", _names(yours), width),
        *_titled("Needs a program of another project", _names(foreign), width),
    ]
    after = [*_noise(noise, width), Text(_LAST, style="dim")]
    return [*lines, *_reasons(others, width, LINES - len(lines) - len(after)), *after]


def _lacks(technology: Usable, missing: str) -> bool:
    return any(problem.missing == missing for problem in technology.problems)


def _names(technologies: Iterable[Usable]) -> str:
    return " ".join(each.name for each in technologies)


def _also(technology: Usable) -> str:
    return f"also {' '.join(technology.also)}" if technology.also else ""


def _titled(title: str, text: str, width: int, style: str = "bold") -> list[Text]:
    """Return a title and its text; nothing without a text."""
    if not text:
        return []
    first, *more = _wrapped(f"{title}: {text}", width, "  ")
    first = Text(first.plain.lstrip())
    first.stylize(style, 0, len(title) + 1)
    return [first, *more]


def _advised(name: str, advice: Problem, width: int) -> list[Text]:
    """Return what could be better, and the command for it."""
    return [*_titled(name, advice.what, width), *_continued(advice.fix, width)]


def _wrapped(text: str, width: int, indent: str) -> list[Text]:
    """Wrap at spaces only, so that names and commands can be copied."""
    wrapper = textwrap.TextWrapper(width, indent, indent, break_on_hyphens=False, break_long_words=False)
    return [Text(line) for line in wrapper.wrap(text)]


def _continued(command: str, width: int) -> list[Text]:
    """Wrap a command so that it can be copied to a shell."""
    lines = _wrapped(command, width - 2, "  ")
    return [*(Text(f"{line.plain} \\") for line in lines[:-1]), *lines[-1:]]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _reasons(technologies: Sequence[Usable], width: int, room: int) -> list[Text]:
    """Return the reasons why technologies cannot be used, a line each; count those that do not fit."""
    sharing: dict[str, list[tuple[str, str]]] = {}
    for each in technologies:
        problem = problems_but_root(each)[0]
        sharing.setdefault(problem.what, []).append((each.name, problem.fix))
    if not sharing:
        return []
    reasons = list(sharing.items())
    if room < _WITH_TITLE:
        return _titled("Not on this machine", f"{len(technologies)} more", width)
    kept = reasons if len(reasons) < room else reasons[: room - _WITH_TITLE]
    rows = [
        (_cut(" ".join(name for name, _ in those), width // 2), what, {fix for _, fix in those}) for what, those in kept
    ]
    column = max((len(names) for names, _, _ in rows if len(names) <= width // 4), default=0)
    lines = [Text(_reason(f"  {names:{column}}  ", what, fixes, width)) for names, what, fixes in rows]
    left = sum(len(those) for _, those in reasons[len(kept) :])
    return [Text("Not on this machine:", style="bold"), *lines, *([Text(f"  … and {left} more")] if left else [])]


def _reason(names: str, what: str, fixes: set[str], width: int) -> str:
    """Return one line, with the fix if it is short and the same for all."""
    fix = next(iter(fixes)) if len(fixes) == 1 else ""
    fixed = f" → {fix}" if fix and len(fix) <= _SHORT_FIX else ""
    return names + _cut(what, width - len(names) - len(fixed)) + fixed


def _noise(noise: Iterable[Noise], width: int) -> list[Text]:
    """Return the names for each verdict, with the values of those that are noisy or to watch."""
    by_verdict: dict[str, list[str]] = {verdict: [] for verdict in _STYLES}
    for each in noise:
        shown = f"{each.name} ({each.value})" if each.verdict in {"noisy", "watch"} else each.name
        by_verdict[each.verdict].append(shown)
    return [
        line
        for verdict, shown in by_verdict.items()
        for line in _titled(f"Noise, {verdict}", ", ".join(shown), width, _STYLES[verdict])
    ]
