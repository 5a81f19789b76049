"""How right predictions are: what was measured beside what was predicted without it, and the page about it. Pure.

Each application is predicted in each stack from its profile and a price list. The correction has learned from the other
applications alone (leave one out). Two simple rules stand beside it: the geometric mean of the others in the stack, and
the other application whose basket is nearest.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import scipy

from tare.features.advise.advice import Advice, AdviceOptions, ReferenceRun, advise
from tare.features.advise.application_profile import ApplicationProfile
from tare.features.advise.cost_model import CostEstimate
from tare.model.run_folder import Run
from tare.statistics.summarize import summarize

ADVICE, BILL, MEAN, NEAREST = METHODS = ("tare advise", "bill alone", "mean of the others", "nearest application")
BEGIN, END = "<!-- make validate: begin -->\n", "<!-- make validate: end -->\n"
_SMALL = 2.0  # times bare metal: above, errors count relative to the cost
_GOOD = 0.02
_WORST = 12  # cells that the page explains
_HEAD = """\
In {stacks}, {inside} of the intervals of 90 % hold what was measured. The errors are medians over cells, in points of
bare metal or relative to what was measured. The stack that is named first may cost at most 2 % more than the one that
was measured cheapest. Where measurements are noisy, that one is so by chance: the next column counts the first stacks
that are not shown to cost more, as the intervals of the two overlap. The rank correlation is the median of Spearman's
over applications."""
_LEGEND = """\
Each cell has the measured cost in times that of bare metal, then the predicted one with its interval of 90 %. An
exclamation mark is outside of it. A question mark is where `tare advise` cannot tell."""


@dataclass(frozen=True)
class Cell:
    """An application in a stack; all costs are times those of bare metal.

    `advised` is what advice says, `is_ranked` whether it would say so, `predicted` has the estimate of each method.
    `items` are the largest of the bill, with their shares of the time on bare metal.
    """

    application: str
    stack: str
    measured: CostEstimate
    advised: CostEstimate
    is_ranked: bool
    predicted: Mapping[str, float]
    lines: tuple[tuple[str, float], ...] = ()

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured cost lies inside of the interval; None without one."""
        low, high = self.advised.low, self.advised.high
        return None if low is None or high is None else low <= self.measured.value <= high


@dataclass(frozen=True)
class Choice:
    """The stack that a method names first, the one measured cheapest, and how much more the first costs, as a share.

    `is_sure` says whether their intervals lie apart by more than 2 %; without it, the cheapest may be so by chance.
    """

    first: str
    cheapest: str
    regret: float
    is_sure: bool = False


@dataclass(frozen=True)
class Score:
    """How right a method is; None where nothing tells.

    `error` is the median in times bare metal, of cells below 2; `relative` is the median relative error above. `good`
    is the share of the `chosen` applications, those with a first stack, where it costs at most 2 % more than the
    cheapest; `possible` that where it is not sure to cost more. `correlation` is the median over applications of
    Spearman's.
    """

    error: float | None
    relative: float | None
    good: float | None
    possible: float | None
    chosen: int
    correlation: float | None


def times_of(run: Run) -> dict[str, dict[str, CostEstimate]]:
    """Return the time of each stack over that of bare metal, by workload, which has one headline."""
    found: dict[str, dict[str, CostEstimate]] = {}
    for cell in summarize(run).headlines:
        if cell.ratio is None or cell.stack in {run.record.baseline, run.record.control}:
            continue
        own = found.setdefault(cell.workload, {})
        if cell.stack in own:
            raise ValueError(f"{cell.workload}: it has more than one headline")
        low, high = ((1 / end if end else None) for end in (cell.high, cell.low))
        is_time = cell.better == "lower"
        own[cell.stack] = (
            CostEstimate(cell.ratio, cell.low, cell.high) if is_time else CostEstimate(1 / cell.ratio, low, high)
        )
    return found


