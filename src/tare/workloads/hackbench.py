"""hackbench: many processes that send each other messages, which the scheduler has to bring together.

A group is 20 senders and 20 receivers. Each sender writes a message of 100 bytes to each receiver of its group, again
and again, over sockets or pipes. None of the papers ran it. This is hackbench as `perf bench sched messaging` has it,
with its numbers; published results mostly are the seconds of a fixed number of loops, here it is messages a second.

Every turn makes the same number of `loops` on every stack, 100 of which are perf's and hackbench's own default. The
start of the processes is not measured, but their end is, as in all of hackbench's numbers: with few loops it would be
most of what is measured. perf prints the time in whole milliseconds, 1 to 3 % of such a turn; to resolve less, give
more loops.

Settings: `kinds`, what carries the messages; `groups`, their numbers, rising; `loops`; `repetitions`, the turns of each
kind and number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from tare.loads.parsing import EachOnce, rising_check
from tare.loads.perf_bench import Bench, FixedLoopBench
from tare.model.trial import Metric, Sweep

MessageChannel = Literal["sockets", "pipes"]
_RECEIVERS = _SENDERS = 20  # of a group
_MAX_GROUPS = 50  # 2000 processes


@dataclass(frozen=True)
class Hackbench(FixedLoopBench):
    """Groups of processes that send each other messages."""

    name = "hackbench"
    title = "hackbench: messages between processes"
    metrics = (
        Metric("sockets", "Messages over sockets", "messages/s", "higher"),
        Metric("pipes", "Messages over pipes", "messages/s", "higher"),
    )
    sweep = Sweep("groups")
    usual_rate = 1500.0  # of one group

    kinds: EachOnce[MessageChannel] = ("sockets", "pipes")
    groups: Annotated[tuple[int, ...], AfterValidator(rising_check("numbers of groups", 1, _MAX_GROUPS))] = (1,)

    @property
    def turn_seconds(self) -> float:
        """That of the most groups."""
        return self.groups[-1] * super().turn_seconds

    @property
    def benches(self) -> tuple[Bench, ...]:
        """One for each kind and number of groups; each loop is a message from each sender to each receiver."""
        return tuple(_create_bench(kind, groups) for kind in self.kinds for groups in self.groups)


def _create_bench(kind: MessageChannel, groups: int) -> Bench:
    pipes = ("-p",) if kind == "pipes" else ()
    result = re.compile(
        rf"# Running 'sched/messaging' benchmark:\n# {_SENDERS} sender and receiver processes per group\n"
        rf"# {groups} groups == {groups * (_SENDERS + _RECEIVERS)} processes run\n\n"
        r"     Total time: (?P<seconds>\d+\.\d{3}) \[sec\]\n",
        re.ASCII,
    )
    argv = ("sched", "messaging", *pipes, "-g", str(groups))
    return Bench(argv, result, groups * _SENDERS * _RECEIVERS, kind, float(groups))
