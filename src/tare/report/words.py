"""The answer of a run in plain words, for the report's first paragraph and the end of `tare run`."""

from __future__ import annotations

from collections.abc import Sequence

from tare.model import Facts
from tare.report.numbers import cut, estimate, interval, listing, percent, reason, resolved, state
from tare.statistics.anytime import least_count
from tare.statistics.cells import LASTING, Cell, Overall, Summary
from tare.units import format_quantity, format_size

_NAMED = 6  # in a sentence


def answer(summary: Summary, machine: Facts) -> tuple[str, ...]:
    """Give the sentences that say which stack to take, what cannot be told apart, and what is not ranked."""
    sentences = [
        *_cheapest(summary, machine),
        *_inseparable(summary),
        *_dearest(summary),
        *_startup(summary),
        *_unranked(summary),
        *trust(summary),
        *_doubts(summary),
    ]
    return tuple(sentences)


def trust(summary: Summary) -> list[str]:
    """Say how far the decisions may be trusted: what could be resolved, and what would hold where noise lasts."""
    return [*resolution(summary), *firmness([cell for cell in summary.headlines if cell.stack != summary.again])]


def resolution(summary: Summary) -> list[str]:
    """Say what difference could be told from none today, by the baseline compared with itself (A/A)."""
    cells = [cell for cell in summary.headlines if cell.stack == summary.again and cell.ratio is not None]
    known = tuple(f"{cell.workload} {resolved(cell)}" for cell in cells if cell.low is not None)
    different = tuple(f"{cell.workload} {estimate(cell)} {interval(cell)}" for cell in cells if _differs(cell))
    sentences = []
    if known:
        sentences.append(
            f"{summary.baseline} against itself (A/A) shows what could be resolved here: {listing(known)}."
        )
    if different:
        doubt = "something on this machine favors a trial over another: doubt differences of this size"
        sentences.append(f"A/A found {summary.baseline} different from itself in {listing(different)}: {doubt}.")
    return sentences


def firmness(cells: Sequence[Cell]) -> list[str]:
    """Say how many decisions would hold where noise lasts from block to block, and how many would not."""
    decided = [cell for cell in cells if cell.decided]
    if not decided:
        return []
    thin = [f"{cell.stack} in {cell.workload}" for cell in decided if not cell.is_firm]
    firm, many = len(decided) - len(thin), len(decided)
    lasting = f"would hold even if noise lasted from block to block (a correlation of {LASTING:g})"
    resting = "on blocks that do not depend on each other"
    if not thin:
        return [f"{f'All {many} decisions' if many > 1 else 'The one decision'} {lasting}."]
    if not firm:
        return [f"{f'All {many} decisions rest' if many > 1 else 'The one decision rests'} {resting}."]
    more = (f"{len(thin) - _NAMED} more",) if len(thin) > _NAMED else ()
    names = listing((*thin[:_NAMED], *more))
    return [f"Of {many} decisions, {firm} {lasting}; {names} {'rest' if len(thin) > 1 else 'rests'} {resting}."]


def steadiness(summary: Summary, workload: str) -> tuple[str, ...]:
    """Say what moved a workload's values beside the stacks: the block, the place in it, and the block before."""
    effect = summary.effect(workload)
    cells = [cell for cell in summary.headlines if cell.workload == workload and cell.low is not None]
    sentences = []
    if effect:
        moved = f"From block to block, all values moved together by {percent(effect.blocks)} (standard deviation)"
        sentences.append(f"{moved}, which cancels out; {percent(effect.error)} was left.")
        if effect.ordered:
            place = f"{effect.place * 100:+.2g} % [{effect.low * 100:.2g}, {effect.high * 100:.2g}]"
            sentences.append(f"The place in a block mattered: {place} for each place later. The order is random.")
    if cells:
        most = max(cells, key=lambda cell: cell.correlation)
        much = f"{most.correlation:.2f} ({most.stack})"
        sentences.append(f"The largest correlation of a block's ratio with the one before it is {much}.")
    sentences += [f"{cell.stack}: {note}." for cell in cells for note in cell.notes]
    return tuple(sentences)


