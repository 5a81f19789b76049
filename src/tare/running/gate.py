"""The gate: a value that cannot be is kept out of all figures, with the reason.

The trial counts as failed. Its values are kept in `quarantined`, where nothing averages them.

- A time, a size or a rate below zero, and a throughput of zero: something was read that is none.
- More events a second than CPUs can execute instructions, or more bytes than they can load. The bounds are those of any
  CPU, so that no machine needs to be known: 10 GHz, of which the highest ever reached is 9.1 (HWBOT, world records of
  CPU frequency, 2025), ten instructions and 128 bytes a cycle (Intel 64 and IA-32 Architectures Optimization Reference
  Manual, table of caches: two loads of 64 bytes).
- A clock inside that ran apart from the machine's by more than a thousandth: all that was timed by it is wrong. Each
  look has an error of its round trip, which counts in the clock's favor.
- A stack that did the same work at least twice as fast as bare metal, in each turn of a block: what a stack adds only
  costs, and its CPUs are the same. Chance does not double a rate again and again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tare.contracts.technologies import Technology
from tare.contracts.workloads import Instance
from tare.errors import TrialFailed
from tare.hosts.exec import RUN
from tare.hosts.host import Host
from tare.model.trials import Measured, Trial
from tare.running.doubts import refuse_swapping
from tare.units import format_quantity

_HERTZ, _INSTRUCTIONS, _BYTES = 10e9, 10, 128  # the last two are of a cycle
_APART = 0.001
_BEYOND, _LEAST_TURNS = 2.0, 3
_SHARES_CLOCK = ("bare metal", "container")  # families whose instances read the clock of the kernel around them
_SECONDS = 30.0


def refuse_absurd(values: Sequence[Measured], cpus: int) -> None:
    """Raise TrialFailed for a value that no machine with so many CPUs can give."""
    for value in values:
        if why := _absurd(value, cpus):
            raise TrialFailed(f"quarantined: {value.metric} of {format_quantity(value.value, value.unit)}: {why}")


def _absurd(value: Measured, cpus: int) -> str:
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


def beyond_bare_metal(trial: Trial, bare: Trial) -> Trial:
    """Quarantine a trial that did the same as one on bare metal, of its block, at twice the rate or more."""
    known = {(value.metric, value.point): value for value in bare.values}
    for value in trial.values:
        other = known.get((value.metric, value.point))
        if other is None or not value.unit.endswith("/s") or value.better != "higher":
            continue
        if min(len(value.turns), len(other.turns)) < _LEAST_TURNS:
            continue
        if (times := min(value.turns) / max(other.turns)) >= _BEYOND:
            why = f"quarantined: {value.metric}: in each turn, at least {times:.1f} times that of bare metal"
            hint = "look for what differs, such as a clock inside or a cache"
            return replace(trial, status="failed", reason=why, hint=hint, values=(), quarantined=trial.values)
    return trial


@dataclass(frozen=True)
class Look:
    """A look at the clock inside, in seconds; `before` and `after` it are of the machine's clock."""

    before: float
    inside: float
    after: float


@dataclass(frozen=True)
class ClockInside:
    """The clock of an instance whose kernel is its own, from its first look on."""

    inside: Host
    first: Look

    def refuse_apart(self) -> None:
        """Raise TrialFailed if it has run apart from the machine's clock since."""
        apart = apart_share(self.first, _look(self.inside))
        if abs(apart) > _APART:
            what = f"quarantined: the clock inside ran {abs(apart):.2%} too {'fast' if apart > 0 else 'slow'}"
            raise TrialFailed(what, "what its programs timed is wrong: give the guest another clock source")


def clock_inside(stack: Sequence[Technology], inside: Host | None) -> ClockInside | None:
    """Look at an instance's clock for the first time; None where there is none of its own, or it cannot be read."""
    if inside is None or all(technology.family in _SHARES_CLOCK for technology in stack):
        return None
    try:
        return ClockInside(inside, _look(inside))
    except TrialFailed:  # an image of the user's is without tare's programs
        return None


def what_is_wrong(stack: Sequence[Technology], instance: Instance, clock: ClockInside | None) -> TrialFailed | None:
    """Ask an instance that still runs whether what it has measured can be right; return what speaks against it."""
    try:
        refuse_swapping(stack, instance)
        if clock is not None:
            clock.refuse_apart()
    except TrialFailed as error:
        return error
    return None


def apart_share(first: Look, last: Look) -> float:
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


def _look(inside: Host) -> Look:
    before = time.monotonic()
    nanoseconds = inside.run(RUN, "--clock", timeout=_SECONDS).text
    after = time.monotonic()
    return Look(before, int(nanoseconds) / 1e9, after)
