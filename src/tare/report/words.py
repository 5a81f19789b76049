"""The answer of a run in plain words, for the report's first paragraph and the end of `tare run`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tare.model.machines import Facts
from tare.model.trials import SERVICE_READY
from tare.report.numbers import cut, estimate, interval, listing, percent, reason, resolved, state
from tare.statistics.anytime import least_count
from tare.statistics.cells import DECIDED, LASTING, Cell, HeadlineRule, Standing
from tare.statistics.summary import Summary
from tare.units import format_duration, format_quantity, format_size

_NAMED = 6  # in a sentence
_APART_SECONDS = 1.0  # between the readiness of servers
_WAITS = "That differs by seconds, and no other value shows it: look for what the server of"
_HIDDEN = "decided on values in steps that are larger than their noise, which is not firm"


def answer(summary: Summary, machine: Facts) -> tuple[str, ...]:
    """Return the sentences that say what is known: first the ranking or what is decided, then what is still open."""
    sentences = [
        *in_brief(summary, machine),
        *_beside(summary),
        *readiness(summary),
        *_unranked(summary),
        *_too_few(summary),
        *trust(summary),
        *_doubts(summary),
    ]
    return tuple(sentences)


def in_brief(summary: Summary, machine: Facts) -> tuple[str, ...]:
    """Return the sentences that say which stacks are cheap and which are not."""
    return (*_known(summary, machine), *_inseparable(summary), *_dearest(summary))


def trust(summary: Summary) -> list[str]:
    """Describe how far the decisions may be trusted: what could be resolved, and what would hold where noise lasts."""
    firm = firmness([cell for cell in summary.headlines if cell.stack != summary.control])
    doubts = [*_too_fast(summary), *_stalling(summary), *_in_groups(summary)]
    return [*by_wish(summary), *resolution(summary), *firm, *doubts]


def by_wish(summary: Summary) -> list[str]:
    """Name the stacks that run a program of their own: their ratios are of the programs, too."""
    texts = tuple(f"{stack}: {what} {text}" for stack, what, text in summary.own)
    return [f"By the suite's wish, stacks run programs of their own: {'; '.join(texts)}."] if texts else []


def _in_groups(summary: Summary) -> list[str]:
    """Name the workloads whose stacks did not all take turns with each other."""
    names = tuple(dict.fromkeys(cell.workload for cell in summary.headlines if cell.has_caution("in-groups")))
    what = f"stacks came in groups, each with {summary.baseline}, and took turns only within a group"
    return [f"Not all instances of {listing(names)} fit into memory together: {what}."] if names else []


def _stalling(summary: Summary) -> list[str]:
    """Name the cells whose ratio hides slow turns, with what the means over all turns say."""
    names = []
    for cell in summary.headlines:
        if not cell.has_caution("stalls"):
            continue
        shares = f"{percent(cell.slow_turns or 0)} of its turns, {percent(cell.slow_turns_of_baseline or 0)} of"
        mean = "" if cell.mean_ratio is None else f", mean of all {percent(cell.mean_ratio)}"
        names.append(f"{cell.stack} in {cell.name} ({shares} {summary.baseline}'s{mean})")
    return [f"Slow turns, which the ratio of a usual turn does not show: {_some(names)}."] if names else []


def _too_fast(summary: Summary) -> list[str]:
    """Name what beats bare metal, which virtualization cannot."""
    cells = [cell for cell in summary.headlines if cell.has_caution("faster-than-bare-metal")]
    names = [f"{cell.stack} in {cell.name} ({estimate(cell)} {interval(cell)})" for cell in cells]
    doubt = f"faster than bare metal by more than {percent(summary.margin)}: look for what differs"
    return [f"{_some(names)}: {doubt}."] if names else []


def resolution(summary: Summary) -> list[str]:
    """Describe what difference could be told from none today, by the baseline compared with itself (A/A)."""
    cells = [cell for cell in summary.headlines if cell.stack == summary.control and cell.ratio is not None]
    known = tuple(f"{cell.name} {resolved(cell)}" for cell in cells if cell.low is not None)
    different = tuple(f"{cell.name} {estimate(cell)} {interval(cell)}" for cell in cells if _differs(cell))
    sentences = []
    if known:
        sentences.append(
            f"{summary.baseline} against itself (A/A) shows what could be resolved here: {listing(known)}."
        )
    if different:
        doubt = "something on this machine favors a trial over another: doubt differences of this size"
        sentences.append(f"A/A found {summary.baseline} different from itself in {listing(different)}: {doubt}.")
    return sentences


def readiness(summary: Summary, brief: bool = False) -> list[str]:
    """Describe when the servers were ready, which is in no other value; with a hint where stacks differ by seconds.

    In `brief`, of many stacks the first and the last are named.
    """
    sentences = []
    for workload in summary.workloads:
        cells = [cell for cell in summary.of(workload) if cell.metric == SERVICE_READY and cell.mean is not None]
        seconds = {cell.stack: cell.mean or 0.0 for cell in cells if cell.stack != summary.control}
        if not seconds:
            continue
        sentences.append(f"The server of {workload} was ready {_ready(seconds, brief)} after its start.")
        if max(seconds.values()) - min(seconds.values()) >= _APART_SECONDS:
            sentences.append(f"{_WAITS} {workload} waits for at its start, such as the look-up of a name.")
    return sentences


def _ready(seconds: Mapping[str, float], brief: bool) -> str:
    known = {stack: f"{format_duration(each)} ({stack})" for stack, each in seconds.items()}
    if not brief or len(known) <= _NAMED:
        return listing(tuple(known.values()))
    return f"{known[min(seconds, key=seconds.__getitem__)]} to {known[max(seconds, key=seconds.__getitem__)]}"


def firmness(cells: Sequence[Cell]) -> list[str]:
    """Describe how many decisions would hold where noise lasts from block to block, and how many would not."""
    coarse = [f"{cell.stack} in {cell.name}" for cell in cells if cell.decided and cell.coarse]
    decided = [cell for cell in cells if cell.decided and not cell.coarse]
    return [*_lasting(decided), *([f"{_some(coarse)}: {_HIDDEN}."] if coarse else [])]


def _lasting(decided: Sequence[Cell]) -> list[str]:
    if not decided:
        return []
    thin = [f"{cell.stack} in {cell.name}" for cell in decided if not cell.is_firm]
    firm, many = len(decided) - len(thin), len(decided)
    lasting = f"would hold even if noise lasted from block to block (a correlation of {LASTING:g})"
    resting = "on blocks that do not depend on each other"
    if not thin:
        return [f"{f'All {many} decisions' if many > 1 else 'The one decision'} {lasting}."]
    if not firm:
        return [f"{f'All {many} decisions rest' if many > 1 else 'The one decision rests'} {resting}."]
    return [f"Of {many} decisions, {firm} {lasting}; {_some(thin)} {'rest' if len(thin) > 1 else 'rests'} {resting}."]


def steadiness(summary: Summary, workload: str) -> tuple[str, ...]:
    """Describe what moved a workload's values beside the stacks: the block, the place in it, and the block before."""
    rules = summary.rules_of(workload)
    moved = [(rule, _moved(summary, rule.name)) for rule in rules]
    return tuple(text for rule, texts in moved for text in ([f"{rule.name}:", *texts] if len(rules) > 1 else texts))


