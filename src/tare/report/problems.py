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
_READINESS_GAP_SECONDS = 1.0  # between the first and the last server that is ready; a hint is given from here on
_REASON = 110  # characters; longer reasons are cut
_TROUBLE_STATUSES = ("fails", "fails at times", "skipped")
# Sentences without terms of the method, for cautions whose recorded texts use such terms. Texts are empty for cautions
# that have separate lines in the findings: a failed A/A check, and results faster than bare metal.
CAUTION_EXPLANATIONS: Mapping[str, str] = {
    "left-behind": "the workload left processes, sockets, memory or files, so the next workload got a fresh instance",
    "busy-when-idle": "it used CPU time while others were measured, which may have slowed them",
    "cached": "reads were served from memory instead of the disk, so the values are not those of the disk",
    "client-bound": "the load generator was at its limit, so the server may be faster than measured",
    "engine-configuration": "its engine is configured to start it differently, so the cost may be that of the setting",
    "file-system-differs": "its files were on another file system than those of the stack that it is compared with",
    "host-network-stack": "gVisor used the machine's network stack, so the cost of gVisor's is not in the numbers",
    "in-groups": "not all stacks fit into memory at once, so it was not measured together with every other stack",
    "inside-differs": "its processes run under other conditions than those of the stack that it is compared with",
    "isolation-differs": "what its kernel reports is weaker than the isolation that its technology declares",
    "never-run": "tare was never tested with this technology itself, only with a program that imitates it",
    "pod-not-pinned": "it could also run on the CPUs of the load generator, so noise may be larger than it appears",
    "not-pinned": "the virtual CPUs of Xen's first domain may have migrated, so noise may be larger than it appears",
    "cpu-quota": "a limit on its CPU time, which tare does not set, stopped it, so this is also the cost of that limit",
    "added-network": "users of this sandbox have no such network interface, so theirs was not measured",
    "failed-starts": "some instances of a burst did not start, so that its times are those of the others",
    "pvm": "its KVM is PVM, a variant in software, so this is not the cost of KVM on the processor's virtualization",
    "printed-errors": "the command succeeded but wrote to standard error, so a part of it may have failed",
    "preempted": "other programs or the hypervisor below took CPU time from it, so it may be faster than measured",
    "shared-kernel": "it has the name of Kata but ran without a guest of Kata, so this is not the cost of Kata",
    "resumed-block": "the run was stopped and resumed, so values from different times are compared",
    "stalls": "it or the stack that it is compared with stalled now and then; percentages are of the usual speed",
    "telemetry": "the record of what the machine did meanwhile has gaps, so a warning may be missing",
    "correlated-blocks": "each repetition resembles the one before it, so noise may be larger than it appears",
    "coarse-values": "the values come in large steps, so noise may be larger than it appears",
    "waiting": "server and load generator were idle most of the time, so costs of the stack hardly show",
    "unconfirmed": "later results of other stacks make this less certain; a repetition may change the verdict",
    "unlike-itself": "",
    "faster-than-bare-metal": "",
}


@dataclass(frozen=True)
class StackStatus:
    """Outcome of a workload in a stack.

    `text` is such as `fails` or `2 of 5 fail`; `causes` are the numbers of the causes of failures.
    """

    workload: str
    stack: str
    status: WorkloadStatus
    text: str
    causes: tuple[int, ...]


@dataclass(frozen=True)
class FailureSite:
    """Workload and stack in which a cause of failures occurred, in `trials` of `all_trials`."""

    workload: str
    stack: str
    status: WorkloadStatus
    trials: int
    all_trials: int

    @property
    def text(self) -> str:
        """Outcome of the trials as text."""
        plain = {"skipped": "did not run", "fails": "failed"}
        return plain.get(self.status, f"{self.trials} of {self.all_trials} trials failed")


@dataclass(frozen=True)
class FailureCause:
    """Cause of failures: its reason, a hint, and the sites at which it occurred; `where` describes them by stack."""

    number: int
    text: str
    hint: str
    sites: tuple[FailureSite, ...]
    where: tuple[str, ...]


