"""Comparison of stacks on each machine type of a fleet, with intervals for machines that were not measured.

A fleet is a folder with a run folder for each machine, named after it. Machines of one type (in the output, "kind")
have the same architecture, CPU, number of CPUs, virtualization below, kernel and memory. In each run, stacks are
compared with the baseline block by block; the value of a machine is the mean of its blocks. See
`tare.features.fleet.random_effects`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tare.features.compare.changes import make_cell_like
from tare.features.compare.comparability import has_different_memory, require_same_units
from tare.features.compare.run_comparison import CompareOptions, GateResult, judge_gate
from tare.features.compare.run_series import RunDigest, SeriesKey, drop_incomparable_workloads, require_stacks
from tare.features.fleet.headline_cache import load_digests
from tare.features.fleet.random_effects import (
    MIN_MACHINES,
    MachineSample,
    estimate_variance,
    half_width,
    narrowest_share,
    outlier_p_values,
)
from tare.model.errors import TareError, UsageError
from tare.model.machine import Facts
from tare.model.run_folder import RunRecord, load_record
from tare.statistics.anytime import CONFIDENCE
from tare.statistics.cells import DECIDED, Cell, Verdict, verdict_of_side
from tare.statistics.ratios import classify_side, exp_bounded

_RECORD_FILE = "run.json"


@dataclass(frozen=True)
class FleetMachineType:
    """Machine type: a letter as its name, the facts of one of its machines, and the names of all."""

    name: str
    facts: Facts
    machines: tuple[str, ...]


@dataclass(frozen=True)
class OutlierMachine:
    """Machine outside of the prediction of the others of its type: its value and theirs, relative to the baseline.

    `chance` is the p-value, adjusted for all machines and all values of the type.
    """

    machine: str
    ratio: float
    others: float
    chance: float


@dataclass(frozen=True)
class TypeResult:
    """Result of a stack in a headline on a machine type.

    `cell` has the mean ratio, and the prediction interval for a machine that was not measured; its `n` counts machines.
    For two fleets, the ratio is after to before. `cells`, `means` (logarithms) and `blocks` (counts) are by machine.
    `share` is the share of the blocks' variance that is between machines, None if unknown. Values of the baseline
    itself (`is_baseline`) are relative to the mean of the type, and nothing is decided.
    """

    machine_type: str
    is_baseline: bool
    cell: Cell
    cells: Mapping[str, Cell]
    means: Mapping[str, float]
    blocks: Mapping[str, int]
    share: float | None
    outliers: tuple[OutlierMachine, ...] = ()


@dataclass(frozen=True)
class Generalization:
    """Generalization of a stack's verdict over all machine types: `yes`, `no` or `open`."""

    headline: str
    stack: str
    verdicts: Mapping[str, Verdict]

    @property
    def answer(self) -> str:
        """`yes` if all types have the same decided verdict, `no` if two differ, `open` otherwise."""
        decided = {verdict for verdict in self.verdicts.values() if verdict in DECIDED}
        if len(decided) > 1:
            return "no"
        return "yes" if decided and all(verdict in DECIDED for verdict in self.verdicts.values()) else "open"


@dataclass(frozen=True)
class FleetComparison:
    """Comparison of the stacks of a fleet, or of two fleets; `folders` has one or two entries."""

    folders: tuple[Path, ...]
    suites: tuple[str, ...]
    baseline: str
    margin: float
    machine_types: tuple[FleetMachineType, ...]
    results: tuple[TypeResult, ...]
    statements: tuple[str, ...]
    gate: GateResult

    @property
    def generalizations(self) -> tuple[Generalization, ...]:
        """The generalization of each stack in each headline; empty with a single machine type."""
        verdicts: dict[SeriesKey, dict[str, Verdict]] = {}
        for each in self.results:
            if not each.is_baseline:
                verdicts.setdefault((each.cell.headline, each.cell.stack), {})[each.machine_type] = each.cell.verdict
        return (
            tuple(Generalization(*key, found) for key, found in verdicts.items()) if len(self.machine_types) > 1 else ()
        )


