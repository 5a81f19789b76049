"""From what the commands of a trial printed to its values, round by round."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from tare.contracts.workloads import Workload
from tare.errors import TrialFailed
from tare.model.trials import SERVICE_READY, Measured, Metric, Raw, Value

Key = tuple[str, float | None]  # a metric and a point


def read_values(workload: Workload, raw: Sequence[Raw], divided: bool = True) -> tuple[Measured, ...]:
    """Parse what the commands of a trial printed; raises TrialFailed where a value is missing or absurd.

    Outputs of a trial from before there were turns are not `divided`: all are of one round. Where stacks are measured
    one after the other, the median over the rounds is the value.
    """
    metrics = {metric.name: metric for metric in workload.all_metrics}
    if workload.rounds == 1 or workload.searches or not divided:
        values = _checked(workload, workload.parse([each for each in raw if not each.warm_up]))
        return tuple(_measured(metrics[each.metric], each.point, (each.value,)) for each in values)
    turns: dict[Key, list[float]] = defaultdict(list)
    rounds = _in_rounds(workload, raw)
    for number, each in enumerate(rounds, start=1):
        for value in _checked(workload, workload.parse(each)):
            turns[value.metric, value.point].append(value.value)
        if any(len(values) != number for values in turns.values()):
            raise TrialFailed(f"{workload.name} gave other points in round {number}", "its plug-in has a bug")
    if workload.alone:  # rounds that are not close in time are no pairs
        return tuple(_measured(metrics[name], point, (median(values),)) for (name, point), values in turns.items())
    labels = _labels(workload, rounds[0], rounds[-1])
    return tuple(
        _measured(metrics[metric], point, values, labels.get((metric, point), ""))
        for (metric, point), values in turns.items()
    )


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
        return tuple(_measured(metrics[each.metric], each.point, (each.value,)) for each in values)
    except Exception:  # noqa: BLE001 - plug-ins are anybody's; what is wrong is said when the trial has ended
        return ()


def _measured(metric: Metric, point: float | None, values: Sequence[float], label: str = "") -> Measured:
    """Return the mean over turns, with each of them and their output's label where there were several."""
    if len(values) == 1:
        return Measured(metric.name, point, values[0], metric.unit, metric.better)
    return Measured(metric.name, point, fmean(values), metric.unit, metric.better, tuple(values), label)


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
