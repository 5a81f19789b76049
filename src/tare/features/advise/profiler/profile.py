"""Profile: resource usage of an application, the file of `tare profile`, and the resulting operation counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tare.model.errors import UsageError, describe_unreadable
from tare.model.files import FileTooLarge, read_bounded
from tare.model.machine import Facts
from tare.model.operations import (
    CALL,
    CONNECTION,
    FAULT,
    FILE_READ,
    FILE_WRITE,
    KIND_BY_CALL,
    MESSAGE,
    OPERATION_KINDS,
    PIPE,
    PROCESS,
    RECEIVED,
    SENT,
    SWITCH,
    THREAD,
    USER,
    OperationKind,
)

FORMAT = 1
_MAX_BYTES = 1 << 20
_HINT = "write it anew: tare profile … > app.json"

Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=1e-9, le=1e18, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1 << 63)]

# Kind of the open file that a call uses. `local` is a Unix socket, `other` an event, a directory, or a socket of
# another family. "" stands for a call without a file, or whose file is unknown.
FileType = Literal["", "file", "pipe", "local", "network", "device", "other"]
Unit = Literal["run", "request", "second"]

RECEIVING = frozenset({"read", "readv", "pread64", "preadv", "preadv2", "recvfrom", "recvmsg", "recvmmsg"})
SENDING = frozenset({"write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "sendfile"})
SEVERAL = frozenset({"recvmmsg", "sendmmsg"})  # they return the number of messages, not of bytes
STARTING = frozenset({"clone", "clone3", "fork", "vfork"})
_ACCEPTING = frozenset({"accept", "accept4"})
# With more accepted connections per request, and at least 20 in all, the stated rate must be wrong.
_MAX_CONNECTIONS_PER_REQUEST, _MIN_CONNECTIONS = 1.1, 20


@dataclass(frozen=True)
class CallCount:
    """Number of system calls of a name on a type of file, which all succeeded or all `failed`.

    `seconds` is time in the kernel, waits included. `bytes` were read or written. `pieces` is the number of parts of at
    most 4 KiB (pages) that the calls passed, or of messages if a call passes several. None stands for unknown.
    """

    call: str
    count: Count
    on: FileType = ""
    failed: bool = False
    seconds: Amount | None = None
    bytes: Count | None = None
    pieces: Count | None = None


@dataclass(frozen=True)
class TraceCounts:
    """Operations of an application in `seconds`; None if this machine cannot count a figure.

    `waits` are context switches of a thread that waited, `preemptions` those of a thread that could have continued.
    `packets` were sent while a thread of the application ran. They include packets that an interrupt sent in its time,
    such as replies over the loopback.
    """

    seconds: Positive
    calls: tuple[CallCount, ...]
    faults: Count | None
    waits: Count
    preemptions: Count
    programs: Count
    processes: Count
    threads: Count
    packets: Count | None = field(default=None, kw_only=True)

    @property
    def total(self) -> int:
        """The number of system calls."""
        return sum(call.count for call in self.calls)


@dataclass(frozen=True)
class Counts(TraceCounts):
    """Operations while the application did `units` of its work."""

    units: Positive


@dataclass(frozen=True)
class Usage:
    """Resource usage of an application by the kernel's accounting; None stands for unknown.

    `resident_bytes` is the maximum, `proportional_bytes` the value at the end, where a page that n processes share
    counts one nth for each. `busiest_thread_seconds` is the CPU time of the thread that used the most.
    """

    user_seconds: Amount
    system_seconds: Amount
    resident_bytes: Count | None = None
    proportional_bytes: Count | None = None
    busiest_thread_seconds: Amount | None = None


@dataclass(frozen=True)
class Profile:
    """Profile of an application that did `units` of work in `seconds`.

    A `unit` is a run of the command, a request, or a second if the work is unknown. `command` is empty if tare did not
    start the application. `counts` is None if system calls could not be counted. `cost` is the share of a CPU that
    counting took over the whole time, and `start_seconds` the CPU time of its start. Both are None for a command, as
    its `usage` is measured in other runs than its `counts`. `missing` and `cautions` are sentences about unknown and
    doubtful figures.
    """

    format: int
    tare: str
    started: str
    name: str
    machine: Facts
    unit: Unit
    units: Positive
    seconds: Positive
    usage: Usage
    command: tuple[str, ...] = ()
    counts: Counts | None = None
    cost: Amount | None = None
    start_seconds: Amount | None = None
    missing: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of a unit of work, in user code and in the kernel."""
        return (self.usage.user_seconds + self.usage.system_seconds) / self.units

    @property
    def elapsed_seconds(self) -> float:
        """Seconds from one unit of work to the next."""
        return self.seconds / self.units


