"""Findings of a run as sentences for terminal, page, Markdown and LaTeX, clear without knowledge of the method."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tare.model.machine import Facts
from tare.model.units import format_count, format_size
from tare.report.numbers import NAMED, cut, format_bounds, format_percent, join_names, join_some, roughly
from tare.report.problems import (
    ALL_WORKS,
    CAUTION_EXPLANATIONS,
    TITLE,
    describe_failures,
    describe_noise,
    describe_readiness,
    describe_robustness,
    find_failures,
)
from tare.statistics.anytime import min_value_count
from tare.statistics.cells import DECIDED, CautionCount, Cell, OverallSpeed
from tare.statistics.summary import Summary

_NOTE_CHARACTERS = 110  # longer notes of a cell are cut
_OVERALL = "overall speed"
_PROGRAM = 60  # characters; longer commands and names of images are cut
_RANGE = re.compile(r"\((about \S*\d( %)?|\S*\d( %)? to \S*\d( %)?)\)")  # an interval as `format_bounds` writes it


@dataclass(frozen=True)
class FindingLine:
    """Statement `text` about the stacks or the headline in `names`, and about `more` others that are not named.

    `kind` is the type of the caution that the statement explains; "" if it explains none.
    """

    names: tuple[str, ...]
    text: str
    kind: str = ""
    more: int = 0

    @property
    def sentence(self) -> str:
        """The line as one sentence, with the type of the caution at its end."""
        more = f" and {self.more} more" if self.more else ""
        kind = f" ({self.kind})" if self.kind else ""
        return f"{', '.join(self.names)}{more}: {self.text}{kind}{'' if self.text.endswith('…') and not kind else '.'}"


@dataclass(frozen=True)
class FindingSection:
    """Section of the findings: a title, lines, the sentence `otherwise` if there are no lines, and remarks."""

    title: str
    lines: tuple[FindingLine, ...]
    otherwise: str
    remarks: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """The lines as sentences, or the sentence for no lines; without the remarks."""
        return [line.sentence for line in self.lines] or [self.otherwise]


@dataclass(frozen=True)
class Findings:
    """Opening sentences (what was measured, and which stack is the cheapest) and the parts."""

    opening: str
    free: FindingSection
    costs: FindingSection
    undecided: FindingSection
    cautions: FindingSection
    failing: FindingSection

    @property
    def measured_sections(self) -> tuple[FindingSection, ...]:
        """The parts about measured values, in reading order."""
        return (self.free, self.costs, self.undecided, self.cautions)

    @property
    def sections(self) -> tuple[FindingSection, ...]:
        """All parts in reading order; the last, of what does not work, only if it has lines."""
        return (*self.measured_sections, *((self.failing,) if self.failing.lines else ()))


def create_findings(summary: Summary, machine: Facts) -> Findings:
    """Return the findings of a run on a machine."""
    # Baseline and control only serve to compare the other stacks, so no finding is about them.
    compared = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    baseline, terms = summary.baseline, _term_explanations(summary)
    opening = " ".join(filter(None, (describe_comparison(summary, machine), describe_cheapest(summary))))
    open_lines = (*undecided_lines(summary, compared), *too_few_blocks_lines(summary))

    def create_section(
        title: str, lines: Iterable[FindingLine], otherwise: str, remarks: Iterable[str] = (), before: str = ""
    ) -> FindingSection:
        """Return a part whose first remarks explain the terms that appear in no earlier part."""
        section = FindingSection(title, tuple(lines), otherwise)
        text = " ".join((*section.sentences, before))
        explained = [terms.pop(term) for term in [*terms] if term.search(text)]
        return FindingSection(title, section.lines, otherwise, (*explained, *remarks))

    return Findings(
        opening,
        create_section(
            "No measurable cost",
            _free_lines(summary, compared),
            f"No stack was shown to cost less than {format_percent(summary.margin)}.",
        ),
        create_section(
            "Measurable cost",
            _cost_lines(summary, compared),
            f"No stack was shown to cost more than {baseline}.",
            describe_readiness(summary),
            opening,  # its terms are explained here, because it has no remarks
        ),
        create_section(
            "Undecided",
            (*open_lines, *_missing_value_lines(summary, compared)),
            f"Nothing is undecided: every stack could be compared with {baseline}.",
            (*(["Run more blocks to decide more."] if open_lines else []), *describe_noise(summary)),
        ),
        create_section("Cautions", _caution_lines(summary, compared), "There are none.", describe_robustness(compared)),
        FindingSection(
            TITLE, tuple(_create_line(*each) for each in describe_failures(find_failures(summary), summary)), ALL_WORKS
        ),
    )


def _term_explanations(summary: Summary) -> dict[re.Pattern[str], str]:
    """Return explanations of the terms that findings use, by patterns that match the terms."""
    names = summary.overall.workloads
    lower = any(summary.rule(name).better == "lower" for name in names)
    inverse = "; metrics of which less is better count inversely" * lower
    return {
        _RANGE: "The range in brackets is the 95 % interval of the change from the baseline.",
        re.compile(_OVERALL): f"The {_OVERALL} is the geometric mean over {join_names(names)}{inverse}.",
    }


def relative_to_baseline(cell: Cell) -> str:
    """Return a cell's change from the baseline as text with its interval: `-32 % speed in nginx (-36 to -29 %)`.

    Where less is better, the text is `+33 % time in …`, or `+33 % in …` for a metric that is no time.
    """
    ratio = cell.ratio or 1.0
    quantity = "speed " if cell.better == "higher" else "time " if cell.unit == "s" else ""
    return f"{roughly(ratio)} {quantity}in {cell.name} ({format_bounds(cell.low, cell.high, ratio)})"


def describe_comparison(summary: Summary, machine: Facts) -> str:
    """Return a sentence with the numbers of stacks and workloads, the machine and the baseline."""
    stacks = sum(stack not in (summary.baseline, summary.control) for stack in summary.stacks)
    where = f" ({describe_machine(machine)})" if describe_machine(machine) else ""
    several = format_count(stacks, "stack"), format_count(len(summary.workloads), "workload")
    return f"{several[0]} with {several[1]} on this machine{where}, each compared with {summary.baseline}."


def describe_machine(machine: Facts) -> str:
    """Return a machine's CPU model, number of CPUs, memory and system as text, without unknown ones; "" if all are."""
    parts = (
        machine.cpu_model,
        format_count(machine.cpus, "CPU") if machine.cpus else "",
        format_size(machine.memory_bytes) if machine.memory_bytes else "",
        machine.operating_system,
    )
    return ", ".join(part for part in parts if part)


