"""Further instances on bare metal: what becomes of one with too little memory, and of a search for enough of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest
from calls import NothingLeft
from swapping import SwappingGuest

from tare.model.errors import OutOfMemory, TimedOut, TrialFailed
from tare.model.trial import Mark, Service
from tare.plugins.workload import MeasurementContext
from tare.runner.context import RunContext
from tare.runner.extra_instances import ExtraInstances
from tare.runner.layers import start_stack
from tare.runner.service import start_service
from tare.runner.trial_log import TrialLog
from tare.technologies.native import Native
from tare.workloads.idle import Idle
from tare.workloads.redis import Redis
from tare.workloads.redis_density import RedisDensity
from tare.workloads.redis_memory import RedisMemory
from tare.workloads.startup import Startup

pytestmark = pytest.mark.machine

MIB = 1 << 20
HOG = ("dd", "if=/dev/zero", "of=/dev/null", "count=1", "bs=64M")  # it fills a buffer of one block


@dataclass
class Ground:
    """The trial's own instance, and what starts others beside it."""

    testbed: RunContext
    setup: MeasurementContext
    further: ExtraInstances


@pytest.fixture
def ground(testbed: RunContext, nothing_left: NothingLeft) -> Iterator[Ground]:
    """An instance with a server of Redis and 16 MiB; nothing is left of it and of those beside it."""
    small = replace(testbed, limits=replace(testbed.limits, memory_bytes=16 * MIB))
    with nothing_left(), testbed.cache, ExitStack() as exits:
        notes = TrialLog()
        spec = small.create_spec(Native()).with_workload(Redis())
        (part,) = exits.enter_context(start_stack(small, spec, notes))
        further = ExtraInstances(small, spec, tuple(notes.marks))
        exits.enter_context(start_service(part.instance, Redis())).await_ready(testbed.client)
        yield Ground(
            small,
            MeasurementContext(part.instance, testbed.client, tuple(notes.marks), instance_starter=further),
            further,
        )


def run_in(ground: Ground, *argv: str, limit_bytes: int) -> None:
    with ground.further.start_instance(Startup(), limit_bytes) as another:
        inside = another.setup.instance.inside
        assert inside is not None
        inside.run(*argv, timeout=60)


def test_an_out_of_memory_kill_is_distinguished_from_a_failure(ground: Ground) -> None:
    run_in(ground, *HOG, limit_bytes=128 * MIB)
    with pytest.raises(
        OutOfMemory, match=r"^the machine's kernel killed a process of the instance for lack of memory; dd: "
    ):
        run_in(ground, *HOG, limit_bytes=32 * MIB)
    with pytest.raises(TrialFailed, match=r"^false: exit code 1") as failure:
        run_in(ground, "false", limit_bytes=32 * MIB)
    assert type(failure.value) is TrialFailed


@dataclass(frozen=True)
class Ending(Startup):
    """A workload whose server ends at once."""

    name = "ending"

    def service(self, listen: str) -> Service:  # noqa: ARG002 - it does not come that far
        return Service(("sh", "-c", "echo no room >&2; exit 3"), 16379)


def test_a_server_that_ends_is_not_waited_for(ground: Ground) -> None:
    what = "^sh ended in the instance: it printed 'no room'; sh does not answer$"  # and not: within 30 s
    with pytest.raises(TrialFailed, match=what) as failure, ground.further.start_instance(Ending()):
        pass
    assert not isinstance(failure.value, TimedOut)


@dataclass(frozen=True)
class Quick(RedisMemory):
    """The search in the fewest steps."""

    @property
    def load(self) -> Redis:
        return replace(super().load, duration=0.1)


def test_the_minimum_memory_of_redis_is_found_and_can_be_parsed_again(ground: Ground) -> None:
    ground.further.timeout_seconds = 2.0  # what cannot start is waited for
    workload = Quick(precision=0.5, clients=5, goal=0.1, least=MIB // 2)
    values = workload.parse([raw for raw in workload.measure(ground.setup) if not raw.warm_up])
    (floor,) = (value.value for value in values if value.metric == "floor")
    assert MIB / 2 < floor < 16 * MIB
    assert {value.point for value in values if value.metric == "throughput"} >= {16.0 * MIB, 8.0 * MIB}


def test_several_are_alive_and_their_memory_is_added_up(ground: Ground) -> None:
    alone = ground.further.measure_footprint().memory_bytes
    with ground.further.start_instance(Redis()), ground.further.start_instance(Redis()) as another:
        together = ground.further.measure_footprint().memory_bytes
        assert another.swapped_bytes() == 0
    assert alone
    assert together
    assert alone < together < 3 * alone  # they share the pages of their programs
    assert 0 < ground.further.spare_memory_share() < 1


def test_each_extra_redis_instance_costs_less_memory_than_the_first(ground: Ground) -> None:
    workload = RedisDensity(most=3, requests=100, goal=60.0)
    found = {(value.metric, value.point): value.value for value in workload.parse([*workload.measure(ground.setup)])}
    assert 0 < found["further", None] < found["memory", 1.0] < found["memory", 3.0]
    assert ("instances", None) not in found  # nobody knows how many there could be


def test_an_idle_instance_costs_its_process_memory_and_an_image_folder(ground: Ground) -> None:
    workload = Idle(settle=0.0)
    found = {value.metric: value.value for value in workload.parse([*workload.measure(ground.setup)])}
    assert 0 < found["process_memory"] <= found["memory"] < 16 * MIB
    assert found["image"] > 50 * MIB
    assert "reported" not in found  # the machine's memory is not its own


_FILLS = 'head --bytes=32M /dev/zero | tail --lines=1 >/dev/null; exec "$@"'  # it keeps a line


@dataclass(frozen=True)
class Swapping(Redis):
    """Redis after a program that took more memory than the guest has."""

    def service(self, listen: str) -> Service:
        service = super().service(listen)
        return replace(service, argv=("sh", "-ec", _FILLS, "sh", *service.argv))


@pytest.mark.slow  # an emulated guest
def test_what_a_guest_has_in_swap_is_reported(testbed: RunContext, nothing_left: NothingLeft) -> None:
    load = Swapping(("SET",), (5,), duration=0.1)
    moments = (Mark("requested", 0.0), Mark("ready", 4.0))
    further = ExtraInstances(testbed, testbed.create_spec(SwappingGuest()), moments, timeout_seconds=60.0)
    with nothing_left(), testbed.cache, further.start_instance(load, 80 * MIB) as another:
        assert [*load.measure(another.setup)]
        assert another.swapped_bytes() > 0