def with_possible_rate(profile: Profile) -> Profile:
    """Return the profile with a possible rate of requests, and a caution if the stated rate contradicts its counts.

    A connection that the server accepts has at least one request. If more connections were accepted than requests
    stated, the rate of connections replaces the stated one. A request has at least one byte. If fewer bytes were
    received, the stated rate stays, as the true one is unknown.
    """
    counts = profile.counts
    if profile.unit != "request" or counts is None:
        return profile
    stated, accepted, factor = profile.units / profile.seconds, _accepted_connections(counts.calls), 1.0
    received = _received_bytes(counts.calls)
    if accepted >= _MIN_CONNECTIONS and accepted > _MAX_CONNECTIONS_PER_REQUEST * counts.units:
        factor = accepted / counts.units
        caution = (
            f"the stated rate of {stated:.4g} requests a second contradicts {factor:.2f} connections accepted for each"
            f" of them: the rate of connections is used in its place, {factor * stated:.4g} a second"
        )
    elif received is not None and received < counts.units:
        caution = (
            f"the stated rate of {stated:.4g} requests a second contradicts {received / counts.units:.2g} bytes"
            " received for each of them: state the rate that the load had meanwhile"
        )
    else:
        return profile
    counts, cautions = replace(counts, units=factor * counts.units), dict.fromkeys((*profile.cautions, caution))
    return replace(profile, counts=counts, units=factor * profile.units, cautions=tuple(cautions))


def _accepted_connections(calls: Iterable[CallCount]) -> int:
    return sum(call.count for call in calls if call.call in _ACCEPTING and call.on == "network" and not call.failed)


def _received_bytes(calls: Iterable[CallCount]) -> int | None:
    """Return the bytes received from other processes, or messages if their bytes are unknown.

    None if some calls hide them (io_uring, splice, or files of unknown type).
    """
    total = 0
    for call in calls:
        if call.call.startswith(("io_uring_", "splice")) or (call.call in RECEIVING and not call.on):
            return None
        if call.call in RECEIVING and call.on in ("network", "local", "pipe"):
            total += (call.pieces if call.bytes is None else call.bytes) or 0
    return total


def count_operations(profile: Profile) -> Mapping[str, float]:
    """Return the number of operations of each kind (model/operations.py) per unit of the application's work.

    A kind that could not be counted is missing. A message is a receive and a send, and each call counts as half; the
    number of packets is used if it is larger. Calls on files of unknown type and failed calls count as `call`.
    """
    user_seconds = {USER.name: profile.usage.user_seconds / profile.units}
    if profile.counts is None:
        return user_seconds
    counts = profile.counts
    totals = {work.name: 0.0 for work in OPERATION_KINDS if work is not USER}
    for call in counts.calls:
        for work, number in _operations_of_call(call):
            totals[work.name] += number
    # The price of an operation includes the call that undoes it (of `open`, the `close`): do not count it twice.
    for undo_call in {work.undo_call for work in OPERATION_KINDS if work.undo_call}:
        done = sum(totals[work.name] for work in OPERATION_KINDS if work.undo_call == undo_call)
        undone = sum(call.count for call in counts.calls if call.call == undo_call and not call.failed)
        totals[CALL.name] -= min(done, undone)
    # An interrupt sends packets of others in the time of whoever runs: an application without a network has none.
    if any(call.on == "network" or call.call.startswith("io_uring_") for call in counts.calls):
        totals[MESSAGE.name] = max(totals[MESSAGE.name], counts.packets or 0)
    totals[SWITCH.name] = counts.waits + counts.preemptions
    # Most new processes execute a program. A process without a program, and a program in an old process, count too.
    totals[PROCESS.name] = max(counts.programs, counts.processes)
    totals[THREAD.name] = counts.threads
    if counts.faults is None:
        del totals[FAULT.name]
    else:
        totals[FAULT.name] = counts.faults
    return user_seconds | {name: number / counts.units for name, number in totals.items()}


