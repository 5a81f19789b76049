"""Failures, cautions and noise in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tare.model.trial import SERVICE_READY
from tare.model.units import format_count, format_duration
from tare.report.numbers import NAMED, cut, format_percent, format_resolution, join_names, join_some
from tare.statistics.cells import AUDITED_AUTOCORRELATION, Cell, Failure
from tare.statistics.outcomes import TrialOutcomes, WorkloadStatus, normalize_reason
from tare.statistics.summary import Summary

TITLE = "What does not work"
ALL_WORKS = "Everything works: no trial failed, and none was skipped."
_READINESS_GAP_SECONDS = 1.0  # between the first and the last server, from which on a hint is given
_REASON = 110  # letters of a sentence
_TROUBLE_STATUSES = ("fails", "fails at times", "skipped")
# What is doubted, without the words of the method; the texts of other kinds of cautions are plain themselves. Empty are
# those that have separate lines: a baseline that differs from itself, and what beats bare metal.
CAUTION_EXPLANATIONS: Mapping[str, str] = {
    "busy-when-idle": "it went on working while others were measured, which may have slowed them",
    "cached": "memory answered in place of the disk, so the values are not the disk's alone",
    "client-bound": "what sent the requests was at its limit, so the server may be faster than this",
    "engine-configuration": "its engine is configured to start it otherwise, so what it costs may be that setting's",
    "file-system-differs": "its files lay on another file system than those that it is compared with",
    "host-network-stack": "gVisor used this machine's network, so what its own costs is not in the numbers",
    "in-groups": "not all fitted into memory at once, so it was not measured together with each of the others",
    "inside-differs": "its processes run under other conditions than those that they are compared with",
    "never-run": "tare's own tests never had the real thing, only a program that stands in for it",
    "pod-not-pinned": "it could run on the CPUs of what sends the requests too, so chance may be larger than it looks",
    "not-pinned": "the CPUs of Xen's first domain may have moved about, so chance may be larger than it looks",
    "shared-kernel": "something other than Kata's machine ran under Kata's name, so this is not what Kata costs",
    "resumed-block": "the run was stopped and resumed, so values of different times are compared",
    "stalls": "it, or what it is compared with, stood still now and then; the percentages are of the usual speed",
    "telemetry": "what the machine did meanwhile is not known throughout, so a doubt may be missing here",
    "correlated-blocks": "each repetition resembles the one before it, so chance may be larger than it looks",
    "coarse-values": "the values come in large steps, so chance may be larger than it looks",
    "waiting": "server and load did nothing for most of the time, so what the stacks cost hardly shows",
    "unconfirmed": "what other stacks showed later makes this less sure; repeating it may change the verdict",
    "unlike-itself": "",
    "faster-than-bare-metal": "",
}


@dataclass(frozen=True)
class StackStatus:
    """How a workload fares in a stack, as text such as `fails` or `2 of 5 fail`; `causes` are their numbers."""

    workload: str
    stack: str
    status: WorkloadStatus
    text: str
    causes: tuple[int, ...]


@dataclass(frozen=True)
class FailureSite:
    """Where a cause was seen: in so many `trials` of all those of a workload in a stack."""

    workload: str
    stack: str
    status: WorkloadStatus
    trials: int
    all_trials: int

    @property
    def text(self) -> str:
        """What became of the trials."""
        plain = {"skipped": "did not run", "fails": "failed"}
        return plain.get(self.status, f"{self.trials} of {self.all_trials} trials failed")


@dataclass(frozen=True)
class FailureCause:
    """Why something does not work, what may fix it, and where it was seen: `where` describes that, stack by stack."""

    number: int
    text: str
    hint: str
    sites: tuple[FailureSite, ...]
    where: tuple[str, ...]


@dataclass(frozen=True)
class FailureTable:
    """A table with a column for each workload that does not work in some stack, and a row for each stack.

    A stack that was skipped in all workloads has no row: its causes say so.
    """

    workloads: tuple[str, ...]
    rows: tuple[tuple[StackStatus, ...], ...]
    causes: tuple[FailureCause, ...]

    def describe_cause(self, tried: StackStatus) -> str:
        """Return why a workload does not work in a stack: the first cause, and how many others there are."""
        texts = [self.causes[number - 1].text for number in tried.causes]
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        return f"{texts[0]}{more}" if texts else ""


def find_failures(summary: Summary) -> FailureTable:
    """Find what does not work in a run."""
    found = _outcomes_by_stack(summary)
    ran = [stack for stack, outcomes in found.items() if any(each.ok or each.failures for each in outcomes.values())]
    workloads = tuple(
        name for name in summary.workloads if any(found[stack][name].status in _TROUBLE_STATUSES for stack in ran)
    )
    seen: dict[tuple[str, str], list[FailureSite]] = {}
    for stack, outcomes in found.items():
        for workload, outcome in outcomes.items():
            for kind in _group_failures(outcome, stack):
                place = FailureSite(workload, stack, outcome.status, len(kind), outcome.ok + len(outcome.failures))
                seen.setdefault((kind[0].reason, kind[0].hint), []).append(place)
    causes = tuple(
        FailureCause(number, *key, tuple(places), tuple(_describe_sites(places, summary.workloads)))
        for number, (key, places) in enumerate(seen.items(), start=1)
    )
    numbers: dict[tuple[str, str], list[int]] = {}
    for cause in causes:
        for place in cause.sites:
            numbers.setdefault((place.workload, place.stack), []).append(cause.number)
    rows = (
        tuple(_create_status(name, stack, found[stack][name], numbers.get((name, stack), [])) for name in workloads)
        for stack in ran
    )
    return FailureTable(workloads, tuple(rows) if workloads else (), causes)


def describe_failures(found: FailureTable, summary: Summary) -> Iterator[tuple[Sequence[str], str]]:
    """Yield stacks, and what is said of them: each cause once for all that it ends alike."""
    for cause in found.causes:
        outcomes: dict[tuple[str, str], list[str]] = {}
        for place in cause.sites:
            outcomes.setdefault((place.stack, place.text), []).append(place.workload)
        same: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (stack, words), names in outcomes.items():
            same.setdefault((words, tuple(names)), []).append(stack)
        for (words, workloads), stacks in same.items():
            where = "" if workloads == summary.workloads else f"in {join_some(workloads)}: "
            yield stacks, f"{where}{words}: {cut(cause.text, _REASON)}"


def _outcomes_by_stack(summary: Summary) -> Mapping[str, Mapping[str, TrialOutcomes]]:
    """Return all outcomes; those of the A/A control only if it failed, as it is the baseline again."""
    found: dict[str, dict[str, TrialOutcomes]] = {stack: {} for stack in summary.stacks}
    for workload, outcomes in zip(summary.workloads, summary.outcomes, strict=True):
        for stack, outcome in zip(summary.stacks, outcomes, strict=True):
            found[stack][workload] = outcome
    if not any(outcome.failures for outcome in found.get(summary.control, {}).values()):
        found.pop(summary.control, None)
    return found


def _group_failures(outcome: TrialOutcomes, stack: str) -> Iterator[list[Failure]]:
    """Yield the failures of trials in groups of one kind: reasons that differ in numbers alone are one."""
    if outcome.skipped:
        yield [Failure("", 0, outcome.skipped.removeprefix(f"{stack}: "))]
        return
    kinds: dict[str, list[Failure]] = {}
    for failure in outcome.failures:
        kinds.setdefault(normalize_reason(failure.reason), []).append(failure)
    yield from kinds.values()


def _describe_sites(places: Sequence[FailureSite], workloads: Sequence[str]) -> Iterator[str]:
    """Yield each stack with its workloads and, where there are several, the numbers of trials."""
    outcomes: dict[str, list[FailureSite]] = {}
    for place in places:
        outcomes.setdefault(place.stack, []).append(place)
    for stack, at in outcomes.items():
        counts = (f" ({place.trials} trials)" if place.trials > 1 else "" for place in at)
        names = tuple(f"{place.workload}{count}" for place, count in zip(at, counts, strict=True))
        yield f"{stack}: {'all workloads' if names == tuple(workloads) else join_names(names)}"


def _create_status(workload: str, stack: str, outcome: TrialOutcomes, causes: list[int]) -> StackStatus:
    failed = len(outcome.failures)
    words = f"{failed} of {failed + outcome.ok} fail" if outcome.status == "fails at times" else outcome.status
    return StackStatus(workload, stack, outcome.status, words, tuple(causes))


def describe_steadiness(summary: Summary, workload: str) -> tuple[str, ...]:
    """Describe what moved a workload's values, apart from the stacks: block, place in the block, and block before."""
    rules = summary.rules_of(workload)
    moved = [(rule, _describe_effects(summary, rule.name)) for rule in rules]
    return tuple(text for rule, texts in moved for text in ([f"{rule.name}:", *texts] if len(rules) > 1 else texts))


