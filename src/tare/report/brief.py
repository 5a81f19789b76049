"""The answer for a person who has one minute: what costs nothing, what costs what, what is open, what to distrust.

No sentence here needs the page on the method. What the full answer says beside it is in `tare.report.words`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tare.model.machines import Facts
from tare.report.numbers import TIMES_FROM, cut, listing, percent, resolved
from tare.report.words import place
from tare.statistics.anytime import least_count
from tare.statistics.cells import CautionCount, Cell, Standing
from tare.statistics.summary import Summary

_NAMED = 3  # in a sentence
_LINES = 8  # of a part
_REASON = 110
_TWICE = 2.0  # from here on a factor is easier to read than a percentage
# What is doubted, without the words of the method; other kinds of cautions tell it plainly themselves. A baseline that
# differs from itself, and what beats bare metal, have lines of their own.
_IN_PLAIN_WORDS = {
    "busy-when-idle": "it went on working while others were measured, which may have slowed them",
    "cached": "memory answered in place of the disk, so the values are not the disk's alone",
    "client-bound": "what sent the requests was at its limit, so the server may be faster than this",
    "file-system-differs": "its files lay on another file system than those that it is compared with",
    "host-network-stack": "gVisor used this machine's network, so what its own costs is not in the numbers",
    "in-groups": "not all fitted into memory at once, so it was not measured beside each of the others",
    "never-run": "tare's own tests never had the real thing, only a program that stands in for it",
    "not-pinned": "the CPUs of Xen's first domain may have moved about, so chance may be larger than it looks",
    "resumed-block": "the run was stopped and resumed, so values of different times are compared",
    "stalls": "it, or what it is compared with, stood still now and then; the percentages are of the usual speed",
    "telemetry": "what the machine did meanwhile is not known throughout, so a doubt may be missing here",
    "correlated-blocks": "each repetition resembles the one before it, so chance may be larger than it looks",
    "coarse-values": "the values come in large steps, so chance may be larger than it looks",
    "waiting": "server and load did nothing for most of the time, so what the stacks cost hardly shows",
    "unlike-itself": "",
    "faster-than-bare-metal": "",
}


@dataclass(frozen=True)
class Line:
    """What is said of stacks, or of a workload: their names, how many more there are, and what follows.

    `kind` is that of the caution that it is about.
    """

    names: tuple[str, ...]
    text: str
    kind: str = ""
    more: int = 0


@dataclass(frozen=True)
class Part:
    """A question of the reader, with its answer: lines, or one sentence where there are none; and a remark."""

    title: str
    lines: tuple[Line, ...]
    otherwise: str
    remark: str = ""
    more: int = 0


@dataclass(frozen=True)
class Brief:
    """The first screen: what was measured, in a sentence, and the four parts."""

    opening: str
    free: Part
    costs: Part
    untold: Part
    doubts: Part

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts, in the order in which they are read."""
        return (self.free, self.costs, self.untold, self.doubts)


def brief(summary: Summary, machine: Facts) -> Brief:
    """Describe what a run found."""
    asked = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    baseline, margin = summary.baseline, percent(summary.margin)
    costs = list(_costs(summary, asked))
    return Brief(
        opening=_opening(summary, machine),
        free=_part("No measurable cost", _free(summary, asked), f"Nothing was shown to cost less than {margin}."),
        costs=_part(
            "Measurable cost",
            costs,
            f"Nothing was shown to cost anything beside {baseline}.",
            _read(summary) if costs else "",
        ),
        untold=_part(
            "Undecided",
            [*_undecided(summary, asked), *_too_few(summary), *_without(summary, asked)],
            f"Nothing: every stack could be compared with {baseline}.",
            _noise(summary),
        ),
        doubts=_part("Read with care", _doubts(summary, asked), "Nothing was found that speaks against the numbers."),
    )


def roughly(ratio: float) -> str:
    """Write a ratio as a person says it: `68 %`, or from twice on `17 times`."""
    if ratio >= _TWICE:
        return f"{_few_digits(ratio)} times"
    return f"{_in_percent(ratio)} %"


