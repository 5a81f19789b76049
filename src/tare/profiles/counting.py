"""System calls by name and kind of file, page faults, context switches: counted in the kernel, by bpftrace.

The kernel calls a program of ours at its tracepoints, which adds up; nothing is handed to user space but the sums. It
follows forks from the processes that it starts with. Any tracepoint at system calls makes those of all processes
slower, by about 0.3 µs each, and those that are counted by 1 to 2 µs. So a busy application is counted for a short
time.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tare.errors import TareError, TrialFailed
from tare.hosts.host import Host, Process
from tare.profiles.calls import NUMBERS, name_of
from tare.profiles.kernel_types import Offsets
from tare.profiles.profile import RECEIVING, SENDING, SEVERAL, STARTING, CallCount, On, Traced

_Number = TypeVar("_Number", int, float)

PROGRAM = "bpftrace"
EVENTS = "/sys/kernel/tracing/events"
_START_SECONDS = 120.0  # it compiles the program first, and lets others go first
_ANSWER_SECONDS = 30.0
_TICK_MILLISECONDS = 50
CALL_SECONDS = 2e-6  # what counting one system call takes, at most (tests/bench/profile_effect.py)
_SHARE = 0.0025
_OF_MACHINE = "pid:[4026531836]"  # the same on every machine: include/linux/proc_ns.h of Linux
# While it compiles, it gives way to others of its session; and its session, of which it is alone, to other sessions.
_GIVES_WAY = ("sh", "-c", '{ echo 10 > /proc/self/autogroup; } 2>/dev/null; exec nice -n 10 "$@"', "sh")
_KEYS = "BPFTRACE_MAP_KEYS_MAX=16384"  # processes and threads that it can follow

_ON_FILES = RECEIVING | SENDING | {"accept", "accept4", "connect"}  # their first argument is an open file
FAULTS = ("exceptions:page_fault_user", "exceptions:page_fault_kernel")
PACKETS = "net:net_dev_queue"
_NEEDED = (
    *("raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "sched:sched_switch"),
    *("sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit"),
)

_SOCKET = 0xC000  # the kind of a file, as in st_mode of inode(7); of sockets, their family comes on top
_KINDS: Mapping[int, On] = {
    0x1000: "pipe",
    0x2000: "device",
    0x6000: "file",  # of a disk
    0x8000: "file",
    _SOCKET + 1: "local",
    _SOCKET + 2: "network",
    _SOCKET + 10: "network",
}


def show_tracepoints(host: Host) -> None:
    """Mount the kernel's tracepoints, unless they are; this process is in a mount namespace of its own."""
    if not Path(EVENTS).is_dir():
        host.run("mount", "-t", "tracefs", "tare-tracing", str(Path(EVENTS).parent), timeout=10.0, check=False)


def most_calls(seconds: float) -> int:
    """Return how many calls may be counted, so that counting costs a quarter percent of so many seconds of a CPU."""
    return round(_SHARE * seconds / CALL_SECONDS)


def tracing_problem(known: Collection[str], namespace: str) -> str:
    """Return why nothing can be traced with these tracepoints; empty if it can be.

    `namespace` is that of this process's numbers. The kernel's programs see the machine's own.
    """
    if namespace != _OF_MACHINE:
        return "tare runs in a container, where processes have other numbers than the kernel counts by"
    lacking = [event for event in _NEEDED if event not in known]
    return f"the kernel shows no tracepoint {lacking[0]}" if lacking else ""


def missing(known: frozenset[str], typed: bool) -> tuple[str, ...]:
    """Return what cannot be counted with these tracepoints, and with or without the kernel's types."""
    what = "packets, and which reads and writes are of files, pipes or the network: the kernel has no BTF"
    unknown = [] if typed else [what]
    unknown += [] if known >= {*FAULTS} else ["page faults: the kernel has no tracepoint for them"]
    unknown += [] if PACKETS in known else ["packets: the kernel has no tracepoint for them"]
    return tuple(unknown)


def tracepoints() -> frozenset[str]:
    """Return the tracepoints that are needed, of those that this machine shows."""
    return frozenset(event for event in (*_NEEDED, *FAULTS, PACKETS) if Path(EVENTS, event.replace(":", "/")).is_dir())


