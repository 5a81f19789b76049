"""The life of an instance in every technology: a burst of starts, a command by the engine's own tool, and a stop."""

from __future__ import annotations

import json

import pytest
from contract_stacks import LATE, ONE_EACH
from marks import slow
from own_testbed import spec_of

from tare.model.trial import Mark
from tare.plugins.instance import Instance, OuterHost
from tare.plugins.technology import Technology
from tare.plugins.workload import MeasurementContext
from tare.runner.context import RunContext
from tare.runner.extra_instances import ExtraInstances
from tare.workloads.exec import Exec

each_technology = pytest.mark.parametrize("technology", slow(ONE_EACH, LATE), indirect=True)
pytestmark = [pytest.mark.machine, each_technology]

SLOW_START = (Mark("requested", 0.0), Mark("ready", 60.0))  # an emulated guest among others


@pytest.fixture
def starter(technology: Technology, testbed: RunContext, instance: Instance) -> ExtraInstances:  # noqa: ARG001
    """Starts instances next to a first one, as in a trial, which has made what all instances share."""
    if technology.has_fixed_address:
        pytest.skip("its instances share one address")
    return ExtraInstances(testbed, spec_of(testbed, technology), SLOW_START)


def test_instances_that_are_requested_together_all_start(starter: ExtraInstances) -> None:
    burst = starter.start_burst(3, 0.0)
    assert [start.reason for start in burst.starts] == ["", "", ""]
    assert burst.cpu_seconds > 0


def test_a_stop_leaves_no_process_and_no_mount(starter: ExtraInstances) -> None:
    assert starter.measure_stop() > 0


def test_a_command_runs_inside_by_the_engines_own_tool(
    technology: Technology, testbed: RunContext, instance: Instance
) -> None:
    outer = OuterHost(
        testbed.host,
        str(testbed.images.main.root / "usr/lib/tare"),
        str(testbed.instances_folder / instance.name),
    )
    workload = Exec("test -e /etc/hosts", commands=1)
    first, *_ = workload.measure(MeasurementContext(instance, testbed.client, (), outer=outer))
    assert 0 < json.loads(first.text)[0] < float("inf"), technology.name
