"""What does not work: which workload fails or is skipped in which stack, how often, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tare.report.numbers import cut, listing, some_of
from tare.statistics.cells import Failure
from tare.statistics.outcomes import Fate, Outcome, alike
from tare.statistics.summary import Summary

TITLE = "What does not work"
ALL_WORKS = "Everything works: no trial failed, and none was skipped."
_REASON = 110  # letters of a sentence
_TROUBLE = ("fails", "fails at times", "skipped")


@dataclass(frozen=True)
class Tried:
    """How a workload fares in a stack, in words such as `fails` or `2 of 5 fail`; `causes` are their numbers."""

    workload: str
    stack: str
    fate: Fate
    words: str
    causes: tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """Where a cause was seen: in so many `trials` of all those of a workload in a stack."""

    workload: str
    stack: str
    fate: Fate
    trials: int
    of: int

    @property
    def words(self) -> str:
        """What became of the trials."""
        plain = {"skipped": "did not run", "fails": "failed"}
        return plain.get(self.fate, f"{self.trials} of {self.of} trials failed")


@dataclass(frozen=True)
class Cause:
    """Why something does not work, what may fix it, and where it was seen: `where` has it in words, stack by stack."""

    number: int
    text: str
    hint: str
    places: tuple[Place, ...]
    where: tuple[str, ...]


@dataclass(frozen=True)
class NotWorking:
    """A table with a column for each workload that does not work in some stack, and a row for each stack.

    A stack that was skipped in all workloads has no row: its causes say so.
    """

    workloads: tuple[str, ...]
    rows: tuple[tuple[Tried, ...], ...]
    causes: tuple[Cause, ...]

    def why(self, tried: Tried) -> str:
        """Return why a workload does not work in a stack: the first cause, and how many others there are."""
        texts = [self.causes[number - 1].text for number in tried.causes]
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        return f"{texts[0]}{more}" if texts else ""


def not_working(summary: Summary) -> NotWorking:
    """Find what does not work in a run."""
    found = _by_stack(summary)
    ran = [stack for stack, own in found.items() if any(each.ok or each.failures for each in own.values())]
    workloads = tuple(name for name in summary.workloads if any(found[stack][name].fate in _TROUBLE for stack in ran))
    seen: dict[tuple[str, str], list[Place]] = {}
    for stack, own in found.items():
        for workload, outcome in own.items():
            for kind in _kinds(outcome, stack):
                place = Place(workload, stack, outcome.fate, len(kind), outcome.ok + len(outcome.failures))
                seen.setdefault((kind[0].reason, kind[0].hint), []).append(place)
    causes = tuple(
        Cause(number, *key, tuple(places), tuple(_where(places, summary.workloads)))
        for number, (key, places) in enumerate(seen.items(), start=1)
    )
    numbers: dict[tuple[str, str], list[int]] = {}
    for cause in causes:
        for place in cause.places:
            numbers.setdefault((place.workload, place.stack), []).append(cause.number)
    rows = (
        tuple(_tried(name, stack, found[stack][name], numbers.get((name, stack), [])) for name in workloads)
        for stack in ran
    )
    return NotWorking(workloads, tuple(rows) if workloads else (), causes)


def said(found: NotWorking, summary: Summary) -> Iterator[tuple[Sequence[str], str]]:
    """Yield stacks, and what is said of them: each cause once for all that it ends alike."""
    for cause in found.causes:
        own: dict[tuple[str, str], list[str]] = {}
        for place in cause.places:
            own.setdefault((place.stack, place.words), []).append(place.workload)
        same: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (stack, words), names in own.items():
            same.setdefault((words, tuple(names)), []).append(stack)
        for (words, workloads), stacks in same.items():
            where = "" if workloads == summary.workloads else f"in {some_of(workloads)}: "
            yield stacks, f"{where}{words}: {cut(cause.text, _REASON)}"


def _by_stack(summary: Summary) -> Mapping[str, Mapping[str, Outcome]]:
    """Return all outcomes; those of the A/A control only if it failed, as it is the baseline again."""
    found: dict[str, dict[str, Outcome]] = {stack: {} for stack in summary.stacks}
    for workload, outcomes in zip(summary.workloads, summary.outcomes, strict=True):
        for stack, outcome in zip(summary.stacks, outcomes, strict=True):
            found[stack][workload] = outcome
    if not any(outcome.failures for outcome in found.get(summary.control, {}).values()):
        found.pop(summary.control, None)
    return found


def _kinds(outcome: Outcome, stack: str) -> Iterator[list[Failure]]:
    """Yield the failures of trials in groups of one kind: reasons that differ in numbers alone are one."""
    if outcome.skipped:
        yield [Failure("", 0, outcome.skipped.removeprefix(f"{stack}: "))]
        return
    kinds: dict[str, list[Failure]] = {}
    for failure in outcome.failures:
        kinds.setdefault(alike(failure.reason), []).append(failure)
    yield from kinds.values()


def _where(places: Sequence[Place], workloads: Sequence[str]) -> Iterator[str]:
    """Yield each stack with its workloads and, where there are several, the numbers of trials."""
    own: dict[str, list[Place]] = {}
    for place in places:
        own.setdefault(place.stack, []).append(place)
    for stack, at in own.items():
        counts = (f" ({place.trials} trials)" if place.trials > 1 else "" for place in at)
        names = tuple(f"{place.workload}{count}" for place, count in zip(at, counts, strict=True))
        yield f"{stack}: {'all workloads' if names == tuple(workloads) else listing(names)}"


def _tried(workload: str, stack: str, outcome: Outcome, causes: list[int]) -> Tried:
    failed = len(outcome.failures)
    words = f"{failed} of {failed + outcome.ok} fail" if outcome.fate == "fails at times" else outcome.fate
    return Tried(workload, stack, outcome.fate, words, tuple(causes))
