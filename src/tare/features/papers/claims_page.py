"""The claims section of the report page and its figure.

A row has the published region as a band, its size as a line, and the run's estimate as a dot with its interval. Bands
and intervals that reach beyond the axis end in an arrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup

from tare.features.papers.claims import Claim, ClaimSource, IntervalEstimate, Region
from tare.features.papers.claims_text import (
    GLYPHS,
    format_interval_estimate,
    format_point,
    format_published,
    judge_run,
    legend,
    remarks,
    sentence,
)
from tare.features.papers.judging import ClaimVerdict, Judgement, Judgements, PointVerdict, is_judged
from tare.model.errors import UsageError
from tare.model.run_folder import Run
from tare.report.chart_svg import FramedFigure
from tare.report.html.trials import Anchors
from tare.report.rendering import FeatureSection, render_section
from tare.report.svg_axes import Axis, Ticks, percent_ticks
from tare.statistics.summary import Summary

ORDER: tuple[Judgement, ...] = ("contradicted", "undecided", "reproduced")
TITLE = "Published claims and what was found"
CAPTION = (
    "Band, line: published, with its tolerance. Dot, bar: found here, with its interval."
    f" {', '.join(GLYPHS[each] + chr(160) + each for each in ORDER)}. As changes from the other stack."
)
_SIGNS = {"less": "less", "more": "more", "equivalent": "equal"}
_FACTORS_FROM = 2
_MAX_LOG = math.log(30)  # largest ratio on an axis; farther values end in an arrow
_MIN_REACH = math.log(1.1)
_WIDE_AXIS, _NEAR_ONE = math.log(3), math.log(1.1)  # an axis this wide is linear near 100 % if an estimate lies near it
_AXIS_MARGIN = 0.06  # beyond the outermost values, a share of the axis
_MAX_UNFOLDED_ROWS = 60  # later panels without contradictions are folded
_NAME_WIDTH, _AXIS_WIDTH, _PUBLISHED_WIDTH, _HERE_WIDTH = 168, 140, 62, 62  # pixels, of the parts of a row
_AXIS_INSET = 8  # pixels at the ends of an axis, for arrows
_PANEL_WIDTH = _NAME_WIDTH + _AXIS_WIDTH + _PUBLISHED_WIDTH + _HERE_WIDTH
_HEAD_HEIGHT, _ROW_HEIGHT, _FOOT_HEIGHT = 24, 20, 22  # heights
_MAX_COLUMNS, _GAP = 3, 24  # panels side by side in a file, and pixels between them
_JUDGEMENT_CLASSES: dict[Judgement, str] = {"reproduced": "equivalent", "contradicted": "worse strength-2"}


def page_section(_: Summary, run: Run, anchors: Anchors) -> FeatureSection | None:
    """Return the claims section of the page; None if the run has measured nothing that claims are about."""
    values: dict[str, Any] = {"trouble": "", "claims": None}
    try:
        judgements = judge_run(run)
    except UsageError as error:  # a broken plug-in or claim file must not prevent the report
        values["trouble"] = f"The published claims could not be read: {error}."
    else:
        if not judgements.has_measured_claims and not run.claims:
            return None
        values["claims"] = section_fields(judgements, anchors)
    return FeatureSection("claims", "Claims", render_section(__package__, "claims.html.j2", **values))


def figures(_: Summary, run: Run) -> dict[str, tuple[str, str]]:
    """Return the figure as SVG with its caption, by file name, for the figure formats of the report."""
    return {"00-claims": (draw_file_figure(run), f"{TITLE}.")}


def section_fields(judgements: Judgements, anchors: Anchors) -> dict[str, Any]:
    """Return the fields of the section's template; contradicted claims come first."""
    judged = sorted(filter(is_judged, judgements.verdicts), key=lambda each: ORDER.index(each.judgement))
    return {
        "sentence": sentence(judgements),
        "legend": legend(judgements),
        "rows": [_point_fields(each, finding, anchors) for each in judged for finding in each.points],
        "others": [
            _claim_fields(each, each.judgement, each.reason, each.test)
            for each in judgements.verdicts
            if not is_judged(each)
        ],
        "remarks": [_strip_command_hint(text) for text in remarks(judgements) if not text.startswith("!")],
        "figure": draw_page_figure(judgements),
        "sources": {each.claim.source: _format_source(each.origin) for each in judgements.verdicts},
    }


