"""What `tare claims` prints of judgements: the answer as table and JSON, and the words that the page shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict
from functools import cache, partial
from math import isfinite
from typing import Any

from tare.features.papers.claim_file import read_together
from tare.features.papers.claims import Claim, Claims
from tare.features.papers.judging import (
    JUDGEMENTS,
    Finding,
    Judged,
    Judgement,
    Judgements,
    is_judged,
    judge,
    nothing_judged,
)
from tare.model.journal import Run
from tare.model.units import format_quantity
from tare.report.answer import Answer, Column, Row
from tare.report.numbers import estimate, interval, listing
from tare.statistics.anytime import CONFIDENCE
from tare.statistics.cells import Standing

GLYPHS: dict[Judgement, str] = {
    "reproduced": "✔",
    "contradicted": "✘",
    "undecided": "○",
    "not tested": "\N{EN DASH}",
    "not comparable": "≠",
}
_STYLES: dict[Judgement, str] = {
    "reproduced": "bold green",
    "contradicted": "bold dark_orange",
    "undecided": "default",
}
_COLUMNS = (
    Column("claim", "name"),
    Column("judgement", "name"),
    Column("published", "name"),
    Column("here"),
    Column("interval"),
    Column("n"),
    Column("remark", "name", only_wide=True),
)
_TESTS = 3


def answer(judgements: Judgements, fail_on: Collection[Judgement] = (), *, every: bool = False) -> Answer:
    """Return what `tare claims` found as an answer, with a row for each point of each claim that the run has measured.

    Of `every` other claim, a row says why it was not judged and what would test it.
    """
    fit = judgements.fit  # if not, the error says so
    return Answer(
        command="claims",
        columns=_COLUMNS,
        rows=tuple(row for judged in judgements.all for row in _rows(judged, every=every)),
        legend=legend(judgements),
        remarks=(*_differences(judgements), *remarks(judgements)) if fit else (),
        conclusions=(sentence(judgements),) if fit else (),
        fields=partial(_document, judgements),
        styled="judgement",
        wide=110,
        failed=any(judged.judgement in fail_on for judged in judgements.all),
        error=None if any(map(is_judged, judgements.all)) else nothing_judged(judgements),
    )


def judged_by(run: Run) -> Judgements:
    """Judge the papers' claims by a run, or those that its report is asked for; UsageError if they cannot be read."""
    return judge(run, _read(run.claims))


def sentence(judgements: Judgements) -> str:
    """Describe in one sentence what came of it."""
    if not judgements.fit:
        return f"None of {len(judgements.all)} claims is about what this run has measured."
    counts = tuple(f"{len(own)} {name}" for name in JUDGEMENTS if (own := judgements.of(name)))
    return f"Of {len(judgements.all)} claims, {listing(counts)}."


def remarks(judgements: Judgements) -> tuple[str, ...]:
    """Describe why claims cannot be compared, each reason once, and what would test those that are not tested."""
    reasons = Counter(judged.reason for judged in judgements.of("not comparable"))
    lines = [f"{count} not comparable: {reason}" for reason, count in reasons.most_common()]
    if untested := judgements.of("not tested"):
        tests = Counter(judged.test for judged in untested)
        texts = tuple(f"{count} by `{test}`" for test, count in tests.most_common(_TESTS))
        rest = sum(count for _, count in tests.most_common()[_TESTS:])
        texts += (f"{rest} otherwise",) if rest else ()
        lines.append(f"{len(untested)} not tested, which can be: {listing(texts)}; --all says why")
    kinds = tuple(dict.fromkeys(caution.kind for _, found in _findings(judgements) for caution in found.part.cautions))
    if kinds:
        lines.append(f"! cautions touch these values: {listing(kinds)}")
    return tuple(lines)


def _differences(judgements: Judgements) -> tuple[str, ...]:
    """Describe what is not the same here as in the source, of the claims that were judged."""
    own = Counter(judged.claim.differs for judged in judgements.all if judged.claim.differs and judged.findings)
    return tuple(f"{count} differ{'s' if count == 1 else ''} from the source: {text}" for text, count in own.items())


def legend(judgements: Judgements) -> str:
    """Describe what the numbers of the table are."""
    margin = f"{judgements.run.record.margin * 100:.3g} %"
    return (
        f"published and here: percent of the other stack, or a value; 95 % interval, n blocks; ± the claim's tolerance;"
        f" equivalent: within {margin} unless the claim says otherwise"
    )


def published_in_words(claim: Claim) -> str:
    """Write what is claimed: its size with the tolerance, or its direction and the number as printed; and p."""
    text = _bounds(claim)
    if not claim.has_size:
        text = f"{claim.direction} ({claim.printed})" if claim.printed else f"{claim.direction}"
    if claim.tolerance or claim.reading:
        text += f" ± {((1 + claim.tolerance) * (1 + claim.reading) - 1) * 100:.3g} %"
    return f"{text}, p {claim.p}" if claim.p else text


