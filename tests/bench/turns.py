"""What turns are worth and what they cost: noise between equal stacks, and the bias of a turn after those of others.

Noise: in each block, stacks that are all bare metal are measured twice with the same measured time: in turns, and one
after the other. The true ratio of any two is 1, so that the standard deviation of the log ratio is noise alone.

Bias: in each round, each instance has two turns in succession. The first follows turns of others and begins with
the caches as they left them; the second follows one of its own, as if it were alone. A block's ratio is the median over
such pairs, which meet the same burst; blocks are compared by tare's own equivalence with a margin of 2 %. What a
decision could be wrong by is this ratio of a stack to that of bare metal, which is told as well.

    PYTHONPATH=tests/support with-engines python tests/bench/turns.py noise [BLOCKS [WORKLOAD...]]
    PYTHONPATH=tests/support with-engines python tests/bench/turns.py bias [BLOCKS [WORKLOAD...]]
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from own_testbed import own_testbed

from tare import plugins
from tare.contracts import Workload
from tare.hosts.local import LocalHost, isolate_mounts
from tare.images.image import built_image
from tare.images.recipes import client_recipe, guest_recipe
from tare.launch import Technology
from tare.model import Trial
from tare.running.layers import Testbed
from tare.running.trial import Attempt
from tare.statistics.ratios import block_ratio
from tare.suites.plan import Step
from tare.telemetry.sampler import sampling, way_to

_EQUAL = 4  # stacks of bare metal
_MARGIN = 0.02
_STACKS = ("native", "crun", "docker", "qemu-tcg")
_ONE_POINT: dict[str, dict[str, Any]] = {
    "redis": {"operations": ("GET",), "clients": (50,)},
    "micro-redis": {"operations": ("GET",), "clients": (50,)},
    "nginx": {"clients": (50,)},
    "micro-http": {"clients": (50,)},
    "nginx-latency": {"rates": (1000,), "duration": 1.0},  # the shortest that has a 99.9th percentile
    "ramspeed": {"kinds": ("float",), "mark_sizes": (), "bytes_per_pass": 32 << 20, "passes": 20},
}
_DURATION = 0.5
_MEASURED = 5  # times in a block, for the bias


def workloads() -> dict[str, Workload]:
    """Give every workload that takes turns, at one point."""
    found: dict[str, Workload] = {}
    for name in plugins.names("workloads"):
        plug_in = plugins.find("workloads", name)
        settings = dict(_ONE_POINT.get(name, {}))
        if "duration" in plug_in.__dataclass_fields__:
            settings.setdefault("duration", _DURATION)
        workload: Workload = plug_in(**settings)
        if workload.rounds > 1:
            found[name] = workload
    return found


@contextmanager
def going(testbed: Testbed, stacks: Sequence[Technology], workload: Workload) -> Iterator[list[Attempt]]:
    """Start an instance of each."""
    with sampling(testbed.telemetry / "bench.parquet", way_to(testbed.host)) as sampler, ExitStack() as stack:
        together, attempts = replace(testbed, sampler=sampler), []
        for slot, technology in enumerate(stacks):
            step = Step(f"bench-{slot}", workload.name, technology.name, 0, slot)
            attempt = stack.enter_context(Attempt(together.slot(slot), step, (technology,), workload))
            attempt.start()
            attempt.measure_from(0)
            attempts.append(attempt)
        yield attempts


def ended(attempt: Attempt) -> Trial:
    """End a trial that has to be good."""
    trial, _ = attempt.end()
    if trial.status != "ok":
        raise SystemExit(f"{trial.stack}, {trial.workload}: {trial.reason} {trial.hint}")
    return trial


def noise(testbed: Testbed, workload: Workload, blocks: int) -> None:
    """Print a row of the table of noise."""
    native = plugins.find("technologies", "native")
    rows: dict[str, list[list[list[float]]]] = {"turns": [], "after": []}  # blocks, stacks, rounds
    chance = random.Random(1)  # noqa: S311 - nothing secret
    for _ in range(blocks):
        for way, found in rows.items():
            with going(testbed, [native() for _ in range(_EQUAL)], workload) as attempts:
                if way == "turns":
                    _in_turns(attempts, chance, 1)
                for attempt in chance.sample(attempts, _EQUAL):
                    while attempt.take_turn(0, 0.0):
                        pass
                found.append([_logs(ended(attempt), way) for attempt in attempts])
    deviations = {way: statistics.median(_deviations(found)) for way, found in rows.items()}
    turns, after = deviations["turns"], deviations["after"]
    print(f"| {workload.name} | {100 * after:.2f} % | {100 * turns:.2f} % | {turns / after:.2f} |", flush=True)


def _logs(trial: Trial, way: str) -> list[float]:
    """Give the logarithm of each turn, or that of their mean."""
    [value] = trial.values[-1:]
    return [math.log(each) for each in value.turns] if way == "turns" else [math.log(value.value)]


def _deviations(blocks: list[list[list[float]]]) -> list[float]:
    """Give the standard deviation of each stack's log ratio to the first: a median over rounds, as tare takes it."""
    found = []
    for stack in range(1, _EQUAL):
        ratios = [
            statistics.median(one - two for one, two in zip(block[stack], block[0], strict=True)) for block in blocks
        ]
        found.append(statistics.stdev(ratios))
    return found


