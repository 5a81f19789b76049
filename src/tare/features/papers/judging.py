"""Judgement of published claims by a run; docs/papers.md has the rules.

A claim states a region of ratios or values. It is reproduced if the run's 95 % interval lies inside the region,
contradicted if the interval lies outside, and undecided otherwise. All judgements of a run hold together: of those that
say reproduced or contradicted, at most one in twenty is expected to be false (e-BH). At 95 % for each claim, several of
four hundred would be contradicted by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np

from tare.features.papers.claims import Claim, Claims, ClaimSource, RegionVerdict, locate_interval, region_of
from tare.features.papers.matching import ClaimMatch, ClaimMatcher, ClaimPoint
from tare.guests.user_guest import UserGuest
from tare.model.errors import TareError
from tare.model.run_folder import Run
from tare.plugins import registry
from tare.statistics.anytime import e_bh
from tare.suites.stacks import find_required_setting, split_stack

Judgement = Literal["reproduced", "contradicted", "undecided", "not tested", "not comparable"]
JUDGEMENTS: tuple[Judgement, ...] = get_args(Judgement)
_JUDGEMENT_OF_POSITION: dict[str, Judgement] = {"inside": "reproduced", "outside": "contradicted"}


@dataclass(frozen=True)
class PointVerdict:
    """Judgement of a claim at a point, with the numbers as the claim defines them in `claim_point`."""

    claim_point: ClaimPoint
    judgement: Judgement
    evidence: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClaimVerdict:
    """Judgement of a claim.

    `reason` says why a claim was not judged, and `test` how to test it; both are "" for a judged claim. `stack`, `than`
    and `workload` are the run's names. `stack_proof` is the proof of the stack, such as its version.
    """

    claim: Claim
    origin: ClaimSource
    judgement: Judgement
    points: tuple[PointVerdict, ...] = ()
    reason: str = ""
    test: str = ""
    stack: str = ""
    than: str = ""
    stack_proof: tuple[tuple[str, str], ...] = ()
    workload: str = ""


@dataclass(frozen=True)
class Judgements:
    """Judgements of all claims of a file by a run, in the order of the file."""

    run: Run
    verdicts: tuple[ClaimVerdict, ...]

    @property
    def has_measured_claims(self) -> bool:
        """Whether the run has measured something that a claim is about, comparable or not."""
        return any(judged.judgement != "not tested" for judged in self.verdicts)

    def with_judgement(self, judgement: Judgement) -> tuple[ClaimVerdict, ...]:
        """Return the claims with this judgement."""
        return tuple(judged for judged in self.verdicts if judged.judgement == judgement)


def judge(run: Run, claims: Claims) -> Judgements:
    """Judge claims by the statistics of a run; only files of the run's folder are read.

    A judgement by the interval of a point stands if e-BH confirms it among all points of all measured claims.
    """
    matcher, margin = ClaimMatcher(run), run.record.margin
    matches = [matcher.find(claim, claims.origins[claim.source]) for claim in claims.claims]
    region_verdicts = [
        [locate_interval(point.estimate, claim.region(margin)) for point in match.points]
        for claim, match in zip(claims.claims, matches, strict=True)
    ]
    evidence = [verdict.evidence for of_claim in region_verdicts for verdict in of_claim]
    is_confirmed = iter(e_bh(np.array(evidence, dtype=float)))
    caution = f"by its own interval, but not certain together with {len(evidence) - 1} others"
    verdicts = []
    for claim, match, of_claim in zip(claims.claims, matches, region_verdicts, strict=True):
        points = tuple(
            _judge_point(claim, point, verdict, margin, "" if next(is_confirmed) else caution)
            for point, verdict in zip(match.points, of_claim, strict=True)
        )
        verdicts.append(_judge_claim(claim, claims.origins[claim.source], match, points))
    return Judgements(run, tuple(verdicts))


def no_judgement_error(judgements: Judgements) -> TareError:
    """Return the error for a run by which no claim can be judged."""
    counts = ", ".join(
        f"{len(claims)} {judgement}" for judgement in JUDGEMENTS if (claims := judgements.with_judgement(judgement))
    )
    if not judgements.has_measured_claims:
        counts = f"none of {len(judgements.verdicts)} is about what it has measured" if judgements.verdicts else ""
    tests = [judged.test for judged in judgements.verdicts if judged.test]
    hint = max(tests, key=tests.count) if tests else "write claims that a run can test (docs/papers.md)"
    return TareError(f"{judgements.run.folder}: no claim can be judged by this run: {counts or 'there is none'}", hint)


def is_judged(verdict: ClaimVerdict) -> bool:
    """Return whether the run has measured the claim's quantity, so that the claim was judged."""
    return verdict.judgement in ("reproduced", "contradicted", "undecided")


