"""The papers' charts: what is drawn, on which axes, in which colors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from runs import NGINX, believable_run, make_run, make_trial

from tare.model.run_folder import Run, RunWriter, WorkloadRecord
from tare.model.trial import Mark, MeasuredValue, Metric, RawOutput, Sweep
from tare.report import charts, curve_charts
from tare.report.chart_svg import Chart
from tare.report.chart_theme import STACKS
from tare.report.curve_charts import Percentile, Rate, SweepContext
from tare.report.html import charts as module
from tare.report.html.charts import answer_rates, average_rates, draw_sweeps, parse_counts, parse_percentile
from tare.statistics.cells import Cell
from tare.statistics.summarize import summarize

RATE = Sweep("rate", "requests/s")


def cell(stack: str, point: float | None, mean: float, **fields: Any) -> Cell:
    usual = Cell("web", "latency", point, stack, "s", "lower", "undecided", n=5, trials=5, mean=mean, sd=mean / 10)
    return replace(usual, **fields)


def drawing_of(chart: Chart | None) -> str:
    """The parts of a chart, as SVG."""
    assert chart
    return "".join(chart.parts)


def words(chart: Chart | None) -> list[str]:
    """All that a chart says, but what a pointer shows."""
    return re.findall(r"<text [^>]*>([^<]*)</text>", drawing_of(chart))


def titles(chart: Chart | None) -> list[str]:
    """What a pointer shows of a chart."""
    return re.findall(r"<title>([^<]*)</title>", drawing_of(chart))


def paths(chart: Chart | None, kind: str) -> list[str]:
    """The paths of a kind, as lists of places."""
    return re.findall(rf'<path class="{kind}" d="([^"]*)"', drawing_of(chart))


def heights(path: str) -> list[float]:
    """The heights of the places of a line."""
    return [float(height) for _, height in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def test_a_sweep_has_a_line_with_its_sd_for_each_stack() -> None:
    cells = [cell(stack, at, 1000.0 * at, unit="requests/s") for stack in ("native", "docker") for at in (1.0, 2.0)]
    chart = curve_charts.draw_sweep(cells, SweepContext("Throughput", Sweep("clients"), ("native", "docker")))
    assert "docker at 2: 2.00 ± 0.20 k requests/s" in titles(chart)
    assert words(chart)[0] == "Throughput, k requests/s (mean ± SD)"
    [line, _], [spread, _] = paths(chart, "line"), paths(chart, "spread")
    low, high = (float(end) for end in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", spread)[1])
    assert (low + high) / 2 == pytest.approx(heights(line)[1], abs=0.1)
    assert (low - high) / 2 == pytest.approx((heights(line)[0] - heights(line)[1]) / 5, abs=0.1)


def test_a_stack_has_the_color_of_its_place_in_the_run_in_each_chart() -> None:
    stacks = ("native", "docker", "podman")
    cells = [cell("podman", at, at) for at in (1.0, 2.0)]
    chart = curve_charts.draw_sweep(cells, SweepContext("Latency", RATE, stacks))
    assert set(re.findall(r'color="([^"]*)"', drawing_of(chart))) == {STACKS[2]}


def test_of_more_than_eleven_stacks_those_with_reused_colors_are_dashed() -> None:
    stacks = [f"stack-{number}" for number in range(23)]
    cells = [cell(stack, at, at) for stack in stacks for at in (1.0, 2.0)]
    chart = drawing_of(curve_charts.draw_sweep(cells, SweepContext("Latency", RATE, stacks)))
    dashes = re.findall(r'stroke-dasharray="([^"]*)"', chart)  # in the legend, and of the lines
    assert sorted(dashes) == sorted(2 * (["6 3"] * 11 + ["2 2"]))
    few = curve_charts.draw_sweep(cells[:22], SweepContext("Latency", RATE, stacks[:11]))
    assert "stroke-dasharray" not in drawing_of(few)


def test_a_latency_with_the_sd_of_its_requests_has_one_sd_above_it_shaded() -> None:
    cells = [cell("native", at, 0.001) for at in (1000.0, 2000.0)]
    chart = curve_charts.draw_sweep(cells, SweepContext("Latency", RATE, ("native",)), {("native", 2000.0): 0.0005})
    [shade], [line] = paths(chart, "shade"), paths(chart, "line")
    high_before, high, low, low_before = heights(shade)
    assert high_before == low_before == low == heights(line)[0]
    assert high < low


def test_times_over_orders_of_magnitude_use_a_log_axis_without_zero() -> None:
    cells = [cell("native", 1.0, 0.001, sd=0.01), cell("native", 2.0, 0.2)]
    chart = curve_charts.draw_sweep(cells, SweepContext("Latency", RATE, ("native",)))
    assert {"1", "10", "100"} <= set(words(chart))
    assert "0" not in words(chart)


@pytest.mark.parametrize(("name", "unit", "means", "is_logarithmic"), [
    ("Latency", "s", (0.001, 0.02), False),
    ("Memory", "bytes", (3e6, 1.6e9), True),
])  # fmt: skip
def test_an_axis_is_logarithmic_over_two_orders_of_magnitude(
    name: str, unit: str, means: Sequence[float], is_logarithmic: bool
) -> None:
    cells = [cell("native", at, mean, unit=unit) for at, mean in enumerate(means, start=1)]
    chart = curve_charts.draw_sweep(cells, SweepContext(name, RATE, ("native",)))
    assert ("0" in words(chart)) != is_logarithmic


def test_percentiles_of_a_sweep_are_equally_far_apart() -> None:
    cells = [cell("native", at, 0.001, ratio=1.1) for at in (50.0, 90.0, 99.0, 99.9)]
    along = SweepContext("Latency", Sweep("percentile"), ("native",))
    for chart in (curve_charts.draw_sweep(cells, along), curve_charts.draw_percents(cells, along, "crun")):
        across = [float(place) for place, _ in re.findall(r"[ML]([\d.]+) ([\d.]+)", paths(chart, "line")[0])]
        assert {round(after - before) for before, after in pairwise(across)} == {round(across[1] - across[0])}


def test_the_axis_of_starts_has_no_label_over_another_one() -> None:
    drawn = charts.draw_starts({"qemu": [Mark("ready", 1.7)]})
    places = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="middle">([\d.]+)</text>', drawing_of(drawn))
    assert len(places) > 3
    assert all(float(one[0]) + 20 < float(other[0]) for one, other in pairwise(places))


def test_answers_have_the_line_of_what_was_asked_for_and_errors_have_none() -> None:
    answered = [cell("native", at, min(at, 3000.0), unit="requests/s", better="higher") for at in (1e3, 2e3, 4e3)]
    along = SweepContext("Answers", RATE, ("native",))
    chart = curve_charts.draw_sweep(answered, along)
    [asked], [line] = paths(chart, "level"), paths(chart, "line")
    assert heights(asked) == heights(line)[:2]  # as far as values reach
    lost = [replace(each, better="lower") for each in answered]
    assert not paths(curve_charts.draw_sweep(lost, along), "level")


def test_what_never_happened_is_not_drawn() -> None:
    cells = [cell("native", at, 0.0, unit="requests/s") for at in (1.0, 2.0)]
    assert curve_charts.draw_sweep(cells, SweepContext("Lost", RATE, ("native",))) is None


def test_a_sweep_in_percent_of_the_baseline_has_intervals_and_its_level() -> None:
    cells = [cell("docker", at, 1.0, ratio=0.8, low=0.7, high=0.9) for at in (1.0, 8.0)]
    cells += [cell("native", at, 1.0, ratio=1.0, verdict="baseline") for at in (1.0, 8.0)]
    along = SweepContext("File operations", Sweep("processes"), ("native", "docker"))
    chart = curve_charts.draw_percents(cells, along, "native")
    assert titles(chart) == [
        "docker at 1: \N{MINUS SIGN}20 % [\N{MINUS SIGN}30, \N{MINUS SIGN}10]",
        "docker at 8: \N{MINUS SIGN}20 % [\N{MINUS SIGN}30, \N{MINUS SIGN}10]",
    ]
    [level], [line], [spread] = (paths(chart, kind) for kind in ("level", "line", "spread"))
    low, high = (float(end) for end in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", spread)[0])
    assert heights(level)[0] < high < heights(line)[0] < low
    assert curve_charts.draw_percents(cells[:1], SweepContext("", Sweep("processes"), ("docker",)), "native") is None


def test_percentiles_are_in_their_order_on_a_logarithmic_axis() -> None:
    found = [
        Percentile(stack, name, seconds * (1 + (stack == "docker")))
        for name, seconds in (("50 %", 0.001), ("90 %", 0.002), ("99.9 %", 0.1))
        for stack in ("native", "docker")
    ]
    chart = curve_charts.draw_percentiles(found, ("native", "docker"))
    assert [word for word in words(chart) if word.endswith(" %")] == ["50 %", "90 %", "99.9 %"]
    assert {"1", "10", "100"} <= set(words(chart))
    assert curve_charts.draw_percentiles(found[:4], ("native", "docker")) is None
    assert curve_charts.draw_percentiles([*found, Percentile("docker", "50 %", 0.0)], ("native", "docker")) is None


@pytest.mark.parametrize(
    ("name", "unit", "share"),
    [("p50", "s", 50.0), ("p999", "s", 99.9), ("p9999", "s", 99.99), ("median", "s", 50.0), ("p95", "s", 95.0)],
)
def test_a_metric_is_a_percentile_by_its_name(name: str, unit: str, share: float) -> None:
    assert parse_percentile(Metric(name, name, unit, "lower")) == pytest.approx(share)


@pytest.mark.parametrize(("name", "unit"), [("p50", "bytes"), ("plain", "s"), ("p5", "s"), ("mean", "s")])
def test_other_metrics_are_no_percentiles(name: str, unit: str) -> None:
    assert parse_percentile(Metric(name, name, unit, "lower")) is None


def test_answers_over_time_have_a_panel_per_kind_with_zero_on_a_log_axis() -> None:
    found = [
        Rate(stack, kind, at, 100.0 * (kind == "200"))
        for stack in ("native", "docker")
        for kind in ("200", "50x")
        for at in (0.5, 1.5)
    ]
    chart = curve_charts.draw_answer_kinds(found, ("native", "docker"))
    assert [each for each in words(chart) if "per second" in each] == ["200, per second", "50x, per second: none"]
    assert words(chart).count("0") > 2  # on each axis
    assert {"1", "10", "100"} <= set(words(chart))
    assert len(paths(chart, "line")) == 4


def test_each_line_over_time_has_markers_of_its_stack_at_unique_moments() -> None:
    stacks = ("native", "docker", "podman")
    chart = curve_charts.draw_answer_kinds(
        [Rate(stack, "200", at + 0.5, 100.0) for stack in stacks for at in range(60)], stacks
    )
    panel = drawing_of(chart).partition("200, per second")[2]
    marks = re.findall(r'class="mark" d="([^"]*)" transform="translate\(([\d.]+) ', panel)
    assert len({shape for shape, _ in marks}) == 3
    assert len(marks) == len({place for _, place in marks}) == 15


def test_counts_are_averaged_over_trials_up_to_the_end_of_each_stacks_load() -> None:
    one, two = {"200": [10, 20], "50x": [0, 2]}, {"200": [30, 20]}
    found = average_rates({"native": [one, two], "docker": [{"200": [1, 2, 3]}]})
    seen = {(rate.stack, rate.kind, rate.second): rate.rate for rate in found}
    assert seen["native", "200", 0.5] == 20.0
    assert seen["native", "50x", 1.5] == 1.0
    assert ("native", "200", 2.5) not in seen
    assert seen["docker", "200", 2.5] == 3.0


def test_a_long_load_is_drawn_in_sixty_parts() -> None:
    found = average_rates({"native": [{"200": [6] * 600}]})
    assert len(found) == 60
    assert {rate.rate for rate in found} == {6.0}
    assert found[0].second == 5.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        '{"over_time": 3}',
        '{"over_time": {"200": "many"}}',
        '{"over_time": {"200": [1, null]}}',
        '{"over_time": {"200": [NaN]}}',
        '{"over_time": {"200": [-1]}}',
        '{"over_time": {"200": [true]}}',
    ],
)
def test_an_output_without_counts_draws_nothing(text: str) -> None:
    assert parse_counts(text) == {}


def test_trial_counts_are_read_from_the_last_output_of_an_application_load(tmp_path: Path) -> None:
    metric = Metric("answered", "Answers 200", "requests/s", "higher")
    record = WorkloadRecord("dictionary-200", "application", "A dictionary", (metric,), None)
    answered = MeasuredValue("answered", None, 5.0, "requests/s", "higher")
    trials = [make_trial(stack, 0, [answered], "dictionary-200") for stack in ("native", "docker")]
    run = make_run(trials, [record], tmp_path / "run")
    journal = RunWriter(run.folder)
    journal.create(run.record, "[suite]\n")
    raw = RawOutput("load", ("users",), '{"over_time": {"200": [5, 6, 7]}}', 3.0)
    journal.append((trials[0], (raw,)), (trials[1], (replace(raw, text="cut off {"),)))
    assert {rate.stack for rate in answer_rates(run, record)} == {"native"}
    assert answer_rates(run, replace(record, use="redis")) == []


def drawn(run: Run, record: WorkloadRecord, monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """The captions of a workload's charts along something, without drawing them."""
    captions: list[str] = []

    def keep(chart: object, caption: str) -> None:
        captions.extend([caption] if chart else [])

    monkeypatch.setattr(module, "create_drawing", keep)
    list(draw_sweeps(summarize(run), run, record))
    return captions


