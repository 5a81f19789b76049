"""The table of a session: on the page, in the terminal, in Markdown and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from runs import believable_run
from sessions import WEIGHTS, run_of_sessions

from tare.features.session.table import markdown, render, section, session_table, terminal
from tare.model.run_folder import Run
from tare.report.html.page import render as render_page
from tare.statistics.summarize import summarize

RUN = run_of_sessions()
SUMMARY = summarize(RUN)
TIMES = "\N{MULTIPLICATION SIGN}"


def printed(run: Run) -> str:
    console = Console(width=100, record=True, file=StringIO())
    console.print(terminal(summarize(run), run))
    return console.export_text()


def test_stacks_are_grouped_by_isolation_and_sorted_by_seconds() -> None:
    table = session_table(SUMMARY, RUN)
    assert table is not None
    stacks = {level: [row.stack for row in rows] for level, rows in table.levels.items()}
    assert stacks == {
        "none": ["native"],
        "shared kernel": ["crun", "docker", "podman"],
        "user-space kernel": ["gvisor"],
        "own kernel": ["qemu"],
    }
    best = {row.stack for rows in table.levels.values() for row in rows if row.is_best}
    assert best == {"native", "crun", "gvisor"}
    assert table.contents == (f"2 {TIMES} clone", f"10 {TIMES} tests", f"0.5 {TIMES} startup")


def test_a_stack_of_unknown_isolation_stands_at_the_end() -> None:
    run = replace(RUN, record=replace(RUN.record, isolation={}))
    table = session_table(SUMMARY, run)
    assert table is not None
    assert list(table.levels) == ["unknown"]


def test_a_row_says_what_a_stack_lacks() -> None:
    table = session_table(SUMMARY, RUN)
    assert table is not None
    rows = {row.stack: row for rows in table.levels.values() for row in rows}
    assert rows["podman"].missing == "lacks tests (failed)"
    assert rows["qemu"].missing == "lacks clone, tests and startup (skipped)"
    assert rows["podman"].seconds == ("", "")
    assert rows["gvisor"].seconds[0].endswith(" s")
    assert rows["gvisor"].missing == ""
    assert len(rows["podman"].parts) == len(WEIGHTS)
    assert rows["podman"].parts[1] == ""


def test_the_page_has_the_table_the_chart_and_the_parts() -> None:
    part = section(SUMMARY, RUN, {})
    assert part is not None
    assert (part.anchor, part.title) == ("session", "One agent session")
    assert "<svg" in part.html
    assert "lacks tests (failed)" in part.html
    assert part.html in render_page(SUMMARY, RUN)["index.html"].decode()


def test_a_title_from_a_run_folder_is_escaped() -> None:
    run = replace(RUN, record=replace(RUN.record, session="<b>\x1b[1m|"))
    part = section(SUMMARY, run, {})
    assert part is not None
    assert "<b>" not in part.html
    assert "\x1b" not in printed(run)
    assert "<b>" not in markdown(SUMMARY, run)


def test_the_terminal_and_markdown_have_a_row_for_each_stack() -> None:
    text = printed(RUN)
    for stack in ("native", "crun", "docker", "podman", "gvisor", "qemu"):
        assert f" {stack} " in text
        assert f"| {stack} |" in markdown(SUMMARY, RUN)
    assert "One agent session" in text
    assert f"a session: 2 {TIMES} clone, 10 {TIMES} tests, 0.5 {TIMES} startup." in text


def test_json_has_numbers_in_base_units() -> None:
    document = json.loads(render(SUMMARY, RUN)["session.json"])
    assert document["weights"] == WEIGHTS
    stacks = {each["stack"]: each for each in document["stacks"]}
    assert stacks["native"]["seconds"] == pytest.approx(5.4, rel=0.1)
    assert stacks["native"]["interval"] is None
    low, high = stacks["gvisor"]["interval"]
    assert low < stacks["gvisor"]["estimate"] < high
    assert stacks["podman"]["missing"] == {"tests": "failed"}
    assert stacks["qemu"]["seconds"] is None


def test_a_run_without_weights_has_no_table() -> None:
    run = believable_run()
    summary = summarize(run)
    assert section(summary, run, {}) is None
    assert terminal(summary, run) is None
    assert markdown(summary, run) == ""
    assert render(summary, run) == {}
