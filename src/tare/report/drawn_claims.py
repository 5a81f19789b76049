"""What was published and what a run found, side by side: a panel for each workload, a row for each point of a claim.

A row has the published region as a band, its size as a line, and the run's estimate as a dot with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from tare.answers.claims import Claim
from tare.answers.judging import Finding, Judged, Judgement, Judgements, is_judged
from tare.report.axes import Axis, Ticks, percent_ticks
from tare.report.claims import GLYPHS, at_point, published_in_words, seen_in_words
from tare.report.framed import template
from tare.statistics.regions import Region, Seen

ORDER: tuple[Judgement, ...] = ("contradicted", "undecided", "reproduced")
CAPTION = (
    "Band and line: what was published, with its tolerance. Dot and bar: what this run found, with its interval."
    " In percent of the other stack."
)
_SIGNS = {"less": "less", "more": "more", "equivalent": "equal"}
_FARTHEST = math.log(30)  # how far from the other stack an axis reaches at most
_LEAST_REACH = math.log(1.1)
_ROOM = 0.06  # beyond the outermost values, a share of the axis
_LEFT, _ACROSS, _PUBLISHED, _HERE = 168, 140, 62, 62  # widths of a row's parts, pixels
_HEAD, _ROW, _FOOT = 24, 20, 22  # heights


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
    band: tuple[float, float]
    size: float | None
    dot: float
    ends: tuple[float, float] | None


@dataclass(frozen=True)
class Panel:
    """The claims of a workload; `even` is the place of 100 %."""

    workload: str
    ticks: Ticks
    even: float
    rows: tuple[Row, ...]


def row_name(judged: Judged, finding: Finding) -> str:
    """Return the name of a row, which an anchor can be made of."""
    return f"claim-{judged.claim.id}{at_point(judged.claim, finding)}".replace(" ", "-").replace("@", "at")


def drawn(judgements: Judgements) -> tuple[Markup, ...]:
    """Draw the panels; none where nothing that is a ratio was judged."""
    return tuple(_drawn(panel) for panel in panels(judgements))


def panels(judgements: Judgements) -> Iterator[Panel]:
    """Lay out the judged claims that are ratios by workload; contradicted ones come first in each."""
    judged = [each for each in judgements.all if is_judged(each) and each.claim.value is None]
    for workload, own in groupby(sorted(judged, key=lambda each: each.workload), lambda each: each.workload):
        found = [(each, finding) for each in own for finding in each.findings]
        found.sort(key=lambda each: ORDER.index(each[1].judgement))
        margin = judgements.run.record.margin
        axis = _axis([finding.part.seen for _, finding in found], [each.claim for each, _ in found])
        rows = tuple(_row(axis, margin, each, finding) for each, finding in found)
        yield Panel(workload, percent_ticks(axis), axis.place(0.0), rows)


def _axis(seen: Sequence[Seen], claims: Sequence[Claim]) -> Axis:
    """Return an axis that holds what was found and what was published, and 100 %."""
    known = [each.estimate for each in seen]
    known += [end for claim in claims for end in (claim.size, claim.least, claim.most) if end]
    logs = [math.log(each) for each in known if each > 0]
    least, most = min(-_LEAST_REACH, *logs), max(_LEAST_REACH, *logs)
    room = (most - least) * _ROOM
    return Axis(max(least - room, -_FARTHEST), min(most + room, _FARTHEST), None)


def _row(axis: Axis, margin: float, judged: Judged, finding: Finding) -> Row:
    claim, seen = judged.claim, finding.part.seen
    here, interval = seen_in_words(judged, finding)
    what = " ".join(part for part in (judged.stack, claim.metric) if part) + at_point(claim, finding)
    if judged.than not in ("native", ""):
        what += f" / {judged.than}"
    found = f"here {here} {interval}".rstrip()
    detail = f"{claim.says} {claim.source}, {claim.place}: {published_in_words(claim)}; {found}: {finding.judgement}"
    known = seen.low is not None and seen.high is not None
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
        ends=(axis.place(math.log(seen.low)), axis.place(math.log(seen.high))) if known else None,  # type: ignore[arg-type]
    )


def _band(axis: Axis, region: Region) -> tuple[float, float]:
    low = axis.place(math.log(region.low)) if region.low > 0 else 0.0
    return low, axis.place(math.log(region.high)) if region.high < math.inf else 1.0


def _short(claim: Claim) -> str:
    """Write what is claimed in a few letters."""
    if claim.size is not None:
        return f"{claim.size * 100:.4g} %"
    if claim.least is not None and claim.most is not None:
        return f"{claim.least * 100:.3g}\N{EN DASH}{claim.most * 100:.3g} %"
    if claim.least is not None:
        return f"≥ {claim.least * 100:.3g} %"
    if claim.most is not None:
        return f"≤ {claim.most * 100:.3g} %"
    return _SIGNS[claim.direction or "equivalent"]


def _drawn(panel: Panel) -> Markup:
    text = template("claims.svg.j2").render(
        panel=panel,
        size={"left": _LEFT, "across": _ACROSS, "published": _PUBLISHED, "here": _HERE, "head": _HEAD, "row": _ROW},
        width=_LEFT + _ACROSS + _PUBLISHED + _HERE,
        height=_HEAD + _ROW * len(panel.rows) + _FOOT,
    )
    return Markup(text)  # noqa: S704  # the template escapes what is from a run
