"""Answer of `tare advise`: which stack an application should take, and what each would cost."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from tare.features.advise.advice import Advice, Candidate, Decision
from tare.features.advise.calibration import MIN_REFERENCES
from tare.features.advise.cost_model import SATURATED_SHARE, CostEstimate, CostItem, title_of
from tare.features.advise.next_step import next_step
from tare.features.advise.unit_costs import FOLDER as ORIENTATION
from tare.model.errors import TareError
from tare.model.units import format_duration, format_quantity, format_size
from tare.report.answer import Answer, AnswerColumn, AnswerRow
from tare.report.numbers import (
    GLYPHS,
    count_factor_digits,
    format_factor,
    format_percent,
    is_factor,
    join_names,
    join_some,
)
from tare.statistics.bootstrap import RESAMPLED_CONFIDENCE

_STYLES: dict[Decision, str] = {"ranked": "default", "cannot tell": "dim", "excluded": "dim"}
_MIN_SHARE = 0.005  # of the cost on bare metal: what a line must cost to be named
_MAX_NAMED = 3
_MIN_BUSY = 0.01
_COLUMNS = {
    "rank": AnswerColumn("rank"),
    "stack": AnswerColumn("stack", "text"),
    "time": AnswerColumn("time"),
    "90 %": AnswerColumn("90 %"),
    "CPU": AnswerColumn("CPU"),
    "memory": AnswerColumn("memory"),
    "start-up": AnswerColumn("start-up"),
    "money": AnswerColumn("money"),
    "response": AnswerColumn("response"),
    "isolation": AnswerColumn("isolation", "text", only_wide=True),
    "mostly for": AnswerColumn("mostly for", "prose"),
}
_OPTIONAL_COLUMNS = ("memory", "start-up", "money", "response")  # columns that are left out where nothing is known
_FINE_HALF_WIDTH = 0.02  # half an interval, up to which a cost has a decimal


def answer(advice: Advice) -> Answer:
    """Return what `tare advise` found as an answer. It failed if no stack meets the needs."""
    texts = [_column_texts(advice, each) for each in advice.candidates]
    time = ("CPU", "90 %") if advice.by_cpu else ("time", "90 %", "CPU")
    optional = (name for name in _OPTIONAL_COLUMNS if any(row[name] for row in texts))
    names = ("rank", "stack", *time, *optional, "isolation", "mostly for")
    has_rank, error = bool(advice.with_decision("ranked")), None
    if not has_rank and advice.with_decision("cannot tell"):
        hint = "`tare prices` measures prices of this machine; `tare profile` watches the application again"
        error = TareError(sentence(advice).rstrip("."), hint)
    return Answer(
        command="advise",
        columns=tuple(_COLUMNS[name] for name in names),
        rows=tuple(
            AnswerRow(tuple(row[name] for name in names), _STYLES[each.decision])
            for each, row in zip(advice.candidates, texts, strict=True)
        ),
        legend=_legend(advice),
        remarks=_remarks(advice),
        conclusions=(sentence(advice),),
        fields=partial(_document, advice),
        styled="",
        wide=110,
        warning=orientation_notice(advice),
        opening=describe_waiting_load(advice),
        closing=_next_step(advice),
        failed=not has_rank,
        error=error,
    )


def _column_texts(advice: Advice, candidate: Candidate) -> dict[str, str]:
    """Return what the columns say of a stack."""
    size, seconds = candidate.memory_bytes, candidate.start_seconds
    return {
        "rank": _format_rank(candidate),
        "stack": candidate.stack,
        "time": format_cost(candidate.cost),
        "90 %": format_interval(candidate.cost),
        "CPU": format_cost(candidate.cpu),
        "memory": "" if size is None else format_size(size),
        "start-up": "" if seconds is None else format_duration(seconds),
        "money": _format_money(advice, candidate),
        "response": _format_response(candidate),
        "isolation": candidate.isolation_level,
        "mostly for": _format_reasons(candidate),
    }


def format_cost(time: CostEstimate) -> str:
    """Write how much longer something takes than on bare metal: `+6.1 %`, or as a factor from twice on."""
    if is_factor(time.value):
        return f"\N{MULTIPLICATION SIGN}{format_factor(time.value, count_factor_digits(time.low, time.high))}"
    text = f"{(time.value - 1) * 100:+.{1 if _needs_decimal(time) else 0}f} %"
    return text.replace("-", "\N{MINUS SIGN}") if float(text[:-2]) else "0 %"


def format_interval(time: CostEstimate) -> str:
    """Write the interval in the terms of its estimate; empty where there is none."""
    if time.low is None or time.high is None:
        return ""
    if is_factor(time.value):
        digits = count_factor_digits(time.low, time.high)
        return f"[{format_factor(time.low, digits)}, {format_factor(time.high, digits)}]"
    ends = (f"{(end - 1) * 100:+.{1 if _needs_decimal(time) else 0}f}" for end in (time.low, time.high))
    return f"[{', '.join(ends)}]".replace("-", "\N{MINUS SIGN}")


def _format_rank(candidate: Candidate) -> str:
    """Write a rank, or the ranks that are possible; a glyph where there is none."""
    if candidate.decision == "ranked":
        ends = (candidate.best_rank, candidate.worst_rank)
        return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}\N{EN DASH}{ends[1]}"
    return GLYPHS["skipped"] if candidate.decision == "excluded" else GLYPHS["too few blocks"]


def _format_reasons(candidate: Candidate) -> str:
    """Write what most of the cost is for; of what is not ranked, why."""
    if candidate.unmet or candidate.problems:
        kind = "does not meet: " if candidate.unmet else "cannot tell: "
        return kind + "; ".join(candidate.unmet or candidate.problems)
    named = [line for line in candidate.cost_items if abs(line.share.value) >= _MIN_SHARE][:_MAX_NAMED]
    return ", ".join(f"{format_share(line.share.value)} {line.title}" for line in named)


def _format_money(advice: Advice, candidate: Candidate) -> str:
    """Write what the work of one machine on bare metal costs an hour, or the machines for the load; may be empty."""
    if (machines := candidate.machines) is None:
        return (
            ""
            if candidate.hourly_price is None or advice.options.load_per_second is not None
            else f"{candidate.hourly_price:.4g}/h"
        )
    texts = [f"{machines.count:,} {machines.kind.name or 'machine' + 's' * (machines.count != 1)}"]
    if machines.hourly is not None:
        texts.append(f"{machines.hourly:.4g}/h")
    return ", ".join(texts)


def _format_response(candidate: Candidate) -> str:
    """Write how long a request takes under the load, and how busy the machines are; empty without a load."""
    if (machines := candidate.machines) is None:
        return ""
    return f"{format_duration(machines.response_seconds)} at {format_percent(machines.busy)}"


def _legend(advice: Advice) -> str:
    """Describe what the numbers of the table are."""
    basket = advice.application.operations
    unit, baseline = advice.application.unit, advice.baseline
    own = f"{format_quantity(basket.elapsed_seconds, 's')}, {format_quantity(basket.cpu_seconds, 's')} of CPU"
    if basket.by_cpu:
        what, own = f"CPU time of a {unit}", format_quantity(basket.cpu_seconds, "s")
    elif basket.is_saturated:
        what = f"time of a {unit} with its CPUs always in use, the inverse of throughput"
    else:
        what = f"time of a {unit} where one is done after the other; while CPUs are idle, throughput may stay the same"
    return f"{what}: beyond {baseline} ({own}), with its interval of {format_percent(RESAMPLED_CONFIDENCE)}"


def describe_waiting_load(advice: Advice) -> str:
    """Describe what can change for an application that waits for requests; empty for others."""
    if not advice.by_cpu:
        return ""
    used, cpus = advice.application.operations.mean_cpus, advice.application.machine.cpus
    busy = f"{100 * used:.0f} %" if used >= _MIN_BUSY else "less than 1 %"
    how = (
        f"is busy {busy} of the time" if used < SATURATED_SHARE else f"uses {used:.1f} of {cpus} CPUs, no thread always"
    )
    return f"At this load the server {how}: what changes is CPU time."


def _remarks(advice: Advice) -> tuple[str, ...]:
    """Return all that is to be known beside the table."""
    lines = []
    if orientation := orientation_notice(advice):
        lines.append(orientation)
    elif advice.machine_differences:
        doubt = (
            ""
            if advice.options.across_machines
            else "; measure prices here with `tare prices`, or say --across-machines"
        )
        lines.append(
            "the unit costs are of another machine or kernel than the profile: "
            f"{'; '.join(advice.machine_differences)}{doubt}"
        )
    lines += [f"! of the profile: {each}" for each in advice.application.cautions]
    corrected = [each for each in advice.candidates if each.calibration]
    if not corrected:
        why = (
            f"there are {advice.reference_count} of {MIN_REFERENCES} reference applications"
            if advice.reference_count
            else "no --reference"
        )
        lines.append(f"intervals hold the noise of prices and profile, not what the model misses: {why}")
    elif len(corrected) < len(advice.candidates):
        names = [each.stack for each in advice.candidates if not each.calibration]
        lines.append(
            f"not corrected, as fewer than {MIN_REFERENCES} references were measured there: {join_some(names)}"
        )
    if advice.unpriced_kinds:
        lines.append(f"no prices of {join_names(tuple(map(title_of, advice.unpriced_kinds)))}")
    lines += _cautions(advice)
    lines += [f"of the profile: {each.rstrip('.')}" for each in advice.application.missing]
    if advice.options.load_per_second is not None:
        lines.append(
            "money and response: of the fewest machines that keep up, at this share of their CPU time; the mean time of"
            " a request that comes at random, without what it waits for beside CPUs"
        )
    elif advice.options.node_hourly_price is not None:
        hours = "hours of CPU time" if advice.by_cpu else "hours"
        lines.append(f"money: the price of the {hours} that the work of one machine-hour on bare metal takes")
    return tuple(lines)


def orientation_notice(advice: Advice) -> str:
    """Return of which machine prices are that tare has brought, and how to measure one's own; empty for others."""
    if advice.prices.folder != ORIENTATION:
        return ""
    record = advice.prices.record
    machine = record.instance_machine
    return (
        f"FOR ORIENTATION ONLY: these prices are not of your machine, but of one with {machine.cpus} CPUs,"
        f" {machine.cpu_model}, Linux {machine.kernel}, on {record.started[:10]}."
        " Prices of yours take 15 minutes: tare prices --out prices"
    )


