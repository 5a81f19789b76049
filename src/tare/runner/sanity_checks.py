"""Sanity checks of a trial: reject impossible values, and add cautions to questionable trials.

A trial with an impossible value counts as failed. Its values are recorded in `quarantined`, and no mean includes them.
Impossible are:

- A time, size or rate below zero, or a throughput of zero: the parser must have read something else.
- More events per second than the CPUs can execute instructions, or more bytes than they can load. The bounds hold for
  any CPU: 10 GHz (the record is 9.1: HWBOT, world records of CPU frequency, 2025), ten instructions and 128 bytes per
  cycle (two loads of 64 bytes: Intel 64 and IA-32 Architectures Optimization Reference Manual, table of caches; and
  Fujitsu, A64FX Microarchitecture Manual, the widest of arm64).
- A guest clock that drifts from the machine's by more than a thousandth: all durations measured inside are wrong. The
  error of a reading, its round trip, counts in the clock's favor.
- A stack at least twice as fast as bare metal in every turn of a block: it has the same CPUs, and virtualization only
  adds work. Chance does not double a rate again and again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tare.hosts.cgroups import memory_limit_of
from tare.hosts.exec import SUPERVISE
from tare.hosts.host import Host
from tare.model.errors import TrialFailed, Unavailable
from tare.model.trial import Caution, LimitsCheck, MeasuredValue, ObservedLimits, RawOutput
from tare.model.units import format_duration, format_quantity
from tare.plugins.instance import Instance
from tare.plugins.snapshots import Snapshots
from tare.plugins.technology import Technology
from tare.plugins.workload import Workload
from tare.runner.context import CpuPlacement
from tare.runner.layers import StartedLayer
from tare.runner.trial_log import TrialLog
from tare.telemetry.procfs import parse_swapped_pages, read_or_none

_BUSY_SHARE = 0.95  # a load generator that uses this share of its CPU counts as the bottleneck
_IDLE_CPUS = 0.1  # below it, server and load mostly waited: doubling the work of both would change a tenth
_MIN_DISK_SHARE = 0.9  # of the bytes that a workload moves past all caches: disks must see at least these
_LATE_SHARE = 0.1  # a trial may exceed its time by this share: the time includes the transport of its commands
_GUEST_FAMILIES = ("type 1", "type 2", "emulator")  # families whose instances have a separate kernel
_KERNEL_SHARE = 0.15  # of its memory, which a guest's kernel may reserve for itself
_HERTZ, _INSTRUCTIONS, _BYTES = 10e9, 10, 128  # instructions and bytes per cycle
_MAX_DRIFT_SHARE = 0.001
_IMPOSSIBLE_RATIO, _MIN_TURNS = 2.0, 3
_SHARED_CLOCK_FAMILIES = (
    "bare metal",
    "container",
)  # families whose instances read the host kernel's clock
_CLOCK_SECONDS = 30.0


def reject_unsupported(stack: Sequence[Technology], workload: Workload) -> None:
    """Raise Unavailable where a stack cannot run a workload."""
    for technology in stack:
        if reason := technology.unsupported_reason(workload):
            raise Unavailable(f"{technology.name}: {reason}")
    if workload.needs_snapshots and not (len(stack) == 1 and isinstance(stack[0], Snapshots)):
        name = "/".join(technology.name for technology in stack)
        raise Unavailable(f"{name}: it has no snapshots that tare can take", f"leave it out of {workload.name}")
    if workload.volume_bytes and not stack[0].has_volumes:
        raise Unavailable(f"{stack[0].name}: its instances have no data volume", 'write place = "root"')
    if workload.sidecars and stack[-1].provisions_machine:
        what = f"{stack[-1].name}: sidecar services cannot be reached from a provisioned machine"
        raise Unavailable(what, "leave this stack out")
    if workload.starts_cold and stack[-1].provisions_machine:
        what = f"{stack[-1].name}: tare cannot drop the caches of a provisioned machine"
        raise Unavailable(what, 'write caches = "warm"')


def read_observed_limits(part: StartedLayer) -> ObservedLimits:
    """Return the limits as observed inside; for memory also those of the control groups around the first process."""
    values: dict[str, int] = {}
    instance = part.instance
    if instance.inside is not None:
        text = instance.inside.run(SUPERVISE, "--limits", timeout=30).text
        values = {
            name: int(value)
            for name, _, value in (line.partition(": ") for line in text.splitlines())
            if value.isdigit()
        }
    # Without an inside, the group is the monitor's, which has more memory than the instance.
    first = instance.processes()[:1] if instance.inside is not None else ()
    around = [memory_limit_of(part.host, pid) for pid in first]
    memory = [limit for limit in (*around, values.get("memory")) if limit is not None]
    return ObservedLimits(values.get("cpus"), min(memory, default=None), values.get("open_files"))


def limit_cautions(limits: LimitsCheck) -> tuple[Caution, ...]:
    """Return cautions if observed limits differ from requested ones. A guest kernel may reserve 15 % of the memory."""
    asked, seen, texts = limits.asked, limits.seen, []
    if seen.cpus not in (None, len(asked.cpus)):
        texts.append(f"sees {seen.cpus} CPUs, {len(asked.cpus)} were asked for")
    if seen.open_files not in (None, asked.open_files):
        texts.append(f"may open {seen.open_files} files, {asked.open_files} were asked for")
    memory = asked.memory_bytes if seen.memory_bytes is None else seen.memory_bytes
    if not 1 - _KERNEL_SHARE <= memory / asked.memory_bytes <= 1:
        texts.append(f"has {memory >> 20} MiB of memory, {asked.memory_bytes >> 20} MiB were asked for")
    return tuple(Caution("limits-differ", text) for text in texts)


def reject_swapping(stack: Sequence[Technology], instance: Instance) -> None:
    """Raise TrialFailed if a guest's kernel moved pages to swap or back: the values then measure its disk."""
    if instance.inside is None or not any(technology.family in _GUEST_FAMILIES for technology in stack):
        return
    pages = sum(read_or_none(parse_swapped_pages, instance.inside.read, "/proc/vmstat") or ())
    if pages:
        raise TrialFailed(f"the guest swapped: {pages} pages went to its swap or came back", "give it more memory")


