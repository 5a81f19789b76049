"""The report in the papers' way, as a format."""

from __future__ import annotations

import re
from dataclasses import replace

from pages import rendered
from runs import DHRYSTONE, believable_run, make_run, make_trial, measured, pairs

from tare.model.trial import StopReason
from tare.report.writer import default_formats, format_names


def test_the_papers_way_has_a_table_for_each_metric_and_point() -> None:
    believable = believable_run()
    redis = [trial for trial in believable.trials if trial.workload == "redis" and trial.stack in ("native", "docker")]
    run = replace(believable, trials=tuple(redis))
    text = rendered(run, "papers")["papers.md"]
    assert text.count("one-way ANOVA: F(1, 14) = ") == len({(v.metric, v.point) for t in redis for v in t.values}) > 4
    row = next(line for line in text.splitlines() if line.startswith("| docker |"))
    assert "| 8 |" in row
    assert not re.search(r"\bnan\b", text.lower())
    early = replace(run, record=replace(run.record, stop_reason=StopReason.DECIDED))
    assert "these tests are too sure" in rendered(early, "papers")["papers.md"]


def test_the_papers_way_says_so_too_where_a_single_stack_left_early() -> None:
    run = pairs([90, 91, 90, 91, 90], [100] * 5)
    left = replace(run, trials=tuple(t for t in run.trials if t.stack == "native" or t.block < 4))
    texts = [rendered(each, "papers")["papers.md"] for each in (run, left)]
    assert ["these tests are too sure" in text for text in texts] == [False, True]


def test_names_are_text_in_the_papers_way() -> None:
    odd = "a_b|<b>`[x]*, @me"
    trials = [
        make_trial(stack, block, [measured("speed", value + block)], odd)
        for stack, value in (("native", 100.0), (odd, 90.0))
        for block in range(5)
    ]
    text = rendered(make_run(trials, [replace(DHRYSTONE, name=odd)]), "papers")["papers.md"]
    assert "<b>" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {11}


def test_the_tests_of_papers_are_computed_only_on_request() -> None:
    assert default_formats() == ("html", "csv", "json", "yaml", "session")
    assert "papers" in format_names()