def _judge_point(
    claim: Claim, claim_point: ClaimPoint, region_verdict: RegionVerdict, margin: float, caution: str
) -> PointVerdict:
    """Judge a point by its interval; with a `caution` that this is not certain, the point is undecided."""
    judgement = _JUDGEMENT_OF_POSITION.get(region_verdict.position, "undecided")
    notes = (*claim_point.notes, *_remarks(claim, claim_point, region_verdict, margin))
    if caution and judgement != "undecided":
        return PointVerdict(claim_point, "undecided", region_verdict.evidence, (*notes, f"{judgement} {caution}"))
    return PointVerdict(claim_point, judgement, region_verdict.evidence, notes)


def _remarks(claim: Claim, claim_point: ClaimPoint, region_verdict: RegionVerdict, margin: float) -> tuple[str, ...]:
    """Return notes on the direction of a claim: right with a wrong size, wrong within the tolerance, or equivalent."""
    if claim.direction not in ("more", "less"):
        return ()
    # Where the interval would lie if the claim stated its direction alone, without a size.
    position_by_direction = locate_interval(claim_point.estimate, region_of(claim.direction, margin)).position
    if region_verdict.position == "outside" and claim.has_size and position_by_direction == "inside":
        return (f"{claim.direction}, as claimed, but by another size",)
    if region_verdict.position == "inside" and position_by_direction == "outside":
        other = "less" if claim.direction == "more" else "more"
        return (f"{other}, not {claim.direction} as claimed, but within the tolerance of the size",)
    equivalent = region_of("equivalent", margin)
    if (
        region_verdict.position == "across"
        and not claim.has_size
        and locate_interval(claim_point.estimate, equivalent).position == "inside"
    ):
        return ("equivalent within the run's margin",)
    return ()


def _judge_claim(
    claim: Claim, origin: ClaimSource, claim_match: ClaimMatch, points: tuple[PointVerdict, ...]
) -> ClaimVerdict:
    """Judge a claim by its points: contradicted if any point is, reproduced if all points are."""
    than = "" if claim.value else claim_match.than
    if problem := claim_match.problem:
        return ClaimVerdict(
            claim,
            origin,
            problem.judgement,
            reason=str(problem),
            test=_describe_test(claim, origin),
            stack=claim_match.stack,
            than=than,
        )
    of_points = {point.judgement for point in points}
    judgement: Judgement = "contradicted" if "contradicted" in of_points else "undecided"
    if of_points == {"reproduced"}:
        judgement = "reproduced"
    return ClaimVerdict(
        claim,
        origin,
        judgement,
        points,
        stack=claim_match.stack,
        than=than,
        stack_proof=tuple(claim_match.stack_proof.items()),
        workload=claim_match.workload,
    )


def _technologies(claim: Claim) -> tuple[str, ...]:
    stacks = (claim.stack,) if claim.value else (claim.stack, claim.than)
    return tuple(dict.fromkeys(name for stack in stacks for name in split_stack(stack)))


def _describe_test(claim: Claim, origin: ClaimSource) -> str:
    """Return how to test a claim: the command with its suite, or what a suite must have."""
    stacks = claim.stack if claim.value else f"{claim.stack} and {claim.than}"
    user_supplied = [name for name in _technologies(claim) if needs_settings(name)]
    suite = origin.suite if claim.suite is None else claim.suite
    text = f"tare run {suite}" if suite else f'a suite with use = "{claim.workload}" on {stacks}'
    return f"{text}, with your {' and '.join(user_supplied)} as a stack" if user_supplied else text


@cache
def needs_settings(technology: str) -> bool:
    """Return whether a technology needs settings of the user, such as an image or a cloud."""
    if technology not in registry.names("technologies"):
        return False
    plugin = registry.find("technologies", technology)
    return plugin.provisions_machine or issubclass(plugin, UserGuest) or bool(find_required_setting(plugin))
