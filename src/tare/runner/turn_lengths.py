"""Choice of the length of turns by measurement, before the first round of a workload.

The baseline and its A/A control alternate in turns of several lengths, so nothing about another stack enters the
choice. Their pairs show two things:

- **Cost** of a length: the seconds of a turn, with its overhead, times the variance of a pair's log ratio. Under noise
  like 1/f, longer turns are hardly quieter, and short ones cost least; under white noise, the overhead makes long ones
  cheaper.
- **Cold start**: the work that a turn lacks in its first d seconds, d x (1 - rate in them / rate after them). It grows
  with d until the program is warm. What is still missing after d is the cold part of a turn that discards d.

Each length discards the least after which the cold part is below a tenth of the margin, or below its standard error:
about seventy pairs cannot show as little. The cheapest length then wins.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from tare.hosts.process import raise_if_interrupted
from tare.model.run_folder import WorkloadRecord
from tare.model.turn_length import CHOICE_SECONDS, ColdPart, TurnChoice, TurnCost, TurnLength, TurnProbe
from tare.runner.trial import TrialRun
from tare.suites.suite import Suite

_PAIRS: Mapping[float, int] = {0.005: 20, 0.01: 16, 0.02: 10, 0.05: 6}  # by the seconds that count
_FEWEST_PAIRS = 4  # for a variance
# Of a cost: about forty pairs show no smaller difference. In simulations with noise from 1/f to white, choices by this
# rule cost 1.07 to 1.25 times as much as the cheapest length, and change less from run to run than without it.
_CLEAR_FACTOR = 1.25
_COLD_SHARE = 0.1  # of the margin
_SHORTER_SHARE = 0.8  # of the time of the next longer turns: a turn that takes more is no shorter
_MAD_FACTOR, _MEDIAN_FACTOR = 1.4826, 1.2533  # from a MAD to a standard deviation, and to that of a median


@dataclass(frozen=True)
class TimedProbe:
    """Turn of this length, and the seconds that it took, with its overhead at both boundaries."""

    length: TurnLength
    probe: TurnProbe
    seconds: float

    @property
    def later_seconds(self) -> float:
        """The seconds of the part that counts and of the overhead."""
        return max(self.probe.measured_seconds, self.seconds - self.probe.discarded_seconds)


ProbePair = tuple[TimedProbe, TimedProbe]  # of baseline and control


def plan_probes(lengths: Collection[TurnLength]) -> list[TurnLength]:
    """Return the length of each pair, with pairs of every length spread over the whole time."""
    discards = sorted({each.discard_seconds for each in lengths})
    placed: list[tuple[float, TurnLength]] = []
    for at, measure_seconds in enumerate(sorted({each.measure_seconds for each in lengths})):
        count = _PAIRS.get(measure_seconds, _FEWEST_PAIRS)
        for number in range(count):
            length = TurnLength(discards[(number + at) % len(discards)], measure_seconds)
            placed.append(((number + 0.5) / count, length))
    return [length for _, length in sorted(placed, key=lambda each: each[0])]


def run_probes(baseline: TrialRun, control: TrialRun, chance: random.Random) -> list[ProbePair]:
    """Let baseline and control alternate in turns of several lengths, in random order within a pair.

    Raises the errors of the workload and its server, which the trials themselves will meet again.
    """
    lengths, pairs = plan_probes(baseline.workload.turn_lengths), list[ProbePair]()
    deadline = time.monotonic() + CHOICE_SECONDS
    with ExitStack() as exits:
        probes = [exits.enter_context(closing(_probe(each, lengths))) for each in (baseline, control)]
        for _ in lengths:
            order, found = [0, 1], dict[int, TimedProbe]()
            chance.shuffle(order)
            for which in order:
                raise_if_interrupted()
                if not (probed := next(probes[which], None)):
                    return pairs
                found[which] = probed
            pairs.append((found[0], found[1]))
            if time.monotonic() > deadline:
                break
    return pairs


def _probe(attempt: TrialRun, lengths: Sequence[TurnLength]) -> Generator[TimedProbe]:
    """Run a turn of each length within the trial's boundaries. Nothing is recorded."""
    if (live := attempt.live) is None:
        return
    with ExitStack() as exits:
        exits.callback(live.boundary.finish)
        probing = iter(attempt.workload.probe_turns(live.setup, lengths))
        if isinstance(probing, Generator):
            exits.callback(probing.close)
        for length in lengths:
            began = time.monotonic()
            live.boundary.begin_turn()
            probe = next(probing, None)
            if probe is None:
                return
            live.boundary.end_turn(0.0, warm_up=True)
            yield TimedProbe(length, probe, time.monotonic() - began)


