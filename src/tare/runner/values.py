"""Values of a trial, parsed from its commands' output round by round, and the units that the commands printed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from tare.loads.parsing import UnexpectedLabels
from tare.model.errors import TrialFailed
from tare.model.trial import SERVICE_READY, MeasuredValue, Metric, RawOutput, Trial, Value
from tare.model.units import to_singular
from tare.plugins.workload import Workload

ValueKey = tuple[str, float | None]  # a metric and a point
_ROUNDS_FOR_LABELS = 5
_UNIT_HINT = "let the command print this number in one unit always, or as JSON"


def read_values(
    workload: Workload, raw: Sequence[RawOutput], *, has_host_clock: bool = False
) -> tuple[MeasuredValue, ...]:
    """Return a trial's values, parsed from its commands' output. Raises TrialFailed for missing or non-finite values.

    A value is the mean over the rounds, with the value of each turn. If stacks are measured one at a time, a value is
    the median over the rounds, without turns. Values keep the CPU shares of turns if `has_host_clock`: if the kernel of
    the machine under test counted their CPU time.
    """
    values = _read_values(workload, raw)
    return values if has_host_clock else tuple(replace(each, cpu_shares=(), cpu_wanted=0.0) for each in values)


def _read_values(workload: Workload, raw: Sequence[RawOutput]) -> tuple[MeasuredValue, ...]:
    metrics = {metric.name: metric for metric in workload.all_metrics}
    # An adaptive workload chooses its points while it measures: its outputs are one search and not equal rounds.
    if workload.rounds == 1 or workload.is_adaptive:
        values = _reject_impossible(workload, workload.parse([each for each in raw if not each.warm_up]))
        return tuple(_average_turns(metrics[each.metric], [each]) for each in values)
    turns: dict[ValueKey, list[Value]] = defaultdict(list)
    rounds = _split_rounds(workload, raw)
    for number, outputs in enumerate(rounds, start=1):
        for value in _reject_impossible(workload, workload.parse(outputs)):
            turns[value.metric, value.point].append(value)
        if any(len(values) != number for values in turns.values()):
            raise TrialFailed(f"{workload.name} gave other points in round {number}", "its plug-in has a bug")
    if workload.runs_exclusively:  # turns of two stacks are then far apart in time, and must not be compared in pairs
        return tuple(_average_turns(metrics[name], values, in_pairs=False) for (name, _), values in turns.items())
    labels = _find_labels(workload, rounds)
    return tuple(_average_turns(metrics[key[0]], values, labels.get(key, "")) for key, values in turns.items())


def service_ready_values(seconds: float | None) -> tuple[MeasuredValue, ...]:
    """Return the seconds until a trial's server was ready as a value that no verdict uses; empty without a server."""
    return () if seconds is None else (MeasuredValue(SERVICE_READY, None, seconds, "s", "lower"),)


def latest_values(workload: Workload, latest: Sequence[RawOutput]) -> tuple[MeasuredValue, ...] | None:
    """Return preliminary values of an unfinished trial for the display, from the latest output of each label.

    Warm-up outputs count, too. Empty if the outputs cannot be parsed, for example because the round is incomplete;
    None if a command failed.
    """
    if workload.rounds == 1 or workload.is_adaptive:
        return ()
    metrics = {metric.name: metric for metric in workload.all_metrics}
    try:
        values = _reject_impossible(workload, workload.parse([replace(each, warm_up=False) for each in latest]))
        return tuple(_average_turns(metrics[each.metric], [each]) for each in values)
    except UnexpectedLabels:
        return ()
    except TrialFailed:
        return None
    except Exception:  # noqa: BLE001 - a plug-in's parser may raise anything; `read_values` reports it at the trial's end
        return ()


