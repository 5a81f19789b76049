"""The bill: counts times prices is what a stack costs, and some of it is unknown."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from priced import COMPUTING, NATIVE, RECORDS, SCRIPT, SERVER, STACKS, basket, priced
from runs import MACHINE, make_run, make_trial, measured

from tare.features.advise.application_profile import OperationCounts, combine_profiles
from tare.features.advise.cost_model import REST, CostBreakdown, CostEstimate, predict
from tare.features.advise.profiler.profile import CallCount, Counts, Profile, Usage
from tare.features.advise.unit_costs import read_price_list
from tare.model.errors import UsageError
from tare.model.run_folder import Run


def bills(of: OperationCounts, run: Run) -> dict[str, CostBreakdown]:
    return {bill.stack: bill for bill in predict(of, read_price_list(run))}


def line(bill: CostBreakdown, kind: str) -> float:
    return next(each.share.value for each in bill.items if each.kind == kind)


def test_a_unit_of_work_costs_its_counts_times_what_the_prices_differ_by() -> None:
    # Worked by hand: 10 us of code, 10 calls of 0.1 us and a message of 5 us are 16 us on bare metal. In gvisor a call
    # takes 20 times and a message 6 times as long: 10 * 1.9 us + 25 us = 44 us more.
    of = basket({"user": 1e-5, "call": 10.0, "message": 1.0})
    assert of.cpu_seconds == pytest.approx(16e-6)
    bill = bills(of, priced(noise=0.0))["gvisor"]
    assert bill.cost.value == pytest.approx(60 / 16, rel=0.02)
    assert line(bill, "call") == pytest.approx(19 / 16, rel=0.05)
    assert line(bill, "message") == pytest.approx(25 / 16, rel=0.05)
    assert line(bill, "user") == pytest.approx(0.0, abs=1e-9)
    assert [each.kind for each in bill.items[:2]] == ["message", "call"]


def test_user_code_is_a_factor_whatever_the_price_of_the_reference_loop_is() -> None:
    run = priced(noise=0.0, stacks={"native": {}, "slow": {"user": 1.25}})
    bill = bills(OperationCounts({"user": 3.0}, 3.0, 3.0), run)["slow"]
    assert bill.cost.value == pytest.approx(1.25)
    slower = tuple(
        replace(trial, values=tuple(replace(each, value=each.value * 7) for each in trial.values))
        for trial in run.trials
    )
    assert bills(OperationCounts({"user": 3.0}, 3.0, 3.0), replace(run, trials=slower))[
        "slow"
    ].cost.value == pytest.approx(1.25)


def test_kernel_time_that_no_price_explains_is_as_much_slower_as_user_code() -> None:
    of = OperationCounts({"user": 0.9}, 1.0, 1.0)
    bill = bills(of, priced(noise=0.0))["qemu-tcg"]
    assert line(bill, REST) == pytest.approx(0.1 * 9)
    assert bill.cost.value == pytest.approx(10.0)


def test_work_in_the_kernel_takes_as_long_as_the_kernel_says() -> None:
    # 10 calls and a message are 6 us by their prices, and 12 us by the kernel's clock: each is twice as dear.
    counts = {"user": 1e-5, "call": 10.0, "message": 1.0}
    bill = bills(basket(counts, kernel=6e-6), priced(noise=0.0))["gvisor"]
    assert line(bill, "call") == pytest.approx(2 * 19 / 22, rel=0.01)
    assert line(bill, "message") == pytest.approx(2 * 25 / 22, rel=0.01)
    assert REST not in {each.kind for each in bill.items}


def test_work_costs_at_most_four_times_as_much_and_the_rest_is_unexplained() -> None:
    counts = {"user": 1e-5, "call": 10.0, "message": 1.0}  # 6 us by their prices
    bill = bills(basket(counts, kernel=24e-6), priced(noise=0.0))["qemu-tcg"]
    assert line(bill, "message") == pytest.approx(4 * 45 / 40, rel=0.02)
    assert line(bill, REST) == pytest.approx(9 * 6 / 40, rel=0.1)


@pytest.mark.parametrize(("kernel", "effort"), [(1e-6, 1.0), (0.5e-3, 1.0), (3e-3, 3e-3 / 1.001e-3)])
def test_a_sync_takes_time_of_the_kernel_as_far_as_there_is_some(kernel: float, effort: float) -> None:
    # A call of 1 us in all, and a sync of 1 ms, which waits for the disk or works in the kernel.
    run = priced(noise=0.0, stacks={"native": {}, "slow": {"sync": 3.0, "call": 2.0}})
    counts = dict.fromkeys(NATIVE, 0.0) | {"user": 1e-3, "sync": 1.0, "call": 10.0}
    found = {
        each.kind: each.share.value for each in bills(OperationCounts(counts, 1e-3 + kernel, 1.0), run)["slow"].items
    }
    assert found["call"] == pytest.approx(effort * 1e-6, rel=0.01)
    assert found["sync"] == pytest.approx(effort * 2e-3, rel=0.01)


def test_cpu_time_costs_elapsed_time_in_proportion_to_the_cpus_in_use() -> None:
    run = priced(noise=0.0, stacks={"native": {}, "slow": {"user": 2.0}})
    assert bills(OperationCounts({"user": 1.0}, 1.0, 0.25), run)["slow"].cost.value == pytest.approx(
        2.0
    )  # four CPUs in use
    assert bills(OperationCounts({"user": 1.0}, 1.0, 4.0), run)["slow"].cost.value == pytest.approx(
        1.25
    )  # mostly waiting
    assert bills(OperationCounts({"user": 1.0}, 1.0, 4.0), run)["slow"].cpu.value == pytest.approx(2.0)


def test_where_requests_were_waited_for_the_cost_is_cpu_time_without_syncs() -> None:
    # 2 ms of CPU time in a second: half of it is dearer by a factor of 3, and a sync waits three times as long.
    run = priced(noise=0.0, stacks={"native": {}, "slow": {"user": 3.0, "sync": 3.0}})
    counts = dict.fromkeys(NATIVE, 0.0) | {"user": 1e-3, "sync": 1.0}
    waits = OperationCounts(counts, 2e-3, 1.0)
    by_time, by_cpu = (bills(each, run)["slow"] for each in (waits, replace(waits, by_cpu=True)))
    assert by_time.cost.value == pytest.approx(1.004, abs=0.001)
    assert by_cpu.cost.value == by_cpu.cpu.value == pytest.approx(1 + 2e-3 / 2e-3, rel=0.01)
    assert line(by_cpu, "user") == pytest.approx(1.0, rel=0.01)
    assert line(by_cpu, "sync") == 0.0


def test_a_sync_costs_time_and_no_cpu_time() -> None:
    run = priced(noise=0.0, stacks={"native": {}, "slow": {"sync": 3.0}})
    bill = bills(OperationCounts({"user": 1e-3, "sync": 1.0}, 1e-3, 2e-3), run)["slow"]
    assert bill.cost.value == pytest.approx(2.0, rel=0.1)
    assert bill.cpu.value == pytest.approx(1.0)


def test_a_price_is_without_those_of_the_kinds_that_its_metric_includes() -> None:
    # What starts and ends a program measures its page faults and two switches, too, and a switch the message that
    # causes it. In the slow stack these are dearer, and a program alone is not.
    run = priced(noise=0.0, stacks={"native": {}, "slow": {"pipe": 1.2, "switch": 1.5, "fault": 3.0}})
    of = basket({"process": 1.0, "fault": 100.0, "switch": 4.0, "pipe": 1.0})
    found = {each.kind: each.share.value * of.elapsed_seconds for each in bills(of, run)["slow"].items}
    assert found["process"] == pytest.approx(0.0, abs=1e-9)
    assert found["fault"] == pytest.approx(100 * 2 * NATIVE["fault"], rel=0.01)
    assert found["switch"] == pytest.approx(4 * 0.5 * NATIVE["switch"], rel=0.01)
    assert found["pipe"] == pytest.approx(0.2 * NATIVE["pipe"], rel=0.01)


def test_throughput_is_predicted_unless_the_cpu_had_idle_time() -> None:
    assert basket({"user": 1.0}).is_saturated
    assert not basket({"user": 1.0}, idle=1.0).is_saturated


@pytest.mark.parametrize("of", [SERVER, COMPUTING, SCRIPT], ids=["server", "computing", "script"])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(of: OperationCounts) -> None:
    held = []
    for seed in range(40):
        for stack, bill in bills(of, priced(noise=0.03, blocks=6, seed=seed)).items():
            extra = sum(NATIVE[kind] * count * (STACKS[stack].get(kind, 1.0) - 1) for kind, count in of.counts.items())
            truth = 1 + extra / of.elapsed_seconds
            assert bill.cost.low is not None
            assert bill.cost.high is not None
            held.append(bill.cost.low - 1e-3 <= truth <= bill.cost.high)  # user code is never faster
    assert 0.8 < np.mean(held) < 0.98


def test_repetitions_of_a_profile_that_differ_make_the_interval_wider() -> None:
    run = priced(noise=0.002)
    one = replace(SERVER, repetitions=(SERVER.counts,) * 4)
    other = replace(
        SERVER,
        repetitions=tuple({kind: count * by for kind, count in SERVER.counts.items()} for by in (0.8, 0.9, 1.1, 1.2)),
    )
    same, varied = (bills(each, run)["gvisor"].cost for each in (one, other))
    assert same.value == pytest.approx(varied.value)
    assert width(varied) > 3 * width(same)


def width(found: CostEstimate) -> float:
    assert found.low is not None
    assert found.high is not None
    return math.log(found.high / found.low)


def profile(messages: int) -> Profile:
    """A server of a hundred requests, which took so many messages."""
    calls = tuple(CallCount(call, messages, "network", bytes=0, pieces=messages) for call in ("read", "write"))
    counts = Counts(1.0, calls, 0, 0, 0, 0, 0, 0, 100.0)
    return Profile(1, "0.1.0", "2026-11-25", "web", MACHINE, "request", 100.0, 6e-3, Usage(1e-3, 5e-3), (), counts)


def test_several_profiles_are_averaged_and_their_spread_is_the_uncertainty() -> None:
    one, other = (profile(count) for count in (900, 1100))
    both = combine_profiles(one, other)
    assert both.operations.counts["message"] == pytest.approx(10.0)
    assert [each["message"] for each in both.operations.repetitions] == pytest.approx([9.0, 11.0])
    run = priced(noise=0.002)
    alone, together = (bills(combine_profiles(*each).operations, run)["gvisor"].cost for each in ((one,), (one, other)))
    assert width(together) > 2 * width(alone)


def test_profiles_of_two_architectures_are_refused_with_both() -> None:
    other = replace(profile(900), machine=replace(MACHINE, architecture="aarch64"))
    both = r"9000, Linux \S+ on x86_64, and Imaginary CPU 9000, Linux \S+ on aarch64"
    with pytest.raises(UsageError, match=f"web: profiles of different machines: Imaginary CPU {both}"):
        combine_profiles(profile(900), other)


def test_one_block_has_no_interval() -> None:
    time = bills(SERVER, priced(blocks=1))["docker"].cost
    assert time.low is None
    assert time.high is None
    assert not time.is_narrow


def test_a_stack_without_an_important_price_gets_a_caution_with_the_kind() -> None:
    run = priced()
    lost = tuple(
        replace(trial, values=tuple(each for each in trial.values if each.metric != "message"))
        if trial.stack == "gvisor"
        else trial
        for trial in run.trials
    )
    found = bills(SERVER, replace(run, trials=lost))
    assert found["docker"].problems == ()
    [doubt] = found["gvisor"].problems
    assert "no unit cost of messages received and answered" in doubt


def test_a_missing_price_kind_gives_a_caution_by_unexplained_kernel_time() -> None:
    found = bills(SERVER, priced(noise=0.0, without=("message",)))
    [doubt] = found["docker"].problems
    assert "no unit cost of messages received and answered, which are up to 30% of the time" in doubt
    assert bills(COMPUTING, priced(without=("call",)))["docker"].problems == ()


def test_unknown_work_is_doubted() -> None:
    odd = OperationCounts({**dict.fromkeys(NATIVE, 0.0), "user": 1.0, "graphics": 5.0}, 1.25, 1.25)
    assert bills(odd, priced())["docker"].problems == ("no unit cost of graphics, which are up to 20% of the time",)


def test_unexplained_kernel_time_may_belong_to_any_of_the_counted_work() -> None:
    little, much = (
        bills(basket({"user": 1e-5, "call": 10.0, "fault": 1.0}, kernel=kernel), priced()) for kernel in (2e-6, 2e-5)
    )
    assert little["gvisor"].cost.is_narrow
    assert not much["gvisor"].cost.is_narrow
    assert much["gvisor"].widest_item is not None
    assert much["gvisor"].widest_item.kind == REST
    assert much["docker"].cost.is_narrow  # whichever work it is, it costs the same there


def test_without_a_price_of_user_code_nothing_can_be_told() -> None:
    assert "no unit cost of user code" in bills(SERVER, priced(without=("user",)))["docker"].problems


def test_a_run_that_is_no_price_list_is_refused() -> None:
    with pytest.raises(UsageError, match="not a price list: its workloads are dhrystone"):
        read_price_list(make_run([make_trial("native", 0, [measured("speed", 1.0)])]))


def test_a_price_list_without_its_baseline_is_refused() -> None:
    run = priced(stacks={"docker": {}, "gvisor": {}})
    with pytest.raises(UsageError, match="has no baseline native"):
        read_price_list(run)
    nothing = tuple(replace(trial, status="failed", values=()) for trial in priced().trials if trial.stack == "native")
    others = tuple(trial for trial in priced().trials if trial.stack == "docker")
    with pytest.raises(UsageError, match="no unit cost of the baseline native"):
        read_price_list(make_run([*nothing, *others], RECORDS))


def test_the_control_is_no_stack_of_a_price_list() -> None:
    assert read_price_list(priced()).stacks == ("docker", "podman", "gvisor", "qemu-tcg")


def test_work_that_the_profile_could_not_count_may_be_any_of_what_it_lacks() -> None:
    known = replace(SERVER, counts={"user": SERVER.counts["user"]})
    bill = bills(known, priced())["gvisor"]
    assert bill.widest_item is not None
    assert bill.widest_item.kind == REST
    assert bill.cost.low is not None
    assert bill.cost.high is not None
    assert bill.cost.low < 1.2
    assert bill.cost.high > bills(SERVER, priced())["gvisor"].cost.value
    assert not bill.cost.is_narrow
