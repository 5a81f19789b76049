"""The page of runs that are odd: with very many stacks, with failures alone, cut off, or of another format."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pages import Page, html_of
from runs import make_run, make_trial, measured, write

from tare.model.errors import UsageError
from tare.model.journal import load
from tare.report.writer import write_report


def test_a_page_of_a_thousand_stacks_stays_small_and_says_what_it_leaves_out() -> None:
    stacks = ("native", *(f"stack-{number}" for number in range(999)))
    trials = [make_trial(stack, block, [measured("speed", 100.0)]) for stack in stacks for block in range(5)]
    html = html_of(make_run(trials))
    assert len(html.encode()) < 3_000_000
    assert "Left out, so that the page can be read: charts, as there are 1000 stacks; trials, which" in Page(html).text
    assert html.count('<th scope="row">stack-') >= 999


def test_a_workload_of_very_many_trials_has_no_chart_of_each_and_the_page_says_so() -> None:
    def text(blocks: int) -> str:
        values = [measured("speed", 100.0)]
        return Page(html_of(make_run([make_trial("native", block, values) for block in range(blocks)]))).text

    assert "140 of 1,400 trials a dot" in text(1400)
    many = text(1401)
    assert "a dot" not in many
    assert "Left out, so that the page can be read: the charts of single trials of a workload that has more" in many


def test_a_run_with_failures_alone_says_why_first() -> None:
    trials = [
        replace(make_trial(stack, block, ()), status="failed", reason=f"{stack} crashed")
        for stack in ("native", "docker")
        for block in range(5)
    ]
    text = Page(html_of(make_run(trials))).text
    first = text[text.index("What does not work") : text.index("Who is the best at what")]
    assert "stack dhrystone native ✕ fails native crashed docker ✕ fails docker crashed" in first
    assert "docker crashed (docker: dhrystone (5 trials))" in first
    assert not re.search(r"\bnan\b|None", text)


def test_a_journal_that_ends_within_a_line_has_a_page_of_what_is_whole(tmp_path: Path) -> None:
    run = make_run(
        [make_trial("native", block, [measured("speed", 100.0)]) for block in range(3)], folder=tmp_path / "run"
    )
    journal = write(run) / "trials.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    [page] = write_report([load(run.folder)], ["html"])
    assert "2 trials (2 ok)" in Page(page.read_text(encoding="utf-8")).text


def test_a_run_of_a_format_that_is_not_known_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = write(make_run([make_trial("native", 0, [measured("speed", 100.0)])], folder=tmp_path / "run"))
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps(record | {"format": 999}), encoding="utf-8")
    with pytest.raises(UsageError, match="999"):
        load(folder)
