"""Blocks in rounds, turn by turn along time: bursts of the machine, stalls of a stack, and one after the other beside.

In a burst the machine takes CPU time away from all that runs: a share of it, as a hypervisor does in slices of
milliseconds, or all of it. Then a turn waits for the CPU at its beginning, and at its end before it can read the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from audit_centers import CENTERS
from audit_runs import BLOCKS, UNDECIDED, Counts, Floats, decide, right
from tare_fake.noise import DRAWS, shaped

from tare.statistics.headlines import errors_of_rounds
from tare.statistics.ratios import BaselineRows
from tare.statistics.stalls import are_slow, count_slow

RUNS = 2000
SEED = 20200420
ROUNDS = 10
INSTANCES = 0.01  # standard deviation of the log ratio of two instances, beside what turns differ by
TURNS = 0.02  # that of a turn
FLICKER = 0.1  # that of 1/f noise of the machine, in the whole of a block
SHORTEST, LONGEST = 0.1, 3.0  # seconds of a burst
STALLED, HALF = 1 / 20, 0.5  # of a stack's turns, and its speed in them
EFFECTS = (0.0, 0.03)
ONE_BY_ONE = "one after the other"
_AT_ONCE = 100  # runs
_ROWS = 3  # the baseline, a stack, and A/A
_REFERENCE = BaselineRows(0, 2)


@dataclass(frozen=True)
class Moment:
    """What disturbs turns. `share` is that of the time that is in bursts, `instances` are all that take turns."""

    name: str
    share: float = 0.0
    whole: bool = False
    heavy: bool = False
    stalls: bool = False
    flicker: bool = False
    instances: int = 3
    seconds: float = 0.05


MOMENTS = (
    Moment("none but normal noise"),
    Moment("Student t, 3 degrees of freedom", heavy=True),
    Moment("bursts, a fifth of the time", share=0.2),
    Moment("bursts, half of the time", share=0.5),
    Moment("bursts that take the whole CPU, half of the time", share=0.5, whole=True),
    Moment("bursts, half of the time, 12 instances, turns of 20 ms", share=0.5, instances=12, seconds=0.02),
    Moment("bursts, half of the time, 12 instances, turns of 100 ms", share=0.5, instances=12, seconds=0.1),
    Moment("stalls of the stack", stalls=True),
    Moment("stalls of the stack, bursts a fifth of the time", share=0.2, stalls=True),
    Moment("1/f noise of the machine", flicker=True),
    Moment("1/f noise of the machine, 12 instances", flicker=True, instances=12),
)


@dataclass(frozen=True)
class Bursts:
    """Bursts of blocks (axes: block, burst): when they begin and end, and the share of the CPU that they take."""

    begin: Floats
    end: Floats
    lost: Floats


@dataclass(frozen=True)
class Centered:
    """How a block's value did that a center made of it: its spread, and what was decided."""

    deviation: float
    false: float
    blocks: float


@dataclass(frozen=True)
class InTurns:
    """What was found of one moment: by center, and the shares of runs in which the stack or A/A is said to stall."""

    moment: Moment
    centers: dict[str, Centered]
    stalls_early: float
    stalls: float
    stalls_of_control: float


def bursts_of(moment: Moment, blocks: int, chance: np.random.Generator) -> Bursts | None:
    """Draw bursts for blocks: from a tenth of a second to three, with pauses that come to the share of the time."""
    if not moment.share:
        return None
    long = (SHORTEST + LONGEST) / 2
    pause = long * (1 - moment.share) / moment.share
    lasts = ROUNDS * moment.instances * moment.seconds
    count = int(2.5 * lasts / (long + pause)) + 12
    seconds, pauses = chance.uniform(SHORTEST, LONGEST, (blocks, count)), chance.exponential(pause, (blocks, count))
    end = (seconds + pauses).cumsum(axis=1) - chance.uniform(0, 2 * (long + pause), (blocks, 1))
    lost = np.ones(end.shape) if moment.whole else chance.uniform(0.1, 0.9, end.shape)
    return Bursts(end - seconds, end, lost)


def speeds(bursts: Bursts | None, begins: Floats, seconds: float) -> Floats:
    """Return the speeds, 1 without bursts, of what takes so many seconds from these moments on (axes: block, turn)."""
    if bursts is None:
        return np.ones(begins.shape)
    begin, end, lost = (each[:, np.newaxis] for each in (bursts.begin, bursts.end, bursts.lost))
    first, last = begins[..., np.newaxis], begins[..., np.newaxis] + seconds
    if (lost == 1).all():
        first = np.where((begin <= first) & (first < end), end, first).max(axis=-1, keepdims=True)
        last = first + seconds
        until = np.where((begin < last) & (last < end), end, last).max(axis=-1)
    else:
        until = last[..., 0]
    taken = np.clip(np.minimum(end, last) - np.maximum(begin, first), 0.0, None)
    return np.asarray((seconds - (taken * lost).sum(axis=-1)) / (until - first[..., 0]))


