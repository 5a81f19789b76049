"""A unikernel leaves nothing behind, and one that does not boot is told with its last words."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from calls import NothingLeft
from fakes import planned_of
from marks import slow
from own_testbed import spec_of
from whole_runs import assert_in_turns

from plug_ins import in_contract
from tare.guests import unikernel
from tare.guests.unikernel import Unikernel
from tare.hosts.local import LocalHost
from tare.images.micro import SOLO5
from tare.model.errors import TrialFailed
from tare.plugins.workload import MeasurementContext
from tare.runner.block import BlockRunner
from tare.runner.context import RunContext
from tare.runner.events import ignore_event
from tare.runner.layers import start_stack
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values
from tare.suites.plan import Block, PlannedTrial
from tare.technologies.arceos import Arceos
from tare.technologies.mirage import Mirage
from tare.technologies.native import Native
from tare.technologies.solo5_spt import Solo5Spt
from tare.technologies.solo5_virtio import Solo5Virtio
from tare.workloads.micro_http import MicroHttp
from tare.workloads.micro_redis import MicroRedis

pytestmark = pytest.mark.machine


BUILT = [found() for found in in_contract() if issubclass(found, Unikernel)]


class _Broken(Exception):
    pass


@pytest.mark.parametrize("technology", slow(BUILT, [Arceos()]), ids=lambda each: each.name)
def test_nothing_is_left_of_an_instance_whose_block_raises(
    technology: Unikernel, testbed: RunContext, nothing_left: NothingLeft
) -> None:
    technology.build.ensure_built(print)
    with nothing_left(), pytest.raises(_Broken), start_stack(testbed, spec_of(testbed, technology), TrialLog()):
        raise _Broken


@dataclass(frozen=True)
class NotForSpt(Solo5Spt):
    """A unikernel that was linked for something else."""

    file = "micro.virtio"


@dataclass(frozen=True)
class NoKernel(Solo5Virtio):
    """A program that is no kernel."""

    file = "solo5-spt"


@pytest.mark.parametrize(
    ("technology", "last"), [(NotForSpt(), "solo5-spt: "), (NoKernel(), "qemu-system-x86_64: ")], ids=["spt", "qemu"]
)
def test_a_failed_unikernel_boot_shows_its_last_line_and_leaves_nothing(
    technology: Unikernel, last: str, testbed: RunContext, nothing_left: NothingLeft
) -> None:
    SOLO5.ensure_built(print)
    what = f"{technology.name}: the unikernel did not boot: its monitor ended"
    with nothing_left(), pytest.raises(TrialFailed, match=what) as error:  # noqa: SIM117 - it is checked after the raise
        with start_stack(testbed, spec_of(testbed, technology), TrialLog()):
            pass
    assert error.value.hint.startswith(f"its last line was: '{last}"), error.value.hint


def test_a_unikernel_that_says_nothing_fails_in_its_time(testbed: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    SOLO5.ensure_built(print)
    monkeypatch.setattr(unikernel, "BOOT_SECONDS", 0.05)
    what = "solo5-virtio: the unikernel did not boot: it does not serve after 0.05 s"
    with pytest.raises(TrialFailed, match=what), start_stack(testbed, spec_of(testbed, Solo5Virtio()), TrialLog()):
        pass


def test_it_is_an_image_of_yours_for_mirage_too(testbed: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SOLO5.ensure_built(print)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    mirage = Mirage(str(folder / "micro.spt"), "micro-http", tender="spt", device="net")
    assert list(mirage.problems(LocalHost())) == []
    workload = MicroHttp(clients=(1,))
    with start_stack(testbed, spec_of(testbed, mirage, port=workload.port), TrialLog()) as (part,):
        assert part.instance.served_ports == {"micro-http": 18080}
        (value,) = read_values(workload, tuple(workload.measure(MeasurementContext(part.instance, testbed.client, ()))))
    assert value.value > 10


# --- A unikernel, which has no inside, takes turns beside stacks that have one ---------------------------------------


WORKLOAD = MicroRedis(("GET",), (5,), duration=0.2)


def test_it_has_its_turns_side_by_side_with_the_others(testbed: RunContext, nothing_left: NothingLeft) -> None:
    SOLO5.ensure_built(print)
    stacks = {"native": (Native(),), "solo5-spt": (Solo5Spt(),), "native-again": (Native(),)}
    steps = tuple(PlannedTrial(name, WORKLOAD.name, name, 0, order) for order, name in enumerate(stacks))
    rounds = BlockRunner(testbed, stacks, ("native", "native-again"), seed=1)
    with nothing_left():
        planned = planned_of(WORKLOAD)
        trials = [trial for trial, _ in rounds.run(Block(WORKLOAD.name, 0, steps), planned, ignore_event)]
    assert [(trial.stack, trial.status, trial.reason) for trial in trials] == [(name, "ok", "") for name in stacks]
    assert_in_turns(trials)
