"""Answer of `tare advise`: the recommended stack, and the predicted cost of each."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from tare.features.advise.advice import Advice, Candidate, Decision
from tare.features.advise.application_profile import SATURATED_SHARE
from tare.features.advise.calibration import MIN_REFERENCES
from tare.features.advise.cost_model import CostEstimate, CostItem, title_of
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
_MIN_SHARE = 0.005  # of the cost on bare metal: smaller cost items are not named
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
_OPTIONAL_COLUMNS = ("memory", "start-up", "money", "response")  # left out if no stack has a value
_FINE_HALF_WIDTH = 0.02  # a cost has a decimal if half of its interval is narrower: more digits would be noise


def answer(advice: Advice) -> Answer:
    """Return the answer of `tare advise`, which has failed if no stack is ranked.

    It carries an error if the cost of a stack is unknown, and none if all stacks miss a requirement.
    """
    texts = [_column_texts(advice, each) for each in advice.candidates]
    time = ("CPU", "90 %") if advice.by_cpu else ("time", "90 %", "CPU")
    optional = (name for name in _OPTIONAL_COLUMNS if any(row[name] for row in texts))
    names = ("rank", "stack", *time, *optional, "isolation", "mostly for")
    has_rank, error = bool(advice.with_decision("ranked")), None
    if not has_rank and advice.with_decision("cannot tell"):
        hint = "`tare prices` measures the unit costs of this machine; `tare profile` profiles the application again"
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
    """Return the texts of a stack's row by column; "" if unknown."""
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
    """Format a cost relative to bare metal: as a difference such as `+6.1 %`, or from twice on as a factor."""
    if is_factor(time.value):
        return f"\N{MULTIPLICATION SIGN}{format_factor(time.value, count_factor_digits(time.low, time.high))}"
    text = f"{(time.value - 1) * 100:+.{1 if _needs_decimal(time) else 0}f} %"
    return text.replace("-", "\N{MINUS SIGN}") if float(text[:-2]) else "0 %"


def format_interval(time: CostEstimate) -> str:
    """Format an interval in the same form as its estimate, as differences or factors; "" without an interval."""
    if time.low is None or time.high is None:
        return ""
    if is_factor(time.value):
        digits = count_factor_digits(time.low, time.high)
        return f"[{format_factor(time.low, digits)}, {format_factor(time.high, digits)}]"
    bounds = (f"{(bound - 1) * 100:+.{1 if _needs_decimal(time) else 0}f}" for bound in (time.low, time.high))
    return f"[{', '.join(bounds)}]".replace("-", "\N{MINUS SIGN}")


def _format_rank(candidate: Candidate) -> str:
    """Format a rank, or the range of possible ranks; a glyph if the candidate is not ranked."""
    if candidate.decision == "ranked":
        best, worst = candidate.best_rank, candidate.worst_rank
        return str(best) if best == worst else f"{best}\N{EN DASH}{worst}"
    return GLYPHS["skipped"] if candidate.decision == "excluded" else GLYPHS["too few blocks"]


def _format_reasons(candidate: Candidate) -> str:
    """Format the largest cost items, or why the candidate is not ranked."""
    if candidate.unmet or candidate.problems:
        prefix = "does not meet: " if candidate.unmet else "cannot tell: "
        return prefix + "; ".join(candidate.unmet or candidate.problems)
    named = [item for item in candidate.cost_items if abs(item.share.value) >= _MIN_SHARE][:_MAX_NAMED]
    return ", ".join(f"{format_share(item.share.value)} {item.title}" for item in named)


def _format_money(advice: Advice, candidate: Candidate) -> str:
    """Format the machines for the load, or the price of a machine-hour's work; "" if neither is known."""
    if (machines := candidate.machines) is None:
        has_price = candidate.hourly_price is not None and advice.options.load_per_second is None
        return f"{candidate.hourly_price:.4g}/h" if has_price else ""
    texts = [f"{machines.count:,} {machines.machine_type.name or 'machine' + 's' * (machines.count != 1)}"]
    if machines.hourly is not None:
        texts.append(f"{machines.hourly:.4g}/h")
    return ", ".join(texts)


def _format_response(candidate: Candidate) -> str:
    """Format the response time under the load, and the CPU usage of the machines; "" without a load."""
    if (machines := candidate.machines) is None:
        return ""
    return f"{format_duration(machines.response_seconds)} at {format_percent(machines.busy)}"


def _legend(advice: Advice) -> str:
    """Return the explanation of the table's numbers."""
    operations = advice.application.operations
    unit, baseline = advice.application.unit, advice.baseline
    cpu_time = format_quantity(operations.cpu_seconds, "s")
    native = f"{format_quantity(operations.elapsed_seconds, 's')}, CPU {cpu_time}"
    if operations.by_cpu:
        quantity, native = f"CPU: CPU time of a {unit}", cpu_time
    elif operations.is_saturated:
        quantity = f"time: of a {unit} at full load, the inverse of throughput"
    else:
        quantity = f"time: of a {unit}, one after the other; throughput may stay the same while CPUs are idle"
    return f"{quantity}; relative to {baseline} ({native}); {format_percent(RESAMPLED_CONFIDENCE)} interval"


def describe_waiting_load(advice: Advice) -> str:
    """Describe the CPU usage of an application that waited for requests; "" for other applications."""
    if not advice.by_cpu:
        return ""
    used, cpus = advice.application.operations.mean_cpus, advice.application.machine.cpus
    busy = f"{100 * used:.0f} %" if used >= _MIN_BUSY else "less than 1 %"
    usage = (
        f"is busy {busy} of the time" if used < SATURATED_SHARE else f"uses {used:.1f} of {cpus} CPUs, no thread always"
    )
    return f"At this load the server {usage}: the stacks differ in CPU time."


