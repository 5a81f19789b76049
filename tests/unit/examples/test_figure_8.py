"""The figure of a run: rates of each stack in parts of the load's time, averaged over its trials."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from figure_8 import PANELS, chart_of, results_of, rows_of, ticks
from runs import make_run, make_trial

from tare.errors import UsageError


def result(seconds: int, **each: int) -> dict[str, Any]:
    counts = {"200": 0, "50x": 0, "transport": 0, "other": 0} | each
    return {"over_time": {kind: [count] * seconds for kind, count in counts.items()}}


def rates(rows: list[dict[str, Any]], stack: str, kind: str) -> list[float]:
    return [row["rate"] for row in rows if (row["stack"], row["kind"]) == (stack, PANELS[kind])]


def test_a_short_load_is_drawn_second_by_second() -> None:
    rows = rows_of([("native", result(3, **{"200": 7, "50x": 1}))])
    assert rates(rows, "native", "200") == [7, 7, 7]
    assert rates(rows, "native", "50x") == [1, 1, 1]
    assert rates(rows, "native", "transport") == [0, 0, 0]
    assert [row["second"] for row in rows[:3]] == [0.5, 1.5, 2.5]


def test_a_long_load_is_drawn_in_parts_as_rates() -> None:
    rows = rows_of([("native", result(600, **{"200": 7}))])
    assert rates(rows, "native", "200") == [7] * 120


def test_trials_of_a_stack_are_averaged_and_one_that_ended_early_has_no_answers_later() -> None:
    rows = rows_of([("native", result(4, **{"200": 8})), ("native", result(2, **{"200": 8}))])
    assert rates(rows, "native", "200") == [8, 8, 4, 4]


def test_what_a_load_has_printed_is_drawn_where_it_came() -> None:
    sample = Path(__file__).parents[2] / "samples" / "dictionary" / "load-search-daemon-stopped.json"
    rows = rows_of([("native", json.loads(sample.read_text(encoding="utf-8")))])
    assert rates(rows, "native", "50x") == [0] * 20 + [2, 1, 1, 1, 0, 0]
    assert rates(rows, "native", "200")[:5] == [10, 5, 5, 5, 0]


def test_the_line_of_a_stack_ends_when_its_load_does() -> None:
    rows = rows_of([("native", result(3, **{"200": 7})), ("gvisor", result(5, **{"200": 4}))])
    assert rates(rows, "native", "200") == [7, 7, 7]
    assert rates(rows, "gvisor", "200") == [4, 4, 4, 4, 4]


def test_every_kind_has_a_panel_and_every_stack_a_line() -> None:
    chart = chart_of(rows_of([("native", result(3, **{"200": 7})), ("docker", result(3, transport=1))])).to_dict()
    assert [panel["title"]["text"] for panel in chart["vconcat"]] == [
        "answers 200, each second",
        "answers 50x, each second: none",
        "errors of transport, each second",
    ]
    assert all(panel["encoding"]["color"]["scale"]["domain"] == ["native", "docker"] for panel in chart["vconcat"])


def test_an_axis_has_zero_and_powers_of_ten() -> None:
    assert ticks(0) == ticks(7) == [0, 1]
    assert ticks(1050.5) == [0, 1, 10, 100, 1000]


def test_a_workload_without_good_trials_is_said() -> None:
    failed = replace(make_trial("native", 0, (), workload="dictionary-200"), status="failed")
    with pytest.raises(UsageError) as error:
        results_of(make_run([failed], folder=Path("runs/mine")), "dictionary-200")
    assert str(error.value) == "runs/mine: no good trial of dictionary-200"
    assert error.value.hint == "it has trials of dictionary-200"