@dataclass(frozen=True)
class ClippedSpan:
    """Span of an axis, clipped to its ends; `before` and `after` tell at which ends."""

    start: float
    end: float
    before: bool
    after: bool


@dataclass(frozen=True)
class ClaimBar:
    """Row of a claim at a point; positions are shares of the axis. `size` is None for a claim without a size."""

    name: str
    judgement: Judgement
    glyph: str
    detail: str
    anchor: str
    published: str
    here: str
    band: ClippedSpan
    size: float | None
    dot: float
    bar: ClippedSpan | None


@dataclass(frozen=True)
class ClaimsPanel:
    """Panel with the claims of a workload; `even` is the position of 100 %."""

    title: str
    ticks: Ticks
    even: float
    rows: tuple[ClaimBar, ...]

    @property
    def contradictions(self) -> int:
        """The number of rows that the run contradicts."""
        return sum(row.judgement == "contradicted" for row in self.rows)

    @property
    def height(self) -> int:
        """The height of the panel in pixels."""
        return _HEAD_HEIGHT + _ROW_HEIGHT * len(self.rows) + _FOOT_HEIGHT


@dataclass(frozen=True)
class ClaimsFigure:
    """Figure in a page: its panels, and those that are folded if there are many claims."""

    panels: tuple[Markup, ...]
    folded: tuple[Markup, ...]
    summary_of_folded: str
    caption: str = CAPTION


def row_name(verdict: ClaimVerdict, point_verdict: PointVerdict) -> str:
    """Return the name of a row, which is valid as an anchor."""
    return f"claim-{verdict.claim.id}{format_point(verdict.claim, point_verdict)}".replace(" ", "-").replace("@", "at")


def draw_page_figure(judgements: Judgements) -> ClaimsFigure | None:
    """Draw the figure for a page; None if no claim about a ratio was judged."""
    shown, folded = _split_folded(lay_out_panels(judgements))
    if not shown:
        return None
    count = sum(len(panel.rows) for panel in folded)
    summary = f"{count} more, without contradiction: {', '.join(panel.title for panel in folded)}" if folded else ""
    return ClaimsFigure(tuple(map(_draw_panel, shown)), tuple(map(_draw_panel, folded)), summary)


def draw_file_figure(run: Run) -> str:
    """Return the figure as a standalone SVG file; "" if no claim about a ratio was judged."""
    try:
        judgements = judge_run(run)
    except UsageError:  # the page reports the error
        return ""
    panels = tuple(lay_out_panels(judgements))
    if not panels:
        return ""
    rows = [row.judgement for panel in panels for row in panel.rows]
    counts = ", ".join(f"{rows.count(each)} {each}" for each in ORDER if each in rows)
    return FramedFigure(*_arrange_panels(panels), TITLE, counts, CAPTION).file(run)


def lay_out_panels(judgements: Judgements) -> Iterator[ClaimsPanel]:
    """Yield a panel for each workload with judged claims about ratios; contradictions come first, also in a panel."""
    judged = [each for each in judgements.verdicts if is_judged(each) and each.claim.value is None]
    panels = [
        _claims_panel(workload, tuple(verdicts), judgements.run.record.margin)
        for workload, verdicts in groupby(sorted(judged, key=lambda each: each.workload), lambda each: each.workload)
    ]
    return iter(sorted(panels, key=lambda panel: -panel.contradictions))


def _claims_panel(workload: str, verdicts: Sequence[ClaimVerdict], margin: float) -> ClaimsPanel:
    found = [(each, finding) for each in verdicts for finding in each.points]
    axis = _axis([finding.claim_point.estimate for _, finding in found], [each.claim for each in verdicts], margin)
    metrics = {each.claim.metric for each in verdicts}
    rows = [_claim_bar(axis, margin, each, finding, with_metric=len(metrics) > 1) for each, finding in found]
    rows.sort(key=lambda row: (ORDER.index(row.judgement), row.name))
    title = f"{workload} {metrics.pop()}".rstrip() if len(metrics) == 1 else workload
    return ClaimsPanel(title, percent_ticks(axis), axis.position(0.0), tuple(rows))