def _remarks(advice: Advice) -> tuple[str, ...]:
    """Return the notes below the table: cautions, missing figures, and the meaning of columns."""
    lines = []
    if orientation := orientation_notice(advice):
        lines.append(orientation)
    elif advice.machine_differences:
        hint = "; measure them here with `tare prices`, or add --across-machines"
        lines.append(
            "the unit costs are of another machine or kernel than the profile: "
            f"{'; '.join(advice.machine_differences)}{'' if advice.options.across_machines else hint}"
        )
    lines += [f"! profile: {each}" for each in advice.application.cautions]
    corrected = [each for each in advice.candidates if each.calibration]
    if not corrected:
        given = f" ({advice.reference_count} of {MIN_REFERENCES} given)" if advice.reference_count else ""
        lines.append(f"intervals cover noise, but not errors of the model: calibrate with --reference{given}")
    elif len(corrected) < len(advice.candidates):
        names = [each.stack for each in advice.candidates if not each.calibration]
        lines.append(
            f"not calibrated, as fewer than {MIN_REFERENCES} references were measured there: {join_some(names)}"
        )
    if advice.unpriced_kinds:
        lines.append(f"no unit cost of {join_names(tuple(map(title_of, advice.unpriced_kinds)))}")
    lines += _cautions(advice)
    lines += [f"profile: {each.rstrip('.')}" for each in advice.application.missing]
    if advice.options.load_per_second is not None:
        lines.append(
            "money: the fewest machines that carry the load; response: mean time of requests that arrive at random and"
            " wait only for CPUs, at this CPU usage of the machines"
        )
    elif advice.options.node_hourly_price is not None:
        hours = "hours of CPU time" if advice.by_cpu else "hours"
        lines.append(f"money: price of the {hours} for the work of one machine-hour on bare metal")
    return tuple(lines)


def orientation_notice(advice: Advice) -> str:
    """Return a warning that the built-in unit costs are of another machine; "" for a user's price list."""
    if advice.prices.folder != ORIENTATION:
        return ""
    record = advice.prices.record
    machine = record.instance_machine
    return (
        f"FOR ORIENTATION ONLY: the unit costs are of another machine ({machine.cpu_model}, {machine.cpus} CPUs,"
        f" Linux {machine.kernel}, {record.started[:10]}). Measure yours in 15 minutes: tare prices --out prices"
    )


def _cautions(advice: Advice) -> list[str]:
    """Return a line with the cautions about the unit costs and their stacks; no line without cautions."""
    stacks_by_kind: dict[str, list[str]] = {}
    for candidate in advice.candidates:
        for kind in candidate.cautions:
            stacks_by_kind.setdefault(kind, []).append(candidate.stack)
    count = len(advice.candidates)
    named = [
        f"{kind} ({'all' if len(stacks) == count else join_some(stacks)})" for kind, stacks in stacks_by_kind.items()
    ]
    return [f"! cautions about the unit costs: {join_names(tuple(named))}"] if named else []


def sentence(advice: Advice) -> str:
    """Return the recommendation as one sentence."""
    ranked, open_ones = advice.with_decision("ranked"), advice.with_decision("cannot tell")
    if not ranked:
        if not open_ones:
            return f"None of {len(advice.candidates)} stacks meets the needs."
        return f"Cannot tell: {open_ones[0].stack}: {'; '.join(open_ones[0].problems)}."
    first = ranked[0]
    tied = [each.stack for each in ranked[1:] if each.best_rank == 1]
    least = "costs the least CPU time" if advice.by_cpu else "costs the least"
    text = (
        f"{first.stack} {'probably ' if tied else ''}{least}: {format_cost(first.cost)} {format_interval(first.cost)}"
    )
    text = f"{text.rstrip()} relative to {advice.baseline}"
    if orientation_notice(advice):
        text = f"On that machine, {text}"
    if tied:
        text += f"; no certain difference to {join_some(tied)}"
    if open_ones:
        text += f"; unknown for {join_some([each.stack for each in open_ones])}"
    return f"{text}."


def _next_step(advice: Advice) -> tuple[str, ...]:
    """Return the lines of the next step: its command, then the suite of the command if it has one."""
    if (step := next_step(advice)) is None:
        return ()
    instruction = f"Next: {step.instruction}"
    return (instruction, *(f"    {line}".rstrip() for line in step.suite.splitlines()))


def _document(advice: Advice) -> dict[str, Any]:
    """Return the fields of the JSON output.

    Times of the application are those on bare metal. Shares are relative to the cost on bare metal, which is time or
    CPU time (`ranked_by`).
    """
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
    """Return the JSON fields of a candidate."""
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
        "lines": [_item_fields(item) for item in candidate.cost_items],
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
    """Format an extra cost relative to bare metal, such as `+3.2 %`."""
    decimals = 1 if abs(share) < 0.0995 else 0
    text = f"{share * 100:+.{decimals}f} %".replace("-", "\N{MINUS SIGN}")
    return text if float(f"{share * 100:.{decimals}f}") else text[1:]  # 0 has no sign


def format_share_interval(share: CostEstimate) -> str:
    """Format the interval of a share; "" without an interval."""
    if share.low is None or share.high is None:
        return ""
    return f"[{', '.join(format_share(end).removesuffix(' %') for end in (share.low, share.high))}]"