def cells_of(
    applications: Mapping[str, ApplicationProfile], prices: Run, times: Mapping[str, Mapping[str, CostEstimate]]
) -> tuple[Cell, ...]:
    """Predict each application in each stack that it was measured in, from a price list and the other applications."""
    known = {
        name: ReferenceRun(name, of.operations, times[name], of.machine)
        for name, of in applications.items()
        if name in times
    }
    advices = {
        name: advise(
            applications[name], prices, AdviceOptions(), [each for each in known.values() if each.name != name]
        )
        for name in known
    }
    shares = {name: shares_of_time(each) for name, each in advices.items()}
    found = []
    for name, advice in advices.items():
        for each in advice.candidates:
            others = {
                other: it.relative_times[each.stack].value
                for other, it in known.items()
                if each.stack in it.relative_times
            }
            if others.pop(name, None) is None or not others:
                continue
            mean = math.exp(statistics.fmean(map(math.log, others.values())))
            near = others[nearest(shares[name], {other: shares[other] for other in others})]
            predicted = {ADVICE: each.cost.value, BILL: each.breakdown.cost.value, MEAN: mean, NEAREST: near}
            lines = tuple((line.title, line.share.value) for line in each.cost_items[:3])
            is_ranked = each.decision == "ranked"
            found.append(Cell(name, each.stack, times[name][each.stack], each.cost, is_ranked, predicted, lines))
    return tuple(found)


def shares_of_time(advice: Advice) -> dict[str, float]:
    """Return the time on bare metal that prices give each kind of work, as a share of all of it."""
    return {
        line.kind: line.count * line.price / advice.application.operations.elapsed_seconds
        for candidate in advice.candidates
        for line in candidate.breakdown.items
        if line.count is not None and line.price is not None
    }


def nearest(own: Mapping[str, float], others: Mapping[str, Mapping[str, float]]) -> str:
    """Return whose shares of time differ from these by the least in sum."""
    kinds = {*own, *(kind for each in others.values() for kind in each)}
    return min(others, key=lambda name: sum(abs(own.get(kind, 0.0) - others[name].get(kind, 0.0)) for kind in kinds))


def coverage(cells: Sequence[Cell]) -> float | None:
    """Return the share of intervals that hold what was measured."""
    inside = [each.is_inside for each in cells if each.is_inside is not None]
    return statistics.fmean(inside) if inside else None


def score(cells: Sequence[Cell], method: str) -> Score:
    """Return how right a method is."""
    pairs = [(each.predicted[method], each.measured.value) for each in cells]
    errors = [abs(predicted - measured) for predicted, measured in pairs if measured < _SMALL]
    relative = [abs(predicted / measured - 1) for predicted, measured in pairs if measured >= _SMALL]
    chosen = choices(cells, method).values()
    good = [each.regret <= _GOOD for each in chosen]
    possible = [not each.is_sure for each in chosen]
    related = correlations(cells, method).values()
    return Score(
        statistics.median(errors) if errors else None,
        statistics.median(relative) if relative else None,
        statistics.fmean(good) if good else None,
        statistics.fmean(possible) if possible else None,
        len(good),
        statistics.median(related) if related else None,
    )


def choices(cells: Sequence[Cell], method: str) -> dict[str, Choice]:
    """Return the choice for each application; advice that ranks no stack makes none."""
    found = {}
    for name, own in by_application(cells).items():
        if named := [each for each in own if each.is_ranked or method != ADVICE]:
            first = min(named, key=lambda each: each.predicted[method])
            cheapest = min(own, key=lambda each: each.measured.value)
            regret = first.measured.value / cheapest.measured.value - 1
            ends = first.measured.low or 0.0, cheapest.measured.high or math.inf
            is_sure = regret > _GOOD and ends[0] > (1 + _GOOD) * ends[1]
            found[name] = Choice(first.stack, cheapest.stack, regret, is_sure)
    return found


