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

from tare.features.compare.changes import cell_like
from tare.features.compare.comparability import memory_differs, require_same_units
from tare.features.compare.run_series import Condensed, Key, alike, require_stacks
from tare.features.compare.two_runs import GateResult, Question, gate_of
from tare.features.fleet.headline_cache import condensed_runs
from tare.features.fleet.random_effects import LEAST_MACHINES, Group, chances, components, half_width, narrowest_share
from tare.model.errors import TareError, UsageError
from tare.model.journal import RunRecord, load_record
from tare.model.machine import Facts
from tare.statistics.anytime import CONFIDENCE
from tare.statistics.cells import DECIDED, Cell, Verdict, in_words
from tare.statistics.ratios import backwards, side_of

_RECORD = "run.json"


@dataclass(frozen=True)
class Kind:
    """Machines that are alike: a letter for their name, what one of them reports, and their names."""

    name: str
    facts: Facts
    machines: tuple[str, ...]


@dataclass(frozen=True)
class Unlike:
    """A machine that lies outside of what the others of its kind predict: its value, and theirs, to the baseline.

    `chance` is that of a machine so far off among all of its kind and all values, were it like them.
    """

    machine: str
    ratio: float
    others: float
    chance: float


@dataclass(frozen=True)
class OnKind:
    """A stack in a headline on a kind of machine.

    `cell` has the ratio of a usual machine, and the interval for one that was not measured; `n` counts machines. Of
    two fleets, it is that of after to before. `cells` are those of the machines, `means` their logarithms, and `blocks`
    how many each has. `share` is that of the variance of blocks which is between machines; None where it is not known.
    Of the baseline itself (`own`), values are those to the mean of the kind, and nothing is decided.
    """

    kind: str
    own: bool
    cell: Cell
    cells: Mapping[str, Cell]
    means: Mapping[str, float]
    blocks: Mapping[str, int]
    share: float | None
    unlike: tuple[Unlike, ...] = ()


@dataclass(frozen=True)
class Transfer:
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
    kinds: tuple[Kind, ...]
    found: tuple[OnKind, ...]
    statements: tuple[str, ...]
    gate: GateResult

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Each stack in each headline on all kinds, where there are several."""
        verdicts: dict[Key, dict[str, Verdict]] = {}
        for each in self.found:
            if not each.own:
                verdicts.setdefault((each.cell.headline, each.cell.stack), {})[each.kind] = each.cell.verdict
        return tuple(Transfer(*key, found) for key, found in verdicts.items()) if len(self.kinds) > 1 else ()


@dataclass(frozen=True)
class _Together:
    """A stack in a headline on a kind of machine, before anything is decided: the cell and the blocks of each machine.

    The mean of the kind is taken from the baseline's `own` values.
    """

    kind: str
    own: bool
    cells: Mapping[str, Cell]
    logs: Mapping[str, Group]

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """The means of the machines' blocks."""
        means = np.array([each.mean for each in self.logs.values()])
        return means - means.mean() if self.own else means


@dataclass(frozen=True)
class _Machine:
    name: str
    record: RunRecord
    run: Condensed[Group]


def is_fleet(folder: Path) -> bool:
    """Return whether a folder has runs in it, and is none itself."""
    return folder.is_dir() and not (folder / _RECORD).exists() and bool(members(folder))


def compare_machines(folder: Path, asked: Question, progress: Callable[[int], None]) -> FleetComparison:
    """Compare the stacks on each kind of machine; raises UsageError. `progress` is told how many runs were read."""
    machines, statements = _machines(folder, asked.baseline, asked.stacks, progress)
    by_name, baseline = {each.name: each for each in machines}, machines[0].run.baseline
    found = [(kind, list(_on_kind(kind, by_name, baseline))) for kind in kinds_of(_facts(machines))]
    return _decided((folder,), machines, found, statements, asked)


