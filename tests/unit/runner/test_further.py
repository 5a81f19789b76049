from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest
from fakes import LIMITS, Lent, bare_context
from tare_fake.technology import Fake, FakeHost

from tare.errors import OutOfMemory, TimedOut, TrialFailed, Unavailable, Unreachable
from tare.hosts.local import LocalHost
from tare.hosts.network import SLOTS
from tare.model.trials import Mark
from tare.runner.extra_instances import ExtraInstances
from tare.runner.layers import prefix_errors
from tare.workloads.startup import Startup

TIMELINE = (Mark("requested", 100.0), Mark("userspace", 101.5), Mark("ready", 102.0))


@dataclass(frozen=True)
class Counting(LocalHost):
    """This machine, whose kernel ends processes when it is told so."""

    kills: list[int] = field(default_factory=lambda: [0])

    def read(self, path: str) -> str:
        if path == "/proc/meminfo":
            return "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n"
        return f"oom_kill {self.kills[0]}\n" if path == "/proc/vmstat" else ""


def further(folder: Path, technology: Fake | None = None, slot: int = 0) -> ExtraInstances:
    context = bare_context(folder, Counting())
    return ExtraInstances(context, replace(context.spec(technology or Fake()), slot=slot), TIMELINE)


def fail_in(instances: ExtraInstances, error: TrialFailed, *, killed: int) -> None:
    """Raise the error in the block of an instance, after the kernel has ended so many processes."""
    host = instances.context.host
    assert isinstance(host, Counting)
    with instances.started(Startup()):
        host.kills[0] += killed
        raise error


def test_each_is_in_a_slot_of_its_own_that_is_free_again_when_it_is_gone(tmp_path: Path) -> None:
    instances = further(tmp_path, slot=1)
    with instances.started(Startup()) as first, instances.started(Startup()) as second:
        assert [each.setup.instance.name.split("-")[2] for each in (first, second)] == ["00", "02"]
    with instances.started(Startup()) as third:
        assert third.setup.instance.name.split("-")[2] == "00"


@dataclass(frozen=True)
class BuiltIn(Fake):
    """A fake whose address is built into its image."""

    built_in_address: ClassVar[bool] = True


@pytest.mark.parametrize("technology", [BuiltIn(), Lent()])
def test_what_cannot_be_started_again_is_skipped_and_has_not_failed(tmp_path: Path, technology: Fake) -> None:
    what = "^fake: tare cannot start further instances of it$"
    with pytest.raises(Unavailable, match=what), further(tmp_path, technology).started(Startup()):
        pass


def test_they_are_as_many_as_there_are_slots(tmp_path: Path) -> None:
    instances = further(tmp_path)
    instances._taken.update(range(1, SLOTS))
    with pytest.raises(TrialFailed, match=f"{SLOTS} instances at most"), instances.started(Startup()):
        pass


def test_one_has_the_limit_of_the_trials_own_or_another_of_memory(tmp_path: Path) -> None:
    instances = further(tmp_path)
    assert instances.limit_bytes == 512 << 20
    for asked, limit_bytes in ((None, 512 << 20), (64 << 20, 64 << 20)):
        with instances.started(Startup(), asked) as another:
            inside = another.setup.instance.inside
            assert isinstance(inside, FakeHost)
            assert inside.limits == replace(LIMITS, memory_bytes=limit_bytes)


def test_it_may_take_five_times_as_long_to_start_as_the_trials_own_and_ten_seconds(tmp_path: Path) -> None:
    seen: list[float] = []

    @dataclass(frozen=True)
    class Seeing(Fake):
        def launch(self, host, launch):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - as it was
            seen.append(launch.start_seconds)
            return super().launch(host, launch)

    with further(tmp_path, Seeing()).started(Startup()):
        assert seen == [20.0]


def test_its_own_start_is_its_timeline(tmp_path: Path) -> None:
    with further(tmp_path).started(Startup()) as another:
        assert [mark.name for mark in another.setup.timeline] == ["requested", "started", "ready"]


def test_a_failure_after_the_kernel_has_ended_something_is_one_for_lack_of_memory(tmp_path: Path) -> None:
    instances = further(tmp_path)
    what = "^the machine's kernel ended a process of it for lack of memory; it broke$"
    with pytest.raises(OutOfMemory, match=what) as failure:
        fail_in(instances, TrialFailed("it broke", "why"), killed=1)
    assert failure.value.hint == "why"


@pytest.mark.parametrize("error", [TrialFailed("it broke"), TimedOut("it took too long")])
def test_another_failure_stays_what_it_is(tmp_path: Path, error: TrialFailed) -> None:
    with pytest.raises(type(error)) as failure:
        fail_in(further(tmp_path), error, killed=0)
    assert failure.value is error


def test_a_machine_that_is_lost_lacks_no_memory(tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        fail_in(further(tmp_path), Unreachable("the connection was lost"), killed=1)


def test_one_that_says_itself_that_it_lacked_memory_needs_nobody_else_to_say_so(tmp_path: Path) -> None:
    error = OutOfMemory("the guest did not boot for lack of memory")
    with pytest.raises(OutOfMemory) as failure:
        fail_in(further(tmp_path), error, killed=1)
    assert failure.value is error


@pytest.mark.parametrize("kind", [TrialFailed, TimedOut, OutOfMemory])
def test_a_layer_that_fails_is_named_and_its_failure_stays_of_the_kind_that_it_is(kind: type[TrialFailed]) -> None:
    with (
        pytest.raises(TrialFailed, match=r"^in the layer fake: it broke$") as failure,
        prefix_errors(Fake(), nested=True),
    ):
        raise kind("it broke")
    assert type(failure.value) is kind


def test_one_that_does_not_start_leaves_its_slot(tmp_path: Path) -> None:
    instances = further(tmp_path, Fake(fails="start"))
    for _ in range(SLOTS):
        with pytest.raises(TrialFailed, match="the fake does not start"), instances.started(Startup()):
            pass


def test_the_memory_left_is_reported_as_if_another_one_used_all_of_its_limit(tmp_path: Path) -> None:
    assert further(tmp_path).spare_share() == 7 / 16  # 4 of 8 GiB are there, and 512 MiB would go
