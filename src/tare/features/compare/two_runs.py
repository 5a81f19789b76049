"""What `tare compare` answers: one run's stacks against a baseline, or the same stacks in two runs.

Two runs are only compared where they are of one machine, unless asked for. Other software is what one compares, and is
stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tare.features.compare.changes import Change, changes, own_changes
from tare.features.compare.comparability import differences, require_one_machine, require_same_units, units_of, unlike
from tare.features.compare.run_series import in_short, known_stack, measured, narrowed, stacks_of
from tare.model.errors import TareError, UsageError
from tare.model.journal import Run
from tare.statistics.cells import Cell, in_words
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary

Kind = Literal["worse", "better", "different", "undecided"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Passing = Literal["passed", "failed", "cannot tell"]
_VERDICTS: Mapping[Kind, tuple[str, ...]] = {
    "worse": ("worse",),
    "better": ("better",),
    "different": ("worse", "better"),
    "undecided": ("undecided", "too few blocks"),
}


@dataclass(frozen=True)
class Question:
    """What the user asked for. Without a baseline or margin, those of the last run count; without stacks, all of them.

    Runs of unlike machines are compared only `across_machines`. The gate of a history is about changes that became firm
    with runs which were started at `since` or later, a date or a time as in run.json; without it, with the last run.
    """

    baseline: str | None = None
    stacks: tuple[str, ...] = ()
    margin: float | None = None
    fail_on: tuple[Kind, ...] = ()
    across_machines: bool = False
    since: str = ""


@dataclass(frozen=True)
class GateResult:
    """What the run must not be, and the cells that are. `lost` are those that had to have a value and have none.

    `moved` are the baseline's own changes between two runs for which the gate cannot tell: the program may have changed
    everywhere alike, or the machine. `is_undecided` says that it passed although nothing is decided.
    """

    fail_on: tuple[Kind, ...]
    failing: tuple[Cell, ...]
    lost: tuple[Cell, ...]
    moved: tuple[Cell, ...]
    answer: Passing
    is_undecided: bool = False


@dataclass(frozen=True)
class Comparison:
    """What was compared and what came of it; `changes` and `own` are of two runs only.

    `own` are the baseline's own changes, which are among the `changes` instead where its name was asked for.
    """

    runs: tuple[Run, ...]
    summary: Summary
    cells: tuple[Cell, ...]
    changes: tuple[Change, ...]
    own: tuple[Change, ...]
    statements: tuple[str, ...]
    gate: GateResult


def compare_stacks(run: Run, asked: Question) -> Comparison:
    """Compare the stacks of one run with a baseline, block by block."""
    known = stacks_of(run)
    baseline = known_stack(run, asked.baseline or run.record.baseline)
    asked_for = tuple(known_stack(run, stack) for stack in dict.fromkeys(asked.stacks))
    if baseline in asked_for:
        raise UsageError(f"{baseline} is the baseline, and is compared with nothing", "name another --baseline")
    control = run.record.control if baseline == run.record.baseline else ""
    chosen = asked_for or tuple(stack for stack in known if stack not in (baseline, run.record.control))
    if not chosen:
        raise UsageError(f"{run.folder}: has no stack but {baseline}", "a comparison needs two stacks")
    require_same_units(units_of(run, {baseline, *chosen}))
    summary = summarize(narrowed(run, baseline, (baseline, control, *chosen), asked.margin))
    cells = tuple(cell for cell in summary.headlines if cell.stack in chosen)
    lost = tuple(cell for cell in cells if not cell.trials and not cell.skipped and cell.failures)
    gate = gate_of(asked.fail_on, cells, lost)
    return _checked(Comparison((run,), summary, cells, (), (), _baseline_lacks(summary, ""), gate))


def compare_runs(before: Run, after: Run, asked: Question) -> Comparison:
    """Compare how the stacks stood to the baseline in two runs."""
    if before.folder.resolve() == after.folder.resolve() or (before.trials and before.trials == after.trials):
        raise UsageError(f"{before.folder} and {after.folder} are the same run", "give the runs before and after")
    if not asked.across_machines:
        require_one_machine(before, after)
    baseline = _common_baseline(before, after, asked.baseline)
    shared = [stack for stack in stacks_of(before) if stack in stacks_of(after)]
    for run in (before, after):
        for stack in asked.stacks:
            known_stack(run, stack)
    second = {before.record.control, after.record.control}
    chosen = asked.stacks or tuple(stack for stack in shared if stack not in {baseline, *second})
    if not chosen:
        raise UsageError(
            f"{before.folder} and {after.folder} have no stack in common beside {baseline}",
            f"compare runs of one suite, or {baseline} itself: --stack {baseline}",
        )
    require_same_units(unit for run in (before, after) for unit in units_of(run, {baseline, *chosen}))
    margin = after.record.margin if asked.margin is None else asked.margin
    summaries = [summarize(narrowed(run, baseline, (baseline, *chosen), margin)) for run in (before, after)]
    earlier, left_out = _comparable(*summaries)
    own = own_changes(earlier, summaries[1], margin)
    changed = (*changes(earlier, summaries[1], margin), *(own if baseline in asked.stacks else ()))
    lacks = (*_baseline_lacks(earlier, "before: "), *_baseline_lacks(summaries[1], "after: "))
    differ = (*unlike(before, after), *differences(before, after, {baseline, *chosen}))
    statements = (*differ, *_only_one(before, after), *left_out, *lacks)
    if not changed:
        what = "; ".join(left_out) or "they have no workload in common"
        raise UsageError(f"{before.folder} and {after.folder}: {what}", "compare runs of one suite")
    cells = tuple(each.cell for each in changed)
    moved = () if asked.stacks else _moved(asked.fail_on, own, margin)
    gate = gate_of(asked.fail_on, cells, _lost(changed, summaries[1]), moved)
    beside = () if baseline in asked.stacks else own
    return _checked(Comparison((before, after), summaries[1], cells, changed, beside, statements, gate))


def _checked(answer: Comparison) -> Comparison:
    """Return the answer; raises TareError if nothing could be compared."""
    if any(cell.ratio is not None for cell in answer.cells) or answer.gate.lost:
        return answer
    baseline = answer.summary.baseline
    what = f"nothing can be compared with {baseline}: {_why_nothing(answer, baseline)}"
    raise TareError(what, f"`tare show {answer.runs[-1].folder}` lists the trials with their reasons")


def _why_nothing(answer: Comparison, baseline: str) -> str:
    if not answer.cells:
        return "the run has no workload"
    own = [cell for cell in answer.summary.headlines if cell.stack == baseline]
    if own and not any(cell.trials for cell in own):
        return f"{baseline}: {own[0].skipped or '; '.join(own[0].notes)}"
    first = answer.cells[0]
    return f"{first.stack} in {first.name}: {first.skipped or '; '.join(first.notes)}"


def gate_of(
    fail_on: tuple[Kind, ...], cells: Sequence[Cell], lost: tuple[Cell, ...], moved: tuple[Cell, ...] = ()
) -> GateResult:
    """Judge the cells. What is lost fails every gate: it is neither better nor equivalent.

    What is undecided fails only a gate that names it. A gate cannot tell where no cell has an interval, so that nothing
    could fail it, and where the baseline itself has changed.
    """
    verdicts = verdicts_of(fail_on)
    open_ones = tuple(cell for cell in cells if cell.verdict == "no value" and not cell.skipped)
    failing = tuple(
        cell
        for cell in cells
        if cell.verdict in verdicts or (fail_on and cell in lost) or ("undecided" in fail_on and cell in open_ones)
    )
    answer: Passing = "passed"
    if failing:
        answer = "failed"
    elif fail_on and (moved or all(cell.low is None for cell in cells)):
        answer = "cannot tell"
    is_undecided = bool(fail_on) and answer == "passed" and not any(cell.decided for cell in cells)
    return GateResult(fail_on, failing, lost, moved, answer, is_undecided)


def _moved(fail_on: tuple[Kind, ...], own: Sequence[Change], margin: float) -> tuple[Cell, ...]:
    """Return the baseline's own changes beyond the margin in a direction that the gate is about."""
    cells = []
    for cell in (each.cell for each in own):
        ratio = cell.ratio or 1.0
        direction = in_words("more" if ratio > 1 else "less", cell.better)
        if cell.decided and max(ratio, 1 / ratio) > 1 + margin and direction in verdicts_of(fail_on):
            cells.append(cell)
    return tuple(cells)


