"""Matching of claims with a run: its names of stack and workload, its estimates, and the checks of comparability."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from tare.features.compare.comparability import stable_proof
from tare.features.compare.run_series import select_stacks, stacks_of
from tare.features.papers.claims import FOOTPRINT, Claim, ClaimSource, IntervalEstimate
from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import MeasuredValue, Metric, Trial
from tare.plugins import registry
from tare.statistics.anytime import min_value_count
from tare.statistics.cells import CautionCount, Cell
from tare.statistics.grid import build_grid
from tare.statistics.outcomes import count_outcomes, select_latest
from tare.statistics.ratios import block_ratio
from tare.statistics.summarize import summarize, workload_records
from tare.statistics.summary import Summary
from tare.suites.stacks import resolve_technologies, split_stack

_EMULATED_SUFFIX = "-tcg"  # in the names of technologies that emulate the processor
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_FOOTPRINT = Metric(FOOTPRINT, "Memory footprint", "bytes", "lower")


class NotTestable(Exception):
    """Reason why a claim cannot be judged by a run."""

    def __init__(self, judgement: Literal["not tested", "not comparable"], reason: str) -> None:
        super().__init__(reason)
        self.judgement = judgement


@dataclass(frozen=True)
class ClaimPoint:
    """Estimate at a point (None for the mean over all points), in the claim's terms."""

    point: float | None
    estimate: IntervalEstimate
    notes: tuple[str, ...] = ()
    cautions: tuple[CautionCount, ...] = ()


@dataclass(frozen=True)
class ClaimMatch:
    """Match of a claim with a run, by the run's names, or the `problem` why the claim cannot be judged.

    `stack_proof` is the proof that is equal in all trials of the stack, such as its version and network path.
    """

    stack: str = ""
    than: str = ""
    workload: str = ""
    points: tuple[ClaimPoint, ...] = ()
    stack_proof: Mapping[str, str] = field(default_factory=dict)
    problem: NotTestable | None = None


@dataclass(frozen=True)
class _ClaimNames:
    """Names in the run of the claim's stack, of the stack that it is compared with, and of the workload."""

    stack: str
    than: str
    workload: str


