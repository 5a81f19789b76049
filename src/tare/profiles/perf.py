"""System calls by name, page faults and context switches, counted in the kernel by `perf stat` without bpftrace.

It knows no times and no sizes, and not what a file is. Each tracepoint takes perf some 50 ms to leave, so it counts by
name the calls that have a kind of work (model/work.py) and those that pass data, and of the others the sum.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tare.errors import TareError, TrialFailed
from tare.hosts.host import Host, Process
from tare.model.work import OF_CALL
from tare.profiles.bpftrace_output import CALL_SECONDS
from tare.profiles.counting import EVENTS, FAULTS
from tare.profiles.profile import RECEIVING, SENDING, STARTING, CallCount, Traced

PROGRAM = "perf"
MISSING = (
    "which reads and writes are of files, pipes or the network, and their sizes: bpftrace is not installed",
    "the time that system calls take: bpftrace is not installed",
)
OTHERS = "others"  # the name of calls that are not counted by name
_ENTRY = "syscalls:sys_enter_"
_ALL = "raw_syscalls:sys_enter"
_SWITCH, _EXEC, _FORK = "sched:sched_switch", "sched:sched_process_exec", "sched:sched_process_fork"
# Calls that the kernel's tracepoints name otherwise.
_NAMES = {"stat": "newstat", "lstat": "newlstat", "sendfile": "sendfile64"}
_SHARE = 0.02  # of the time: it slows a busy application by a third at most
_START_SECONDS, _END_SECONDS = 60.0, 120.0
_MOMENT_SECONDS = 0.05
# perf begins to count when it starts this, and ends when this has read a line.
_HELD = "echo started; read -r line"


def events() -> tuple[str, ...]:
    """Return the tracepoints to count, of those that this machine shows."""
    calls = sorted({*OF_CALL, *RECEIVING, *SENDING, *STARTING, "connect"})
    wanted = (*(_ENTRY + _NAMES.get(call, call) for call in calls), _ALL, *FAULTS, _SWITCH, _EXEC, _FORK)
    return tuple(event for event in wanted if Path(EVENTS, event.replace(":", "/")).is_dir())


class PerfCounter:
    """Counts, from its making on, until it is asked for the result."""

    start_seconds = 0.0  # it compiles nothing
    cost_seconds = 0.0

    def __init__(self, process: Process, seconds: float) -> None:
        self._process = process
        self._wanted_seconds = _SHARE * seconds
        self._began = time.monotonic()

    def has_enough(self) -> bool:
        """Wait for a moment; return whether it has counted for its share of the time."""
        time.sleep(_MOMENT_SECONDS)
        return time.monotonic() - self._began >= self._wanted_seconds

    def end(self) -> Traced:
        """Stop, and return what was counted; raises TrialFailed."""
        self._process.send("end\n")
        seconds, lines = time.monotonic() - self._began, []
        try:
            while True:
                lines.append(self._process.read_line(_END_SECONDS).text)
        except TrialFailed:
            found = parse_stat("\n".join(lines), seconds)
            self.cost_seconds = found.total * CALL_SECONDS
            return found


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
    lines = [line.split(",") for line in text.splitlines()]
    counts = {words[2]: int(words[0]) for words in lines if len(words) > 2 and words[0].isdigit()}
    if _ALL not in counts:
        raise TrialFailed("perf: ended without its counts", "run it again")
    usual = {theirs: name for name, theirs in _NAMES.items()}
    calls = {event.removeprefix(_ENTRY): number for event, number in counts.items() if event.startswith(_ENTRY)}
    named = [CallCount(usual.get(name, name), number) for name, number in calls.items() if number]
    others = CallCount(OTHERS, max(0, counts[_ALL] - sum(calls.values())))
    threads = calls.get("clone3", 0)  # by which glibc starts threads, and processes by the others
    return Traced(
        seconds=seconds,
        calls=tuple(sorted((*named, others), key=lambda each: (-each.count, each.call))),
        faults=sum(counts[event] for event in FAULTS) if counts.keys() >= {*FAULTS} else None,
        waits=counts.get(_SWITCH, 0),
        preemptions=None,
        programs=counts.get(_EXEC, 0),
        processes=max(0, counts.get(_FORK, 0) - threads),
        threads=threads,
    )