def test_rising_rates_give_charts_of_answers_and_latency_but_not_of_the_sd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = (
        Metric("answered", "Answers", "requests/s", "higher"),
        Metric("latency", "Latency", "s", "lower", headline=False),
        Metric("latency-sd", "Standard deviation of the latency", "s", "lower", headline=False),
        Metric("lost", "Lost", "requests/s", "lower", headline=False),
    )
    record = WorkloadRecord("web", "lighttpd", "Web", metrics, RATE)
    numbers = {"answered": 1000.0, "latency": 1e-3, "latency-sd": 2e-4, "lost": 0.0}
    trials = [
        make_trial(
            stack,
            block,
            [MeasuredValue(m.name, at, numbers[m.name], m.unit, m.better) for m in metrics for at in (1e3, 2e3)],
            "web",
        )
        for stack in ("native", "docker")
        for block in range(2)
    ]
    captions = drawn(make_run(trials, [record]), record, monkeypatch)
    assert captions == [
        "Answers against rate, mean ± SD of the trials. The dashed line is the requested rate.",
        "Answers against rate: change from native with 95 % interval.",
        "Latency against rate, the mean, with one SD above it shaded.",
    ]


def test_latency_percentile_ranges_are_drawn_at_the_first_and_last_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = tuple(Metric(name, name, "s", "lower") for name in ("p50", "p90", "p99", "p999"))
    record = WorkloadRecord("web", "nginx-latency", "Web", metrics, RATE)
    trials = [
        make_trial(
            stack, 0, [MeasuredValue(m.name, at, 1e-3, "s", "lower") for m in metrics for at in (1e3, 2e3, 4e3)], "web"
        )
        for stack in ("native", "docker")
    ]
    captions = drawn(make_run(trials, [record]), record, monkeypatch)
    assert [caption.split(":")[0] for caption in captions if caption.startswith("Latency")] == [
        "Latency at 1 k requests/s",
        "Latency at 4 k requests/s",
    ]