def _operations_of_call(call: CallCount) -> Iterator[tuple[OperationKind, float]]:
    """Yield the operation kinds of a system call, each with the number of operations."""
    name = call.call
    passes = name in RECEIVING or name in SENDING
    if call.failed and name != "connect":  # a non-blocking connect "fails" with EINPROGRESS, and connects
        yield CALL, call.count
    elif name in STARTING or KIND_BY_CALL.get(name) is PROCESS:
        return  # counted as new processes and programs by their tracepoints
    elif name in _ACCEPTING or name == "connect":
        yield (CONNECTION if call.on in ("network", "") else CALL), call.count
    elif passes and call.on == "network":
        yield from _message_operations(call)
    elif passes and call.on in ("pipe", "local"):
        yield PIPE, call.count / 2
    elif passes and call.on == "file":
        pieces = call.count if call.pieces is None else call.pieces
        yield (FILE_READ if name in RECEIVING else FILE_WRITE), pieces
        yield CALL, max(0, call.count - pieces)  # reads that return 0 at the end of a file
    else:
        yield CALL if call.on else KIND_BY_CALL.get(name, CALL), call.count


def _message_operations(call: CallCount) -> Iterator[tuple[OperationKind, float]]:
    several = call.call in SEVERAL and call.pieces is not None
    yield MESSAGE, (call.pieces or 0 if several else call.count) / 2
    yield (RECEIVED if call.call in RECEIVING else SENT), call.bytes or 0


_PROFILE = TypeAdapter(Profile)


def dump_profile(profile: Profile) -> str:
    """Return the content of a profile's file: JSON with a final newline."""
    return json.dumps(asdict(profile), indent=1, allow_nan=False) + "\n"


def read_profile(path: Path) -> Profile:
    """Read the file of a profile; raises UsageError if it is unreadable or not a profile."""
    try:
        content = read_bounded(path, _MAX_BYTES)
    except FileTooLarge:
        raise UsageError(f"{path}: more than 1 MiB, and no profile", _HINT) from None
    except OSError as error:
        fault = describe_unreadable(path, error, "give the path of a profile that `tare profile` has written")
        raise UsageError(fault.message, fault.hint) from None
    return parse_profile(content, str(path))


def parse_profile(content: bytes, source: str) -> Profile:
    """Parse the content of a profile's file, which may be untrusted; raises UsageError, which names `source`."""
    try:
        fields: dict[str, Any] = json.loads(content.decode())
        version = fields["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{source}: not a profile", _HINT) from None
    if version != FORMAT:
        hint = "use a newer tare" if isinstance(version, int) and version > FORMAT else _HINT
        raise UsageError(f"{source}: format {version!r:.40}, and this tare reads {FORMAT}", hint)
    try:
        return _PROFILE.validate_python(fields)
    except ValidationError as error:
        fault = error.errors()[0]
        location = ".".join(str(part) for part in fault["loc"])
        raise UsageError(f"{source}: {location}: {fault['msg']}", _HINT) from None