def _describe_effects(summary: Summary, name: str) -> list[str]:
    effect = summary.block_effects(name)
    cells = [cell for cell in summary.headlines if cell.headline == name and cell.low is not None]
    sentences = []
    if effect:
        moved = (
            f"From block to block, all values moved together by {format_percent(effect.blocks)} (standard deviation)"
        )
        sentences.append(f"{moved}, which cancels out; {format_percent(effect.error)} was left.")
        if effect.has_position_effect:
            slope = f"{effect.per_position * 100:+.2g} % [{effect.low * 100:.2g}, {effect.high * 100:.2g}]"
            sentences.append(f"The place in a block mattered: {slope} for each place later. The order is random.")
    if cells:
        most = max(cells, key=lambda cell: cell.correlation)
        much = f"{most.correlation:.2f} ({most.stack})"
        sentences.append(f"The largest correlation of a block's ratio with the one before it is {much}.")
    sentences += [f"{cell.stack}: {note}." for cell in cells for note in cell.notes]
    return sentences


def describe_noise(summary: Summary) -> list[str]:
    """Describe which differences noise has hidden, by the intervals of the stacks that show none."""
    texts, varies = [], False
    for rule in summary.rules:
        cells = [cell for cell in summary.headlines if cell.headline == rule.name and cell.resolution is not None]
        cells = [
            cell
            for cell in cells
            if cell.stack not in (summary.baseline, summary.control) and cell.verdict in ("undecided", "equivalent")
        ]
        ends = sorted(cells, key=lambda cell: cell.resolution or 0.0)
        shown = [format_resolution(cell).removeprefix("± ") for cell in (*ends[:1], *ends[-1:])]
        if shown:
            varies |= shown[0] != shown[1]
            least = shown[0].removesuffix(" %") + " to " if shown[0] != shown[1] else ""
            texts.append(f"{least}{shown[1]} in {rule.name}")
    depends = ", depending on the stack" if varies else ""
    return [f"Noise hid differences smaller than {join_names(tuple(texts))}{depends}."] if texts else []