def choose_turn_length(
    pairs: Sequence[ProbePair], margin: float, usual: TurnLength | None = None, seconds: float = 0.0
) -> TurnChoice | None:
    """Choose the cheapest length of turns from pairs that took `seconds`; None if they do not suffice.

    `margin` is a share. Turns count as long as the `usual` ones unless others cost clearly less. Of equal costs, the
    longer turn wins, which needs fewer rounds.
    """
    usable = [pair for pair in pairs if all(each.probe.measured_rate > 0 for each in pair)]
    by_measure = _group_by_measure(usable)
    if not by_measure:
        return None
    cold_parts = measure_cold_parts([each for pair in usable for each in pair])
    deviations = {each: _robust_deviation(_log_ratios(found)) for each, found in by_measure.items()}
    smoothed = smooth_deviations(deviations, {each: len(found) for each, found in by_measure.items()})
    costs = []
    for each, found in by_measure.items():
        discard_seconds, share, error = _choose_discard(cold_parts, each, math.log1p(margin))
        later = [probed.later_seconds for pair in found for probed in pair]
        turn_seconds = discard_seconds + statistics.median(later)
        length = TurnLength(discard_seconds, each)
        costs.append(TurnCost(length, len(found), turn_seconds, deviations[each], smoothed[each], share, error))
    best = min(reversed(costs), key=lambda cost: cost.cost)
    of_usual = (cost for cost in costs if usual and cost.length.measure_seconds == usual.measure_seconds)
    stays = next((cost for cost in of_usual if cost.cost <= _CLEAR_FACTOR * best.cost), best)
    return TurnChoice(stays.length, tuple(costs), cold_parts, seconds)


def smooth_deviations(deviations: Mapping[float, float], counts: Mapping[float, int]) -> dict[float, float]:
    """Return the deviations that follow a power of the length: from 0, noise like 1/f, to -1/2, white noise.

    A deviation of few pairs is off by a quarter and more. The cheapest of several would be the one that is too low by
    chance; a common power uses all pairs.
    """
    known = {each: math.log(deviation) for each, deviation in deviations.items() if deviation > 0}
    total = sum(counts[each] for each in known)
    if not known:
        return dict(deviations)
    mean_x = sum(counts[each] * math.log(each) for each in known) / total
    mean_y = sum(counts[each] * value for each, value in known.items()) / total
    spread = sum(counts[each] * (math.log(each) - mean_x) ** 2 for each in known)
    joint = sum(counts[each] * (math.log(each) - mean_x) * (value - mean_y) for each, value in known.items())
    power = min(0.0, max(-0.5, joint / spread)) if spread else 0.0
    return {each: math.exp(mean_y + power * (math.log(each) - mean_x)) for each in deviations}


def measure_cold_parts(probes: Sequence[TimedProbe]) -> tuple[ColdPart, ...]:
    """Return the work that turns lack in their first part, for each length of this part, the shortest first."""
    lost = defaultdict[float, list[float]](list)
    for each in probes:
        probe = each.probe
        share = 1 - probe.discarded_rate / probe.measured_rate
        lost[each.length.discard_seconds].append(probe.discarded_seconds * share)
    return tuple(
        ColdPart(seconds, statistics.median(values), _MEDIAN_FACTOR * _robust_deviation(values) / len(values) ** 0.5)
        for seconds, values in sorted(lost.items())
    )


def apply_choices(suite: Suite, records: Iterable[WorkloadRecord]) -> Suite:
    """Return the suite with the lengths of turns that a run has chosen."""
    choices = {each.name: each.turns for each in records if each.turns}
    workloads = (
        replace(each, workload=each.workload.with_turn_length(choices[each.name].length))
        if each.name in choices
        else each
        for each in suite.workloads
    )
    return replace(suite, workloads=tuple(workloads))


def _group_by_measure(pairs: Sequence[ProbePair]) -> dict[float, list[ProbePair]]:
    """Return pairs by the seconds that count, the shortest first, without lengths of which there are too few pairs.

    A length is left out if its turns are about as long as those of the next: the program cannot work so briefly.
    """
    groups = defaultdict[float, list[ProbePair]](list)
    for pair in pairs:
        groups[pair[0].length.measure_seconds].append(pair)
    kept, next_seconds = dict[float, list[ProbePair]](), math.inf
    for each in sorted(groups, reverse=True):
        seconds = statistics.median(probed.probe.measured_seconds for pair in groups[each] for probed in pair)
        if len(groups[each]) >= _FEWEST_PAIRS and seconds < _SHORTER_SHARE * next_seconds:
            kept[each], next_seconds = groups[each], seconds
    return dict(reversed(kept.items()))


def _log_ratios(pairs: Sequence[ProbePair]) -> list[float]:
    return [math.log(one.probe.measured_rate / other.probe.measured_rate) for one, other in pairs]


def _choose_discard(
    cold_parts: Sequence[ColdPart], measure_seconds: float, log_margin: float
) -> tuple[float, float, float]:
    """Return the shortest first part after which a turn of this length is warm enough.

    Also return the share of the counted work that is still lost then, and its standard error.
    """
    last = cold_parts[-1]
    for each in cold_parts[:-1]:
        share = (last.lost_seconds - each.lost_seconds) / measure_seconds
        error = math.hypot(last.error_seconds, each.error_seconds) / measure_seconds
        if share < max(_COLD_SHARE * log_margin, error):
            return each.seconds, share, error
    return last.seconds, 0.0, 0.0


def _robust_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of values by the median of their distances from the median."""
    center = statistics.median(values)
    return _MAD_FACTOR * statistics.median(abs(each - center) for each in values)