def fields_of(drawn: str) -> tuple[list[str], list[str]]:
    """The numbers of a map, and the colors of their fields."""
    found = re.findall(r'fill="(#\w+)" class="field"/><text [^>]*>([^<]*)', drawn)
    return [words for _, words in found], [color for color, _ in found]


def test_the_color_of_a_field_follows_speed_and_saturates_at_four_times() -> None:
    colors = [charts.field_color(speed) for speed in (-9.0, -1.0, 0.0, 0.4, 1.0, 2.0)]
    assert colors == ["#a34000", "#a34000", "#f2efe9", "#74b3dd", "#00568a", "#00568a"]


def test_a_map_of_one_column_or_one_stack_is_not_drawn() -> None:
    one = [cell("docker", None, 1.0, ratio=0.9)]
    two = [*one, cell("podman", None, 1.0, ratio=0.9)]
    columns = {"one": two, "two": two}
    assert charts.draw_heat_map({"one": two}, ("docker", "podman")) is None
    assert charts.draw_heat_map({"one": one, "two": one}, ("docker",)) is None
    drawn = charts.draw_heat_map(columns, ("docker", "podman"), with_spread=True)
    assert set(fields_of(drawing_of(drawn))[0]) == {"\N{MINUS SIGN}10.0 %"}
    spread = [replace(each, usual=1.0, usual_sd=0.034) for each in two]
    drawn = charts.draw_heat_map({"one": spread, "two": two}, ("docker", "podman"), with_spread=True)
    assert "\N{MINUS SIGN}10.0 % (3.4 %)" in fields_of(drawing_of(drawn))[0]


def test_a_workload_without_a_sweep_has_no_chart_along_one(monkeypatch: pytest.MonkeyPatch) -> None:
    run = believable_run(blocks=1)
    startup = run.record.workloads[-1]
    assert drawn(run, startup, monkeypatch) == []
    assert len(drawn(run, NGINX, monkeypatch)) == 2
