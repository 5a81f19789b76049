"""An application as advice takes it: what a unit of its work needs, and on which machine that was seen."""

from __future__ import annotations

from dataclasses import dataclass

from tare.answers.bill import Basket
from tare.errors import UsageError
from tare.model.machines import Facts
from tare.profiles.profile import Profile, basket


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
