"""The advice: needs first, then costs with ties, then what to try; and when it cannot tell."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from priced import COMPUTING, NATIVE, SCRIPT, SERVER, STACKS, application, basket, priced
from runs import MACHINE, pairs

from tare.features.advise.advice import (
    Advice,
    AdviceOptions,
    Candidate,
    ReferenceRun,
    Requirements,
    advise,
    fit_calibrations,
    measured_times,
)
from tare.features.advise.application_profile import OperationCounts
from tare.features.advise.capacity import MachineType
from tare.features.advise.cost_model import CORRECTION, CostEstimate
from tare.features.advise.unit_costs import read_price_list
from tare.model.errors import UsageError
from tare.model.trial import Caution


def by_stack(found: Advice) -> dict[str, Candidate]:
    return {each.stack: each for each in found.candidates}


def decisions(found: Advice) -> dict[str, str]:
    return {each.stack: each.decision for each in found.candidates}


def test_stacks_are_ranked_by_cost_and_tie_where_their_intervals_overlap() -> None:
    found = advise(application(), priced(), AdviceOptions())
    ranks = {each.stack: (each.best_rank, each.worst_rank) for each in found.candidates}
    assert ranks == {"docker": (1, 2), "podman": (1, 2), "gvisor": (3, 3), "qemu-tcg": (4, 4)}
    assert [each.stack for each in found.candidates] == ["docker", "podman", "gvisor", "qemu-tcg"]
    assert found.stacks_to_try == ("docker", "podman")
    assert not found.is_settled


def test_an_answer_is_settled_where_one_stack_is_surely_the_cheapest() -> None:
    found = advise(application(SCRIPT), priced(noise=0.001), AdviceOptions(Requirements(isolation="user-space kernel")))
    assert found.is_settled
    assert found.stacks_to_try == ("gvisor", "qemu-tcg")


@pytest.mark.parametrize(
    ("needs", "excluded"),
    [
        (Requirements(isolation="shared kernel"), set()),
        (Requirements(isolation="user-space kernel"), {"docker", "podman"}),
        (Requirements(isolation="own kernel"), {"docker", "podman", "gvisor"}),
        (Requirements(memory_bytes=30 << 20), {"gvisor", "qemu-tcg"}),
        (Requirements(start_seconds=0.35), {"podman", "gvisor", "qemu-tcg"}),
        (Requirements("user-space kernel", 1 << 30, 1.0), {"docker", "podman", "qemu-tcg"}),
    ],
)
def test_what_does_not_meet_the_needs_is_excluded_whatever_it_costs(needs: Requirements, excluded: set[str]) -> None:
    found = advise(application(), priced(), AdviceOptions(needs))
    assert {each.stack for each in found.with_decision("excluded")} == excluded
    assert not excluded & set(found.stacks_to_try)


def test_memory_is_that_of_the_application_and_what_the_stack_adds_to_it() -> None:
    found = by_stack(advise(application(), priced(), AdviceOptions()))
    assert found["gvisor"].memory_bytes == (20 + 40 - 1) << 20


def test_what_is_unknown_does_not_meet_a_need() -> None:
    run = priced()
    bare = replace(run, trials=tuple(replace(trial, footprint=None, timeline=()) for trial in run.trials))
    bare = replace(bare, record=replace(run.record, isolation={}))
    found = by_stack(advise(application(), bare, AdviceOptions(Requirements("user-space kernel", 1 << 40, 1e6))))
    assert found["docker"].unmet == ("isolation: unknown", "memory: unknown", "start-up: unknown")


def test_prices_of_another_machine_or_kernel_say_nothing_unless_asked_for() -> None:
    other = application(machine=replace(MACHINE, kernel="6.12.0", cpu_model="Another CPU"))
    found = advise(other, priced(), AdviceOptions())
    assert set(decisions(found).values()) == {"cannot tell"}
    assert found.machine_differences == (
        "CPU: Another CPU for the profile, Imaginary CPU 9000 for the price list",
        "kernel: 6.12.0 for the profile, 6.1.0-18-amd64 for the price list",
    )
    assert set(decisions(advise(other, priced(), AdviceOptions(across_machines=True))).values()) == {"ranked"}


def test_an_interval_that_is_too_wide_says_which_kind_of_work_makes_it_so() -> None:
    found = by_stack(advise(application(), priced(noise=0.8, blocks=4), AdviceOptions()))
    assert found["gvisor"].decision == "cannot tell"
    assert "the interval is too wide" in found["gvisor"].problems[-1]
    assert "mostly for messages received and answered" in found["gvisor"].problems[-1]


def test_a_single_block_can_tell_nothing() -> None:
    found = advise(application(), priced(blocks=1), AdviceOptions())
    assert set(decisions(found).values()) == {"cannot tell"}
    assert found.candidates[0].problems == ("unit costs of a single block",)


def test_one_that_cannot_be_told_is_still_one_to_try() -> None:
    run = priced()
    lost = tuple(
        replace(trial, values=tuple(each for each in trial.values if each.metric != "message"))
        if trial.stack == "podman"
        else trial
        for trial in run.trials
    )
    found = advise(application(), replace(run, trials=lost), AdviceOptions())
    assert decisions(found)["podman"] == "cannot tell"
    assert found.stacks_to_try == ("docker", "podman")
    assert not found.is_settled


def test_the_cost_is_the_price_of_extra_time_and_machines_carry_the_load() -> None:
    found = by_stack(
        advise(application(), priced(noise=0.0), AdviceOptions(node_hourly_price=0.12, load_per_second=1e6))
    )
    gvisor = found["gvisor"]
    assert gvisor.hourly_price == pytest.approx(0.12 * gvisor.cost.value)
    # A request takes 16.6 us of CPU on bare metal, and a machine has two CPUs.
    assert gvisor.machines is not None
    assert gvisor.machines.count == math.ceil(1e6 * SERVER.cpu_seconds * gvisor.cpu.value / 2)
    assert gvisor.machines.hourly == pytest.approx(0.12 * gvisor.machines.count)
    docker = found["docker"].machines
    assert docker is not None
    assert docker.count == 10
    assert docker.busy == pytest.approx(1e6 * SERVER.cpu_seconds * found["docker"].cpu.value / 20)


def test_the_cheapest_machine_type_with_enough_memory_serves_the_load() -> None:
    large, small, tiny = (
        MachineType(8, 0.20, 1 << 30, "large"),
        MachineType(2, 0.06, 64 << 20, "small"),
        MachineType(1, 0.01, 1 << 20, "tiny"),
    )
    found = by_stack(
        advise(application(), priced(noise=0.0), AdviceOptions(load_per_second=1e5, machine_types=(large, small, tiny)))
    )
    docker, guest = found["docker"].machines, found["qemu-tcg"].machines
    assert docker is not None
    assert guest is not None
    assert (docker.machine_type, docker.count) == (small, 1)
    assert guest.machine_type == large  # 319 MiB
    lacking = by_stack(advise(application(), priced(), AdviceOptions(load_per_second=1e5, machine_types=(tiny,))))[
        "docker"
    ]
    assert lacking.decision == "cannot tell"
    assert "no machine type has 28 MiB of memory" in lacking.problems


def measured(of: OperationCounts, by: float, name: str) -> ReferenceRun:
    """A reference whose cost beyond bare metal is so many times what its bill says."""
    times = {}
    for stack, prices in STACKS.items():
        extra = sum(NATIVE[kind] * count * (prices.get(kind, 1.0) - 1) for kind, count in of.counts.items())
        times[stack] = CostEstimate(1 + by * extra / of.elapsed_seconds)
    return ReferenceRun(name, of, times, MACHINE)


def references(by: float, many: int = 12) -> list[ReferenceRun]:
    chance = np.random.default_rng(3)
    found = []
    for number in range(many):
        counts = {"user": 1e-5, "call": chance.uniform(2, 40), "message": chance.uniform(0.5, 3)}
        found.append(measured(basket(counts), by * math.exp(chance.normal(0, 0.05)), f"reference {number}"))
    return found


def test_references_correct_the_bill_and_the_correction_is_a_line_of_it() -> None:
    run = priced(noise=0.002)
    plain, better = (
        by_stack(advise(application(), run, AdviceOptions(), reference_runs))["gvisor"]
        for reference_runs in ((), references(1.5))
    )
    assert plain.calibration is None
    assert better.calibration is not None
    assert better.calibration.reference_count == 12
    truth = measured(SERVER, 1.5, "web").relative_times["gvisor"].value
    assert abs(better.cost.value - truth) < abs(plain.cost.value - truth) / 2
    assert better.cost.low is not None
    assert better.cost.high is not None
    assert better.cost.low < truth < better.cost.high
    [line] = [each for each in better.cost_items if each.kind == CORRECTION]
    assert line.share.value == pytest.approx(better.cost.value - plain.cost.value)


def test_a_stack_that_too_few_references_were_measured_in_is_not_corrected() -> None:
    only_docker = [replace(each, relative_times={"docker": each.relative_times["docker"]}) for each in references(1.2)]
    assert set(fit_calibrations(only_docker, read_price_list(priced()))) == {"docker"}
    assert fit_calibrations(references(1.2, 8), read_price_list(priced())) == {}


def test_references_of_another_machine_are_refused_unless_asked_for() -> None:
    far = [replace(each, machine=replace(MACHINE, cpu_model="Another CPU")) for each in references(1.2)]
    with pytest.raises(UsageError, match="reference 0: a reference of another machine: CPU: Another CPU"):
        advise(application(), priced(), AdviceOptions(), far)
    assert advise(application(), priced(), AdviceOptions(across_machines=True), far).reference_count == 12


def test_a_candidate_has_the_cautions_of_its_prices_and_of_the_baseline() -> None:
    run = priced()
    bound = (Caution("client-bound", "the client used 99 % of its CPU"),)
    trials = tuple(replace(each, cautions=bound) if each.stack == "gvisor" else each for each in run.trials)
    found = by_stack(advise(application(), replace(run, trials=trials), AdviceOptions()))
    assert found["gvisor"].cautions == ("client-bound",)
    assert found["docker"].cautions == ()


def test_measured_times_are_the_inverse_of_speeds() -> None:
    found = measured_times(pairs([50.0, 51.0, 49.0] * 3, [100.0, 101.0, 99.0] * 3))
    assert found.keys() == {"docker"}
    time = found["docker"]
    assert time.value == pytest.approx(2.0, rel=0.02)
    assert 1.9 < (time.low or 0.0) < time.value < (time.high or 0.0) < 2.1


def test_what_the_price_list_has_no_price_of_is_named() -> None:
    assert advise(application(COMPUTING), priced(without=("fault",)), AdviceOptions()).unpriced_kinds == ("fault",)


def test_a_price_list_of_bare_metal_alone_is_refused() -> None:
    with pytest.raises(UsageError, match="has no stack but native"):
        advise(application(), priced({"native": {}}), AdviceOptions())
