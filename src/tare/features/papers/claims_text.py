"""What `tare claims` prints of judgements: the answer as table and JSON, and the words that the page shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict
from functools import cache, partial
from math import isfinite
from typing import Any

from tare.features.papers.claim_file import read_claim_files
from tare.features.papers.claims import Claim, Claims
from tare.features.papers.judging import (
    JUDGEMENTS,
    ClaimVerdict,
    Judgement,
    Judgements,
    PointVerdict,
    is_judged,
    judge,
    no_judgement_error,
)
from tare.model.journal import Run
from tare.model.units import format_quantity
from tare.report.answer import Answer, AnswerColumn, AnswerRow
from tare.report.numbers import format_change, format_interval, format_ratio, join_names
from tare.statistics.anytime import CONFIDENCE
from tare.statistics.cells import OverallSpeed

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
    AnswerColumn("claim", "name"),
    AnswerColumn("judgement", "name"),
    AnswerColumn("published", "name"),
    AnswerColumn("here"),
    AnswerColumn("interval"),
    AnswerColumn("n"),
    AnswerColumn("remark", "name", only_wide=True),
)
_MAX_TESTS = 3


def answer(judgements: Judgements, fail_on: Collection[Judgement] = (), *, every: bool = False) -> Answer:
    """Return what `tare claims` found as an answer, with a row for each point of each claim that the run has measured.

    Of `every` other claim, a row says why it was not judged and what would test it.
    """
    fit = judgements.has_measured_claims  # if not, the error says so
    return Answer(
        command="claims",
        columns=_COLUMNS,
        rows=tuple(row for judged in judgements.verdicts for row in _rows(judged, every=every)),
        legend=legend(judgements),
        remarks=(*_source_differences(judgements), *remarks(judgements)) if fit else (),
        conclusions=(sentence(judgements),) if fit else (),
        fields=partial(_document, judgements),
        styled="judgement",
        wide=110,
        failed=any(judged.judgement in fail_on for judged in judgements.verdicts),
        error=None if any(map(is_judged, judgements.verdicts)) else no_judgement_error(judgements),
    )


def judge_run(run: Run) -> Judgements:
    """Judge the papers' claims by a run, or those that its report is asked for; UsageError if they cannot be read."""
    return judge(run, _read(run.claims))


def sentence(judgements: Judgements) -> str:
    """Describe in one sentence what came of it."""
    if not judgements.has_measured_claims:
        return f"None of {len(judgements.verdicts)} claims is about what this run has measured."
    counts = tuple(f"{len(own)} {name}" for name in JUDGEMENTS if (own := judgements.with_judgement(name)))
    return f"Of {len(judgements.verdicts)} claims, {join_names(counts)}."


def remarks(judgements: Judgements) -> tuple[str, ...]:
    """Describe why claims cannot be compared, each reason once, and what would test those that are not tested."""
    reasons = Counter(judged.reason for judged in judgements.with_judgement("not comparable"))
    lines = [f"{count} not comparable: {reason}" for reason, count in reasons.most_common()]
    if untested := judgements.with_judgement("not tested"):
        tests = Counter(judged.test for judged in untested)
        texts = tuple(f"{count} by `{test}`" for test, count in tests.most_common(_MAX_TESTS))
        rest = sum(count for _, count in tests.most_common()[_MAX_TESTS:])
        texts += (f"{rest} otherwise",) if rest else ()
        lines.append(f"{len(untested)} not tested, which can be: {join_names(texts)}; --all says why")
    kinds = tuple(
        dict.fromkeys(
            caution.kind for _, found in _point_verdicts(judgements) for caution in found.claim_point.cautions
        )
    )
    if kinds:
        lines.append(f"! cautions touch these values: {join_names(kinds)}")
    return tuple(lines)


def _source_differences(judgements: Judgements) -> tuple[str, ...]:
    """Describe what is not the same here as in the source, of the claims that were judged."""
    own = Counter(judged.claim.differs for judged in judgements.verdicts if judged.claim.differs and judged.points)
    return tuple(f"{count} differ{'s' if count == 1 else ''} from the source: {text}" for text, count in own.items())


def legend(judgements: Judgements) -> str:
    """Describe what the numbers of the table are."""
    margin = f"{judgements.run.record.margin * 100:.3g} %"
    return (
        f"published and here: change from the other stack or a value; 95 % interval, n blocks; ± the claim's tolerance;"
        f" equivalent: within {margin} unless the claim says otherwise"
    )


def format_published(claim: Claim) -> str:
    """Write what is claimed: its size with the tolerance, or its direction and the number as printed; and p."""
    text = _format_bounds(claim)
    if not claim.has_size:
        text = f"{claim.direction} ({claim.printed})" if claim.printed else f"{claim.direction}"
    if claim.tolerance or claim.reading:
        text += f" ± {((1 + claim.tolerance) * (1 + claim.reading) - 1) * 100:.3g} %"
    return f"{text}, p {claim.p}" if claim.p else text