def _cautions(advice: Advice) -> list[str]:
    """Describe which cautions touch the prices, and those of which stacks."""
    stacks: dict[str, list[str]] = {}
    for candidate in advice.candidates:
        for kind in candidate.cautions:
            stacks.setdefault(kind, []).append(candidate.stack)
    many = len(advice.candidates)
    named = [f"{kind} ({'all' if len(own) == many else join_some(own)})" for kind, own in stacks.items()]
    return [f"! cautions touch the prices: {join_names(tuple(named))}"] if named else []


def sentence(advice: Advice) -> str:
    """Describe in one sentence which stack to take."""
    ranked, open_ones = advice.with_decision("ranked"), advice.with_decision("cannot tell")
    if not ranked:
        if not open_ones:
            return f"None of {len(advice.candidates)} stacks meets the needs."
        return f"Cannot tell: {open_ones[0].stack}: {'; '.join(open_ones[0].problems)}."
    first = ranked[0]
    tied = [each.stack for each in ranked[1:] if each.best_rank == 1]
    least = "costs the least CPU time" if advice.by_cpu else "costs the least"
    found = (
        f"{first.stack} {'probably ' if tied else ''}{least}: {format_cost(first.cost)} {format_interval(first.cost)}"
    )
    found = f"{found.rstrip()} relative to {advice.baseline}"
    if orientation_notice(advice):
        found = f"On another machine, {found}"
    if tied:
        found += f"; no certain difference to {join_some(tied)}"
    if open_ones:
        found += f"; cannot tell of {join_some([each.stack for each in open_ones])}"
    return f"{found}."


