"""The claims section of the report page and its figure.

A row has the published region as a band, its size as a line, and the run's estimate as a dot with its interval. What
goes on beyond the axis ends in an arrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup

from tare.features.papers.claims import Claim, Origin, Region, Seen
from tare.features.papers.claims_text import (
    GLYPHS,
    at_point,
    judged_by,
    legend,
    published_in_words,
    remarks,
    seen_in_words,
    sentence,
)
from tare.features.papers.judging import Finding, Judged, Judgement, Judgements, is_judged
from tare.model.errors import UsageError
from tare.model.journal import Run
from tare.report.chart_svg import Framed
from tare.report.html.trials import Anchors
from tare.report.rendering import FeatureSection, render_section
from tare.report.svg_axes import Axis, Ticks, percent_ticks
from tare.statistics.summary import Summary

ORDER: tuple[Judgement, ...] = ("contradicted", "undecided", "reproduced")
TITLE = "Published claims and what was found"
CAPTION = (
    "Band, line: published, with its tolerance. Dot, bar: found here, with its interval."
    f" {', '.join(GLYPHS[each] + chr(160) + each for each in ORDER)}. In percent of the other stack."
)
_SIGNS = {"less": "less", "more": "more", "equivalent": "equal"}
_FACTORS_FROM = 2
_FARTHEST = math.log(30)  # how far from the other stack an axis reaches at most
_LEAST_REACH = math.log(1.1)
_WIDE, _NEAR = math.log(3), math.log(1.1)  # an axis this wide is linear near 100 % if an estimate lies near it
_ROOM = 0.06  # beyond the outermost values, a share of the axis
_UNFOLDED = 60  # rows that are shown at once
_LEFT, _ACROSS, _PUBLISHED, _HERE = 168, 140, 62, 62  # widths of a row's parts, pixels
_INSET = 8  # of an axis, for what goes on beyond it
_WIDTH = _LEFT + _ACROSS + _PUBLISHED + _HERE
_HEAD, _ROW, _FOOT = 24, 20, 22  # heights
_BESIDE, _GAP = 3, 24  # panels beside each other in a file, and pixels between them
_LOOKS: dict[Judgement, str] = {"reproduced": "equivalent", "contradicted": "worse strength-2"}


def page_section(_: Summary, run: Run, places: Anchors) -> FeatureSection | None:
    """Make the section of the page; None if the papers' claims do not fit the run."""
    values: dict[str, Any] = {"trouble": "", "claims": None}
    try:
        judgements = judged_by(run)
    except UsageError as error:  # a broken plug-in breaks only itself
        values["trouble"] = f"The published claims could not be read: {error}."
    else:
        if not judgements.fit and not run.claims:
            return None
        values["claims"] = section(judgements, places)
    return FeatureSection("claims", "Claims", render_section(__package__, "claims.html.j2", **values))


def figures(_: Summary, run: Run) -> dict[str, tuple[str, str]]:
    """Draw the figure for the report's formats of figures."""
    return {"00-claims": (figure(run), f"{TITLE}.")}


def section(judgements: Judgements, places: Anchors) -> dict[str, Any]:
    """Lay judgements out: those that the run contradicts come first."""
    judged = sorted(filter(is_judged, judgements.all), key=lambda each: ORDER.index(each.judgement))
    return {
        "sentence": sentence(judgements),
        "legend": legend(judgements),
        "rows": [_of_page(each, finding, places) for each in judged for finding in each.findings],
        "others": [
            _claim(each, each.judgement, each.reason, each.test) for each in judgements.all if not is_judged(each)
        ],
        "remarks": [_in_the_page(text) for text in remarks(judgements) if not text.startswith("!")],
        "figure": figure_of(judgements),
        "sources": {each.claim.source: _source(each.origin) for each in judgements.all},
    }


@dataclass(frozen=True)
class Span:
    """A part of an axis; `before` and `after` are whether it goes on beyond the ends of the axis."""

    start: float
    end: float
    before: bool
    after: bool


@dataclass(frozen=True)
class Row:
    """A claim at a point: places are shares of the axis. `size` is None where a direction alone was claimed."""

    name: str
    judgement: Judgement
    glyph: str
    detail: str
    anchor: str
    published: str
    here: str
    band: Span
    size: float | None
    dot: float
    bar: Span | None


@dataclass(frozen=True)
class Panel:
    """The claims of a workload; `even` is the place of 100 %."""

    title: str
    ticks: Ticks
    even: float
    rows: tuple[Row, ...]

    @property
    def contradictions(self) -> int:
        """The number of rows that the run contradicts."""
        return sum(row.judgement == "contradicted" for row in self.rows)

    @property
    def height(self) -> int:
        """The height of the panel in pixels."""
        return _HEAD + _ROW * len(self.rows) + _FOOT