def _moved(summary: Summary, name: str) -> list[str]:
    effect = summary.effect(name)
    cells = [cell for cell in summary.headlines if cell.headline == name and cell.low is not None]
    sentences = []
    if effect:
        moved = f"From block to block, all values moved together by {percent(effect.blocks)} (standard deviation)"
        sentences.append(f"{moved}, which cancels out; {percent(effect.error)} was left.")
        if effect.ordered:
            slope = f"{effect.place * 100:+.2g} % [{effect.low * 100:.2g}, {effect.high * 100:.2g}]"
            sentences.append(f"The place in a block mattered: {slope} for each place later. The order is random.")
    if cells:
        most = max(cells, key=lambda cell: cell.correlation)
        much = f"{most.correlation:.2f} ({most.stack})"
        sentences.append(f"The largest correlation of a block's ratio with the one before it is {much}.")
    sentences += [f"{cell.stack}: {note}." for cell in cells for note in cell.notes]
    return sentences


def _differs(cell: Cell) -> bool:
    return cell.low is not None and cell.high is not None and not cell.low <= 1 <= cell.high


def place(machine: Facts) -> str:
    """Name a machine in a few words; leave out what is unknown."""
    parts = (
        machine.cpu_model,
        f"{machine.cpus} CPUs" if machine.cpus > 1 else f"{machine.cpus} CPU" if machine.cpus else "",
        format_size(machine.memory_bytes) if machine.memory_bytes else "",
        machine.operating_system,
    )
    return ", ".join(part for part in parts if part)