def compare_fleets(before: Path, after: Path, asked: Question, progress: Callable[[int], None]) -> FleetComparison:
    """Say what changed from one fleet to another, by the machines that are in both; raises UsageError.

    Their kernels may differ, as that may be what changed.
    """
    if before.resolve() == after.resolve():
        raise UsageError(f"{before} and {after} are the same fleet", "give the fleets before and after")
    old, statements = _machines(before, asked.baseline, asked.stacks, progress)
    new, more = _machines(after, old[0].run.baseline, asked.stacks, lambda n: progress(len(old) + n))
    earlier, later = ({each.name: each for each in some} for some in (old, new))
    lines = [*statements, *more]
    for when, some, others in (("before", earlier, later), ("after", later, earlier)):
        alone = [name for name in some if name not in others]
        lines += [f"only {when}, and not compared: {', '.join(alone)}"] if alone else []
    both = [name for name in later if name in earlier]
    changed = [name for name in both if _unlike(later[name].record.machine, earlier[name].record.machine)]
    lines += [f"another machine under the same name, and not compared: {', '.join(changed)}"] if changed else []
    compared = [later[name] for name in both if name not in changed]
    if not compared:
        raise UsageError(f"{before} and {after} have no machine in common", "a change is that of a machine by its name")
    kinds = kinds_of(_facts(compared), software=False)
    found = [(kind, list(_changed(kind, earlier, later, new[0].run.baseline))) for kind in kinds]
    return _decided((before, after), compared, found, tuple(lines), asked)


def members(folder: Path) -> list[Path]:
    """Return the run folders of a fleet, one for each machine."""
    return sorted(path.parent for path in folder.glob(f"*/{_RECORD}"))


def _machines(
    folder: Path, baseline: str | None, stacks: Sequence[str], progress: Callable[[int], None]
) -> tuple[list[_Machine], tuple[str, ...]]:
    """Read the runs of a fleet."""
    runs = members(folder)
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
    for (member, record), run in zip(ordered, condensed_runs(runs, baseline, progress), strict=True):
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
    comparable, left_out = alike([run for _, _, run in kept])
    machines = [_Machine(name, record, run) for (name, record, _), run in zip(kept, comparable, strict=True)]
    return machines, (*statements, *left_out, *_differences(machines))


def _facts(machines: Sequence[_Machine]) -> dict[str, Facts]:
    return {each.name: each.record.machine for each in machines}


def _differences(machines: Sequence[_Machine]) -> Iterator[str]:
    """State what runs of a fleet should have alike, and have not."""
    for what, of in (("suites", "suite"), ("versions of tare", "tare"), ("images", "image")):
        texts = list(dict.fromkeys(str(getattr(each.record, of)).removeprefix("sha256:")[:60] for each in machines))
        if len(texts) > 1:
            yield f"the runs have several {what}: {', '.join(text[:12] if of == 'image' else text for text in texts)}"


def kinds_of(machines: Mapping[str, Facts], *, software: bool = True) -> tuple[Kind, ...]:
    """Sort machines by their kind, the largest first. Kernels count as `software` only."""
    kinds: list[list[str]] = []
    for name, facts in machines.items():
        for kind in kinds:
            other = machines[kind[0]]
            if not _unlike(facts, other) and not (software and facts.kernel != other.kernel):
                kind.append(name)
                break
        else:
            kinds.append([name])
    kinds.sort(key=lambda kind: -len(kind))
    letters = (f"{chr(ord('A') + at % 26)}{at // 26 or ''}" for at in range(len(kinds)))
    return tuple(Kind(letter, machines[kind[0]], tuple(kind)) for letter, kind in zip(letters, kinds, strict=True))


def _unlike(one: Facts, other: Facts) -> bool:
    """Return whether two machines are of another hardware."""
    own, others = ((facts.architecture, facts.cpu_model, facts.cpus, facts.virtualization) for facts in (one, other))
    return own != others or memory_differs(one, other)


