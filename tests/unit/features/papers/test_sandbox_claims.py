"""The claims about sandboxes: each is tested by the suite that is said to, and none without its source."""

from __future__ import annotations

import pytest
from documents import ROOT

from tare.features.papers.claim_file import BUILT_IN, built_in_claims_path, read_claims
from tare.features.papers.claims import Claim
from tare.suites.suite import read_suite

READ = read_claims(built_in_claims_path("sandboxes"))


def test_there_are_enough_claims_and_each_source_has_some() -> None:
    assert "sandboxes" in BUILT_IN
    assert len(READ.claims) >= 20
    assert {claim.source for claim in READ.claims} == set(READ.origins)
    assert all(origin.link.startswith("https://") for origin in READ.origins.values())


@pytest.mark.parametrize("claim", READ.claims, ids=lambda claim: claim.id)
def test_the_suite_of_a_claim_measures_its_stacks_with_its_workload(claim: Claim) -> None:
    suite = read_suite(ROOT / READ.origins[claim.source].suite)
    stacks = {stack.name for stack in suite.stacks}
    assert claim.stack in stacks
    assert claim.value or claim.than in stacks
    [workload] = [
        each.workload for each in suite.workloads if each.use == claim.workload and _has(each.workload, claim)
    ]
    assert claim.metric in {metric.name for metric in workload.all_metrics}


def _has(workload: object, claim: Claim) -> bool:
    values = {name: getattr(workload, name) for name in claim.settings}
    return all(_plain(values[name]) == _plain(setting) for name, setting in claim.settings.items())


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _printed_numbers(claim: Claim) -> list[float]:
    """Return the numbers of milliseconds that a claim of a ratio prints."""
    parts = [part for part in claim.printed.split(", ") if " ms" in part and claim.size]
    return [float(part.split()[0].lstrip("~")) for part in parts]


@pytest.mark.parametrize(
    "claim", [each for each in READ.claims if len(_printed_numbers(each)) > 1], ids=lambda each: each.id
)
def test_a_printed_ratio_is_that_of_the_printed_numbers(claim: Claim) -> None:
    first, second = _printed_numbers(claim)[:2]
    assert claim.size == pytest.approx(first / second, rel=0.05)