def describe_cheapest(summary: Summary) -> str:
    """Return a sentence about the cheapest stack and those that cannot be distinguished from it; "" for one stack."""
    standings, tied = summary.overall.standings, summary.overall.tied
    if len(standings) < 2:
        return ""
    best = standings[0]
    if _is_decided(summary, best):
        others = f"; {join_names(tied)} cannot be distinguished from it" if tied else ""
        return f"The cheapest is {best.stack}: {_describe_speed(summary, best)}{others}."
    if tied:
        return f"Which stack is the cheapest is undecided: {join_some((best.stack, *tied))} cannot be distinguished."
    return f"{best.stack} costs less than the other stacks; whether it costs anything is undecided."


def describe_dearest(summary: Summary) -> str:
    """Return a sentence about the stack that costs most; "" for one stack, or if it or its cost is undecided."""
    standings = summary.overall.standings
    if len(standings) < 2 or standings[-1].stack in summary.overall.tied or not _is_decided(summary, standings[-1]):
        return ""
    return f"The dearest is {standings[-1].stack}: {_describe_speed(summary, standings[-1])}."


def _is_decided(summary: Summary, standing: OverallSpeed) -> bool:
    """Return whether the verdict on a stack is decided: the overall one, or that of the only workload that counts."""
    names = summary.overall.workloads
    judged = summary.headline(names[0], standing.stack) if len(names) == 1 else standing
    return judged.verdict in DECIDED


def _describe_speed(summary: Summary, standing: OverallSpeed) -> str:
    """Return a stack's overall speed as text, or its speed in the only workload that counts."""
    names = summary.overall.workloads
    if len(names) == 1:
        return relative_to_baseline(summary.headline(names[0], standing.stack))
    return _describe_overall(standing)


def _describe_overall(standing: OverallSpeed) -> str:
    """Return a stack's overall speed as text, relative to the baseline's, with its interval."""
    return f"{roughly(standing.speed)} {_OVERALL} ({format_bounds(standing.low, standing.high, standing.speed)})"


def _standings(summary: Summary) -> Mapping[str, OverallSpeed]:
    """Return the standings by stack; empty for a single workload, whose cells have the same information."""
    several = len(summary.overall.workloads) > 1
    return {each.stack: each for each in summary.overall.standings} if several else {}