def _known(summary: Summary, machine: Facts) -> list[str]:
    """Describe which stack is the cheapest; where there is no ranking, what is decided all the same."""
    opening = f"On this machine ({place(machine)})" if place(machine) else "On this machine"
    if summary.overall.standings:
        return _cheapest(summary, opening)
    asked = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    decided = [cell for cell in asked if cell.decided]
    if decided:
        counts = f"{len(decided)} of {len(asked)} results {'is' if len(decided) == 1 else 'are'} decided"
        return [f"{opening}, {counts}: {'; '.join(_by_verdict(summary, decided))}."]
    if any(cell.low is not None for cell in asked):
        return [
            f"{opening}, nothing can be distinguished yet: every interval includes {summary.baseline}. Run more blocks."
        ]
    if any(cell.ratio is not None for cell in asked):
        why = f"no result has {least_count()} blocks, the least for an interval"
        return [f"{opening}, nothing can be distinguished yet: {why}. Run more blocks."]
    return [f"{opening}, nothing could be compared: no stack has a value beside {summary.baseline}."]


def _by_verdict(summary: Summary, decided: Sequence[Cell]) -> list[str]:
    """Name the decided cells, those with one verdict together; the largest differences first."""
    texts = []
    for verdict in DECIDED:
        cells = sorted((cell for cell in decided if cell.verdict == verdict), key=_nearness)
        named = [f"{cell.stack} in {cell.name} ({estimate(cell)})" for cell in cells]
        within = f" within {percent(summary.margin)}" if verdict == "equivalent" else ""
        if cells:
            texts.append(f"{verdict}{within}: {_some(named)}")
    return texts


def _nearness(cell: Cell) -> float:
    return -abs(math.log(cell.ratio or 1.0))


def _some(names: Sequence[str]) -> str:
    more = (f"{len(names) - _NAMED} more",) if len(names) > _NAMED else ()
    return listing((*names[:_NAMED], *more))


def _cheapest(summary: Summary, opening: str) -> list[str]:
    overall = summary.overall
    best = overall.standings[0]
    others = f"the cheapest of {len(overall.standings)} stacks was" if len(overall.standings) > 1 else "the stack"
    verb = "kept" if not _as_time(summary) else "took" if _is_time(summary) else "had"
    verb = f"it {verb}" if len(overall.standings) > 1 else verb
    comma = ":" if len(overall.standings) > 1 else ""
    text = f"{opening}, {others} {best.stack}{comma} {verb} {stands(summary, best)}"
    inverse = "; where less is better, the inverse is the speed" if _mixed(summary) else ""
    sentences = [f"{text} over {listing(overall.workloads)}{inverse}."]
    if overall.tied:
        sentences.append(f"{listing(overall.tied)} cannot be distinguished from {best.stack}.")
    return sentences


def _inseparable(summary: Summary) -> list[str]:
    same = tuple(each.stack for each in summary.overall.standings if each.verdict == "equivalent")
    unsure = tuple(each.stack for each in summary.overall.standings if each.verdict == "undecided")
    faster = tuple(each.stack for each in summary.overall.standings if each.verdict == "better")
    sentences = []
    if same:
        verb = "are" if len(same) > 1 else "is"
        sentences.append(f"{listing(same)} {verb} equivalent to {summary.baseline} within {percent(summary.margin)}.")
    if unsure:
        sentences.append(f"{listing(unsure)} cannot be distinguished from {summary.baseline} with these blocks.")
    if faster:
        verb = "were" if len(faster) > 1 else "was"
        doubt = "look for the cause before you believe it"
        sentences.append(f"{listing(faster)} {verb} faster than {summary.baseline}: {doubt}.")
    return sentences


def _dearest(summary: Summary) -> list[str]:
    standings = summary.overall.standings
    if len(standings) < 2 or standings[-1].verdict != "worse":
        return []
    last = standings[-1]
    return [f"The most expensive was {last.stack}, at {stands(summary, last)}."]


