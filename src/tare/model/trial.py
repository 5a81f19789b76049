"""Value types of a trial: metrics, values, cautions, footprints and limits.

Units are base units everywhere inside tare: seconds, bytes, requests per second. Only the reports scale them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, Self

from tare.model.machine import FileSystem

Family = Literal["bare metal", "container", "sandbox", "type 1", "type 2", "unikernel", "emulator"]
Better = Literal["higher", "lower"]
Status = Literal["ok", "failed", "skipped"]
SERVICE_READY = "service-ready"  # the metric that each trial with a server has, in seconds from the server's start
APT = "apt-get install"


class StopReason(StrEnum):
    """Why a run ended."""

    PLAN = "plan"  # all blocks are done
    DECIDED = "decided"  # no cell is open
    BUDGET = "budget"  # the next block would not have fit the budget
    FAILING = "failing"  # the first block of every workload failed, in all its stacks for one reason
    INTERRUPT = "interrupt"  # by a signal
    ERROR = "error"  # a machine was lost, or a trial could not be recorded


@dataclass(frozen=True)
class Stop:
    """How a run ended; `detail` is the sentence of an error."""

    reason: StopReason
    detail: str = ""


# --- hosts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """The result of a finished command. `stdout` and `stderr` are bytes, as the command wrote them.

    `cpu_seconds` is the CPU time of the command and the children that it waited for; None if it is unknown.
    """

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    cpu_seconds: float | None = None

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line that a process printed, without its end, and its time of arrival in seconds of the monotonic clock."""

    seconds: float
    text: str


@dataclass(frozen=True)
class LimitsSpec:
    """What an instance may use, and how long a trial may measure in it; `cpus` is the number of CPUs."""

    cpus: int = 1
    memory_bytes: int = 512 * 1024**2
    open_files: int = 4096
    seconds: float | None = None

    @property
    def usable_memory_bytes(self) -> int:
        """What a program may fill of the memory: a guest's kernel and what runs beside it need 64 MiB and more."""
        return max((self.memory_bytes - 64 * 1024**2) * 3 // 4, self.memory_bytes // 8)


@dataclass(frozen=True)
class LoweredSetting:
    """A setting of a workload that a bound has lowered: what the suite asked for and what is used, as a suite has them.

    `bound` is that bound, such as `a trial may measure for 2 s`.
    """

    setting: str
    asked: str
    used: str
    bound: str


@dataclass(frozen=True)
class Limits:
    """What an instance may use; `cpus` are the numbers of the CPUs that it is pinned to."""

    cpus: tuple[int, ...]
    memory_bytes: int
    open_files: int


@dataclass(frozen=True)
class ObservedLimits:
    """The limits that an instance reports; None where it does not."""

    cpus: int | None
    memory_bytes: int | None
    open_files: int | None


@dataclass(frozen=True)
class LimitsCheck:
    """The limits asked for, and those that the instance reports."""

    asked: Limits
    seen: ObservedLimits


# --- instances -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of an instance's start, in seconds of the machine's monotonic clock."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an instance costs its host, alone: proportional set size of its processes, kernel memory, bytes on disk.

    `reported_bytes` is what a guest with a kernel of its own reports as used; None for others.
    """

    memory_bytes: int | None
    kernel_bytes: int | None
    disk_bytes: int | None
    processes: int
    reported_bytes: int | None = None

    @property
    def total_memory_bytes(self) -> int | None:
        """Memory of its processes, and the kernel's where that is known; None where that of its processes is not."""
        return None if self.memory_bytes is None else self.memory_bytes + (self.kernel_bytes or 0)


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What a layer of a nested stack adds: seconds since the layer around it answered, and footprint on its host."""

    name: str
    seconds: float
    footprint: Footprint


@dataclass(frozen=True)
class Problem:
    """Something that a technology lacks on a host, and the command or step that fixes it.

    `packages` alone fix it, by the command `installer`: plug-ins name Debian's (hosts/distributions.py has those of the
    host). `missing` is for what no package has: a `program` of another project, or something of `yours`, such as an
    image or an account.
    """

    what: str
    fix: str
    packages: tuple[str, ...] = ()
    missing: Literal["", "program", "yours"] = ""
    installer: str = APT

    @classmethod
    def from_packages(cls, problem: str, *packages: str) -> Problem:
        """Describe a problem that Debian packages fix."""
        return cls(problem, f"{APT} {' '.join(packages)}", packages)


def combined_fix(problems: Iterable[Problem]) -> str:
    """Return one command that fixes all these problems of a host; empty if packages do not fix them all."""
    problems = tuple(problems)
    packages = dict.fromkeys(package for problem in problems for package in problem.packages)
    fixed = packages and all(each.packages for each in problems)
    return f"{problems[0].installer} {' '.join(packages)}" if fixed else ""


# --- workloads -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A named quantity with a unit (base units: `s`, `bytes`, `bytes/s`, `requests/s`, …) and a direction.

    `headline`: it is part of its workload's headline, one for each direction. `overall`: that headline counts for a
    stack's overall speed; the time to start does not.
    """

    name: str
    title: str
    unit: str
    better: Better
    headline: bool = True
    overall: bool = True


