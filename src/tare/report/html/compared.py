"""The page of `tare compare`: two runs, such as before and after an update or of two machines; or one run's stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare import __version__
from tare.answers.comparing import Answer
from tare.journal import Run
from tare.report import charts, shifts
from tare.report.chart_svg import Drawing
from tare.report.comparison import counts, gate_sentence, legend, own_sentence, remarks, sentence, shown_cells, stood
from tare.report.html.charts import MOST_DRAWN, drawing, headlines_map
from tare.report.html.entries import look
from tare.report.html.page import described
from tare.report.numbers import GLYPHS, estimate, interval, state
from tare.report.overview import Figure, figure_of
from tare.report.overview_compared import overview_of
from tare.statistics.cells import Cell

_GATE_LOOKS = {"passed": "equivalent", "failed": "worse", "cannot tell": "undecided"}


@dataclass(frozen=True)
class ComparedRow:
    """A stack in a headline: what changed, and how it stood to the baseline in each run."""

    name: str
    stack: str
    verdict: str
    look: str
    glyph: str
    estimate: str
    interval: str
    sort: str
    n: str
    before: str
    after: str
    notes: str


@dataclass(frozen=True)
class Fact:
    """What each run says of itself, such as its kernel."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the runs say different things."""
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class ComparedPage:
    """All of the page."""

    title: str
    version: str
    lead: str
    own: str
    gate: str
    gate_look: str
    of: str
    legend: str
    two: bool
    rows: tuple[ComparedRow, ...]
    figure: Figure | None
    drawings: tuple[Drawing, ...]
    remarks: tuple[str, ...]
    runs: tuple[str, ...]
    facts: tuple[Fact, ...]


def compared_page(answer: Answer) -> ComparedPage:
    """Lay out what `tare compare` found."""
    baseline, two = answer.summary.baseline, bool(answer.changes)
    names = tuple(run.folder.resolve().name for run in answer.runs)
    return ComparedPage(
        title=" → ".join(names) if two else f"{names[0]}: compared with {baseline}",
        version=__version__,
        lead=sentence(answer),
        own=own_sentence(answer),
        gate=gate_sentence(answer),
        gate_look=_GATE_LOOKS["cannot tell" if answer.gate.is_undecided else answer.gate.answer],
        of="what it was before" if two else baseline,
        legend=legend(answer),
        two=two,
        rows=tuple(_rows(answer)),
        figure=figure_of(overview_of(answer)),
        drawings=tuple(_drawings(answer)),
        remarks=tuple(text.removeprefix("! ").rstrip(".") for text in remarks(answer)),
        runs=("before", "after") if two else names,
        facts=tuple(_facts(answer.runs)),
    )


def _rows(answer: Answer) -> Iterator[ComparedRow]:
    changes = (*answer.changes, *answer.own)
    for at, cell in enumerate(shown_cells(answer)):
        change = changes[at] if changes else None
        yield ComparedRow(
            name=f"{cell.name} {'↑' if cell.better == 'higher' else '↓'}",
            stack=cell.stack,
            verdict=state(cell),
            look=look(cell.verdict, cell),
            glyph=GLYPHS[state(cell)],
            estimate=estimate(cell),
            interval=interval(cell),
            sort="" if cell.ratio is None else f"{cell.ratio:.6g}",
            n=counts(change) if change else str(cell.n or ""),
            before=stood(change.before) if change else "",
            after=stood(change.after) if change else "",
            notes="; ".join((*cell.notes, *dict.fromkeys(caution.kind for caution in cell.cautions))),
        )


def _drawings(answer: Answer) -> Iterator[Drawing]:
    """Draw a map of all changes; and of each headline the changes, and where they come from."""
    stacks = list(dict.fromkeys(cell.stack for cell in answer.cells))
    if len(stacks) > MOST_DRAWN:
        return
    baseline, of = answer.summary.baseline, "what it was before" if answer.changes else answer.summary.baseline
    names = list(dict.fromkeys(cell.headline for cell in answer.cells))
    drawn: list[Drawing | None] = [*headlines_map(answer.cells, stacks, of)]
    for name in names:
        caption = f"{name}: percent of {of}, with 95 % interval."
        drawn.append(drawing(charts.ratios(_of(answer.cells, name), of), caption))
        changed = [each for each in answer.changes if each.cell.headline == name and each.cell.stack != baseline]
        caption = f"{name}: percent of {baseline} in each run, with 95 % interval."
        drawn.append(drawing(shifts.shifts(changed, baseline), caption))
    yield from filter(None, drawn)


def _of(cells: Sequence[Cell], headline: str) -> list[Cell]:
    return [cell for cell in cells if cell.headline == headline]


def _facts(runs: Sequence[Run]) -> Iterator[Fact]:
    yield Fact("run", tuple(run.folder.resolve().name for run in runs))
    yield Fact("suite", tuple(run.record.suite for run in runs))
    yield Fact("started", tuple(run.record.started for run in runs))
    yield Fact("tare", tuple(run.record.tare for run in runs))
    for rows in zip(*(described(run.record.measured_on) for run in runs), strict=True):
        yield Fact(rows[0][0], tuple(text for _, text in rows))
    yield Fact("image", tuple(run.record.image.removeprefix("sha256:")[:12] for run in runs))
