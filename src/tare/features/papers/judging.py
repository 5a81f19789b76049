"""Judges published claims by a run; docs/papers.md has the rules.

A claim says where a ratio, or a value, lies: its region. It is reproduced if the run's 95 % interval lies inside of the
region, contradicted if it lies outside, and undecided otherwise. All judgements of a run hold together: of those that
say reproduced or contradicted, at most one in twenty is expected to be false (e-BH).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Literal, get_args

import numpy as np

from tare.features.papers.claims import Claim, Claims, ClaimSource, RegionVerdict, locate_interval, region_of
from tare.features.papers.matching import ClaimMatch, ClaimMatcher, ClaimPoint
from tare.guests.user_guest import UserGuest
from tare.model.errors import TareError
from tare.model.journal import Run
from tare.plugins import registry
from tare.statistics.anytime import e_bh
from tare.suites.stacks import find_required_setting, split_stack

Judgement = Literal["reproduced", "contradicted", "undecided", "not tested", "not comparable"]
JUDGEMENTS: tuple[Judgement, ...] = get_args(Judgement)
_JUDGEMENT_OF_POSITION: dict[str, Judgement] = {"inside": "reproduced", "outside": "contradicted"}


@dataclass(frozen=True)
class PointVerdict:
    """What a run says of a claim at one point; `claim_point` has the numbers as the claim counts them."""

    claim_point: ClaimPoint
    judgement: Judgement
    evidence: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, and what a run says of it.

    `reason` says why it was not judged, and `test` what would test it; both are empty for others. `stack`, `than` and
    `workload` are the run's names, `stack_reports` what the stack says of itself, such as its version.
    """

    claim: Claim
    origin: ClaimSource
    judgement: Judgement
    points: tuple[PointVerdict, ...] = ()
    reason: str = ""
    test: str = ""
    stack: str = ""
    than: str = ""
    stack_reports: tuple[tuple[str, str], ...] = ()
    workload: str = ""


@dataclass(frozen=True)
class Judgements:
    """All claims of a file, in its order, judged by a run."""

    run: Run
    verdicts: tuple[ClaimVerdict, ...]

    @property
    def has_measured_claims(self) -> bool:
        """Whether a claim is about what the run has measured, comparable or not."""
        return any(judged.judgement != "not tested" for judged in self.verdicts)

    def with_judgement(self, judgement: Judgement) -> tuple[ClaimVerdict, ...]:
        """Return the claims with this judgement."""
        return tuple(judged for judged in self.verdicts if judged.judgement == judgement)


def judge(run: Run, claims: Claims) -> Judgements:
    """Judge claims by the statistics of a run. It reads nothing but the run's folder.

    Of the judgements by the points' own intervals, those are kept that e-BH confirms among all points of all claims
    that the run has measured.
    """
    in_run, margin = ClaimMatcher(run), run.record.margin
    found = [in_run.find(claim, claims.origins[claim.source]) for claim in claims.claims]
    placed = [
        (claim, part, locate_interval(part.estimate, claim.region(margin)))
        for claim, each in zip(claims.claims, found, strict=True)
        for part in each.points
    ]
    sure = e_bh(np.array([where.evidence for _, _, where in placed], dtype=float))
    doubt = f"by its own interval, but not certain together with {len(placed) - 1} others"
    findings = iter(
        [_judge_point(*each, margin, "" if kept else doubt) for each, kept in zip(placed, sure, strict=True)]
    )
    return Judgements(
        run,
        tuple(
            _judge_claim(claim, claims.origins[claim.source], each, tuple(islice(findings, len(each.points))))
            for claim, each in zip(claims.claims, found, strict=True)
        ),
    )


def no_judgement_error(judgements: Judgements) -> TareError:
    """Return the error of a run by which no claim can be judged."""
    counts = ", ".join(
        f"{len(own)} {judgement}" for judgement in JUDGEMENTS if (own := judgements.with_judgement(judgement))
    )
    if not judgements.has_measured_claims:
        counts = f"none of {len(judgements.verdicts)} is about what it has measured" if judgements.verdicts else ""
    tests = [judged.test for judged in judgements.verdicts if judged.test]
    hint = max(tests, key=tests.count) if tests else "write claims that a run can test (docs/papers.md)"
    return TareError(f"{judgements.run.folder}: no claim can be judged by this run: {counts or 'there is none'}", hint)