def program(pids: Sequence[int], known: frozenset[str], places: Offsets | None, most: int) -> str:
    """Return the program for these processes and all that they start. It ends itself after so many system calls.

    `places` are those of fields in the kernel's structures; without them it counts less. bpftrace attaches the probes
    in this order. Counting begins with the first system call or tick, when all are.
    """
    ours = "/@member[pid] && @on/"
    faults = (f"tracepoint:{event} {ours} {{ @faults = count(); }}" for event in FAULTS if event in known)
    packets = [f"tracepoint:{PACKETS} {ours} {{ {_packet(places)} }}"] if places and PACKETS in known else []
    # Who is still runnable has the state 0, or 256 if another thread took the CPU.
    waits = "(args->prev_state & 0xff) > 0"
    return "\n".join(
        (
            "BEGIN { " + " ".join(f"@member[(uint64){pid}] = 1;" for pid in pids) + " }",
            "tracepoint:sched:sched_process_fork /@member[pid]/ { @member[(uint64)args->child_pid] = 1; }",
            "tracepoint:sched:sched_process_exit /@member[tid]/ { delete(@member[tid]); }",
            f"tracepoint:sched:sched_process_exec {ours} {{ @programs = count(); }}",
            f"tracepoint:sched:sched_switch {ours} {{ @switches[{waits}] = count(); }}",
            *faults,
            *packets,
            f"tracepoint:raw_syscalls:sys_exit /@member[pid]/ {{ {_exit(places is not None)} }}",
            f"tracepoint:raw_syscalls:sys_enter /@member[pid]/ {{ {_enter(places, most)} }}",
            f'interval:ms:{_TICK_MILLISECONDS} {{ if (@ended == 0) {{ @on = 1; }} printf("tick\\n"); }}',
            f"END {{ clear(@member); clear(@at); {'clear(@kind); ' if places else ''}}}",
        )
    )


def _packet(places: Offsets) -> str:
    # A bridge hands a packet on to its port, which has a handler: the packet counts once.
    handler = _at(_at("args->skbaddr", places["sk_buff", "dev"]), places["net_device", "rx_handler"])
    return f"if ({handler} == 0) {{ @packets = count(); }}"


def _enter(places: Offsets | None, most: int) -> str:
    begin = "if (@began == 0) { @began = nsecs; @on = 1; } @at[tid] = nsecs;"
    # CPUs that add at the same time lose some of this sum. It only ends counting: the counts lose none.
    stop = "if (@ended == 0) { @ended = nsecs; @on = 0; exit(); } delete(@member[pid]); delete(@at[tid]);"
    end = f"@sum++; if (@sum > {most}) {{ {stop} }}"
    if places is None:
        return f"{begin} {end}"
    table = _at(_at("curtask", places["task_struct", "files"]), places["files_struct", "fdt"])
    mode = _at(_at("$file", places["file", "f_inode"]), places["inode", "i_mode"], "uint16")
    sock = _at(_at("$file", places["file", "private_data"]), places["socket", "sk"])
    family = _at(sock, places["sock_common", "skc_family"], "uint16")
    return (
        f"{begin} if ({_is_one_of(_ON_FILES)}) {{"
        f" $file = *(uint64 *)({_at(table, places['fdtable', 'fd'])} + 8 * args->args[0]);"
        f" $kind = (uint64)({mode} & 0xf000);"
        f" if ($kind == {_SOCKET}) {{ $kind += (uint64){family}; }}"
        f" @kind[tid] = $kind; }} {end}"
    )


def _at(address: str, offset: int, what: str = "uint64") -> str:
    """Return what lies in the kernel's memory so many bytes after an address."""
    return f"*({what} *)((uint64){address} + {offset})"


def _exit(typed: bool) -> str:
    # A new process or thread returns from the call that made it, with 0.
    born = f"if (args->ret == 0 && ({_is_one_of(STARTING)})) {{ @born[pid == tid] = count(); }}"
    kind = "@kind[tid]" if typed else "0"
    sizes = (
        f" if ({kind} > 0 && args->ret > 0) {{"
        f" @bytes[args->id, {kind}] = sum(args->ret);"
        f" @pieces[args->id, {kind}] = sum((args->ret + 4095) >> 12); }} delete(@kind[tid]);"
    )
    return (
        f"{born} if (@at[tid] > 0) {{"
        f" @calls[args->id, {kind}, args->ret < 0] = stats(nsecs - @at[tid]);"
        f"{sizes if typed else ''} delete(@at[tid]); }}"
    )


def _is_one_of(calls: Collection[str]) -> str:
    """Return the condition that a call is one of these, as few comparisons of ranges."""
    numbers = sorted(NUMBERS[call] for call in calls)
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = (f"args->id == {a}" if a == b else f"(args->id >= {a} && args->id <= {b})" for a, b in ranges)
    return " || ".join(texts)


class Counter:
    """Counts, from its making on, until it is asked for the result. `start_seconds` are the CPU time until then."""

    def __init__(self, process: Process, first: str, source: str) -> None:
        self._process = process
        self._source = source
        self._began = time.monotonic()
        self._lines = [first]
        self.start_seconds = _cpu_seconds(process.pid)

    def has_enough(self) -> bool:
        """Wait for the next tick, a twentieth of a second; return whether the program has ended itself."""
        if not is_tick(self._lines[-1]):
            return True
        try:
            self._lines.append(self._process.read_line(_ANSWER_SECONDS).text)
        except TrialFailed:
            return True
        return not is_tick(self._lines[-1])

    def end(self) -> Traced:
        """Stop, and return what was counted; raises TrialFailed."""
        seconds = time.monotonic() - self._began
        if is_tick(self._lines[-1]):  # a program that ends itself dies of a signal before it has printed its counts
            os.kill(self._process.pid, signal.SIGINT)
        with suppress(TrialFailed):
            while True:
                self._lines.append(self._process.read_line(_ANSWER_SECONDS).text)
        return parse_traced("\n".join(self._lines), seconds, self._source)


