"""What turns are worth and what they cost: noise between equal stacks, and the bias of a turn after those of others.

Noise: in each block, stacks that are all bare metal are measured twice with the same measured time: in turns, and one
after the other. The true ratio of any two is 1, so that the standard deviation of the log ratio is noise alone.

Bias: in each round, each instance has two turns in succession. The first follows turns of others and begins with
the caches as they left them; the second follows one of its own, as if it were alone. A block's ratio is the median over
such pairs, which meet the same burst; blocks are compared by tare's own equivalence with a margin of 2 %. What a
decision could be wrong by is this ratio of a stack to that of bare metal, which is told as well.

Alone: in each block, the turns of instances that are alive together are compared with those of instances that are
alone on the machine. The two do not meet the same bursts: this is for a quiet machine. A lone instance has two turns in
succession, too, the first of them after a pause: the ratio of the two is what a wait alone would do.

    PYTHONPATH=tests/support with-engines python research/turns.py noise [--bursts] [BLOCKS [WORKLOAD...]]
    PYTHONPATH=tests/support with-engines python research/turns.py bias [--bursts] [BLOCKS [WORKLOAD...]]
    PYTHONPATH=tests/support with-engines python research/turns.py alone [BLOCKS [WORKLOAD...]]

With `--bursts`, other processes keep the CPUs busy half of the time, in bursts of 0.1 to 3 s: one to four of them on
each CPU. Of a workload, the first value of a headline counts.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from own_testbed import own_context

from tare.hosts.awake import AwakeCpus
from tare.hosts.local import LocalHost, isolate_mounts
from tare.images.image import ensure_image
from tare.images.recipes import client_recipe, guest_recipe
from tare.model.trial import MeasuredValue, Trial
from tare.plugins import registry
from tare.plugins.technology import Technology
from tare.plugins.workload import Workload
from tare.runner.context import RunContext
from tare.runner.trial import TrialRun
from tare.statistics.ratios import block_ratio
from tare.suites.plan import PlannedTrial
from tare.telemetry.sampler import Sampler, run_sampler

_EQUAL = 4  # stacks of bare metal
_MARGIN = 0.02
_STACKS = ("native", "crun", "docker", "gvisor", "qemu-tcg")
_ONE_POINT: dict[str, dict[str, Any]] = {
    "redis": {"operations": ("GET",), "clients": (50,)},
    "micro-redis": {"operations": ("GET",), "clients": (50,)},
    "nginx": {"clients": (50,)},
    "micro-http": {"clients": (50,)},
    "nginx-latency": {"rates": (2000,), "duration": 5.0},  # ten turns, which cannot be shorter: 1000 requests
    "iperf3": {"modes": ("tcp",)},
    "pgbench": {"modes": ("select",), "clients": (8,), "scale": 1},
    "fio": {"size": 16 << 20},
    "hackbench": {"kinds": ("pipes",)},
    "ramspeed": {"kinds": ("float",), "mark_sizes": ()},
}
_DURATION = 0.5
_MEASURED = 5  # times in a block, for the bias
_PAUSE_SECONDS = 0.25  # as others' turns take
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.1, 3.0  # of a burst
_MOST_PROCESSES = 4  # on each CPU, in a burst


def workloads() -> dict[str, Workload]:
    """Return every workload that takes turns, at one point; not those that choose points, or have the user's server."""
    found: dict[str, Workload] = {}
    for name in registry.names("workloads"):
        plug_in = registry.find("workloads", name)
        settings = dict(_ONE_POINT.get(name, {}))
        if "duration" in plug_in.__dataclass_fields__:
            settings.setdefault("duration", _DURATION)
        workload: Workload = plug_in(**settings)
        if workload.rounds > 1 and not workload.is_adaptive and not workload.has_user_server:
            found[name] = workload
    return found


@contextmanager
def testbed_for(workloads: Iterable[Workload]) -> Iterator[RunContext]:
    """Make the testbed of a benchmark, with what the workloads need in its images."""
    needing = tuple(workloads)
    image, loads = (ensure_image(say, recipe(needing)) for recipe in (guest_recipe, client_recipe))
    with own_context(image, loads) as testbed:
        yield testbed


def say(text: str) -> None:
    """Print what is no result."""
    print(text, file=sys.stderr)


@contextmanager
def going(
    testbed: RunContext, stacks: Sequence[Technology], workload: Workload
) -> Iterator[tuple[list[TrialRun], Sampler]]:
    """Start an instance of each; CPUs stay awake, as in a run."""
    awake = AwakeCpus(testbed.ledger, sorted(os.sched_getaffinity(0)), f"{testbed.network.prefix}-awake")
    with (
        closing(awake),
        awake.keep_awake(),
        run_sampler(testbed.telemetry.folder / "bench.parquet", testbed.telemetry.backend_for(testbed.host)) as sampler,
        ExitStack() as stack,
    ):
        attempts = []
        for slot, technology in enumerate(stacks):
            step = PlannedTrial(f"bench-{slot}", workload.name, technology.name, 0, slot)
            spec = replace(testbed.create_spec(technology), slot=slot, sampler=sampler)
            attempt = stack.enter_context(TrialRun(testbed, step, spec, workload, awake=awake))
            attempt.start()
            attempts.append(attempt)
        yield attempts, sampler


