"""A profile: what an application uses, as the file that `tare profile` writes, and the basket that it comes to."""

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

# What a call's file is. `local` is a Unix socket, `other` an event, a directory, or a socket of another family. An
# empty text is a call that has none, or whose file is unknown.
FileKind = Literal["", "file", "pipe", "local", "network", "device", "other"]
Unit = Literal["run", "request", "second"]

RECEIVING = frozenset({"read", "readv", "pread64", "preadv", "preadv2", "recvfrom", "recvmsg", "recvmmsg"})
SENDING = frozenset({"write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "sendfile"})
SEVERAL = frozenset({"recvmmsg", "sendmmsg"})  # they return how many messages they passed, not bytes
STARTING = frozenset({"clone", "clone3", "fork", "vfork"})
_ACCEPTING = frozenset({"accept", "accept4"})
_MAX_CONNECTIONS_PER_REQUEST, _MIN_CONNECTIONS = (
    1.1,
    20,
)  # accepted for a request, and in all: from here on, the stated rate must be wrong


@dataclass(frozen=True)
class CallCount:
    """How often a system call was made, and succeeded or `failed`, on one kind of file.

    `seconds` are those in the kernel, waits included. `bytes` were read or written. `pieces` are the parts of at most
    4 KiB that they make, call by call; of calls that pass several messages, these. None is unknown.
    """

    call: str
    count: Count
    on: FileKind = ""
    failed: bool = False
    seconds: Amount | None = None
    bytes: Count | None = None
    pieces: Count | None = None


@dataclass(frozen=True)
class TraceCounts:
    """What was counted in `seconds`.

    `waits` are context switches in which a thread waited, `preemptions` those in which it was ready to go on. `packets`
    are those that its threads sent, or the kernel while it ran on one of their CPUs in their time: also the answers to
    what they sent over the machine's own network. None is what this machine cannot count.
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
    """What was counted while the application did so many `units` of its own work."""

    units: Positive


@dataclass(frozen=True)
class Usage:
    """What the kernel's own figures say of the application while it was watched.

    `resident_bytes` are the most that were seen, `proportional_bytes` those at the end: a page that n processes share
    counts one nth for each. Traffic is that of its network namespace, if it has one of its own. `pressure` has the
    share of the time in which its threads waited for a resource: `cpu`, `memory`, `io`. `busiest_thread_seconds` is the
    CPU time of the thread that used the most. None is unknown.
    """

    user_seconds: Amount
    system_seconds: Amount
    processes: Count
    threads: Count
    resident_bytes: Count | None = None
    proportional_bytes: Count | None = None
    disk_read_bytes: Count | None = None
    disk_write_bytes: Count | None = None
    received_packets: Count | None = None
    received_bytes: Count | None = None
    sent_packets: Count | None = None
    sent_bytes: Count | None = None
    pressure: Mapping[str, Amount] = field(default_factory=dict)
    busiest_thread_seconds: Amount | None = None


@dataclass(frozen=True)
class Profile:
    """What an application uses.

    It was watched for `seconds`, in which it did so many `units` of its own work: runs of the command, requests, or
    seconds where nobody knows. `command` is empty for one that tare did not start. `counts` is None where system calls
    could not be counted. `cost` is the share of a CPU that counting took over all of the time, `start_seconds` the CPU
    time that it took to begin; None for a command, whose `usage` is that of other runs than its `counts`. `missing`
    says what is not known, and `cautions` what makes it doubtful, a sentence each.
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
        """CPU time of a unit of its work, in user code and in the kernel."""
        return (self.usage.user_seconds + self.usage.system_seconds) / self.units

    @property
    def elapsed_seconds(self) -> float:
        """Time from one unit of its work to the next."""
        return self.seconds / self.units


def with_possible_rate(profile: Profile) -> Profile:
    """Return a profile whose stated rate of requests agrees with its counts, with a caution where it did not.

    A connection that the server accepts has at least one request. Where it accepts more connections than requests, the
    rate of connections takes the place of the stated one. A request has at least one byte; where the server receives
    less, the true rate is unknown.
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
    """Return at least the bytes that came from other processes; None where they cannot be known."""
    total = 0
    for call in calls:
        if call.call.startswith(("io_uring_", "splice")) or (call.call in RECEIVING and not call.on):
            return None
        if call.call in RECEIVING and call.on in ("network", "local", "pipe"):
            total += (call.pieces if call.bytes is None else call.bytes) or 0
    return total


def count_operations(profile: Profile) -> Mapping[str, float]:
    """Return how many of each kind of work (model/operations.py) a unit of the application's own work takes.

    A kind that could not be counted is missing. A message is a receive and a send, and each of them counts half; or a
    packet, where these are more. Calls on files of an unknown kind, and calls that failed, count as `call`.

    An interrupt sends others' packets in the time of whoever runs: those of an application without a network are not
    its own.
    """
    found = {USER.name: profile.usage.user_seconds / profile.units}
    if profile.counts is None:
        return found
    counts = profile.counts
    totals = {work.name: 0.0 for work in OPERATION_KINDS if work is not USER}
    for call in counts.calls:
        for work, number in _operations_of_call(call):
            totals[work.name] += number
    for undoing in {work.undo_call for work in OPERATION_KINDS if work.undo_call}:
        done = sum(totals[work.name] for work in OPERATION_KINDS if work.undo_call == undoing)
        undone = sum(call.count for call in counts.calls if call.call == undoing and not call.failed)
        totals[CALL.name] -= min(done, undone)
    if any(call.on == "network" or call.call.startswith("io_uring_") for call in counts.calls):
        totals[MESSAGE.name] = max(totals[MESSAGE.name], counts.packets or 0)
    totals[SWITCH.name] = counts.waits + counts.preemptions
    # Most processes that start become another program; one that does not, and a program in an old process, count too.
    totals[PROCESS.name] = max(counts.programs, counts.processes)
    totals[THREAD.name] = counts.threads
    if counts.faults is None:
        del totals[FAULT.name]
    else:
        totals[FAULT.name] = counts.faults
    return found | {name: number / counts.units for name, number in totals.items()}


def _operations_of_call(call: CallCount) -> Iterator[tuple[OperationKind, float]]:
    """Yield the kinds of work of a system call, with how many of each."""
    name = call.call
    passes = name in RECEIVING or name in SENDING
    if call.failed and name != "connect":  # which does not wait for its answer
        yield CALL, call.count
    elif name in STARTING or KIND_BY_CALL.get(name) is PROCESS:
        return  # they were counted where they took effect
    elif name in _ACCEPTING or name == "connect":
        yield (CONNECTION if call.on in ("network", "") else CALL), call.count
    elif passes and call.on == "network":
        yield from _message_operations(call)
    elif passes and call.on in ("pipe", "local"):
        yield PIPE, call.count / 2
    elif passes and call.on == "file":
        pieces = call.count if call.pieces is None else call.pieces
        yield (FILE_READ if name in RECEIVING else FILE_WRITE), pieces
        yield CALL, max(0, call.count - pieces)  # the ends of files
    else:
        yield CALL if call.on else KIND_BY_CALL.get(name, CALL), call.count


def _message_operations(call: CallCount) -> Iterator[tuple[OperationKind, float]]:
    several = call.call in SEVERAL and call.pieces is not None
    yield MESSAGE, (call.pieces or 0 if several else call.count) / 2
    yield (RECEIVED if call.call in RECEIVING else SENT), call.bytes or 0


_PROFILE = TypeAdapter(Profile)


def dump_profile(profile: Profile) -> str:
    """Return the profile as the text of its file."""
    return json.dumps(asdict(profile), indent=1, allow_nan=False) + "\n"


def read_profile(path: Path) -> Profile:
    """Read a profile's file; raises UsageError."""
    try:
        content = read_bounded(path, _MAX_BYTES)
    except FileTooLarge:
        raise UsageError(f"{path}: more than 1 MiB, and no profile", _HINT) from None
    except OSError as error:
        fault = describe_unreadable(path, error, "give the path of a profile that `tare profile` has written")
        raise UsageError(fault.message, fault.hint) from None
    return parse_profile(content, str(path))


def parse_profile(content: bytes, source: str) -> Profile:
    """Read the content of a profile's file, which may be untrusted; raises UsageError with `source` it is."""
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
        place = ".".join(str(part) for part in fault["loc"])
        raise UsageError(f"{source}: {place}: {fault['msg']}", _HINT) from None
