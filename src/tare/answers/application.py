"""An application as advice takes it: what a unit of its work needs, and on which machine that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tare.errors import UsageError
from tare.model.machines import Facts
from tare.model.work import USER
from tare.profiles.profile import Profile, basket

_SATURATED = 0.85  # of a CPU in use all the time, from here on


@dataclass(frozen=True)
class Basket:
    """What a unit of an application's work needs on bare metal.

    `counts` has units by kind of work, of user code CPU seconds. A kind that could not be counted is missing.
    `repetitions` are the same, of each time that the application was watched; empty for one.
    """

    counts: Mapping[str, float]
    cpu_seconds: float
    elapsed_seconds: float
    repetitions: tuple[Mapping[str, float], ...] = ()

    @property
    def cpus_in_use(self) -> float:
        """CPUs that were in use at a time, at least one."""
        return max(self.cpu_seconds / self.elapsed_seconds, 1.0)

    @property
    def is_saturated(self) -> bool:
        """Whether it had no CPU time left, so that CPU time decides its throughput."""
        return self.cpu_seconds / self.elapsed_seconds >= _SATURATED

    @property
    def kernel_seconds(self) -> float:
        """CPU seconds in the kernel."""
        return max(self.cpu_seconds - self.counts.get(USER.name, 0.0), 0.0)


@dataclass(frozen=True)
class Application:
    """An application as its profile has it.

    `name` says what was watched, `command` is its command line where tare started it, `unit` names a unit of its work,
    `memory_bytes` is what it takes on bare metal. `missing` says what is not known of it, a sentence each.
    """

    name: str
    basket: Basket
    machine: Facts
    unit: str = "unit of work"
    command: tuple[str, ...] = ()
    memory_bytes: int | None = None
    missing: tuple[str, ...] = ()


def application_of(profile: Profile) -> Application:
    """Return the application of a profile; raises UsageError for one that used no CPU time."""
    if profile.cpu_seconds <= 0:
        raise UsageError(f"the profile of {profile.name} has no CPU time", "watch the application while it works")
    usage = profile.usage
    memory = usage.proportional_bytes if usage.proportional_bytes is not None else usage.resident_bytes
    needs = Basket(basket(profile), profile.cpu_seconds, profile.elapsed_seconds)
    unit = "second of its work" if profile.unit == "second" else profile.unit
    return Application(profile.name, needs, profile.machine, unit, profile.command, memory, profile.missing)
