"""Whether --serve changes what is measured: turns while the live page is asked for against turns while it is not.

As telemetry_effect.py: bare metal and a container take turns, and in each round each has two in succession, in random
order. During one of them, a program asks the server of the live page for its bar every twentieth of a second, forty
times as often as a browser does; it runs on the client's CPUs, as the server does. Block by block, the two are compared
with a margin of 1 %. At last, it prints what the server's process used for each request.

    PYTHONPATH=tests/support:tests/bench python tests/bench/serve_effect.py [BLOCKS [WORKLOAD...]]
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from telemetry_effect import compare, with_long_turns
from turns import say, testbed_for

from tare.hosts.host import Process
from tare.hosts.local import LocalHost, isolate_mounts
from tare.live.board import Now
from tare.live.watch import LivePage, served
from tare.running.trial import TrialRun

_ASKING = """
import http.client, os, select, sys
port, wanted = int(sys.argv[1]), False
while True:
    if select.select([0], [], [], 0.05 if wanted else None)[0]:
        word = os.read(0, 100)
        if not word:
            break
        wanted = word.rstrip().endswith(b"on")
    if wanted:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/now?as=a&page=1")
        connection.getresponse().read()
        connection.close()
"""


@dataclass
class Asker:
    """Asks, or does not; `sides` tells of each turn of each stack whether it did."""

    process: Process
    page: LivePage
    sides: dict[tuple[str, int], bool] = field(default_factory=dict)

    def turn(self, attempt: TrialRun, number: int, on: bool) -> bool:
        """Take a turn while it asks, or does not."""
        self.sides[attempt.step.stack, number] = on
        self.process.send("on\n" if on else "off\n")
        self.page.note(Now(time.monotonic(), "effect", turn=number))
        taken = attempt.take_turn(number, 0.0)
        self.process.send("off\n")
        return taken is not None


def main(blocks: str = "12", *names: str) -> None:
    """Print a Markdown table."""
    isolate_mounts()
    found = with_long_turns(names)
    told: list[str] = []
    with testbed_for(found.values()) as testbed, served(0, told.append) as page:
        page.begin(Path("nowhere"), testbed.limits.cpus)
        port = re.sub(r".*:(\d+)/$", r"\1", told[0])
        cpus = ",".join(map(str, page.cpus))
        with LocalHost().spawn("taskset", "--cpu-list", cpus, sys.executable, "-c", _ASKING, port) as process:
            print("| workload | stack | asked for, of not | 95 % | within 1 % |\n| --- | --- | --- | --- | --- |")
            for workload in found.values():
                compare(testbed, workload, int(blocks), lambda _: Asker(process, page))
        page.end("measured")
    say(told[-1])


if __name__ == "__main__":
    main(*sys.argv[1:])