@dataclass(frozen=True)
class ClaimsFigure:
    """The figure in a page: its panels, and those that a page of many claims folds away."""

    panels: tuple[Markup, ...]
    folded: tuple[Markup, ...]
    summary_of_folded: str
    caption: str = CAPTION


def row_name(judged: Judged, finding: Finding) -> str:
    """Return the name of a row, which an anchor can be made of."""
    return f"claim-{judged.claim.id}{at_point(judged.claim, finding)}".replace(" ", "-").replace("@", "at")


def figure_of(judgements: Judgements) -> ClaimsFigure | None:
    """Draw the figure for a page; None where nothing that is a ratio was judged."""
    shown, folded = _unfolded(panels(judgements))
    if not shown:
        return None
    count = sum(len(panel.rows) for panel in folded)
    summary = f"{count} more, without contradiction: {', '.join(panel.title for panel in folded)}" if folded else ""
    return ClaimsFigure(tuple(map(_drawn, shown)), tuple(map(_drawn, folded)), summary)


def figure(run: Run) -> str:
    """Draw the figure as a file of its own; empty where nothing that is a ratio was judged."""
    try:
        judgements = judged_by(run)
    except UsageError:  # the page says so
        return ""
    found = tuple(panels(judgements))
    if not found:
        return ""
    rows = [row.judgement for panel in found for row in panel.rows]
    counts = ", ".join(f"{rows.count(each)} {each}" for each in ORDER if each in rows)
    return Framed(*_laid_out(found), TITLE, counts, CAPTION).file(run)


def panels(judgements: Judgements) -> Iterator[Panel]:
    """Lay out the judged claims that are ratios by workload; contradictions come first, also in each panel."""
    judged = [each for each in judgements.all if is_judged(each) and each.claim.value is None]
    made = [
        _panel(workload, tuple(own), judgements.run.record.margin)
        for workload, own in groupby(sorted(judged, key=lambda each: each.workload), lambda each: each.workload)
    ]
    return iter(sorted(made, key=lambda panel: -panel.contradictions))


def _panel(workload: str, judged: Sequence[Judged], margin: float) -> Panel:
    found = [(each, finding) for each in judged for finding in each.findings]
    axis = _axis([finding.part.seen for _, finding in found], [each.claim for each in judged], margin)
    metrics = {each.claim.metric for each in judged}
    rows = [_row(axis, margin, each, finding, with_metric=len(metrics) > 1) for each, finding in found]
    rows.sort(key=lambda row: (ORDER.index(row.judgement), row.name))
    title = f"{workload} {metrics.pop()}".rstrip() if len(metrics) == 1 else workload
    return Panel(title, percent_ticks(axis), axis.place(0.0), tuple(rows))


def _unfolded(found: Iterable[Panel]) -> tuple[list[Panel], list[Panel]]:
    """Divide panels into those that are shown at once and those that are folded away: never a contradiction."""
    shown: list[Panel] = []
    folded: list[Panel] = []
    count = 0
    for panel in found:
        count += len(panel.rows)
        is_shown = not shown or panel.contradictions or count <= _UNFOLDED
        (shown if is_shown else folded).append(panel)
    return shown, folded


def _axis(seen: Sequence[Seen], claims: Sequence[Claim], margin: float) -> Axis:
    """Return an axis that holds what was found and what was published, and 100 %.

    It is logarithmic. Where estimates near 100 % share it with what is far off, it is linear up to the margin.
    """
    logs = [math.log(each.estimate) + half for each in seen for half in _halves(each)]
    for claim in claims:
        region = claim.region(margin)
        logs += [math.log(end) for end in (region.low, region.high, claim.size) if end and end < math.inf]
    least, most = min(-_LEAST_REACH, *logs), max(_LEAST_REACH, *logs)
    least, most = max(least, -_FARTHEST), min(most, _FARTHEST)
    room = (most - least) * _ROOM
    is_mixed = most - least > _WIDE and any(abs(math.log(each.estimate)) < _NEAR for each in seen)
    return Axis(least - room, most + room, math.log1p(margin) if is_mixed else None)


def _halves(seen: Seen) -> tuple[float, ...]:
    return (-seen.half, seen.half) if seen.half < math.inf else (0.0,)