def at_point(claim: Claim, finding: Finding) -> str:
    """Write at which point a claim was judged, and beside which one; empty for the mean over all."""
    point = "" if finding.part.point is None else f" @ {finding.part.point:g}"
    return point if claim.than_point is None else f"{point} beside {claim.than_point:g}"


def seen_in_words(judged: Judged, finding: Finding) -> tuple[str, str]:
    """Write the estimate and its interval, in the claim's terms."""
    seen, value = finding.part.seen, judged.claim.value
    if value is None:
        standing = Standing(judged.stack, seen.estimate, seen.low, seen.high, "undecided")
        return estimate(standing), interval(standing)
    if seen.low is None or seen.high is None:
        return format_quantity(seen.estimate, value.unit), ""
    low, high = (format_quantity(end, value.unit) for end in (seen.low, seen.high))
    return format_quantity(seen.estimate, value.unit), f"[{low}, {high}]"


def _document(judgements: Judgements) -> dict[str, Any]:
    """Return what JSON has: `claims` with what was published, and `cells`, what the run says of each point."""
    record = judgements.run.record
    return {
        "confidence": CONFIDENCE,
        "margin": record.margin,
        "run": {
            "folder": str(judgements.run.folder),
            "suite": record.suite,
            "started": record.started,
            "tare": record.tare,
            "machine": asdict(record.measured_on),
        },
        "sources": {judged.claim.source: asdict(judged.origin) for judged in judgements.all},
        "claims": [_claim_fields(judged, record.margin) for judged in judgements.all],
        "cells": [cell for judged in judgements.all for cell in _cells(judged)],
        "answer": sentence(judgements),
    }


@cache
def _read(files: tuple[str, ...]) -> Claims:
    """Read files of claims once: the one that comes with tare takes half a second."""
    return read_together(files)


def _findings(judgements: Judgements) -> Iterator[tuple[Judged, Finding]]:
    return ((judged, finding) for judged in judgements.all for finding in judged.findings)


def _rows(judged: Judged, *, every: bool) -> Iterator[Row]:
    style = _STYLES.get(judged.judgement, "dim")
    for finding in judged.findings:
        yield Row(_texts(judged, finding), style)
    if every and not judged.findings:
        why = f"{judged.reason}; test: {judged.test}"
        published = published_in_words(judged.claim)
        yield Row((judged.claim.id, _state(judged.judgement), published, "", "", "", why), style)


def _texts(judged: Judged, finding: Finding) -> tuple[str, ...]:
    claim = judged.claim
    name = claim.id + at_point(claim, finding)
    state = _state(finding.judgement) + (" !" if finding.part.cautions else "")
    count = str(finding.part.seen.n)
    return (name, state, published_in_words(claim), *seen_in_words(judged, finding), count, "; ".join(finding.notes))


def _state(judgement: Judgement) -> str:
    return f"{GLYPHS[judgement]} {judgement}"


def _bounds(claim: Claim) -> str:
    stated = claim.value or claim

    def text(number: float) -> str:
        return format_quantity(number, claim.value.unit) if claim.value else f"{number * 100:.4g} %"

    if stated.size is not None:
        return text(stated.size)
    ends = (("at least", stated.least), ("at most", stated.most))
    return ", ".join(f"{word} {text(end)}" for word, end in ends if end is not None)


def _claim_fields(judged: Judged, margin: float) -> dict[str, Any]:
    """Return a claim as what JSON can hold; `region` has null where it has no end."""
    region = judged.claim.region(margin)
    return {
        **asdict(judged.claim),
        "published": published_in_words(judged.claim),
        "region": [region.low or None, region.high if isfinite(region.high) else None],
        "judgement": judged.judgement,
        "reason": judged.reason or None,
        "test": judged.test or None,
        "stack_of_run": judged.stack or None,
        "than_of_run": judged.than or None,
        "ran": dict(judged.ran),
    }


def _cells(judged: Judged) -> Iterator[dict[str, Any]]:
    """Yield the points of a claim; one without numbers where the run has not measured it."""
    claim = judged.claim
    common = {
        "claim": claim.id,
        "workload": claim.workload,
        "metric": claim.metric or None,
        "stack": judged.stack or claim.stack,
        "than": None if claim.value else judged.than or claim.than,
        "unit": claim.value.unit if claim.value else None,
    }
    if not is_judged(judged):
        blank = {"point": None, "estimate": None, "interval": None, "n": 0, "decision": judged.judgement}
        yield common | blank | {"log_evidence": 0.0, "notes": [judged.reason], "cautions": []}
    for finding in judged.findings:
        seen = finding.part.seen
        yield common | {
            "point": finding.part.point,
            "estimate": seen.estimate,
            "interval": None if seen.low is None else [seen.low, seen.high],
            "n": seen.n,
            "decision": finding.judgement,
            "log_evidence": finding.evidence,
            "notes": list(finding.notes),
            "cautions": [asdict(caution) for caution in finding.part.cautions],
        }