def is_judged(verdict: ClaimVerdict) -> bool:
    """Return whether a run has measured what a claim is about."""
    return verdict.judgement in ("reproduced", "contradicted", "undecided")


def _judge_point(
    claim: Claim, claim_point: ClaimPoint, region_verdict: RegionVerdict, margin: float, doubt: str
) -> PointVerdict:
    """Judge one point by its interval; `doubt` says why that is not certain."""
    judgement = _JUDGEMENT_OF_POSITION.get(region_verdict.position, "undecided")
    notes = (*claim_point.notes, *_remarks(claim, claim_point, region_verdict, margin))
    if doubt and judgement != "undecided":
        return PointVerdict(claim_point, "undecided", region_verdict.evidence, (*notes, f"{judgement} {doubt}"))
    return PointVerdict(claim_point, judgement, region_verdict.evidence, notes)


def _remarks(claim: Claim, claim_point: ClaimPoint, region_verdict: RegionVerdict, margin: float) -> tuple[str, ...]:
    """Describe what else the interval shows about a claim with a direction."""
    if claim.direction not in ("more", "less"):
        return ()
    on_side = locate_interval(claim_point.estimate, region_of(claim.direction, margin)).position
    if region_verdict.position == "outside" and claim.has_size and on_side == "inside":
        return (f"{claim.direction}, as claimed, but by another size",)
    if region_verdict.position == "inside" and on_side == "outside":
        other = "less" if claim.direction == "more" else "more"
        return (f"{other}, not {claim.direction} as claimed, but within the tolerance of the size",)
    alike = region_of("equivalent", margin)
    if (
        region_verdict.position == "across"
        and not claim.has_size
        and locate_interval(claim_point.estimate, alike).position == "inside"
    ):
        return ("equivalent within the run's margin",)
    return ()


def _judge_claim(
    claim: Claim, origin: ClaimSource, claim_match: ClaimMatch, points: tuple[PointVerdict, ...]
) -> ClaimVerdict:
    """Conclude from the points: contradicted at one is contradicted, and reproduced is so at all of them."""
    than = "" if claim.value else claim_match.than
    if claim_match.problem:
        reason, test = str(claim_match.problem), _describe_test(claim, origin)
        return ClaimVerdict(claim, origin, claim_match.problem.judgement, (), reason, test, claim_match.stack, than)
    seen = {finding.judgement for finding in points}
    judgement: Judgement = "contradicted" if "contradicted" in seen else "undecided"
    if seen == {"reproduced"}:
        judgement = "reproduced"
    return ClaimVerdict(
        claim,
        origin,
        judgement,
        points,
        "",
        "",
        claim_match.stack,
        than,
        tuple(claim_match.stack_reports.items()),
        claim_match.workload,
    )


def _technologies(claim: Claim) -> tuple[str, ...]:
    stacks = (claim.stack,) if claim.value else (claim.stack, claim.than)
    return tuple(dict.fromkeys(name for stack in stacks for name in split_stack(stack)))


def _describe_test(claim: Claim, origin: ClaimSource) -> str:
    """Describe what would test a claim: a suite that has it, or what a suite must have."""
    stacks = claim.stack if claim.value else f"{claim.stack} and {claim.than}"
    own = [name for name in _technologies(claim) if needs_settings(name)]
    suite = origin.suite if claim.suite is None else claim.suite
    text = f"tare run {suite}" if suite else f'a suite with use = "{claim.workload}" on {stacks}'
    return f"{text}, with {' and '.join(own)} of yours as a stack" if own else text


@cache
def needs_settings(technology: str) -> bool:
    """Return whether a technology cannot be used without something of the user's, such as an image or a cloud."""
    if technology not in registry.names("technologies"):
        return False
    plugin = registry.find("technologies", technology)
    return plugin.provisions_machine or issubclass(plugin, UserGuest) or bool(find_required_setting(plugin))