@contextmanager
def counting(host: Host, text: str) -> Iterator[Counter]:
    """Run a program until the end of the block; raises TareError where bpftrace refuses it."""
    with host.spawn(*_GIVES_WAY, "env", _KEYS, PROGRAM, "-f", "json", "-e", text) as process:
        try:
            line = process.read_line(_START_SECONDS).text
            while not (is_tick(line) or maps_in(line)):  # the first of either: all is attached
                line = process.read_line(_START_SECONDS).text
        except TrialFailed as error:
            lines = [line for line in process.errors().splitlines() if "RLIMIT_MEMLOCK" not in line]
            raise TareError(f"bpftrace: {lines[0] if lines else error}") from error
        with suppress(OSError):  # it has ended itself, or the kernel has no such groups
            os.setpriority(os.PRIO_PROCESS, process.pid, 0)  # so that it stops when it is asked to
            Path(f"/proc/{process.pid}/autogroup").write_text("0", encoding="ascii")
        yield Counter(process, line, text)


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far; 0 for one that has ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def is_tick(line: str) -> bool:
    """Return whether a line is one that the program prints again and again."""
    return _parsed(line).get("type") == "printf"


def maps_in(line: str) -> dict[str, Any]:
    """Return the maps in a line of bpftrace's JSON, by name; none in any other line."""
    data = _parsed(line).get("data")
    return {name: each for name, each in data.items() if name.startswith("@")} if isinstance(data, dict) else {}


def _parsed(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def parse_traced(text: str, seconds: float, source: str = "@faults @packets") -> Traced:
    """Read what bpftrace printed in JSON, of a program with this source.

    Raises TrialFailed where it did not end as it should.
    """
    maps: dict[str, Any] = {}
    for line in text.splitlines():
        maps |= maps_in(line)
    if "@on" not in maps:
        raise TrialFailed("bpftrace: ended without its counts", "run it again")
    try:
        return _traced(maps, seconds, source)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise TrialFailed(f"bpftrace: its counts cannot be read: {error!r:.80}", "run it again") from error


def _traced(maps: Mapping[str, Any], seconds: float, source: str) -> Traced:
    if maps.get("@ended"):  # by itself: the kernel's clock has its beginning and its end
        seconds = (maps["@ended"] - maps["@began"]) / 1e9
    calls = sorted(_calls(maps), key=lambda each: (-each.count, each.call, each.on, each.failed))
    switches, born = maps.get("@switches", {}), maps.get("@born", {})
    return Traced(
        seconds=seconds,
        calls=tuple(calls),
        faults=int(maps.get("@faults", 0)) if "@faults" in source else None,
        waits=int(switches.get("1", 0)),
        preemptions=int(switches.get("0", 0)),
        programs=int(maps.get("@programs", 0)),
        processes=int(born.get("1", 0)),
        threads=int(born.get("0", 0)),
        packets=int(maps.get("@packets", 0)) if "@packets" in source else None,
    )


def _calls(maps: Mapping[str, Any]) -> Iterator[CallCount]:
    """Add up calls of one name and kind of file: the kernel has several kinds of disks' files and network sockets."""
    found: dict[tuple[str, On, bool], list[CallCount]] = {}
    for key, stats in maps.get("@calls", {}).items():
        number, kind, failed = key.split(",")
        name, on, size = name_of(int(number)), _on(int(kind)), f"{number},{kind}"
        sized = on and failed == "0" and (name in RECEIVING or name in SENDING)
        passed, pieces = (maps.get(each, {}).get(size, 0) if sized else None for each in ("@bytes", "@pieces"))
        if name in SEVERAL:
            passed, pieces = None, passed
        call = CallCount(name, stats["count"], on, failed == "1", stats["total"] / 1e9, passed, pieces)
        found.setdefault((name, on, call.failed), []).append(call)
    for (name, on, failed_), calls in found.items():
        yield CallCount(
            name,
            sum(each.count for each in calls),
            on,
            failed_,
            _sum(each.seconds for each in calls),
            _sum(each.bytes for each in calls),
            _sum(each.pieces for each in calls),
        )


def _sum(amounts: Iterable[_Number | None]) -> _Number | None:
    """Add up; None if any is unknown."""
    known = list(amounts)
    return None if None in known else sum(amount for amount in known if amount is not None)


def _on(kind: int) -> On:
    return _KINDS.get(kind, "other") if kind else ""
