"""Comparison by CPU time: the speed of programs that only compute, as if they had a CPU for themselves.

The kernel's CPU time of a program contains neither the time in which another program had the CPU nor steal time. So
work per second of CPU time is the speed that the program has on an idle machine, whatever runs next to it. This holds
only where nothing but the CPU limits the program: it must be the bottleneck both in the baseline and in the stack, in
the first block of each. A stack in which the program waits, for a disk, a lock or a timer, is compared by wall time.
The rule sees no ratio, so it cannot prefer a result; and it sees only the first block, so that a cell never changes its
clock.
"""

from __future__ import annotations

from statistics import fmean

from tare.model.trial import MeasuredValue, Trial

_LEAST_BUSY_SHARE = 0.95  # the rest is idle, as for a program that waits for a disk or a lock


def is_cpu_bound(trial: Trial, value: MeasuredValue) -> bool:
    """Return whether a CPU was the bottleneck of a value; False if that is unknown, or for several CPUs.

    It was if the program had or wanted it, or if the hypervisor gave it to others, for 95 % of the turns. With several
    CPUs, a program may wait for its own threads.
    """
    if not value.cpu_shares or trial.limits is None or len(trial.limits.asked.cpus) != 1:
        return False
    steal = [turn.steal or 0.0 for turn in trial.turns if turn.label == value.label and not turn.warm_up]
    return value.cpu_wanted + (fmean(steal) if steal else 0.0) >= _LEAST_BUSY_SHARE


def turns_by_cpu_time(value: MeasuredValue) -> tuple[float, ...]:
    """Return the turns of a value as they would be without the time that others took; () if that is unknown."""
    if value.better == "higher" and value.unit.endswith("/s"):
        return tuple(turn / share for turn, share in zip(value.turns, value.cpu_shares, strict=False))
    if value.better == "lower" and value.unit == "s":
        return tuple(turn * share for turn, share in zip(value.turns, value.cpu_shares, strict=False))
    return ()
