from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
from plain import Plain
from setups import OneByOne

from tare.hosts.local import LocalHost
from tare.loads.memory_search import SmallestMemory
from tare.model.errors import OutOfMemory, TareError, TimedOut, TrialFailed, Unreachable
from tare.model.trial import Footprint, Metric, Output, RawOutput, Value
from tare.plugins.instance import Instance
from tare.plugins.workload import ExtraInstance, InstanceStarter, MeasurementContext, Workload

MIB = 1 << 20
FULL = 1 << 30
ROUNDS = 5
Rate = Callable[[int], float]  # of a limit in bytes; it may raise what an instance with so little memory raises


@dataclass(frozen=True)
class Counter(Plain):
    """A load that prints what its instance serves; `closed` notes whose measurement was ended."""

    name = "counter"
    metrics = (Metric("rate", "Rate", "requests/s", "higher"),)

    closed: list[str] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return ROUNDS

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        try:
            yield RawOutput("warming", (), "", 0.1, warm_up=True)
            for _ in range(self.rounds):
                yield RawOutput("rate", ("count",), f"{float(setup.instance.proof['rate'])!r}\n", 0.1, client_cpu=0.5)
        finally:
            self.closed.append(setup.instance.name)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        (only,) = raw
        return (Value("rate", None, float(only.text)),)

    def estimate_seconds(self) -> float:
        return 0.5


@dataclass(frozen=True)
class Pressed(SmallestMemory):
    name = "pressed"
    title = "pressed"

    counter: Counter = field(default_factory=Counter)

    @property
    def load(self) -> Counter:
        return self.counter


def instance(name: str, rate: float) -> Instance:
    return Instance(name, None, None, "none", processes=tuple, proof={"rate": repr(rate)})


@dataclass
class Shelf(OneByOne):
    """Starts instances whose rate follows from their limit, and notes what was asked for and is alive."""

    rate: Rate
    swapped: int = 0
    asked: list[int] = field(default_factory=list)
    alive: list[str] = field(default_factory=list)
    full: Callable[[], float] = lambda: 1000.0

    @property
    def memory_limit_bytes(self) -> int:
        return FULL

    @contextmanager
    def start_instance(self, workload: Workload, limit_bytes: int | None = None) -> Iterator[ExtraInstance]:  # noqa: ARG002 - a shelf
        if limit_bytes is not None:
            self.asked.append(limit_bytes)
        name = "full" if limit_bytes is None else f"less {limit_bytes}"
        rate = self.full() if limit_bytes is None else self.rate(limit_bytes)
        self.alive.append(name)
        try:
            yield ExtraInstance(MeasurementContext(instance(name, rate), LocalHost(), ()), lambda: self.swapped)
        finally:
            self.alive.remove(name)

    def measure_footprint(self) -> Footprint:
        return Footprint(None, None, None, 0)

    def spare_memory_share(self) -> float:
        return 0.5


def setup(further: InstanceStarter | None) -> MeasurementContext:
    """Return what the workload measures with; its own instance has become faster with use, and is in no comparison."""
    return MeasurementContext(instance("own", 2000.0), LocalHost(), (), instance_starter=further)


def measured(shelf: Shelf, workload: SmallestMemory | None = None) -> tuple[RawOutput, ...]:
    return tuple((workload or Pressed()).measure(setup(shelf)))


def counted(raw: Sequence[RawOutput]) -> list[RawOutput]:
    """What a parser is given."""
    return [each for each in raw if not each.warm_up]


def needing(limit_bytes: int, otherwise: Callable[[], float] = lambda: 100.0) -> Rate:
    """A server that is as quick as ever from this memory on, and `otherwise` below it."""
    return lambda limit: 1000.0 if limit >= limit_bytes else otherwise()


def failing(error: TrialFailed) -> Callable[[], float]:
    def fail() -> float:
        raise error

    return fail


def fates(raw: Sequence[RawOutput]) -> list[str]:
    return [json.loads(each.text)["fate"] for each in raw if each.label.startswith("fate ")]


def floor_of(raw: Sequence[RawOutput], workload: SmallestMemory | None = None) -> float:
    (value,) = (each for each in (workload or Pressed()).parse(counted(raw)) if each.metric == "floor")
    return value.value


# --- the search