@dataclass(frozen=True)
class _TypeSamples:
    """Values of a stack in a headline on a machine type: the cell and the blocks of each machine."""

    machine_type: str
    is_baseline: bool
    cells: Mapping[str, Cell]
    logs: Mapping[str, MachineSample]

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """The means of the machines' blocks; for the baseline, relative to the mean of the type."""
        means = np.array([each.mean for each in self.logs.values()])
        return means - means.mean() if self.is_baseline else means


@dataclass(frozen=True)
class _MachineRun:
    name: str
    record: RunRecord
    run: RunDigest[MachineSample]


def is_fleet(folder: Path) -> bool:
    """Return whether a folder contains runs and is not a run itself."""
    return folder.is_dir() and not (folder / _RECORD_FILE).exists() and bool(run_folders(folder))


def compare_machines(folder: Path, options: CompareOptions, progress: Callable[[int], None]) -> FleetComparison:
    """Compare the stacks on each machine type; raises UsageError. `progress` is called with the number of runs read."""
    machines, statements = _read_machines(folder, options.baseline, options.stacks, progress)
    by_name, baseline = {each.name: each for each in machines}, machines[0].run.baseline
    samples = [
        (machine_type, list(_samples_of_type(machine_type, by_name, baseline)))
        for machine_type in group_by_type(_facts(machines))
    ]
    return _decide((folder,), machines, samples, statements, options)


def compare_fleets(
    before: Path, after: Path, options: CompareOptions, progress: Callable[[int], None]
) -> FleetComparison:
    """Compare two fleets by the machines that are in both; raises UsageError.

    The kernels of a machine may differ, as a new kernel may be the reason for the comparison.
    """
    if before.resolve() == after.resolve():
        raise UsageError(f"{before} and {after} are the same fleet", "give the fleets before and after")
    old, statements = _read_machines(before, options.baseline, options.stacks, progress)
    new, more = _read_machines(after, old[0].run.baseline, options.stacks, lambda n: progress(len(old) + n))
    earlier, later = ({each.name: each for each in some} for some in (old, new))
    lines = [*statements, *more]
    for when, some, others in (("before", earlier, later), ("after", later, earlier)):
        unmatched = [name for name in some if name not in others]
        lines += [f"only {when}, and not compared: {', '.join(unmatched)}"] if unmatched else []
    both = [name for name in later if name in earlier]
    changed = [
        name for name in both if _is_different_hardware(later[name].record.machine, earlier[name].record.machine)
    ]
    lines += [f"another machine under the same name, and not compared: {', '.join(changed)}"] if changed else []
    compared = [later[name] for name in both if name not in changed]
    if not compared:
        raise UsageError(f"{before} and {after} have no machine in common", "a change is that of a machine by its name")
    samples = [
        (machine_type, list(_changes_of_type(machine_type, earlier, later, new[0].run.baseline)))
        for machine_type in group_by_type(_facts(compared), software=False)
    ]
    return _decide((before, after), compared, samples, tuple(lines), options)


def run_folders(folder: Path) -> list[Path]:
    """Return the run folders of a fleet, one for each machine, sorted."""
    return sorted(path.parent for path in folder.glob(f"*/{_RECORD_FILE}"))


