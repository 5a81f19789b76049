"""Whether --serve changes what is measured: turns while the live page is asked for against turns while it is not.

As telemetry_effect.py: bare metal and a container take turns, and in each round each has two in succession, in random
order. During one of them, a program asks the server of the live page for its bar every twentieth of a second, forty
times as often as a browser does; it runs on the client's CPUs, as the server does. Block by block, the two are compared
with a margin of 1 %. At last, it prints what the server's process used for each request.

    PYTHONPATH=tests/support:tests/bench python tests/bench/serve_effect.py [BLOCKS [WORKLOAD...]]
"""

from __future__ import annotations

import itertools
import random
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from own_testbed import own_testbed
from telemetry_effect import effect_of, in_turns, longer
from turns import ended, workloads

from tare import plugins
from tare.contracts.workloads import Workload
from tare.hosts.host import Process
from tare.hosts.local import LocalHost, isolate_mounts
from tare.images.image import built_image
from tare.images.recipes import client_recipe, guest_recipe
from tare.live.board import Now
from tare.live.watch import LivePage, served
from tare.running.testbed import Testbed
from tare.running.trial import TrialRun
from tare.statistics.ratios import block_ratio
from tare.suites.plan import Step
from tare.telemetry.sampler import sampling, way_to

_MARGIN = 0.01
_STACKS = ("native", "crun")
_MEASURED = 2  # times in a block
_USUAL = ("dhrystone", "nginx")
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
        return attempt.take_turn(number, 0.0) is not None


@contextmanager
def going(testbed: Testbed, workload: Workload) -> Iterator[list[TrialRun]]:
    """Start an instance of each stack."""
    with sampling(testbed.run.telemetry / "effect.parquet", way_to(testbed.host)) as sampler, ExitStack() as stack:
        together, attempts = replace(testbed, start=replace(testbed.start, sampler=sampler)), []
        for slot, name in enumerate(_STACKS):
            step = Step(f"effect-{slot}", workload.name, name, 0, slot)
            technology = plugins.find("technologies", name)()
            attempts.append(stack.enter_context(TrialRun(together.slot(slot), step, (technology,), workload)))
            attempts[-1].start()
        yield attempts


def compare(testbed: Testbed, workload: Workload, blocks: int, asker: Asker) -> None:
    """Print the rows of a workload."""
    effects: dict[str, list[float]] = {name: [] for name in _STACKS}
    chance = random.Random(1)  # noqa: S311 - nothing secret
    for _ in range(blocks):
        numbers = itertools.count()
        asker.sides.clear()
        with going(testbed, workload) as attempts:
            for _ in range(_MEASURED):
                for attempt in attempts:
                    attempt.measure_from(0)
                in_turns(attempts, asker, chance, numbers)
            asker.process.send("off\n")
            for attempt in attempts:
                trial = ended(attempt)
                effects[trial.stack].append(effect_of(trial, asker.sides))
    for name in _STACKS:
        ratio = block_ratio(effects[name], [1.0] * blocks, _MARGIN)
        assert ratio is not None
        interval = f"[{100 * ratio.low:.2f}, {100 * ratio.high:.2f}]" if ratio.low and ratio.high else "too few blocks"
        print(f"| {workload.name} | {name} | {100 * ratio.ratio:.2f} % | {interval} | {ratio.side} |", flush=True)


def main(blocks: str = "12", *names: str) -> None:
    """Print a Markdown table."""
    isolate_mounts()
    found = {name: longer(each) for name, each in workloads().items() if name in (names or _USUAL)}

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    image, loads = (built_image(say, recipe(tuple(found.values()))) for recipe in (guest_recipe, client_recipe))
    told: list[str] = []
    with own_testbed(image, loads) as testbed, served(0, told.append) as page:
        page.begin(Path("nowhere"), testbed.limits.cpus)
        port = re.sub(r".*:(\d+)/$", r"\1", told[0])
        cpus = ",".join(map(str, page.cpus))
        with LocalHost().spawn("taskset", "--cpu-list", cpus, sys.executable, "-c", _ASKING, port) as process:
            print("| workload | stack | asked for, of not | 95 % | within 1 % |\n| --- | --- | --- | --- | --- |")
            for workload in found.values():
                compare(testbed, workload, int(blocks), Asker(process, page))
        page.end("measured")
    print(told[-1], file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
