"""Several starts of a stack in one block: the usual one counts, not one that a burst on the machine has hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from tare.contracts.workloads import Workload
from tare.model.trials import Caution, Raw, Trial
from tare.running.values import read_values

Ended = tuple[Trial, tuple[Raw, ...]]

_SECONDS = 1.0  # of a block, for all starts of a stack; the first may take longer


def may_start_again(ended: Sequence[Ended]) -> bool:
    """Return whether another start of this stack would end in time. None follows a failure."""
    trials = [trial for trial, _ in ended]
    return trials[-1].status == "ok" and sum(trial.seconds for trial in trials) + trials[-1].seconds <= _SECONDS


def warmed_up(ended: Ended) -> Ended:
    """Mark the outputs of a start that only fills caches: they count for nothing."""
    trial, raw = ended
    return trial, tuple(replace(each, warm_up=True) for each in raw)


def as_one(workload: Workload, ended: Sequence[Ended]) -> Ended:
    """Return several starts as one trial: its turns are the starts, all else is that of the usual one or a failed one.

    Starts whose outputs are marked as warming up do not count.
    """
    raw = tuple(chain.from_iterable(each for _, each in ended))
    seconds = sum(trial.seconds for trial, _ in ended)
    failed = next((trial for trial, _ in ended if trial.status != "ok"), None)
    if failed is not None:
        return replace(failed, seconds=seconds), raw
    counted = [trial for trial, outputs in ended if not all(each.warm_up for each in outputs)]
    usual = sorted(counted, key=_ready_seconds)[(len(counted) - 1) // 2]
    turns = (replace(turn, number=number) for number, trial in enumerate(counted) for turn in trial.turns)
    values = read_values(workload, raw)
    first, last = ended[0][0], ended[-1][0]
    one = replace(usual, seconds=seconds, started=first.started, ended=last.ended, values=values, turns=tuple(turns))
    return replace(one, cautions=_cautions(counted)), raw


def _ready_seconds(trial: Trial) -> float:
    """Return when the instance answered; a technology may report more of its start after that."""
    return next(mark.seconds for mark in trial.timeline if mark.name == "ready")


def _cautions(starts: Sequence[Trial]) -> tuple[Caution, ...]:
    """Return the cautions of each kind of the first start that has it: later ones differ in their numbers alone."""
    found: list[Caution] = []
    for start in starts:
        known = {caution.kind for caution in found}
        found += [caution for caution in start.cautions if caution.kind not in known]
    return tuple(found)
