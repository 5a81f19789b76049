"""Kata by containerd: a shim of Kata's name (tests/lab/shims) is what the real containerd finds and starts.

It runs the container by runc, and a process apart from it that stands for the monitor of Kata's machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest
from waiting import ENOUGH_SECONDS

from tare.hosts.cgroups import parse_layout
from tare.hosts.host import Host
from tare.model.trial import LimitsCheck
from tare.plugins.instance import Instance
from tare.plugins.technology import Technology
from tare.runner.context import RunContext
from tare.runner.layers import StartedLayers
from tare.runner.sanity_checks import limit_cautions, read_observed_limits
from tare.technologies.containerd.technology import Containerd

pytestmark = pytest.mark.machine

RUNTIME = "io.containerd.kata.v2"


@pytest.fixture(scope="module")
def technology(usable: Callable[[Technology], Technology]) -> Technology:
    return usable(Containerd(runtime=RUNTIME))


@pytest.fixture(scope="module")
def monitor(instance: Instance, testbed: RunContext) -> int:
    """The process that stands for the monitor of the machine."""
    [pid] = [pid for pid in instance.processes() if f"sandbox-{instance.name}" in words(testbed.host, pid)]
    return pid


def words(host: Host, pid: int) -> Sequence[str]:
    return host.read(f"/proc/{pid}/cmdline").split("\0")


def status(host: Host, pid: int, name: str) -> str:
    lines = host.read(f"/proc/{pid}/status").splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


# The first test: the others share an instance, which has this one's network.
def test_the_machine_ends_with_its_container(
    start: Callable[[], AbstractContextManager[Instance]], testbed: RunContext
) -> None:
    with start() as instance:
        name, pids = f"sandbox-{instance.name}", instance.processes()
        assert any(name in words(testbed.host, pid) for pid in pids)
    deadline = time.monotonic() + ENOUGH_SECONDS
    while left := [pid for pid in pids if name in words(testbed.host, pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_the_shim_is_found_by_runtime_name_and_the_proof_has_its_version(instance: Instance) -> None:
    assert instance.proof["runtime"] == f"{RUNTIME} 0.0.0"
    assert instance.inside is not None
    assert instance.inside.run("echo", "here", timeout=ENOUGH_SECONDS).text == "here\n"


def test_the_machine_gets_the_size_of_the_limits_beside_its_own(monitor: int, testbed: RunContext) -> None:
    asked = words(testbed.host, monitor)
    assert asked[asked.index("-smp") + 1] == "2"
    assert asked[asked.index("-m") + 1] == "2560M"


def test_the_monitor_counts_although_it_is_outside_process_tree_and_cgroup(
    monitor: int, instance: Instance, testbed: RunContext
) -> None:
    assert int(status(testbed.host, monitor, "PPid")) not in instance.processes()
    assert instance.name not in testbed.host.read(f"/proc/{monitor}/cgroup")


def test_what_runs_outside_of_the_group_is_pinned_too(instance: Instance, testbed: RunContext) -> None:
    pinned = ",".join(map(str, testbed.limits.cpus))
    pids = instance.processes()
    found = {status(testbed.host, pid, "Cpus_allowed_list") for pid in pids}
    assert found == {pinned}
    assert len(pids) >= 3  # the container's, the shim and the monitor


def test_the_cgroup_has_room_for_the_vm_and_the_container_is_limited_too(
    parts: StartedLayers, instance: Instance, testbed: RunContext
) -> None:
    limits = LimitsCheck(testbed.limits, read_observed_limits(parts[0]))
    assert limit_cautions(limits) == ()
    group = f"{parse_layout(testbed.host.read('/proc/self/mounts')).mounts['memory']}/{instance.name}"
    texts = (testbed.host.read(f"{group}/{name}") for name in ("memory.max", "memory.limit_in_bytes"))
    assert int("".join(texts)) == testbed.limits.memory_bytes + (4 << 30)


def test_a_kernel_that_is_the_machines_is_no_proof_of_kata(instance: Instance) -> None:
    assert [caution.kind for caution in instance.cautions] == ["never-run", "shared-kernel"]