def turns_of(moment: Moment, runs: int, chance: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the log speeds of turns (axes: run, stack, block, round), and of instances one after the other.

    The stacks are the baseline, the one that is looked at, and A/A; what others do makes rounds longer.
    """
    count, blocks = moment.instances, runs * BLOCKS
    bursts = bursts_of(moment, blocks, chance)
    places = np.argsort(chance.random((blocks, ROUNDS, count)), axis=2)[..., :_ROWS].astype(np.float64)
    slots = places + count * np.arange(ROUNDS)[:, np.newaxis]
    turns = speeds(bursts, slots.reshape(blocks, -1) * moment.seconds, moment.seconds).reshape(blocks, ROUNDS, _ROWS)
    whole = ROUNDS * moment.seconds
    order = np.argsort(chance.random((blocks, count)), axis=1)[:, :_ROWS].astype(np.float64)
    alone = speeds(bursts, order * whole, whole)
    if moment.flicker:
        along = np.exp(FLICKER * shaped(chance.standard_normal((blocks, ROUNDS * count, DRAWS)), "1/f"))
        turns *= np.take_along_axis(along, slots.reshape(blocks, -1).astype(np.int64), axis=1).reshape(turns.shape)
        lone = along.reshape(blocks, count, ROUNDS).mean(axis=2)
        alone *= np.take_along_axis(lone, order.astype(np.int64), axis=1)
    size = (blocks, ROUNDS, _ROWS)
    noise = chance.standard_t(3, size) if moment.heavy else chance.standard_normal(size)
    noise *= TURNS
    if moment.stalls:
        stalled = chance.random((blocks, ROUNDS)) < STALLED
        noise[..., 1] += np.where(stalled, np.log(HALF), 0.0)
    instances = INSTANCES / np.sqrt(2) * chance.standard_normal((blocks, 1, _ROWS))
    logs = np.log(np.maximum(turns, 1e-6)) + noise + instances
    means = np.log(np.maximum(alone, 1e-6)) + np.log(np.exp(noise).mean(axis=1)) + instances[:, 0]
    by_run = logs.reshape(runs, BLOCKS, ROUNDS, _ROWS).transpose(0, 3, 1, 2)
    return by_run, means.reshape(runs, BLOCKS, _ROWS).transpose(0, 2, 1)


def rows_of(logs: Floats, center: Callable[[Floats], Floats]) -> Floats:
    """Return the rows of `log_ratios`, with another center; the last axis of the logarithms are rounds."""
    baseline, stack, control = (logs[:, row] for row in range(_ROWS))
    both = (center(stack - baseline) + center(stack - control)) / 2
    return np.stack([np.zeros(both.shape), both, center(control - baseline)], axis=1)


def in_turns(moment: Moment) -> InTurns:
    """Simulate runs of a moment, and decide them by every center."""
    chance = np.random.default_rng([SEED, MOMENTS.index(moment)])
    rows: dict[str, list[Floats]] = {name: [] for name in (ONE_BY_ONE, *CENTERS)}
    errors: list[Floats] = []
    said: list[Counts] = []
    for _ in range(RUNS // _AT_ONCE):
        turns, alone = turns_of(moment, _AT_ONCE, chance)
        rows[ONE_BY_ONE].append(rows_of(alone[..., np.newaxis], lambda logs: logs[..., 0]))
        for name, center in CENTERS.items():
            rows[name].append(rows_of(turns, center))
        found = errors_of_rounds(turns.swapaxes(0, 1), np.ones(turns.shape, dtype=bool).swapaxes(0, 1), _REFERENCE)
        assert found is not None
        errors.append(found.swapaxes(0, 1))
        said.append(_said(turns))
    of_rounds = np.concatenate(errors)
    centers = {
        name: _centered(np.concatenate(ratios), None if name == ONE_BY_ONE else of_rounds)
        for name, ratios in rows.items()
    }
    return InTurns(moment, centers, *np.concatenate(said, axis=1).mean(axis=1).tolist())


def _said(turns: Floats) -> Counts:
    """Return in which runs the stack is said to stall after ten blocks; it and A/A at any look."""
    logs = turns.swapaxes(0, 1)
    there = np.ones(logs.shape, dtype=bool)
    slow, said = are_slow(logs, there), np.zeros((3, logs.shape[1]), dtype=np.int64)
    for count in range(1, BLOCKS + 1):
        said[1:] |= count_slow(slow[:, :, :count], there[:, :, :count], _REFERENCE).is_different[1:]
        if count == BLOCKS // 6:
            said[0] = said[1]
    return said


def _centered(ratios: Floats, errors: Floats | None) -> Centered:
    found = {
        effect: decide(ratios + np.array([[0.0], [np.log1p(-effect)], [0.0]]), errors=errors) for effect in EFFECTS
    }
    claims = {effect: said.claim[:, 0] for effect, said in found.items()}
    return Centered(
        deviation=float(ratios[:, 1].std()),
        false=max(
            float(((claims[each] != UNDECIDED) & ~np.isin(claims[each], right(each))).mean()) for each in EFFECTS
        ),
        blocks=float(np.median(found[0.0].blocks[:, 0])),
    )
