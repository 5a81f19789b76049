"""The panels of cost against isolation, memory and start-up: what lies where, and that odd runs have sensible ones."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
from pages import html_of
from runs import isolation_by_plugins, make_run, make_trial, measured, pairs

from tare.model.isolation import Isolation
from tare.model.run_folder import Run
from tare.model.trial import Caution, Family, Footprint, Mark, Trial
from tare.report.svg_axes import quantity_axis, quantity_ticks
from tare.report.tradeoff import (
    LANES,
    IntervalSpan,
    Point,
    Tradeoff,
    TradeoffPanel,
    create_tradeoff,
    draw_figure,
    draw_page_figures,
    find_isolation,
    place_labels,
)
from tare.report.writer import find_renderer
from tare.statistics.summarize import summarize

SVG = "{http://www.w3.org/2000/svg}"
FAMILIES: dict[str, tuple[Family, ...]] = {
    "native": ("bare metal",),
    "docker": ("container",),
    "gvisor": ("sandbox",),
    "docker/qemu": ("container", "type 2"),
    "solo5-hvt": ("unikernel",),
    "solo5-spt": ("unikernel",),
    "bubblewrap": ("sandbox",),
    "mine": ("sandbox",),
    "gvisor/qemu-tcg": ("sandbox", "emulator"),
}


def found(run: Run) -> Tradeoff:
    made = create_tradeoff(summarize(run), run)
    assert made
    return made


def panel(made: Tradeoff, name: str) -> TradeoffPanel:
    return next(each for each in made.panels if each.name == name)


def point(made: TradeoffPanel, stack: str) -> Point:
    return next(each for each in made.points if each.stack == stack)


def of_families(blocks: int = 5) -> Run:
    """A run whose stacks take one more tenth of the time each, without footprint and timeline."""
    trials = [
        make_trial(stack, block, [measured("speed", 100.0 / (1 + number / 10) + block % 2)])
        for number, stack in enumerate(FAMILIES)
        for block in range(blocks)
    ]
    run = make_run(trials)
    return replace(run, record=replace(run.record, families=FAMILIES, isolation=isolation_by_plugins(FAMILIES)))


def dressed(trial: Trial, size: int, seconds: float) -> Trial:
    return replace(trial, footprint=Footprint(size, None, None, 1), timeline=(Mark("ready", seconds),))


def test_a_stack_has_its_strongest_isolation_and_stronger_is_lower_down() -> None:
    [isolation] = found(of_families()).panels
    kinds = {each.stack: each.isolation for each in isolation.points}
    assert kinds == {
        "native": "none",
        "docker": "shared kernel",
        "gvisor": "user-space kernel",
        "docker/qemu": "own kernel",
        "solo5-hvt": "own kernel",
        "solo5-spt": "shared kernel",
        "bubblewrap": "shared kernel",
        "mine": "unknown",
        "gvisor/qemu-tcg": "own kernel",
    }
    heights = sorted(isolation.points, key=lambda each: -each.up.place)
    assert [LANES.index(each.isolation) for each in heights] == [0, 1, 1, 1, 2, 3, 3, 3, 4]
    assert [label for _, label in isolation.ticks] == [*LANES]
    assert "isolation: own kernel (qemu: a guest on virtual hardware)" in point(isolation, "docker/qemu").detail


@pytest.mark.parametrize(
    ("name", "runtime", "isolation"),
    [
        ("runtime", "io.containerd.runsc.v1 20260905", "user-space kernel"),
        ("runtime", "/opt/bin/containerd-shim-kata-qemu-v2", "own kernel"),
        ("containerd: runtime", "io.containerd.kata.v2 3.20.0", "own kernel"),
        ("runtime", "io.containerd.runc.v2 1.1.5", "shared kernel"),
        ("image", "io.containerd.runsc.v1", "shared kernel"),
    ],
)
def test_pods_and_containerd_containers_have_the_isolation_of_the_runtime(
    name: str, runtime: str, isolation: str
) -> None:
    run = of_families()
    trials = (replace(each, proof=((name, runtime),)) if each.stack == "docker" else each for each in run.trials)
    [shown] = found(replace(run, trials=tuple(trials))).panels
    assert point(shown, "docker").isolation == isolation


def test_what_ran_under_the_name_of_kata_without_a_guest_shares_the_kernel() -> None:
    run = of_families()
    doubt = (Caution("shared-kernel", "this is the machine's kernel"),)
    trials = (replace(make_trial("kata", 0, [measured("speed", 1.0)]), cautions=doubt),)
    record = replace(run.record, isolation=isolation_by_plugins(["kata"]))
    found = find_isolation(replace(run, trials=trials, record=record), ["kata"])
    assert found["kata"].level == "shared kernel"


def test_the_isolation_of_each_layer_is_recorded_and_needs_no_plug_in() -> None:
    layers = (Isolation("shared kernel", "a filter", "theirs"), Isolation("own kernel", "a wall", "other"))
    run = of_families()
    run = replace(run, record=replace(run.record, isolation={"docker": layers, "gvisor": layers[:1]}))
    found = find_isolation(run, ["docker", "gvisor"])
    assert {stack: (own.level, own.explanation) for stack, own in found.items()} == {
        "docker": ("own kernel", "other: a wall"),
        "gvisor": ("shared kernel", "theirs: a filter"),
    }


def test_costs_are_those_over_all_workloads_with_their_intervals(full: Run) -> None:
    made, summary = found(full), summarize(full)
    memory = panel(made, "Memory")
    places = [point(memory, each.stack).across for each in summary.overall.standings]
    assert [each.place for each in places] == sorted(each.place for each in places)
    for each in places:
        assert each.low is not None
        assert each.high is not None
        assert each.low <= each.place <= each.high
    baseline = point(memory, "native")
    assert (baseline.is_baseline, baseline.across) == (True, IntervalSpan(made.zero))
    assert "native-again" not in {each.stack for each in memory.points}


def test_the_start_is_that_of_the_start_workload_or_else_of_all_instances(full: Run) -> None:
    own = panel(found(full), "Start-up")
    assert own.what == "startup: estimate and interval"
    summary = summarize(full)
    usual = summary.headline("startup", "gvisor").usual
    assert usual
    assert f"start-up {usual:.2f} s" in point(own, "gvisor").detail
    trials = [
        dressed(make_trial(stack, block, [measured("speed", speed + block % 2)]), 1 << 20, at + block / 100)
        for stack, speed, at in (("native", 100.0, 0.1), ("docker", 80.0, 0.4))
        for block in range(5)
    ]
    other = panel(found(make_run(trials)), "Start-up")
    assert other.what == "of an instance: median, middle half of trials"
    assert "start-up 420 ms" in point(other, "docker").detail
    low, high = point(other, "docker").up.low, point(other, "docker").up.high
    assert low is not None
    assert high is not None
    assert low < point(other, "docker").up.place < high


def test_what_was_not_measured_has_no_panel() -> None:
    assert [each.name for each in found(of_families()).panels] == ["Isolation"]
    trials = [
        dressed(make_trial(stack, block, [measured("speed", speed + block % 2)]), 1 << 20, 0.0)
        for stack, speed in (("native", 100.0), ("docker", 80.0))
        for block in range(5)
    ]
    memory = found(make_run(trials))
    assert [each.name for each in memory.panels] == ["Memory"]
    assert {each.isolation for each in memory.panels[0].points} == {"unknown"}
    assert point(memory.panels[0], "docker").up.low is None  # all alike: no interval to draw


@pytest.mark.parametrize("run", [
    make_run([]),
    make_run([make_trial("native", block, [measured("speed", 1.0)]) for block in range(6)]),
    make_run([replace(make_trial(stack, 0, []), status="failed", reason="no") for stack in ("native", "docker")]),
    of_families(blocks=1),
], ids=["nothing", "one stack", "only failures", "one block"])  # fmt: skip
def test_a_run_that_ranks_no_stack_has_no_panels(run: Run) -> None:
    summary = summarize(run)
    assert (draw_page_figures(summary, run), draw_figure(summary, run)) == (None, "")
    assert "figures/00-trade.svg" not in find_renderer("svg")(summary, run)
    assert 'id="trade"' not in html_of(run)


def test_what_is_not_decided_is_hollow() -> None:
    run = pairs([90, 110, 99, 103, 96.0], [100.0] * 5)
    run = replace(run, record=replace(run.record, families=FAMILIES, isolation=isolation_by_plugins(FAMILIES)))
    [isolation] = found(run).panels
    assert not point(isolation, "docker").is_sure
    assert 'class="size-none open"' in draw_figure(summarize(run), run)


def test_values_without_any_variance_have_dots() -> None:
    run = pairs([50.0] * 6, [100.0] * 6)
    run = replace(run, record=replace(run.record, families=FAMILIES, isolation=isolation_by_plugins(FAMILIES)))
    across = point(found(run).panels[0], "docker").across
    assert across.low == pytest.approx(across.place) == pytest.approx(across.high)


def test_of_1000_stacks_the_cheapest_are_drawn_and_the_others_counted() -> None:
    names = [f"s{number}" for number in range(1000)]
    trials = [
        dressed(make_trial(stack, block, [measured("speed", speed + block % 2)]), 1 << 20, 0.5)
        for stack, speed in {"native": 100.0, **{name: 99.0 - at / 20 for at, name in enumerate(names)}}.items()
        for block in range(5)
    ]
    run = make_run(trials)
    made = found(run)
    assert (len(made.panels[0].points), made.more) == (41, 960)
    shown = draw_page_figures(summarize(run), run)
    assert shown
    assert "960 more are in the tables below." in shown.caption


def test_the_longest_level_fits_and_unknown_ones_have_a_unique_shape() -> None:
    run = of_families()
    root = ET.fromstring(draw_figure(summarize(run), run))  # noqa: S314 - ours
    [label] = [each for each in root.iter(f"{SVG}text") if each.text == "user-space kernel"]
    assert float(label.attrib["x"]) >= len("user-space kernel") * 6.0  # pixels, as the widest letters of the font are
    shapes = {}
    for group in root.iter(f"{SVG}g"):
        if (title := group.find(f"{SVG}title")) is not None:
            dot = next(each for each in group if "dot" in each.get("class", "").split())
            shapes[(title.text or "").partition(":")[0]] = dot.get("d", "circle")
    assert len({shapes[stack] for stack in ("native", "docker", "gvisor", "docker/qemu", "mine")}) == 5


def test_names_cover_neither_each_other_nor_the_edges() -> None:
    at = [0.98, 0.97, 0.5, 0.5, 0.5, 0.02, 0.01, 0.0]
    points = [
        Point(f"s{number}", "", "none", "none", IntervalSpan(0.5), IntervalSpan(y), is_sure=True, is_baseline=False)
        for number, y in enumerate(at)
    ]
    heights = [y for _, y in place_labels(points, 200)]
    assert all(below - above >= 15 for above, below in pairwise(heights))
    assert 0 < heights[0] < heights[-1] < 200
    assert [point.stack for point, _ in place_labels(points, 200)] == [each.stack for each in points]


@pytest.mark.parametrize(("least", "most", "unit", "expected"), [
    (0.004, 0.4, "s", ["10 ms", "100 ms"]),
    (1.0, 16.0, "s", ["1 s", "10 s"]),
    (3.0, 9.0, "s", ["5 s"]),
    (1e-4, 2000.0, "s", ["100 µs", "10 ms", "1 s", "100 s"]),
    (9e6, 3.2e8, "bytes", ["8 MiB", "32 MiB", "128 MiB"]),
])  # fmt: skip
def test_quantities_have_round_ticks(least: float, most: float, unit: str, expected: list[str]) -> None:
    axis = quantity_axis([math.log(least), math.log(most)], 0.03)
    assert [label for _, label in quantity_ticks(axis, unit, upright=True)] == expected


def test_the_file_escapes_text_of_the_run_and_describes_itself_in_words(full: Run) -> None:
    hostile = replace(full, record=replace(full.record, suite='<script>"&'))
    text = draw_figure(summarize(hostile), hostile)
    root = ET.fromstring(text)  # noqa: S314 - ours
    assert "<script>" not in text
    described = " ".join(each.text or "" for each in root.iter(f"{SVG}desc"))
    assert "gvisor: overall speed \N{MINUS SIGN}81" in described
    assert "isolation: user-space kernel (a kernel in user space" in described
    few = of_families()  # each of its charts is drawn
    assert find_renderer("pdf")(summarize(few), few)["figures/00-trade.pdf"].startswith(b"%PDF")