@dataclass(frozen=True)
class FailureTable:
    """Table with a column for each workload that does not work in some stack, and a row for each stack.

    A stack that was skipped in all workloads has no row, because the causes name it.
    """

    workloads: tuple[str, ...]
    rows: tuple[tuple[StackStatus, ...], ...]
    causes: tuple[FailureCause, ...]

    def describe_cause(self, tried: StackStatus) -> str:
        """Return the first cause of a workload's failures in a stack and the number of other causes; "" without any."""
        texts = [self.causes[number - 1].text for number in tried.causes]
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        return f"{texts[0]}{more}" if texts else ""


def find_failures(summary: Summary) -> FailureTable:
    """Return the failures and skipped stacks of a run."""
    outcomes_by_stack = _outcomes_by_stack(summary)
    ran = [
        stack
        for stack, outcomes in outcomes_by_stack.items()
        if any(outcome.ok or outcome.failures for outcome in outcomes.values())
    ]
    workloads = tuple(
        name
        for name in summary.workloads
        if any(outcomes_by_stack[stack][name].status in _TROUBLE_STATUSES for stack in ran)
    )
    sites_by_reason: dict[tuple[str, str], list[FailureSite]] = {}
    for stack, outcomes in outcomes_by_stack.items():
        for workload, outcome in outcomes.items():
            for group in _group_failures(outcome, stack):
                site = FailureSite(workload, stack, outcome.status, len(group), outcome.ok + len(outcome.failures))
                sites_by_reason.setdefault((group[0].reason, group[0].hint), []).append(site)
    causes = tuple(
        FailureCause(number, *key, tuple(sites), tuple(_describe_sites(sites, summary.workloads)))
        for number, (key, sites) in enumerate(sites_by_reason.items(), start=1)
    )
    numbers: dict[tuple[str, str], list[int]] = {}
    for cause in causes:
        for site in cause.sites:
            numbers.setdefault((site.workload, site.stack), []).append(cause.number)
    rows = (
        tuple(
            _create_status(name, stack, outcomes_by_stack[stack][name], numbers.get((name, stack), []))
            for name in workloads
        )
        for stack in ran
    )
    return FailureTable(workloads, tuple(rows) if workloads else (), causes)


def describe_failures(found: FailureTable, summary: Summary) -> Iterator[tuple[Sequence[str], str]]:
    """Yield stacks with a sentence about a cause; stacks with the same outcomes share a sentence."""
    for cause in found.causes:
        outcomes: dict[tuple[str, str], list[str]] = {}
        for site in cause.sites:
            outcomes.setdefault((site.stack, site.text), []).append(site.workload)
        same: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (stack, words), names in outcomes.items():
            same.setdefault((words, tuple(names)), []).append(stack)
        for (words, workloads), stacks in same.items():
            where = "" if workloads == summary.workloads else f"in {join_some(workloads)}: "
            yield stacks, f"{where}{words}: {cut(cause.text, _REASON)}"


def _outcomes_by_stack(summary: Summary) -> Mapping[str, Mapping[str, TrialOutcomes]]:
    """Return the outcomes by stack and workload.

    The A/A control is left out unless it failed, because it repeats the baseline.
    """
    by_stack: dict[str, dict[str, TrialOutcomes]] = {stack: {} for stack in summary.stacks}
    for workload, outcomes in zip(summary.workloads, summary.outcomes, strict=True):
        for stack, outcome in zip(summary.stacks, outcomes, strict=True):
            by_stack[stack][workload] = outcome
    if not any(outcome.failures for outcome in by_stack.get(summary.control, {}).values()):
        by_stack.pop(summary.control, None)
    return by_stack


def _group_failures(outcome: TrialOutcomes, stack: str) -> Iterator[list[Failure]]:
    """Yield the failures of trials in groups whose reasons are equal except for numbers."""
    if outcome.skipped:
        yield [Failure("", 0, outcome.skipped.removeprefix(f"{stack}: "))]
        return
    groups: dict[str, list[Failure]] = {}
    for failure in outcome.failures:
        groups.setdefault(normalize_reason(failure.reason), []).append(failure)
    yield from groups.values()


