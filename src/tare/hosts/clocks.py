"""The monotonic clocks of other machines, against ours."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tare.hosts.host import Host

_LOOKS = 7


@dataclass(frozen=True)
class Clock:
    """A clock that is ahead of ours by so many seconds; it may be off by `error_seconds`, half of a round trip."""

    ahead_seconds: float = 0.0
    error_seconds: float = 0.0


def read_clock(host: Host, program: str) -> Clock:
    """Read a host's monotonic clock by `run` (programs/run.c), which is `program` there: the shortest way counts."""
    looks = []
    for _ in range(_LOOKS):
        before = time.monotonic()
        theirs = int(host.run(program, "--clock", timeout=30).text) / 1e9
        after = time.monotonic()
        looks.append(((after - before) / 2, theirs - (before + after) / 2))
    error_seconds, ahead_seconds = min(looks)
    return Clock(ahead_seconds, error_seconds)
