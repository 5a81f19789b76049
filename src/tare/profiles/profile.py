"""A profile: what an application uses, as the file that `tare profile` writes, and the basket that it comes to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, TypeAdapter, ValidationError

from tare.errors import UsageError, unreadable
from tare.model.machines import Facts
from tare.model.work import (
    CALL,
    CONNECTION,
    FAULT,
    FILE_READ,
    FILE_WRITE,
    MESSAGE,
    OF_CALL,
    PIPE,
    PROCESS,
    RECEIVED,
    SENT,
    SWITCH,
    THREAD,
    USER,
    WORK,
    Work,
)

FORMAT = 1
_MOST_BYTES = 1 << 20
_HINT = "write it anew: tare profile … > app.json"

# What a call's file is. `local` is a Unix socket, `other` an event, a directory, or a socket of another family. An empty
# text is a call that has none, or whose file is unknown.
On = Literal["", "file", "pipe", "local", "network", "device", "other"]
Unit = Literal["run", "request", "second"]

RECEIVING = frozenset({"read", "readv", "pread64", "preadv", "preadv2", "recvfrom", "recvmsg", "recvmmsg"})
SENDING = frozenset({"write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "sendfile"})
_CONNECTING = frozenset({"accept", "accept4", "connect"})


@dataclass(frozen=True)
class CallCount:
    """How often a system call was made, and succeeded or `failed`, on one kind of file.

    `seconds` are those in the kernel, waits included. `bytes` were read or written, in so many `pieces` of at most
    4 KiB. All three are None where the way of counting does not know them.
    """

    call: str
    count: NonNegativeInt
    on: On = ""
    failed: bool = False
    seconds: NonNegativeFloat | None = None
    bytes: NonNegativeInt | None = None
    pieces: NonNegativeInt | None = None


@dataclass(frozen=True)
class Counts:
    """What was counted in `seconds`, in which the application did so many `units` of its own work.

    `waits` are context switches in which a thread waited, `preemptions` those in which it was ready to go on.
    None is what this machine cannot count.
    """

    by: Literal["bpftrace", "perf"]
    seconds: PositiveFloat
    units: PositiveFloat
    calls: tuple[CallCount, ...]
    faults: NonNegativeInt | None
    waits: NonNegativeInt
    preemptions: NonNegativeInt | None
    programs: NonNegativeInt
    processes: NonNegativeInt
    threads: NonNegativeInt


@dataclass(frozen=True)
class Usage:
    """What the kernel's own figures say of the application while it was watched, and nothing slowed it down.

    Memory is the largest that was seen: resident, and proportional (shared pages divided by who shares them).
    Traffic is that of its network namespace. `pressure` has the share of the time in which its threads waited for a
    resource: `cpu`, `memory`, `io`. None is unknown.
    """

    user_seconds: NonNegativeFloat
    system_seconds: NonNegativeFloat
    processes: NonNegativeInt
    threads: NonNegativeInt
    resident_bytes: NonNegativeInt | None = None
    proportional_bytes: NonNegativeInt | None = None
    disk_read_bytes: NonNegativeInt | None = None
    disk_write_bytes: NonNegativeInt | None = None
    received_packets: NonNegativeInt | None = None
    received_bytes: NonNegativeInt | None = None
    sent_packets: NonNegativeInt | None = None
    sent_bytes: NonNegativeInt | None = None
    pressure: Mapping[str, NonNegativeFloat] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """What an application uses.

    It was watched for `seconds`, in which it did so many `units` of its own work: runs of the command, requests, or
    seconds where nobody knows. `command` is empty for one that tare did not start. `counts` is None where system calls
    could not be counted. `slowdown` is by how much the application was slower while they were, as a share of its speed;
    None where that is unknown. `missing` says what is not known, a sentence each.
    """

    format: int
    tare: str
    started: str
    name: str
    machine: Facts
    unit: Unit
    units: PositiveFloat
    seconds: PositiveFloat
    usage: Usage
    command: tuple[str, ...] = ()
    counts: Counts | None = None
    slowdown: float | None = None
    missing: tuple[str, ...] = ()

    @property
    def cpu_seconds(self) -> float:
        """CPU time of a unit of its work, in user code and in the kernel."""
        return (self.usage.user_seconds + self.usage.system_seconds) / self.units

    @property
    def elapsed_seconds(self) -> float:
        """Time from one unit of its work to the next."""
        return self.seconds / self.units

    @property
    def cost(self) -> float | None:
        """Share of the application's speed that watching took, over all of the time; None where it is unknown."""
        if self.slowdown is None or self.counts is None:
            return None
        return self.slowdown * self.counts.seconds / (self.seconds + self.counts.seconds * (self.unit == "run"))


