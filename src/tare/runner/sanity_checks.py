"""Sanity checks of a trial: impossible values are rejected, and doubtful trials get cautions.

A trial with an impossible value counts as failed. Its values are kept in `quarantined`, where nothing averages them.

- A time, a size or a rate below zero, and a throughput of zero: something was read that is none.
- More events a second than CPUs can execute instructions, or more bytes than they can load. The bounds are those of any
  CPU, so that no machine needs to be known: 10 GHz, of which the highest ever reached is 9.1 (HWBOT, world records of
  CPU frequency, 2025), ten instructions and 128 bytes a cycle (Intel 64 and IA-32 Architectures Optimization Reference
  Manual, table of caches: two loads of 64 bytes).
- A guest's clock that ran apart from the machine's by more than a thousandth: all that was timed by it is wrong. Each
  reading has the error of its round trip, which counts in the clock's favor.
- A stack that did the same work at least twice as fast as bare metal, in each turn of a block: what a stack adds only
  costs, and its CPUs are the same. Chance does not double a rate again and again.
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
from tare.model.errors import TrialFailed
from tare.model.trial import Caution, LimitsCheck, MeasuredValue, ObservedLimits, RawOutput
from tare.model.units import format_duration, format_quantity
from tare.plugins.technology import Technology
from tare.plugins.workload import Instance
from tare.runner.context import CpuPlacement
from tare.runner.layers import StartedLayer
from tare.runner.trial_log import TrialLog
from tare.telemetry.procfs import parse_swapped_pages, read_or_none

_BUSY_SHARE = 0.95  # a load generator that uses this share of its CPU counts as the bottleneck
_IDLE_CPUS = 0.1  # of a CPU, for server and load together: twice the work of both would then change a tenth
_MIN_DISK_SHARE = 0.9  # the share of what a workload moves past all caches that disks must see
_LATE_SHARE = 0.1  # of the allowed time, by which a trial may be longer: it includes what carries its commands
_GUEST_FAMILIES = ("type 1", "type 2", "emulator")  # families whose instances have a kernel of their own
_KERNEL_SHARE = 0.15  # the share of its memory that a guest's kernel may keep for itself
_HERTZ, _INSTRUCTIONS, _BYTES = 10e9, 10, 128  # the last two are of a cycle
_MAX_DRIFT_SHARE = 0.001
_IMPOSSIBLE_RATIO, _MIN_TURNS = 2.0, 3
_SHARED_CLOCK_FAMILIES = (
    "bare metal",
    "container",
)  # families whose instances read the clock of the kernel around them
_CLOCK_SECONDS = 30.0


def read_observed_limits(part: StartedLayer) -> ObservedLimits:
    """Read the limits back from inside; for memory also from the control groups of the first process."""
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
    """Compare the limits asked for with those seen. A guest's kernel may keep up to 15 % of the memory for itself."""
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
    """Raise TrialFailed if a guest's own kernel moved pages to swap or back: its values are those of its disk."""
    if instance.inside is None or not any(technology.family in _GUEST_FAMILIES for technology in stack):
        return
    pages = sum(read_or_none(parse_swapped_pages, instance.inside.read, "/proc/vmstat") or ())
    if pages:
        raise TrialFailed(f"the guest swapped: {pages} pages went to its swap or came back", "give it more memory")


def time_cautions(measured_seconds: float, seconds: float) -> tuple[Caution, ...]:
    """Warn if a trial measured for longer than it may: its workload's settings fit by an estimate."""
    if measured_seconds <= seconds * (1 + _LATE_SHARE):
        return ()
    text = f"measured for {format_duration(measured_seconds)}, {format_duration(seconds)} were allowed"
    return (Caution("over-time", text),)


