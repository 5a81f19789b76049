from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
from setups import Client, OneByOne, sample

from tare.hosts.local import LocalHost
from tare.loads.density import Density
from tare.model.errors import OutOfMemory, TimedOut, TrialFailed, Unreachable, Unschedulable
from tare.model.trial import Footprint, LimitsSpec, RawOutput, Value
from tare.plugins.instance import Instance
from tare.plugins.workload import ExtraInstance, MeasurementContext, Workload
from tare.suites.tables import apply_limits
from tare.workloads.redis_density import RedisDensity
from tare.workloads.startup import Startup

MIB = 1 << 20
Latency = Callable[[int, int], float]  # of the n-th instance among so many; it may raise what such an instance raises


def instance(number: int) -> Instance:
    return Instance("tare-x", None, None, "none", processes=tuple, proof={"number": str(number)})


@dataclass
class Room(OneByOne):
    """A machine with room for instances: the first costs 100 MiB, each further one 10 MiB."""

    spare: Callable[[int], float] = lambda _: 0.9
    start: Callable[[int], None] = lambda _: None
    alive: int = 1
    most_alive: int = 1
    cost_bytes: Callable[[int], int | None] = lambda alive: (90 + 10 * alive) * MIB

    @property
    def memory_limit_bytes(self) -> int:
        return 512 * MIB

    @contextmanager
    def start_instance(self, workload: Workload, limit_bytes: int | None = None) -> Iterator[ExtraInstance]:
        assert isinstance(workload, Startup)
        assert limit_bytes is None  # that of the suite
        self.start(self.alive + 1)
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        try:
            yield ExtraInstance(MeasurementContext(instance(self.alive), LocalHost(), ()), lambda: 0)
        finally:
            self.alive -= 1

    def measure_footprint(self) -> Footprint:
        return Footprint(self.cost_bytes(self.alive), None, None, self.alive)

    def spare_memory_share(self) -> float:
        return self.spare(self.alive)


@dataclass(frozen=True)
class Counted(Density):
    name = "counted"
    title = "counted"

    latency: Latency = lambda number, among: 0.001  # noqa: ARG005 - quick
    room: Room = field(default_factory=Room)

    @property
    def load(self) -> Startup:
        return Startup()

    def run_requests(self, setup: MeasurementContext, label: str) -> RawOutput:
        number = int(setup.instance.proof["number"])
        return RawOutput(label, ("ask",), f"{self.latency(number, self.room.alive)}\n", 0.1)

    def read_slow_seconds(self, text: str) -> float:
        if not text.strip():
            raise TrialFailed("no latency")
        return float(text)


def measured(workload: Counted) -> tuple[RawOutput, ...]:
    raw = tuple(workload.measure(MeasurementContext(instance(1), LocalHost(), (), instance_starter=workload.room)))
    assert workload.room.alive == 1  # nothing is left
    return raw


def values(workload: Counted, raw: Sequence[RawOutput] | None = None) -> dict[tuple[str, float | None], float]:
    return {(each.metric, each.point): each.value for each in workload.parse(raw or measured(workload))}


def ended(workload: Counted) -> tuple[float | None, str]:
    """How many instances there were, and what ended it."""
    raw = measured(workload)
    return values(workload, raw).get(("instances", None)), raw[-1].label


def failing(at: int, error: TrialFailed) -> Callable[[int], None]:
    def start(number: int) -> None:
        if number == at:
            raise error

    return start


def late_from(at: int) -> Latency:
    return lambda _, among: 0.001 if among < at else 0.5


def test_each_further_instance_costs_what_all_cost_beyond_the_first() -> None:
    found = values(Counted(most=5))
    assert found["further", None] == 10 * MIB
    assert [found["memory", float(count)] for count in range(1, 6)] == [
        each * MIB for each in (100, 110, 120, 130, 140)
    ]


def test_how_many_fit_is_not_known_where_the_most_that_were_asked_for_did() -> None:
    workload = Counted(most=3)
    assert ended(workload) == (None, "end: most")
    assert workload.room.most_alive == 3


def test_the_first_that_misses_the_goal_ends_it_and_does_not_count() -> None:
    assert ended(Counted(latency=late_from(5))) == (4, "end: slow")


def test_it_is_enough_that_one_of_them_misses_the_goal() -> None:
    assert ended(Counted(latency=lambda number, among: 0.5 if (number, among) == (2, 4) else 0.001)) == (3, "end: slow")


def test_an_instance_that_is_slow_by_chance_is_asked_again() -> None:
    slow = [0.5, 0.5]
    workload = Counted(most=4, latency=lambda number, _: slow.pop() if number == 3 and slow else 0.001)
    assert ended(workload) == (None, "end: most")
    assert slow == []


def test_the_latency_is_that_of_the_slowest_at_its_best() -> None:
    tries = iter([0.9, 0.004])
    workload = Counted(most=3, latency=lambda number, among: next(tries) if (number, among) == (2, 2) else 0.001)
    found = values(workload)
    assert [found["slowest", float(count)] for count in (1, 2, 3)] == [0.001, 0.004, 0.001]


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (OutOfMemory("killed"), "end: out of memory"),
        (TimedOut("no answer in 11 s"), "end: late"),
        (Unschedulable("1 Insufficient cpu"), "end: no room"),
    ],
)
def test_an_instance_without_memory_room_or_time_to_start_ends_the_search(error: TrialFailed, end: str) -> None:
    workload = Counted(room=Room(start=failing(4, error)))
    assert ended(workload) == (3, end)
    assert measured(workload)[-1].text == f"{error}\n"