def _split_folded(panels: Iterable[ClaimsPanel]) -> tuple[list[ClaimsPanel], list[ClaimsPanel]]:
    """Return the panels to show and those to fold; a panel with a contradiction is always shown."""
    shown: list[ClaimsPanel] = []
    folded: list[ClaimsPanel] = []
    count = 0
    for panel in panels:
        count += len(panel.rows)
        is_shown = not shown or panel.contradictions or count <= _MAX_UNFOLDED_ROWS
        (shown if is_shown else folded).append(panel)
    return shown, folded


def _axis(estimates: Sequence[IntervalEstimate], claims: Sequence[Claim], margin: float) -> Axis:
    """Return the axis for estimates, published regions and 100 %.

    The axis is logarithmic. If it is wide and an estimate is near 100 %, it is linear up to the margin, which would
    otherwise be too narrow to see.
    """
    logs = [math.log(each.value) + half for each in estimates for half in _half_widths(each)]
    for claim in claims:
        region = claim.region(margin)
        logs += [math.log(bound) for bound in (region.low, region.high, claim.size) if bound and bound < math.inf]
    least, most = min(-_MIN_REACH, *logs), max(_MIN_REACH, *logs)
    least, most = max(least, -_MAX_LOG), min(most, _MAX_LOG)
    room = (most - least) * _AXIS_MARGIN
    is_mixed = most - least > _WIDE_AXIS and any(abs(math.log(each.value)) < _NEAR_ONE for each in estimates)
    return Axis(least - room, most + room, math.log1p(margin) if is_mixed else None)


def _half_widths(estimate: IntervalEstimate) -> tuple[float, ...]:
    return (-estimate.half_width, estimate.half_width) if estimate.half_width < math.inf else (0.0,)


def _claim_bar(
    axis: Axis, margin: float, verdict: ClaimVerdict, point_verdict: PointVerdict, *, with_metric: bool
) -> ClaimBar:
    claim, estimate = verdict.claim, point_verdict.claim_point.estimate
    here, interval = format_interval_estimate(verdict, point_verdict)
    name = f"{verdict.stack} {claim.metric if with_metric else ''}".rstrip() + format_point(claim, point_verdict)
    if verdict.than not in ("native", ""):
        name += f" / {verdict.than}"
    result = f"here {here} {interval}".rstrip()
    detail = (
        f"{claim.says} {claim.source}, {claim.place}: {format_published(claim)}; {result}: {point_verdict.judgement}"
    )
    return ClaimBar(
        name=name,
        judgement=point_verdict.judgement,
        glyph=GLYPHS[point_verdict.judgement],
        detail=detail,
        anchor=row_name(verdict, point_verdict),
        published=_format_claimed(claim),
        here=here,
        band=_region_span(axis, claim.region(margin)),
        size=None if claim.size is None else axis.position(math.log(claim.size)),
        dot=axis.position(math.log(estimate.value)),
        bar=_interval_span(axis, estimate),
    )


def _region_span(axis: Axis, region: Region) -> ClippedSpan:
    low = math.log(region.low) if region.low > 0 else -math.inf
    return _clip_span(axis, low, math.log(region.high) if region.high < math.inf else math.inf)


def _interval_span(axis: Axis, estimate: IntervalEstimate) -> ClippedSpan | None:
    """Return the span of the interval, or of an estimate beyond the axis; None for other estimates without interval."""
    middle = math.log(estimate.value)
    ends = [middle + half for half in _half_widths(estimate)]
    span = _clip_span(axis, ends[0], ends[-1])
    return span if len(ends) > 1 or span.before or span.after else None


def _clip_span(axis: Axis, first: float, last: float) -> ClippedSpan:
    return ClippedSpan(axis.position(first), axis.position(last), first < axis.first, last > axis.last)