def bounds(low: float | None, high: float | None, ratio: float) -> str:
    """Write an interval in words, in the terms of its ratio: `64 to 71 %`; empty where there is none."""
    if low is None or high is None:
        return ""
    if ratio >= _TWICE:
        return _ends(_few_digits(low), _few_digits(high), " times")
    if high >= TIMES_FROM:
        return f"{_in_percent(low)} % to {_few_digits(high)} times"
    return _ends(_in_percent(low), _in_percent(high), " %")


def _ends(low: str, high: str, unit: str) -> str:
    return f"about {low}{unit}" if low == high else f"{low} to {high}{unit}"


def against(cell: Cell, baseline: str, *, is_time: bool = True) -> str:
    """Describe how a stack stands to the baseline, with the interval in words: `68 % of native's speed in nginx (…)`.

    Of what is better if it is less, it says how much it is, or how long if it `is_time`.
    """
    ratio = cell.ratio or 1.0
    if cell.better == "higher":
        what = f"{'' if ratio >= _TWICE else 'of '}{baseline}'s speed"
    else:
        what = f"as {'long' if is_time else 'much'} as {baseline}"
    return f"{roughly(ratio)} {what} in {cell.name} ({bounds(cell.low, cell.high, ratio)})"


def _part(title: str, lines: Iterable[Line], otherwise: str, remark: str = "") -> Part:
    every = tuple(lines)
    return Part(title, every[:_LINES], otherwise, remark, max(len(every) - _LINES, 0))


def _opening(summary: Summary, machine: Facts) -> str:
    stacks = sum(stack not in (summary.baseline, summary.control) for stack in summary.stacks)
    where = f" ({place(machine)})" if place(machine) else ""
    several = _count(stacks, "stack"), _count(len(summary.workloads), "workload")
    return f"{several[0]} with {several[1]} on this machine{where}, each compared with {summary.baseline}."


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _free(summary: Summary, asked: Sequence[Cell]) -> Iterator[Line]:
    """Name what is as fast as the baseline, or faster without a doubt that it cannot be."""
    margin = percent(summary.margin)
    for stack, cells in _by_stack(summary, asked):
        texts = []
        alike = [cell.name for cell in cells if cell.verdict == "equivalent"]
        standing = _standing(summary, stack)
        if alike:
            texts.append(f"less than {margin} away from {summary.baseline} in {_some(alike)}")
        elif standing and standing.verdict == "equivalent":
            texts.append(f"less than {margin} away from {summary.baseline} over {listing(summary.overall.workloads)}")
        gains = [cell for cell in cells if cell.verdict == "better" and not cell.has_caution("faster-than-bare-metal")]
        texts += [f"better: {against(cell, summary.baseline, is_time=_is_time(cell))}" for cell in gains]
        if texts:
            yield Line((stack,), "; ".join(texts))


def _costs(summary: Summary, asked: Sequence[Cell]) -> Iterator[Line]:
    """Describe what each stack costs, the cheapest first."""
    found = []
    for stack, cells in _by_stack(summary, asked):
        worse = [cell for cell in cells if cell.verdict == "worse"]
        standing = _standing(summary, stack)
        if worse or (standing and standing.verdict == "worse"):
            found.append((_speed(standing, worse), Line((stack,), _cost(summary, standing, worse))))
    yield from (line for _, line in sorted(found, key=lambda each: -each[0]))