def _free_lines(summary: Summary, compared_cells: Sequence[Cell]) -> Iterator[FindingLine]:
    """Yield a line for each stack that is equivalent to the baseline somewhere, or better and not impossibly fast."""
    baseline, standings = summary.baseline, _standings(summary)
    for stack, cells in _group_by_stack(summary, compared_cells):
        texts = []
        overall = standings.get(stack)
        equivalent = [_OVERALL] if overall and overall.verdict == "equivalent" else []
        equivalent += [cell.name for cell in cells if cell.verdict == "equivalent"]
        if equivalent:
            texts.append(f"within {format_percent(summary.margin)} of {baseline} in {join_some(equivalent)}")
        if overall and overall.verdict == "better":
            texts.append(f"better: {_describe_overall(overall)}, look for the cause before you believe it")
        gains = [cell for cell in cells if cell.verdict == "better" and not cell.has_caution("faster-than-bare-metal")]
        texts += [f"better: {relative_to_baseline(cell)}" for cell in gains]
        if texts:
            yield FindingLine((stack,), "; ".join(texts))


def _cost_lines(summary: Summary, compared_cells: Sequence[Cell]) -> Iterator[FindingLine]:
    """Yield a line for each stack that is worse than the baseline somewhere, the cheapest first."""
    found, standings = [], _standings(summary)
    for stack, cells in _group_by_stack(summary, compared_cells):
        worse = [cell for cell in cells if cell.verdict == "worse"]
        overall = standings.get(stack)
        if worse or (overall and overall.verdict == "worse"):
            found.append((_log_speed(overall, worse), FindingLine((stack,), _describe_cost(summary, overall, worse))))
    yield from (line for _, line in sorted(found, key=lambda each: -each[0]))


def _describe_cost(summary: Summary, overall: OverallSpeed | None, worse: Sequence[Cell]) -> str:
    """Return the overall speed with extremes if it is worse, or else worse cells; then those that count in no speed."""
    counting = sorted((cell for cell in worse if summary.rule(cell.name).overall), key=lambda cell: -_as_speed(cell))
    not_counting = [cell for cell in worse if not summary.rule(cell.name).overall]
    texts = []
    if overall and overall.verdict == "worse":
        texts.append(_describe_overall(overall))
        if len(counting) > 1:
            first, last = (f"{roughly(cell.ratio or 1.0)} in {cell.name}" for cell in (counting[0], counting[-1]))
            texts[0] += f", from {first} to {last}"
        counting = []  # the overall speed stands for them
    shown = [*counting[:NAMED], *not_counting[:NAMED]]
    texts += [relative_to_baseline(cell) for cell in shown]
    left = len(counting) + len(not_counting) - len(shown)
    return "; ".join(texts) + (f"; and in {left} more" if left else "")


def undecided_lines(summary: Summary, compared_cells: Sequence[Cell]) -> Iterator[FindingLine]:
    """Yield a line for each stack with undecided verdicts, with their intervals."""
    standings = _standings(summary)
    for stack, cells in _group_by_stack(summary, compared_cells):
        overall = standings.get(stack)
        texts = []
        if overall and overall.verdict == "undecided":
            texts.append(f"{_OVERALL} ({format_bounds(overall.low, overall.high, overall.speed)})")
        unsure = [cell for cell in cells if cell.verdict == "undecided"]
        texts += [f"{cell.name} ({format_bounds(cell.low, cell.high, cell.ratio or 1.0)})" for cell in unsure]
        if texts:
            yield FindingLine((stack,), f"undecided in {join_some(texts)}")


def too_few_blocks_lines(summary: Summary) -> Iterator[FindingLine]:
    """Yield a line for each headline that has too few blocks for an interval, on all stacks or on the named ones."""
    need = f"{min_value_count()} are needed"
    for rule in summary.rules:
        cells = [cell for cell in summary.headlines if cell.headline == rule.name and cell.stack != summary.control]
        few = [cell for cell in cells if cell.verdict == "too few blocks"]
        if not few:
            continue
        most = max(cell.n for cell in few)
        on_all_stacks = not any(cell.low is not None for cell in cells)
        whom = "" if on_all_stacks else f" on {join_some([cell.stack for cell in few])}"
        how_often = f"was measured {format_count(most, 'time')}{whom}, {need}"
        yield FindingLine(
            (rule.name,), how_often if most else f"was never measured{whom} together with {summary.baseline}"
        )


def _missing_value_lines(summary: Summary, compared_cells: Sequence[Cell]) -> Iterator[FindingLine]:
    """Yield a line for each note of cells without a value, but for failed and skipped ones, which `failing` has."""
    notes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for stack, cells in _group_by_stack(summary, compared_cells):
        by_note: dict[str, list[str]] = {}
        for cell in cells:
            if cell.verdict == "no value" and not cell.skipped and (cell.trials or not cell.failures):
                by_note.setdefault(cut("; ".join(cell.notes), _NOTE_CHARACTERS) or "no value", []).append(cell.name)
        for note, names in by_note.items():
            notes.setdefault((note, () if len(names) == len(cells) else tuple(names)), []).append(stack)
    for (note, where), stacks in notes.items():
        yield _create_line(stacks, f"{f'in {join_some(where)}: ' if where else ''}{note}")


