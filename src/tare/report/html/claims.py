"""The section on published claims: what was published, and what this run says of it, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tare.answers.claims import Origin
from tare.answers.judging import Finding, Judged, Judgement, Judgements, is_judged
from tare.errors import UsageError
from tare.journal import Run
from tare.report.claims import GLYPHS, at_point, judged_by, legend, published_in_words, remarks, seen_in_words, sentence
from tare.report.drawn_claims import ORDER, ClaimsFigure, figure_of, row_name
from tare.report.html.trials import Anchors

_LOOKS: dict[Judgement, str] = {"reproduced": "equivalent", "contradicted": "worse strength-2"}


@dataclass(frozen=True)
class ClaimRow:
    """A claim at one of its points, or one that the run says nothing of, with the reason as its remark."""

    name: str
    says: str
    where: str
    judgement: Judgement
    look: str
    glyph: str
    published: str
    remark: str
    here: str = ""
    interval: str = ""
    n: str = ""
    anchor: str = ""
    own_anchor: str = ""


@dataclass(frozen=True)
class ClaimsSection:
    """All of the section; `trouble` says why there are no claims. It is shown unless the papers' do not fit the run."""

    sentence: str
    legend: str
    rows: tuple[ClaimRow, ...]
    others: tuple[ClaimRow, ...]
    remarks: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]
    figure: ClaimsFigure | None = None
    trouble: str = ""
    shown: bool = True


def claims_section(run: Run, places: Anchors) -> ClaimsSection:
    """Judge the papers' claims by a run, or those that its report is asked for."""
    try:
        judgements = judged_by(run)
    except UsageError as error:  # a broken plug-in breaks only itself
        return ClaimsSection("", "", (), (), (), (), trouble=f"The published claims could not be read: {error}.")
    return replace(section(judgements, places), shown=judgements.fit or bool(run.claims))


def section(judgements: Judgements, places: Anchors) -> ClaimsSection:
    """Lay judgements out: those that the run contradicts come first."""
    judged = sorted(filter(is_judged, judgements.all), key=lambda each: ORDER.index(each.judgement))
    others = [each for each in judgements.all if not is_judged(each)]
    return ClaimsSection(
        sentence=sentence(judgements),
        legend=legend(judgements),
        rows=tuple(row for each in judged for row in _rows(each, places)),
        others=tuple(_row(each, each.judgement, "; ".join(filter(None, (each.reason, each.test)))) for each in others),
        remarks=tuple(_in_the_page(text) for text in remarks(judgements) if not text.startswith("!")),
        figure=figure_of(judgements),
        sources=tuple({each.claim.source: _source(each.origin) for each in judgements.all}.items()),
    )


def _in_the_page(text: str) -> str:
    """Leave out what is said of the command line."""
    return text.removesuffix("; --all says why").replace("`", "")


def _rows(judged: Judged, places: Anchors) -> Iterator[ClaimRow]:
    for finding in judged.findings:
        here, interval = seen_in_words(judged, finding)
        kinds = dict.fromkeys(caution.kind for caution in finding.part.cautions)
        row = _row(judged, finding.judgement, "; ".join((*finding.notes, *kinds)), finding)
        anchor, n = places.get((judged.workload, judged.stack), ""), str(finding.part.seen.n)
        yield replace(row, here=here, interval=interval, n=n, anchor=anchor, own_anchor=row_name(judged, finding))


def _row(judged: Judged, judgement: Judgement, remark: str, finding: Finding | None = None) -> ClaimRow:
    claim = judged.claim
    at = at_point(claim, finding) if finding else ""
    differs = f"differs from the source: {claim.differs}" if claim.differs else ""
    return ClaimRow(
        name=f"{claim.id}{at}",
        says=claim.says,
        where=", ".join(filter(None, (claim.source, claim.place, f"quoting {claim.quotes}" if claim.quotes else ""))),
        judgement=judgement,
        look=_LOOKS.get(judgement, ""),
        glyph=GLYPHS[judgement],
        published=published_in_words(claim),
        remark="; ".join(filter(None, (remark, differs))),
    )


def _source(origin: Origin) -> str:
    return f"{origin.authors}: {origin.title}, {origin.published}. Measured on: {origin.hardware}"