def basket(profile: Profile) -> Mapping[str, float]:
    """Return how many of each kind of work (model/work.py) a unit of the application's own work takes.

    A kind that could not be counted is missing. One message is a receive and a send: each counts half. Files of an
    unknown kind, and calls that failed, count as `call`.
    """
    found = {USER.name: profile.usage.user_seconds / profile.units}
    if profile.counts is None:
        return found
    counts, per_unit = profile.counts, 1 / profile.counts.units
    totals = dict.fromkeys((work.name for work in WORK), 0.0)
    for call in counts.calls:
        for work, number in _works(call):
            totals[work.name] += number
    totals[SWITCH.name] = counts.waits + (counts.preemptions or 0)
    # A program that replaces a process is one program; a process that stays the same program is one, too.
    totals[PROCESS.name] = max(counts.programs, counts.processes)
    totals[THREAD.name] = counts.threads
    totals[FAULT.name] = counts.faults or 0
    del totals[USER.name]
    if counts.faults is None:
        del totals[FAULT.name]
    return found | {name: number * per_unit for name, number in totals.items()}


def _works(call: CallCount) -> Iterator[tuple[Work, float]]:
    """Yield the kinds of work of a system call, with how many of each."""
    receives, sends = call.call in RECEIVING, call.call in SENDING
    size = call.bytes or 0
    if OF_CALL.get(call.call) is PROCESS or call.call in ("clone", "clone3", "fork", "vfork"):
        return  # counted where they took effect
    if call.failed:
        yield CALL, call.count
    elif call.call in _CONNECTING:
        yield (CONNECTION if call.on in ("network", "") else CALL), call.count
    elif (receives or sends) and call.on == "network":
        yield MESSAGE, call.count / 2
        yield (RECEIVED if receives else SENT), size
    elif (receives or sends) and call.on in ("pipe", "local"):
        yield PIPE, call.count / 2
    elif (receives or sends) and call.on == "file":
        # A read at the end of a file finds nothing, and has no piece.
        yield (FILE_READ if receives else FILE_WRITE), call.pieces if call.pieces is not None else call.count
    else:
        yield OF_CALL.get(call.call, CALL) if not call.on else CALL, call.count


_PROFILE = TypeAdapter(Profile)


def written(profile: Profile) -> str:
    """Return the profile as the text of its file."""
    return json.dumps(asdict(profile), indent=1, allow_nan=False) + "\n"


def read_profile(path: Path) -> Profile:
    """Read a profile's file; raises UsageError."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        fault = unreadable(path, error, "give the path of a profile that `tare profile` has written")
        raise UsageError(fault.what, fault.hint) from None
    return parse_profile(content, str(path))


def parse_profile(content: bytes, where: str) -> Profile:
    """Read the content of a profile's file, which may be untrusted; raises UsageError with `where` it is."""
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{where}: more than 1 MiB, and no profile", _HINT)
    try:
        fields: dict[str, Any] = json.loads(content.decode())
        version = fields["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{where}: not a profile", _HINT) from None
    if version != FORMAT:
        hint = "use a newer tare" if isinstance(version, int) and version > FORMAT else _HINT
        raise UsageError(f"{where}: a profile of format {version!r:.40}, and this tare reads {FORMAT}", hint)
    try:
        profile = _PROFILE.validate_python(fields)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise UsageError(f"{where}: {place}: {fault['msg']}", _HINT) from None
    if not all(math.isfinite(number) for number in (profile.units, profile.seconds, *basket(profile).values())):
        raise UsageError(f"{where}: a number that is not finite", _HINT)
    return profile
