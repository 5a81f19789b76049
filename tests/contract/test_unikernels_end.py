"""A unikernel leaves nothing behind, and one that does not boot is told with its last words."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest
from own_testbed import spec_of

from plug_ins import in_contract
from tare.contracts.workloads import MeasurementContext
from tare.errors import TrialFailed
from tare.guests import unikernel
from tare.guests.unikernel import Unikernel
from tare.hosts.local import LocalHost
from tare.images.micro import UNIKERNELS
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values
from tare.technologies.arceos import Arceos
from tare.technologies.mirage import Mirage
from tare.technologies.solo5_spt import Solo5Spt
from tare.workloads.micro_http import MicroHttp

pytestmark = pytest.mark.machine


BUILT = [found() for found in in_contract() if issubclass(found, Unikernel)]


class _Broken(Exception):
    pass


@pytest.mark.parametrize("technology", BUILT, ids=lambda each: each.name)
def test_nothing_is_left_of_an_instance_whose_block_raises(
    technology: Unikernel, testbed: RunContext, nothing_left: Callable[[], AbstractContextManager[None]]
) -> None:
    UNIKERNELS.built(print)
    with nothing_left(), pytest.raises(_Broken), start_stack(testbed, spec_of(testbed, technology), TrialLog()):
        raise _Broken


@dataclass(frozen=True)
class NotForSpt(Solo5Spt):
    """A unikernel that was linked for something else."""

    file = "micro.virtio"


@dataclass(frozen=True)
class NoKernel(Arceos):
    """A program that is no kernel."""

    file = "solo5-spt"


@pytest.mark.parametrize(
    ("technology", "last"), [(NotForSpt(), "solo5-spt: "), (NoKernel(), "qemu-system-x86_64: ")], ids=["spt", "qemu"]
)
def test_a_unikernel_that_does_not_boot_is_reported_with_its_last_line_and_leaves_nothing(
    technology: Unikernel, last: str, testbed: RunContext, nothing_left: Callable[[], AbstractContextManager[None]]
) -> None:
    UNIKERNELS.built(print)
    what = f"{technology.name}: the unikernel did not boot: its monitor ended"
    with nothing_left(), pytest.raises(TrialFailed, match=what) as error:  # noqa: SIM117 - it is checked after the raise
        with start_stack(testbed, spec_of(testbed, technology), TrialLog()):
            pass
    assert error.value.hint.startswith(f"its last line was: '{last}"), error.value.hint


def test_a_unikernel_that_says_nothing_fails_in_its_time(testbed: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    UNIKERNELS.built(print)
    monkeypatch.setattr(unikernel, "BOOT_SECONDS", 0.05)
    what = "arceos: the unikernel did not boot: it does not serve after 0.05 s"
    with pytest.raises(TrialFailed, match=what), start_stack(testbed, spec_of(testbed, Arceos()), TrialLog()):
        pass


def test_it_is_an_image_of_yours_for_mirage_too(testbed: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = UNIKERNELS.built(print)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    mirage = Mirage(str(folder / "micro.spt"), "micro-http", tender="spt", device="net")
    assert list(mirage.problems(LocalHost())) == []
    workload = MicroHttp(clients=(1,))
    with start_stack(testbed, spec_of(testbed, mirage, port=workload.port), TrialLog()) as (part,):
        assert part.instance.serves == {"micro-http": 18080}
        (value,) = read_values(workload, tuple(workload.measure(MeasurementContext(part.instance, testbed.client, ()))))
    assert value.value > 10
