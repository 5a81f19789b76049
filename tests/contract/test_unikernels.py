"""The contract of a unikernel: it has no inside, so it is looked at through what it serves and what it costs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from marks import slow

from plug_ins import own
from tare.guests.unikernel import Unikernel
from tare.hosts.cgroups import memory_limit_of
from tare.plugins.instance import Instance
from tare.plugins.technology import START_TIMEOUT_SECONDS, Technology
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunContext
from tare.runner.extra_instances import measure_layer_footprint
from tare.runner.layers import PROBE, StartedLayers
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values
from tare.technologies.arceos import Arceos
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.micro_http import MicroHttp
from tare.workloads.micro_redis import MicroRedis
from tare.workloads.nginx import Nginx
from tare.workloads.startup import Startup

pytestmark = pytest.mark.machine

MEMORY_BYTES = 512 << 20  # what conftest's instances are given
ALL: list[type[Unikernel]] = [
    found
    for found in own("technologies").values()
    if issubclass(found, Unikernel) and found.tests_path == Unikernel.tests_path
]
SMALL = (MicroHttp(clients=(1, 50)), MicroRedis(clients=(1, 50), duration=0.2))


@pytest.fixture(scope="module", params=slow(ALL, [Arceos]), ids=lambda each: each.name)
def technology(
    request: pytest.FixtureRequest, testbed: RunContext, usable: Callable[[Technology], Technology]
) -> Technology:
    found = usable(request.param())
    found.prepare_image(testbed.host, testbed.images.main)
    return found


def test_it_reports_the_version_of_its_system(technology: Technology, testbed: RunContext) -> None:
    expected = "0.3.0-preview.1" if technology.name == "arceos" else "0.7.2"
    assert technology.version(testbed.host) == expected


def test_it_has_no_inside_and_says_what_it_serves(instance: Instance, testbed: RunContext) -> None:
    assert instance.inside is None
    assert instance.address == testbed.network.instance_address
    assert instance.network_path == "tap"
    assert instance.served_ports == {"micro-http": 18080, "micro-redis": 16379}


def test_it_answers_the_client_as_an_init_does(instance: Instance, testbed: RunContext) -> None:
    said = testbed.client.run(PROBE, instance.address or "", "17007", "60", timeout=120).text.split()
    assert said[1] == "tare"
    assert int(said[2]) > 0


@pytest.mark.parametrize("workload", SMALL, ids=lambda each: each.name)
def test_it_serves_the_load_of_its_workloads(instance: Instance, testbed: RunContext, workload: Workload) -> None:
    values = read_values(workload, tuple(workload.measure(MeasurementContext(instance, testbed.client, ()))))
    assert {value.point for value in values} == {1.0, 50.0}
    assert all(value.value > 10 for value in values)


def test_its_start_has_its_moments_in_their_order(technology: Technology, instance: Instance, notes: TrialLog) -> None:
    del instance  # only started
    moments = {mark.name: mark.seconds for mark in notes.marks}
    # A firmware comes before its own first line only in QEMU, and its clock is the machine's only in spt.
    between = {"solo5-spt": ["userspace"], "solo5-hvt": []}.get(technology.name, ["kernel"])
    names = ["requested", "started", *between, "ready"]
    assert sorted(moments) == sorted(names)
    assert [moments[name] for name in names] == sorted(moments.values())
    assert 0 < moments["ready"] - moments["requested"] < START_TIMEOUT_SECONDS


def test_the_machine_holds_it_to_its_limits(technology: Technology, instance: Instance, testbed: RunContext) -> None:
    pid, *others = instance.processes()
    # KVM puts threads of the kernel's into the group of who made the guest.
    assert [each for each in others if testbed.host.read(f"/proc/{each}/cmdline")] == []
    monitor_bytes = 2 << 30 if technology.name in ("solo5-virtio", "arceos") else 0
    assert memory_limit_of(testbed.host, pid) == MEMORY_BYTES + monitor_bytes
    threads = [line.split() for line in testbed.host.read_matching(f"/proc/{pid}/task", "status").splitlines()]
    allowed = {words[1] for words in threads if words[0] == "Cpus_allowed_list:"}
    assert allowed == {",".join(map(str, testbed.limits.cpus))}


def test_it_costs_the_memory_that_it_has_touched_and_no_disk(technology: Technology, parts: StartedLayers) -> None:
    found = measure_layer_footprint(parts[0])
    assert found.memory_bytes is not None
    most = (32 << 20) if technology.name == "solo5-spt" else MEMORY_BYTES
    assert 100_000 < found.memory_bytes < most
    assert (found.processes, found.disk_bytes) == (1, 0)


def test_it_says_what_it_is(technology: Technology, instance: Instance) -> None:
    assert isinstance(technology, Unikernel)
    file = technology.build.folder / technology.file
    assert instance.proof["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    emulated = technology.name in ("solo5-virtio", "arceos")
    assert instance.proof.get("accelerator") == ("tcg" if emulated else None)
    assert instance.proof.get("tender") == (None if emulated else f"{technology.name} 0.7.2")
    assert [caution.kind for caution in instance.cautions] == ["emulated"] * emulated


@pytest.mark.parametrize("technology", ALL, ids=lambda each: each.name)
def test_it_refuses_what_it_cannot_serve(technology: type[Unikernel]) -> None:
    words = "a unikernel has no shell: this one only serves micro-http and micro-redis"
    assert [technology().unsupported_reason(workload) for workload in (Dhrystone(), Nginx())] == [words, words]
    assert [technology().unsupported_reason(workload) for workload in (Startup(), MicroHttp(), MicroRedis())] == [
        None
    ] * 3
