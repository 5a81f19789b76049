"""What a fleet answers: how stacks stand on each kind of machine, on machines that were not measured, too.

A fleet is a folder with a run folder of one suite for each machine, named after it. Machines of one kind have the same
architecture, CPU, number of CPUs, virtualization below and kernel, and as much memory. In each run, stacks are compared
with the baseline block by block; a machine's value is the mean of its blocks. See `tare.features.fleet.random_effects`.
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
from tare.features.compare.run_series import RunDigest, SeriesKey, drop_incomparable_workloads, require_stacks
from tare.features.compare.two_runs import CompareOptions, GateResult, judge_gate
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
from tare.model.journal import RunRecord, load_record
from tare.model.machine import Facts
from tare.statistics.anytime import CONFIDENCE
from tare.statistics.cells import DECIDED, Cell, Verdict, verdict_of_side
from tare.statistics.ratios import classify_side, exp_bounded

_RECORD_FILE = "run.json"


@dataclass(frozen=True)
class MachineKind:
    """Machines that are alike: a letter for their name, what one of them reports, and their names."""

    name: str
    facts: Facts
    machines: tuple[str, ...]


@dataclass(frozen=True)
class OutlierMachine:
    """A machine that lies outside of what the others of its kind predict: its value, and theirs, to the baseline.

    `chance` is that of a machine so far off among all of its kind and all values, were it like them.
    """

    machine: str
    ratio: float
    others: float
    chance: float


@dataclass(frozen=True)
class KindResult:
    """A stack in a headline on a kind of machine.

    `cell` has the ratio of a usual machine, and the interval for one that was not measured; `n` counts machines. Of
    two fleets, it is that of after to before. `cells` are those of the machines, `means` their logarithms, and `blocks`
    how many each has. `share` is that of the variance of blocks which is between machines; None where it is not known.
    Of the baseline itself (`is_baseline`), values are those to the mean of the kind, and nothing is decided.
    """

    kind: str
    is_baseline: bool
    cell: Cell
    cells: Mapping[str, Cell]
    means: Mapping[str, float]
    blocks: Mapping[str, int]
    share: float | None
    outliers: tuple[OutlierMachine, ...] = ()


@dataclass(frozen=True)
class Generalization:
    """Whether what is decided of a stack on one kind of machine holds on the others: `yes`, `no` or `open`."""

    headline: str
    stack: str
    verdicts: Mapping[str, Verdict]

    @property
    def answer(self) -> str:
        """All kinds have decided alike, some otherwise, or not all have decided."""
        decided = {verdict for verdict in self.verdicts.values() if verdict in DECIDED}
        if len(decided) > 1:
            return "no"
        return "yes" if decided and all(verdict in DECIDED for verdict in self.verdicts.values()) else "open"


@dataclass(frozen=True)
class FleetComparison:
    """What is found of a fleet, or of what changed from one to another; `folders` are one or two."""

    folders: tuple[Path, ...]
    suites: tuple[str, ...]
    baseline: str
    margin: float
    kinds: tuple[MachineKind, ...]
    results: tuple[KindResult, ...]
    statements: tuple[str, ...]
    gate: GateResult

    @property
    def generalizations(self) -> tuple[Generalization, ...]:
        """Each stack in each headline on all kinds, where there are several."""
        verdicts: dict[SeriesKey, dict[str, Verdict]] = {}
        for each in self.results:
            if not each.is_baseline:
                verdicts.setdefault((each.cell.headline, each.cell.stack), {})[each.kind] = each.cell.verdict
        return tuple(Generalization(*key, found) for key, found in verdicts.items()) if len(self.kinds) > 1 else ()


@dataclass(frozen=True)
class _KindSamples:
    """A stack in a headline on a kind of machine, before anything is decided: the cell and the blocks of each machine.

    The mean of the kind is taken from the baseline's `is_baseline` values.
    """

    kind: str
    is_baseline: bool
    cells: Mapping[str, Cell]
    logs: Mapping[str, MachineSample]

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """The means of the machines' blocks."""
        means = np.array([each.mean for each in self.logs.values()])
        return means - means.mean() if self.is_baseline else means


@dataclass(frozen=True)
class _MachineRun:
    name: str
    record: RunRecord
    run: RunDigest[MachineSample]


def is_fleet(folder: Path) -> bool:
    """Return whether a folder has runs in it, and is none itself."""
    return folder.is_dir() and not (folder / _RECORD_FILE).exists() and bool(run_folders(folder))


