"""System calls by name, page faults and context switches, counted in the kernel by `perf stat` without bpftrace.

It knows no times and no sizes, and not what a file is. Each tracepoint takes perf some 50 ms to leave, so it counts the
calls that have a kind of work (model/work.py) and those that may be on files, and of the others only the sum.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tare.errors import TareError, TrialFailed
from tare.hosts.host import Host, Process
from tare.model.work import OF_CALL
from tare.profiles.counting import EVENTS, STARTING, Traced
from tare.profiles.profile import RECEIVING, SENDING, CallCount

PROGRAM = "perf"
MISSING = (
    "which reads and writes are of files, pipes or the network, and their sizes: bpftrace is not installed",
    "the time that system calls take: bpftrace is not installed",
)
OTHERS = "others"  # the name of calls that were not counted by name
_ENTRY = "syscalls:sys_enter_"
_ALL = "raw_syscalls:sys_enter"
_FAULTS = ("exceptions:page_fault_user", "exceptions:page_fault_kernel")
_SWITCH, _EXEC = "sched:sched_switch", "sched:sched_process_exec"
_FORK = "sched:sched_process_fork"
# What the kernel calls differently in its tracepoints.
_NAMES = {"stat": "newstat", "lstat": "newlstat", "fstat": "newfstat", "sendfile": "sendfile64"}
_SHARE = 0.03  # of the time: it slows a busy application by a third at most
_START_SECONDS, _END_SECONDS = 60.0, 120.0
_MOMENT_SECONDS = 0.05
# perf starts to count when it starts this, and ends when it has read a line.
_HELD = "echo started; read -r line"


def events() -> tuple[str, ...]:
    """Return the tracepoints to count, of those that this machine shows."""
    calls = sorted({*OF_CALL, *RECEIVING, *SENDING, *STARTING, "connect"})
    wanted = (*(_ENTRY + _NAMES.get(call, call) for call in calls), _ALL, *_FAULTS, _SWITCH, _EXEC, _FORK)
    return tuple(event for event in wanted if Path(EVENTS, event.replace(":", "/")).is_dir())


class PerfCounter:
    """Counts, from its making on, until it is asked for the result."""

    def __init__(self, process: Process, seconds: float) -> None:
        self._process = process
        self._seconds = seconds
        self._began = time.monotonic()

    def has_enough(self) -> bool:
        """Wait for a moment; return whether it has counted for its share of the time."""
        time.sleep(_MOMENT_SECONDS)
        return time.monotonic() - self._began >= _SHARE * self._seconds

    def end(self) -> Traced:
        """Stop, and return what was counted; raises TrialFailed."""
        seconds = time.monotonic() - self._began
        self._process.send("end\n")
        lines = []
        try:
            while True:
                lines.append(self._process.read_line(_END_SECONDS).text)
        except TrialFailed:
            return parse_stat("\n".join(lines), seconds)


@contextmanager
def counting(host: Host, pids: Sequence[int], seconds: float) -> Iterator[PerfCounter]:
    """Count the calls of these processes and of what they start; raises TareError where perf refuses."""
    words = ("stat", "--field-separator", ",", "--log-fd", "1", "--event", ",".join(events()))
    with host.spawn(PROGRAM, *words, "--pid", ",".join(map(str, pids)), "--", "sh", "-c", _HELD) as process:
        try:
            while process.read_line(_START_SECONDS).text != "started":
                pass
        except TrialFailed as error:
            raise TareError(f"perf: {(process.errors().splitlines() or [str(error)])[0]}") from error
        yield PerfCounter(process, seconds)


def parse_stat(text: str, seconds: float) -> Traced:
    """Read what `perf stat` printed, with commas; raises TrialFailed where it did not end as it should."""
    counts = {}
    for line in text.splitlines():
        number, _, event, *_ = (*line.split(","), "", "")
        if number.isdigit():
            counts[event] = int(number)
    if _ALL not in counts:
        raise TrialFailed("perf: ended without its counts", "run it again")
    own = {ours: name for name, ours in _NAMES.items()}
    calls = {
        own.get(name := event.removeprefix(_ENTRY), name): number for event, number in counts.items() if _ENTRY in event
    }
    calls[OTHERS] = max(0, counts[_ALL] - sum(calls.values()))
    threads = calls.get("clone3", 0)
    return Traced(
        seconds=seconds,
        total=counts[_ALL],
        calls=tuple(CallCount(name, number) for name, number in calls.items() if number),
        faults=sum(counts[event] for event in _FAULTS) if {*_FAULTS} <= counts.keys() else None,
        waits=counts.get(_SWITCH, 0),
        preemptions=None,
        programs=counts.get(_EXEC, 0),
        # glibc starts threads by clone3, and processes by the others.
        processes=max(0, counts.get(_FORK, 0) - threads),
        threads=threads,
    )
