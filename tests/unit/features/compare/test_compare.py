"""Stacks of a run compared: verdicts, the gate with its exit codes, the outputs, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from compared import STACKS, Compare, changed, ends, made, with_trials
from documents import DOCS

from tare.model.run_folder import Run
from tare.model.trial import Status, Trial

# --- one run ---------------------------------------------------------------------------------------------------------


def test_a_worse_stack_fails_the_gate_only_if_the_gate_was_requested(before: Run, compare: Compare) -> None:
    found = compare(before)
    assert found.code == 0
    assert "Compared with native, docker in dhrystone is worse (\N{MINUS SIGN}9.9 %)." in found.out
    found = compare(before.folder, "--fail-on", "worse")
    assert (found.code, found.err) == (1, "")
    assert "The gate (--fail-on worse) failed: docker in dhrystone (worse)." in found.out
    found = compare(before.folder, "--fail-on", "better,undecided")
    assert found.code == 0
    assert "The gate (--fail-on better,undecided) passed." in found.out
    assert compare(before.folder, "--fail-on", "better", "--fail-on", "different").code == 1


def test_another_baseline_turns_the_comparison_round(before: Run, compare: Compare) -> None:
    forth = compare(before, "--json").cells["dhrystone", "docker"]
    found = compare(before.folder, "--json", "--baseline", "docker", "--fail-on", "worse")
    back = found.cells["dhrystone", "native"]
    assert found.code == 0
    assert (forth["decision"], back["decision"]) == ("worse", "better")
    assert forth["estimate"] == pytest.approx(1 / back["estimate"])
    assert forth["interval"] == [pytest.approx(1 / limit) for limit in reversed(back["interval"])]
    assert found.document["baseline"] == "docker"


def test_a_wider_margin_makes_a_small_difference_none(tmp_path: Path, compare: Compare) -> None:
    run = made(tmp_path / "run", {"native": 1.0, "docker": 0.96}, blocks=20)
    assert compare(run, "--fail-on", "worse").code == 1
    found = compare(run.folder, "--fail-on", "worse", "--margin", "10%")
    assert found.code == 0
    assert "docker in dhrystone is equivalent within 10 %" in found.out


def test_only_the_stacks_that_are_named_are_compared(tmp_path: Path, compare: Compare) -> None:
    run = made(tmp_path / "run", {"native": 1.0, "crun": 1.0, "docker": 0.5})
    found = compare(run, "--stack", "crun", "--fail-on", "worse")
    assert found.code == 0
    assert "docker" not in found.out


def test_the_repeated_baseline_is_no_result_but_shows_the_resolution(tmp_path: Path, compare: Compare) -> None:
    run = made(tmp_path / "run", {"native": 1.0, "native-again": 1.5, "docker": 1.0})
    found = compare(run, "--fail-on", "different")
    assert (found.code, "the gate is undecided: 1 of 1 verdict is" in found.err) == (0, True)
    assert "native: +50 % in dhrystone between two measurements of it" in found.out
    printed = compare(run.folder, "--baseline", "docker").out
    assert "between two measurements" not in printed
    assert "native-again" not in printed


def test_a_completely_failed_stack_fails_the_gate_unlike_a_skipped_one(tmp_path: Path, compare: Compare) -> None:
    run = made(tmp_path / "failed", {"native": 1.0, "docker": 1.0, "crun": 1.0})
    outcomes: tuple[tuple[Status, int], ...] = (("failed", 1), ("skipped", 0))
    for status, code in outcomes:
        found = compare(replace(ends(run, "docker", status), folder=tmp_path / status), "--fail-on", "worse")
        assert found.code == code
        assert status in found.out


def test_one_block_is_shown_but_a_gate_cannot_decide(tmp_path: Path, compare: Compare) -> None:
    run = made(tmp_path / "run", STACKS, blocks=1)
    found = compare(run)
    assert found.code == 0
    assert "? too few blocks" in found.out
    found = compare(run.folder, "--fail-on", "worse")
    what, hint = found.error
    assert found.code == 3
    assert what == "the gate cannot tell: no comparison has an interval, with 1 block at most"
    assert hint.startswith("5 blocks or more are needed")
    assert compare(run.folder, "--fail-on", "undecided").code == 1


def test_a_baseline_that_failed_leaves_nothing_to_compare(before: Run, compare: Compare) -> None:
    found = compare(ends(before, "native", "failed"), "--fail-on", "worse")
    assert found.code == 3
    assert found.error == (
        "nothing can be compared with native: native: all 12 trials failed",
        f"see the reasons: tare show {before.folder}",
    )


def test_a_run_without_trials_leaves_nothing_to_compare(before: Run, compare: Compare) -> None:
    found = compare(replace(before, trials=()))
    assert (found.code, found.error[0]) == (3, "nothing can be compared with native: native: no trial was run")
    assert compare(changed(replace(before, trials=(), folder=before.folder / "b"), workloads=())).code == 3


def test_a_metric_in_two_units_is_refused(before: Run, compare: Compare) -> None:
    def change(trial: Trial) -> Trial:
        values = tuple(replace(value, unit="s") for value in trial.values)
        return replace(trial, values=values) if trial.block == 3 else trial

    found = compare(with_trials(before, change))
    what = "dhrystone: speed is in iterations/s (higher is better) and in s (higher is better)"
    assert (found.code, found.error[0]) == (2, what)


@pytest.mark.parametrize(("options", "what", "hint"), [
    (["--stack", "dokcer"], "has no stack dokcer", 'did you mean "docker"?'),
    (["--baseline", "xen"], "has no stack xen", "it has native, docker"),
    (["--stack", "native"], "--stack native: it is the baseline", "name another --baseline"),
    (["--margin", "0%"], "--margin 0%: a margin lies between 0% and 100%", "for example --margin 3%"),
    (["--margin", "3"], "--margin 3: a share needs its percent sign", "for example --margin 3%"),
    (["--fail-on", "wrose"], "--fail-on wrose: no such verdict", 'did you mean "worse"?'),
    (["--fail-on", ","], "--fail-on: no verdict is named", "for example --fail-on worse"),
    (["--json", "--markdown"], "--json and --markdown exclude each other", "run tare compare once for each"),
])  # fmt: skip
def test_wrong_usage_is_two_lines(before: Run, options: Sequence[str], what: str, hint: str, compare: Compare) -> None:
    found = compare(before, *options)
    assert found.code == 2
    assert what in found.error[0]
    assert hint in found.error[1]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, compare: Compare) -> None:
    found = compare(tmp_path)
    assert found.code == 2
    assert "not a run" in found.error[0]


def test_a_run_of_one_stack_is_refused(tmp_path: Path, compare: Compare) -> None:
    found = compare(made(tmp_path / "run", {"native": 1.0}))
    assert found.code == 2
    assert found.error[0].endswith("has no stack but native")


def test_the_sentence_counts_the_verdicts_and_names_what_differs(tmp_path: Path, compare: Compare) -> None:
    speeds = {"native": 1.0, "docker": 0.9, "crun": 1.1, "lxc": 1.0, "podman": 1.0}
    said = compare(made(tmp_path / "run", speeds, blocks=20)).out.splitlines()[-1]
    start = "Compared with native, of 4 results 1 is worse (docker in dhrystone, "
    assert said.startswith(start)
    assert "1 is better (crun in dhrystone, " in said
    assert said.endswith(" and 2 are equivalent within 3 %.")
    lines = compare(made(tmp_path / "short", {**STACKS, "crun": 1.1}, blocks=2)).out.splitlines()
    assert lines[-1] == "Compared with native, all 2 results have too few blocks."
    assert "docker and crun in dhrystone: 2 blocks have no interval: 5 are needed" in lines


# --- the outputs -----------------------------------------------------------------------------------------------------


def test_a_cell_in_json_has_what_programs_rely_on(before: Run, compare: Compare) -> None:
    whole = compare(before, "--json").document
    assert whole["format"] == 1
    assert whole["gate"] == {"fail_on": [], "answer": None, "reason": None, "cells": [], "baseline_changes": []}
    assert {"estimate", "interval", "n", "decision", "cautions"} <= whole["cells"][0].keys()


def test_markdown_has_the_answer_the_table_and_the_remarks(before: Run, after: Run, compare: Compare) -> None:
    found = compare(before, after, "--markdown", "--fail-on", "worse")
    assert found.code == 1
    lines = found.out.splitlines()
    assert lines[0] == "### ❌ tare compare"
    assert lines[2].startswith("Same machine, ")
    assert lines[4].startswith("The gate (--fail-on worse) failed: docker in dhrystone (worse). native itself: ")
    assert "From before to after, docker in dhrystone is worse" in lines[4]
    assert lines[6] == "| workload | stack | verdict | estimate | interval | n | before | after |"
    row = lines[8].split(" | ")
    assert row[:3] == ["| dhrystone ↑", "docker", "▼ worse"]
    assert row[5] == "12 + 12"
    row = lines[9].split(" | ")
    assert row[:3] == ["| dhrystone ↑", "native", "▼ worse"]
    assert row[6:] == ["19.9M iterations/s", "15.7M iterations/s |"]


def test_names_from_a_strangers_run_steer_neither_terminal_nor_markdown(tmp_path: Path, compare: Compare) -> None:
    evil = "a|b\x1b[2J\n<img src=x>@all`"
    run = made(tmp_path / "run", {"native": 1.0, evil: 0.5})
    assert "\x1b[2J" not in compare(run).out
    text = compare(run.folder, "--markdown").out
    assert "a\\|b \\[2J &lt;img src=x&gt;&#64;all\\`" in text
    assert "\x1b" not in text


def test_the_page_on_compare_shows_what_is_printed(
    before: Run, after: Run, tmp_path: Path, compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(before, after)
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "compare.md").read_text(encoding="utf-8")
    shown = re.findall(r"\$ tare compare (before.*)\n```\n\n```text\n([^`]*)```", page)
    assert len(shown) == 2
    for words, text in shown:
        printed = compare(*words.split()).out
        assert [line.rstrip() for line in printed.splitlines() if line.strip()] == text.splitlines()