def _read_machines(
    folder: Path, baseline: str | None, stacks: Sequence[str], progress: Callable[[int], None]
) -> tuple[list[_MachineRun], tuple[str, ...]]:
    """Return the runs of a fleet that have a result, and statements about them; raises UsageError or TareError."""
    runs = run_folders(folder)
    if not runs:
        what = "no folder in it is a run" if folder.is_dir() else "no such folder"
        raise UsageError(f"{folder}: not a fleet: {what}", "give a folder with a run folder for each machine")
    ordered = [(member, load_record(member)) for member in runs]
    baselines = list(dict.fromkeys(record.baseline for _, record in ordered))
    if baseline is None and len(baselines) > 1:
        raise UsageError(
            f"{folder}: the runs have other baselines: {', '.join(baselines)}", "name one that all have: --baseline"
        )
    baseline = baseline or baselines[0]
    kept, statements = [], []
    for (member, record), run in zip(ordered, load_digests(runs, baseline, progress), strict=True):
        cells = {key: each for key, each in run.cells.items() if not stacks or key[1] in {baseline, *stacks}}
        if cells:
            kept.append((member.name, record, replace(run, cells=cells)))
        else:
            statements.append(f"{member.name} has no result, and is left out")
    if not kept:
        raise TareError(
            f"{folder}: no machine has a result", f"`tare show {ordered[0][0]}` lists trials with their reasons"
        )
    require_same_units(unit for _, _, run in kept for unit in run.units)
    require_stacks([run for _, _, run in kept], stacks)
    comparable, left_out = drop_incomparable_workloads([run for _, _, run in kept])
    machines = [_MachineRun(name, record, run) for (name, record, _), run in zip(kept, comparable, strict=True)]
    return machines, (*statements, *left_out, *_differences(machines))


def _facts(machines: Sequence[_MachineRun]) -> dict[str, Facts]:
    return {each.name: each.record.machine for each in machines}


def _differences(machines: Sequence[_MachineRun]) -> Iterator[str]:
    """Yield a statement if the runs have several suites, versions of tare, or images."""
    for noun, name in (("suites", "suite"), ("versions of tare", "tare"), ("images", "image")):
        texts = list(dict.fromkeys(str(getattr(each.record, name)).removeprefix("sha256:")[:60] for each in machines))
        if len(texts) > 1:
            yield f"the runs have several {noun}: {', '.join(text[:12] if name == 'image' else text for text in texts)}"


def group_by_type(machines: Mapping[str, Facts], *, software: bool = True) -> tuple[FleetMachineType, ...]:
    """Group machines by type, the largest group first. Kernels are compared only with `software`."""
    groups: list[list[str]] = []
    for name, facts in machines.items():
        for group in groups:
            other = machines[group[0]]
            if not _is_different_hardware(facts, other) and not (software and facts.kernel != other.kernel):
                group.append(name)
                break
        else:
            groups.append([name])
    groups.sort(key=len, reverse=True)
    letters = (f"{chr(ord('A') + at % 26)}{at // 26 or ''}" for at in range(len(groups)))
    return tuple(
        FleetMachineType(letter, machines[group[0]], tuple(group))
        for letter, group in zip(letters, groups, strict=True)
    )


def _is_different_hardware(one: Facts, other: Facts) -> bool:
    """Return whether the hardware of two machines differs."""
    first, second = ((facts.architecture, facts.cpu_model, facts.cpus, facts.virtualization) for facts in (one, other))
    return first != second or has_different_memory(one, other)


def _samples_of_type(
    machine_type: FleetMachineType, machines: Mapping[str, _MachineRun], baseline: str
) -> Iterator[_TypeSamples]:
    """Yield each stack in each headline, with the machines of a type that have a value."""
    runs = {name: machines[name].run.cells for name in machine_type.machines}
    for key in dict.fromkeys(key for cells in runs.values() for key in cells):
        entries = {name: cells[key] for name, cells in runs.items() if key in cells}
        cells = {name: cell for name, (cell, _) in entries.items()}
        logs = {name: sample for name, (_, sample) in entries.items()}
        yield _TypeSamples(machine_type.name, key[1] == baseline, cells, logs)


def _changes_of_type(
    machine_type: FleetMachineType, before: Mapping[str, _MachineRun], after: Mapping[str, _MachineRun], baseline: str
) -> Iterator[_TypeSamples]:
    """Yield the change of each stack in each headline: the difference of two means, machine by machine."""
    runs = {name: (before[name].run.cells, after[name].run.cells) for name in machine_type.machines}
    for key in dict.fromkeys(key for _, cells in runs.values() for key in cells):
        have = {name: (old[key], new[key]) for name, (old, new) in runs.items() if key in old and key in new}
        if have and key[1] != baseline:
            cells = {name: new[0] for name, (_, new) in have.items()}
            logs = {name: new[1].relative_to(old[1]) for name, (old, new) in have.items()}
            yield _TypeSamples(machine_type.name, is_baseline=False, cells=cells, logs=logs)