def describe_robustness(cells: Sequence[Cell]) -> list[str]:
    """Describe how many decisions autocorrelated noise between blocks would leave as they are, and which not."""
    decided = [cell for cell in cells if cell.is_decided]
    close = [f"{cell.stack} in {cell.name}" for cell in decided if not cell.is_robust]
    noise = f"Robust to noise with an autocorrelation of {AUDITED_AUTOCORRELATION:g} between blocks"
    text = f"{noise}: {len(decided) - len(close)} of {format_count(len(decided), 'decision')}"
    return [f"{text}{f'; not {join_some(close)}' if close else ''}."] if decided else []


def describe_readiness(summary: Summary) -> list[str]:
    """Return sentences with the times until the servers were ready, and a hint if stacks differ by a second or more."""
    sentences = []
    for workload in summary.workloads:
        cells = [cell for cell in summary.cells_of(workload) if cell.metric == SERVICE_READY and cell.mean is not None]
        ready = sorted((cell.mean or 0.0, cell.stack) for cell in cells if cell.stack != summary.control)
        if not ready:
            continue
        known = [f"{format_duration(seconds)} ({stack})" for seconds, stack in ready]
        text = join_names(tuple(known)) if len(known) <= NAMED else f"{known[0]} to {known[-1]}"
        sentences.append(f"The server of {workload} was ready {text} after its start.")
        if ready[-1][0] - ready[0][0] >= _READINESS_GAP_SECONDS:
            hint = f"look for what the server of {workload} waits for at its start, such as the look-up of a name"
            sentences.append(f"That differs by seconds, and no other value shows it: {hint}.")
    return sentences
