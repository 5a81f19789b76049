"""A command is profiled: it runs again and again, counted in the first half of the time, only watched in the second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from tare import __version__
from tare.errors import TimedOut, TrialFailed
from tare.hosts.control_groups import CountingGroup
from tare.hosts.host import Process
from tare.profiles.counting import Schedule
from tare.profiles.finding import Target
from tare.profiles.profile import FORMAT, Profile
from tare.profiles.taking import Say, Taking, counts_of, now
from tare.profiles.watching import Watch
from tare.units import format_duration

_PATIENCE_SECONDS, _RUN_SECONDS = 60.0, 3600.0
# Runs a command for each line that it reads, and prints its exit code.
_RUNNER = 'while read -r line; do "$@" </dev/null >/dev/null 2>&1; echo "$?"; done'


class Runs:
    """Runs a command again and again, each time to its end."""

    def __init__(self, process: Process, command: Sequence[str], say: Say) -> None:
        self._process = process
        self._command = command
        self._say = say

    def repeat(self, seconds: float) -> tuple[int, float]:
        """Run it once, and again until so many seconds are over; return how often, and how long all runs took.

        Raises TrialFailed where it fails.
        """
        count, began = 0, time.monotonic()
        while not count or time.monotonic() - began < seconds:
            self._process.send("\n")
            if (code := self._code()) != "0":
                raise TrialFailed(f"{self._command[0]}: exit code {code}", "run it by hand: it has to succeed")
            count += 1
        return count, time.monotonic() - began

    def _code(self) -> str:
        try:
            return self._process.read_line(_PATIENCE_SECONDS).text
        except TimedOut:
            self._say(f"{self._command[0]} goes on; a server does not end: start it, and profile it with --pid")
            return self._process.read_line(_RUN_SECONDS).text


def profile_of_command(taking: Taking, command: Sequence[str], group: CountingGroup) -> Profile:
    """Run a command in a control group of its own, at least once counted and once only watched. Raises TareError."""
    started, half = now(), taking.seconds / 2
    with group.host.spawn(*group.join, "sh", "-c", _RUNNER, "sh", *command) as process:
        runs = Runs(process, command, taking.say)
        with taking.counting((process.pid,), Schedule()) as begun:
            if begun.counter is not None:
                taking.say(f"running {command[0]} for {format_duration(half)}, counted")
            # Where nothing is counted, one run: after it, the process is surely in its control group.
            counted, _ = runs.repeat(0.0 if begun.counter is None else half)
            begun.end()
        taking.say(f"running {command[0]} for {format_duration(half)}, watched")
        with closing(Watch(taking.host, Target(command[0], group.processes))) as watch:
            number, seconds = runs.repeat(half)
            usage = watch.usage(seconds)
    return Profile(
        format=FORMAT,
        tare=__version__,
        started=started,
        name=" ".join(command),
        command=tuple(command),
        machine=taking.host.facts(),
        unit="run",
        units=number,
        seconds=seconds,
        usage=usage,
        counts=counts_of(begun.traced, counted),
        missing=begun.missing,
    )