def client_cautions(raw: Sequence[RawOutput], server_busy: float | None) -> tuple[Caution, ...]:
    """Warn if the load was the bottleneck: its CPU was busy and the server's were not. Shares are from 0 to 1.

    The mean over the turns of a point decides, because single turns are short. A limit of the client that the workload
    itself reports counts in any case.
    """
    said = tuple(Caution("client-bound", each.client_limit) for each in raw if each.client_limit)
    if server_busy is not None and server_busy >= _BUSY_SHARE:
        return said
    loads = {
        f"the load of client {number}" if number else "the load": [
            label for label, share in by_label if share >= _BUSY_SHARE
        ]
        for number, by_label in _cpu_shares_by_client(raw)
    }
    texts = (f"{load} had no CPU time to spare at {', '.join(bound)}" for load, bound in loads.items() if bound)
    return (*said, *(Caution("client-bound", text) for text in texts))


def _cpu_shares_by_client(raw: Sequence[RawOutput]) -> Iterator[tuple[int, Iterable[tuple[str, float]]]]:
    """Yield the CPU shares by label of each client: under its number where several share the load, else under 0."""
    yield 0, _mean_by_label((each.label, each.client_cpu) for each in raw if not each.clients_cpu).items()
    for place in range(max((len(each.clients_cpu) for each in raw), default=0)):
        own = ((each.label, each.clients_cpu[place]) for each in raw if len(each.clients_cpu) > place)
        yield place + 1, _mean_by_label(own).items()


def waiting_cautions(raw: Sequence[RawOutput], server_cpus: Mapping[str, Sequence[float]]) -> tuple[Caution, ...]:
    """Warn if neither the server nor a load without pauses was busy: what such a value shows is a wait.

    `server_cpus` has, for each label, how many CPUs of the instance were busy in each turn. As with the client, the
    mean over the turns of a point counts.
    """
    clients = _mean_by_label((each.label, each.client_cpu) for each in raw)
    busy = {label: own + fmean(server_cpus[label]) for label, own in clients.items() if label in server_cpus}
    waiting = [label for label, cpus in busy.items() if cpus < _IDLE_CPUS]
    if not waiting:
        return ()
    text = f"neither the server nor the load was busy at {', '.join(waiting)}: this is a wait, not a cost"
    return (Caution("waiting", text),)


def _mean_by_label(shares: Iterable[tuple[str, float | None]]) -> Mapping[str, float]:
    """Return by label the mean share of a client's CPUs that the load used, where it is known."""
    known: dict[str, list[float]] = defaultdict(list)
    for label, share in shares:
        if share is not None:
            known[label].append(share)
    return {label: fmean(found) for label, found in known.items()}


def placement_cautions(placement: CpuPlacement) -> tuple[Caution, ...]:
    """Warn if services beside the one under test share CPUs with it, on a machine that the client is not on."""
    if not set(placement.server_sidecar_cpus) & set(placement.server):
        return ()
    text = "services beside the one under test run on the same CPUs: the machine is too small"
    return (Caution("shared-cpus", text),)


def sidecar_cautions(
    client_busy: float | None, server_busy: float | None, client_is_local: bool = True
) -> tuple[Caution, ...]:
    """Warn if the load and the services beside had used up the client's CPUs, and the server had not used up its own.

    Shares are from 0 to 1, None where they are unknown. Where the client is not `client_is_local`, the CPUs are those
    of the services beside alone.
    """
    if client_busy is None or client_busy < _BUSY_SHARE or (server_busy is not None and server_busy >= _BUSY_SHARE):
        return ()
    text = "the load and the services beside the one under test had no CPU time to spare together"
    text = text if client_is_local else "the services beside the one under test had no CPU time to spare"
    return (Caution("client-bound", text),)


def cache_cautions(raw: Sequence[RawOutput]) -> tuple[Caution, ...]:
    """Warn if a cache answered a workload of files that wanted to reach the disk."""
    shares = [entry.disk_share for entry in raw if entry.disk_share is not None]
    if not shares or min(shares) >= _MIN_DISK_SHARE:
        return ()
    text = f"the machine's disks saw {min(shares):.0%} of what should reach them: a cache is in the values"
    return (Caution("cached", text),)


