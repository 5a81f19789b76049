"""Counter by bpftrace: system calls by name and type of file, page faults and context switches, added up in the kernel.

The kernel runs tare's program at tracepoints, and user space reads only the sums. The program follows forks from the
processes that it starts with. A tracepoint at system calls makes system calls of all processes slower by about 0.25 µs,
those of the application by 0.4 µs, and by 1 to 2 µs more if they are counted. So the program counts a busy application
in short windows: each slot of a tenth of a second has a window at a random position, and a call in a window that is 1/n
of its slot counts n times. The program chooses n before the window begins, from the number of calls in all earlier
slots. So the sums are unbiased for any application, even if it works in bursts. The total number of calls is counted
exactly, and scales the sums.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tare.features.advise.profiler.bpftrace_output import (
    ATTACHED_SECONDS,
    CALL_SECONDS,
    SOCKET,
    is_tick,
    parse_cost,
    parse_maps,
    parse_trace_counts,
)
from tare.features.advise.profiler.profile import RECEIVING, SENDING, STARTING, TraceCounts
from tare.features.advise.profiler.system_calls import numbers_of
from tare.hosts.host import Host, Process
from tare.model.architecture import Architecture, this_architecture
from tare.model.errors import TareError, TimedOut, TrialFailed

PROGRAM = "bpftrace"
EVENTS_FOLDER = "/sys/kernel/tracing/events"
BTF_FILE = Path("/sys/kernel/btf/vmlinux")  # the kernel's type information, where bpftrace finds fields of structures
_START_TIMEOUT_SECONDS = 120.0  # bpftrace compiles the program first
_LOW_PRIORITY_SECONDS = 2.0  # on an idle machine, bpftrace starts within a second even at low priority
_LINE_TIMEOUT_SECONDS = 30.0
_SLOT_SECONDS = 0.1
_COUNTING_CPU_SHARE, _ATTACHED_CPU_SHARE = 0.0025, 0.01  # of a CPU: budgets for counted and for uncounted calls
# bpftrace takes the type of a map from its first use.
_BEGIN = "BEGIN { @seen = 0; @sum = 0; @counted = 0; @slots = 0; @weight = 0; @ended = (uint64)0; @until = (uint64)0; "
_IN_WINDOW = "nsecs < @until && nsecs >= @from"
_NEVER = f"(uint64){1 << 62}"  # as nanoseconds since the boot
_MAX_WEIGHT = 200  # of a call in a window; the window is then half a millisecond long
_HOST_PID_NAMESPACE = "pid:[4026531836]"  # the same on every machine: include/linux/proc_ns.h of Linux
# `nice` alone yields only within the session: the kernel's autogroups share CPUs between sessions, each with a level.
_LOW_PRIORITY_COMMAND = ("sh", "-c", '{ echo 10 > /proc/self/autogroup; } 2>/dev/null; exec nice -n 10 "$@"', "sh")
_MAP_KEYS_VARIABLE = "BPFTRACE_MAP_KEYS_MAX=16384"  # processes and threads to follow; the default is 4096

_FILE_CALLS = RECEIVING | SENDING | {"accept", "accept4", "connect"}  # their first argument is an open file
# Only x86 has tracepoints for page faults; on it, this event counts as many (6,976 of a program and of the kernel).
_FAULTS = "software:page-faults:1"
PACKETS = "net:net_dev_queue"
# A bridge hands a packet on to its port, which has a handler: the packet counts once.
_PACKET = "if ((uint64)((struct sk_buff *)args->skbaddr)->dev->rx_handler == 0) { @packets = sum(@weight); }"
_NEEDED_TRACEPOINTS = (
    *("raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "sched:sched_switch"),
    *("sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit"),
)


def show_tracepoints(host: Host) -> None:
    """Mount tracefs if it is not mounted; the caller is in a private mount namespace."""
    if not Path(EVENTS_FOLDER).is_dir():
        host.run("mount", "-t", "tracefs", "tare-tracing", str(Path(EVENTS_FOLDER).parent), timeout=10.0, check=False)


@dataclass(frozen=True)
class CountingSchedule:
    """Schedule of the program: its end and its sampling rate. By default, it counts each call until it is stopped.

    The program ends after `seconds`, or after about `max_calls` system calls of the application, counted or not. It
    counts about `calls_per_slot` calls of a slot.
    """

    seconds: float = 1e9
    max_calls: int = 1 << 60
    calls_per_slot: int = 1 << 30


def schedule_for(seconds: float) -> CountingSchedule:
    """Return the schedule for watching an application for `seconds`.

    Counted calls take at most 0.25 % of a CPU, calls that are not counted 1 %. The program ends once 1 % is used up.
    """
    return CountingSchedule(
        seconds=seconds,
        max_calls=round(_ATTACHED_CPU_SHARE * seconds / ATTACHED_SECONDS),
        calls_per_slot=round(_COUNTING_CPU_SHARE * _SLOT_SECONDS / CALL_SECONDS),
    )


def counting_problem(available: Collection[str], namespace: str) -> str:
    """Return why nothing can be counted with these tracepoints; "" if counting is possible.

    `namespace` is the PID namespace of this process. The kernel's programs see PIDs of the initial namespace.
    """
    if namespace != _HOST_PID_NAMESPACE:
        return "tare runs in a container, where processes have other numbers than the kernel counts by"
    if lacking := [event for event in _NEEDED_TRACEPOINTS if event not in available]:
        return f"the kernel shows no tracepoint {lacking[0]}"
    return "" if shutil.which(PROGRAM) else f"{PROGRAM} is not installed"


def find_uncountable(available: frozenset[str], has_btf: bool) -> tuple[str, ...]:
    """Return a text for each figure that cannot be counted with these tracepoints, or without type information."""
    without_btf = "packets, and which reads and writes are of files, pipes or the network: the kernel has no BTF"
    uncountable = [] if has_btf else [without_btf]
    uncountable += [] if PACKETS in available else ["packets: the kernel has no tracepoint for them"]
    return tuple(uncountable)


def find_tracepoints() -> frozenset[str]:
    """Return the tracepoints that the program uses and this machine has."""
    return frozenset(
        event for event in (*_NEEDED_TRACEPOINTS, PACKETS) if Path(EVENTS_FOLDER, event.replace(":", "/")).is_dir()
    )


def build_program(
    pids: Sequence[int],
    available: frozenset[str],
    has_btf: bool,
    schedule: CountingSchedule,
    architecture: Architecture,
) -> str:
    """Return the bpftrace program that counts for these processes and their descendants.

    Without type information (`has_btf`), it counts no packets and no types of files. bpftrace attaches probes in the
    order of the program, so that all probes are attached when the first slot begins.
    """
    filters = f"/@member[pid] && {_IN_WINDOW}/"
    packets = [f"tracepoint:{PACKETS} {filters} {{ {_PACKET} }}"] if has_btf and PACKETS in available else []
    # A thread that is still runnable has the state 0, or 256 if another thread preempted it.
    waits = "(args->prev_state & 0xff) > 0"
    # A new process or thread returns from the call that made it, with 0.
    born = f"(args->ret == 0 && ({_one_of_condition(STARTING, architecture)}))"
    return "\n".join(
        (
            _BEGIN + " ".join(f"@member[(uint64){pid}] = 1;" for pid in pids) + " }",
            "tracepoint:sched:sched_process_fork /@member[pid]/ { @member[(uint64)args->child_pid] = 1; }",
            "tracepoint:sched:sched_process_exit { delete(@member[tid]); delete(@at[tid]); }",
            "tracepoint:sched:sched_process_exec /@member[pid]/ { @programs = count(); }",
            f"tracepoint:sched:sched_switch {filters} {{ @switches[{waits}] = sum(@weight); }}",
            f"{_FAULTS} {filters} {{ @faults = sum(@weight); }}",
            *packets,
            f"tracepoint:raw_syscalls:sys_exit /@at[tid] || {born}/ {{ {_exit_probe_code(has_btf)} }}",
            f"tracepoint:raw_syscalls:sys_enter /@member[pid]/ {{ {_enter_code(has_btf, architecture)} }}",
            f"interval:ms:{round(1000 * _SLOT_SECONDS)} {{ {_slot_code(schedule)} }}",
            f"END {{ clear(@member); clear(@at); {'clear(@kind); ' if has_btf else ''}}}",
        )
    )


def _slot_code(schedule: CountingSchedule) -> str:
    """Return the code at the begin of a slot: add up the last slot, then choose weight and position of the window."""
    length = round(1e9 * _SLOT_SECONDS)
    return (
        "if (@began == 0) { @began = nsecs; }"
        " @seen = @seen + @sum * @weight; @counted = @counted + @sum; @sum = 0;"
        f" if (nsecs - @began >= {round(1e9 * schedule.seconds)} || @seen > {schedule.max_calls}) {{"
        ' if (@ended == 0) { @ended = nsecs; @until = 0; clear(@member); printf("end\\n"); exit(); } }'
        " else { @slots++;"
        f" $weight = (uint64)@seen / ({schedule.calls_per_slot} * (uint64)@slots) + 1;"
        f" if ($weight > {_MAX_WEIGHT}) {{ $weight = (uint64){_MAX_WEIGHT}; }}"
        # A window that is all of its slot stays open: on a busy machine, the next slot may begin late.
        f" if ($weight == 1) {{ if (@weight != 1) {{ @until = 0; @weight = 1; @from = 0; @until = {_NEVER}; }} }}"
        f" else {{ $length = (uint64){length} / $weight;"
        f" @until = 0; @weight = (int64)$weight; @from = nsecs + rand % ({length + 1} - $length);"
        " @until = @from + $length; }"
        ' printf("tick\\n"); }'
    )


def _file_type_code(architecture: Architecture) -> str:
    """Return the code that stores the type of the open file that is a call's first argument."""
    # Pointer arithmetic, because bpftrace indexes arrays only by literals.
    files = "(uint64)((struct task_struct *)curtask)->files->fdt->fd"
    family = "((struct socket *)$file->private_data)->sk->__sk_common.skc_family"
    return (
        f"if ({_one_of_condition(_FILE_CALLS, architecture)}) {{"
        f" $file = (struct file *)*(uint64 *)({files} + 8 * args->args[0]);"
        " $kind = (uint64)($file->f_inode->i_mode & 0xf000);"
        f" if ($kind == {SOCKET}) {{ $kind += (uint64){family}; }}"
        " @kind[tid] = $kind; } "
    )


