"""The page of `tare compare`: two runs, such as before and after an update or of two machines; or one run's stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare.answers.comparing import Comparison
from tare.journal import Run
from tare.report import charts, shifts
from tare.report.chart_svg import Drawing
from tare.report.comparison import answer, shown_cells
from tare.report.html import render_page
from tare.report.html.charts import MOST_DRAWN, drawing, headlines_map
from tare.report.html.entries import look
from tare.report.html.page import described
from tare.report.numbers import GLYPHS, state
from tare.report.overview import Figure, figure_of
from tare.report.overview_compared import overview_of
from tare.statistics.cells import Cell


@dataclass(frozen=True)
class ComparedRow:
    """What the page shows of a row beyond the texts of the answer's."""

    verdict: str
    look: str
    glyph: str
    sort: str
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
    of: str
    two: bool
    rows: tuple[ComparedRow, ...]
    figure: Figure | None
    drawings: tuple[Drawing, ...]
    runs: tuple[str, ...]
    facts: tuple[Fact, ...]


def render(found: Comparison) -> bytes:
    """Render what `tare compare` found of runs."""
    return render_page("compared.html.j2", _page(found), answer(found))


def _page(found: Comparison) -> ComparedPage:
    baseline, two = found.summary.baseline, bool(found.changes)
    names = tuple(run.folder.resolve().name for run in found.runs)
    return ComparedPage(
        title=" → ".join(names) if two else f"{names[0]}: compared with {baseline}",
        of="what it was before" if two else baseline,
        two=two,
        rows=tuple(map(_row, shown_cells(found))),
        figure=figure_of(overview_of(found)),
        drawings=tuple(_drawings(found)),
        runs=("before", "after") if two else names,
        facts=tuple(_facts(found.runs)),
    )


def _row(cell: Cell) -> ComparedRow:
    return ComparedRow(
        verdict=state(cell),
        look=look(cell.verdict, cell),
        glyph=GLYPHS[state(cell)],
        sort="" if cell.ratio is None else f"{cell.ratio:.6g}",
        notes="; ".join((*cell.notes, *dict.fromkeys(caution.kind for caution in cell.cautions))),
    )


def _drawings(found: Comparison) -> Iterator[Drawing]:
    """Draw a map of all changes; and of each headline the changes, and where they come from."""
    stacks = list(dict.fromkeys(cell.stack for cell in found.cells))
    if len(stacks) > MOST_DRAWN:
        return
    baseline, of = found.summary.baseline, "what it was before" if found.changes else found.summary.baseline
    names = list(dict.fromkeys(cell.headline for cell in found.cells))
    drawn: list[Drawing | None] = [*headlines_map(found.cells, stacks, of)]
    for name in names:
        caption = f"{name}: percent of {of}, with 95 % interval."
        drawn.append(drawing(charts.ratios(_of(found.cells, name), of), caption))
        changed = [each for each in found.changes if each.cell.headline == name and each.cell.stack != baseline]
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
