"""The figure of a whole run: what lies where, what is said beside it, and that odd runs have a sensible one."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from full_run import WORKLOADS, full_run
from pages import html_of
from runs import DHRYSTONE, believable_run, make_run, make_trial, measured, pairs

from tare.model.run_folder import Run
from tare.model.trial import Metric
from tare.report.html.page import render
from tare.report.numbers import format_cost
from tare.report.overview import (
    HeadlineColumn,
    HeadlineEntry,
    Overview,
    create_overview,
    draw_card,
    draw_figure,
    draw_page_figure,
)
from tare.report.svg_axes import classify_cost
from tare.report.writer import find_renderer
from tare.statistics.cells import Cell
from tare.statistics.summarize import summarize

SVG = "{http://www.w3.org/2000/svg}"


def drawn(run: Run) -> Overview:
    return create_overview(summarize(run))


def entry(column: HeadlineColumn, stack: str) -> HeadlineEntry:
    return next(each for each in column.entries if each.stack == stack)


def placed(entry: HeadlineEntry) -> tuple[float, float, float]:
    assert entry.place is not None
    assert entry.low is not None
    assert entry.high is not None
    return entry.low, entry.place, entry.high


def cell(ratio: float, low: float, high: float, better: str = "lower") -> Cell:
    made = Cell("w", "m", None, "s", "s", "lower" if better == "lower" else "higher", "worse", 5)
    return replace(made, ratio=ratio, low=low, high=high)


def test_costs_of_one_percent_and_of_hundreds_of_times_are_both_legible() -> None:
    trials = [
        make_trial(stack, block, [measured("speed", speed * (1 + 0.002 * ((block * 7 + len(stack)) % 5)))])
        for stack, speed in {"native": 100.0, "near": 96.0, "twice": 49.0, "far": 100 / 600}.items()
        for block in range(8)
    ]
    [column] = drawn(make_run(trials)).columns
    places = [placed(entry(column, stack))[1] for stack in ("near", "twice", "far")]
    assert column.baseline + 0.08 < places[0] < places[1] - 0.1 < places[2] - 0.2
    assert [entry(column, stack).text for stack in ("native", "twice", "far")] == [
        "baseline",
        "\N{MULTIPLICATION SIGN}2",
        "\N{MULTIPLICATION SIGN}600",
    ]
    labels = [label for _, label in column.ticks if label]
    assert labels[:2] == ["0", "+10 %"]
    assert labels[-1].startswith("\N{MULTIPLICATION SIGN}10")
    named = [(place, 0.029 * len(label)) for place, label in column.ticks if label]
    assert all(one + half <= other - room for (one, half), (other, room) in pairwise(named))  # none covers another
    assert all(0 <= place <= 1 for place, _ in column.ticks)


def test_a_headline_that_no_block_has_of_both_has_no_column() -> None:
    count = Metric("count", "Instances", "instances", "lower")
    trials = [
        make_trial(stack, block, [measured("speed", 100.0), *([measured("count", 3.0)] if block % 2 == odd else [])])
        for odd, stack in enumerate(("native", "other"))
        for block in range(6)
    ]
    run = make_run(trials, [replace(DHRYSTONE, metrics=(*DHRYSTONE.metrics, count))])
    assert len(summarize(run).rules) == 2
    assert [column.name for column in drawn(run).columns] == ["dhrystone"]


def test_more_is_to_the_right_whether_more_or_less_is_better() -> None:
    slower = [90.0, 91, 89, 90.5, 89.5, 90.2]
    throughput, seconds = (
        drawn(pairs(slower, [100.0] * 6)),
        drawn(pairs([1e4 / each for each in slower], [100.0] * 6, "lower")),
    )
    for found in (throughput, seconds):
        [column] = found.columns
        low, at, high = placed(entry(column, "docker"))
        assert column.baseline < low < at < high
        assert entry(column, "docker").text == "+11.1 %"


def test_the_dot_lies_in_its_interval_and_what_is_alike_lies_in_the_band() -> None:
    for column in drawn(believable_run(blocks=12)).columns:
        low, high = column.band
        assert low < column.baseline < high
        for each in column.entries:
            if each.low is None or each.is_baseline:
                continue
            own = placed(each)
            assert own[0] <= own[1] <= own[2]
            if "equivalent" in each.detail:
                assert low <= own[0] <= own[2] <= high


def test_stacks_are_in_the_order_of_their_cost_after_the_baseline(full: Run) -> None:
    found = drawn(full)
    assert found.stacks[0] == "native"
    assert "native-again" not in found.stacks
    assert found.stacks.index("crun") < found.stacks.index("docker") < found.stacks.index("qemu-tcg")


def test_a_quantity_that_is_no_speed_has_an_axis_in_its_unit() -> None:
    metric = Metric("total", "Time to the first answer", "s", "lower", overall=False)
    run = make_run([
        make_trial(stack, block, [replace(measured("total", at + 0.0001 * block), unit="s", better="lower")])
        for stack, at in {"native": 0.004, "docker": 0.4}.items()
        for block in range(6)
    ])  # fmt: skip
    record = replace(run.record, workloads=(replace(run.record.workloads[0], metrics=(metric,)),))
    [column] = drawn(replace(run, record=record)).columns
    assert column.what == "Time to the first answer"
    assert [label for _, label in column.ticks] == ["10 ms", "100 ms"]
    assert [entry(column, stack).text for stack in ("native", "docker")] == ["4.25 ms", "400 ms"]
    assert entry(column, "docker").size == "large"


@pytest.mark.parametrize(("found", "text"), [
    (cell(1.039, 1.037, 1.041), "+3.9 %"),
    (cell(1.039, 0.98, 1.1), "+4 %"),
    (cell(0.96, 0.95, 0.97), "\N{MINUS SIGN}4.0 %"),
    (cell(1.0004, 0.999, 1.002), "0.0 %"),
    (cell(1190.0, 1100, 1280), "\N{MULTIPLICATION SIGN}1,190"),
    (cell(15.72, 15.2, 16.3), "\N{MULTIPLICATION SIGN}16"),
    (cell(0.5, 0.49, 0.51, "higher"), "\N{MULTIPLICATION SIGN}2"),
    (Cell("w", "m", None, "s", "", "lower", "no value"), ""),
])  # fmt: skip
def test_a_cost_has_no_more_digits_than_its_interval_supports(found: Cell, text: str) -> None:
    assert format_cost(found) == text


def test_what_is_not_decided_is_hollow_and_what_has_no_value_says_why() -> None:
    chance = [90, 110, 99, 103, 96.0]
    [column] = drawn(pairs(chance, [100.0] * 5)).columns
    assert not entry(column, "docker").is_sure
    [few] = drawn(pairs([90.0], [100.0])).columns
    assert (entry(few, "docker").text, entry(few, "docker").low) == ("too few", None)
    nothing = replace(make_trial("docker", 0, []), status="failed", reason="no")
    failed = make_run([make_trial("native", 0, [measured("speed", 1.0)]), nothing])
    [none] = drawn(failed).columns
    assert (entry(none, "docker").text, entry(none, "docker").place) == ("failed", None)


def test_a_run_without_anything_to_compare_has_no_figure() -> None:
    empty = make_run([])
    assert draw_page_figure(drawn(empty)) is None
    assert (draw_figure(summarize(empty), empty), find_renderer("card")(summarize(empty), empty)) == ("", {})
    assert draw_page_figure(drawn(make_run([make_trial("native", 0, [measured("speed", 1.0)])]))) is None


def test_of_very_many_stacks_the_cheapest_are_drawn_and_the_others_counted() -> None:
    trials = [
        make_trial(stack, block, [measured("speed", speed + block % 2)])
        for stack, speed in {"native": 100.0, **{f"s{number}": 99.0 - number / 4 for number in range(199)}}.items()
        for block in range(5)
    ]
    summary = summarize(make_run(trials))
    found = create_overview(summary)
    assert (len(found.stacks), found.left_out, found.stacks[:2]) == (40, 160, ("native", "s0"))
    shown = draw_page_figure(found)
    assert shown
    assert "The figure has the 40 cheapest stacks; 160 more are below." in shown.counts


def test_values_without_any_variance_have_bars_without_a_width() -> None:
    [column] = drawn(pairs([50.0] * 6, [100.0] * 6)).columns
    low, at, high = placed(entry(column, "docker"))
    assert low == pytest.approx(at) == pytest.approx(high)


def test_the_files_are_whole_documents_that_escape_what_is_from_the_run(full: Run) -> None:
    hostile = replace(full, record=replace(full.record, suite='<script>"&'))
    text = draw_figure(summarize(hostile), hostile)
    root = ET.fromstring(text)  # noqa: S314 - ours
    assert root.tag == f"{SVG}svg"
    assert "<script>" not in text
    assert len(root.findall(f".//{SVG}circle")) >= 9 * 10


def test_the_formats_have_the_figure_and_the_card_fits_link_previews() -> None:
    run = believable_run(blocks=5)
    summary = summarize(run)
    png = find_renderer("card")(summary, run)["card.png"]
    assert png.startswith(b"\x89PNG")
    assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == (1200, 630)
    run = full_of(4)  # each of its charts is drawn
    summary = summarize(run)
    assert find_renderer("svg")(summary, run)["figures/00-overview.svg"].startswith(b"<svg")
    assert find_renderer("pdf")(summary, run)["figures/00-overview.pdf"].startswith(b"%PDF")


def test_a_card_of_few_stacks_is_full_and_one_of_many_stays_complete() -> None:
    few, many = believable_run(blocks=5), full_of(60)
    heights = {}
    for name, run in (("few", few), ("many", many)):
        root = ET.fromstring(draw_card(summarize(run), run))  # noqa: S314 - ours
        assert (root.get("width"), root.get("height")) == ("1200", "630")
        inner = root.find(f"{SVG}svg")
        assert inner is not None
        heights[name] = float(inner.get("viewBox", "").split()[3])
    assert heights["few"] > 46 + 26 * 8 + 24 + 50
    assert heights["many"] == 46 + 26 * 16 + 24


def full_of(stacks: int) -> Run:
    """A run of so many stacks."""
    speeds = {"native": 100.0, **{f"s{number}": 99.0 - number for number in range(stacks - 1)}}
    return make_run([
        make_trial(stack, block, [measured("speed", speed + block % 2)])
        for stack, speed in speeds.items()
        for block in range(5)
    ])  # fmt: skip


def test_the_axis_is_the_same_in_all_columns_of_costs(full: Run) -> None:
    columns = [column for column in drawn(full).columns if column.what == "slowdown"]
    assert len({(column.baseline, column.band, column.ticks) for column in columns}) == 1
    assert math.isclose(columns[0].baseline, (columns[0].band[0] + columns[0].band[1]) / 2)


def test_each_dot_links_to_its_workload_and_each_number_to_its_trials(full_page: str) -> None:
    html = full_page
    figure = html[html.index('<figure id="overview"') : html.index("<details><summary>The figure as a table")]
    identifiers = set(re.findall(r'id="([^"]+)"', html))
    dots = re.findall(r'<a href="#([^"]+)" tabindex="-1"><circle', figure)
    numbers = re.findall(r'<a href="#([^"]+)" tabindex="-1"><text', figure)
    assert (len(dots), set(dots)) == (10 * 11, {f"workload-{number}" for number in range(10)})
    assert len(numbers) == 10 * 11
    assert all(number.startswith("trials-") for number in numbers)
    assert {*dots, *numbers} <= identifiers


@pytest.mark.parametrize(("ratio", "size"), [
    (0.9, "gain"), (0.98, "none"), (1.02, "none"), (1.1, "small"), (2.0, "medium"), (9.0, "large"),
])  # fmt: skip
def test_what_is_faster_than_the_baseline_is_no_small_cost(ratio: float, size: str) -> None:
    assert classify_cost(math.log(ratio), 0.03) == size


def test_a_run_that_ranks_nothing_has_no_answer_but_says_what_was_compared() -> None:
    html = html_of(make_run([make_trial("native", 0, [measured("speed", 1.0)])]))
    assert "0 stacks with 1 workload on this machine" in html
    assert '<p class="lead">' not in html


def test_the_page_of_an_unfinished_run_has_figures_and_only_it_refreshes(tmp_path: Path) -> None:
    few = [record for record in WORKLOADS if record.name in ("dhrystone", "whetstone", "startup")]
    run = full_run(tmp_path / "run", 5, workloads=few)
    html = render(summarize(run), run, 5)["index.html"].decode()
    assert html.count('<meta http-equiv="refresh" content="5">') == 1
    assert "unfinished, reloads every 5 s" in html
    assert not re.search('http-equiv="refresh"|unfinished', html_of(run))
    assert html.count('class="overview"') == 3
    assert html.count('class="overview trade"') == 3
