"""Gates for commands: how often do five ways of comparing two commands raise a false alarm, and find 3 % more time?

A program runs the same command under three names and a command that takes 3 % more, in rounds of random order, and
records every run. Then each way compares parts of the record: equal commands for false alarms, the slower one for
power. No run is in two comparisons of the same kind. The ways, as their projects document them:

- `mean`: all runs of A, then all of B; they differ if 1 is outside of the ratio of the means plus or minus its
  standard deviation. That is how people read hyperfine's last line (github.com/sharkdp/hyperfine, README).
- `looks`: Welch's t test at 5 % of runs in turns, after every 5 rounds from the tenth on, until it is significant.
- `retry`: a paired t interval of ten rounds; while it contains 0, ten more rounds are added, up to three times
  (`require_significance` of perfgate, docs.rs/perfgate-paired).
- `permutation`: all runs of A, then all of B, a permutation test of the means at 1 %, and at least 5 % of change; an
  alarm counts if the test fails again with new runs (Firecracker's `tools/ab_test.py`, whose CI repeats failed tests).
- `tare`: `tare ab` with its default settings, which replays the runs.

    PYTHONPATH=tests/support python research/gates.py record FILE [COMPARISONS] [--bursts]
    PYTHONPATH=tests/support python research/gates.py judge FILE...
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Literal, cast

import numpy as np
import scipy.stats
from turns import bursts

from tare.features.ab.contenders import CommandUsage, Contender, Spawner, create_contender, running_spawner
from tare.features.ab.measurement import Comparison, Settings, choose_cpus
from tare.features.ab.verdict import Verdict

ROUNDS = 100  # of a comparison
_LOOP = "perl -e 'for my $i (1 .. {}) {{ $x += $i }}'"
_STEPS = 60_000  # about 4 ms
_SLOWER = 1.03
_TIMEOUT = 60.0
Decision = Literal["slower", "faster", "equal", "open"]
Round = Mapping[str, CommandUsage]  # by the names `a`, `b`, `c`, which are equal, and `slower`


def record(path: Path, comparisons: int) -> None:
    """Run the rounds of so many comparisons, and write a line for each round."""
    contenders = {name: _create(name, _STEPS) for name in "abc"} | {"slower": _create("slower", _slower_steps())}
    chance = random.Random(1)  # noqa: S311 - it orders runs
    with running_spawner(choose_cpus(1)) as spawner, path.open("w", encoding="utf-8") as file:
        for number in range(comparisons * ROUNDS):
            order = list(contenders)
            chance.shuffle(order)
            done = {name: vars(spawner.run(contenders[name], timeout=_TIMEOUT)) for name in order}
            file.write(f"{json.dumps(done)}\n")
            if number % (10 * ROUNDS) == 0:
                print(f"{number // ROUNDS} of {comparisons} comparisons", file=sys.stderr, flush=True)


def _create(name: str, steps: int) -> Contender:
    return create_contender(name, _LOOP.format(steps), "/", dict(os.environ))


def _slower_steps() -> int:
    """Return the steps of a loop that takes 3 % more time in all, with the start of the program, by CPU time."""
    with running_spawner(choose_cpus(1)) as spawner:

        def cpu_seconds(steps: int) -> float:
            used = [spawner.run(_create("a", steps), timeout=_TIMEOUT) for _ in range(101)]
            return median(each.user + each.system for each in used)

        few, many = cpu_seconds(_STEPS), cpu_seconds(3 * _STEPS)
    return round(_STEPS + (_SLOWER - 1) * few / ((many - few) / (2 * _STEPS)))


def judge_by_mean(first: Sequence[float], second: Sequence[float]) -> Decision:
    """Compare ten runs of A with ten later runs of B by the ratio of the means and its standard deviation."""
    one, two = first[:10], second[10:20]
    ratio = fmean(two) / fmean(one)
    deviation = ratio * math.hypot(stdev(one) / fmean(one), stdev(two) / fmean(two))
    return "open" if abs(ratio - 1) <= deviation else _direction(ratio - 1)


def judge_by_looks(first: Sequence[float], second: Sequence[float]) -> Decision:
    """Repeat Welch's test until it is significant or all rounds are used up."""
    for count in range(10, len(first) + 1, 5):
        if scipy.stats.ttest_ind(second[:count], first[:count], equal_var=False).pvalue < 0.05:
            return _direction(fmean(second[:count]) - fmean(first[:count]))
    return "open"