@dataclass
class ClaimMatcher:
    """Matcher of claims with a run; caches each comparison, as a run is matched with hundreds of claims."""

    run: Run
    _summaries: dict[tuple[str, str, str, float | None], Summary] = field(default_factory=dict)
    _proof_by_stack: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def stacks(self) -> tuple[str, ...]:
        """The run's stacks, without the A/A control."""
        return tuple(name for name in stacks_of(self.run) if name != self.run.record.control)

    def find(self, claim: Claim, origin: ClaimSource) -> ClaimMatch:
        """Return the match of a claim: its estimates point by point, or the reason why it cannot be judged."""
        stack = than = ""
        try:
            workload, stack = self._find_workload(claim), self._find_stack(claim.stack)
            than = stack if claim.value else self._find_stack(claim.than)
            names = _ClaimNames(stack, than, workload)
            parts = self._find_points(claim, names)
            self._require_comparable(claim, origin, names)
        except NotTestable as lack:
            return ClaimMatch(stack if than else "", than, problem=lack)
        return ClaimMatch(stack, than, workload, parts, self._find_stable_proof(stack))

    def _find_points(self, claim: Claim, names: _ClaimNames) -> tuple[ClaimPoint, ...]:
        for stack in dict.fromkeys((names.stack, names.than)):
            self._require_measured(stack, names.workload)
        if claim.value:
            return self._find_values(claim, names)
        summary = self._summarize(names.workload, claim.metric, names.than, claim.than_point)
        if not claim.points and claim.from_point is None and claim.to_point is None:
            cells = _headline_cells(summary, claim, names.stack)
        else:
            every = [cell for cell in summary.cells if cell.stack == names.stack and cell.metric == claim.metric]
            cells = [(cell, cell.notes) for cell in every if _is_at(claim, cell.point)]
        parts = []
        for cell, notes in cells:
            if cell.ratio is not None:
                estimate = IntervalEstimate(cell.ratio, cell.n, cell.spread)
                in_terms = estimate.inverse if claim.inverse else estimate
                parts.append(ClaimPoint(cell.point, in_terms, notes, cell.cautions))
        if not parts:
            raise NotTestable(
                "not tested", _missing_reason(claim, names, [note for _, notes in cells for note in notes])
            )
        return tuple(parts)

    def _require_comparable(self, claim: Claim, origin: ClaimSource, names: _ClaimNames) -> None:
        """Raise NotTestable if CPU or versions differ from those of the claim, where these matter."""
        cpu = self.run.record.instance_machine.cpu_model
        if (
            claim.value
            and not claim.value.anywhere
            and (not origin.cpu or _normalize_cpu_model(origin.cpu) not in _normalize_cpu_model(cpu))
        ):
            why = f"a number of another machine: {origin.cpu or 'unknown'}, here {cpu or 'unknown'}"
            raise NotTestable("not comparable", why)
        for program in claim.same_versions:
            theirs, ours = origin.versions[program], self._find_version(program, names)
            if theirs.partition(".")[0] != ours.partition(".")[0]:
                raise NotTestable("not comparable", f"{program} {theirs} there, {ours or 'an unknown version'} here")

    def _find_stable_proof(self, stack: str) -> Mapping[str, str]:
        if stack not in self._proof_by_stack:
            self._proof_by_stack[stack] = stable_proof(self.run.trials, stack)
        return self._proof_by_stack[stack]

    @cached_property
    def _trials(self) -> Mapping[tuple[str, str], Sequence[Trial]]:
        """The latest attempts of trials, by stack and workload."""
        trials: dict[tuple[str, str], list[Trial]] = {}
        for trial in select_latest(self.run.trials):
            trials.setdefault((trial.stack, trial.workload), []).append(trial)
        return trials

    @cached_property
    def _records(self) -> Sequence[WorkloadRecord]:
        return workload_records(self.run)

    @cached_property
    def _stack_technologies(self) -> Mapping[str, str]:
        """The technologies of each stack: from the suite's text if the stack has a name of the user, else its name."""
        try:
            tables = tomllib.loads((self.run.folder / "suite.toml").read_text(encoding="utf-8")).get("stacks", {})
            made_of = {name: str(table.get("stack", name)) for name, table in tables.items()}
        except (OSError, ValueError, AttributeError):  # the folder is untrusted: the file can be anything
            made_of = {}
        return {name: resolve_technologies(registry, made_of.get(name, name)) for name in {*made_of, *self.stacks}}

    def _find_stack(self, requested: str) -> str:
        """Return the stack with this name, or with these technologies; raises NotTestable."""
        if requested in self.stacks:
            return requested
        made_of = {name: self._stack_technologies.get(name, name) for name in self.stacks}
        for name, stack in made_of.items():
            if stack == requested:
                return name
        for name, stack in made_of.items():
            if "/".join(layer.removesuffix(_EMULATED_SUFFIX) for layer in split_stack(stack)) == requested:
                raise NotTestable("not comparable", f"{name} emulates the processor, {requested} does not")
        raise NotTestable("not tested", f"the run has no stack {requested}")

    def _find_workload(self, claim: Claim) -> str:
        records = [record for record in self._records if record.use == claim.workload]
        for record in records:
            if not _setting_differences(claim, record):
                return record.name
        if records:
            differences = "; ".join(_setting_differences(claim, records[0]))
            raise NotTestable("not comparable", f"{records[0].name}: {differences}")
        raise NotTestable("not tested", f"the run has no workload {claim.workload}")

    def _require_measured(self, stack: str, workload: str) -> None:
        """Raise NotTestable if a stack has no successful trial of a workload, or an emulated processor."""
        outcomes = count_outcomes(stack, self._trials.get((stack, workload), ()))
        if not outcomes.ok:
            failures = dict.fromkeys(failure.reason for failure in outcomes.failures)
            why = outcomes.skipped or "; ".join(failures) or "no trial was run"
            raise NotTestable("not tested", f"{workload} on {stack}: {why}")
        for caution in outcomes.cautions:
            if caution.kind == "emulated":
                raise NotTestable("not comparable", f"{stack}: {caution.texts[0]}")

    def _summarize(self, workload: str, metric: str, than: str, than_point: float | None) -> Summary:
        """Return the summary of a workload with `than` as the baseline; a `metric` is then its only headline."""
        key = (workload, metric, than, than_point)
        if key not in self._summaries:
            self._summaries[key] = summarize(_select_workload(self.run, workload, metric, than, than_point))
        return self._summaries[key]

    def _find_values(self, claim: Claim, names: _ClaimNames) -> tuple[ClaimPoint, ...]:
        """Return estimates of a stack's values in their unit: as ratios to 1 unit, trial by trial."""
        run = _select_workload(self.run, names.workload, claim.metric, names.stack)
        trials = [trial for trial in select_latest(run.trials) if trial.stack == names.stack]
        grid = build_grid(run.record.workloads[0], (names.stack,), trials)
        cautions, parts = count_outcomes(names.stack, trials).cautions, []
        for at, key in enumerate(grid.keys):
            values = grid.values[0, at][grid.positive[0, at]].tolist()
            ratio = block_ratio(values, [1.0] * len(values))
            if key.metric == claim.metric and _is_at(claim, key.point) and ratio:
                notes = () if ratio.low is not None else (f"{min_value_count()} blocks or more are needed",)
                estimate = IntervalEstimate(ratio.ratio, ratio.n, ratio.spread)
                parts.append(ClaimPoint(key.point, estimate, notes, cautions))
        if not parts:
            raise NotTestable("not tested", _missing_reason(claim, names, ()))
        return tuple(parts)

    def _find_version(self, program: str, names: _ClaimNames) -> str:
        """Return the version of a technology, package or kernel in the run; "" if it is unknown."""
        for stack in (names.stack, names.than):
            if program in split_stack(self._stack_technologies.get(stack, stack)):
                proof = self._find_stable_proof(stack)
                # In a stack of several technologies, the keys of its proof are prefixed by the technology.
                texts = (proof.get(name, "") for name in ("version", f"{program}: version", program))
                return next((match[0] for text in texts if (match := _NUMBER.search(text))), "")
        if program == "kernel":
            return self.run.record.instance_machine.kernel
        packages = dict(line.split(" ", 1) for line in self.run.record.packages.splitlines() if " " in line)
        return packages.get(program, "").rpartition(":")[2]