def time_cautions(measured_seconds: float, seconds: float) -> tuple[Caution, ...]:
    """Return a caution if a trial measured for longer than allowed: its settings are chosen by an estimate."""
    if measured_seconds <= seconds * (1 + _LATE_SHARE):
        return ()
    text = f"measured for {format_duration(measured_seconds)}, {format_duration(seconds)} were allowed"
    return (Caution("over-time", text),)


def client_cautions(raw: Sequence[RawOutput], server_busy: float | None) -> tuple[Caution, ...]:
    """Return cautions if the load was the bottleneck: its CPU was busy and the server's were not.

    Shares are from 0 to 1. The mean over the turns of a point decides, because single turns are short. A client limit
    that the workload itself reports always counts.
    """
    reported = tuple(Caution("client-bound", each.client_limit) for each in raw if each.client_limit)
    if server_busy is not None and server_busy >= _BUSY_SHARE:
        return reported
    loads = {
        f"the load of client {number}" if number else "the load": [
            label for label, share in by_label if share >= _BUSY_SHARE
        ]
        for number, by_label in _cpu_shares_by_client(raw)
    }
    texts = (f"{load} had no CPU time to spare at {', '.join(bound)}" for load, bound in loads.items() if bound)
    return (*reported, *(Caution("client-bound", text) for text in texts))


def _cpu_shares_by_client(raw: Sequence[RawOutput]) -> Iterator[tuple[int, Iterable[tuple[str, float]]]]:
    """Yield a client's number, from 1, and its CPU shares by label; the number is 0 if only one client has the load."""
    yield 0, _mean_by_label((each.label, each.client_cpu) for each in raw if not each.clients_cpu).items()
    for index in range(max((len(each.clients_cpu) for each in raw), default=0)):
        shares = ((each.label, each.clients_cpu[index]) for each in raw if len(each.clients_cpu) > index)
        yield index + 1, _mean_by_label(shares).items()


def waiting_cautions(raw: Sequence[RawOutput], server_cpus: Mapping[str, Sequence[float]]) -> tuple[Caution, ...]:
    """Return a caution if neither the server nor a load without pauses was busy: the value then measures waiting.

    `server_cpus` has the number of busy CPUs of the instance in each turn, by label. The mean over the turns of a point
    decides.
    """
    clients = _mean_by_label((each.label, each.client_cpu) for each in raw)
    busy = {label: client + fmean(server_cpus[label]) for label, client in clients.items() if label in server_cpus}
    waiting = [label for label, cpus in busy.items() if cpus < _IDLE_CPUS]
    if not waiting:
        return ()
    text = f"neither the server nor the load was busy at {', '.join(waiting)}: this is a wait, not a cost"
    return (Caution("waiting", text),)


def _mean_by_label(shares: Iterable[tuple[str, float | None]]) -> Mapping[str, float]:
    """Return the mean of the known shares of a client's CPUs that the load used, by label."""
    known: dict[str, list[float]] = defaultdict(list)
    for label, share in shares:
        if share is not None:
            known[label].append(share)
    return {label: fmean(values) for label, values in known.items()}


def placement_cautions(placement: CpuPlacement) -> tuple[Caution, ...]:
    """Return a caution if sidecar services share CPUs with the service under test."""
    if not set(placement.server_sidecar_cpus) & set(placement.server):
        return ()
    text = "sidecar services share CPUs with the service under test: the machine is too small"
    return (Caution("shared-cpus", text),)


def sidecar_cautions(
    client_busy: float | None, server_busy: float | None, client_is_local: bool = True
) -> tuple[Caution, ...]:
    """Return a caution if load and sidecar services together had busy CPUs while the service under test had not.

    Shares are from 0 to 1; None if unknown. If the client is on another machine, `client_busy` is that of the sidecar
    services only.
    """
    if client_busy is None or client_busy < _BUSY_SHARE or (server_busy is not None and server_busy >= _BUSY_SHARE):
        return ()
    text = "the load and the sidecar services together had no CPU time to spare"
    text = text if client_is_local else "the sidecar services had no CPU time to spare"
    return (Caution("client-bound", text),)