def _on_kind(kind: Kind, machines: Mapping[str, _Machine], baseline: str) -> Iterator[_Together]:
    """Yield each stack in each headline, with the machines of a kind that have a value."""
    runs = {name: machines[name].run.cells for name in kind.machines}
    for key in dict.fromkeys(key for cells in runs.values() for key in cells):
        found = {name: cells[key] for name, cells in runs.items() if key in cells}
        cells = {name: cell for name, (cell, _) in found.items()}
        logs = {name: group for name, (_, group) in found.items()}
        yield _Together(kind.name, key[1] == baseline, cells, logs)


def _changed(
    kind: Kind, before: Mapping[str, _Machine], after: Mapping[str, _Machine], baseline: str
) -> Iterator[_Together]:
    """Yield what changed of each stack in each headline: the difference of two means, machine by machine."""
    runs = {name: (before[name].run.cells, after[name].run.cells) for name in kind.machines}
    for key in dict.fromkeys(key for _, cells in runs.values() for key in cells):
        have = {name: (old[key], new[key]) for name, (old, new) in runs.items() if key in old and key in new}
        if have and key[1] != baseline:
            cells = {name: new[0] for name, (_, new) in have.items()}
            logs = {name: new[1].beside(old[1]) for name, (old, new) in have.items()}
            yield _Together(kind.name, own=False, cells=cells, logs=logs)


def _decided(
    folders: tuple[Path, ...],
    machines: Sequence[_Machine],
    found: Sequence[tuple[Kind, Sequence[_Together]]],
    statements: tuple[str, ...],
    asked: Question,
) -> FleetComparison:
    """Decide all cells together: at most a share of 5 % of the decided ones is expected to be false."""
    baseline = machines[-1].run.baseline
    margin = machines[-1].record.margin if asked.margin is None else asked.margin
    judged = [each.means for _, own in found for each in own if not each.own]
    if not judged:
        raise TareError(f"{folders[-1]}: nothing can be compared with {baseline}", "a comparison needs two stacks")
    share = share_of_each(judged, margin)
    every = tuple(_judged(each, share, margin, len(own)) for _, own in found for each in own)
    cells = [each.cell for each in every if not each.own]
    suites = tuple(dict.fromkeys(each.record.suite for each in machines))
    kinds, gate = tuple(kind for kind, _ in found), gate_of(asked.fail_on, cells, ())
    return FleetComparison(folders, suites, baseline, margin, kinds, every, statements, gate)


def share_of_each(means: Sequence[NDArray[np.float64]], margin: float) -> float:
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


def _judged(each: _Together, share: float, margin: float, beside: int) -> OnKind:
    """Put the machines of a kind together; `beside` are all values of the kind, for which machines are looked at."""
    means, first = each.means, next(iter(each.cells.values()))
    found, by_name = components([*each.logs.values()]), dict(zip(each.cells, means.tolist(), strict=True))
    return OnKind(
        each.kind,
        each.own,
        cell_like(first, "baseline", n=len(means), ratio=1.0) if each.own else _cell(first, means, share, margin),
        each.cells,
        by_name,
        {name: group.count for name, group in each.logs.items()},
        found.share if found else None,
        tuple(
            Unlike(
                name,
                backwards(float(means[at])),
                backwards(float(np.delete(means, at).mean())),
                min(1.0, float(chance) * beside),
            )
            for at, (name, chance) in enumerate(zip(by_name, chances(means), strict=True))
            if chance * beside < 1 - CONFIDENCE
        ),
    )


def _cell(first: Cell, means: NDArray[np.float64], share: float, margin: float) -> Cell:
    """Return the cell of a kind: the interval is for a machine that was not measured."""
    mean, half = float(means.mean()), half_width(means, share)
    known = math.isfinite(half)
    return cell_like(
        first,
        in_words(side_of(mean, half, math.log1p(margin)), first.better),
        n=len(means),
        ratio=backwards(mean),
        low=backwards(mean - half) if known else None,
        high=backwards(mean + half) if known else None,
        notes=() if len(means) >= LEAST_MACHINES else (f"one machine has no interval: {LEAST_MACHINES} do",),
    )
