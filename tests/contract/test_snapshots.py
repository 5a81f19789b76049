"""Snapshots of every technology that has them: the restored server has all data, and nothing is left."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Literal

import pytest
from calls import NothingLeft
from contract_stacks import ONE_EACH
from marks import slow
from own_testbed import spec_of
from todays import TODAYS

from tare.hosts.exec import ExecHost
from tare.model.errors import TrialFailed, Unavailable
from tare.plugins import registry
from tare.plugins.snapshots import Snapshots
from tare.plugins.technology import Technology
from tare.plugins.workload import ExtraInstance, MeasurementContext
from tare.runner.context import RunContext
from tare.runner.extra_instances import ExtraInstances
from tare.runner.layers import start_stack
from tare.runner.sanity_checks import reject_unsupported
from tare.runner.trial_log import TrialLog
from tare.workloads.restore import Restore

pytestmark = pytest.mark.machine

RESTORED = [
    stack
    for stack in (*ONE_EACH, *TODAYS)
    if issubclass(registry.find("technologies", stack.partition(":")[0]), Snapshots)
]
each_restored = pytest.mark.parametrize("technology", slow(RESTORED, {*TODAYS, "qemu-tcg"}), indirect=True)
CHANGED, TEXT = "/srv/tare-changed", "by the first instance"


@pytest.fixture
def setup(testbed: RunContext, technology: Technology) -> MeasurementContext:
    """What the workload gets to measure with; it starts its instances itself."""
    assert isinstance(technology, Snapshots)
    if problems := technology.snapshot_problems(testbed.host):
        pytest.skip(f"{technology.name}: {problems[0].what}")
    log = TrialLog()
    with start_stack(testbed, spec_of(testbed, technology), log) as (part,):
        instance = part.instance
    starter = ExtraInstances(testbed, spec_of(testbed, technology), tuple(log.marks))
    return MeasurementContext(instance, testbed.client, tuple(log.marks), instance_starter=starter)


@pytest.mark.parametrize("stack", [stack for stack in ONE_EACH if stack not in RESTORED])
def test_a_technology_without_snapshots_refuses_the_workload(stack: str) -> None:
    with pytest.raises(Unavailable, match="it has no snapshots that tare can take"):
        reject_unsupported([registry.find("technologies", stack.partition(":")[0])()], Restore())


@each_restored
@pytest.mark.parametrize("server", slow(["redis", "python"], {"python"}))
def test_a_restored_server_has_all_data_and_nothing_is_left(
    setup: MeasurementContext, server: Literal["redis", "python"], nothing_left: NothingLeft
) -> None:
    workload = Restore(server=server, data=4 << 20, restores=2)
    with nothing_left():
        values = {each.metric: each.value for each in workload.parse([*workload.measure(setup)])}
    assert values.keys() == {metric.name for metric in workload.metrics}
    assert values["snapshot"] > (4 << 20 if server == "redis" else 1 << 20)


@each_restored
def test_a_snapshot_has_the_changed_files_and_fits_to_its_version_only(
    setup: MeasurementContext, nothing_left: NothingLeft, monkeypatch: pytest.MonkeyPatch
) -> None:
    starter = setup.instance_starter
    assert isinstance(starter, ExtraInstances)

    def change(source: ExtraInstance) -> None:
        inside = source.setup.instance.inside
        assert isinstance(inside, ExecHost)
        inside.write(CHANGED, TEXT)
        inside.run("sync", timeout=60)

    with nothing_left(), ExitStack() as exits:
        snapshot = exits.enter_context(starter.take_snapshot(Restore(), change))
        with snapshot.restore() as restored:
            assert restored.setup.instance.address == snapshot.address
            assert (pids := restored.setup.instance.processes())
            if starter.spec.shares_kernel and starter.spec.technology.family == "container":  # it shows its files
                assert TEXT in {starter.context.host.read(f"/proc/{pid}/root{CHANGED}") for pid in pids}
        monkeypatch.setattr(type(starter.spec.technology), "version", lambda *_: "0.1")
        with pytest.raises(TrialFailed, match=r"is of version .*, which 0\.1 cannot restore"), snapshot.restore():
            pass