def test_one_that_is_ended_while_others_are_asked_ends_it() -> None:
    def latency(number: int, among: int) -> float:
        if (number, among) == (2, 4):
            raise OutOfMemory("killed")
        return 0.001

    assert ended(Counted(latency=latency)) == (3, "end: out of memory")


def test_memory_of_the_machine_is_spared() -> None:
    workload = Counted(spare=0.25, room=Room(spare=lambda alive: 1 - 0.1 * alive))
    assert ended(workload) == (8, "end: no memory to spare")


@pytest.mark.parametrize("error", [TrialFailed("the address is taken"), Unreachable("the connection was lost")])
def test_an_instance_that_fails_otherwise_says_nothing_of_how_many_fit(error: TrialFailed) -> None:
    with pytest.raises(type(error), match=str(error)):
        measured(Counted(room=Room(start=failing(2, error))))


def test_a_goal_that_a_single_instance_misses_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="a single instance misses the goal already"):
        values(Counted(latency=late_from(1)))


def test_memory_that_the_host_does_not_report_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="does not report the memory"):
        measured(Counted(room=Room(cost_bytes=lambda _: None)))


def test_one_instance_reports_no_further_one() -> None:
    assert ("further", None) not in values(Counted(room=Room(spare=lambda _: 0.0)))


def test_it_needs_further_instances() -> None:
    with pytest.raises(TrialFailed, match="starts extra instances"):
        next(Counted().measure(MeasurementContext(instance(1), LocalHost(), ())))


# --- hostile outputs

GOOD = measured(Counted(most=3))
SLOW = measured(Counted(latency=late_from(3)))


def texts(label: str, text: str) -> tuple[RawOutput, ...]:
    return tuple(replace(each, text=text) if each.label == label else each for each in GOOD)


@pytest.mark.parametrize(
    "raw",
    [
        (),
        GOOD[:-1],
        GOOD[1:],
        GOOD[:2] + GOOD[-1:],  # fewer than were asked for
        GOOD[:-2] + GOOD[-1:],  # what the last ones cost is missing
        (*GOOD[:2], *GOOD[5:], *GOOD[2:5]),
        tuple(reversed(GOOD)),
        (*GOOD[:-1], replace(GOOD[-1], label="end: slow")),
        (*GOOD[:-1], replace(GOOD[-1], label="end: happy")),
        (*GOOD[:-2], replace(GOOD[-1], label="end: no room")),  # it comes before the next one is asked
        (*SLOW[:-1], replace(SLOW[-1], label="end: no memory to spare")),
        (*SLOW[:-1], GOOD[-1]),
        GOOD[-1:],
        texts("instance 2 of 2", ""),
        texts("memory of 2", ""),
        texts("memory of 2", "0\n"),
        texts("memory of 2", "-1\n"),
        texts("memory of 2", "nan\n"),
        texts("memory of 2", "٣\n"),
        texts("memory of 2", f"{'9' * 400}\n"),
        texts("memory of 2", f"{'9' * 5000}\n"),
        (*GOOD[:1], replace(GOOD[1], label="else"), *GOOD[1:]),
    ],
)
def test_outputs_that_are_not_one_complete_measurement_fail_the_trial(raw: tuple[RawOutput, ...]) -> None:
    with pytest.raises(TrialFailed):
        Counted(most=3).parse(raw)


def test_outputs_of_other_settings_fail_the_trial() -> None:
    for workload in (Counted(most=4), Counted(most=3, goal=0.0001)):
        with pytest.raises(TrialFailed):
            workload.parse(GOOD)
    assert Value("instances", None, 2) in Counted(most=3).parse(SLOW)


# --- latency under density, by redis-benchmark


def test_an_instance_is_asked_over_one_connection_for_a_moment() -> None:
    client = Client(lambda _: sample("redis/set-1.csv"))
    instance = Instance("tare-x", None, "198.18.0.2", "bridge", processes=tuple, served_ports={"redis": 7})
    raw = RedisDensity(requests=700).run_requests(MeasurementContext(instance, client, ()), "instance 1 of 1")
    assert raw.label == "instance 1 of 1"
    assert " ".join(client.calls[0]) == "redis-benchmark -h 198.18.0.2 -p 7 -t set -n 700 -c 1 -P 1 -k 1 --csv"
    assert RedisDensity().read_slow_seconds(raw.text) == 0.000103


@pytest.mark.parametrize(("name", "seconds"), [("set-50", 0.005359), ("set-200", 0.002239)])
def test_the_99th_percentile_is_read_from_what_redis_benchmark_prints(name: str, seconds: float) -> None:
    assert RedisDensity().read_slow_seconds(sample(f"redis/{name}.csv")) == pytest.approx(seconds, abs=1e-12)


SET = sample("redis/set-1.csv")


@pytest.mark.parametrize(
    "text",
    [
        *("", SET[:-1], SET[:140], SET + SET),
        *(SET.replace('"0.103"', f'"{each}"') for each in ("0.000", "nan", "-0.103", f"{'9' * 400}.0")),
        SET.replace('"p95_latency_ms","p99_latency_ms"', '"p99_latency_ms","p95_latency_ms"'),
        *(sample(f"redis/{name}.csv") for name in ("get-1", "out-of-memory")),
    ],
)
def test_what_holds_no_latency_fails_the_trial(text: str) -> None:
    with pytest.raises(TrialFailed, match="gave no latency for SET"):
        RedisDensity().read_slow_seconds(text)


def test_a_bound_of_time_lowers_how_many_are_started_at_most() -> None:
    fitting, (lowered,) = apply_limits(RedisDensity(), LimitsSpec(seconds=10.0))
    assert fitting == RedisDensity(most=7)
    assert (lowered.setting, fitting.estimate_seconds() <= 10.0) == ("most", True)