def _enter_code(has_btf: bool, architecture: Architecture) -> str:
    # CPUs that add to @sum at the same time lose some of it. It only places windows: @total and @entered lose none.
    counted = "@at[tid] = nsecs; @entered = sum(@weight); @sum++;"
    return f"@total = count(); if ({_IN_WINDOW}) {{ {_file_type_code(architecture) if has_btf else ''}{counted} }}"


def _exit_probe_code(has_btf: bool) -> str:
    file_type = "@kind[tid]" if has_btf else "0"
    sizes = (
        f" if ({file_type} > 0 && args->ret > 0) {{"
        f" @bytes[args->id, {file_type}] = sum(args->ret * @weight);"
        f" @pieces[args->id, {file_type}] = sum(((args->ret + 4095) >> 12) * @weight); }} delete(@kind[tid]);"
    )
    return (
        "if (@at[tid] > 0) {"
        f" @calls[args->id, {file_type}, args->ret < 0] = sum(@weight);"
        f" @times[args->id, {file_type}, args->ret < 0] = sum((nsecs - @at[tid]) * @weight);"
        f"{sizes if has_btf else ''} delete(@at[tid]); }}"
        " else { if (@member[pid]) { @born[pid == tid] = count(); } }"
    )


def _one_of_condition(calls: Collection[str], architecture: Architecture) -> str:
    """Return the condition that a call is one of these, as comparisons of ranges: the code runs at every call."""
    ranges: list[list[int]] = []
    for number in numbers_of(calls, architecture):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = (f"args->id == {a}" if a == b else f"(args->id >= {a} && args->id <= {b})" for a, b in ranges)
    return " || ".join(texts)


