"""Headlines and the overall ranking: combined points and metrics."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some
from runs import DHRYSTONE, REDIS, believable_run, make_run, make_trial, measured, pairs

from tare.model.run_folder import Run
from tare.model.trial import Metric, Trial
from tare.statistics.cells import Cell
from tare.statistics.summarize import summarize


def _docker(run: Run) -> Cell:
    return summarize(run).headline("dhrystone", "docker")


def test_points_are_compared_one_by_one_in_their_order() -> None:
    cells = [cell for cell in summarize(_swept()).cells_of("redis") if cell.stack == "docker" and cell.metric == "get"]
    assert [(cell.point, round(cell.ratio or 0, 3)) for cell in cells] == [(1.0, 0.5), (50.0, 0.8)]


def test_a_swept_headline_is_the_geometric_mean_over_points_and_metrics() -> None:
    summary = summarize(_swept())
    cell = summary.headline("redis", "docker")
    # get: sqrt(0.5 * 0.8); set: sqrt(0.9 * 0.9); headline: the geometric mean of both
    assert cell.ratio == pytest.approx(0.754460, abs=1e-6)
    assert (cell.mean, cell.n, cell.metric) == (None, 2, "get, set")
    assert summary.rule("redis").text == "geometric mean of GET and SET, each over 2 points"


def test_a_metric_that_is_a_headline_has_one_interval_in_both_tables() -> None:
    summary = summarize(believable_run())
    both = [
        (cell, summary.headline(cell.workload, cell.stack))
        for cell in summary.cells
        if cell.workload in {"dhrystone", "startup"} and cell.metric in {"speed", "total"}
    ]
    assert len([cell for cell, _ in both if cell.low]) > 10
    for cell, head in both:
        assert cell.verdict == head.verdict
        assert (cell.low, cell.high) == pytest.approx((head.low, head.high))


def test_a_trial_without_all_points_is_no_part_of_a_swept_headline() -> None:
    run = _swept()
    trials = [replace(t, values=t.values[1:]) if t.stack == "docker" and t.block == 1 else t for t in run.trials]
    cell = summarize(replace(run, trials=tuple(trials))).headline("redis", "docker")
    assert (cell.n, cell.verdict) == (1, "too few blocks")


@pytest.mark.parametrize("name", ["average", "total", "copy-2"])
def test_the_headline_is_of_the_metrics_that_the_workload_declares_for_it(name: str) -> None:
    """Whatever they are called."""
    apart = Metric("copy", "Copy", "bytes/s", "higher", headline=False)
    record = replace(DHRYSTONE, metrics=(apart, Metric(name, "Sum", "bytes/s", "higher")))
    trials = [
        make_trial(stack, block, [measured("copy", 1.0), replace(measured(name, value), unit="bytes/s")])
        for stack, value in (("native", 10.0), ("docker", 8.0))
        for block in range(2)
    ]
    summary = summarize(make_run(trials, [record]))
    assert summary.headline("dhrystone", "docker").ratio == pytest.approx(0.8)
    assert (summary.rule("dhrystone").metrics, summary.rule("dhrystone").text) == ((name,), "Sum")


def test_throughput_and_latency_are_a_headline_each_and_both_are_decided() -> None:
    record = replace(
        DHRYSTONE, metrics=(Metric("speed", "Speed", "iterations/s", "higher"), Metric("delay", "Delay", "s", "lower"))
    )
    factors = {"native": (1.0, 1.0), "docker": (0.5, 1.25)}
    trials = [
        make_trial(
            stack,
            block,
            [
                measured("speed", 10.0 * speed * 1.001 ** (block % 3)),
                replace(measured("delay", 5.0 * delay * 1.001 ** (block % 2), better="lower"), unit="s"),
            ],
        )
        for stack, (speed, delay) in factors.items()
        for block in range(6)
    ]
    summary = summarize(make_run(trials, [record]))
    assert [(rule.name, rule.metrics) for rule in summary.rules] == [
        ("dhrystone", ("speed",)),
        ("dhrystone delay", ("delay",)),
    ]
    throughput, latency = (summary.headline(name, "docker") for name in ("dhrystone", "dhrystone delay"))
    assert throughput.ratio == pytest.approx(0.5, rel=1e-3)
    assert latency.ratio == pytest.approx(1.25, rel=1e-3)
    assert (throughput.verdict, latency.verdict, latency.better) == ("worse", "worse", "lower")


def test_a_metric_that_nobody_declared_is_no_part_of_the_headline() -> None:
    run = pairs([90, 91, 90, 91, 90], [100] * 5)
    trials = tuple(replace(t, values=(*t.values, measured("odd", 1.0 + t.block))) for t in run.trials)
    assert summarize(replace(run, trials=trials)).rule("dhrystone").metrics == ("speed",)


def test_a_workload_without_intervals_takes_the_ranking_from_none() -> None:
    """Redis has one block, dhrystone ten: the overall speed is dhrystone's."""
    noise = [1.0, 1.01, 0.99, 1.02, 0.98] * 2
    trials = [
        make_trial(stack, block, [measured("speed", 100.0 * factor * noise[block])])
        for stack, factor in (("native", 1.0), ("crun", 0.999), ("docker", 0.7))
        for block in range(10)
    ]
    trials += [make_trial(stack, 0, [measured("get", 10.0, 1.0)], "redis") for stack in ("native", "crun", "docker")]
    summary = summarize(make_run(trials, [DHRYSTONE, REDIS]))
    assert summary.overall.workloads == ("dhrystone",)
    assert [each.stack for each in summary.overall.standings] == ["crun", "docker"]
    for blocks, ranked in ((2, []), (4, [("crun", None), ("docker", None)])):  # four blocks have no interval
        early = summarize(make_run([trial for trial in trials if trial.block < blocks], [DHRYSTONE, REDIS])).overall
        assert [(each.stack, each.low) for each in early.standings] == ranked
        assert early.tied == (("docker",) if ranked else ())