def correlations(cells: Sequence[Cell], method: str) -> dict[str, float]:
    """Return Spearman's rank correlation of predicted and measured costs, by application of at least three stacks."""
    found = {}
    for name, own in by_application(cells).items():
        sides = [each.predicted[method] for each in own], [each.measured.value for each in own]
        if len(own) >= 3 and all(len({*side}) > 1 for side in sides):
            found[name] = float(scipy.stats.spearmanr(*sides).statistic)
    return found


def by_application(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the cells of each application."""
    return {name: [each for each in cells if each.application == name] for name in {c.application: 0 for c in cells}}


# --- the page ------------------------------------------------------------------------------------------------------


def section(cells: Sequence[Cell], emulated: Collection[str], about: str) -> str:
    """Return the results in Markdown; scores are without the emulated stacks, whose cells are shown."""
    judged = [each for each in cells if each.stack not in emulated]
    stacks = sorted({each.stack for each in cells})
    wrong = [each for each in cells if each.is_inside is False]
    wrong.sort(key=lambda each: -abs(math.log(each.advised.value / each.measured.value)))
    of_all = f"all stacks but {', '.join(emulated)}" if emulated else "all stacks"
    head = (
        "way to predict",
        "error below 2 times",
        "relative error above",
        "first within 2 %",
        "not shown to cost more",
        "rank correlation",
    )
    parts = [
        about,
        _HEAD.format(stacks=of_all, inside=_said(coverage(judged))),
        _table(head, (_scored(method, score(judged, method)) for method in METHODS)),
        _LEGEND,
        _table(("application", *stacks), (_row(name, own, stacks) for name, own in by_application(cells).items())),
        "What `tare advise` names first:",
        _table(("application", "first", "cheapest", "the first costs more by", "rank correlation"), _choices(judged)),
    ]
    if wrong:
        parts.append(f"The cells that are farthest off, of {len(wrong)} outside of their intervals:")
        columns = ("application", "stack", "measured and predicted", "largest lines of the bill, in points")
        parts.append(_table(columns, map(_explained, wrong[:_WORST])))
    return "\n\n".join(parts) + "\n"


def within(page: str, text: str) -> str:
    """Put a text between the marks of a page; raises ValueError where it has none."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no lines {BEGIN.strip()} and {END.strip()}")
    return f"{head}{begin}\n{text}\n{end}{tail}"


def _scored(method: str, of: Score) -> Sequence[str]:
    correlation = "none" if of.correlation is None else f"{of.correlation:.2f}"
    return (
        method,
        _said(of.error, "points", 1),
        _said(of.relative),
        f"{_said(of.good)} of {of.chosen}",
        _said(of.possible),
        correlation,
    )


def _row(name: str, own: Sequence[Cell], stacks: Sequence[str]) -> Sequence[str]:
    return name, *(next((_shown(each) for each in own if each.stack == stack), "") for stack in stacks)


def _choices(cells: Sequence[Cell]) -> Iterable[Sequence[str]]:
    chosen, related = choices(cells, ADVICE), correlations(cells, ADVICE)
    for name in by_application(cells):
        each, correlation = chosen.get(name), f"{related[name]:.2f}" if name in related else "none"
        named = (each.first, each.cheapest, _said(each.regret, "%", 1)) if each else ("cannot tell", "", "")
        yield name, *named, correlation


def _explained(cell: Cell) -> Sequence[str]:
    lines = ", ".join(f"{title} {100 * share:+.0f}" for title, share in cell.lines)
    return cell.application, cell.stack, _shown(cell), lines


def _shown(cell: Cell) -> str:
    ends = (cell.advised.low, cell.advised.high)
    interval = f" ({'-'.join(_times(end) for end in ends if end is not None)})" if None not in ends else ""
    marks = f"{'!' if cell.is_inside is False else ''}{'' if cell.is_ranked else '?'}"
    return f"{_times(cell.measured.value)}: {_times(cell.advised.value)}{interval} {marks}".rstrip()


def _times(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _said(share: float | None, unit: str = "%", digits: int = 0) -> str:
    return "none" if share is None else f"{100 * share:.{digits}f} {unit}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))