def _select_workload(run: Run, workload: str, metric: str, than: str, than_point: float | None = None) -> Run:
    """Return the run with one workload and the baseline `than`; a `metric` is then its only headline.

    The A/A control stays if `than` is the run's baseline. With `than_point`, values of the metric are relative to the
    value of the same trial at that point.
    """
    [record] = [each for each in workload_records(run) if each.name == workload]
    trials = list(run.trials_of(workload))
    metrics, sweep = record.metrics, record.sweep
    if metric == FOOTPRINT:
        metrics, sweep, trials = (_FOOTPRINT,), None, [_with_footprint_value(each) for each in trials]
    elif metric:
        metrics = tuple(replace(each, headline=each.name == metric) for each in metrics)
    if than_point is not None:
        trials = [_relative_to_point(each, metric, than_point) for each in trials]
    stacks = [name for name in stacks_of(run) if name != run.record.control or than == run.record.baseline]
    only = replace(run.record, workloads=(replace(record, metrics=metrics, sweep=sweep),))
    return select_stacks(replace(run, record=only, trials=tuple(trials)), than, stacks, None)


def _with_footprint_value(trial: Trial) -> Trial:
    """Return the trial with its footprint as its only value; without values if it has no footprint."""
    size = trial.footprint.total_memory_bytes if trial.footprint else None
    return _with_values(trial, () if size is None else (MeasuredValue(FOOTPRINT, None, float(size), "bytes", "lower"),))


def _relative_to_point(trial: Trial, metric: str, point: float) -> Trial:
    """Return the trial with the values of a metric relative to its value at this point."""
    of_metric = [each for each in trial.values if each.metric == metric]
    base = next((each.value for each in of_metric if each.point == point and each.value > 0), None)
    values = (replace(each, value=each.value / base, turns=()) for each in of_metric if base and each.point != point)
    return _with_values(trial, tuple(values))


def _with_values(trial: Trial, values: tuple[MeasuredValue, ...]) -> Trial:
    """Return the trial with these values and without turns, which belong to the former values."""
    return replace(trial, values=values, turns=())


def _is_at(claim: Claim, point: float | None) -> bool:
    if claim.points:
        return point in claim.points
    if claim.from_point is None and claim.to_point is None:
        return True
    low = float("-inf") if claim.from_point is None else claim.from_point
    return point is not None and low <= point <= (float("inf") if claim.to_point is None else claim.to_point)


def _headline_cells(summary: Summary, claim: Claim, stack: str) -> list[tuple[Cell, tuple[str, ...]]]:
    """Return the cell of the headline with its notes, and a note if it is a mean over points; empty without one."""
    for cell in summary.headlines:
        rule = summary.rule(cell.headline)
        if cell.stack == stack and (not claim.metric or claim.metric in rule.metrics):
            return [(cell, (*cell.notes, rule.text) if " points" in rule.text else cell.notes)]
    return []


def _missing_reason(claim: Claim, names: _ClaimNames, notes: Iterable[str]) -> str:
    text = f"{names.workload}: no {claim.metric or 'value'} of both {names.stack} and {names.than}"
    if claim.value:
        text = f"{names.workload}: no {claim.metric} of {names.stack}"
    if claim.points:
        text += f" at {', '.join(f'{point:g}' for point in claim.points)}"
    elif claim.from_point is not None or claim.to_point is not None:
        bounds = (("from", claim.from_point), ("to", claim.to_point))
        text += "".join(f" {word} {bound:g}" for word, bound in bounds if bound is not None)
    text += "" if claim.than_point is None else f" relative to {claim.than_point:g}"
    reasons = "; ".join(dict.fromkeys(notes))
    return f"{text} ({reasons})" if reasons else text


def _setting_differences(claim: Claim, record: WorkloadRecord) -> list[str]:
    """Return a text for each setting of a claim that the workload does not have; other settings do not count."""
    claimed, used = _flatten(claim.settings), _flatten(record.settings)
    return [
        f"{name} is {used.get(name, 'unknown')}, not {value}"
        for name, value in claimed.items()
        if used.get(name) != value
    ]


def _flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": each for inner, each in _flatten(value).items()}
        else:
            flat[name] = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
    return flat


def _normalize_cpu_model(text: str) -> str:
    """Return the name of a processor in lower case without blanks, (R) and (TM), which papers write differently."""
    return re.sub(r"\(r\)|\(tm\)|[^a-z0-9-]", "", text.lower())