def ended(attempt: TrialRun) -> Trial:
    """End a trial that has to be good."""
    attempt.end()
    trial, _ = attempt.to_finished_trial()
    if trial.status != "ok":
        raise SystemExit(f"{trial.stack}, {trial.workload}: {trial.reason} {trial.hint}")
    return trial


def noise(testbed: RunContext, workload: Workload, blocks: int) -> None:
    """Print a row of the table of noise."""
    native = registry.find("technologies", "native")
    rows: dict[str, list[list[list[float]]]] = {"turns": [], "after": []}  # blocks, stacks, rounds
    chance = random.Random(1)  # noqa: S311 - nothing secret
    for _ in range(blocks):
        for way, found in rows.items():
            with going(testbed, [native() for _ in range(_EQUAL)], workload) as (attempts, _):
                for attempt in attempts:
                    attempt.measure_from(0)
                if way == "turns":
                    _in_turns(attempts, _TurnScheduler(chance, 1))
                for attempt in chance.sample(attempts, _EQUAL):
                    while attempt.run_turn(0, 0.0):
                        pass
                values = [_value(ended(attempt), workload) for attempt in attempts]
                found.append([_logs(value) if way == "turns" else [math.log(value.value)] for value in values])
    deviations = {way: statistics.median(_deviations(found)) for way, found in rows.items()}
    turns, after = deviations["turns"], deviations["after"]
    print(f"| {workload.name} | {100 * after:.2f} % | {100 * turns:.2f} % | {turns / after:.2f} |", flush=True)


def _value(trial: Trial, workload: Workload) -> MeasuredValue:
    """Return the value of a trial that counts."""
    headlines = [metric.name for metric in workload.all_metrics if metric.headline]
    return next(value for value in trial.values if value.metric in headlines)


def _logs(value: MeasuredValue) -> list[float]:
    """Return the logarithm of each turn."""
    return [math.log(turn) for turn in value.turns]


def _deviations(blocks: list[list[list[float]]]) -> list[float]:
    """Return the standard deviation of each stack's log ratio to the first: a median over rounds, as tare takes it."""
    found = []
    for stack in range(1, _EQUAL):
        ratios = [
            statistics.median(one - two for one, two in zip(block[stack], block[0], strict=True)) for block in blocks
        ]
        found.append(statistics.stdev(ratios))
    return found


def bias(testbed: RunContext, workload: Workload, blocks: int) -> None:
    """Print the rows of a workload in the table of bias."""
    stacks = _stacks_for(workload)
    found: dict[str, list[float]] = {technology.name: [] for technology in stacks}
    chance = random.Random(1)  # noqa: S311 - nothing secret
    for _ in range(blocks):
        for trial in _measured(testbed, stacks, workload, _TurnScheduler(chance, 2)):
            found[trial.stack].append(math.exp(statistics.median(_firsts(trial, workload))))
    bare_metal = found[_STACKS[0]]
    for name, ratios in found.items():
        beside = "" if name == _STACKS[0] else _cell(ratios, bare_metal)
        print(f"| {workload.name} | {name} | {_cell(ratios, [1.0] * blocks)} | {beside} |", flush=True)


def alone(testbed: RunContext, workload: Workload, blocks: int) -> None:
    """Print the rows of a workload in the table of instances that are alone."""
    stacks = _stacks_for(workload)
    found: dict[str, list[float]] = {technology.name: [] for technology in stacks}
    after_pause: dict[str, list[float]] = {technology.name: [] for technology in stacks}
    chance = random.Random(1)  # noqa: S311 - nothing secret
    for _ in range(blocks):
        logs: dict[str, dict[bool, float]] = {technology.name: {} for technology in stacks}
        groups = [stacks, *([technology] for technology in stacks)]
        for group in chance.sample(groups, len(groups)):
            together = group is stacks
            turns = _TurnScheduler(chance, 1) if together else _TurnScheduler(chance, 2, _PAUSE_SECONDS)
            for trial in _measured(testbed, group, workload, turns):
                logs[trial.stack][together] = statistics.median(
                    log for number, log in _numbered(trial, workload) if together or number % 2
                )
                if not together:
                    after_pause[trial.stack].append(math.exp(statistics.median(_firsts(trial, workload))))
        for name, each in logs.items():
            found[name].append(math.exp(each[True] - each[False]))
    for name, ratios in found.items():
        beside = "" if name == _STACKS[0] else _cell(ratios, found[_STACKS[0]])
        paused = _cell(after_pause[name], [1.0] * blocks)
        print(f"| {workload.name} | {name} | {_cell(ratios, [1.0] * blocks)} | {beside} | {paused} |", flush=True)