def _next_step(advice: Advice) -> tuple[str, ...]:
    """Return what to do next, with the suite that it needs below it."""
    if (step := next_step(advice)) is None:
        return ()
    what = f"{'Check' if advice.is_settled else 'Settle'} it: {step.instruction}"
    return (what, *(f"    {line}".rstrip() for line in step.suite.splitlines()))


def _document(advice: Advice) -> dict[str, Any]:
    """Return what JSON has. Times are those of bare metal, shares are of the cost on bare metal, time or CPU time."""
    application, record = advice.application, advice.prices.record
    step = next_step(advice)
    return {
        "baseline": advice.baseline,
        "confidence": RESAMPLED_CONFIDENCE,
        "application": {
            "name": application.name,
            "unit": application.unit,
            "cpu_seconds": application.operations.cpu_seconds,
            "elapsed_seconds": None if advice.by_cpu else application.operations.elapsed_seconds,
            "cpus_in_use": application.operations.mean_cpus,
            "saturated": application.operations.is_saturated,
            "counts": dict(application.operations.counts),
            "machine": asdict(application.machine),
            "missing": application.missing,
            "cautions": application.cautions,
        },
        "prices": {
            "folder": str(advice.prices.folder),
            "for_orientation": bool(orientation_notice(advice)),
            "started": record.started,
            "tare": record.tare,
            "machine": asdict(record.instance_machine),
        },
        "references": advice.reference_count,
        "ranked_by": "cpu" if advice.by_cpu else "time",
        "cells": [_candidate_fields(each, advice.by_cpu) for each in advice.candidates],
        "situation": describe_waiting_load(advice) or None,
        "answer": sentence(advice),
        "settled": advice.is_settled,
        "try": step and step.command,
        "suite": (step and step.suite) or None,
        "remarks": _remarks(advice),
    }