@dataclass(frozen=True)
class Sweep:
    """What a workload varies within a trial, such as `clients`; `unit` is empty for a plain count."""

    name: str
    unit: str = ""


@dataclass(frozen=True)
class Value:
    """One measured value, in its metric's unit. `point` is the value of the sweep, None off the sweep.

    `printed_unit` is the unit that the program printed after the number; empty if it printed none, or it is unknown.
    """

    metric: str
    point: float | None
    value: float
    printed_unit: str = ""


@dataclass(frozen=True)
class RawOutput:
    """One command of a workload and its output, from which values are parsed, now or by `tare reparse`.

    `label` names the command for the workload's parser, such as `GET 50`.
    """

    label: str
    argv: tuple[str, ...]
    text: str
    seconds: float
    client_cpu: float | None = None  # share of the client's CPUs that the load used, 0 to 1
    warm_up: bool = False  # holds no value
    sending_seconds: float | None = None  # of `seconds`, those in which the load sent; None for all of them
    disk_share: float | None = None  # of the bytes that it moved past all caches, what the machine's disks have seen
    client_limit: str = ""  # what the client could not do, so that a value is none of the server's; empty if nothing
    errors: str = ""  # what it wrote to standard error, where that is kept separately
    clients_cpu: tuple[float | None, ...] = ()  # `client_cpu` of each client, where several share the load

    def as_warm_up(self) -> RawOutput:
        """Return it as an output without a value, so that nobody asks whether the client was its bottleneck."""
        return replace(self, warm_up=True, client_cpu=None)


@dataclass(frozen=True)
class Service:
    """The server that a workload runs in the instance, and its TCP port.

    tare first writes `files`: pairs of a path and a text. It is ready once it takes connections, unless its port is 0,
    answers `ready_path` with the status, and `ready_argv` ends with 0. An image's own command has no `argv`.
    """

    argv: tuple[str, ...]
    port: int
    files: tuple[tuple[str, str], ...] = ()
    ready_path: str = ""
    ready_status: int = 200
    ready_seconds: float = 30.0
    ready_argv: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


# --- trials --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caution:
    """A doubt about a trial: a short stable kind, and a sentence."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """A value with its unit and direction, as the journal holds it.

    It is the mean over the trial's turns at this point; `turns` are their values, in order, where there were several.
    `label` is that of the outputs which it was read from; empty where it depends on several, or on an unknown one.
    `printed_unit` is that of all its turns: see `Value`.
    """

    metric: str
    point: float | None
    value: float
    unit: str
    better: Better
    turns: tuple[float, ...] = ()
    label: str = ""
    printed_unit: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """What happened while a trial had its turn: `label` is that of its output.

    In a block, all stacks have their turns of one `number`, from 0, one after the other in random order. `began` is in
    seconds since the block's first turn. `steal` is the share of the CPU time that something wanted and that the
    hypervisor gave to others, None where the machine does not say. `warm_up`: it has no value.
    """

    label: str
    number: int
    began: float
    seconds: float
    steal: float | None = None
    warm_up: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """One fresh instance, one workload, its values. The unit of replication.

    `block` counts the blocks of one workload from 0; `order` is the position in the block. `started` and `ended`, in
    seconds since 1970 UTC, are when its instance was requested and when it was gone, None without one; `seconds` are
    those of its start, its turns and its end, without the turns of other stacks in between. `timeline` is in seconds
    since `requested`. `layers` are those of a nested stack, the outermost first.
    `hint` helps to fix a failure, such as with a guest's last words.
    `turns` are in order; `first_round` is the round, from 0, of the first values at each point: later than 0 where not
    all instances fit into memory together. `quarantined` are the values of a trial that failed because they cannot be
    right: they count nowhere.
    """

    trial: str
    block: int
    order: int
    workload: str
    stack: str
    status: Status
    reason: str
    started: float
    seconds: float
    values: tuple[MeasuredValue, ...] = ()
    timeline: tuple[Mark, ...] = ()
    footprint: Footprint | None = None
    limits: LimitsCheck | None = None
    path: str = ""
    proof: tuple[tuple[str, str], ...] = ()
    cautions: tuple[Caution, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    layers: tuple[LayerCost, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    hint: str = ""
    first_round: int = 0
    turns: tuple[Turn, ...] = ()
    quarantined: tuple[MeasuredValue, ...] = ()
    ended: float | None = None

    def as_failed(self, reason: str, hint: str, quarantined: tuple[MeasuredValue, ...] = ()) -> Trial:
        """Return the trial as one that has failed, with these of its values in quarantine."""
        return replace(self, status="failed", reason=reason, hint=hint, values=(), quarantined=quarantined)


class DensityStop(StrEnum):
    """What ended it: the word in the workload's output, and `words` for readers."""

    words: str

    def __new__(cls, word: str, words: str = "") -> Self:
        """Make one of its word and the words for readers."""
        end = str.__new__(cls, word)
        end._value_, end.words = word, words
        return end

    SLOW = "slow", "with one more, the slowest missed the goal"
    MOST = "most", "no more were asked for"
    SPARE = "no memory to spare", "one more might have left the machine too little memory"
    OUT_OF_MEMORY = "out of memory", "one more was ended for lack of memory"
    LATE = "late", "one more did not start or answer in time"
    NO_ROOM = "no room", "there was no room for one more"
