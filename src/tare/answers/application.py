"""An application as advice takes it: what a unit of its work needs, and on which machine that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from tare.errors import UsageError
from tare.model.machines import Facts
from tare.model.work import USER
from tare.profiles.profile import Profile, Usage, basket, with_possible_rate

SATURATED = 0.85  # of the time: a thread that used a CPU for so much of it had no more to use


@dataclass(frozen=True)
class Basket:
    """What a unit of an application's work needs on bare metal.

    `counts` has units by kind of work, of user code CPU seconds. A kind that could not be counted is missing.
    They are means over the times that the application was watched; `repetitions` has those of each time.
    `elapsed_seconds` is the time from one unit to the next. It is not the time of a unit where the application waited
    for requests: `by_cpu` says so, and what a stack costs is then CPU time.
    """

    counts: Mapping[str, float]
    cpu_seconds: float
    elapsed_seconds: float
    repetitions: tuple[Mapping[str, float], ...] = ()
    by_cpu: bool = False

    @property
    def cpus_in_use(self) -> float:
        """CPUs that were in use at a time, at least one."""
        return max(self.mean_cpus, 1.0)

    @property
    def mean_cpus(self) -> float:
        """CPUs in use, as a mean over the time."""
        return self.cpu_seconds / self.elapsed_seconds

    @property
    def is_saturated(self) -> bool:
        """Whether it had no CPU time left, so that CPU time decides its throughput."""
        return not self.by_cpu and self.mean_cpus >= SATURATED

    @property
    def cost_seconds(self) -> float:
        """Seconds on bare metal that costs are relative to: CPU time where CPUs were in use, or the only measure."""
        return self.cpu_seconds if self.by_cpu else self.elapsed_seconds * self.cpus_in_use

    @property
    def kernel_seconds(self) -> float:
        """CPU seconds in the kernel."""
        return max(self.cpu_seconds - self.counts.get(USER.name, 0.0), 0.0)


@dataclass(frozen=True)
class Application:
    """An application as its profile has it.

    `name` says what was watched, `command` is its command line where tare started it, `unit` names a unit of its work,
    `memory_bytes` is what it takes on bare metal. `missing` says what is not known of it, `cautions` what makes its
    profile doubtful, a sentence each.
    """

    name: str
    basket: Basket
    machine: Facts
    unit: str = "unit of work"
    command: tuple[str, ...] = ()
    memory_bytes: int | None = None
    missing: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()


def application_of(*given: Profile) -> Application:
    """Return the application of one or more profiles of it.

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
        if (each.machine.cpu_model, each.machine.kernel) != (first.machine.cpu_model, first.machine.kernel):
            raise UsageError(f"{each.name}: profiles of different machines", "give profiles of one machine and kernel")
    baskets = tuple(map(basket, profiles))
    counts = {kind: fmean(own[kind] for own in baskets) for kind in baskets[0] if all(kind in own for own in baskets)}
    memory = [size for each in profiles if (size := _memory(each.usage)) is not None]
    return Application(
        first.name,
        Basket(
            counts,
            fmean(each.cpu_seconds for each in profiles),
            fmean(each.elapsed_seconds for each in profiles),
            baskets,
            by_cpu=first.unit != "run" and fmean(map(_busy, profiles)) < SATURATED,
        ),
        first.machine,
        "second of its work" if first.unit == "second" else first.unit,
        first.command,
        max(memory, default=None),
        tuple(dict.fromkeys(missing for each in profiles for missing in each.missing)),
        tuple(dict.fromkeys(caution for each in profiles for caution in each.cautions)),
    )


def _busy(profile: Profile) -> float:
    """Return the share of the time in which its busiest thread used a CPU, or all CPUs of the machine were in use.

    Where its threads are unknown, it is that of one CPU.
    """
    usage = profile.usage
    used = (usage.user_seconds + usage.system_seconds) / profile.seconds
    if usage.busiest_thread_seconds is None:
        return min(used, 1.0)
    return min(max(usage.busiest_thread_seconds / profile.seconds, used / max(profile.machine.cpus, 1)), 1.0)


def _memory(usage: Usage) -> int | None:
    return usage.resident_bytes if usage.proportional_bytes is None else usage.proportional_bytes