@dataclass(frozen=True)
class _TurnScheduler:
    """How instances take turns: so many in succession in each round, after a pause."""

    chance: random.Random
    each: int
    pause_seconds: float = 0.0


def _stacks_for(workload: Workload) -> list[Technology]:
    stacks = [registry.find("technologies", name)() for name in _STACKS]
    return [technology for technology in stacks if not technology.unsupported_reason(workload)]


def _measured(
    testbed: RunContext, stacks: Sequence[Technology], workload: Workload, turns: _TurnScheduler
) -> list[Trial]:
    """Measure an instance of each, some times, all alive together."""
    with going(testbed, stacks, workload) as (attempts, _):
        for _ in range(_MEASURED):
            for attempt in attempts:
                attempt.measure_from(0)
            _in_turns(attempts, turns)
        return [ended(attempt) for attempt in attempts]


def _cell(ratios: Sequence[float], baseline: Sequence[float]) -> str:
    """Return the ratio in percent with its interval, and what it is within the margin."""
    ratio = block_ratio(ratios, baseline, _MARGIN)
    assert ratio is not None
    interval = f"[{100 * ratio.low:.1f}, {100 * ratio.high:.1f}]" if ratio.low and ratio.high else "too few blocks"
    return f"{100 * ratio.ratio:.2f} % {interval} {ratio.side}"


def _numbered(trial: Trial, workload: Workload) -> list[tuple[int, float]]:
    """Return the number of each turn that counts, and the logarithm of its value."""
    numbers = [turn.number for turn in trial.turns if not turn.warm_up]
    return [*zip(numbers, _logs(_value(trial, workload)), strict=True)]


def _firsts(trial: Trial, workload: Workload) -> Iterator[float]:
    """Yield the log ratio of each first turn of two, after those of others or a pause, to the own one that followed."""
    for (number, first), (following, after_own) in itertools.pairwise(_numbered(trial, workload)):
        if number % 2 == 0 and following == number + 1:
            yield first - after_own


def _in_turns(attempts: Sequence[TrialRun], turns: _TurnScheduler) -> None:
    """Let each instance have its turns in each round until none has more; they are numbered within that."""

    def has_more(attempt: TrialRun, number: int) -> bool:
        time.sleep(turns.pause_seconds)
        return all(attempt.run_turn(turns.each * number + n, 0.0) for n in range(turns.each))

    live = list(attempts)
    for number in itertools.count():
        turns.chance.shuffle(live)
        live = [attempt for attempt in live if has_more(attempt, number)]
        if not live:
            return


@contextmanager
def bursts(seed: int = 1) -> Iterator[None]:
    """Make bursts until the block ends; none of their processes is left then."""
    over = threading.Event()
    thread = threading.Thread(target=_make_bursts, args=(over, random.Random(seed)), name="bursts")  # noqa: S311 - no secret
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _make_bursts(over: threading.Event, chance: random.Random) -> None:
    """Rest and burst in turn: both last as long on average, so that half of the time is in bursts."""
    cpus = range(os.cpu_count() or 1)  # all of them: whoever starts bursts may be kept to some
    while not over.wait(chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS)):
        seconds, each = chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS), chance.randint(1, _MOST_PROCESSES)
        busy = [_busy(cpu, seconds) for cpu in cpus for _ in range(each)]
        over.wait(seconds)
        for process in busy:
            process.terminate()
            process.wait()


def _busy(cpu: int, seconds: float) -> subprocess.Popen[bytes]:
    """Keep a CPU busy for some seconds, even if this process is killed; `timeout` passes on an earlier signal."""
    return subprocess.Popen(("taskset", "-c", f"{cpu}", "timeout", f"{seconds:.3f}", "sh", "-c", "while :; do :; done"))


_TABLES: dict[str, tuple[Callable[[RunContext, Workload, int], None], str]] = {
    "noise": (noise, "| workload | one after the other | in turns | ratio |"),
    "bias": (bias, "| workload | stack | after others | the same, to that of bare metal |"),
    "alone": (alone, "| workload | stack | in turns, to alone | the same, to bare metal's | alone after a pause |"),
}


def main(what: str, *words: str) -> None:
    """Print a Markdown table."""
    isolate_mounts()
    print_rows, head = _TABLES[what]
    blocks, *names = [*(word for word in words if word != "--bursts")] or ["12"]
    found = {name: each for name, each in workloads().items() if not names or name in names}
    with testbed_for(found.values()) as testbed:
        for name in _STACKS if what != "noise" else ():
            registry.find("technologies", name)().prepare_image(LocalHost(), testbed.images.main)
        print(f"{head}\n{'| --- ' * (head.count('|') - 1)}|")
        began = time.monotonic()
        with bursts() if "--bursts" in words else nullcontext():
            for workload in found.values():
                print_rows(testbed, workload, int(blocks))
        say(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