def _describe_sites(sites: Sequence[FailureSite], workloads: Sequence[str]) -> Iterator[str]:
    """Yield each stack with its workloads and, where there are several, the numbers of trials."""
    by_stack: dict[str, list[FailureSite]] = {}
    for site in sites:
        by_stack.setdefault(site.stack, []).append(site)
    for stack, members in by_stack.items():
        counts = (f" ({site.trials} trials)" if site.trials > 1 else "" for site in members)
        names = tuple(f"{site.workload}{count}" for site, count in zip(members, counts, strict=True))
        yield f"{stack}: {'all workloads' if names == tuple(workloads) else join_names(names)}"


def _create_status(workload: str, stack: str, outcome: TrialOutcomes, causes: list[int]) -> StackStatus:
    failed = len(outcome.failures)
    words = f"{failed} of {failed + outcome.ok} fail" if outcome.status == "fails at times" else outcome.status
    return StackStatus(workload, stack, outcome.status, words, tuple(causes))


def describe_steadiness(summary: Summary, workload: str) -> tuple[str, ...]:
    """Describe other effects on a workload's values than the stack: block, position in the block, previous block."""
    rules = summary.rules_of(workload)
    moved = [(rule, _describe_effects(summary, rule.name)) for rule in rules]
    return tuple(text for rule, texts in moved for text in ([f"{rule.name}:", *texts] if len(rules) > 1 else texts))


def _describe_effects(summary: Summary, name: str) -> list[str]:
    effect = summary.block_effects(name)
    cells = [cell for cell in summary.headlines if cell.headline == name and cell.low is not None]
    sentences = []
    if effect:
        moved = (
            f"All values of a block varied together by {format_percent(effect.blocks)} (standard deviation over blocks)"
        )
        sentences.append(
            f"{moved}, which cancels out in the ratios; the remaining noise is {format_percent(effect.error)}."
        )
        if effect.has_position_effect:
            slope = f"{effect.per_position * 100:+.2g} % [{effect.low * 100:.2g}, {effect.high * 100:.2g}]"
            sentences.append(f"The position in a block had an effect, {slope} for each position; the order is random.")
    if cells:
        most = max(cells, key=lambda cell: cell.correlation)
        much = f"{most.correlation:.2f} ({most.stack})"
        sentences.append(f"The largest autocorrelation of ratios from block to block is {much}.")
    sentences += [f"{cell.stack}: {note}." for cell in cells for note in cell.notes]
    return sentences


def describe_noise(summary: Summary) -> list[str]:
    """Describe the smallest differences that could be detected, by the intervals of the stacks that show none."""
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
    """Return a sentence that counts the verdicts that are robust to autocorrelated noise and names the others.

    Empty without a decided verdict.
    """
    decided = [cell for cell in cells if cell.is_decided]
    close = [f"{cell.stack} in {cell.name}" for cell in decided if not cell.is_robust]
    count = f"{len(decided) - len(close)} of {format_count(len(decided), 'verdict')}"
    noise = f"even if the noise of consecutive blocks were correlated (autocorrelation {AUDITED_AUTOCORRELATION:g})"
    text = f"{count} would stay the same {noise}"
    return [f"{text}; borderline: {join_some(close)}." if close else f"{text}."] if decided else []


def describe_readiness(summary: Summary) -> list[str]:
    """Return sentences with the times until servers were ready, and a hint if stacks differ by a second or more."""
    sentences = []
    for workload in summary.workloads:
        cells = [cell for cell in summary.cells_of(workload) if cell.metric == SERVICE_READY and cell.mean is not None]
        # The value of the table of usual values, so that one report has one figure.
        ready = sorted(
            (cell.mean or 0.0 if cell.usual is None else cell.usual, cell.stack)
            for cell in cells
            if cell.stack != summary.control
        )
        if not ready:
            continue
        known = [f"{format_duration(seconds)} ({stack})" for seconds, stack in ready]
        text = join_names(tuple(known)) if len(known) <= NAMED else f"{known[0]} to {known[-1]}"
        sentences.append(f"The server of {workload} was ready {text} after its start.")
        if ready[-1][0] - ready[0][0] >= _READINESS_GAP_SECONDS:
            hint = f"find out what the server of {workload} waits for at its start, such as a DNS lookup"
            sentences.append(f"This difference of seconds is in no other value: {hint}.")
    return sentences
