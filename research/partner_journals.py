"""The pairings on turns that tare measured: how much blocks, halves of a block, and A/A differ with each of them.

Halves of a block are its odd and even rounds, or alternating runs of ten rounds: in odd and even rounds, the partners
of an interpolation are a round farther away than they would be. The order of the turns is the one that was measured, so
other orders cannot be replayed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from audit_runs import Floats
from partner_pairings import CENTERS, PAIRINGS, Turns, value

_BASELINE, _CONTROL = "native", "native-again"
_LEAST_ROUNDS = 20
_LEVELS = {"ramspeed": "float-average"}  # of several metrics from the same turn, the one that counts
_HALVES = {"odd, even": 1, "runs of ten": 10}  # successive rounds of the same half
_SPREADS = ("A/A", "blocks", "odd, even", "runs of ten")
_LAGS = (1, 10, 100)
_MIRRORED_ONLY = "over two rounds"
TODAY = ("in the round", "median")
_RESAMPLED = 2000

Differences = dict[tuple[str, str], dict[str, Floats]]


@dataclass(frozen=True)
class Measured:
    """Turns of all blocks of one workload and point of a run."""

    name: str
    blocks: tuple[Turns, ...]
    stacks: tuple[tuple[str, ...], ...]

    def structure(self) -> tuple[float, ...]:
        """Return robust deviations of the log ratio of a turn to the next one, the 10th and the 100th of any stack."""
        apart: dict[int, list[Floats]] = defaultdict(list)
        for block in self.blocks:
            levelled = Turns(block.began, tuple(each - np.median(each) for each in block.logs))
            _, logs = levelled.in_time(range(len(block.logs)))
            for lag in _LAGS:
                apart[lag].append(logs[lag:] - logs[:-lag])
        return tuple(float(1.4826 * np.median(np.abs(np.concatenate(apart[lag])))) for lag in _LAGS)


def read_all(folders: Iterable[Path]) -> list[Measured]:
    """Read the workloads of run folders that take turns; exit with a message if a folder has none."""
    found = []
    for folder in folders:
        if not (folder / "trials.jsonl").is_file():
            sys.exit(f"error: {folder}: no run folder\nhint: name folders that `tare run` made, such as runs/NAME")
        measured = list(read(folder))
        if not measured:
            hint = f"name runs of {_BASELINE} with at least {_LEAST_ROUNDS} rounds a block"
            sys.exit(f"error: {folder}: no workload has turns of {_BASELINE} and {_CONTROL}\nhint: {hint}")
        found += measured
    return found


def read(folder: Path) -> Iterator[Measured]:
    """Read the workloads of a run folder that take turns."""
    turns: dict[str, dict[int, dict[str, tuple[Floats, Floats]]]] = defaultdict(lambda: defaultdict(dict))
    with (folder / "trials.jsonl").open(encoding="utf-8") as lines:
        for trial in map(json.loads, lines):
            if trial["status"] != "ok":
                continue
            for counted in trial["values"]:
                if len(counted["turns"]) < _LEAST_ROUNDS or counted["metric"] != _LEVELS.get(
                    trial["workload"], counted["metric"]
                ):
                    continue
                point = "" if counted["point"] is None else f" {counted['point']:g}"
                blocks = turns[f"{trial['workload']}{point}"]
                blocks[trial["block"]][trial["stack"]] = _turns(trial, counted)
    for name, blocks in turns.items():
        whole = [each for each in blocks.values() if {_BASELINE, _CONTROL} < set(each)]
        orders = [(_BASELINE, *sorted(set(each) - {_BASELINE, _CONTROL}), _CONTROL) for each in whole]
        made = [
            Turns(tuple(each[stack][0] for stack in order), tuple(each[stack][1] for stack in order))
            for each, order in zip(whole, orders, strict=True)
        ]
        if made:
            yield Measured(f"{folder.name} {name}", tuple(made), tuple(orders))


def _turns(trial: Mapping[str, Any], counted: Mapping[str, Any]) -> tuple[Floats, Floats]:
    began = [each["began"] for each in trial["turns"] if each["label"] == counted["label"] and not each["warm_up"]]
    assert len(began) == len(counted["turns"]), f"{trial['trial']} has other turns than values"
    return np.array(began), np.log(counted["turns"])


def differences(measured: Measured) -> Differences:
    """Return what should be 0 without noise, by pairing and center, then by kind of spread."""
    return {
        (pairing, center): _of_method(measured, pairing, center)
        for pairing in PAIRINGS
        for center in CENTERS
        if pairing != _MIRRORED_ONLY
    }


def _of_method(measured: Measured, pairing: str, center: str) -> dict[str, Floats]:
    def valued(turns: Turns, row: int) -> float:
        return value(turns, row, PAIRINGS[pairing], CENTERS[center])

    found = {}
    for name, rounds in _HALVES.items():
        halves = [[block.select_half(rounds, half) for half in (0, 1)] for block in measured.blocks]
        found[name] = np.array(
            [valued(one, row) - valued(other, row) for one, other in halves for row in range(1, len(one.logs))]
        )
    by_stack: dict[str, list[float]] = defaultdict(list)
    for block, stacks in zip(measured.blocks, measured.stacks, strict=True):
        for row in range(1, len(block.logs)):
            by_stack[stacks[row]].append(valued(block, row))
    found["A/A"] = np.array(by_stack.pop(_CONTROL))
    repeated = [np.array(each) for each in by_stack.values() if len(each) > 1]
    found["blocks"] = np.concatenate(
        [(each - each.mean()) * np.sqrt(len(each) / (len(each) - 1)) for each in repeated] or [np.zeros(0)]
    )
    return found


def _deviation(values: Floats) -> float:
    return float(np.sqrt((values**2).mean()))


def ratios(found: list[Differences], method: tuple[str, str], kind: str) -> tuple[float, float, float]:
    """Return the geometric mean over workloads of the spread relative to today's, and its 95 % interval.

    The interval is that of resampled workloads and values within them (percentiles).
    """
    pairs = [(each[method][kind], each[TODAY][kind]) for each in found if each[TODAY][kind].size > 1]
    logs = np.array([np.log(_deviation(own) / _deviation(today)) for own, today in pairs])
    chance = np.random.default_rng(1)
    again = []
    for _ in range(_RESAMPLED):
        drawn = []
        for index in chance.integers(len(pairs), size=len(pairs)):
            own, today = pairs[index]
            at = chance.integers(len(own), size=len(own))
            drawn.append(np.log(_deviation(own[at]) / _deviation(today[at])))
        again.append(np.mean(drawn))
    low, high = np.percentile(again, (2.5, 97.5))
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


def replay(measured: Sequence[Measured]) -> str:
    """Return the tables of these journals."""
    found = [differences(each) for each in measured]
    lines = [
        "| journal | blocks | next | 10th | 100th | halves, today | halves, trimmed | A/A, today |",
        "| --- " * 8 + "|",
    ]
    for each, seen in zip(measured, found, strict=True):
        today, trimmed = seen[TODAY], seen["in the round", "trimmed"]
        shares = (
            *each.structure(),
            _deviation(today["odd, even"]),
            _deviation(trimmed["odd, even"]),
            _deviation(today["A/A"]),
        )
        lines.append(f"| {each.name} | {len(each.blocks)} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |")
    lines += ["", f"| pairing | center | {' | '.join(_SPREADS)} |", "| --- " * (2 + len(_SPREADS)) + "|"]
    for method in found[0]:
        cells = []
        for kind in _SPREADS:
            ratio, low, high = ratios(found, method, kind)
            cells.append(f"{ratio:.2f} ({low:.2f}, {high:.2f})")
        lines.append(f"| {' | '.join((*method, *cells))} |")
    return "\n".join(lines)