@dataclass
class PrintedUnits:
    """Check of the units that the programs of a run print after each metric's number: all must be those of the first.

    Without this check, a program that prints `1.09 ms` on one stack and `944 us` on another would make the second 866
    times as slow. `references` are the baseline and its control.
    """

    references: Sequence[str]
    _first: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # (workload, metric): (unit, stack)

    def check_trials(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials in their order; fail those with another unit than the first, and quarantine their values.

        The first trial is of the earliest block and, in that block, of the first of `references` that has the metric.
        """
        trials = list(trials)
        ranks = {stack: rank for rank, stack in enumerate(reversed(self.references), start=1)}
        for at in sorted(range(len(trials)), key=lambda at: (trials[at].block, -ranks.get(trials[at].stack, 0))):
            trials[at] = self._check_trial(trials[at])
        return trials

    def _check_trial(self, trial: Trial) -> Trial:
        for value in trial.values:
            unit, stack = self._first.setdefault((trial.workload, value.metric), (value.printed_unit, trial.stack))
            if to_singular(unit) != to_singular(value.printed_unit):
                units = f"{_format_unit(value.printed_unit)} here, and {_format_unit(unit)} in {stack}"
                why = f"two units of {value.metric}: the command printed {units}"
                return trial.as_failed(why, _UNIT_HINT, quarantined=trial.values)
        return trial


def _format_unit(unit: str) -> str:
    return repr(unit) if unit else "no unit"


def _average_turns(metric: Metric, values: Sequence[Value], label: str = "", *, in_pairs: bool = True) -> MeasuredValue:
    """Return a metric's mean over its turns; with several turns, also the value of each and their output's label.

    If turns cannot be compared `in_pairs`, return their median, without turns. Raises TrialFailed if the command
    printed the turns in different units.
    """
    first, numbers = values[0], tuple(each.value for each in values)
    if other := next(
        (each for each in values if to_singular(each.printed_unit) != to_singular(first.printed_unit)), None
    ):
        units = f"{_format_unit(first.printed_unit)}, and later {_format_unit(other.printed_unit)}"
        raise TrialFailed(f"two units of {metric.name}: the command printed {units}", _UNIT_HINT)
    turns, label = (numbers, label) if in_pairs and len(numbers) > 1 else ((), "")
    value, unit = (fmean if in_pairs else median)(numbers), first.printed_unit
    averaged = MeasuredValue(metric.name, first.point, value, metric.unit, metric.better, turns, label, unit)
    shares = [each.cpu_share for each in values if each.cpu_share and each.cpu_share.had > 0]
    if not turns or len(shares) < len(turns):
        return averaged
    wanted = fmean(min(1.0, share.wanted) for share in shares)
    return replace(averaged, cpu_shares=tuple(share.had for share in shares), cpu_wanted=wanted)


def _find_labels(workload: Workload, rounds: Sequence[Sequence[RawOutput]]) -> Mapping[ValueKey, str]:
    """Return the label of the output that each value is parsed from, or "" if several outputs contribute to the value.

    `parse` does not say which output a value is from. So parse the first round again with one output at a time replaced
    by that of one of the last rounds: the values that change are from this output. One round is not enough, as short
    turns often have equal values.
    """
    first = rounds[0]
    plain = _parse_by_key(workload, first)
    if len(first) == 1:
        return dict.fromkeys(plain, first[0].label)
    labels: dict[ValueKey, set[str]] = defaultdict(set)
    for at, raw in ((at, raw) for last in rounds[1:][-_ROUNDS_FOR_LABELS:] for at, raw in enumerate(last)):
        mixed = _parse_by_key(workload, (*first[:at], raw, *first[at + 1 :]))
        for key in (key for key in plain.keys() & mixed.keys() if mixed[key] != plain[key]):
            labels[key].add(raw.label)
    return {key: "".join(found) if len(found) == 1 else "" for key, found in labels.items()}


def _parse_by_key(workload: Workload, raw: Sequence[RawOutput]) -> Mapping[ValueKey, float]:
    """Return the values of one round by metric and point; empty if the parser rejects the outputs."""
    try:
        return {(value.metric, value.point): value.value for value in workload.parse(raw)}
    except TrialFailed:  # the parser rejects outputs of two rounds: then the labels stay unknown
        return {}


def _split_rounds(workload: Workload, raw: Sequence[RawOutput]) -> tuple[tuple[RawOutput, ...], ...]:
    """Return the outputs of each round, without those of warm-up: round n has the n-th output of each label.

    Raises TrialFailed if one label has more outputs than another, as no rounds can be formed then.
    """
    counted = [each for each in raw if not each.warm_up]
    by_label: dict[str, list[RawOutput]] = defaultdict(list)
    for each in counted:
        by_label[each.label].append(each)
    counts = {len(outputs) for outputs in by_label.values()}
    if len(counts) > 1:
        counted_by_label = ", ".join(f"{len(outputs)} of {label}" for label, outputs in by_label.items())
        raise TrialFailed(f"{workload.name} gave turns unevenly: {counted_by_label}", "its plug-in has a bug")
    rounds = counts.pop() if counts else 1  # without outputs, one empty round: its parser reports what is missing
    return tuple(tuple(outputs[number] for outputs in by_label.values()) for number in range(rounds))


def _reject_impossible(workload: Workload, values: Sequence[Value]) -> Sequence[Value]:
    """Return a parser's values. Raises TrialFailed for an unknown metric, and for a non-finite value or point."""
    names = {metric.name for metric in workload.all_metrics}
    for value in values:
        if value.metric not in names or not _is_number(value.value):
            raise TrialFailed(f"{workload.name} gave {value.value!r} for {value.metric!r}", "its plug-in has a bug")
        if value.point is not None and not _is_number(value.point):
            what = f"{workload.name} gave a value of {value.metric!r} at the point {value.point!r}"
            raise TrialFailed(what, "its plug-in has a bug")
    return values


def _is_number(value: object) -> bool:
    """Return whether a value is a finite int or float, which JSON can store; some types of NumPy are neither."""
    return isinstance(value, int | float) and math.isfinite(value)