def _format_claimed(claim: Claim) -> str:
    """Format the size, bounds or direction of a claim in a few characters."""
    if claim.size is not None:
        return _format_share(claim.size)
    if claim.least is not None and claim.most is not None:
        unit = " %" if claim.most < _FACTORS_FROM else ""
        return f"{_format_share(claim.least).removesuffix(unit)}\N{EN DASH}{_format_share(claim.most)}"
    if claim.least is not None:
        return f"≥ {_format_share(claim.least)}"
    if claim.most is not None:
        return f"≤ {_format_share(claim.most)}"
    return _SIGNS[claim.direction or "equivalent"]


def _format_share(share: float) -> str:
    """Format a ratio like estimates: as percent, or from twice on as a factor."""
    return f"\N{MULTIPLICATION SIGN}{share:.3g}" if share >= _FACTORS_FROM else f"{share * 100:.4g} %"


def _arrange_panels(panels: Sequence[ClaimsPanel]) -> tuple[Markup, int, int]:
    """Draw panels in columns, each in the shortest column so far; return the picture with its width and height."""
    heights = [0] * min(_MAX_COLUMNS, len(panels))
    drawn = []
    for panel in panels:
        column = heights.index(min(heights))
        drawn.append(_draw_panel(panel, (column * (_PANEL_WIDTH + _GAP), heights[column])))
        heights[column] += panel.height + _GAP
    width = len(heights) * (_PANEL_WIDTH + _GAP) - _GAP
    return Markup("").join(drawn), width, max(heights) - _GAP


def _draw_panel(panel: ClaimsPanel, at: tuple[int, int] | None = None) -> Markup:
    """Draw a panel; `at` is its position in a standalone file, None in a page, where rows are links."""
    size = {
        "left": _NAME_WIDTH,
        "across": _AXIS_WIDTH,
        "inset": _AXIS_INSET,
        "published": _PUBLISHED_WIDTH,
        "head": _HEAD_HEIGHT,
        "row": _ROW_HEIGHT,
    }
    values = {"panel": panel, "at": at, "size": size, "width": _PANEL_WIDTH, "height": panel.height}
    return render_section(__package__, "claims.svg.j2", **values)


def _strip_command_hint(text: str) -> str:
    """Return a remark without its hint at an option of the command line, which a reader of the page does not have."""
    return text.removesuffix("; reasons: --all").replace("`", "")


def _point_fields(verdict: ClaimVerdict, point_verdict: PointVerdict, anchors: Anchors) -> dict[str, str]:
    """Return the fields of a row: a claim at one of its points."""
    here, interval = format_interval_estimate(verdict, point_verdict)
    kinds = dict.fromkeys(caution.kind for caution in point_verdict.claim_point.cautions)
    row = _claim_fields(verdict, point_verdict.judgement, *point_verdict.notes, *kinds)
    return row | {
        "name": row["name"] + format_point(verdict.claim, point_verdict),
        "here": here,
        "interval": interval,
        "n": str(point_verdict.claim_point.estimate.n),
        "anchor": anchors.get((verdict.workload, verdict.stack), ""),
        "own_anchor": row_name(verdict, point_verdict),
    }


def _claim_fields(verdict: ClaimVerdict, judgement: Judgement, *remarks: str) -> dict[str, str]:
    """Return the fields of a claim, with its remarks and differences from the source."""
    claim = verdict.claim
    differs = f"differs from the source: {claim.differs}" if claim.differs else ""
    return {
        "name": claim.id,
        "says": claim.says,
        "where": ", ".join(filter(None, (claim.source, claim.place, claim.quotes and f"quoting {claim.quotes}"))),
        "judgement": judgement,
        "look": _JUDGEMENT_CLASSES.get(judgement, ""),
        "glyph": GLYPHS[judgement],
        "published": format_published(claim),
        "remark": "; ".join(filter(None, (*remarks, differs))),
    }


def _format_source(origin: ClaimSource) -> str:
    return f"{origin.authors}: {origin.title}, {origin.published}. Measured on: {origin.hardware}"
