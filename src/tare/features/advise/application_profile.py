"""Profile of an application as the cost model needs it: operation counts and times of a unit of its work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from tare.features.advise.profiler.profile import Profile, Usage, count_operations, with_possible_rate
from tare.model.errors import UsageError
from tare.model.machine import Facts
from tare.model.operations import USER

SATURATED_SHARE = 0.85  # of the time: a thread that used a CPU for longer had no CPU time left


@dataclass(frozen=True)
class OperationCounts:
    """Operations and time that a unit of an application's work needs on bare metal.

    `counts` has the number of operations by kind, for user code its CPU seconds; a kind that could not be counted is
    missing. Counts are means over all profiles, and `repetitions` has the counts of each profile. `elapsed_seconds` is
    the time from one unit to the next. If the application waited for requests, that is not the time of a unit: `by_cpu`
    is then true, and costs are CPU time.
    """

    counts: Mapping[str, float]
    cpu_seconds: float
    elapsed_seconds: float
    repetitions: tuple[Mapping[str, float], ...] = ()
    by_cpu: bool = False

    @property
    def mean_cpus(self) -> float:
        """Mean number of CPUs in use."""
        return self.cpu_seconds / self.elapsed_seconds

    @property
    def is_saturated(self) -> bool:
        """Whether CPU time limits the application's throughput."""
        return not self.by_cpu and self.mean_cpus >= SATURATED_SHARE

    @property
    def cost_seconds(self) -> float:
        """CPU seconds on bare metal that extra costs are divided by; idle time of a single CPU counts."""
        return self.cpu_seconds if self.by_cpu else self.elapsed_seconds * max(self.mean_cpus, 1.0)

    @property
    def kernel_seconds(self) -> float:
        """CPU seconds in the kernel."""
        return max(self.cpu_seconds - self.counts.get(USER.name, 0.0), 0.0)


@dataclass(frozen=True)
class ApplicationProfile:
    """Application as the cost model needs it, combined from one or more profiles.

    `name` names the processes that were watched. `command` is the command line, empty if tare did not start the
    application. `unit` names a unit of its work. `memory_bytes` is its memory on bare metal, None if unknown. `missing`
    and `cautions` are sentences about unknown and doubtful figures of its profiles.
    """

    name: str
    operations: OperationCounts
    machine: Facts
    unit: str = "unit of work"
    command: tuple[str, ...] = ()
    memory_bytes: int | None = None
    missing: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()


def combine_profiles(*given: Profile) -> ApplicationProfile:
    """Combine one or more profiles of an application.

    Raises UsageError for a profile without CPU time, and for profiles of different units or machines.
    """
    profiles = tuple(map(with_possible_rate, given))
    first = profiles[0]
    for each in profiles:
        if each.cpu_seconds <= 0:
            raise UsageError(f"the profile of {each.name} has no CPU time", "watch the application while it works")
        if each.unit != first.unit:
            what = f"a {each.unit} is the unit of {each.name}, and a {first.unit} that of {first.name}"
            raise UsageError(what, "give several profiles only of one application")
        if (machine := _describe_machine(each.machine)) != _describe_machine(first.machine):
            what = f"{each.name}: profiles of different machines: {_describe_machine(first.machine)}, and {machine}"
            raise UsageError(what, "give profiles of one machine and kernel")
    repetitions = tuple(map(count_operations, profiles))
    counted_kinds = [kind for kind in repetitions[0] if all(kind in counts for counts in repetitions)]
    memory = [size for each in profiles if (size := _memory_bytes(each.usage)) is not None]
    return ApplicationProfile(
        first.name,
        OperationCounts(
            {kind: fmean(counts[kind] for counts in repetitions) for kind in counted_kinds},
            fmean(each.cpu_seconds for each in profiles),
            fmean(each.elapsed_seconds for each in profiles),
            repetitions,
            by_cpu=first.unit != "run" and fmean(map(_busiest_cpu_share, profiles)) < SATURATED_SHARE,
        ),
        first.machine,
        "second of its work" if first.unit == "second" else first.unit,
        first.command,
        max(memory, default=None),
        tuple(dict.fromkeys(missing for each in profiles for missing in each.missing)),
        tuple(dict.fromkeys(caution for each in profiles for caution in each.cautions)),
    )


def _describe_machine(machine: Facts) -> str:
    return f"{machine.cpu_model}, Linux {machine.kernel} on {machine.architecture}"


def _busiest_cpu_share(profile: Profile) -> float:
    """Return the larger of two shares of the time: busiest thread on a CPU, and all CPUs of the machine in use.

    If the busiest thread is unknown, return the share of one CPU, at most 1.
    """
    usage = profile.usage
    used = (usage.user_seconds + usage.system_seconds) / profile.seconds
    if usage.busiest_thread_seconds is None:
        return min(used, 1.0)
    return min(max(usage.busiest_thread_seconds / profile.seconds, used / max(profile.machine.cpus, 1)), 1.0)


def _memory_bytes(usage: Usage) -> int | None:
    # Resident sizes count a page that processes share once for each of them.
    return usage.resident_bytes if usage.proportional_bytes is None else usage.proportional_bytes