def _candidate_fields(candidate: Candidate, by_cpu: bool) -> dict[str, Any]:
    """Return a candidate as what JSON can hold."""
    correction = candidate.calibration
    return {
        "stack": candidate.stack,
        "decision": candidate.decision,
        "rank": [candidate.best_rank, candidate.worst_rank] if candidate.decision == "ranked" else None,
        **_interval_fields("time", None if by_cpu else candidate.cost),
        **_interval_fields("cpu", candidate.cpu),
        "n": candidate.breakdown.block_count,
        "isolation": candidate.isolation_level,
        "isolation_reason": candidate.isolation.explanation if candidate.isolation else "",
        "memory_bytes": candidate.memory_bytes,
        "start_seconds": candidate.start_seconds,
        "hourly": candidate.hourly_price,
        "machines": candidate.machines and asdict(candidate.machines) | {"hourly": candidate.machines.hourly},
        "unmet": candidate.unmet,
        "doubts": candidate.problems,
        "cautions": candidate.cautions,
        "references": correction.reference_count if correction else 0,
        "lines": [_item_fields(line) for line in candidate.cost_items],
    }


def _item_fields(item: CostItem) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "count": item.count,
        "price": item.price,
        "ratio": item.ratio,
        **_interval_fields("share", item.share),
    }


def _interval_fields(name: str, estimate: CostEstimate | None) -> dict[str, float | None]:
    values = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _needs_decimal(time: CostEstimate) -> bool:
    return time.low is not None and time.high is not None and (time.high - time.low) / 2 < _FINE_HALF_WIDTH


def format_share(share: float) -> str:
    """Write a share of the time on bare metal that is paid or saved."""
    decimals = 1 if abs(share) < 0.0995 else 0
    return f"{share * 100:+.{decimals}f} %".replace("-", "\N{MINUS SIGN}")


def format_share_interval(share: CostEstimate) -> str:
    """Write the interval of a share; empty where there is none."""
    if share.low is None or share.high is None:
        return ""
    return f"[{', '.join(format_share(end).removesuffix(' %') for end in (share.low, share.high))}]"