class BpftraceCounter:
    """Running counter: counts from its creation until `stop`.

    `start_seconds` is the CPU time of bpftrace until then. `cost_seconds` is the CPU time of counting, 0 before `stop`.
    """

    def __init__(self, process: Process, first: str, source: str) -> None:
        self._process = process
        self._source = source
        self._began = time.monotonic()
        self._lines = [first]
        self.start_seconds = _cpu_seconds(process.pid)
        self.cost_seconds = 0.0

    def has_enough(self) -> bool:
        """Wait for the next slot, a tenth of a second; return whether the program has ended itself."""
        if not is_tick(self._lines[-1]):
            return True
        try:
            self._lines.append(self._process.read_line(_LINE_TIMEOUT_SECONDS).text)
        except TrialFailed:
            return True
        return not is_tick(self._lines[-1])

    def stop(self) -> TraceCounts:
        """Stop counting and return the counts; raises TrialFailed."""
        seconds = time.monotonic() - self._began
        if is_tick(self._lines[-1]):  # a signal to a program that is ending would kill it before it prints its counts
            os.kill(self._process.pid, signal.SIGINT)
        with suppress(TrialFailed):
            while True:
                self._lines.append(self._process.read_line(_LINE_TIMEOUT_SECONDS).text)
        text = "\n".join(self._lines)
        self.cost_seconds = parse_cost(text)
        return parse_trace_counts(text, seconds, this_architecture(), self._source)


@contextmanager
def run_bpftrace(host: Host, text: str) -> Iterator[BpftraceCounter]:
    """Context manager: run a program until the end of the block; raises TareError if bpftrace rejects it."""
    with host.spawn(*_LOW_PRIORITY_COMMAND, "env", _MAP_KEYS_VARIABLE, PROGRAM, "-f", "json", "-e", text) as process:
        try:
            line = _await_first_line(process)
            while not (is_tick(line) or parse_maps(line)):  # the first of either comes when all probes are attached
                line = process.read_line(_START_TIMEOUT_SECONDS).text
        except TrialFailed as error:
            # A warning about RLIMIT_MEMLOCK comes first on some machines, and is never the cause.
            lines = [line for line in process.errors().splitlines() if "RLIMIT_MEMLOCK" not in line]
            raise TareError(f"bpftrace: {lines[0] if lines else error}") from error
        _restore_priority(process.pid)  # at low priority, a busy machine would delay its stop
        yield BpftraceCounter(process, line, text)


def _await_first_line(process: Process) -> str:
    """Return the first line; restore normal priority if it takes longer than two seconds, on a busy machine."""
    try:
        return process.read_line(_LOW_PRIORITY_SECONDS).text
    except TimedOut:
        _restore_priority(process.pid)
        return process.read_line(_START_TIMEOUT_SECONDS).text


def _restore_priority(pid: int) -> None:
    with suppress(OSError):  # the process has ended, or the kernel has no autogroups
        os.setpriority(os.PRIO_PROCESS, pid, 0)
        Path(f"/proc/{pid}/autogroup").write_text("0", encoding="ascii")


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0 if the process has ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
