"""hackbench: messages between many processes, a load of the scheduler.

A group has 20 senders and 20 receivers. In each loop, each sender writes a message of 100 bytes to each receiver of its
group, over sockets or pipes. None of the papers ran hackbench. The program is `perf bench sched messaging`, with the
numbers of hackbench. Published results are mostly the seconds of a fixed number of loops; here they are messages a
second.

Every turn runs the same number of `loops` on every stack. 100 loops are the default of perf and hackbench. The start of
the processes is not measured, but their end is, as in all of hackbench's numbers. With few loops, the end would be most
of the measured time. perf prints the time in whole milliseconds, 1 to 3 % of such a turn. More loops give a finer
resolution.

Settings: `kinds`, the channels of the messages; `groups`, rising numbers of groups; `loops`; `repetitions`, the turns
of each channel and number.
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
_RECEIVERS = _SENDERS = 20  # of a group, fixed in perf
_MAX_GROUPS = 50  # 2000 processes


@dataclass(frozen=True)
class Hackbench(FixedLoopBench):
    """Groups of processes that exchange messages."""

    name = "hackbench"
    title = "hackbench: messages between processes"
    metrics = (
        Metric("sockets", "Messages over sockets", "messages/s", "higher"),
        Metric("pipes", "Messages over pipes", "messages/s", "higher"),
    )
    sweep = Sweep("groups")
    usual_rate = 1500.0  # loops a second of one group

    kinds: EachOnce[MessageChannel] = ("sockets", "pipes")
    groups: Annotated[tuple[int, ...], AfterValidator(rising_check("numbers of groups", 1, _MAX_GROUPS))] = (1,)

    @property
    def turn_seconds(self) -> float:
        """Usual length of a turn of the most groups."""
        return self.groups[-1] * super().turn_seconds

    @property
    def benches(self) -> tuple[Bench, ...]:
        """A benchmark for each channel and number of groups. A loop is a message from each sender to each receiver."""
        return tuple(_create_bench(channel, groups) for channel in self.kinds for groups in self.groups)


def _create_bench(channel: MessageChannel, groups: int) -> Bench:
    pipes = ("-p",) if channel == "pipes" else ()
    result = re.compile(
        rf"# Running 'sched/messaging' benchmark:\n# {_SENDERS} sender and receiver processes per group\n"
        rf"# {groups} groups == {groups * (_SENDERS + _RECEIVERS)} processes run\n\n"
        r"     Total time: (?P<seconds>\d+\.\d{3}) \[sec\]\n",
        re.ASCII,
    )
    argv = ("sched", "messaging", *pipes, "-g", str(groups))
    return Bench(argv, result, groups * _SENDERS * _RECEIVERS, channel, float(groups))