def reject_impossible_values(values: Sequence[MeasuredValue], cpus: int) -> None:
    """Raise TrialFailed for a value that no machine with so many CPUs can give."""
    for value in values:
        if why := _find_impossibility(value, cpus):
            raise TrialFailed(f"quarantined: {value.metric} of {format_quantity(value.value, value.unit)}: {why}")


def _find_impossibility(value: MeasuredValue, cpus: int) -> str:
    if value.unit not in ("s", "bytes") and not value.unit.endswith("/s"):
        return ""  # of a user's own metric, whose unit may mean anything
    each = (value.value, *value.turns)
    if min(each) < 0:
        return "less than nothing"
    if not value.unit.endswith("/s"):
        return ""
    if value.better == "higher" and min(each) == 0:
        return "nothing was done"
    most = _HERTZ * cpus * (_BYTES if value.unit == "bytes/s" else _INSTRUCTIONS)
    return f"more than {cpus} CPUs of any kind can do" if max(each) > most else ""


def reject_faster_than_bare_metal(log: TrialLog, bare: TrialLog) -> None:
    """Fail a trial that did the same as one on bare metal, of its block, at twice the rate or more."""
    known = {(value.metric, value.point): value for value in bare.values}
    for value in log.values:
        other = known.get((value.metric, value.point))
        if other is None or not value.unit.endswith("/s") or value.better != "higher":
            continue
        if min(len(value.turns), len(other.turns)) < _MIN_TURNS:
            continue
        if (times := min(value.turns) / max(other.turns)) >= _IMPOSSIBLE_RATIO:
            why = f"quarantined: {value.metric}: in each turn, at least {times:.1f} times that of bare metal"
            log.fail(why, "look for what differs, such as a clock inside or a cache")


@dataclass(frozen=True)
class ClockReading:
    """A look at the clock inside, in seconds; `before` and `after` it are of the machine's clock."""

    before: float
    inside: float
    after: float


@dataclass(frozen=True)
class GuestClockCheck:
    """The clock of an instance whose kernel is its own, from its first look on."""

    inside: Host
    first: ClockReading

    def reject_drift(self) -> None:
        """Raise TrialFailed if it has run apart from the machine's clock since."""
        apart = clock_drift_share(self.first, _read_clock(self.inside))
        if abs(apart) > _MAX_DRIFT_SHARE:
            what = f"quarantined: the clock inside ran {abs(apart):.2%} too {'fast' if apart > 0 else 'slow'}"
            raise TrialFailed(what, "what its programs timed is wrong: give the guest another clock source")


def read_guest_clock(stack: Sequence[Technology], inside: Host | None) -> GuestClockCheck | None:
    """Look at an instance's clock for the first time; None where there is none of its own, or it cannot be read."""
    if inside is None or all(technology.family in _SHARED_CLOCK_FAMILIES for technology in stack):
        return None
    try:
        return GuestClockCheck(inside, _read_clock(inside))
    except TrialFailed:  # an image of the user's is without tare's programs
        return None


def find_invalid(stack: Sequence[Technology], instance: Instance, clock: GuestClockCheck | None) -> TrialFailed | None:
    """Ask an instance that still runs whether what it has measured can be right; return what speaks against it."""
    try:
        reject_swapping(stack, instance)
        if clock is not None:
            clock.reject_drift()
    except TrialFailed as error:
        return error
    return None


def clock_drift_share(first: ClockReading, last: ClockReading) -> float:
    """Return the share by which the clock inside ran fast between two looks (slow: negative), at least.

    It is 0 where the looks' own errors may explain all of it.
    """
    gone = last.inside - first.inside
    shortest, longest = last.before - first.after, last.after - first.before
    if shortest <= 0:
        return 0.0
    if gone > longest:
        return gone / longest - 1
    return gone / shortest - 1 if gone < shortest else 0.0


def _read_clock(inside: Host) -> ClockReading:
    before = time.monotonic()
    nanoseconds = inside.run(SUPERVISE, "--clock", timeout=_CLOCK_SECONDS).text
    after = time.monotonic()
    return ClockReading(before, int(nanoseconds) / 1e9, after)