def verdicts_of(fail_on: Sequence[Kind]) -> set[str]:
    """Return the verdicts that a gate fails on."""
    return {verdict for kind in fail_on for verdict in _VERDICTS[kind]}


def _common_baseline(before: Run, after: Run, asked: str | None) -> str:
    own = (before.record.baseline, after.record.baseline)
    if asked is None and own[0] != own[1]:
        raise UsageError(
            f"the runs have other baselines: {own[0]} before, {own[1]} after", "name one that both have: --baseline"
        )
    for run in (before, after):
        known_stack(run, asked or own[0])
    return asked or own[0]


def _baseline_lacks(summary: Summary, when: str) -> tuple[str, ...]:
    """Describe where the baseline has no value, so that nothing can be compared with it."""
    return tuple(
        f"{when}the baseline {cell.stack} has no value in {cell.name}: {cell.skipped or '; '.join(cell.notes)}"
        for cell in summary.headlines
        if cell.stack == summary.baseline and not cell.trials
    )


def _comparable(before: Summary, after: Summary) -> tuple[Summary, tuple[str, ...]]:
    """Leave out of the earlier run the workloads that the later one measured differently, and name them."""
    left_out = []
    for workload in before.workloads:
        if workload in after.workloads:
            old, new = measured(before, workload), measured(after, workload)
            if old and new and old != new:
                left_out.append((workload, in_short(old ^ new)))
    names = [workload for workload, _ in left_out]
    kept = tuple(cell for cell in before.headlines if cell.workload not in names)
    statements = tuple(f"not compared: {workload}: only one run has {points}" for workload, points in left_out)
    return replace(before, headlines=kept), statements


def _only_one(before: Run, after: Run) -> tuple[str, ...]:
    """Describe what only one of the runs has."""
    statements = []
    for when, run, other in (("before", before, after), ("after", after, before)):
        control = {before.record.control, after.record.control}
        stacks = [stack for stack in stacks_of(run) if stack not in stacks_of(other) and stack not in control]
        names = {record.name for record in other.record.workloads}
        workloads = [record.name for record in run.record.workloads if record.name not in names]
        for what, only in (("stack", stacks), ("workload", workloads)):
            if only:
                statements.append(f"only {when}: {what}{'s' * (len(only) > 1)} {', '.join(only)}")
    return tuple(statements)


def _lost(changed: Sequence[Change], after: Summary) -> tuple[Cell, ...]:
    """Return the cells that had a value before and have none after, though the baseline has one."""
    return tuple(
        each.cell
        for each in changed
        if each.before.ratio is not None
        and not each.after.trials
        and after.headline(each.cell.headline, after.baseline).trials
    )