def format_point(claim: Claim, point_verdict: PointVerdict) -> str:
    """Write at which point a claim was judged, and beside which one; empty for the mean over all."""
    point = "" if point_verdict.claim_point.point is None else f" @ {point_verdict.claim_point.point:g}"
    return point if claim.than_point is None else f"{point} beside {claim.than_point:g}"


def format_interval_estimate(verdict: ClaimVerdict, point_verdict: PointVerdict) -> tuple[str, str]:
    """Write the estimate and its interval, in the claim's terms."""
    seen, value = point_verdict.claim_point.estimate, verdict.claim.value
    if value is None:
        standing = OverallSpeed(verdict.stack, seen.value, seen.low, seen.high, "undecided")
        return format_ratio(standing), format_interval(standing)
    if seen.low is None or seen.high is None:
        return format_quantity(seen.value, value.unit), ""
    low, high = (format_quantity(end, value.unit) for end in (seen.low, seen.high))
    return format_quantity(seen.value, value.unit), f"[{low}, {high}]"


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
            "machine": asdict(record.instance_machine),
        },
        "sources": {judged.claim.source: asdict(judged.origin) for judged in judgements.verdicts},
        "claims": [_claim_fields(judged, record.margin) for judged in judgements.verdicts],
        "cells": [cell for judged in judgements.verdicts for cell in _cell_fields(judged)],
        "answer": sentence(judgements),
    }


@cache
def _read(files: tuple[str, ...]) -> Claims:
    """Read files of claims once: the one that comes with tare takes half a second."""
    return read_claim_files(files)


def _point_verdicts(judgements: Judgements) -> Iterator[tuple[ClaimVerdict, PointVerdict]]:
    return ((judged, finding) for judged in judgements.verdicts for finding in judged.points)


def _rows(verdict: ClaimVerdict, *, every: bool) -> Iterator[AnswerRow]:
    style = _STYLES.get(verdict.judgement, "dim")
    for finding in verdict.points:
        yield AnswerRow(_column_texts(verdict, finding), style)
    if every and not verdict.points:
        why = f"{verdict.reason}; test: {verdict.test}"
        published = format_published(verdict.claim)
        yield AnswerRow((verdict.claim.id, _format_judgement(verdict.judgement), published, "", "", "", why), style)


def _column_texts(verdict: ClaimVerdict, point_verdict: PointVerdict) -> tuple[str, ...]:
    claim = verdict.claim
    name = claim.id + format_point(claim, point_verdict)
    state = _format_judgement(point_verdict.judgement) + (" !" if point_verdict.claim_point.cautions else "")
    count = str(point_verdict.claim_point.estimate.n)
    return (
        name,
        state,
        format_published(claim),
        *format_interval_estimate(verdict, point_verdict),
        count,
        "; ".join(point_verdict.notes),
    )


def _format_judgement(judgement: Judgement) -> str:
    return f"{GLYPHS[judgement]} {judgement}"


def _format_bounds(claim: Claim) -> str:
    stated = claim.value or claim

    def format_number(number: float) -> str:
        return format_quantity(number, claim.value.unit) if claim.value else format_change(number)

    if stated.size is not None:
        return format_number(stated.size)
    ends = (("at least", stated.least), ("at most", stated.most))
    return ", ".join(f"{word} {format_number(end)}" for word, end in ends if end is not None)


def _claim_fields(verdict: ClaimVerdict, margin: float) -> dict[str, Any]:
    """Return a claim as what JSON can hold; `region` has null where it has no end."""
    region = verdict.claim.region(margin)
    return {
        **asdict(verdict.claim),
        "published": format_published(verdict.claim),
        "region": [region.low or None, region.high if isfinite(region.high) else None],
        "judgement": verdict.judgement,
        "reason": verdict.reason or None,
        "test": verdict.test or None,
        "stack_of_run": verdict.stack or None,
        "than_of_run": verdict.than or None,
        "ran": dict(verdict.stack_reports),
    }


def _cell_fields(verdict: ClaimVerdict) -> Iterator[dict[str, Any]]:
    """Yield the points of a claim; one without numbers where the run has not measured it."""
    claim = verdict.claim
    common = {
        "claim": claim.id,
        "workload": claim.workload,
        "metric": claim.metric or None,
        "stack": verdict.stack or claim.stack,
        "than": None if claim.value else verdict.than or claim.than,
        "unit": claim.value.unit if claim.value else None,
    }
    if not is_judged(verdict):
        blank = {"point": None, "estimate": None, "interval": None, "n": 0, "decision": verdict.judgement}
        yield common | blank | {"log_evidence": 0.0, "notes": [verdict.reason], "cautions": []}
    for finding in verdict.points:
        seen = finding.claim_point.estimate
        yield common | {
            "point": finding.claim_point.point,
            "estimate": seen.value,
            "interval": None if seen.low is None else [seen.low, seen.high],
            "n": seen.n,
            "decision": finding.judgement,
            "log_evidence": finding.evidence,
            "notes": list(finding.notes),
            "cautions": [asdict(caution) for caution in finding.claim_point.cautions],
        }