def judge_by_retry(first: Sequence[float], second: Sequence[float]) -> Decision:
    """Add ten pairs up to three times until the paired interval excludes 0."""
    for count in (10, 20, 30, 40):
        if scipy.stats.ttest_rel(second[:count], first[:count]).pvalue < 0.05:
            return _direction(fmean(second[:count]) - fmean(first[:count]))
    return "open"


def judge_by_permutation(first: Sequence[float], second: Sequence[float]) -> Decision:
    """Compare 25 runs of A with 25 later runs of B; a difference counts if the next 25 show one again."""
    found: list[Decision] = []
    for start in (0, 50):
        one, two = first[start : start + 25], second[start + 25 : start + 50]
        change = fmean(two) / fmean(one) - 1
        test = scipy.stats.permutation_test(
            (one, two), _mean_difference, n_resamples=9999, vectorized=True, random_state=1
        )
        found.append(_direction(change) if test.pvalue < 0.01 and abs(change) > 0.05 else "open")
    return found[0] if found[0] == found[1] else "open"


def _mean_difference(one: np.ndarray, two: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.mean(one, axis=axis) - np.mean(two, axis=axis))


def _direction(change: float) -> Decision:
    return "slower" if change > 0 else "faster"


class _Replay:
    """Spawner that returns recorded runs: those of the baseline from two names, as it has a control."""

    def __init__(self, rounds: Sequence[Round], name: str) -> None:
        self._runs = {
            "A": chain.from_iterable((each["a"], each["b"]) for each in rounds),
            "B": (each[name] for each in rounds),
        }

    def run(self, contender: Contender, *, timeout: float, stdin: str = "", keep: int = 0) -> CommandUsage:  # noqa: ARG002
        if used := next(self._runs[contender.name], None):
            return used
        raise KeyboardInterrupt  # no run is left


def judge_by_tare(rounds: Sequence[Round], name: str) -> Decision:
    """Let `tare ab` compare the recorded runs."""
    contenders = [create_contender(each, "true", "/", dict(os.environ)) for each in "AB"]
    settings = Settings(margin=0.03, budget_seconds=math.inf, timeout_seconds=_TIMEOUT)
    replay = cast("Spawner", _Replay(rounds, name))
    measured = Comparison(contenders, settings, replay, (0,)).run(lambda _: None)
    [cell] = Verdict(measured, 0).cells
    words: dict[str, Decision] = {"worse": "slower", "better": "faster", "equivalent": "equal"}
    return words.get(cell.verdict, "open")


_WAYS: Mapping[str, Callable[[Sequence[float], Sequence[float]], Decision]] = {
    "mean": judge_by_mean,
    "looks": judge_by_looks,
    "retry": judge_by_retry,
    "permutation": judge_by_permutation,
}


def judge(path: Path) -> None:
    """Print, for each way, how the comparisons of a record ended, and also longer ones of four times the rounds."""
    with path.open(encoding="utf-8") as file:
        rounds = [{name: CommandUsage(**used) for name, used in json.loads(line).items()} for line in file]
    print(f"{path}: a run takes {1000 * median(each['a'].wall for each in rounds):.2f} ms")
    for count in (ROUNDS, 4 * ROUNDS):
        parts = [rounds[start : start + count] for start in range(0, len(rounds) - count + 1, count)]
        print(f" {len(parts)} comparisons of at most {count} rounds")
        for what, name in (("equal", "c"), ("3 % slower", "slower")):
            for way in (*_WAYS, "tare"):
                ended = Counter(_judge_part(part, name, way) for part in parts)
                print(f"  {what:10} {way:12} {dict(ended)}", flush=True)


def _judge_part(part: Sequence[Round], name: str, way: str) -> Decision:
    if way == "tare":
        return judge_by_tare(part, name)
    return _WAYS[way](*([each[key].wall for each in part] for key in ("a", name)))


def main(words: Sequence[str]) -> int:
    """Record runs, or judge recorded ones."""
    arguments = [each for each in words[1:] if each != "--bursts"]
    if words[:1] == ["record"] and arguments:
        with bursts() if "--bursts" in words else nullcontext():
            record(Path(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 200)
    elif words[:1] == ["judge"] and arguments:
        for each in arguments:
            judge(Path(each))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
