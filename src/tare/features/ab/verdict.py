"""Result of `tare ab`: the sentences, the table, the exported data, and the exit code."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

from tare.features.ab.measurement import Measured
from tare.model.run_folder import Run
from tare.model.trial import WALL_TIME, StopReason
from tare.model.units import format_count, format_duration, format_quantity
from tare.report.answer import Answer, AnswerColumn, AnswerRow
from tare.report.numbers import GLYPHS, format_interval, format_percent, format_ratio, is_factor, join_names
from tare.report.terminal import seconds_to_decide
from tare.statistics.anytime import min_value_count
from tare.statistics.cells import Cell
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary

FailOn = Literal["slower", "different", "undecided"]
FAIL_ON: tuple[FailOn, ...] = ("slower", "different", "undecided")
SLOWER, UNDECIDED, NOT_TESTED = 1, 3, 125  # exit codes; `git bisect run` skips a commit on the last one
_TAKEN_LIMIT = 0.05  # share of the wanted CPU time that others may take without a remark
_FLOOR = 1.02  # a peak memory up to this multiple of the starting process' is that of this process
_COLUMNS = ("metric", "command", "usual", "change", "95 % interval", "verdict")


@dataclass(frozen=True)
class Verdict:
    """Result of a comparison of commands; `measured` has its trials and `floor_bytes` the least memory that shows."""

    measured: Measured
    floor_bytes: int

    @cached_property
    def summary(self) -> Summary:
        """All comparisons."""
        return summarize(self.measured.run)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The comparisons that decide: one for each command but the first, or several with several headlines."""
        return tuple(
            cell for cell in self.summary.headlines if cell.stack not in (self.summary.baseline, self.summary.control)
        )

    def exit_code(self, fail_on: Collection[FailOn], *, bisect: bool) -> int:
        """Return 1 if a comparison ends as `fail_on` says, 3 (or 125) if that is undecided, else 0.

        It is 0 for a single command, which has no other to be slower than.
        """
        if self._is_alone:
            return 0
        verdicts = {cell.verdict if cell.is_decided else "undecided" for cell in self.cells} or {"undecided"}
        failing = {"slower": ("worse",), "different": ("better", "worse"), "undecided": ("undecided",)}
        if any(verdicts & {*failing[each]} for each in fail_on):
            return SLOWER
        return (NOT_TESTED if bisect else UNDECIDED) if "undecided" in verdicts else 0

    @property
    def _is_alone(self) -> bool:
        return len(self.measured.run.record.own) == 1

    @cached_property
    def _is_by_cpu_time(self) -> bool:
        return any(cell.by_cpu_time for cell in self.cells)

    def answer(self, stack: str = "") -> Answer:
        """Return the table with its sentences; `stack` names the stack in which the commands ran."""
        baseline = self.summary.baseline
        describe = self._describe_alone if self._is_alone else self._sentence
        columns = tuple(AnswerColumn(text, "name" if text == "command" else "text") for text in _COLUMNS)
        return Answer(
            "ab",
            columns,
            tuple(self._rows()),
            f"usual: geometric mean over the blocks; change: from {baseline}; slower or faster: the interval excludes "
            f"0 %; equivalent: within {format_percent(self.summary.margin)}; {self.summary.stacks[-1]}: {baseline} "
            "compared with itself",
            tuple(self._remarks()),
            tuple(map(describe, sorted(self.cells, key=_cost))),
            self._fields,
            opening=f"in {stack}:" if stack else "",
        )

    def csv(self) -> str:
        """Return a row for each metric and command, in base units."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("metric", "unit", "command", "usual", "ratio", "low", "high", "verdict", "blocks"))
        for cell in self._table_cells():
            writer.writerow(
                (cell.metric, cell.unit, cell.stack, cell.usual, cell.ratio, cell.low, cell.high, _word(cell), cell.n)
            )
        return text.getvalue()

    def _table_cells(self) -> list[Cell]:
        """Return the cells by metric: each as part of the headline, if it decides, or by itself."""
        deciding = {(cell.metric, cell.stack): cell for cell in self.summary.headlines}
        order = list(dict.fromkeys(cell.metric for cell in self.summary.cells))
        cells = sorted(self.summary.cells, key=lambda cell: order.index(cell.metric))
        return [deciding.get((cell.metric, cell.stack), cell) for cell in cells]

    def _wall_times(self) -> str:
        """Return the mean wall times as text, for commands that are compared by CPU time; "" for others."""
        walls = {
            trial.stack: [value.value for each in self.measured.run.trials for value in each.values
                          if each.stack == trial.stack and value.metric == WALL_TIME]
            for trial in self.measured.run.trials if trial.stack != self.summary.control
        }  # fmt: skip
        texts = (f"{name} {format_quantity(fmean(each), 's')}" for name, each in walls.items() if each)
        return f"mean wall time: {', '.join(texts)}" if self._is_by_cpu_time else ""

    def _rows(self) -> list[AnswerRow]:
        rows, last = [], ""
        for cell in self._table_cells():
            if cell.stack == self.summary.control and not cell.headline:
                continue
            if cell.metric == "cpu" and self._is_by_cpu_time:  # the time is that already
                continue
            name = f"{cell.metric} by CPU" if cell.by_cpu_time else cell.metric
            texts = (name if name != last else "", cell.stack, self._usual(cell))
            last = name
            if cell.stack == self.summary.baseline or cell.ratio is None or self._is_at_floor(cell):
                rows.append(AnswerRow((*texts, "", "", ""), "baseline"))
            else:
                verdict = f"{GLYPHS[cell.verdict]} {_word(cell)}"
                rows.append(AnswerRow((*texts, format_ratio(cell), format_interval(cell), verdict), cell.verdict))
        return rows

    def _is_at_floor(self, cell: Cell) -> bool:
        """Return whether a peak memory is that of the process that starts the commands."""
        value = cell.mean if cell.usual is None else cell.usual
        return cell.metric == "memory" and value is not None and value <= _FLOOR * self.floor_bytes

    def _usual(self, cell: Cell) -> str:
        value = cell.mean if cell.usual is None else cell.usual
        if value is None:
            return "-"
        if self._is_at_floor(cell):
            return f"≤ {format_quantity(self.floor_bytes, cell.unit)}"
        return format_quantity(value, cell.unit)

    def _sentence(self, cell: Cell) -> str:
        """Return the answer for a command."""
        baseline, n = self.summary.baseline, f"n = {cell.n}"
        interval = format_interval(cell)
        if cell.ratio is None or cell.low is None:
            return f"Undecided: too few blocks for an interval of {cell.stack} ({cell.n} of {min_value_count()})."
        change = f"{format_ratio(cell)} {interval}, {n}"
        if cell.verdict == "equivalent":
            return f"{cell.stack} and {baseline} are equivalent within {format_percent(self.summary.margin)}: {change}."
        if cell.verdict == "undecided":
            more = seconds_to_decide(self.summary, self.measured.run, [cell])
            longer = f" About {format_duration(math.ceil(more))} more would decide." if math.isfinite(more) else ""
            return f"Undecided: {cell.stack} against {baseline} is {change}.{longer}"
        if cell.unit != "s" or cell.better != "lower":
            return f"{cell.stack} is {cell.verdict} than {baseline} in {cell.name}: {change}."
        if is_factor(cell.ratio):
            return f"{cell.stack} takes {format_ratio(cell)[1:]} times as long as {baseline} {interval}, {n}."
        ends = interval.strip("[]").split(", ")
        if cell.verdict == "better":  # from the smaller to the larger reduction
            ends.reverse()
        than = f"{format_ratio(cell)} {_LONGER[cell.verdict]} than {baseline} [{', '.join(ends)}]"
        return f"{cell.stack} takes {than.translate(_SIGNS)}, {n}."

    def _describe_alone(self, cell: Cell) -> str:
        """Return the result of a single command: what it usually takes, and how well equal runs agree."""
        baseline = self.summary.baseline
        usual = next(e for e in self.summary.headlines if (e.headline, e.stack) == (cell.headline, baseline))
        agree = f"{format_ratio(cell)} {format_interval(cell)}".strip()
        again = f"compared with itself, it differs by {agree}" if agree else "too few blocks for an interval"
        return f"{baseline}: {cell.metric} {self._usual(usual)}; {again}."

    def _details(self) -> str:
        measured = self.measured
        by_cpu = "; compared by CPU time, as they only compute" if self._is_by_cpu_time else ""
        blocks = format_count(len(measured.run.trials) // len(self.summary.stacks), "block")
        return f"{blocks} in {measured.seconds:.1f} s{by_cpu}"

    def _remarks(self) -> list[str]:
        remarks = [f"{name}: {each['command']}" for name, each in self.measured.run.record.own.items() if each]
        remarks += filter(None, [self._wall_times(), self._details()])
        if (control := self.summary.headlines[-1]).verdict in ("better", "worse"):
            remarks.append(
                f"{self.summary.baseline} differs from itself ({format_ratio(control)} {format_interval(control)}): "
                "something on this machine changes from run to run"
            )
        if taken := _taken_shares(self.measured.run):
            texts = [f"{format_percent(round(share, 2))} of {name}'s" for name, share in taken.items()]
            remarks.append(f"others took CPU time that the commands wanted: {join_names(tuple(texts))}")
        if self.measured.stop == StopReason.BUDGET:
            remarks.append("the budget is used up")
        elif self.measured.stop == StopReason.INTERRUPT:
            remarks.append("interrupted: more blocks would have followed")
        kinds = {caution.kind for cell in self.cells for caution in cell.cautions}
        remarks += [f"caution: {kind}" for kind in sorted(kinds)]
        return remarks

    def _fields(self) -> Mapping[str, Any]:
        """Return the fields of the JSON document; numbers are in base units, intervals of ratios."""
        return {
            "baseline": self.summary.baseline,
            "commands": {name: each["command"] for name, each in self.measured.run.record.own.items()},
            "margin": self.summary.margin,
            "seconds": self.measured.seconds,
            "ended": self.measured.stop,
            "verdicts": {cell.stack: _word(cell) for cell in self.cells},
            "exit_code": self.exit_code(FAIL_ON[:1], bisect=False),  # without --fail-on
            "cells": [
                {
                    "metric": cell.metric,
                    "unit": cell.unit,
                    "command": cell.stack,
                    "usual": cell.usual,
                    "ratio": cell.ratio,
                    "low": cell.low,
                    "high": cell.high,
                    "verdict": _word(cell),
                    "at_most": self._is_at_floor(cell),
                    "blocks": cell.n,
                    "by_cpu_time": cell.by_cpu_time,
                }
                for cell in self._table_cells()
            ],
            "remarks": self._remarks(),
            "warnings": self.measured.warnings,
        }


_LONGER = {"worse": "longer", "better": "less time"}
_SIGNS = {ord("+"): "", ord("\N{MINUS SIGN}"): ""}


def _word(cell: Cell) -> str:
    """Return the verdict in words of time where less is better."""
    words = {"worse": "slower", "better": "faster"} if cell.unit == "s" else {}
    return words.get(cell.verdict, cell.verdict)


def _cost(cell: Cell) -> float:
    """Return how much longer a command takes, for sorting."""
    ratio = cell.ratio or math.inf
    return ratio if cell.better == "lower" else 1 / ratio


def _taken_shares(run: Run) -> dict[str, float]:
    """Return the share of the wanted CPU time that others took from each command, if it is more than 5 %."""
    had: dict[str, list[float]] = {}
    wanted: dict[str, list[float]] = {}
    for trial in run.trials:
        for value in trial.values:
            if value.cpu_shares:
                had.setdefault(trial.stack, []).append(fmean(value.cpu_shares))
                wanted.setdefault(trial.stack, []).append(value.cpu_wanted)
    shares = {name: 1 - fmean(had[name]) / max(fmean(wanted[name]), 1e-9) for name in had}
    return {name: share for name, share in shares.items() if share > _TAKEN_LIMIT and name != run.record.control}


def describe_progress(run: Run) -> Sequence[str]:
    """Return a line for each command that is compared, while the measurement goes on."""
    summary = summarize(run)
    lines = []
    for cell in summary.headlines:
        if cell.stack in (summary.baseline, summary.control):
            continue
        change = f"{format_ratio(cell)} {format_interval(cell)}".strip() or "no value yet"
        lines.append(f"{GLYPHS[cell.verdict]} {cell.stack} from {summary.baseline}: {change}, n = {cell.n}")
    return lines
