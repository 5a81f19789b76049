from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pytest
from setups import Client, OneByOne

from tare.model.errors import TrialFailed
from tare.model.trial import Footprint, LimitsSpec, RawOutput
from tare.plugins.instance import Instance
from tare.plugins.workload import ExtraInstance, MeasurementContext, Workload
from tare.suites.tables import apply_limits
from tare.workloads.idle import Idle

COST = Footprint(3_000_000, 500_000, 0, 2)


@dataclass(frozen=True)
class Costing(OneByOne):
    """What tells the cost, and starts nothing."""

    costs: Footprint

    @property
    def memory_limit_bytes(self) -> int:
        return 512 << 20

    def start_instance(
        self, workload: Workload, limit_bytes: int | None = None
    ) -> AbstractContextManager[ExtraInstance]:
        raise AssertionError((workload, limit_bytes))

    def measure_footprint(self) -> Footprint:
        return self.costs

    def spare_memory_share(self) -> float:
        return 0.5


def setup(costs: Footprint = COST, image_bytes: int | None = 7_000_000) -> MeasurementContext:
    instance = Instance("tare-x", None, None, "none", processes=tuple, image_bytes=lambda: image_bytes)
    return MeasurementContext(instance, Client(), (), instance_starter=Costing(costs))


def measured(given: MeasurementContext) -> tuple[RawOutput, ...]:
    return tuple(Idle().measure(given))


def values(raw: tuple[RawOutput, ...]) -> dict[str, float]:
    return {value.metric: value.value for value in Idle().parse(raw)}


def test_a_guest_costs_what_the_host_sees_and_reports_its_own_beside_it() -> None:
    assert values(measured(setup(replace(COST, reported_bytes=60_000_000)))) == {
        "memory": 3_500_000,
        "process_memory": 3_000_000,
        "kernel_memory": 500_000,
        "reported": 60_000_000,
        "image": 7_000_000,
    }


def test_what_the_host_does_not_report_is_missing_and_not_zero() -> None:
    found = values(measured(setup(costs=replace(COST, kernel_bytes=None), image_bytes=None)))
    assert found == {"memory": 3_000_000, "process_memory": 3_000_000}


def test_memory_that_the_host_does_not_report_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="does not report the memory"):
        measured(setup(costs=replace(COST, memory_bytes=None)))


def test_nothing_runs_for_some_time_before() -> None:
    given = setup()
    measuring: Iterator[RawOutput] = Idle(settle=7.5).measure(given)
    next(measuring)
    assert isinstance(given.client, Client)
    assert given.client.calls == [("sleep", "7.5")]
    assert given.client.limits_seconds[0] > 7.5
    assert Idle(settle=7.5).estimate_seconds() == 7.5


def test_it_runs_nothing_inside_and_takes_no_turns() -> None:
    assert (Idle.runs_inside, Idle().packages, Idle().rounds) == (False, (), 1)


def test_a_bound_of_time_lowers_how_long_nothing_runs() -> None:
    fitting, _ = apply_limits(Idle(), LimitsSpec(seconds=0.5))
    assert fitting == Idle(settle=0.5)