def compare_machines(folder: Path, options: CompareOptions, progress: Callable[[int], None]) -> FleetComparison:
    """Compare the stacks on each kind of machine; raises UsageError. `progress` is told how many runs were read."""
    machines, statements = _read_machines(folder, options.baseline, options.stacks, progress)
    by_name, baseline = {each.name: each for each in machines}, machines[0].run.baseline
    found = [(kind, list(_samples_of_kind(kind, by_name, baseline))) for kind in group_by_kind(_facts(machines))]
    return _decide((folder,), machines, found, statements, options)


def compare_fleets(
    before: Path, after: Path, options: CompareOptions, progress: Callable[[int], None]
) -> FleetComparison:
    """Say what changed from one fleet to another, by the machines that are in both; raises UsageError.

    Their kernels may differ, as that may be what changed.
    """
    if before.resolve() == after.resolve():
        raise UsageError(f"{before} and {after} are the same fleet", "give the fleets before and after")
    old, statements = _read_machines(before, options.baseline, options.stacks, progress)
    new, more = _read_machines(after, old[0].run.baseline, options.stacks, lambda n: progress(len(old) + n))
    earlier, later = ({each.name: each for each in some} for some in (old, new))
    lines = [*statements, *more]
    for when, some, others in (("before", earlier, later), ("after", later, earlier)):
        alone = [name for name in some if name not in others]
        lines += [f"only {when}, and not compared: {', '.join(alone)}"] if alone else []
    both = [name for name in later if name in earlier]
    changed = [
        name for name in both if _is_different_hardware(later[name].record.machine, earlier[name].record.machine)
    ]
    lines += [f"another machine under the same name, and not compared: {', '.join(changed)}"] if changed else []
    compared = [later[name] for name in both if name not in changed]
    if not compared:
        raise UsageError(f"{before} and {after} have no machine in common", "a change is that of a machine by its name")
    kinds = group_by_kind(_facts(compared), software=False)
    found = [(kind, list(_changes_of_kind(kind, earlier, later, new[0].run.baseline))) for kind in kinds]
    return _decide((before, after), compared, found, tuple(lines), options)


def run_folders(folder: Path) -> list[Path]:
    """Return the run folders of a fleet, one for each machine."""
    return sorted(path.parent for path in folder.glob(f"*/{_RECORD_FILE}"))


def _read_machines(
    folder: Path, baseline: str | None, stacks: Sequence[str], progress: Callable[[int], None]
) -> tuple[list[_MachineRun], tuple[str, ...]]:
    """Read the runs of a fleet."""
    runs = run_folders(folder)
    if not runs:
        raise UsageError(f"{folder}: no fleet: no folder in it is a run", "it has a run folder for each machine")
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
    """State what runs of a fleet should have alike, and have not."""
    for what, of in (("suites", "suite"), ("versions of tare", "tare"), ("images", "image")):
        texts = list(dict.fromkeys(str(getattr(each.record, of)).removeprefix("sha256:")[:60] for each in machines))
        if len(texts) > 1:
            yield f"the runs have several {what}: {', '.join(text[:12] if of == 'image' else text for text in texts)}"


def group_by_kind(machines: Mapping[str, Facts], *, software: bool = True) -> tuple[MachineKind, ...]:
    """Sort machines by their kind, the largest first. Kernels count as `software` only."""
    kinds: list[list[str]] = []
    for name, facts in machines.items():
        for kind in kinds:
            other = machines[kind[0]]
            if not _is_different_hardware(facts, other) and not (software and facts.kernel != other.kernel):
                kind.append(name)
                break
        else:
            kinds.append([name])
    kinds.sort(key=lambda kind: -len(kind))
    letters = (f"{chr(ord('A') + at % 26)}{at // 26 or ''}" for at in range(len(kinds)))
    return tuple(
        MachineKind(letter, machines[kind[0]], tuple(kind)) for letter, kind in zip(letters, kinds, strict=True)
    )


def _is_different_hardware(one: Facts, other: Facts) -> bool:
    """Return whether two machines are of another hardware."""
    own, others = ((facts.architecture, facts.cpu_model, facts.cpus, facts.virtualization) for facts in (one, other))
    return own != others or has_different_memory(one, other)