def _cost(summary: Summary, standing: Standing | None, worse: Sequence[Cell]) -> str:
    """Return the speed over all, the extremes of single workloads, and what is no speed."""
    counting = sorted(
        (cell for cell in worse if summary.rule(cell.name).overall), key=lambda cell: -_goodness(cell.ratio, cell)
    )
    beside = [cell for cell in worse if not summary.rule(cell.name).overall]
    texts = []
    if standing and standing.verdict == "worse" and len(summary.overall.workloads) > 1:
        speed = f"{roughly(standing.speed)} of {summary.baseline}'s speed"
        texts.append(f"{speed} ({bounds(standing.low, standing.high, standing.speed)})")
        if len(counting) > 1:
            first, last = (f"{roughly(cell.ratio or 1.0)} in {cell.name}" for cell in (counting[0], counting[-1]))
            texts[0] += f", from {first} to {last}"
    else:
        texts += [against(cell, summary.baseline, is_time=_is_time(cell)) for cell in counting[:_NAMED]]
    texts += [against(cell, summary.baseline, is_time=_is_time(cell)) for cell in beside[:_NAMED]]
    left = max(len(beside) - _NAMED, 0)
    return "; ".join(texts) + (f"; and in {left} more" if left else "")


def _read(summary: Summary) -> str:
    """Describe how to read the lines."""
    read = "In brackets is where the true value lies; of 100 such statements, 95 hold."
    names = summary.overall.workloads
    if len(names) < 2 or not any(each.verdict == "worse" for each in summary.overall.standings):
        return read
    inverse = "; of what is better if it is less, the inverse counts" if _has_inverse(summary, names) else ""
    return f"{read} Speed without a workload's name is that over {listing(names)} together{inverse}."


def _has_inverse(summary: Summary, names: Sequence[str]) -> bool:
    return any(summary.rule(name).better == "lower" for name in names)


def _undecided(summary: Summary, asked: Sequence[Cell]) -> Iterator[Line]:
    """Name what may cost something or nothing, with the interval."""
    for stack, cells in _by_stack(summary, asked):
        unsure = [cell for cell in cells if cell.verdict == "undecided"]
        if unsure:
            texts = [f"{cell.name} ({bounds(cell.low, cell.high, cell.ratio or 1.0)})" for cell in unsure]
            yield Line((stack,), f"may cost something or nothing in {_some(texts)}")


def _too_few(summary: Summary) -> Iterator[Line]:
    """Name the headlines that were measured too few times, for all stacks or for some of them."""
    need = f"{least_count()} are needed"
    for rule in summary.rules:
        cells = [cell for cell in summary.headlines if cell.headline == rule.name and cell.stack != summary.control]
        few = [cell for cell in cells if cell.verdict == "too few blocks"]
        if not few:
            continue
        most = max(cell.n for cell in few)
        all_of_it = not any(cell.low is not None for cell in cells)
        whom = "" if all_of_it else f" on {_some([cell.stack for cell in few])}"
        how_often = f"was measured {_count(most, 'time')}{whom}, {need}"
        yield Line((rule.name,), how_often if most else f"was never measured{whom} together with {summary.baseline}")


def _without(summary: Summary, asked: Sequence[Cell]) -> Iterator[Line]:
    """Describe what has no value, and why; the same reason once."""
    reasons: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for stack, cells in _by_stack(summary, asked):
        by_reason: dict[str, list[str]] = {}
        for cell in cells:
            if cell.verdict == "no value":
                by_reason.setdefault(_why(cell), []).append(cell.name)
        for why, names in by_reason.items():
            where = () if len(names) == len(cells) else tuple(names)
            reasons.setdefault((why, where), []).append(stack)
    for (why, where), stacks in reasons.items():
        yield _line(stacks, f"{f'in {_some(where)}: ' if where else ''}{why}")


def _why(cell: Cell) -> str:
    if cell.skipped:
        return f"did not run: {cut(cell.skipped.removeprefix(f'{cell.stack}: '), _REASON)}"
    if cell.failures and not cell.trials:
        return f"failed: {cut(cell.failures[0].reason, _REASON)}"
    return cut("; ".join(cell.notes), _REASON) or "no value"


def _noise(summary: Summary) -> str:
    """Describe which differences the noise of the machine hides, by the baseline compared with itself."""
    cells = [cell for cell in summary.headlines if cell.stack == summary.control and cell.resolution is not None]
    texts = [f"{resolved(cell).removeprefix('± ')} in {cell.name}" for cell in cells]
    return f"Noise of this machine hid what is smaller than {listing(tuple(texts))}." if texts else ""