def cache_cautions(raw: Sequence[RawOutput]) -> tuple[Caution, ...]:
    """Return a caution if a cache answered requests that were to reach the disk."""
    shares = [entry.disk_share for entry in raw if entry.disk_share is not None]
    if not shares or min(shares) >= _MIN_DISK_SHARE:
        return ()
    text = f"only {min(shares):.0%} of the bytes reached the machine's disks: the values include a cache"
    return (Caution("cached", text),)


def reject_impossible_values(values: Sequence[MeasuredValue], cpus: int) -> None:
    """Raise TrialFailed for a value that is impossible on any machine with this number of CPUs."""
    for value in values:
        if why := _find_impossibility(value, cpus):
            raise TrialFailed(f"quarantined: {value.metric} of {format_quantity(value.value, value.unit)}: {why}")


def _find_impossibility(value: MeasuredValue, cpus: int) -> str:
    if value.unit not in ("s", "bytes") and not value.unit.endswith("/s"):
        return ""  # the unit of a user-defined metric may mean anything
    numbers = (value.value, *value.turns)
    if min(numbers) < 0:
        return "below zero"
    if not value.unit.endswith("/s"):
        return ""
    if value.better == "higher" and min(numbers) == 0:
        return "nothing was done"
    most = _HERTZ * cpus * (_BYTES if value.unit == "bytes/s" else _INSTRUCTIONS)
    return f"more than {cpus} CPUs of any kind can do" if max(numbers) > most else ""


def reject_faster_than_bare_metal(log: TrialLog, bare: TrialLog) -> None:
    """Fail a trial whose rate is in every turn at least twice that of bare metal in the same block."""
    known = {(value.metric, value.point): value for value in bare.values}
    for value in log.values:
        other = known.get((value.metric, value.point))
        if other is None or not value.unit.endswith("/s") or value.better != "higher":
            continue
        if min(len(value.turns), len(other.turns)) < _MIN_TURNS:
            continue
        # The slowest turn against the fastest of bare metal: a disturbed turn cannot fail a trial.
        if (times := min(value.turns) / max(other.turns)) >= _IMPOSSIBLE_RATIO:
            why = f"quarantined: {value.metric}: in each turn, at least {times:.1f} times that of bare metal"
            log.fail(why, "look for a difference from bare metal, such as a cache or the guest's clock")


@dataclass(frozen=True)
class ClockReading:
    """Reading of the clock inside, in seconds; `before` and `after` are the machine's clock right before and after."""

    before: float
    inside: float
    after: float


@dataclass(frozen=True)
class GuestClockCheck:
    """Check of the clock of an instance with a separate kernel, from its first reading on."""

    inside: Host
    first: ClockReading

    def reject_drift(self) -> None:
        """Raise TrialFailed if the clock has drifted from the machine's since the first reading."""
        apart = clock_drift_share(self.first, _read_clock(self.inside))
        if abs(apart) > _MAX_DRIFT_SHARE:
            what = f"quarantined: the clock inside ran {abs(apart):.2%} too {'fast' if apart > 0 else 'slow'}"
            raise TrialFailed(what, "give the guest another clock source: durations measured inside are wrong")


def read_guest_clock(stack: Sequence[Technology], inside: Host | None) -> GuestClockCheck | None:
    """Read an instance's clock for the first time; None without a separate kernel, or if the clock cannot be read."""
    if inside is None or all(technology.family in _SHARED_CLOCK_FAMILIES for technology in stack):
        return None
    try:
        return GuestClockCheck(inside, _read_clock(inside))
    except TrialFailed:  # a user-supplied image may lack tare's programs
        return None


def find_invalid(stack: Sequence[Technology], instance: Instance, clock: GuestClockCheck | None) -> TrialFailed | None:
    """Check a running instance for swapping and clock drift; return the error that invalidates its values, or None."""
    try:
        reject_swapping(stack, instance)
        if clock is not None:
            clock.reject_drift()
    except TrialFailed as error:
        return error
    return None


def clock_drift_share(first: ClockReading, last: ClockReading) -> float:
    """Return the minimum share by which the clock inside ran fast between two readings; negative if it ran slow.

    0 if the errors of the readings may explain the difference.
    """
    elapsed = last.inside - first.inside
    shortest, longest = last.before - first.after, last.after - first.before
    if shortest <= 0:  # the round trips of the readings overlap: they say nothing about the clock
        return 0.0
    if elapsed > longest:
        return elapsed / longest - 1
    return elapsed / shortest - 1 if elapsed < shortest else 0.0


def _read_clock(inside: Host) -> ClockReading:
    before = time.monotonic()
    nanoseconds = inside.run(SUPERVISE, "--clock", timeout=_CLOCK_SECONDS).text
    after = time.monotonic()
    return ClockReading(before, int(nanoseconds) / 1e9, after)
