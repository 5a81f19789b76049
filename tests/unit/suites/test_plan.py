from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tare.plugins import registry
from tare.suites.plan import Block, PlannedTrial, estimate_total_seconds, plan, select_remaining
from tare.suites.suite import Suite, parse_suite


@dataclass(frozen=True)
class Anything:
    name: ClassVar[str] = "anything"
    can_host: ClassVar[bool] = True
    can_be_nested: ClassVar[bool] = True


class Shelf:
    def names(self, plugin_type: registry.PluginType) -> tuple[str, ...]:
        return ("docker", "native", "qemu") if plugin_type == "technologies" else ("nginx", "redis")

    def find(self, plugin_type: registry.PluginType, name: str) -> type[Any]:
        assert name in self.names(plugin_type)
        return Anything


def suite(blocks: int = 4, seed: int = 1, workloads: tuple[str, ...] = ("redis", "nginx")) -> Suite:
    text = f'[suite]\nstacks = ["native", "docker", "qemu", "docker/qemu"]\nblocks = {blocks}\nseed = {seed}\n'
    return parse_suite(text + "".join(f'[[workloads]]\nuse = "{use}"\n' for use in workloads), "a.toml", Shelf())


def orders(blocks: tuple[Block, ...], workload: str) -> list[tuple[str, ...]]:
    return [tuple(step.stack for step in block.trials) for block in blocks if block.workload == workload]


def test_each_round_has_one_block_of_each_workload_in_suite_order() -> None:
    assert [(block.workload, block.index) for block in plan(suite(blocks=3))] == [
        ("redis", 0),
        ("nginx", 0),
        ("redis", 1),
        ("nginx", 1),
        ("redis", 2),
        ("nginx", 2),
    ]


def test_of_some_blocks_each_is_as_in_the_whole_plan() -> None:
    whole = plan(suite(blocks=9))
    some = plan(replace(suite(blocks=9), only_blocks=frozenset({7, 2})))
    assert some == tuple(block for block in whole if block.index in {2, 7})


def test_each_block_has_each_stack_once_and_the_baseline_twice() -> None:
    for block in plan(suite(blocks=20)):
        assert sorted(step.stack for step in block.trials) == [
            "docker",
            "docker/qemu",
            "native",
            "native-again",
            "qemu",
        ]
        assert [step.order for step in block.trials] == [0, 1, 2, 3, 4]
        assert {(step.workload, step.block) for step in block.trials} == {(block.workload, block.index)}


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan(suite(seed=7)) == plan(suite(seed=7))
    assert orders(plan(suite(seed=7)), "redis") != orders(plan(suite(seed=8)), "redis")


def test_the_order_of_a_seed_stays_what_it_was_in_earlier_versions() -> None:
    assert orders(plan(suite(blocks=2, seed=1)), "redis") == [
        ("native-again", "docker/qemu", "docker", "native", "qemu"),
        ("native-again", "qemu", "docker/qemu", "docker", "native"),
    ]


def test_another_workload_leaves_the_order_of_the_first_as_it_is() -> None:
    alone = plan(suite(blocks=10, workloads=("redis",)))
    assert orders(alone, "redis") == orders(plan(suite(blocks=10)), "redis")


def test_more_blocks_leave_the_first_ones_as_they_are() -> None:
    assert plan(suite(blocks=9))[:8] == plan(suite(blocks=4))


def test_orders_differ_between_blocks_and_between_workloads() -> None:
    blocks = plan(suite(blocks=30))
    assert len(set(orders(blocks, "redis"))) > 10  # of the 24 orders that four stacks have
    assert orders(blocks, "redis") != orders(blocks, "nginx")


def test_each_stack_is_first_about_equally_often() -> None:
    """Of 3000 blocks each of 5 stacks should begin 600; 4.5 standard deviations of sqrt(3000 * 1/5 * 4/5) are 99."""
    blocks = plan(suite(blocks=3000, workloads=("redis",)))
    firsts = Counter(block.trials[0].stack for block in blocks)
    assert len(blocks) == 3000
    assert set(firsts) == {"native", "native-again", "docker", "qemu", "docker/qemu"}
    assert all(501 <= count <= 699 for count in firsts.values())


def test_trials_are_named_uniquely_and_as_files_can_be() -> None:
    trials = [step.trial for block in plan(suite(blocks=50)) for step in block.trials]
    assert len(set(trials)) == len(trials) == 500
    assert all(re.fullmatch(r"(redis|nginx)-0[0-4][0-9]-0[0-4]-[a-z+-]+", trial) for trial in trials)
    assert sum(trial.endswith("-docker+qemu") for trial in trials) == 100


def test_what_is_done_is_left_out_when_a_run_goes_on() -> None:
    blocks = plan(suite(blocks=2, workloads=("redis",)))
    done = [step.trial for step in blocks[0].trials] + [blocks[1].trials[2].trial]
    [left] = select_remaining(blocks, done)
    assert (left.workload, left.index) == ("redis", 1)
    assert left.trials == (*blocks[1].trials[:2], *blocks[1].trials[3:])


def test_nothing_is_left_of_a_run_that_is_done() -> None:
    blocks = plan(suite())
    assert select_remaining(blocks, {step.trial for block in blocks for step in block.trials}) == ()
    assert select_remaining(blocks, ()) == blocks


def test_the_estimate_is_the_sum_over_all_trials() -> None:
    def seconds_of(step: PlannedTrial) -> float:
        return 10.0 if "qemu" in step.stack else 1.5

    assert estimate_total_seconds(plan(suite(blocks=3)), seconds_of) == 3 * 2 * (10 + 10 + 1.5 + 1.5 + 1.5)
