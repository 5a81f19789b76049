"""Judges published claims by a run; docs/claims.md has the rules.

A claim says where a ratio, or a value, lies: its region. It is reproduced if the run's 95 % interval lies inside of the
region, contradicted if it lies outside, and undecided otherwise. All judgements of a run hold together: of those that
say reproduced or contradicted, at most one in twenty is expected to be false (e-BH).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from tare.features.papers.claims import Claim, Claims, Origin, Placed, place
from tare.features.papers.matching import InRun, Lack, Part
from tare.guests.user_guest import OwnGuest
from tare.model.errors import TareError
from tare.model.journal import Run
from tare.plugins import registry
from tare.statistics.anytime import e_bh
from tare.suites.stacks import needed_setting, split

Judgement = Literal["reproduced", "contradicted", "undecided", "not tested", "not comparable"]
JUDGEMENTS: tuple[Judgement, ...] = get_args(Judgement)
_BY_PLACE: dict[str, Judgement] = {"inside": "reproduced", "outside": "contradicted"}


@dataclass(frozen=True)
class Finding:
    """What a run says of a claim at one point; `part` has the numbers as the claim counts them."""

    part: Part
    judgement: Judgement
    evidence: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """A claim, and what a run says of it.

    `reason` says why it was not judged, and `test` what would test it; both are empty for others. `stack`, `than` and
    `workload` are the run's names, `ran` what the stack says of itself, such as its version.
    """

    claim: Claim
    origin: Origin
    judgement: Judgement
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    test: str = ""
    stack: str = ""
    than: str = ""
    ran: tuple[tuple[str, str], ...] = ()
    workload: str = ""


@dataclass(frozen=True)
class Judgements:
    """All claims of a file, in its order, judged by a run."""

    run: Run
    all: tuple[Judged, ...]

    @property
    def fit(self) -> bool:
        """Whether a claim is about what the run has measured, comparable or not."""
        return any(judged.judgement != "not tested" for judged in self.all)

    def of(self, judgement: Judgement) -> tuple[Judged, ...]:
        """Return the claims with this judgement."""
        return tuple(judged for judged in self.all if judged.judgement == judgement)


def judge(run: Run, claims: Claims) -> Judgements:
    """Judge claims by the statistics of a run. It reads nothing but the run's folder."""
    in_run, named = InRun(run), (name for claim in claims.claims for name in _technologies(claim))
    yours = frozenset(name for name in dict.fromkeys(named) if needs_settings(name))
    found = [_found(in_run, claim, claims.origins[claim.source], yours) for claim in claims.claims]
    return Judgements(run, tuple(_concluded(judged) for judged in _with_fdr_control(found)))


def nothing_judged(judgements: Judgements) -> TareError:
    """Return the error of a run by which no claim can be judged."""
    counts = ", ".join(f"{len(own)} {judgement}" for judgement in JUDGEMENTS if (own := judgements.of(judgement)))
    if not judgements.fit:
        counts = f"none of {len(judgements.all)} is about what it has measured" if judgements.all else ""
    tests = [judged.test for judged in judgements.all if judged.test]
    hint = max(tests, key=tests.count) if tests else "write claims that a run can test (docs/claims.md)"
    return TareError(f"{judgements.run.folder}: no claim can be judged by this run: {counts or 'there is none'}", hint)


def is_judged(judged: Judged) -> bool:
    """Return whether a run has measured what a claim is about."""
    return judged.judgement in ("reproduced", "contradicted", "undecided")


def _found(in_run: InRun, claim: Claim, origin: Origin, yours: frozenset[str]) -> Judged:
    """Compare a claim with what the run has of it, point by point; `yours` are technologies that need settings."""
    judged = Judged(claim, origin, "undecided")
    try:
        names = in_run.names(claim)
        judged = replace(judged, stack=names.stack, than="" if claim.value else names.than)
        parts = in_run.parts(claim, names)
        in_run.require_comparable(claim, origin, names)
    except Lack as lack:
        return replace(judged, judgement=lack.judgement, reason=str(lack), test=_test(claim, origin, yours))
    findings = tuple(_finding(claim, part, in_run.run.record.margin) for part in parts)
    ran = tuple(in_run.ran(names.stack).items())
    return replace(judged, findings=findings, ran=ran, workload=names.workload.name)


