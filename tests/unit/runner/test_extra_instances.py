"""Footprint of several instances, signs of a lack of memory, and extra instances of a stack."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest
from fakes import LIMITS, Lent, bare_context
from tare_fake.technology import Fake, FakeHost

from tare.hosts.local import LocalHost
from tare.hosts.network import SLOTS
from tare.model.errors import OutOfMemory, TimedOut, TrialFailed, Unavailable, Unreachable
from tare.model.trial import Mark
from tare.plugins.instance import Instance
from tare.runner.extra_instances import ExtraInstances, MemoryShortageWatch, measure_footprint
from tare.runner.layers import prefix_errors
from tare.workloads.startup import Startup

WORDS, BOOT, MEMINFO = "/proc/cmdline", "/proc/sys/kernel/random/boot_id", "/proc/meminfo"


def files(words: str, boot: str, total_kib: int, available_kib: int) -> dict[str, str]:
    meminfo = f"MemTotal: {total_kib} kB\nMemFree: 1 kB\nMemAvailable: {available_kib} kB\n"
    return {WORDS: words, BOOT: boot, MEMINFO: meminfo}


MACHINE = files("root=/dev/sda\n", "here\n", 24_000_000, 1_000_000)
GUEST = files("root=/dev/vda\n", "there\n", 400_000, 300_000)


@dataclass(frozen=True)
class Files(LocalHost):
    """A host with these files alone; without any, it cannot be asked."""

    files: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> str:
        if not self.files:
            raise TrialFailed("it is gone")
        return self.files.get(path, "")


def instance(inside: Files | None, disk_bytes: int | None = 5) -> Instance:
    return Instance("tare-x", inside, None, "none", processes=tuple, written_bytes=lambda: disk_bytes)


def reported(folder: Path, *insides: Files | None) -> int | None:
    return measure_footprint(
        bare_context(folder, Files(MACHINE)), [instance(inside) for inside in insides]
    ).reported_bytes


def test_a_guest_reports_what_its_own_kernel_counts_as_used(tmp_path: Path) -> None:
    assert reported(tmp_path, Files(GUEST)) == 100_000 * 1024
    assert reported(tmp_path, Files(GUEST), Files(GUEST)) == 200_000 * 1024


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param(None, id="a unikernel"),
        pytest.param(Files(MACHINE), id="a container"),
        pytest.param(Files({**MACHINE, BOOT: "another\n"}), id="a container with another boot ID"),
        pytest.param(Files(), id="gone"),
        pytest.param(Files({MEMINFO: GUEST[MEMINFO]}), id="without words"),
        pytest.param(Files({**GUEST, MEMINFO: "MemTotal: no kB\n"}), id="garbage"),
    ],
)
def test_what_has_no_kernel_of_its_own_or_does_not_answer_reports_nothing(tmp_path: Path, inside: Files | None) -> None:
    assert reported(tmp_path, inside) is None
    assert reported(tmp_path, Files(GUEST), inside) is None  # a part of the sum would look like a result


def test_what_several_have_written_is_added_up_unless_one_is_unknown(tmp_path: Path) -> None:
    testbed = bare_context(tmp_path, Files(MACHINE))
    for sizes, all_bytes in (((5, 6), 11), ((5, None), None), ((), None)):
        found = measure_footprint(testbed, [instance(None, size) for size in sizes])
        assert (found.disk_bytes, found.memory_bytes, found.processes) == (all_bytes, None, 0)


# --- signs of a lack of memory ---

SAMPLES = Path(__file__).parents[2] / "samples"
GROUP = "/sys/fs/cgroup/memory/tare-x"
V1 = {
    "/proc/self/mounts": "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
    "/proc/7/cgroup": "3:memory:/tare-x\n",
    "/proc/sys/kernel/random/boot_id": "here\n",
    "/proc/cmdline": "root=/dev/sda\n",
    "/proc/vmstat": "oom_kill 3\noom_group_kill 9\n",
    f"{GROUP}/memory.oom_control": (SAMPLES / "shortage/version-1-memory.oom_control").read_text(),
    f"{GROUP}/memory.stat": (SAMPLES / "shortage/version-1-memory.stat").read_text(),
}
V2 = {
    **V1,
    "/proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    "/proc/7/cgroup": "0::/tare-x\n",
    "/sys/fs/cgroup/tare-x/memory.events": "low 0\nhigh 0\nmax 61\noom 1\noom_kill 2\noom_group_kill 0\n",
    "/sys/fs/cgroup/tare-x/memory.swap.current": "8192\n",
}


@dataclass(frozen=True)
class Guest(LocalHost):
    """A host with these files alone; `lost`, it cannot be asked."""

    files: dict[str, str] = field(default_factory=dict)
    is_lost: bool = False

    def read(self, path: str) -> str:
        if self.is_lost:
            raise TrialFailed("the guest is gone")
        return self.files.get(path, "")

    def read_matching(self, folder: str, name: str) -> str:
        return "".join(text for path, text in self.files.items() if path.startswith(folder) and path.endswith(name))


def watched(files: Mapping[str, str], inside: Guest | None = None, pids: tuple[int, ...] = (7,)) -> MemoryShortageWatch:
    shortage = MemoryShortageWatch(Guest(dict(files)))
    shortage.watch(Instance("tare-x", inside or Guest(dict(V1)), None, "none", processes=lambda: pids))
    return shortage


def guest(*more: str) -> Guest:
    vmstat = "".join(f"{line}\n" for line in ("pswpin 0", "pswpout 0", *more))
    return Guest({"/proc/cmdline": "root=/dev/vda\n", "/proc/vmstat": vmstat})


def without(files: Mapping[str, str], name: str) -> dict[str, str]:
    return {path: text for path, text in files.items() if not path.endswith(name)}


@pytest.mark.parametrize("files", [V1, V2], ids=["version 1", "version 2"])
def test_what_the_machine_has_ended_in_the_group_is_reported(files: Mapping[str, str]) -> None:
    shortage = watched(files)
    shortage.read_killer()
    assert shortage.find_killer() == "the machine's kernel"


def test_what_the_machine_has_ended_in_other_groups_meanwhile_is_not() -> None:
    quiet = V1[f"{GROUP}/memory.oom_control"].replace("oom_kill 1", "oom_kill 0")
    host = Guest({**V1, f"{GROUP}/memory.oom_control": quiet})
    shortage = MemoryShortageWatch(host)
    shortage.watch(Instance("tare-x", Guest(dict(V1)), None, "none", processes=lambda: (7,)))
    host.files["/proc/vmstat"] = "oom_kill 4\n"
    shortage.read_killer()
    assert shortage.find_killer() == ""


def test_where_the_group_is_gone_the_machines_counter_is_read() -> None:
    host = Guest(without(V1, "memory.oom_control"))
    for ended, killer in ((0, ""), (1, "the machine's kernel")):
        shortage = MemoryShortageWatch(host)
        shortage.watch(Instance("tare-x", Guest(dict(V1)), None, "none", processes=lambda: (7,)))
        host.files["/proc/vmstat"] = f"oom_kill {3 + ended}\n"
        shortage.read_killer()
        assert shortage.find_killer() == killer


def test_where_an_instance_never_answered_the_machines_counter_is_read() -> None:
    host = Guest(dict(V1))
    shortage = MemoryShortageWatch(host)
    assert shortage.find_killer() == ""
    host.files["/proc/vmstat"] = "oom_kill 4\n"
    assert shortage.find_killer() == "the machine's kernel"


@pytest.mark.parametrize(("ended", "killer"), [(1, "the guest's kernel"), (0, "the machine's kernel")])
def test_a_guest_without_oom_kills_may_have_been_killed_by_the_machine(ended: int, killer: str) -> None:
    shortage = watched(V1, guest(f"oom_kill {ended}"))
    shortage.read_killer()
    assert shortage.find_killer() == killer


def test_a_container_is_not_asked_for_what_its_machine_has_ended() -> None:
    shortage = watched(
        {**V1, f"{GROUP}/memory.oom_control": "oom_kill 0\n"},
        Guest({**V1, "/proc/vmstat": "oom_kill 9\n", "/proc/sys/kernel/random/boot_id": "another\n"}),
    )
    shortage.read_killer()
    assert shortage.find_killer() == ""


def test_a_guest_that_cannot_be_asked_any_more_is_no_fault() -> None:
    shortage = watched({**V1, f"{GROUP}/memory.oom_control": "oom_kill 0\n"}, Guest(is_lost=True))
    shortage.read_killer()
    assert (shortage.find_killer(), shortage.swapped_bytes()) == ("", 0)


@pytest.mark.parametrize(
    ("files", "inside", "swapped"),
    [
        (V1, None, 0),
        (
            {**V1, f"{GROUP}/memory.stat": V1[f"{GROUP}/memory.stat"].replace("total_swap 0", "total_swap 4096")},
            None,
            4096,
        ),
        (V2, None, 8192),
        (without(V1, "memory.stat"), None, 0),  # the kernel does not count it
        (V1, guest(), 0),
        (V2, Guest({**guest().files, "/proc/vmstat": "pswpin 2\npswpout 3\n"}), 5 * os.sysconf("SC_PAGE_SIZE")),
        (
            V2,
            Guest(
                {
                    **guest().files,
                    "/proc/meminfo": "MemFree: 640000 kB\n",
                    "/proc/vmstat": "nr_free_pages 10000\npswpin 2\npswpout 3\n",
                }
            ),
            5 * 65536,
        ),
    ],
)
def test_what_is_in_swap_is_reported(files: Mapping[str, str], inside: Guest | None, swapped: int) -> None:
    assert watched(files, inside).swapped_bytes() == swapped


def test_an_instance_without_processes_is_in_no_group() -> None:
    assert watched(V1, pids=()).swapped_bytes() == 0


# --- extra instances ---

TIMELINE = (Mark("requested", 100.0), Mark("userspace", 101.5), Mark("ready", 102.0))


@dataclass(frozen=True)
class Counting(LocalHost):
    """This machine, whose kernel ends processes when it is told so."""

    kills: list[int] = field(default_factory=lambda: [0])

    def read(self, path: str) -> str:
        if path == "/proc/meminfo":
            return "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n"
        return f"oom_kill {self.kills[0]}\n" if path == "/proc/vmstat" else ""


def extra_instances(folder: Path, technology: Fake | None = None, slot: int = 0) -> ExtraInstances:
    context = bare_context(folder, Counting())
    return ExtraInstances(context, replace(context.create_spec(technology or Fake()), slot=slot), TIMELINE)


def fail_in(instances: ExtraInstances, error: TrialFailed, *, killed: int) -> None:
    """Raise the error in the block of an instance, after the kernel has ended so many processes."""
    host = instances.context.host
    assert isinstance(host, Counting)
    with instances.start_instance(Startup()):
        host.kills[0] += killed
        raise error


def test_each_is_in_a_slot_of_its_own_that_is_free_again_when_it_is_gone(tmp_path: Path) -> None:
    instances = extra_instances(tmp_path, slot=1)
    with instances.start_instance(Startup()) as first, instances.start_instance(Startup()) as second:
        assert [each.setup.instance.name.split("-")[2] for each in (first, second)] == ["00", "02"]
    with instances.start_instance(Startup()) as third:
        assert third.setup.instance.name.split("-")[2] == "00"


@dataclass(frozen=True)
class BuiltIn(Fake):
    """A fake whose address is built into its image."""

    has_fixed_address: ClassVar[bool] = True


@pytest.mark.parametrize("technology", [BuiltIn(), Lent()])
def test_what_cannot_be_started_again_is_skipped_and_has_not_failed(tmp_path: Path, technology: Fake) -> None:
    what = "^fake: tare cannot start extra instances$"
    with pytest.raises(Unavailable, match=what), extra_instances(tmp_path, technology).start_instance(Startup()):
        pass


def test_they_are_as_many_as_there_are_slots(tmp_path: Path) -> None:
    instances = extra_instances(tmp_path)
    instances._used_slots.update(range(1, SLOTS))
    with pytest.raises(TrialFailed, match=f"{SLOTS} instances at most"), instances.start_instance(Startup()):
        pass


def test_one_has_the_limit_of_the_trials_own_or_another_of_memory(tmp_path: Path) -> None:
    instances = extra_instances(tmp_path)
    assert instances.memory_limit_bytes == 512 << 20
    for asked, limit_bytes in ((None, 512 << 20), (64 << 20, 64 << 20)):
        with instances.start_instance(Startup(), asked) as another:
            inside = another.setup.instance.inside
            assert isinstance(inside, FakeHost)
            assert inside.limits == replace(LIMITS, memory_bytes=limit_bytes)


def test_an_extra_instance_may_take_5_times_the_usual_start_plus_10_s(tmp_path: Path) -> None:
    seen: list[float] = []

    @dataclass(frozen=True)
    class Seeing(Fake):
        def launch(self, host, launch):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - as it was
            seen.append(launch.start_timeout_seconds)
            return super().launch(host, launch)

    with extra_instances(tmp_path, Seeing()).start_instance(Startup()):
        assert seen == [20.0]


def test_its_own_start_is_its_timeline(tmp_path: Path) -> None:
    with extra_instances(tmp_path).start_instance(Startup()) as another:
        assert [mark.name for mark in another.setup.timeline] == ["requested", "started", "ready"]


def test_a_failure_after_an_oom_kill_is_one_for_lack_of_memory(tmp_path: Path) -> None:
    instances = extra_instances(tmp_path)
    what = "^the machine's kernel killed a process of the instance for lack of memory; it broke$"
    with pytest.raises(OutOfMemory, match=what) as failure:
        fail_in(instances, TrialFailed("it broke", "why"), killed=1)
    assert failure.value.hint == "why"


@pytest.mark.parametrize("error", [TrialFailed("it broke"), TimedOut("it took too long")])
def test_another_failure_stays_what_it_is(tmp_path: Path, error: TrialFailed) -> None:
    with pytest.raises(type(error)) as failure:
        fail_in(extra_instances(tmp_path), error, killed=0)
    assert failure.value is error


def test_a_machine_that_is_lost_lacks_no_memory(tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        fail_in(extra_instances(tmp_path), Unreachable("the connection was lost"), killed=1)


def test_an_instance_that_reports_lack_of_memory_needs_no_confirmation(tmp_path: Path) -> None:
    error = OutOfMemory("the guest did not boot for lack of memory")
    with pytest.raises(OutOfMemory) as failure:
        fail_in(extra_instances(tmp_path), error, killed=1)
    assert failure.value is error


@pytest.mark.parametrize("kind", [TrialFailed, TimedOut, OutOfMemory])
def test_a_failing_layer_is_named_and_its_failure_keeps_its_type(kind: type[TrialFailed]) -> None:
    with (
        pytest.raises(TrialFailed, match=r"^in the layer fake: it broke$") as failure,
        prefix_errors(Fake(), nested=True),
    ):
        raise kind("it broke")
    assert type(failure.value) is kind


def test_one_that_does_not_start_leaves_its_slot(tmp_path: Path) -> None:
    instances = extra_instances(tmp_path, Fake(fails="start"))
    for _ in range(SLOTS):
        with pytest.raises(TrialFailed, match="the fake does not start"), instances.start_instance(Startup()):
            pass


def test_spare_memory_is_reported_as_if_another_instance_used_its_limit(tmp_path: Path) -> None:
    assert extra_instances(tmp_path).spare_memory_share() == 7 / 16  # 4 of 8 GiB are there, and 512 MiB would go