def bias(testbed: Testbed, workload: Workload, blocks: int) -> None:
    """Print the rows of a workload in the table of bias."""
    stacks = [plugins.find("technologies", name)() for name in _STACKS]
    stacks = [technology for technology in stacks if not technology.refuses(workload)]
    found: dict[str, list[float]] = {technology.name: [] for technology in stacks}
    chance = random.Random(1)  # noqa: S311 - nothing secret
    for _ in range(blocks):
        with going(testbed, stacks, workload) as attempts:
            for again in range(_MEASURED):
                for attempt in attempts if again else ():
                    attempt.measure_from(0)
                _in_turns(attempts, chance, 2)
            for attempt in attempts:
                trial = ended(attempt)
                found[trial.stack].append(math.exp(statistics.median(_after_others(trial))))
    bare_metal = found[_STACKS[0]]
    for name, ratios in found.items():
        beside = "" if name == _STACKS[0] else _cell(ratios, bare_metal)
        print(f"| {workload.name} | {name} | {_cell(ratios, [1.0] * blocks)} | {beside} |", flush=True)


def _cell(ratios: Sequence[float], baseline: Sequence[float]) -> str:
    """Give the ratio in percent with its interval, and what it is within the margin."""
    ratio = block_ratio(ratios, baseline, _MARGIN)
    assert ratio is not None
    interval = f"[{100 * ratio.low:.1f}, {100 * ratio.high:.1f}]" if ratio.low and ratio.high else "too few blocks"
    return f"{100 * ratio.ratio:.2f} % {interval} {ratio.side}"


def _after_others(trial: Trial) -> Iterator[float]:
    """Give the log ratio of each turn after those of others to the own one that followed it."""
    numbers = [turn.number for turn in trial.turns if not turn.warm_up]
    turns = zip(numbers, trial.values[-1].turns, strict=True)
    for (number, after_others), (following, after_own) in itertools.pairwise(turns):
        if number % 2 == 0 and following == number + 1:
            yield math.log(after_others / after_own)


def _in_turns(attempts: Sequence[Attempt], chance: random.Random, each: int) -> None:
    """Give each instance so many turns in succession in each round; turns are numbered within that."""
    live = list(attempts)
    for number in itertools.count():
        chance.shuffle(live)
        live = [attempt for attempt in live if all(attempt.take_turn(each * number + n, 0.0) for n in range(each))]
        if not live:
            return


def main(what: str, blocks: str = "12", *names: str) -> None:
    """Print a Markdown table."""
    isolate_mounts()
    found = {name: each for name, each in workloads().items() if not names or name in names}

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    image, loads = (built_image(say, recipe(tuple(found.values()))) for recipe in (guest_recipe, client_recipe))
    with own_testbed(image, loads) as testbed:
        for name in _STACKS if what == "bias" else ():
            plugins.find("technologies", name)().imported(LocalHost(), image)
        head = {
            "noise": "| workload | one after the other | in turns | ratio |",
            "bias": "| workload | stack | after others | the same, to that of bare metal |",
        }[what]
        print(f"{head}\n{'| --- ' * (head.count('|') - 1)}|")
        began = time.monotonic()
        for workload in found.values():
            {"noise": noise, "bias": bias}[what](testbed, workload, int(blocks))
        say(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
