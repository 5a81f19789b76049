"""Programs that run inside an instance by themselves: how often, with which words, and within which limits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import pytest
from pydantic import TypeAdapter
from setups import Inside, running_in, sample, word_after

from tare.loads.cpu_programs import ComputeWorkload
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import Limits, LimitsCheck, ObservedLimits, Output, RawOutput
from tare.plugins.workload import Workload
from tare.runner.values import read_values
from tare.workloads.context_switch import ContextSwitch
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.hackbench import Hackbench
from tare.workloads.kernel_build import KernelBuild
from tare.workloads.ramspeed import ElementType, Ramspeed
from tare.workloads.sysbench import Sysbench
from tare.workloads.sysbench_memory import SysbenchMemory
from tare.workloads.system_calls import SystemCalls
from tare.workloads.whetstone import Whetstone


def runs_of(workload: Workload, inside: Inside) -> tuple[RawOutput, ...]:
    return tuple(workload.measure(running_in(inside)))


def turns_of(workload: Workload, raw: tuple[RawOutput, ...]) -> tuple[float, ...]:
    return read_values(workload, raw)[0].turns


# --- Dhrystone, Whetstone and RAMspeed


@pytest.mark.parametrize(
    ("workload", "work"),
    [
        (Dhrystone(passes=37566844), ("--runs", "37566844")),
        (Whetstone(passes=7054), ("--passes", "7054")),
    ],
)
def test_a_program_that_computes_repeats_the_passes(workload: ComputeWorkload, work: tuple[str, ...]) -> None:
    inside = Inside(answer=lambda _: sample(f"{workload.name}/one-second.txt"))
    found = runs_of(workload, inside)
    assert inside.calls == workload.rounds * [(f"/usr/lib/tare/{workload.name}", *work)]
    assert workload.rounds == 5
    assert len(turns_of(workload, found)) == workload.rounds


def test_the_counts_of_vtmark_can_be_asked_for() -> None:
    assert TypeAdapter(Dhrystone).validate_python({"passes": 2_147_483_627}).repetitions == 5
    assert TypeAdapter(Whetstone).validate_python({"passes": 5_000_000}).estimate_seconds() > 1000


@pytest.mark.parametrize("workload", [Ramspeed(passes=1), Ramspeed(get_args(ElementType), passes=100)])
def test_the_limit_of_ramspeed_is_that_of_a_turn_however_many_there_are(workload: Ramspeed) -> None:
    inside = Inside()
    runs_of(workload, inside)
    [limit_seconds] = set(inside.limits_seconds)
    assert limit_seconds == pytest.approx(30 + 50 * (4 * 96 + 8 * 64) * 2**20 / 6e9)


def test_a_turn_tells_how_much_of_its_time_the_program_had_the_cpu() -> None:
    """Real outputs, with two other programs on the CPU."""
    for workload in (Dhrystone(), Whetstone()):
        text = sample(f"{workload.name}/turn-on-busy-cpu.txt")
        [value] = workload.parse([RawOutput(workload.name, (), text, 0.02)])
        share = value.cpu_share
        assert share
        assert f"cpu_share: {share.had:.6f} of {share.wanted:.6f}\n" in text
        assert share.had < 0.5 < share.wanted
    [without] = Dhrystone().parse([RawOutput("dhrystone", (), sample("dhrystone/one-second.txt"), 1.0)])
    assert without.cpu_share is None


def test_each_block_of_ramspeed_has_a_cpu_share_and_arrays_have_one() -> None:
    workload = Ramspeed(kinds=("float",), mark_sizes=(4 << 10, 8 << 20), array_bytes=16 << 20)
    texts = [sample(f"ramspeed/{name}-turn-on-busy-cpu.txt") for name in ("mem", "mark-read", "mark-write")]
    labels = ("mem float", "mark float read", "mark float write")
    raw = [RawOutput(label, (), text, 0.02) for label, text in zip(labels, texts, strict=True)]
    shares = {(each.metric, each.point): each.cpu_share for each in workload.parse(raw)}
    assert len({shares[f"float-{name}", None] for name in ("copy", "add", "average")}) == 1
    assert shares["float-read", 4096.0] != shares["float-read", float(8 << 20)]
    assert all(share and 0 < share.had < share.wanted for share in shares.values())


def test_huge_pages_are_asked_for_in_all_calls_of_ramspeed() -> None:
    inside = Inside()
    runs_of(Ramspeed(kinds=("float",), passes=1, pages="huge"), inside)
    assert {call[call.index("--pages") + 1] for call in inside.calls} == {"huge"}
    runs_of(Ramspeed(kinds=("float",), passes=1), plain := Inside())
    assert not any("--pages" in call for call in plain.calls)


# --- sysbench


def sysbench(rate: float, name: str = "sysbench/one-thread.txt") -> Inside:
    """Return an inside whose sysbench works on so many events a second."""

    def answer(argv: tuple[str, ...]) -> str:
        text = re.sub(r"(number of events: +)\d+", rf"\g<1>{events(argv)}", sample(name))
        return re.sub(r"( sum: +)[0-9.]+", rf"\g<1>{events(argv) / rate * 1000:.2f}", text)

    return Inside(answer=answer)


def events(argv: tuple[str, ...]) -> int:
    return int(argv[3].removeprefix("--events="))


@pytest.mark.parametrize(
    ("workload", "inside", "line", "rate"),
    [
        (Sysbench(0.5), sysbench(1000), "cpu --threads=1 --events=50 --time=0 --cpu-max-prime=10000 run", 1000.0),
        (
            SysbenchMemory(0.5),
            sysbench(10_000, "sysbench-memory/write.txt"),
            (
                "memory --threads=1 --events=500 --time=0 --memory-block-size=1048576 --memory-total-size=524288000"
                " --memory-oper=write --memory-access-mode=seq --memory-scope=global run"
            ),
            10_000 * 2.0**20,
        ),
    ],
)
def test_sysbench_is_run_for_each_turn_with_all_settings(
    workload: Workload, inside: Inside, line: str, rate: float
) -> None:
    raw = runs_of(workload, inside)
    assert " ".join(inside.calls[-1]) == f"sysbench {line}"
    assert [(each.label, each.warm_up) for each in raw] == [(workload.name, number == 0) for number in range(11)]
    assert turns_of(workload, raw) == pytest.approx(10 * (rate,))


@pytest.mark.parametrize("rate", [2.0, 60.0, 1000.0, 700_000.0])
def test_a_sysbench_turn_has_as_many_events_as_fill_it_on_every_stack(rate: float) -> None:
    inside = sysbench(rate)
    raw = runs_of(Sysbench(1.0), inside)
    assert sum(each.warm_up for each in raw) == 1
    assert [events(call) for call in inside.calls[-10:]] == 10 * [pytest.approx(max(1, 0.1 * rate), rel=0.01)]
    assert len(inside.calls) <= 14


@pytest.mark.parametrize(("rate", "limit_seconds"), [(2.0, 630.0), (1000.0, 32.0)])
def test_the_sysbench_limit_is_that_of_a_turn_unless_an_event_is_longer(rate: float, limit_seconds: float) -> None:
    runs_of(Sysbench(60.0), inside := sysbench(rate))
    assert (inside.limits_seconds[0], inside.limits_seconds[-1]) == (630.0, limit_seconds)


def test_every_thread_of_sysbench_has_an_event_at_least() -> None:
    inside = sysbench(1.0)
    with pytest.raises(TrialFailed, match="no result as asked"):  # the sample has one thread
        runs_of(Sysbench(1.0, threads=4, max_prime=20_000), inside)
    assert inside.calls[0][2:4] == ("--threads=4", "--events=4")


# --- perf bench


def calling(rate: float) -> Inside:
    """Return an inside with a rate of system calls, whose clock shows microseconds."""

    def answer(argv: tuple[str, ...]) -> str:
        loops = int(argv[-1])
        if not (microseconds := int(loops / rate * 1e6)):
            return sample("system-calls/no-time.txt").replace("Executed 1 ", f"Executed {loops} ")
        text = sample("system-calls/500000.txt").replace("500000", str(loops))
        return text.replace("0.093060", f"{microseconds / loops:.6f}")

    return Inside(answer=answer)


def switching(start_seconds: float = 0.0, affinity: str = "0") -> Inside:
    """Return an inside that switches every microsecond; the second process takes a time to start."""

    def answer(argv: tuple[str, ...]) -> str:
        if argv[0] == "sh":
            return affinity if "\n" in affinity else f"pid 27191's current affinity list: {affinity}\n"
        each = 2 + start_seconds * 1e6 / int(argv[-1])
        text = sample("context-switch/5000.txt").replace("5000 pipe", f"{argv[-1]} pipe")
        return text.replace("2.286800", f"{each:.6f}")

    return Inside(answer=answer)


def messaging(end_seconds: float = 0.0, errors: bytes = b"") -> Inside:
    """Return an inside whose groups exchange a million messages a second, and take a time to end."""

    def answer(argv: tuple[str, ...]) -> Output:
        groups, loops = int(word_after(argv, "-g")), int(argv[-1])
        text = sample("hackbench/sockets-1.txt").replace("1 groups == 40", f"{groups} groups == {groups * 40}")
        text = text.replace("0.040", f"{end_seconds + loops * groups * 400 / 1e6:.3f}")
        return Output(argv, 0, text.encode(), errors, 1.0)

    return Inside(answer=answer)


@pytest.mark.parametrize(
    ("workload", "label", "name", "loops"),
    [
        *((SystemCalls(), "rate", "system-calls/500000.txt", loops) for loops in (400_000, 0, "many")),
        *(
            (Hackbench(kinds=("sockets",)), "sockets 1", "hackbench/sockets-1.txt", loops)
            for loops in ("0", "-1", "many", "")
        ),
        (SystemCalls(), "rate", "system-calls/0.txt", 0),  # perf prints -nan for no calls at all
    ],
)
def test_another_number_of_loops_than_was_asked_for_is_no_result(
    workload: Workload, label: str, name: str, loops: object
) -> None:
    with pytest.raises(TrialFailed, match="no result as asked"):
        workload.parse([RawOutput(label, ("perf", "bench", "-l", str(loops)), sample(name), 1.0)])


@pytest.mark.parametrize("rate", [1e5, 1e7, 1e9])
def test_a_turn_has_as_many_system_calls_as_fill_it_on_every_stack(rate: float) -> None:
    inside = calling(rate)
    raw = runs_of(SystemCalls(1.0), inside)
    assert [(each.label, each.warm_up) for each in raw] == [("rate", number == 0) for number in range(11)]
    assert inside.calls[-1][:-1] == ("perf", "bench", "syscall", "basic", "-l")
    assert [int(call[-1]) for call in inside.calls[-10:]] == 10 * [pytest.approx(0.1 * rate, rel=0.01)]
    assert len(inside.calls) <= 14
    assert turns_of(SystemCalls(1.0), raw) == pytest.approx(10 * (rate,), rel=0.01)


def test_more_calls_than_perf_can_count_are_never_asked_for() -> None:
    inside = calling(1e12)
    measuring = iter(SystemCalls(3600.0).measure(running_in(inside)))
    for _ in range(3):
        next(measuring)
    assert max(int(call[-1]) for call in inside.calls) == 2**31 - 1


@pytest.mark.parametrize(("cpus", "first"), [("0", "0"), ("3", "3"), ("1-3", "1"), ("2,5-7", "2")])
def test_both_processes_are_pinned_to_the_first_cpu_of_the_instance(cpus: str, first: str) -> None:
    raw = runs_of(ContextSwitch(), inside := switching(affinity=cpus))
    assert inside.calls[-1] == ("taskset", "--cpu-list", first, "perf", "bench", "sched", "pipe", "-l", "20000")
    assert turns_of(ContextSwitch(), raw) == pytest.approx(10 * (1e6,))


@pytest.mark.parametrize("text", ["\n", "taskset: failed to get pid 1's affinity\n", ""])
def test_cpus_that_are_not_reported_fail_the_trial(text: str) -> None:
    with pytest.raises(TrialFailed, match="taskset did not print the CPUs"):
        runs_of(ContextSwitch(), switching(affinity=text))


@pytest.mark.parametrize(
    ("workload", "inside", "loops"),
    [
        *((ContextSwitch(repetitions=3), switching(seconds), 20_000) for seconds in (0.0, 0.03, 1.0)),
        *((Hackbench(kinds=("sockets",), repetitions=3), messaging(seconds), 100) for seconds in (0.0, 0.4, 30.0)),
    ],
)
def test_every_stack_runs_the_same_loops_however_slow_its_processes_are(
    workload: Workload, inside: Inside, loops: int
) -> None:
    raw = runs_of(workload, inside)
    assert [int(call[-1]) for call in inside.calls if call[0] != "sh"] == [1, *4 * [loops]]
    assert [each.warm_up for each in raw] == [True, False, False, False]


def test_each_kind_and_number_of_groups_has_its_turns() -> None:
    inside, workload = messaging(), Hackbench(groups=(1, 4), repetitions=3)
    found = runs_of(workload, inside)
    labels = ["sockets 1", "sockets 4", "pipes 1", "pipes 4"]
    assert [each.label for each in found if not each.warm_up] == 3 * labels
    assert [each.label for each in found if each.warm_up] == labels
    command = "perf bench sched messaging -p -g {} -l 100"
    assert [" ".join(call) for call in inside.calls[-2:]] == [command.format(1), command.format(4)]
    values = {(value.metric, value.point): value.turns for value in read_values(workload, found)}
    assert values.keys() == {(kind, groups) for kind in ("sockets", "pipes") for groups in (1.0, 4.0)}
    assert all(turns == pytest.approx(3 * (1e6,)) for turns in values.values())


def test_what_perf_complains_of_is_part_of_the_output() -> None:
    with pytest.raises(TrialFailed, match="SERVER: read: Connection reset by peer"):
        runs_of(Hackbench(), messaging(errors=b"perf: SERVER: read: Connection reset by peer\n"))


# --- kernel build


def built(error: TrialFailed | None = None) -> tuple[Inside, tuple[RawOutput, ...]]:
    """Build in an instance with two CPUs that takes 60 s for it; the build may fail."""

    def answer(argv: tuple[str, ...]) -> Output:
        if error is not None and argv[-1] == "vmlinux":
            raise error
        text = sample("kernel-build/tiny.txt") if argv[0] == "sha256sum" else ""
        return Output(argv, 0, text.encode(), b"", 60.0)

    inside = Inside(answer=answer)
    limits = LimitsCheck(Limits((0, 1), 512 << 20, 4096), ObservedLimits(2, 512 << 20, 4096))
    return inside, tuple(KernelBuild().measure(replace(running_in(inside), limits=limits)))


def test_a_kernel_is_built_as_by_kcbench_with_two_jobs_for_each_cpu() -> None:
    inside, found = built()
    targets = [call[-1] for call in inside.calls if call[0] == "make"]
    assert targets == ["defconfig", "vmlinux", "clean", "vmlinux", "clean", "vmlinux"]
    assert [(each.label, each.warm_up) for each in found] == [
        *((label, True) for label in ("source", "configure")),
        *((f"build {number}", False) for number in (1, 2, 3)),
    ]
    assert found[-1].argv[:4] == ("make", "--silent", "-C", "/srv/tare-kernel-build/source")
    assert found[-1].argv[-2:] == ("-j4", "vmlinux")
    assert read_values(KernelBuild(), found)[0].value == pytest.approx(60.0)


def test_the_image_of_a_build_has_the_room_of_its_configuration() -> None:
    assert (KernelBuild().disk_bytes, KernelBuild("tinyconfig").disk_bytes) == (4 << 30, 2 << 30)
    assert KernelBuild.has_large_packages


@pytest.mark.parametrize(("name", "lack"), [("too-little-memory", "memory"), ("disk-full", "disk")])
def test_a_build_that_lacks_memory_or_disk_reports_it(name: str, lack: str) -> None:
    output = Output(("make",), 2, b"", sample(f"kernel-build/{name}.txt").encode(), 1.0)
    with pytest.raises(TrialFailed) as failure:
        built(TrialFailed("make: exit code 2: Error 1", "make", output))
    assert str(failure.value) == f"the instance has too little {lack} for defconfig: make: exit code 2: Error 1"
    assert failure.value.output == output


@pytest.mark.parametrize(
    "error",
    [
        TrialFailed("make: it is gone"),
        TrialFailed("make: exit code 2", output=Output(("make",), 2, b"", b"init/main.c:1:2: error: #error\n", 1.0)),
        TimedOut("make: 3 s", output=Output(("make",), 2, b"", b"Killed\n", 1.0)),
    ],
)
def test_other_failures_of_a_build_are_reported_as_they_are(error: TrialFailed) -> None:
    with pytest.raises(TrialFailed) as failure:
        built(error)
    assert str(failure.value) == str(error)