def stands(summary: Summary, standing: Standing) -> str:
    """Describe how a stack stands to the baseline, as the table does: `97 % of native's speed [95, 99]`.

    The ranking is by speed. Where it is of one headline of which less is better, the table has the inverse of that.
    """
    shown, what = standing, "speed"
    if _as_time(summary):
        low, high = (None if end is None else 1 / end for end in (standing.high, standing.low))
        shown = replace(standing, speed=1 / standing.speed, low=low, high=high)
        what = "time" if _is_time(summary) else _title_of(summary)
    times = estimate(shown).removeprefix("\N{MULTIPLICATION SIGN}")
    much = f"{estimate(shown)} of" if times == estimate(shown) else f"{times} times"
    return f"{much} {summary.baseline}'s {what} {interval(shown)}"


def _as_time(summary: Summary) -> bool:
    """Return whether the ranking is of one headline of which less is better, such as a time."""
    rules = [summary.rule(name) for name in summary.overall.workloads]
    return len(rules) == 1 and rules[0].better == "lower"


def _mixed(summary: Summary) -> bool:
    rules = [summary.rule(name) for name in summary.overall.workloads]
    return len(rules) > 1 and any(rule.better == "lower" for rule in rules)


def _is_time(summary: Summary) -> bool:
    return any(cell.unit == "s" for cell in summary.headlines if cell.headline == summary.overall.workloads[0])


def _title_of(summary: Summary) -> str:
    return summary.rule(summary.overall.workloads[0]).text.lower()


def _beside(summary: Summary) -> list[str]:
    """Name the least and the largest value of the headlines that do not count for the overall speed."""
    sentences = []
    own_names = (summary.baseline, summary.control)
    for rule in summary.rules:
        cells = [cell for cell in summary.headlines if cell.headline == rule.name and cell.mean is not None]
        others = sorted((cell for cell in cells if cell.stack not in own_names), key=_value)
        if rule.overall or not others:
            continue
        own = next((cell for cell in cells if cell.verdict == "baseline"), None)
        text = f"{_title(rule)}: {'from ' if len(others) > 1 else ''}{_quantity(others[0])} ({others[0].stack})"
        text += f" to {_quantity(others[-1])} ({others[-1].stack})" if len(others) > 1 else ""
        text += f"; {_quantity(own)} ({own.stack})" if own else ""
        sentences.append(f"{text}.")
    return sentences


def _title(rule: HeadlineRule) -> str:
    return f"{rule.name}, {rule.text[0].lower()}{rule.text[1:]}"


def _too_few(summary: Summary) -> list[str]:
    """Name the headlines in which no stack has enough blocks for an interval, though others have."""
    known = {cell.headline for cell in summary.headlines if cell.low is not None}
    counts = {
        rule.name: max((cell.n for cell in summary.headlines if cell.headline == rule.name), default=0)
        for rule in summary.rules
        if rule.name not in known
    }
    texts = tuple(f"{name} (n={count})" for name, count in counts.items() if count)
    if not known or not texts:
        return []
    return [f"Too few blocks for an interval, which needs {least_count()}: {listing(texts)}."]


def _unranked(summary: Summary) -> list[str]:
    """Describe why stacks are missing from the ranking."""
    texts = []
    for stack in summary.overall.missing:
        cells = [summary.headline(name, stack) for name in summary.overall.workloads]
        lacking = [cell for cell in cells if cell.low is None]
        if lacking:
            texts.append(f"{stack} ({_lack(lacking, len(cells))})")
    return [f"Not ranked: {listing(tuple(texts))}."] if texts else []


def _lack(lacking: list[Cell], of: int) -> str:
    first = lacking[0]
    why = cut(reason(first) or "; ".join(first.notes), 70)
    words = {"skipped": "skipped", "failed": "failed", "too few blocks": "too few blocks"}.get(state(first), "no value")
    workloads = "" if len(lacking) == of else f" in {listing(tuple(cell.name for cell in lacking))}"
    return f"{words}{workloads}: {why}"


def _doubts(summary: Summary) -> list[str]:
    kinds = {caution.kind: None for cell in summary.headlines for caution in cell.cautions}
    return [f"Cautions touch these values: {listing(tuple(kinds))}."] if kinds else []


def _quantity(cell: Cell) -> str:
    return format_quantity(_value(cell), cell.unit)


def _value(cell: Cell) -> float:
    """Return the usual value, or the mean over trials where there is no ratio."""
    return (cell.mean or 0.0) if cell.usual is None else cell.usual