def test_a_workload_that_only_its_trials_know_is_summarized_too() -> None:
    run = pairs([90, 91, 90, 91, 90], [100] * 5)
    cell = _docker(replace(run, record=replace(run.record, workloads=())))
    assert (cell.verdict, cell.unit) == ("worse", "iterations/s")


def test_the_cheapest_stack_is_found_with_those_indistinguishable_from_it() -> None:
    overall = summarize(believable_run()).overall
    assert [standing.stack for standing in overall.standings] == [
        "bubblewrap",
        "crun",
        "docker",
        "docker-bridge",
        "qemu-tcg",
    ]
    assert overall.missing == ("gvisor", "qemu", "docker/qemu")
    assert "startup" not in overall.workloads
    assert overall.standings[-1].verdict == "worse"


def test_overall_speed_inverts_what_is_better_when_lower() -> None:
    overall = summarize(pairs([200, 201, 199, 200, 201], [100] * 5, "lower")).overall
    assert overall.standings[0].speed == pytest.approx(0.5, abs=1e-3)
    assert overall.standings[0].verdict == "worse"


def test_the_interval_of_a_single_workloads_standing_is_its_headlines() -> None:
    run = pairs([80, 90, 100, 85, 95], [100] * 5)
    standing, cell = summarize(run).overall.standings[0], _docker(run)
    assert standing.low == pytest.approx(cell.low)
    assert standing.high == pytest.approx(cell.high)


def test_no_number_of_a_summary_is_without_a_value() -> None:
    for cell in summarize(believable_run()).cells:
        assert all(math.isfinite(value) for value in asdict(cell).values() if isinstance(value, float))


def _swept() -> Run:
    factors = {"native": (1.0, 1.0, 1.0, 1.0), "docker": (0.5, 0.8, 0.9, 0.9)}
    places = (("get", 1.0), ("get", 50.0), ("set", 1.0), ("set", 50.0))
    trials = [
        make_trial(stack, block, [measured(m, 1000.0 * f, p) for (m, p), f in zip(places, found, strict=True)], "redis")
        for stack, found in factors.items()
        for block in range(2)
    ]
    return make_run(trials, [REDIS])


# --- invariants of a summary for any values ---

STACKS = ("native", "docker", "crun", "native-again")
Values = list[tuple[float, ...]]
# Of each block, a value for each stack: few and many blocks, near and far apart.
VALUES: some.SearchStrategy[Values] = some.lists(
    some.tuples(*(some.floats(1e-3, 1e6) for _ in STACKS)), min_size=1, max_size=12
)
FACTORS = some.floats(1e-3, 1e3)
# Stack, block and place in the file.
FAILED = some.lists(some.tuples(some.sampled_from(STACKS), some.integers(0, 14), some.integers(0, 60)), max_size=5)


def run_of(values: Values, factor: float = 1.0, stacks: tuple[str, ...] = STACKS) -> Run:
    """A run of these stacks, whose values are told in the order of `STACKS`."""
    trials = [
        make_trial(stack, block, [measured("speed", row[STACKS.index(stack)] * factor)])
        for block, row in enumerate(values)
        for stack in stacks
    ]
    return make_run(trials)


def said(run: Run) -> dict[str, dict[str, object]]:
    """Return the results of each stack, without counts of failed trials."""
    found = {cell.stack: asdict(cell) for cell in summarize(run).cells}
    for cell in found.values():
        del cell["failures"]
    return found


@given(VALUES, FACTORS)
def test_scaling_a_metric_changes_no_ratio(values: Values, factor: float) -> None:
    before, after = summarize(run_of(values)).cells, summarize(run_of(values, factor)).cells
    for one, other in zip(before, after, strict=True):
        assert other.verdict == one.verdict
        for was, now in ((one.ratio, other.ratio), (one.low, other.low), (one.high, other.high)):
            assert now == (was if was is None else pytest.approx(was, rel=1e-6))


@given(VALUES)
def test_swapping_two_stacks_flips_the_sign(values: Values) -> None:
    swapped = [(docker, native, *others) for native, docker, *others in values]
    one = summarize(run_of(values, stacks=("native", "docker"))).headline("dhrystone", "docker")
    other = summarize(run_of(swapped, stacks=("native", "docker"))).headline("dhrystone", "docker")
    turned = {"better": "worse", "worse": "better"}
    assert other.verdict == turned.get(one.verdict, one.verdict)
    assert one.ratio is not None
    assert other.ratio is not None
    assert math.log(other.ratio) == pytest.approx(-math.log(one.ratio), abs=1e-9)


@given(VALUES, some.randoms(use_true_random=False))
def test_the_order_of_the_file_is_irrelevant(values: Values, chance: Random) -> None:
    run = run_of(values)
    trials = list(run.trials)
    chance.shuffle(trials)
    assert said(replace(run, trials=tuple(trials))) == said(run)


@given(VALUES, FAILED)
def test_adding_failed_trials_changes_no_value(values: Values, failed: list[tuple[str, int, int]]) -> None:
    run = run_of(values)
    trials: list[Trial] = list(run.trials)
    for number, (stack, block, place) in enumerate(failed):
        trial = make_trial(stack, block, ())
        trials.insert(place, replace(trial, trial=f"failed-{number}", status="failed", reason="crash"))
    assert said(replace(run, trials=tuple(trials))) == said(run)
