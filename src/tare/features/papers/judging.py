"""Judges published claims by a run; docs/claims.md has the rules.

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

from tare.features.papers.claims import Claim, Claims, Origin, Placed, place, region_of
from tare.features.papers.matching import InRun, InTheRun, Part
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
    """Judge claims by the statistics of a run. It reads nothing but the run's folder.

    Of the judgements by the points' own intervals, those are kept that e-BH confirms among all points of all claims
    that the run has measured.
    """
    in_run, margin = InRun(run), run.record.margin
    found = [in_run.find(claim, claims.origins[claim.source]) for claim in claims.claims]
    placed = [
        (claim, part, place(part.seen, claim.region(margin)))
        for claim, each in zip(claims.claims, found, strict=True)
        for part in each.parts
    ]
    sure = e_bh(np.array([where.evidence for _, _, where in placed], dtype=float))
    doubt = f"by its own interval, but not certain together with {len(placed) - 1} others"
    findings = iter([_finding(*each, margin, "" if kept else doubt) for each, kept in zip(placed, sure, strict=True)])
    return Judgements(
        run,
        tuple(
            _judged(claim, claims.origins[claim.source], each, tuple(islice(findings, len(each.parts))))
            for claim, each in zip(claims.claims, found, strict=True)
        ),
    )


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


def _finding(claim: Claim, part: Part, placed: Placed, margin: float, doubt: str) -> Finding:
    """Judge one point by its interval; `doubt` says why that is not certain."""
    judgement = _BY_PLACE.get(placed.place, "undecided")
    notes = (*part.notes, *_remarks(claim, part, placed, margin))
    if doubt and judgement != "undecided":
        return Finding(part, "undecided", placed.evidence, (*notes, f"{judgement} {doubt}"))
    return Finding(part, judgement, placed.evidence, notes)


def _remarks(claim: Claim, part: Part, placed: Placed, margin: float) -> tuple[str, ...]:
    """Describe what else the interval shows about a claim with a direction."""
    if claim.direction not in ("more", "less"):
        return ()
    on_side = place(part.seen, region_of(claim.direction, margin)).place
    if placed.place == "outside" and claim.has_size and on_side == "inside":
        return (f"{claim.direction}, as claimed, but by another size",)
    if placed.place == "inside" and on_side == "outside":
        other = "less" if claim.direction == "more" else "more"
        return (f"{other}, not {claim.direction} as claimed, but within the tolerance of the size",)
    alike = region_of("equivalent", margin)
    if placed.place == "across" and not claim.has_size and place(part.seen, alike).place == "inside":
        return ("equivalent within the run's margin",)
    return ()


def _judged(claim: Claim, origin: Origin, found: InTheRun, findings: tuple[Finding, ...]) -> Judged:
    """Conclude from the points: contradicted at one is contradicted, and reproduced is so at all of them."""
    than = "" if claim.value else found.than
    if found.lack:
        reason, test = str(found.lack), _test(claim, origin)
        return Judged(claim, origin, found.lack.judgement, (), reason, test, found.stack, than)
    seen = {finding.judgement for finding in findings}
    judgement: Judgement = "contradicted" if "contradicted" in seen else "undecided"
    if seen == {"reproduced"}:
        judgement = "reproduced"
    return Judged(
        claim, origin, judgement, findings, "", "", found.stack, than, tuple(found.ran.items()), found.workload
    )


def _technologies(claim: Claim) -> tuple[str, ...]:
    stacks = (claim.stack,) if claim.value else (claim.stack, claim.than)
    return tuple(dict.fromkeys(name for stack in stacks for name in split(stack)))


def _test(claim: Claim, origin: Origin) -> str:
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
    return plugin.gives_machine or issubclass(plugin, OwnGuest) or bool(needed_setting(plugin))