def _doubts(summary: Summary, asked: Sequence[Cell]) -> Iterator[Line]:
    """Name what speaks against numbers: first what cannot be, then each kind of caution, then close decisions."""
    for cell in asked:
        if cell.has_caution("faster-than-bare-metal"):
            what = against(cell, summary.baseline, is_time=_is_time(cell))
            text = f"{what}: nothing is faster than bare metal, so something else differs"
            yield Line((cell.stack,), text, "faster-than-bare-metal")
    for cell in summary.headlines:
        if cell.stack == summary.control and cell.low and cell.high and not cell.low <= 1 <= cell.high:
            difference = f"{roughly(cell.ratio or 1.0)} of itself in {cell.name}"
            yield Line((summary.baseline,), f"{difference}, measured twice: differences of that size may be chance")
    yield from _cautions(summary)
    thin = [f"{cell.stack} in {cell.name}" for cell in asked if cell.decided and not cell.is_firm]
    if thin:
        yield _line(thin, "close decisions: not robust to noise that lasts from block to block")


def _cautions(summary: Summary) -> Iterator[Line]:
    """Yield a line for each kind of caution, those of many values first."""
    by_kind: dict[str, dict[tuple[str, str], CautionCount]] = {}
    for cell in summary.headlines:
        for caution in cell.cautions:
            if caution.stack == cell.stack != summary.control:
                by_kind.setdefault(caution.kind, {})[cell.name, cell.stack] = caution
    for kind, cells in sorted(by_kind.items(), key=lambda each: -len(each[1])):
        names = list(dict.fromkeys(name for name, _ in cells))
        where = "" if len(names) == len(summary.rules) else f"in {_some(names)}: "
        usual = max(cells.values(), key=lambda caution: caution.trials).texts[0]
        if text := _IN_PLAIN_WORDS.get(kind, usual):
            yield _line(list(dict.fromkeys(stack for _, stack in cells)), f"{where}{text}", kind)


def _line(names: Sequence[str], text: str, kind: str = "") -> Line:
    more = max(len(names) - _NAMED, 0)
    return Line(tuple(names[: _NAMED + (more == 1)]), text, kind, more if more > 1 else 0)


def _by_stack(summary: Summary, asked: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    own: dict[str, list[Cell]] = {stack: [] for stack in summary.stacks}
    for cell in asked:
        own[cell.stack].append(cell)
    yield from ((stack, cells) for stack, cells in own.items() if cells)


def _standing(summary: Summary, stack: str) -> Standing | None:
    return next((each for each in summary.overall.standings if each.stack == stack), None)


def _speed(standing: Standing | None, worse: Sequence[Cell]) -> float:
    """Return what stacks are ordered by: their speed over all, or the mean of what they lose."""
    if standing:
        return math.log(standing.speed)
    return sum(math.log(_goodness(cell.ratio, cell)) for cell in worse) / len(worse)


def _goodness(ratio: float | None, cell: Cell) -> float:
    ratio = ratio or 1.0
    return ratio if cell.better == "higher" else 1 / ratio


def _is_time(cell: Cell) -> bool:
    return cell.unit == "s"


def _some(names: Sequence[str]) -> str:
    more = (f"{len(names) - _NAMED} more",) if len(names) > _NAMED + 1 else ()
    return listing((*names[:_NAMED], *more) if more else tuple(names))


def _few_digits(ratio: float) -> str:
    return f"{float(f'{ratio:.{3 if ratio >= 100 else 2}g}'):,.10g}"


def _in_percent(ratio: float) -> str:
    """Write percent without decimals, but where they tell something from 0 or from 100."""
    share = ratio * 100
    if share < 10:
        return f"{share:.2g}"
    return f"{share:.1f}" if round(share) == 100 and abs(share - 100) >= 0.05 else f"{share:.0f}"
