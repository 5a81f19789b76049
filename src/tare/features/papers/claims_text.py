"""Answer of `tare claims` as table and JSON, and texts that the page shares."""

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
from tare.model.run_folder import Run
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
    """Return the answer of `tare claims`, with a row for each point of each claim that the run has measured.

    With `every`, each other claim has a row with the reason why it was not judged, and a suite that would test it.
    """
    has_measured = judgements.has_measured_claims  # otherwise the error says so
    return Answer(
        command="claims",
        columns=_COLUMNS,
        rows=tuple(row for judged in judgements.verdicts for row in _rows(judged, every=every)),
        legend=legend(judgements),
        remarks=(*_source_differences(judgements), *remarks(judgements)) if has_measured else (),
        conclusions=(sentence(judgements),) if has_measured else (),
        fields=partial(_document, judgements),
        styled="judgement",
        wide=110,
        failed=any(judged.judgement in fail_on for judged in judgements.verdicts),
        error=None if any(map(is_judged, judgements.verdicts)) else no_judgement_error(judgements),
    )


def judge_run(run: Run) -> Judgements:
    """Judge the claims requested for the report of a run, by default the built-in ones; raises UsageError."""
    return judge(run, _read(run.claims))


def sentence(judgements: Judgements) -> str:
    """Return the result as one sentence: the number of claims by judgement."""
    if not judgements.has_measured_claims:
        return f"None of {len(judgements.verdicts)} claims is about what this run has measured."
    counts = tuple(f"{len(claims)} {name}" for name in JUDGEMENTS if (claims := judgements.with_judgement(name)))
    return f"Of {len(judgements.verdicts)} claims, {join_names(counts)}."


def remarks(judgements: Judgements) -> tuple[str, ...]:
    """Return notes: why claims are not comparable, suites that would test the others, and cautions."""
    reasons = Counter(judged.reason for judged in judgements.with_judgement("not comparable"))
    lines = [f"{count} not comparable: {reason}" for reason, count in reasons.most_common()]
    if untested := judgements.with_judgement("not tested"):
        tests = Counter(judged.test for judged in untested)
        lines.append(f"{len(untested)} not tested; reasons: --all")
        lines += [f"  test {count} with: {test}" for test, count in tests.most_common(_MAX_TESTS)]
    kinds = tuple(
        dict.fromkeys(
            caution.kind for _, found in _point_verdicts(judgements) for caution in found.claim_point.cautions
        )
    )
    if kinds:
        lines.append(f"! cautions about these values: {join_names(kinds)}")
    return tuple(lines)


def _source_differences(judgements: Judgements) -> tuple[str, ...]:
    """Return a note for each difference of tare's measurement from the source, for claims that were judged."""
    texts = Counter(judged.claim.differs for judged in judgements.verdicts if judged.claim.differs and judged.points)
    return tuple(f"{count} differ{'s' if count == 1 else ''} from the source: {text}" for text, count in texts.items())


def legend(judgements: Judgements) -> str:
    """Return the explanation of the table's numbers."""
    margin = f"{judgements.run.record.margin * 100:.3g} %"
    return (
        f"published and here: change from the other stack or a value; 95 % interval, n blocks; ± the claim's tolerance;"
        f" equivalent: within {margin} unless the claim says otherwise"
    )


def format_published(claim: Claim) -> str:
    """Format a claim: its size with the tolerance, or its direction with the number as printed; then p, if known."""
    text = _format_bounds(claim)
    if not claim.has_size:
        text = f"{claim.direction} ({claim.printed})" if claim.printed else f"{claim.direction}"
    if claim.tolerance or claim.reading:
        text += f" ± {((1 + claim.tolerance) * (1 + claim.reading) - 1) * 100:.3g} %"
    return f"{text}, p {claim.p}" if claim.p else text


def format_point(claim: Claim, point_verdict: PointVerdict) -> str:
    """Format the point at which a claim was judged, and the point that it is relative to; "" for the mean over all."""
    point = "" if point_verdict.claim_point.point is None else f" @ {point_verdict.claim_point.point:g}"
    return point if claim.than_point is None else f"{point} relative to {claim.than_point:g}"


def format_interval_estimate(verdict: ClaimVerdict, point_verdict: PointVerdict) -> tuple[str, str]:
    """Format the estimate and its interval as ratios, or in the unit of the claim's value; "" without an interval."""
    estimate, value = point_verdict.claim_point.estimate, verdict.claim.value
    if value is None:
        speed = OverallSpeed(verdict.stack, estimate.value, estimate.low, estimate.high, "undecided")
        return format_ratio(speed), format_interval(speed)
    if estimate.low is None or estimate.high is None:
        return format_quantity(estimate.value, value.unit), ""
    low, high = (format_quantity(bound, value.unit) for bound in (estimate.low, estimate.high))
    return format_quantity(estimate.value, value.unit), f"[{low}, {high}]"


def _document(judgements: Judgements) -> dict[str, Any]:
    """Return the fields of the JSON output: `claims` as published, and `cells` with the run's result at each point."""
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
    """Read files of claims once: checking the built-in file takes half a second."""
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
    """Return the JSON fields of a claim; `region` has null for a missing bound."""
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
        "ran": dict(verdict.stack_proof),
    }


def _cell_fields(verdict: ClaimVerdict) -> Iterator[dict[str, Any]]:
    """Yield the JSON fields of each point of a claim; an entry without numbers if the run has not measured it."""
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