def _decide(
    folders: tuple[Path, ...],
    machines: Sequence[_MachineRun],
    samples_by_type: Sequence[tuple[FleetMachineType, Sequence[_TypeSamples]]],
    statements: tuple[str, ...],
    options: CompareOptions,
) -> FleetComparison:
    """Decide all cells together: at most 5 % of the decided ones are expected to be false."""
    baseline = machines[-1].run.baseline
    margin = machines[-1].record.margin if options.margin is None else options.margin
    judged = [each.means for _, samples in samples_by_type for each in samples if not each.is_baseline]
    if not judged:
        raise TareError(f"{folders[-1]}: nothing can be compared with {baseline}", "a comparison needs two stacks")
    share = false_share_per_cell(judged, margin)
    results = tuple(
        _judge_type(each, share, margin, len(samples)) for _, samples in samples_by_type for each in samples
    )
    cells = [each.cell for each in results if not each.is_baseline]
    suites = tuple(dict.fromkeys(each.record.suite for each in machines))
    machine_types = tuple(machine_type for machine_type, _ in samples_by_type)
    gate = judge_gate(options.fail_on, cells, ())
    return FleetComparison(folders, suites, baseline, margin, machine_types, results, statements, gate)


def false_share_per_cell(means: Sequence[NDArray[np.float64]], margin: float) -> float:
    """Return the share of intervals that may be false, so that 5 % of the decided cells are expected to be false.

    That is 5 % times the share of cells that are decided at this level (Benjamini and Yekutieli, "False discovery
    rate-adjusted multiple confidence intervals for selected parameters", Journal of the American Statistical
    Association 100 (2005), 71-81).
    """
    limit, alpha = math.log1p(margin), 1 - CONFIDENCE
    middles = [abs(float(each.mean())) for each in means]
    # A cell is decided if half of its interval is shorter than its distance to 0, or to the margin.
    shares = sorted(
        narrowest_share(each, max(middle, limit - middle)) for each, middle in zip(means, middles, strict=True)
    )
    counts = [count for count, share in enumerate(shares, start=1) if share < alpha * count / len(means)]
    return alpha * max(counts, default=1) / len(means)


def _judge_type(samples: _TypeSamples, share: float, margin: float, value_count: int) -> TypeResult:
    """Return the result of a machine type; outliers are adjusted for `value_count` values of the type."""
    means, first = samples.means, next(iter(samples.cells.values()))
    variance = estimate_variance([*samples.logs.values()])
    by_name = dict(zip(samples.cells, means.tolist(), strict=True))
    return TypeResult(
        samples.machine_type,
        samples.is_baseline,
        make_cell_like(first, "baseline", n=len(means), ratio=1.0)
        if samples.is_baseline
        else _predict_cell(first, means, share, margin),
        samples.cells,
        by_name,
        {name: group.count for name, group in samples.logs.items()},
        variance.share if variance else None,
        tuple(
            OutlierMachine(
                name,
                exp_bounded(float(means[at])),
                exp_bounded(float(np.delete(means, at).mean())),
                min(1.0, float(chance) * value_count),
            )
            for at, (name, chance) in enumerate(zip(by_name, outlier_p_values(means), strict=True))
            if chance * value_count < 1 - CONFIDENCE
        ),
    )


def _predict_cell(first: Cell, means: NDArray[np.float64], share: float, margin: float) -> Cell:
    """Return the cell of a machine type with the prediction interval for a machine that was not measured."""
    mean, half = float(means.mean()), half_width(means, share)
    known = math.isfinite(half)
    return make_cell_like(
        first,
        verdict_of_side(classify_side(mean, half, math.log1p(margin)), first.better),
        n=len(means),
        ratio=exp_bounded(mean),
        low=exp_bounded(mean - half) if known else None,
        high=exp_bounded(mean + half) if known else None,
        notes=() if len(means) >= MIN_MACHINES else (f"one machine has no interval: {MIN_MACHINES} do",),
    )
