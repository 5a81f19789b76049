"""CPU costs: CPU time per request or run, and how it compares with the baseline's in the same blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from runs import DHRYSTONE, REDIS, make_run, make_trial

from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import WALL_TIME, MeasuredValue, Metric, Trial, Turn
from tare.statistics.cpu_costs import CpuCost, counted_unit, cpu_usage
from tare.statistics.summarize import summarize

GET = replace(REDIS, metrics=REDIS.metrics[:1])
COMMAND = WorkloadRecord(
    "build",
    "command",
    "A command",
    (Metric("score", "Score", "points", "higher"), Metric(WALL_TIME, "Wall time", "s", "lower", headline=False)),
    None,
)
RATE = 1e5


def near(value: object) -> Any:
    """`pytest.approx`, for comparisons of tuples that have other types, too."""
    return pytest.approx(value)


def requests(stack: str, block: int, costs: Mapping[float, Sequence[float | None]]) -> Trial:
    """A trial of Redis: by its number of clients, the CPU time per request in each turn of 0.1 s."""
    values = tuple(
        MeasuredValue("get", point, RATE, "requests/s", "higher", (RATE,) * len(turns), f"GET {point:g}")
        for point, turns in costs.items()
    )
    turns = tuple(
        Turn(f"GET {point:g}", at, 0.0, 0.12, cpu_seconds=None if c is None else c * RATE * 0.1, sending_seconds=0.1)
        for point, turns in costs.items()
        for at, c in enumerate(turns)
    )
    warm_up = Turn("GET 1", 0, 0.0, 0.1, warm_up=True, cpu_seconds=9.0, sending_seconds=0.1)
    return replace(make_trial(stack, block, values, "redis"), turns=(warm_up, *turns))


def run_of(costs: Mapping[str, Sequence[float | None]]) -> Run:
    """A run with a block for each cost of a stack; None for a block without CPU time."""
    trials = [
        requests(stack, block, {1.0: (cost, cost)}) for stack, of in costs.items() for block, cost in enumerate(of)
    ]
    return make_run(trials, [GET])


def costs_of(run: Run, point: float | None = 1.0) -> dict[str, CpuCost]:
    """The CPU costs at a point by stack."""
    return {cost.stack: cost for cost in summarize(run).cpu_costs if cost.point == point}


def test_the_ratio_is_the_geometric_mean_over_blocks_to_the_baseline() -> None:
    run = run_of({"native": (10e-6, 20e-6, 10e-6, 20e-6, 10e-6), "docker": (15e-6, 30e-6, 15e-6, 30e-6, 15e-6)})
    costs = costs_of(run)
    usual = math.exp((3 * math.log(10e-6) + 2 * math.log(20e-6)) / 5)
    assert (costs["native"].seconds, costs["native"].ratio, costs["native"].n) == (near(usual), 1.0, 5)
    docker = costs["docker"]
    assert (docker.workload, docker.metric, docker.unit, docker.reason) == ("redis", "get", "request", "")
    assert (docker.ratio, docker.low, docker.high) == near((1.5, 1.5, 1.5))
    assert (docker.seconds, docker.n) == (near(1.5 * usual), 5)


def test_a_block_is_the_sum_of_its_turns_with_the_interval_of_a_cell() -> None:
    noise = (1.0, 1.1, 0.95, 1.05, 0.98, 1.02)
    trials = [requests("native", block, {1.0: (10e-6,) * 4}) for block in range(6)]
    trials += [requests("docker", block, {1.0: (5e-6 * each, 15e-6 * each)}) for block, each in enumerate(noise)]
    cost = costs_of(make_run(trials, [GET]))["docker"]
    # The same ratios as speeds: the interval of a cell, upside down.
    values = {"native": (1.0,) * 6, "docker": tuple(1 / each for each in noise)}
    same = make_run(
        [
            make_trial(stack, block, (MeasuredValue("speed", None, value, "iterations/s", "higher"),))
            for stack, each in values.items()
            for block, value in enumerate(each)
        ]
    )
    (cell,) = (cell for cell in summarize(same).cells if cell.stack == "docker")
    upside_down = [1 / (each or math.nan) for each in (cell.ratio, cell.high, cell.low)]
    assert [cost.ratio, cost.low, cost.high] == near(upside_down)
    assert upside_down[1] < 1.0 < upside_down[2]


def test_stacks_are_compared_with_the_mean_of_the_baseline_and_its_control() -> None:
    run = run_of({"native": (10e-6,) * 4, "native-again": (14.4e-6,) * 4, "docker": (24e-6,) * 4})
    costs = costs_of(run)
    assert costs["docker"].ratio == near(2.0)  # to 12e-6, their geometric mean
    assert costs["native-again"].ratio == near(1.44)


def test_each_point_has_costs_in_order() -> None:
    trials = [
        requests(stack, block, {50.0: (factor * 5e-6,), 1.0: (factor * 20e-6,)})
        for stack, factor in (("native", 1), ("docker", 2))
        for block in range(3)
    ]
    costs = [(cost.point, cost.stack, cost.seconds) for cost in summarize(make_run(trials, [GET])).cpu_costs]
    assert costs == [
        (1.0, "native", near(20e-6)),
        (1.0, "docker", near(40e-6)),
        (50.0, "native", near(5e-6)),
        (50.0, "docker", near(10e-6)),
    ]


def test_a_missing_cpu_time_has_a_reason() -> None:
    run = run_of({
        "native": (10e-6, 10e-6, None),
        "docker": (None, 20e-6, 20e-6),
        "lxc": (None, None, 10e-6),
        "gvisor": (None, None, None),
        "xen": (9e-6, 9e-6, 9e-6),
    })  # fmt: skip
    stacks = (*run.record.stacks, "qemu")
    run = replace(run, record=replace(run.record, stacks=stacks, families={"xen": ("type 1",)}))
    costs = costs_of(run)
    assert (costs["docker"].n, costs["docker"].ratio, costs["docker"].low) == (1, near(2.0), None)
    assert (costs["lxc"].seconds, costs["lxc"].ratio) == (near(10e-6), None)
    reasons = {stack: cost.reason for stack, cost in costs.items() if cost.reason}
    assert reasons == {
        "lxc": "no block has the CPU time of both this stack and the baseline",
        "gvisor": "the CPU time in its turns is unknown",
        "xen": "the machine does not count the CPU time of a type 1 hypervisor's guest",
        "qemu": "no trial has a value",
    }
    assert {costs[stack].seconds for stack in ("gvisor", "xen", "qemu")} == {None}


def test_the_monitor_of_a_guest_below_a_type_1_hypervisor_has_cpu_time() -> None:
    run = run_of({"native": (10e-6,), "xen/qemu": (20e-6,)})
    run = replace(run, record=replace(run.record, families={"xen/qemu": ("type 1", "type 2")}))
    assert costs_of(run)["xen/qemu"].seconds == near(20e-6)


def test_without_the_baseline_there_are_costs_but_no_ratios() -> None:
    cost = costs_of(run_of({"docker": (10e-6, 40e-6)}))["docker"]
    assert (cost.seconds, cost.ratio, cost.reason) == (
        near(20e-6),
        None,
        "the baseline is not part of this run",
    )


def test_a_run_of_a_command_costs_the_cpu_time_of_its_turn() -> None:
    def trial(stack: str, block: int, *cpu_seconds: float) -> Trial:
        wall = MeasuredValue(WALL_TIME, None, 2.0, "s", "lower", (2.0,) * len(cpu_seconds), "run")
        turns = (Turn("run", at, 0.0, 2.1, cpu_seconds=each) for at, each in enumerate(cpu_seconds))
        return replace(make_trial(stack, block, (wall,), "build"), turns=tuple(turns))

    trials = [trial("native", 0, 1.0, 2.0), trial("docker", 0, 3.0, 3.0)]
    costs = costs_of(make_run(trials, [COMMAND]), None)
    assert {stack: (cost.seconds, cost.unit) for stack, cost in costs.items()} == {
        "native": (near(1.5), "run"),
        "docker": (near(3.0), "run"),
    }


@pytest.mark.parametrize("value", [
    MeasuredValue("delay", None, 0.5, "s", "lower", (0.5, 0.5), "GET"),
    MeasuredValue("speed", None, 5.0, "iterations", "higher", (5.0, 5.0), "GET"),
    MeasuredValue("lost", None, 5.0, "requests/s", "lower", (5.0, 5.0), "GET"),
    MeasuredValue("knee", None, 5.0, "requests/s", "higher"),
    MeasuredValue(WALL_TIME, None, 0.5, "s", "lower", (0.5, 0.5), "GET"),
])  # fmt: skip
def test_other_values_of_a_client_have_no_cost(value: MeasuredValue) -> None:
    turns = [Turn("GET", at, 0.0, 0.1, cpu_seconds=0.1, sending_seconds=0.1) for at in range(2)]
    assert cpu_usage(value, turns) is None


def test_a_rate_that_no_client_measured_has_no_cost() -> None:
    speed = MeasuredValue("speed", None, 5.0, "iterations/s", "higher", (5.0, 5.0), "loop")
    trials = [
        replace(
            make_trial("native", 0, (speed,)), turns=tuple(Turn("loop", at, 0.0, 0.1, cpu_seconds=0.1) for at in (0, 1))
        )
    ]
    assert summarize(make_run(trials, [DHRYSTONE])).cpu_costs == ()


@pytest.mark.parametrize("cpu_seconds", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_cpu_time_is_unknown(cpu_seconds: float) -> None:
    costs = costs_of(run_of({"native": (1e-5,), "docker": (cpu_seconds,)}))
    assert (costs["docker"].seconds, costs["docker"].reason) == (None, "the CPU time in its turns is unknown")


@pytest.mark.parametrize(("unit", "counted"), [
    ("requests/s", "request"), ("queries/s", "query"), ("bytes/s", "byte"), ("s", "run"),
])  # fmt: skip
def test_the_unit_is_what_is_counted(unit: str, counted: str) -> None:
    assert counted_unit(unit) == counted