def _caution_lines(summary: Summary, compared_cells: Sequence[Cell]) -> Iterator[FindingLine]:
    """Yield cautions: impossible ratios, failed A/A checks, other programs, then a line for each caution type."""
    yield from too_fast_lines(summary, compared_cells)
    yield from failed_control_lines(summary)
    yield from override_lines(summary)
    yield from _caution_kind_lines(summary)


def too_fast_lines(summary: Summary, compared_cells: Sequence[Cell]) -> Iterator[FindingLine]:
    """Yield one line with all stacks that are faster than bare metal; none if there are none."""
    cells = [cell for cell in compared_cells if cell.has_caution("faster-than-bare-metal")]
    stacks = list(dict.fromkeys(cell.stack for cell in cells))
    what = "; ".join(relative_to_baseline(cell) for cell in cells[:NAMED])
    if len(stacks) > 1 or len(cells) > NAMED:
        what = f"faster than {summary.baseline} in {join_some(list(dict.fromkeys(cell.name for cell in cells)))}"
    if cells:
        reason = "nothing is faster than bare metal, so something else differs"
        yield _create_line(stacks, f"{what}: {reason}", "faster-than-bare-metal")


def failed_control_lines(summary: Summary) -> Iterator[FindingLine]:
    """Yield a line for each headline in which the A/A check failed."""
    for cell in summary.headlines:
        if cell.stack == summary.control and cell.low and cell.high and not cell.low <= 1 <= cell.high:
            difference = f"{roughly(cell.ratio or 1.0)} in {cell.name}"
            yield FindingLine(
                (summary.baseline,),
                f"{difference} between two measurements of it: differences of that size may be chance",
            )


def override_lines(summary: Summary) -> Iterator[FindingLine]:
    """Yield one line with the stacks whose command or image the suite sets, if any: they also compare programs."""
    programs: dict[str, list[str]] = {}
    for stack, what, text in summary.overrides:
        programs.setdefault(f"{what} {text}", []).append(stack)
    if programs:
        several = len(programs) > 1
        shown = [
            (cut(text, _PROGRAM), f" ({join_some(stacks)})" if several else "") for text, stacks in programs.items()
        ]
        texts = [f"{text}{where}" for text, where in shown]
        why = "the suite overrides the program there, so the result includes the difference between programs"
        yield _create_line(list(dict.fromkeys(stack for stack, *_ in summary.overrides)), f"{why}: {join_some(texts)}")


def _caution_kind_lines(summary: Summary) -> Iterator[FindingLine]:
    """Yield a line for each caution type, the type with the most cells first."""
    by_kind: dict[str, dict[tuple[str, str], CautionCount]] = {}
    for cell in summary.headlines:
        for caution in cell.cautions:
            if caution.stack == cell.stack != summary.control:
                by_kind.setdefault(caution.kind, {})[cell.name, cell.stack] = caution
    for kind, cells in sorted(by_kind.items(), key=lambda each: -len(each[1])):
        names = list(dict.fromkeys(name for name, _ in cells))
        where = "" if len(names) == len(summary.rules) else f"in {join_some(names)}: "
        commonest = max(cells.values(), key=lambda caution: caution.trials).texts[0]
        if text := CAUTION_EXPLANATIONS.get(kind, commonest):
            yield _create_line(list(dict.fromkeys(stack for _, stack in cells)), f"{where}{text}", kind)


def _create_line(names: Sequence[str], text: str, kind: str = "") -> FindingLine:
    """Return a line that names at most `NAMED` of the names, or one more where it would be the only one left out."""
    more = max(len(names) - NAMED, 0)
    return FindingLine(tuple(names[: NAMED + (more == 1)]), text, kind, more if more > 1 else 0)


def _group_by_stack(summary: Summary, compared_cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """Yield each stack that has cells, with these, in the order of the run's stacks."""
    for stack in summary.stacks:
        if cells := [cell for cell in compared_cells if cell.stack == stack]:
            yield stack, cells


def _log_speed(overall: OverallSpeed | None, worse: Sequence[Cell]) -> float:
    """Return the logarithm of a stack's overall speed, or without one the mean logarithm over its worse cells."""
    if overall:
        return math.log(overall.speed)
    return sum(math.log(_as_speed(cell)) for cell in worse) / len(worse)


def _as_speed(cell: Cell) -> float:
    """Return a cell's ratio as a speed, of which more is better: the inverse where less of the metric is better."""
    return cell.ratio or 1.0 if cell.better == "higher" else 1 / (cell.ratio or 1.0)