def _row(axis: Axis, margin: float, judged: Judged, finding: Finding, *, with_metric: bool) -> Row:
    claim, seen = judged.claim, finding.part.seen
    here, interval = seen_in_words(judged, finding)
    what = f"{judged.stack} {claim.metric if with_metric else ''}".rstrip() + at_point(claim, finding)
    if judged.than not in ("native", ""):
        what += f" / {judged.than}"
    found = f"here {here} {interval}".rstrip()
    detail = f"{claim.says} {claim.source}, {claim.place}: {published_in_words(claim)}; {found}: {finding.judgement}"
    return Row(
        name=what,
        judgement=finding.judgement,
        glyph=GLYPHS[finding.judgement],
        detail=detail,
        anchor=row_name(judged, finding),
        published=_short(claim),
        here=here,
        band=_band(axis, claim.region(margin)),
        size=None if claim.size is None else axis.place(math.log(claim.size)),
        dot=axis.place(math.log(seen.estimate)),
        bar=_bar(axis, seen),
    )


def _band(axis: Axis, region: Region) -> Span:
    low = math.log(region.low) if region.low > 0 else -math.inf
    return _span(axis, low, math.log(region.high) if region.high < math.inf else math.inf)


def _bar(axis: Axis, seen: Seen) -> Span | None:
    """Return the place of the interval; of the estimate alone where that is beyond the axis without an interval."""
    middle = math.log(seen.estimate)
    ends = [middle + half for half in _halves(seen)]
    span = _span(axis, ends[0], ends[-1])
    return span if len(ends) > 1 or span.before or span.after else None


def _span(axis: Axis, first: float, last: float) -> Span:
    return Span(axis.place(first), axis.place(last), first < axis.first, last > axis.last)


def _short(claim: Claim) -> str:
    """Write what is claimed in a few letters."""
    if claim.size is not None:
        return _share(claim.size)
    if claim.least is not None and claim.most is not None:
        unit = " %" if claim.most < _FACTORS_FROM else ""
        return f"{_share(claim.least).removesuffix(unit)}\N{EN DASH}{_share(claim.most)}"
    if claim.least is not None:
        return f"≥ {_share(claim.least)}"
    if claim.most is not None:
        return f"≤ {_share(claim.most)}"
    return _SIGNS[claim.direction or "equivalent"]


def _share(share: float) -> str:
    """Write a share as estimates are: as a factor from twice on."""
    return f"\N{MULTIPLICATION SIGN}{share:.3g}" if share >= _FACTORS_FROM else f"{share * 100:.4g} %"


def _laid_out(found: Sequence[Panel]) -> tuple[Markup, int, int]:
    """Lay panels out in columns, each in the shortest one then; return the picture with its width and height."""
    heights = [0] * min(_BESIDE, len(found))
    drawn = []
    for panel in found:
        column = heights.index(min(heights))
        drawn.append(_drawn(panel, (column * (_WIDTH + _GAP), heights[column])))
        heights[column] += panel.height + _GAP
    width = len(heights) * (_WIDTH + _GAP) - _GAP
    return Markup("").join(drawn), width, max(heights) - _GAP


def _drawn(panel: Panel, at: tuple[int, int] | None = None) -> Markup:
    """Draw a panel; `at` is its place in a file, in which nothing can be followed."""
    size = {"left": _LEFT, "across": _ACROSS, "inset": _INSET, "published": _PUBLISHED, "head": _HEAD, "row": _ROW}
    values = {"panel": panel, "at": at, "size": size, "width": _WIDTH, "height": panel.height}
    return render_section(__package__, "claims.svg.j2", **values)


def _in_the_page(text: str) -> str:
    """Leave out what is said of the command line."""
    return text.removesuffix("; --all says why").replace("`", "")


def _of_page(judged: Judged, finding: Finding, places: Anchors) -> dict[str, str]:
    """Return a claim at one of its points."""
    here, interval = seen_in_words(judged, finding)
    kinds = dict.fromkeys(caution.kind for caution in finding.part.cautions)
    row = _claim(judged, finding.judgement, *finding.notes, *kinds)
    return row | {
        "name": row["name"] + at_point(judged.claim, finding),
        "here": here,
        "interval": interval,
        "n": str(finding.part.seen.n),
        "anchor": places.get((judged.workload, judged.stack), ""),
        "own_anchor": row_name(judged, finding),
    }


def _claim(judged: Judged, judgement: Judgement, *remarks: str) -> dict[str, str]:
    """Return a claim, with what is to be known of it."""
    claim = judged.claim
    differs = f"differs from the source: {claim.differs}" if claim.differs else ""
    return {
        "name": claim.id,
        "says": claim.says,
        "where": ", ".join(filter(None, (claim.source, claim.place, claim.quotes and f"quoting {claim.quotes}"))),
        "judgement": judgement,
        "look": _LOOKS.get(judgement, ""),
        "glyph": GLYPHS[judgement],
        "published": published_in_words(claim),
        "remark": "; ".join(filter(None, (*remarks, differs))),
    }


def _source(origin: Origin) -> str:
    return f"{origin.authors}: {origin.title}, {origin.published}. Measured on: {origin.hardware}"