@pytest.mark.parametrize("needed_mib", [2, 3, 5, 17, 63, 64, 65, 127, 300, 511, 513, 900])
def test_the_smallest_memory_is_found_as_exactly_as_asked(needed_mib: int) -> None:
    needed = needed_mib * MIB
    assert needed <= floor_of(measured(Shelf(needing(needed)))) <= 1.05 * needed + MIB


def test_memory_is_halved_until_the_goal_is_missed_and_then_bisected() -> None:
    shelf = Shelf(needing(100 * MIB))
    raw = measured(shelf)
    assert [limit // MIB for limit in shelf.asked] == [512, 256, 128, *5 * [64], *5 * [91], 108, *5 * [99], 103]
    assert floor_of(raw) == 103 * MIB


def test_what_is_gone_is_not_tried_again() -> None:
    shelf = Shelf(needing(100 * MIB, failing(OutOfMemory("killed"))))
    measured(shelf)
    assert [limit // MIB for limit in shelf.asked] == [512, 256, 128, 64, 91, 108, 99, 103]


@pytest.mark.parametrize("misses", [1, 2, 3, 4])
def test_a_memory_that_misses_the_goal_by_chance_is_tried_again(misses: int) -> None:
    slow = [100.0] * misses

    def rate(limit: int) -> float:
        return slow.pop() if limit == 256 * MIB and slow else 1000.0 if limit >= 100 * MIB else 100.0

    shelf = Shelf(rate)
    raw = measured(shelf)
    assert [limit // MIB for limit in shelf.asked][: 3 + misses] == [512, *[256] * (1 + misses), 128]
    assert floor_of(raw) == 103 * MIB


def test_a_coarser_search_asks_less() -> None:
    shelf, workload = Shelf(needing(100 * MIB)), Pressed(precision=0.5)
    assert floor_of(measured(shelf, workload), workload) == 128 * MIB
    assert len(shelf.asked) == 13


def test_a_search_of_what_a_few_pages_distinguish_ends() -> None:
    workload = Pressed(least=1 << 16, precision=0.01)
    assert floor_of(measured(Shelf(needing(100_000)), workload), workload) in range(100_000, 105_000)


def test_the_throughput_is_reported_at_halves_and_with_all_the_memory() -> None:
    values = Pressed().parse(counted(measured(Shelf(needing(100 * MIB)))))
    assert [each for each in values if each.metric == "throughput"] == [
        Value("throughput", 64.0 * MIB, 100.0),
        *(Value("throughput", float(mib * MIB), 1000.0) for mib in (128, 256, 512, 1024)),
    ]


def test_a_half_that_gives_no_throughput_has_no_point() -> None:
    raw = measured(Shelf(needing(100 * MIB, failing(OutOfMemory("killed")))))
    points = {each.point for each in Pressed().parse(counted(raw)) if each.metric == "throughput"}
    assert points == {float(mib * MIB) for mib in (1024, 512, 256, 128)}


def test_a_goal_met_at_the_least_memory_fails_the_trial_with_a_hint() -> None:
    with pytest.raises(TrialFailed, match=r"^pressed meets its goal with 1 MiB, and less is not tried$") as failure:
        measured(Shelf(needing(1)))
    assert failure.value.hint == "set least below 1 MiB"


def test_where_half_the_memory_is_too_little_the_search_goes_on_above_it() -> None:
    assert floor_of(measured(Shelf(needing(900 * MIB)))) == pytest.approx(900 * MIB, rel=0.05)


@pytest.mark.parametrize("otherwise", [lambda: 100.0, failing(TrialFailed("the address is taken"))])
def test_if_no_smaller_instance_meets_the_goal_no_requirement_is_given(
    otherwise: Callable[[], float],
) -> None:
    what = r"^no instance with less than 1 GiB meets the goal; the last one: (all were too slow|the address is taken)$"
    with pytest.raises(TrialFailed, match=what):
        floor_of(measured(Shelf(needing(2 * FULL, otherwise))))


def test_each_fate_has_a_label_of_its_own_so_that_tare_show_has_them_all() -> None:
    labels = [each.label for each in measured(Shelf(needing(100 * MIB))) if each.label.startswith("fate ")]
    assert labels == [f"fate {number}" for number in range(1, 21)]


def test_the_estimate_counts_the_halves_and_what_lies_between_the_last_two() -> None:
    found = [Pressed(precision=precision).estimate_seconds() for precision in (0.5, 0.05)]
    assert found == pytest.approx([2 * (8 + 1) * 0.7, 2 * (8 + 4) * 0.7])


# --- the goal


def test_the_goal_is_a_share_of_the_throughput_with_all_the_memory() -> None:
    declining: Rate = lambda limit: 1000.0 * min(1.0, limit / (200 * MIB))  # noqa: E731 - a rate
    for goal in (0.5, 0.9):
        workload = Pressed(goal=goal)
        assert floor_of(measured(Shelf(declining), workload), workload) == pytest.approx(goal * 200 * MIB, rel=0.06)


def test_rounds_that_slow_both_instances_are_not_a_memory_shortage() -> None:
    raw = list(measured(Shelf(needing(100 * MIB))))
    slow = [each for each in raw if each.label in ("full: rate", "less: rate")][:4]
    for each in slow:
        raw[raw.index(each)] = replace(each, text=f"{float(each.text) / 10}\n")
    assert floor_of(raw) == 103 * MIB


def test_both_instances_take_turns_and_each_is_first_as_often() -> None:
    raw = [each.label for each in measured(Shelf(needing(100 * MIB)))][: 2 * (1 + ROUNDS)]
    first, second = ["full: rate", "less: rate"], ["less: rate", "full: rate"]
    assert raw == ["full: warming", "less: warming", *second, *first, *second, *first, *second]


def test_only_the_full_memory_instance_decides_if_the_client_was_busy() -> None:
    shares = {each.label: each.client_cpu for each in measured(Shelf(needing(100 * MIB)))}
    assert (shares["full: rate"], shares["less: rate"]) == (0.5, None)


# --- fates


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (OutOfMemory("the guest's kernel ended a process of it"), "out of memory"),
        (TimedOut("it did not answer within 11 s", "its last line was: 'Booting'"), "late"),
        (TrialFailed("docker: exit code 125: Minimum memory limit allowed is 6MB"), "failed"),
    ],
)
def test_how_an_instance_fails_is_reported_and_is_no_failure_of_the_trial(error: TrialFailed, fate: str) -> None:
    raw = measured(Shelf(needing(100 * MIB, failing(error))))
    assert floor_of(raw) == 103 * MIB
    assert fates(raw) == ["answered"] * 3 + [fate, fate, "answered", fate, "answered"]
    told = next(each.text for each in raw if fate in each.text)
    assert str(error) in told
    assert error.hint in told


def test_what_is_in_swap_is_reported_of_each_instance_that_answered() -> None:
    raw = measured(Shelf(needing(100 * MIB), swapped=4096))
    assert set(fates(raw)) == {"swapped"}
    assert {json.loads(each.text)["swapped_bytes"] for each in raw if each.label.startswith("fate ")} == {4096}
    assert floor_of(raw) == 103 * MIB  # that alone is no failure


def test_the_output_of_a_load_that_failed_is_kept() -> None:
    output = Output(("redis-benchmark",), 1, b"", b"Connection refused\n", 0.1)
    raw = measured(Shelf(needing(100 * MIB, failing(TrialFailed("it failed", "", output)))))
    assert ("less: failed command", "Connection refused\n") in [(each.label, each.text) for each in raw]
    assert floor_of(raw) == 103 * MIB


@dataclass(frozen=True)
class Breaking(Counter):
    """A load that fails against one of the instances, in a round."""

    against: str = "full"

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        yield from list(super().measure(setup))[:3]
        if setup.instance.name.startswith(self.against):
            raise TrialFailed("connection reset by peer")
        yield from list(super().measure(setup))[3:]


def test_a_failure_with_all_the_memory_fails_the_trial() -> None:
    with pytest.raises(TareError, match=r"^with all its memory: connection reset by peer$"):
        measured(Shelf(needing(100 * MIB)), Pressed(counter=Breaking()))


def test_an_instance_that_fails_to_start_with_full_memory_fails_the_trial() -> None:
    with pytest.raises(TareError, match=r"^with all its memory: it did not answer within 11 s$") as failure:
        measured(Shelf(needing(100 * MIB), full=failing(TimedOut("it did not answer within 11 s", "wait"))))
    assert failure.value.hint == "wait"
    with pytest.raises(Unreachable):
        measured(Shelf(needing(100 * MIB), full=failing(Unreachable("the connection was lost"))))


def test_a_failure_in_a_round_misses_the_goal() -> None:
    workload = Pressed(counter=Breaking(against="less 134217728"))
    raw = measured(Shelf(needing(100 * MIB)), workload)
    assert fates(raw)[:3] == ["answered", "answered", "failed"]
    assert 128 * MIB < floor_of(raw, workload) <= 1.05 * 128 * MIB + MIB


def test_a_machine_that_is_lost_is_no_fate() -> None:
    with pytest.raises(Unreachable):
        measured(Shelf(needing(100 * MIB, failing(Unreachable("the connection was lost")))))


def test_what_was_started_is_ended_try_by_try_and_when_the_trial_is() -> None:
    shelf, counter = Shelf(needing(100 * MIB)), Counter()
    measuring = Pressed(counter=counter).measure(setup(shelf))
    for _ in range(5):
        next(measuring)
    assert shelf.alive == ["full", f"less {512 * MIB}"]
    assert isinstance(measuring, Generator)
    measuring.close()
    assert shelf.alive == []
    assert sorted(counter.closed) == ["full", f"less {512 * MIB}"]


def test_it_needs_further_instances() -> None:
    with pytest.raises(TrialFailed, match="starts extra instances"):
        next(Pressed().measure(setup(None)))


# --- hostile outputs

GOOD = counted(measured(Shelf(needing(100 * MIB))))
TRY = 1 + 2 * ROUNDS


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ([], "tried no memory"),
        (GOOD[:-1], "no fate of its last try"),
        (GOOD[:-TRY], "did not end its search"),
        (GOOD[TRY:], "out of turn"),
        ([*GOOD[TRY : 2 * TRY], *GOOD[:TRY], *GOOD[2 * TRY :]], "out of turn"),
        ([*GOOD, *GOOD[-TRY:]], "out of turn"),
        (GOOD[1:], "not of whole rounds"),
        ([GOOD[0], *GOOD], "not of whole rounds"),
        ([RawOutput("else", (), "", 0.0), *GOOD], "not of whole rounds"),
        ([each for each in GOOD if not each.label.startswith("full: ")], "not of whole rounds"),
        ([replace(GOOD[0], text="0\n"), *GOOD[1:]], "with less memory gave no answer"),
        ([GOOD[0], replace(GOOD[1], text="0\n"), *GOOD[2:]], "with all its memory gave no answer"),
    ],
)
def test_outputs_that_are_not_those_of_one_whole_search_fail_the_trial(raw: list[RawOutput], why: str) -> None:
    with pytest.raises(TrialFailed, match=why):
        Pressed().parse(raw)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "{",
        '{"limit_bytes": 536870912}',
        '{"limit_bytes": "536870912", "full_bytes": 1073741824, "fate": "answered"}',
        '{"limit_bytes": 0, "full_bytes": 1073741824, "fate": "answered"}',
        '{"limit_bytes": NaN, "full_bytes": 1073741824, "fate": "answered"}',
        f'{{"limit_bytes": 536870912, "full_bytes": {10**60}, "fate": "answered"}}',
        f'{{"limit_bytes": {2**63}, "full_bytes": {2**63}, "fate": "answered"}}',
        '{"limit_bytes": 536870912, "full_bytes": 1073741824, "fate": "happy"}',
        '{"limit_bytes": 536870912, "full_bytes": 1073741824, "fate": "answered", "swapped_bytes": -1}',
    ],
)
def test_a_fate_that_cannot_be_read_fails_the_trial_and_is_quoted(text: str) -> None:
    raw = [*GOOD]
    raw[TRY - 1] = replace(raw[TRY - 1], text=text)
    with pytest.raises(TrialFailed, match="unknown fate") as failure:
        Pressed().parse(raw)
    assert repr(text) in str(failure.value)


def test_outputs_of_a_search_with_other_settings_fail_the_trial() -> None:
    for workload in (Pressed(precision=0.01), Pressed(goal=0.05)):
        with pytest.raises(TrialFailed, match=r"out of turn|did not end"):
            workload.parse(GOOD)