def _samples_of_kind(kind: MachineKind, machines: Mapping[str, _MachineRun], baseline: str) -> Iterator[_KindSamples]:
    """Yield each stack in each headline, with the machines of a kind that have a value."""
    runs = {name: machines[name].run.cells for name in kind.machines}
    for key in dict.fromkeys(key for cells in runs.values() for key in cells):
        found = {name: cells[key] for name, cells in runs.items() if key in cells}
        cells = {name: cell for name, (cell, _) in found.items()}
        logs = {name: group for name, (_, group) in found.items()}
        yield _KindSamples(kind.name, key[1] == baseline, cells, logs)


def _changes_of_kind(
    kind: MachineKind, before: Mapping[str, _MachineRun], after: Mapping[str, _MachineRun], baseline: str
) -> Iterator[_KindSamples]:
    """Yield what changed of each stack in each headline: the difference of two means, machine by machine."""
    runs = {name: (before[name].run.cells, after[name].run.cells) for name in kind.machines}
    for key in dict.fromkeys(key for _, cells in runs.values() for key in cells):
        have = {name: (old[key], new[key]) for name, (old, new) in runs.items() if key in old and key in new}
        if have and key[1] != baseline:
            cells = {name: new[0] for name, (_, new) in have.items()}
            logs = {name: new[1].relative_to(old[1]) for name, (old, new) in have.items()}
            yield _KindSamples(kind.name, is_baseline=False, cells=cells, logs=logs)


def _decide(
    folders: tuple[Path, ...],
    machines: Sequence[_MachineRun],
    samples_by_kind: Sequence[tuple[MachineKind, Sequence[_KindSamples]]],
    statements: tuple[str, ...],
    options: CompareOptions,
) -> FleetComparison:
    """Decide all cells together: at most a share of 5 % of the decided ones is expected to be false."""
    baseline = machines[-1].run.baseline
    margin = machines[-1].record.margin if options.margin is None else options.margin
    judged = [each.means for _, own in samples_by_kind for each in own if not each.is_baseline]
    if not judged:
        raise TareError(f"{folders[-1]}: nothing can be compared with {baseline}", "a comparison needs two stacks")
    share = false_share_per_cell(judged, margin)
    every = tuple(_judge_kind(each, share, margin, len(own)) for _, own in samples_by_kind for each in own)
    cells = [each.cell for each in every if not each.is_baseline]
    suites = tuple(dict.fromkeys(each.record.suite for each in machines))
    kinds, gate = tuple(kind for kind, _ in samples_by_kind), judge_gate(options.fail_on, cells, ())
    return FleetComparison(folders, suites, baseline, margin, kinds, every, statements, gate)


def false_share_per_cell(means: Sequence[NDArray[np.float64]], margin: float) -> float:
    """Return the share of intervals that may be false, so that it is 5 % of the decided cells.

    It is 5 % times the share of the cells that are decided at it (Benjamini and Yekutieli, "False discovery
    rate-adjusted multiple confidence intervals for selected parameters", Journal of the American Statistical
    Association 100 (2005), 71-81).
    """
    limit, alpha = math.log1p(margin), 1 - CONFIDENCE
    middles = [abs(float(each.mean())) for each in means]
    # A cell is decided where its interval is narrower than the way to 0, or to the margin.
    shares = sorted(
        narrowest_share(each, max(middle, limit - middle)) for each, middle in zip(means, middles, strict=True)
    )
    counts = [count for count, share in enumerate(shares, start=1) if share < alpha * count / len(means)]
    return alpha * max(counts, default=1) / len(means)


def _judge_kind(samples: _KindSamples, share: float, margin: float, value_count: int) -> KindResult:
    """Put the machines of a kind together; `value_count` is the number of values of the kind."""
    means, first = samples.means, next(iter(samples.cells.values()))
    found, by_name = estimate_variance([*samples.logs.values()]), dict(zip(samples.cells, means.tolist(), strict=True))
    return KindResult(
        samples.kind,
        samples.is_baseline,
        make_cell_like(first, "baseline", n=len(means), ratio=1.0)
        if samples.is_baseline
        else _kind_cell(first, means, share, margin),
        samples.cells,
        by_name,
        {name: group.count for name, group in samples.logs.items()},
        found.share if found else None,
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


def _kind_cell(first: Cell, means: NDArray[np.float64], share: float, margin: float) -> Cell:
    """Return the cell of a kind: the interval is for a machine that was not measured."""
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
