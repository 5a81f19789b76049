"""Bounds: limits of one workload, and settings that are lowered to fit them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tare.model.trial import LimitsSpec, LoweredSetting
from tare.plugins.workload import Workload
from tare.suites.suite import PlannedWorkload, parse_suite
from tare.suites.tables import apply_limits
from tare.workloads.bonnie import Bonnie
from tare.workloads.context_switch import ContextSwitch
from tare.workloads.dbench import Dbench
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.fio import Fio
from tare.workloads.kernel_build import KernelBuild
from tare.workloads.nginx import Nginx
from tare.workloads.ramspeed import Ramspeed
from tare.workloads.redis import Redis
from tare.workloads.startup import Startup
from tare.workloads.sysbench import Sysbench
from tare.workloads.sysbench_memory import SysbenchMemory

SUITE = '[suite]\nstacks = ["native"]\n'
ROOMY = LimitsSpec()
MEBIBYTE = 1024**2


def read(text: str) -> tuple[PlannedWorkload, ...]:
    return parse_suite(SUITE + text, "mine.toml").workloads


def lowered(workload: Workload, limits: LimitsSpec) -> dict[str, Any]:
    """Return the settings that were lowered, which are those that it says."""
    fitting, said = apply_limits(workload, limits)
    changed = {name: setting for name, setting in vars(fitting).items() if setting != vars(workload)[name]}
    assert {each.setting for each in said} == changed.keys()
    return changed


def test_a_workload_has_the_limits_of_the_suite_but_for_its_own() -> None:
    limits = '[limits]\ncpus = 4\nmemory = "1GiB"\nopen_files = 512\ntime = "1m"\n'
    plain, narrow = read(
        f'{limits}[[workloads]]\nuse = "startup"\n[[workloads]]\nuse = "dhrystone"\n'
        '[workloads.limits]\ncpus = 1\nmemory = "64MiB"\ntime = "5s"\n'
    )
    assert plain.limits == LimitsSpec(4, 1 << 30, 512, 60.0)
    assert narrow.limits == LimitsSpec(1, 64 << 20, 512, 5.0)
    assert (plain.lowered, narrow.lowered) == ((), ())


def test_without_any_limit_there_is_no_time_bound_and_nothing_is_lowered() -> None:
    (planned,) = read('[[workloads]]\nuse = "dhrystone"\nduration = "1h"\n')
    assert planned.limits == LimitsSpec()
    assert (planned.workload, planned.lowered) == (Dhrystone(duration=3600.0), ())


def test_a_setting_that_memory_and_one_that_time_has_lowered_are_both_said() -> None:
    _, lowered = apply_limits(Ramspeed(passes=5), LimitsSpec(cpus=2, memory_bytes=16 * MEBIBYTE, seconds=1.5))
    assert [(each.setting, each.bound) for each in lowered] == [
        ("mark_sizes", "an instance has 2 CPUs and 16 MiB of memory"),
        ("array_bytes", "an instance has 2 CPUs and 16 MiB of memory"),
        ("passes", "a trial may measure for 1.5 s"),
    ]


def test_a_lowered_setting_is_kept_beside_the_one_that_was_asked_for() -> None:
    (planned,) = read('[[workloads]]\nuse = "dhrystone"\nduration = "2s"\n[workloads.limits]\ntime = "500ms"\n')
    assert planned.workload == Dhrystone(duration=0.2)
    assert planned.lowered == (LoweredSetting("duration", '"2s"', '"0.2s"', "a trial may measure for 500 ms"),)
    assert planned.workload.estimate_seconds() <= 0.5


@pytest.mark.parametrize(("workload", "seconds", "settings"), [
    (Dhrystone(), 2.0, {}),
    (Dhrystone(passes=2_147_483_627), 55.1000001, {"passes": 330_000_000}),
    (Redis(clients=(1, 50), load="redis-benchmark"), 3.32, {"duration": 0.4}),
    (Redis(clients=(1, 50)), 3.32, {"duration": 0.32}),
    (Nginx(load="wrk"), 2.0, {"duration": 0.31}),
    (Ramspeed(passes=5), 1.5, {"passes": 1}),
    (Ramspeed(), 1.5, {"duration": 0.06}),
    (KernelBuild(builds=12), 60 + 2 * 1200.0, {"builds": 2}),
    (ContextSwitch(), 1.0, {"repetitions": 5}),
    (Dbench(duration=30.0), 100.0, {"duration": 6.0}),  # it takes whole seconds, and no fewer than 5
    (Bonnie(runs=50), 60.0, {"runs": 2}),
    (Startup(), 0.001, {}),
])  # fmt: skip
def test_the_setting_that_takes_time_is_lowered_to_the_most_that_fits(
    workload: Workload, seconds: float, settings: dict[str, Any]
) -> None:
    assert lowered(workload, replace(ROOMY, seconds=seconds)) == settings
    assert apply_limits(workload, replace(ROOMY, seconds=seconds))[0].estimate_seconds() <= seconds
    if settings:
        ((name, value),) = settings.items()
        more: Any = workload
        assert (
            replace(more, **{name: value * 1.2 if isinstance(value, float) else value + 1}).estimate_seconds() > seconds
        )


@pytest.mark.parametrize(("workload", "seconds"), [
    (Dhrystone(), 0.1),
    (Dbench(), 10.0),
    (Bonnie(), 1.0),
    (Ramspeed(), 0.01),
])  # fmt: skip
def test_what_cannot_be_lowered_so_far_is_refused(workload: Workload, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"takes about .* at the least, and may take "):
        apply_limits(workload, replace(ROOMY, seconds=seconds))


def test_the_arrays_of_ramspeed_fit_into_the_memory_in_whole_steps() -> None:
    fitting, (other, said) = apply_limits(Ramspeed(), LimitsSpec(memory_bytes=100 * MEBIBYTE + 1000))
    assert isinstance(fitting, Ramspeed)
    assert (said.asked, said.bound) == ('"32MiB"', "an instance has 1 CPU and 100 MiB of memory")
    assert fitting.array_bytes % 128 == 0
    assert 3 * fitting.array_bytes <= 27 * MEBIBYTE + 750 < 3 * (fitting.array_bytes + 128)
    assert (other.asked, other.used) == ('["4KiB", "256KiB", "8MiB", "32MiB"]', '["4KiB", "256KiB", "8MiB"]')
    assert lowered(Ramspeed(), LimitsSpec(memory_bytes=192 * MEBIBYTE)) == {}
    small, _ = apply_limits(Ramspeed(), LimitsSpec(memory_bytes=16 * MEBIBYTE))
    assert isinstance(small, Ramspeed)
    assert (small.array_bytes, small.mark_sizes) == (699_008, (4096, 256 * 1024))


def test_the_block_of_sysbench_is_halved_until_those_of_all_threads_fit() -> None:
    large = SysbenchMemory(block_size=1 << 30)
    assert lowered(large, LimitsSpec(memory_bytes=512 * MEBIBYTE)) == {"block_size": 256 * MEBIBYTE}
    roomy = LimitsSpec(cpus=4, memory_bytes=2048 * MEBIBYTE)
    assert lowered(replace(large, threads=4), roomy) == {}
    each = replace(large, threads=4, scope="local")
    assert lowered(each, roomy) == {"block_size": 256 * MEBIBYTE}
    assert lowered(each, replace(roomy, cpus=1)) == {"threads": 1}


@pytest.mark.parametrize("workload", [Sysbench(threads=8), SysbenchMemory(threads=8)])
def test_sysbench_has_no_more_threads_than_the_instance_has_cpus(workload: Workload) -> None:
    assert lowered(workload, LimitsSpec(cpus=8)) == {}
    assert lowered(workload, LimitsSpec(cpus=2)) == {"threads": 2}
    (said,) = apply_limits(workload, LimitsSpec(cpus=2))[1]
    assert (said.asked, said.used, said.bound) == ("8", "2", "an instance has 2 CPUs and 512 MiB of memory")


def test_the_depth_of_fio_is_lowered_until_blocks_in_flight_fit_in_memory() -> None:
    deep = Fio(engine="libaio", depth=1024, block=MEBIBYTE, jobs=2)
    assert lowered(deep, LimitsSpec(memory_bytes=4096 * MEBIBYTE)) == {}
    assert lowered(deep, LimitsSpec(memory_bytes=512 * MEBIBYTE)) == {"depth": 168}
    assert lowered(Fio(jobs=64, block=16 * MEBIBYTE), LimitsSpec()) == {}


def test_as_much_memory_as_the_file_of_bonnie_is_made_for_is_no_fault() -> None:
    bonnie = '[[workloads]]\nuse = "bonnie"\n'
    (enough,) = read(f'[limits]\nmemory = "1GiB"\n{bonnie}memory = "1GiB"\n')
    assert (enough.workload, enough.lowered) == (Bonnie(memory=1024 * MEBIBYTE), ())