def _differs(cell: Cell) -> bool:
    return cell.low is not None and cell.high is not None and not cell.low <= 1 <= cell.high


def place(machine: Facts) -> str:
    """Name a machine in a few words; leaves out what it does not say."""
    parts = (
        machine.cpu_model,
        f"{machine.cpus} CPUs" if machine.cpus > 1 else f"{machine.cpus} CPU" if machine.cpus else "",
        format_size(machine.memory_bytes) if machine.memory_bytes else "",
        machine.operating_system,
    )
    return ", ".join(part for part in parts if part)


def _cheapest(summary: Summary, machine: Facts) -> list[str]:
    overall, baseline = summary.overall, summary.baseline
    where = f"On this machine ({place(machine)})" if place(machine) else "On this machine"
    if not overall.standings:
        return [f"{where}, no stack can be ranked yet: none has a value beside {baseline} in every workload."]
    best = overall.standings[0]
    if best.low is None:
        why = f"some values rest on fewer than {least_count()} blocks, which have no interval"
        return [f"{where}, nothing can be told apart yet: {why}. Run more blocks."]
    others = f"the cheapest of {len(overall.standings)} stacks was" if len(overall.standings) > 1 else "the stack"
    verb = "it kept" if len(overall.standings) > 1 else "kept"
    comma = ":" if len(overall.standings) > 1 else ""
    text = f"{where}, {others} {best.stack}{comma} {verb} {estimate(best)} of {baseline}'s speed"
    text += f" {interval(best)}" if interval(best) else ""
    sentences = [f"{text} over {_works(overall)}."]
    if overall.tied:
        sentences.append(f"{listing(overall.tied)} cannot be told from {best.stack}.")
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
        sentences.append(f"{listing(unsure)} cannot be told from {summary.baseline} with these blocks.")
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
    return [f"The most expensive was {last.stack}, at {estimate(last)} of {summary.baseline}'s speed {interval(last)}."]


def _startup(summary: Summary) -> list[str]:
    """Name the quickest and slowest of the workloads that are no speed over time but a start."""
    sentences = []
    for workload in summary.workloads:
        if workload in summary.overall.workloads:
            continue
        cells = [cell for cell in summary.headlines if cell.workload == workload and cell.mean is not None]
        own_names = (summary.baseline, summary.again)
        others = sorted((cell for cell in cells if cell.stack not in own_names), key=lambda cell: cell.mean or 0.0)
        if not others:
            continue
        own = next((cell for cell in cells if cell.verdict == "baseline"), None)
        text = f"For {workload}, {others[0].stack} took {_quantity(others[0])}"
        text += f" and {others[-1].stack} {_quantity(others[-1])}" if len(others) > 1 else ""
        text += f"; {own.stack} {_quantity(own)}" if own else ""
        sentences.append(f"{text}.")
    return sentences


def _unranked(summary: Summary) -> list[str]:
    """Say why stacks are missing from the ranking."""
    texts = []
    for stack in summary.overall.missing:
        cells = [summary.headline(workload, stack) for workload in summary.overall.workloads]
        lacking = [cell for cell in cells if cell.ratio is None]
        if lacking:
            texts.append(f"{stack} ({_lack(lacking, len(cells))})")
    return [f"Not ranked: {listing(tuple(texts))}."] if texts else []


def _lack(lacking: list[Cell], of: int) -> str:
    first = lacking[0]
    why = cut(reason(first) or "; ".join(first.notes), 70)
    words = {"skipped": "skipped", "failed": "failed"}.get(state(first), "no value")
    where = "" if len(lacking) == of else f" in {listing(tuple(cell.workload for cell in lacking))}"
    return f"{words}{where}: {why}"


def _doubts(summary: Summary) -> list[str]:
    kinds = {caution.kind: None for cell in summary.headlines for caution in cell.cautions}
    return [f"Cautions touch these values: {listing(tuple(kinds))}."] if kinds else []


def _works(overall: Overall) -> str:
    return listing(overall.workloads)


def _quantity(cell: Cell) -> str:
    return format_quantity(cell.mean or 0.0, cell.unit)
