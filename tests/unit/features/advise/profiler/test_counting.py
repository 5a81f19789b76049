"""What bpftrace prints, captured from a server and a pipeline, and the program that bpftrace is given."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tare.features.advise.profiler.bpftrace import (
    PACKETS,
    CountingSchedule,
    build_program,
    counting_problem,
    find_uncountable,
    schedule_for,
)
from tare.features.advise.profiler.bpftrace_output import (
    is_tick,
    parse_cost,
    parse_maps,
    parse_trace_counts,
)
from tare.features.advise.profiler.profile import CallCount, TraceCounts
from tare.features.advise.profiler.system_calls import NAMES, name_of, numbers_of
from tare.model.architecture import ARM64, X86_64, Architecture
from tare.model.errors import TrialFailed

SAMPLES = Path(__file__).parents[4] / "samples" / "profile"
NEEDED = frozenset(
    {
        *("raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "sched:sched_switch"),
        *("sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit"),
    }
)
OF_MACHINE = "pid:[4026531836]"


SCHEDULE = CountingSchedule(seconds=8.0, max_calls=1000, calls_per_slot=125)


def program(available: frozenset[str] = NEEDED, *, has_btf: bool) -> str:
    return build_program([7], available, has_btf=has_btf, schedule=SCHEDULE, architecture=X86_64)


def captured(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def traced(name: str) -> TraceCounts:
    return parse_trace_counts(captured(name), 9.0, X86_64)


def of(found: TraceCounts, call: str, on: str = "", failed: bool = False) -> CallCount:
    (one,) = (each for each in found.calls if (each.call, each.on, each.failed) == (call, on, failed))
    return one


def test_reads_and_writes_of_a_server_are_those_of_its_network() -> None:
    found = traced("redis.jsonl")
    read, write = of(found, "read", "network"), of(found, "write", "network")
    assert read.bytes == pytest.approx(36 * read.count)  # a GET of redis-benchmark; each sum is rounded
    assert write.bytes == pytest.approx(5 * write.count)  # and its answer, `$-1`
    assert read.pieces == read.count
    assert write.seconds is not None
    assert read.seconds is not None
    assert write.seconds > read.seconds
    assert of(found, "epoll_wait").bytes is None


def test_a_program_that_ended_itself_has_the_time_of_the_kernel_clock() -> None:
    assert traced("redis.jsonl").seconds == pytest.approx(1.300012889)
    assert traced("pipeline.jsonl").seconds == 9.0


def test_files_pipes_devices_and_sockets_of_a_pipeline_are_told_apart() -> None:
    found = traced("pipeline.jsonl")  # three times: dd | gzip | wc, then Python with a file, two sockets and a thread
    zeros = of(found, "read", "device")
    assert (zeros.count, zeros.bytes, zeros.pieces) == (300, 300 * 4096, 300)
    assert of(found, "write", "pipe").bytes == 1231836
    assert of(found, "write", "file").bytes == 300_000
    assert (of(found, "sendto", "network").count, of(found, "sendto", "network").bytes) == (6, 3 * 5005)
    assert (of(found, "sendto", "local").count, of(found, "recvfrom", "local").bytes) == (3, 3)
    assert of(found, "accept4", "network").count == 3
    assert of(found, "accept4", "network").bytes is None  # it returns a number of a file
    assert of(found, "fsync").count == 3


def test_processes_threads_and_programs_that_start_are_counted_apart() -> None:
    found = traced("pipeline.jsonl")
    assert (found.processes, found.threads, found.programs) == (132, 3, 126)
    assert (found.faults, found.waits, found.preemptions) == (29805, 428, 1179)


def test_calls_that_failed_are_apart() -> None:
    found = traced("pipeline.jsonl")
    assert of(found, "openat").count == 2506
    assert of(found, "openat", failed=True).count == 3312


def test_sums_over_windows_are_scaled_to_the_number_of_all_calls() -> None:
    # The windows stand for 70,352 calls of 97,254: the server was slower in them, and they are a sample.
    found = traced("redis.jsonl")
    assert found.total == pytest.approx(97254, abs=10)
    assert of(found, "write", "network").count == round(32315 * 97254 / 70352)
    assert (
        traced("pipeline.jsonl").total == 32923 - 136
    )  # 135 ends of processes and threads, and a read, did not return


def test_the_cost_is_that_of_counted_calls_and_of_all_others() -> None:
    assert parse_cost(captured("redis.jsonl")) == pytest.approx(4444 * 2e-6 + 97254 * 0.4e-6)
    assert parse_cost("") == 0.0


def test_ip_versions_are_merged_and_unnumbered_calls_return_from_a_signal() -> None:
    text = (
        '{"type": "map", "data": {"@slots": 1}}\n'
        '{"type": "map", "data": {"@calls":'
        ' {"0,49154,0": 2, "0,49162,0": 1, "-1,0,0": 7, "0,49168,0": 5, "47,49154,1": 1}}}\n'
        '{"type": "map", "data": {"@times":'
        ' {"0,49154,0": 6, "0,49162,0": 6, "-1,0,0": 7, "0,49168,0": 5, "47,49154,1": 1}}}\n'
        '{"type": "map", "data": {"@bytes": {"0,49154": 20, "0,49162": 5, "0,49168": 1}}}\n'
        '{"type": "map", "data": {"@pieces": {"0,49154": 2, "0,49162": 1, "0,49168": 5}}}\n'
    )
    assert parse_trace_counts(text, 1.0, X86_64).calls == (
        CallCount("rt_sigreturn", 7, seconds=7e-9),
        CallCount("read", 5, "other", seconds=5e-9, bytes=1, pieces=5),
        CallCount("read", 3, "network", seconds=1.2e-8, bytes=25, pieces=3),
        CallCount("recvmsg", 1, "network", failed=True, seconds=1e-9),
    )


def test_calls_that_pass_several_messages_have_their_number_and_no_bytes() -> None:
    text = (
        '{"type": "map", "data": {"@slots": 1}}\n'
        '{"type": "map", "data": {"@calls": {"299,49154,0": 2}, "@times": {"299,49154,0": 6}}}\n'
        '{"type": "map", "data": {"@bytes": {"299,49154": 40}}}\n'
    )
    (call,) = parse_trace_counts(text, 1.0, X86_64).calls
    assert (call.call, call.count, call.bytes, call.pieces) == ("recvmmsg", 2, None, 40)


def test_a_process_that_did_nothing_has_no_calls() -> None:
    found = parse_trace_counts('{"type": "map", "data": {"@slots": 1}}\n', 2.0, X86_64)
    assert found == TraceCounts(2.0, (), 0, 0, 0, 0, 0, 0, packets=0)
    assert found.total == 0


def test_packets_that_the_program_does_not_count_are_unknown() -> None:
    text = '{"type": "map", "data": {"@slots": 1, "@faults": 3, "@packets": 5}}\n'
    assert parse_trace_counts(text, 2.0, X86_64, program(has_btf=True)).packets is None
    found = parse_trace_counts(text, 2.0, X86_64, program(NEEDED | {PACKETS}, has_btf=True))
    assert (found.faults, found.packets) == (3, 5)


@pytest.mark.parametrize("text", ["", "Killed", '{"type": "attached_probes", "data": {"probes": 11}}', "[1]"])
def test_a_program_that_was_killed_has_no_counts(text: str) -> None:
    with pytest.raises(TrialFailed, match="ended without its counts"):
        parse_trace_counts(text, 1.0, X86_64)


def test_a_tick_is_told_from_maps_and_other_lines() -> None:
    assert is_tick('{"type": "printf", "data": "tick\\n"}')
    assert not is_tick('{"type": "map", "data": {"@slots": 1}}')
    assert not is_tick("not JSON")
    assert not is_tick('{"type": "printf", "data": "end\\n"}')
    assert parse_maps('{"type": "map", "data": {"@slots": 1}}') == {"@slots": 1}
    assert parse_maps('{"type": "attached_probes", "data": {"probes": 11}}') == {}


def test_the_program_starts_with_processes_and_ends_in_time() -> None:
    text = build_program([7, 8], NEEDED, has_btf=True, schedule=SCHEDULE, architecture=X86_64)
    assert "@member[(uint64)7] = 1; @member[(uint64)8] = 1; }" in text.splitlines()[0]
    assert "nsecs - @began >= 8000000000 || @seen > 1000" in text
    assert "curtask" in text
    assert "curtask" not in program(has_btf=False)


def test_system_calls_are_attached_last_and_only_the_tick_after_them() -> None:
    lines = program(has_btf=True).splitlines()
    assert [line.partition(" ")[0] for line in lines[-5:]] == [
        "software:page-faults:1",
        "tracepoint:raw_syscalls:sys_exit",
        "tracepoint:raw_syscalls:sys_enter",
        "interval:ms:100",
        "END",
    ]


def test_calls_have_the_numbers_of_the_architecture() -> None:
    assert "args->ret == 0 && ((args->id >= 56 && args->id <= 58) || args->id == 435)" in program(has_btf=False)
    text = build_program([7], NEEDED, has_btf=False, schedule=SCHEDULE, architecture=ARM64)
    assert "args->ret == 0 && (args->id == 220 || args->id == 435)" in text  # there, it has no fork and no vfork


def test_what_a_machine_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bpftrace").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert counting_problem(NEEDED, OF_MACHINE) == ""
    assert counting_problem(NEEDED - {"sched:sched_switch"}, OF_MACHINE).endswith("no tracepoint sched:sched_switch")
    monkeypatch.setenv("PATH", "")
    assert counting_problem(NEEDED, OF_MACHINE) == "bpftrace is not installed"
    assert "in a container" in counting_problem(NEEDED, "pid:[4026532192]")
    assert find_uncountable(NEEDED | {PACKETS}, has_btf=True) == ()
    assert [each.partition(":")[0] for each in find_uncountable(NEEDED, has_btf=False)] == [
        "packets, and which reads and writes are of files, pipes or the network",
        "packets",
    ]


def test_a_minute_has_room_for_75000_calls_in_its_600_slots() -> None:
    schedule = schedule_for(60.0)
    assert schedule.seconds == 60.0
    assert 600 * schedule.calls_per_slot == 75_000
    assert schedule.max_calls == 1_500_000  # of 0.4 us: 1 % of a minute


# --- names -----------------------------------------------------------------------------------------------------------


def test_system_calls_have_the_names_of_the_architecture() -> None:
    old = {X86_64: (0, 59, 232, 281, 288, 334), ARM64: (63, 221, 260, 22, 242, 293)}
    assert [NAMES[X86_64][number] for number in old[X86_64]] == [
        *("read", "execve", "epoll_wait", "epoll_pwait", "accept4", "rseq"),
    ]
    assert [NAMES[ARM64][number] for number in old[ARM64]] == [
        *("read", "execve", "wait4", "epoll_pwait", "accept4", "rseq"),
    ]
    for names in NAMES.values():
        assert [names[number] for number in (424, 435, 439, 449, 462)] == [
            *("pidfd_send_signal", "clone3", "faccessat2", "futex_waitv", "mseal"),
        ]


@pytest.mark.parametrize("architecture", [X86_64, ARM64], ids=repr)
def test_numbers_are_those_of_the_compilers_headers(architecture: Architecture) -> None:
    if not (compiler := shutil.which(f"{architecture.gnu}-gcc")):
        pytest.skip(f"{architecture.gnu}-gcc is not installed")
    names = {name: number for number, name in NAMES[architecture].items()}
    lines = ("#include <asm/unistd.h>", *(f"{name} = __NR_{name}" for name in names))
    output = subprocess.run(
        (compiler, "-E", "-P", "-"), input="\n".join(lines), capture_output=True, check=True, text=True
    )
    found = dict(line.split(" = ") for line in output.stdout.splitlines() if " = " in line)
    known = {name: int(number) for name, number in found.items() if number.isdigit()}  # Debian's are of Linux 6.1
    assert len(known) > 300
    assert known == {name: names[name] for name in known}


def test_an_architecture_may_lack_system_calls() -> None:
    assert numbers_of({"fork", "clone", "clone3"}, X86_64) == [56, 57, 435]
    assert numbers_of({"fork", "clone", "clone3"}, ARM64) == [220, 435]


def test_a_system_call_of_a_newer_kernel_has_its_number() -> None:
    assert name_of(999, ARM64) == "call-999"
    assert name_of(250, ARM64) == "call-250"  # between recvmmsg and wait4
    assert name_of(-1, ARM64) == "rt_sigreturn"