def _finding(claim: Claim, part: Part, margin: float) -> Finding:
    """Judge one point by its interval."""
    placed = place(part.seen, claim.region(margin))
    judgement = _BY_PLACE.get(placed.place, "undecided")
    evidence = placed.evidence if placed.place in _BY_PLACE else 0.0
    return Finding(part, judgement, evidence, (*part.notes, *_remarks(claim, part, placed, margin)))


def _remarks(claim: Claim, part: Part, placed: Placed, margin: float) -> tuple[str, ...]:
    """Describe what else the interval shows about a claim with a direction."""
    if claim.direction not in ("more", "less"):
        return ()
    side = replace(claim, size=None, least=None, most=None)
    on_side = place(part.seen, side.region(margin)).place
    if placed.place == "outside" and claim.has_size and on_side == "inside":
        return (f"{claim.direction}, as claimed, but by another size",)
    if placed.place == "inside" and on_side == "outside":
        other = "less" if claim.direction == "more" else "more"
        return (f"{other}, not {claim.direction} as claimed, but within the tolerance of the size",)
    alike = replace(side, tolerance=0.0, direction="equivalent").region(margin)
    if placed.place == "across" and not claim.has_size and place(part.seen, alike).place == "inside":
        return ("equivalent within the run's margin",)
    return ()


def _with_fdr_control(found: Sequence[Judged]) -> list[Judged]:
    """Keep only the judgements that e-BH confirms, among all points of all claims that the run has measured."""
    every = [finding for judged in found for finding in judged.findings]
    kept = iter(e_bh(np.array([finding.evidence for finding in every], dtype=float)))
    made = []
    for judged in found:
        findings = []
        for finding in judged.findings:
            sure = bool(next(kept)) or finding.judgement == "undecided"
            note = f"{finding.judgement} by its own interval, but not certain together with {len(every) - 1} others"
            doubted = replace(finding, judgement="undecided", notes=(*finding.notes, note))
            findings.append(finding if sure else doubted)
        made.append(replace(judged, findings=tuple(findings)))
    return made


def _concluded(judged: Judged) -> Judged:
    """Conclude from the points: contradicted at one is contradicted, and reproduced is so at all of them."""
    seen = {finding.judgement for finding in judged.findings}
    if not seen:
        return judged
    if "contradicted" in seen:
        return replace(judged, judgement="contradicted")
    return replace(judged, judgement="reproduced" if seen == {"reproduced"} else "undecided")


def _technologies(claim: Claim) -> tuple[str, ...]:
    stacks = (claim.stack,) if claim.value else (claim.stack, claim.than)
    return tuple(dict.fromkeys(name for stack in stacks for name in split(stack)))


def _test(claim: Claim, origin: Origin, yours: frozenset[str]) -> str:
    """Describe what would test a claim: a suite that has it, or what a suite must have."""
    stacks = claim.stack if claim.value else f"{claim.stack} and {claim.than}"
    own = [name for name in _technologies(claim) if name in yours]
    suite = origin.suite if claim.suite is None else claim.suite
    text = f"tare run {suite}" if suite else f'a suite with use = "{claim.workload}" on {stacks}'
    return f"{text}, with {' and '.join(own)} of yours as a stack" if own else text


def needs_settings(technology: str) -> bool:
    """Return whether a technology cannot be used without something of the user's, such as an image or a cloud."""
    if technology not in registry.names("technologies"):
        return False
    plugin = registry.find("technologies", technology)
    return plugin.gives_machine or issubclass(plugin, OwnGuest) or bool(needed_setting(plugin))
