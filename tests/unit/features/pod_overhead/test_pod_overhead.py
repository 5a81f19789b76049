"""The overhead of idle pods: differences within blocks, and whether a declared amount fits them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from idle_pods import MIB, idle_trials, proof

from tare.features.pod_overhead.overhead import (
    Amount,
    amount_to_declare,
    estimate_amount,
    parse_declared_amount,
    pod_overheads,
    rate_declared_amount,
)
from tare.model.trial import MeasuredValue, Trial


def _unknown(_: Trial) -> None:
    return None


def test_an_amount_is_a_mean_of_differences_with_students_interval() -> None:
    found = estimate_amount([10.0, 12.0, 14.0])
    assert found is not None
    # 12 ± 4.302653 · 2 / √3
    assert (found.mean, found.n) == (12.0, 3)
    assert found.low == pytest.approx(7.0317, abs=1e-4)
    assert found.high == pytest.approx(16.9683, abs=1e-4)
    assert estimate_amount([10.0, 12.0]) is None


def test_the_overhead_is_the_excess_over_the_baseline_of_the_same_block() -> None:
    trials = [*idle_trials([70, 70, 70])]
    (found,) = pod_overheads(trials, "native", lambda trial: 0.1 if trial.stack == "native" else 0.12)
    assert (found.runtime_class, found.handler, found.declared) == ("gvisor", "runsc", "none")
    assert found.memory is not None
    assert found.cpu is not None
    assert (found.memory.mean, found.memory.n) == (70 * MIB, 3)
    assert found.cpu.mean == pytest.approx(0.02)


def test_a_pod_of_a_block_without_its_baseline_does_not_count() -> None:
    trials = [trial for trial in idle_trials([70, 70, 70, 999]) if trial.trial != "idle-003-native"]
    (found,) = pod_overheads(trials, "native", _unknown)
    assert found.memory is not None
    assert (found.memory.n, found.cpu) == (3, None)


def test_each_cpu_time_that_is_needed_is_read_once() -> None:
    trials = [
        *idle_trials([70] * 3),
        *(trial for trial in idle_trials([80] * 3, stack="other") if trial.stack == "other"),
    ]
    read: list[str] = []

    def cpus_of(trial: Trial) -> float:
        read.append(trial.trial)
        return 0.1

    assert [each.stack for each in pod_overheads(trials, "native", cpus_of)] == ["pod", "other"]
    assert sorted(read) == sorted(
        f"idle-{block:03}-{stack}" for block in range(3) for stack in ("native", "pod", "other")
    )


def test_a_baseline_that_is_a_pod_itself_is_not_the_program_alone() -> None:
    trials = [replace(trial, proof=proof()) if trial.stack == "native" else trial for trial in idle_trials([70] * 3)]
    assert pod_overheads(trials, "native", _unknown) == ()
    assert pod_overheads([*idle_trials([70] * 3)], "pod", _unknown) == ()


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300])
def test_what_cannot_be_memory_does_not_count(value: float) -> None:
    broken = (MeasuredValue("memory", None, value, "bytes", "lower"),)
    trials = [*idle_trials([70] * 4)]
    trials[-1] = replace(trials[-1], values=broken)
    (found,) = pod_overheads(trials, "native", lambda _: math.nan)
    assert found.memory is not None
    assert (found.memory.n, found.cpu) == (3, None)


@pytest.mark.parametrize(
    ("text", "memory", "cpu"),
    [
        ("none", 0, 0),
        ("cpu 250m, memory 120Mi", 120 * MIB, 0.25),
        ("memory 128974848", 128974848, 0),
        ("cpu 1, memory 129M", 129e6, 1),
        ("cpu 0.5, memory 129e6", 129e6, 0.5),
        ("cpu .5, memory 1.5Gi", 1.5 * (1 << 30), 0.5),
        ("cpu 500u, memory 1k", 1000, 5e-4),
        ("cpu much, memory -1Mi", None, None),
        ("cpu ٣, memory 1Xi", None, None),
        ("cpu 1e999, memory ", None, None),
    ],
)
def test_what_a_runtime_class_declares_is_read_as_kubernetes_reads_it(
    text: str, memory: float | None, cpu: float | None
) -> None:
    assert parse_declared_amount(text, "memory") == (memory if memory is None else pytest.approx(memory))
    assert parse_declared_amount(text, "cpu") == (cpu if cpu is None else pytest.approx(cpu))


FOUND = Amount(84.0, 83.2, 84.1, 5)


@pytest.mark.parametrize(
    ("declared", "margin", "expected"),
    [
        (0.0, 0.0, "too small"),
        (83.1, 0.0, "too small"),
        (83.3, 0.0, "about right"),
        (85.0, 0.0, "about right"),  # what is there to paste
        (85.1, 0.0, "too large"),
        (81.0, 0.03, "about right"),
        (80.0, 0.03, "too small"),
        (87.0, 0.03, "about right"),
        (88.0, 0.03, "too large"),
    ],
)
def test_a_declared_amount_fits_up_to_the_suggested_one_plus_the_margin(
    declared: float, margin: float, expected: str
) -> None:
    assert rate_declared_amount(declared, FOUND, 1.0, margin) == expected


def test_nothing_declared_is_about_right_where_nothing_was_measured() -> None:
    assert rate_declared_amount(0.0, Amount(0.004, -0.0029, 0.0108, 5), 1e-3, 0.03) == "about right"
    assert amount_to_declare(Amount(-2.0, -3.0, -1.0, 5), 1.0) == 0


def test_without_an_interval_or_a_quantity_it_is_not_known_yet() -> None:
    assert rate_declared_amount(85.0, None, 1.0, 0.03) == "not known yet"
    assert rate_declared_amount(None, FOUND, 1.0, 0.03) == "not known yet"
