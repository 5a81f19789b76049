"""The section on published claims: both numbers side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from claimed import claims, text_of
from pages import Page, html_of
from runs import DHRYSTONE, believable_run, pairs

from tare.features.papers import claims_text as module
from tare.features.papers.claim_file import built_in_claims_path, read_claims
from tare.features.papers.claims_page import section_fields
from tare.features.papers.judging import judge
from tare.model.errors import UsageError
from tare.model.run_folder import Run
from tare.report.html.trials import trial_anchors
from tare.statistics.summarize import summarize


def section_of(run: Run, *changes: dict[str, object]) -> dict[str, Any]:
    return section_fields(judge(run, claims(*changes)), trial_anchors(summarize(run), run))


SLOWER = pairs([90.0 + number % 3 for number in range(12)], [100.0] * 12)


def test_what_was_published_and_what_is_here_stand_side_by_side() -> None:
    [row] = section_of(SLOWER, {"size": "91%", "tolerance": "3%", "printed": "91 percent"})["rows"]
    assert row.items() >= {
        ("judgement", "reproduced"),
        ("look", "equivalent"),
        ("published", "\N{MINUS SIGN}9 % ± 3 %"),
        ("here", "\N{MINUS SIGN}9.0 %"),
        ("n", "12"),
        ("where", "paper, Table 1"),
        ("anchor", "trials-0-1"),
    }
    assert row["interval"].startswith("[\N{MINUS SIGN}9.")


def test_the_contradicted_come_first_and_then_the_reproduced() -> None:
    found = section_of(SLOWER, {"direction": "less"}, {"direction": "more"})
    assert [row["judgement"] for row in found["rows"]] == ["contradicted", "reproduced"]
    assert found["rows"][0]["look"] == "worse strength-2"
    assert found["sentence"] == "Of 2 claims, 1 reproduced and 1 contradicted."


def test_what_was_not_tested_says_why_and_what_would_test_it() -> None:
    found = section_of(SLOWER, {"stack": "podman"})
    assert found["rows"] == []
    [row] = found["others"]
    assert (row["judgement"], row["remark"]) == (
        "not tested",
        "the run has no stack podman; tare run examples/quick.toml",
    )


def test_the_page_has_the_published_claims() -> None:
    page = Page(html_of(believable_run(blocks=2)))
    assert f"Published claims, put to the test Of {len(read_claims(built_in_claims_path()).claims)} claims" in page.text
    assert "#claims" in page.named("href")
    assert "vtmark-2021" in page.text


def test_a_page_whose_run_fits_no_published_claim_has_no_section_of_them() -> None:
    other = pairs([1.0] * 6, [1.0] * 6)
    record = replace(other.record, workloads=(replace(DHRYSTONE, name="mine", use="command"),))
    page = Page(
        html_of(replace(other, trials=tuple(replace(each, workload="mine") for each in other.trials), record=record))
    )
    assert "#claims" not in page.named("href")
    assert "Published claims" not in page.text
    assert "not tested" not in page.text


def test_claims_that_were_asked_for_are_on_the_page_even_if_none_fits(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(text_of({"stack": "podman"}), encoding="utf-8")
    page = Page(html_of(replace(SLOWER, claims=(str(mine),))))
    assert "#claims" in page.named("href")
    assert "None of 1 claims is about what this run has measured." in page.text
    assert "the run has no stack podman" in page.text


def test_claims_that_cannot_be_read_leave_the_page_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_files: tuple[str, ...]) -> None:
        raise UsageError("published.toml: no workload named dhrystone")

    monkeypatch.setattr(module, "_read", broken)
    page = Page(html_of(SLOWER))
    assert "The published claims could not be read: published.toml: no workload named dhrystone." in page.text
    assert "claims that this run" not in page.text.lower()
