"""From what the commands of a trial printed to its values, round by round, and the units that they were printed in."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from tare.contracts.workloads import Workload
from tare.errors import TrialFailed
from tare.model.trials import SERVICE_READY, Measured, Metric, Raw, Trial, Value
from tare.units import singular

Key = tuple[str, float | None]  # a metric and a point
_UNIT_HINT = "let the command print this number in one unit always, or as JSON"


def read_values(workload: Workload, raw: Sequence[Raw]) -> tuple[Measured, ...]:
    """Parse what the commands of a trial printed; raises TrialFailed where a value is missing or absurd.

    Where stacks are measured one after the other, the median over the rounds is the value.
    """
    metrics = {metric.name: metric for metric in workload.all_metrics}
    if workload.rounds == 1 or workload.searches:
        values = _checked(workload, workload.parse([each for each in raw if not each.warm_up]))
        return tuple(_measured(metrics[each.metric], [each]) for each in values)
    turns: dict[Key, list[Value]] = defaultdict(list)
    rounds = _in_rounds(workload, raw)
    for number, each in enumerate(rounds, start=1):
        for value in _checked(workload, workload.parse(each)):
            turns[value.metric, value.point].append(value)
        if any(len(values) != number for values in turns.values()):
            raise TrialFailed(f"{workload.name} gave other points in round {number}", "its plug-in has a bug")
    if workload.alone:  # rounds that are not close in time are no pairs
        means = (_measured(metrics[name], values) for (name, _), values in turns.items())
        return tuple(replace(each, value=median(each.turns or (each.value,)), turns=()) for each in means)
    labels = _labels(workload, rounds[0], rounds[-1])
    return tuple(_measured(metrics[key[0]], values, labels.get(key, "")) for key, values in turns.items())


def service_ready(seconds: float | None) -> tuple[Measured, ...]:
    """Return the time until a trial's server was ready as a value, which decides nothing; none without a server."""
    return () if seconds is None else (Measured(SERVICE_READY, None, seconds, "s", "lower"),)


def latest_values(workload: Workload, latest: Sequence[Raw]) -> tuple[Measured, ...]:
    """Read the latest output of each label of a trial on its way, as if all were of one round: to look at, no more.

    Return nothing where they cannot be read: a round may not be complete, or its outputs cannot be read alone. Outputs
    that warm up are read like the others.
    """
    if workload.rounds == 1 or workload.searches:
        return ()
    metrics = {metric.name: metric for metric in workload.all_metrics}
    try:
        values = _checked(workload, workload.parse([replace(each, warm_up=False) for each in latest]))
        return tuple(_measured(metrics[each.metric], [each]) for each in values)
    except Exception:  # noqa: BLE001 - plug-ins are anybody's; what is wrong is said when the trial has ended
        return ()


@dataclass
class PrintedUnits:
    """The unit that the programs of a run print after each metric's number, as the first trial of the metric had it.

    A program that prints `1.09 ms` on one stack and `944 us` on another would make the second 866 times as slow.
    """

    references: Sequence[str]
    _first: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # a unit and its stack

    def checked(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials; those with another unit than the first have failed, and their values do not count.

        The first trials are those of the first block. In a block, the references come first.
        """
        trials = list(trials)
        ranks = {stack: rank for rank, stack in enumerate(reversed(self.references), start=1)}
        for at in sorted(range(len(trials)), key=lambda at: (trials[at].block, -ranks.get(trials[at].stack, 0))):
            trials[at] = self._checked(trials[at])
        return trials

    def _checked(self, trial: Trial) -> Trial:
        for value in trial.values:
            unit, stack = self._first.setdefault((trial.workload, value.metric), (value.printed_unit, trial.stack))
            if singular(unit) != singular(value.printed_unit):
                units = f"{_shown_unit(value.printed_unit)} here, and {_shown_unit(unit)} in {stack}"
                why = f"two units of {value.metric}: the command printed {units}"
                return replace(trial, status="failed", reason=why, hint=_UNIT_HINT, values=(), quarantined=trial.values)
        return trial


def _shown_unit(unit: str) -> str:
    return repr(unit) if unit else "no unit"


def _measured(metric: Metric, values: Sequence[Value], label: str = "") -> Measured:
    """Return the mean over turns, with each of them and their output's label where there were several.

    Raises TrialFailed where the turns were printed in different units.
    """
    first, numbers = values[0], tuple(each.value for each in values)
    if other := next((each for each in values if singular(each.printed_unit) != singular(first.printed_unit)), None):
        units = f"{_shown_unit(first.printed_unit)}, and later {_shown_unit(other.printed_unit)}"
        raise TrialFailed(f"two units of {metric.name}: the command printed {units}", _UNIT_HINT)
    turns, label = (numbers, label) if len(numbers) > 1 else ((), "")
    unit = first.printed_unit
    return Measured(metric.name, first.point, fmean(numbers), metric.unit, metric.better, turns, label, unit)


def _labels(workload: Workload, first: Sequence[Raw], last: Sequence[Raw]) -> Mapping[Key, str]:
    """Return which output each value is read from: the one that changes it, when it is of another round."""
    plain = _by_key(workload, first)
    if len(first) == 1:
        return dict.fromkeys(plain, first[0].label)
    labels: dict[Key, str] = {}
    for at, raw in enumerate(last):
        mixed = _by_key(workload, (*first[:at], raw, *first[at + 1 :]))
        for key in (key for key in plain.keys() & mixed.keys() if mixed[key] != plain[key]):
            labels[key] = "" if key in labels else raw.label
    return labels


def _by_key(workload: Workload, raw: Sequence[Raw]) -> Mapping[Key, float]:
    try:
        return {(value.metric, value.point): value.value for value in workload.parse(raw)}
    except TrialFailed:  # its parser accepts outputs of one round only: then it is unknown
        return {}


def _in_rounds(workload: Workload, raw: Sequence[Raw]) -> tuple[tuple[Raw, ...], ...]:
    """Divide outputs into rounds: the n-th with the same label is of the n-th. What only warms up is left out.

    Raises TrialFailed where some labels came more often than others: no round could be compared.
    """
    counted = [each for each in raw if not each.warm_up]
    by_label: dict[str, list[Raw]] = defaultdict(list)
    for each in counted:
        by_label[each.label].append(each)
    counts = {len(found) for found in by_label.values()}
    if len(counts) > 1:
        counted_by_label = ", ".join(f"{len(found)} of {label}" for label, found in by_label.items())
        raise TrialFailed(f"{workload.name} gave turns unevenly: {counted_by_label}", "its plug-in has a bug")
    rounds = counts.pop() if counts else 1  # a parser says what is missing where there is nothing
    return tuple(tuple(found[number] for found in by_label.values()) for number in range(rounds))


def _checked(workload: Workload, values: Sequence[Value]) -> Sequence[Value]:
    names = {metric.name for metric in workload.all_metrics}
    for value in values:
        if value.metric not in names or not _is_number(value.value):
            raise TrialFailed(f"{workload.name} gave {value.value!r} for {value.metric!r}", "its plug-in has a bug")
        if value.point is not None and not _is_number(value.point):
            what = f"{workload.name} gave a value of {value.metric!r} at the point {value.point!r}"
            raise TrialFailed(what, "its plug-in has a bug")
    return values


def _is_number(value: object) -> bool:
    """Return whether a value is a finite number that JSON has; those of numerical libraries may be none."""
    return isinstance(value, int | float) and math.isfinite(value)
