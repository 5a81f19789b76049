"""Value types of a trial: metrics, values, cautions, footprints and limits.

Numbers are in base units everywhere inside tare: seconds, bytes, requests per second. Only reports scale them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from tare.model.machine import FileSystem
from tare.model.observed_isolation import ObservedIsolation

Family = Literal["bare metal", "container", "sandbox", "type 1", "type 2", "unikernel", "emulator"]
Better = Literal["higher", "lower"]
Status = Literal["ok", "failed", "skipped"]
SERVICE_READY = "service-ready"  # metric of each trial with a server: seconds from the server's start to readiness
WALL_TIME = "time"  # metric of a workload whose turns are runs of a command: seconds of a run
APT = "apt-get install"


class StopReason(StrEnum):
    """Reason why a run ended."""

    PLAN = "plan"  # all blocks are done
    DECIDED = "decided"  # no cell is open
    BUDGET = "budget"  # the next block would not have fit into the budget
    FAILING = "failing"  # the first block of every workload failed, on all stacks for the same reason
    INTERRUPT = "interrupt"  # a signal
    ERROR = "error"  # a machine was lost, or a trial could not be recorded


@dataclass(frozen=True)
class Stop:
    """End of a run; `detail` is the message of an error, or ""."""

    reason: StopReason
    detail: str = ""


# --- hosts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """Result of a finished command. `stdout` and `stderr` are bytes, as the command wrote them.

    `cpu_seconds` is the CPU time of the command and the children that it waited for; None if unknown.
    """

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    cpu_seconds: float | None = None

    @property
    def text(self) -> str:
        """Standard output as text, with U+FFFD for bytes that are not UTF-8."""
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class OutputLine:
    """Line that a process printed, without its end, and its time of arrival in seconds of the monotonic clock."""

    seconds: float
    text: str


@dataclass(frozen=True)
class LimitsSpec:
    """Requested limits of an instance; `cpus` is the number of CPUs.

    `seconds` bounds the time that a trial may measure; None if unbounded.
    """

    cpus: int = 1
    memory_bytes: int = 512 * 1024**2
    open_files: int = 4096
    seconds: float | None = None

    @property
    def usable_memory_bytes(self) -> int:
        """Bytes that a program may fill. A guest's kernel and its other processes need 64 MiB and more."""
        return max((self.memory_bytes - 64 * 1024**2) * 3 // 4, self.memory_bytes // 8)


@dataclass(frozen=True)
class LoweredSetting:
    """Setting of a workload that a bound has lowered: the value asked for and the value used, in a suite's syntax.

    `bound` describes the bound, such as `a trial may measure for 2 s`.
    """

    setting: str
    asked: str
    used: str
    bound: str


@dataclass(frozen=True)
class Limits:
    """Limits that tare sets on an instance; `cpus` are the numbers of the CPUs that it is pinned to."""

    cpus: tuple[int, ...]
    memory_bytes: int
    open_files: int


@dataclass(frozen=True)
class ObservedLimits:
    """Observed limits: those that an instance reports from inside; None for a limit that it does not report."""

    cpus: int | None
    memory_bytes: int | None
    open_files: int | None


@dataclass(frozen=True)
class LimitsCheck:
    """Requested and observed limits of an instance."""

    asked: Limits
    seen: ObservedLimits


# --- instances -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """Named moment of an instance's start, in seconds of the machine's monotonic clock."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Footprint:
    """Footprint of one instance on its host: proportional set size of its processes, kernel memory, bytes on disk.

    None if unknown. `reported_bytes` is the used memory that a guest with a private kernel reports; None for others.
    """

    memory_bytes: int | None
    kernel_bytes: int | None
    disk_bytes: int | None
    processes: int
    reported_bytes: int | None = None

    @property
    def total_memory_bytes(self) -> int | None:
        """Memory of the processes, plus kernel memory if known; None if the memory of the processes is unknown."""
        return None if self.memory_bytes is None else self.memory_bytes + (self.kernel_bytes or 0)


@dataclass(frozen=True, slots=True)
class LayerCost:
    """Cost that a layer of a nested stack adds: seconds since its parent layer was ready, and footprint on its host."""

    name: str
    seconds: float
    footprint: Footprint


@dataclass(frozen=True)
class Problem:
    """Requirement that a host does not meet, and the command or step that fixes it.

    `packages` fix the problem by themselves, installed by the command `installer`. Plug-ins name Debian's packages, and
    hosts/distributions.py translates them for the host. `missing` tells what no package provides: a `program` of
    another project, or something that the user supplies (`yours`), such as an image or an account.
    """

    what: str
    fix: str
    packages: tuple[str, ...] = ()
    missing: Literal["", "program", "yours"] = ""
    installer: str = APT

    @classmethod
    def from_packages(cls, problem: str, *packages: str) -> Problem:
        """Return a problem that these Debian packages fix."""
        return cls(problem, f"{APT} {' '.join(packages)}", packages)


def combined_fix(problems: Iterable[Problem]) -> str:
    """Return one command that fixes all these problems of a host; "" if packages do not fix all of them."""
    problems = tuple(problems)
    packages = dict.fromkeys(package for problem in problems for package in problem.packages)
    fixed = packages and all(each.packages for each in problems)
    return f"{problems[0].installer} {' '.join(packages)}" if fixed else ""


# --- workloads -----------------------------------------------------------------------------------------------------


# Unit of a ratio to the same stack in another state, so that each stack is its own baseline.
OWN_BASELINE = "times"


@dataclass(frozen=True)
class Metric:
    """Named quantity with a base unit (`s`, `bytes`, `bytes/s`, `requests/s`, …) and a direction.

    `headline` makes the metric part of its workload's headline, of which there is one for each direction. `overall`
    makes that headline count for a stack's overall speed, as the time to start does not.
    """

    name: str
    title: str
    unit: str
    better: Better
    headline: bool = True
    overall: bool = True


def find_session_metric(metrics: Iterable[Metric]) -> Metric | None:
    """Return the metric that a workload adds to a session: the seconds of one run; None if it measures none.

    It is a headline in seconds, or else the wall time of a command.
    """
    times = [metric for metric in metrics if metric.unit == "s" and metric.better == "lower"]
    return next((metric for metric in times if metric.headline or metric.name == WALL_TIME), None)


@dataclass(frozen=True)
class Sweep:
    """Quantity that a workload varies within a trial, such as `clients`; `unit` is "" for a plain count."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class CpuShare:
    """CPU time per second of a program: the time in which it ran, and in which it ran or waited for a CPU.

    A program that only computes always wants a CPU. What it wanted and did not have was time of others.
    """

    had: float
    wanted: float


@dataclass(frozen=True)
class Value:
    """Measured value in its metric's unit. `point` is the position on the sweep; None for a value of no point.

    `printed_unit` is the unit that the program printed after the number; "" if it printed none or if it is unknown.
    `cpu_share` is that of the time in which the value was measured; None if it is unknown.
    """

    metric: str
    point: float | None
    value: float
    printed_unit: str = ""
    cpu_share: CpuShare | None = None


@dataclass(frozen=True)
class RawOutput:
    """Output of one command of a workload, from which values are parsed, now or by `tare reparse`.

    `label` names the command for the workload's parser, such as `GET 50`.
    """

    label: str
    argv: tuple[str, ...]
    text: str
    seconds: float
    client_cpu: float | None = None  # share of the client's CPUs that the load used, 0 to 1; None if unknown
    warm_up: bool = False  # the output holds no value
    sending_seconds: float | None = None  # the part of `seconds` in which the load sent; None for all of it
    disk_share: float | None = None  # share of the bytes moved past all caches that reached the machine's disks
    client_limit: str = ""  # how the client, not the server, limited the value; "" if it did not
    errors: str = ""  # standard error, if it is stored separately
    clients_cpu: tuple[float | None, ...] = ()  # `client_cpu` of each client if several share the load

    def as_warm_up(self) -> RawOutput:
        """Return the output without a value, and without the CPU share that is checked for a client bottleneck."""
        return replace(self, warm_up=True, client_cpu=None)


@dataclass(frozen=True)
class Service:
    """Server that a workload runs in the instance, and its TCP port, 0 if it takes no connections.

    tare first writes `files`, pairs of a path and a text. The readiness probes pass once the port takes connections, a
    GET of `ready_path` returns `ready_status`, and `ready_argv` exits with 0. Empty probes are skipped. A call of
    `ready_argv` that takes more than `ready_timeout` seconds has failed; 0 lets it take until `ready_seconds` are over.
    An empty `argv` starts the command of the image's configuration.

    In an application, `names` are those by which other services find it in addition to its own. The services `after`
    must be ready before it starts; None for all that start before it.
    """

    argv: tuple[str, ...]
    port: int
    files: tuple[tuple[str, str], ...] = ()
    ready_path: str = ""
    ready_status: int = 200
    ready_seconds: float = 30.0
    ready_argv: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    ready_timeout: float = 0.0
    names: tuple[str, ...] = ()
    after: tuple[str, ...] | None = None


# --- trials --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caution:
    """Caution about a trial: a short, stable kind and a sentence."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """Value of a trial with its unit and direction, as stored in the journal.

    - `value` is the mean over the trial's turns at this point; `turns` are their values, in order, if several.
    - `label` is the label of the outputs from which it was read; "" if these have several labels or are unknown.
    - `printed_unit` is the common unit of all turns (see `Value`).
    - `cpu_shares` are the shares that the program had in the turns, by the clock of the host's kernel; () if unknown.
      `cpu_wanted` is the mean of those that it wanted.
    """

    metric: str
    point: float | None
    value: float
    unit: str
    better: Better
    turns: tuple[float, ...] = ()
    label: str = ""
    printed_unit: str = ""
    cpu_shares: tuple[float, ...] = ()
    cpu_wanted: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn of a trial; `label` is the label of its output.

    - `number` counts from 0. In a block, all stacks take their turns of one number in random order.
    - `began` is in seconds since the block's first turn.
    - `steal` is steal time as a share of the requested CPU time; None if the machine does not report it.
    - `warm_up` is True if the turn has no value.
    - `cpu_seconds` is the CPU time that the instance used, without time that others took; None if unknown.
    - `waited_seconds` is the time that the instance's tasks were runnable and did not run, added up over the tasks that
      were alive at both ends of the turn; None if unknown, also if these tasks did less than half of the work.
    - `sending_seconds` is the time in which a client sent requests; None for a command in the instance.
    """

    label: str
    number: int
    began: float
    seconds: float
    steal: float | None = None
    warm_up: bool = False
    cpu_seconds: float | None = None
    waited_seconds: float | None = None
    sending_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """Values of one workload in one instance of a block: the unit of replication.

    - `block` counts the blocks of one workload from 0; `order` is the position in the block.
    - `started` and `ended` are when the instance was requested and when it was gone, in seconds since 1970 UTC; `ended`
      is None without an instance. `seconds` is the duration of its start, turns and end, without other stacks' turns.
    - `timeline` is in seconds since its mark `requested`. `layers` are those of a nested stack, the outermost first.
    - `hint` helps to fix a failure, for example with a guest's last output.
    - `turns` are in order. `first_round` is the round, from 0, of the first values at each point. It is later than 0 if
      not all instances fit into memory together.
    - `quarantined` are impossible values, for which the trial failed. No statistic includes them.
    - `reused` is True if another workload was measured in the instance before. The trial then has no footprint. A trial
      has no timeline if it did not start its instance: `started` and `ended` are then those of its measurement.
    - `isolation` is that of each layer, the outermost first. It is read once for each stack of a run.
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
    reused: bool = False
    isolation: tuple[ObservedIsolation, ...] = ()

    def as_failed(self, reason: str, hint: str, quarantined: tuple[MeasuredValue, ...] = ()) -> Trial:
        """Return the trial as failed and without values, except for the given ones in quarantine."""
        return replace(self, status="failed", reason=reason, hint=hint, values=(), quarantined=quarantined)
