"""Comparison by CPU time: the speed of programs that only compute, as if they had a CPU for themselves.

The kernel's CPU time of a program contains neither the time in which another program had the CPU nor steal time. So
work per second of CPU time is the speed that the program has on an idle machine, whatever runs next to it. This holds
only where nothing but the CPU limits the program: it must be the bottleneck in the baseline, in the run's first block.
The rule sees no ratio, so it cannot prefer a result; and it sees only the first block, so that a cell never changes its
clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from tare.model.trial import MeasuredValue, Trial

_LEAST_BUSY_SHARE = 0.95  # the rest is idle, as for a program that waits for a disk or a lock


def is_cpu_bound(trials: Iterable[Trial]) -> bool:
    """Return whether one CPU was the bottleneck of these trials; False if that is unknown, or for several CPUs.

    It was if the instance used it, or wanted it while others had it, for 95 % of the turns. With several CPUs, a
    program may wait for its own threads.
    """
    busy_seconds = seconds = 0.0
    for trial in trials:
        if trial.limits is None or len(trial.limits.asked.cpus) != 1:
            return False
        for turn in trial.turns:
            if turn.cpu_seconds is not None and not turn.warm_up:
                taken_seconds = (turn.waited_seconds or 0.0) + (turn.steal or 0.0) * turn.seconds
                # Several tasks may wait at the same time.
                busy_seconds += min(turn.seconds, turn.cpu_seconds + taken_seconds)
                seconds += turn.seconds
    return seconds > 0 and busy_seconds >= _LEAST_BUSY_SHARE * seconds


def turns_by_cpu_time(value: MeasuredValue) -> tuple[float, ...]:
    """Return the turns of a value as they would be without the time that others took; () if that is unknown."""
    if value.better == "higher" and value.unit.endswith("/s"):
        return tuple(turn / share for turn, share in zip(value.turns, value.cpu_shares, strict=False))
    if value.better == "lower" and value.unit == "s":
        return tuple(turn * share for turn, share in zip(value.turns, value.cpu_shares, strict=False))
    return ()
