"""Answer of `tare advise`: which stack an application should take, and what each would cost."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from tare.features.advise.advice import Advice, Candidate, Decision
from tare.features.advise.calibration import LEAST
from tare.features.advise.cost_model import SATURATED, Estimate, Line, title_of
from tare.features.advise.next_step import next_step
from tare.features.advise.unit_costs import FOLDER as ORIENTATION
from tare.model.errors import TareError
from tare.model.units import format_duration, format_quantity, format_size
from tare.report.answer import Answer, Column, Row
from tare.report.numbers import GLYPHS, factor, factor_digits, from_twice, listing, percent, some_of
from tare.statistics.bootstrap import RESAMPLED_CONFIDENCE

_STYLES: dict[Decision, str] = {"ranked": "default", "cannot tell": "dim", "excluded": "dim"}
_LEAST_SHARE = 0.005  # of the cost on bare metal: what a line must cost to be named
_NAMED = 3
_LEAST_BUSY = 0.01
_COLUMNS = {
    "rank": Column("rank"),
    "stack": Column("stack", "text"),
    "time": Column("time"),
    "90 %": Column("90 %"),
    "CPU": Column("CPU"),
    "memory": Column("memory"),
    "start-up": Column("start-up"),
    "money": Column("money"),
    "response": Column("response"),
    "isolation": Column("isolation", "text", only_wide=True),
    "mostly for": Column("mostly for", "prose"),
}
_OPTIONAL = ("memory", "start-up", "money", "response")  # columns that are left out where nothing is known
_FINE = 0.02  # half an interval, up to which a cost has a decimal


def answer(advice: Advice) -> Answer:
    """Return what `tare advise` found as an answer. It failed if no stack meets the needs."""
    texts = [_texts(advice, each) for each in advice.candidates]
    time = ("CPU", "90 %") if advice.by_cpu else ("time", "90 %", "CPU")
    optional = (name for name in _OPTIONAL if any(row[name] for row in texts))
    names = ("rank", "stack", *time, *optional, "isolation", "mostly for")
    has_rank, error = bool(advice.of("ranked")), None
    if not has_rank and advice.of("cannot tell"):
        hint = "`tare prices` measures prices of this machine; `tare profile` watches the application again"
        error = TareError(sentence(advice).rstrip("."), hint)
    return Answer(
        command="advise",
        columns=tuple(_COLUMNS[name] for name in names),
        rows=tuple(
            Row(tuple(row[name] for name in names), _STYLES[each.decision])
            for each, row in zip(advice.candidates, texts, strict=True)
        ),
        legend=_legend(advice),
        remarks=_remarks(advice),
        conclusions=(sentence(advice),),
        fields=partial(_document, advice),
        styled="",
        wide=110,
        warning=for_orientation(advice),
        opening=situation(advice),
        closing=_next_step(advice),
        failed=not has_rank,
        error=error,
    )


def _texts(advice: Advice, candidate: Candidate) -> dict[str, str]:
    """Return what the columns say of a stack."""
    size, seconds = candidate.memory_bytes, candidate.start_seconds
    return {
        "rank": _rank_of(candidate),
        "stack": candidate.stack,
        "time": cost_of(candidate.cost),
        "90 %": interval_of(candidate.cost),
        "CPU": cost_of(candidate.cpu),
        "memory": "" if size is None else format_size(size),
        "start-up": "" if seconds is None else format_duration(seconds),
        "money": _money_of(advice, candidate),
        "response": _response_of(candidate),
        "isolation": candidate.isolation_level,
        "mostly for": _reasons_of(candidate),
    }


def cost_of(time: Estimate) -> str:
    """Write how much longer something takes than on bare metal: `+6.1 %`, or as a factor from twice on."""
    if from_twice(time.value):
        return f"\N{MULTIPLICATION SIGN}{factor(time.value, factor_digits(time.low, time.high))}"
    text = f"{(time.value - 1) * 100:+.{1 if _is_fine(time) else 0}f} %"
    return text.replace("-", "\N{MINUS SIGN}") if float(text[:-2]) else "0 %"


def interval_of(time: Estimate) -> str:
    """Write the interval in the terms of its estimate; empty where there is none."""
    if time.low is None or time.high is None:
        return ""
    if from_twice(time.value):
        digits = factor_digits(time.low, time.high)
        return f"[{factor(time.low, digits)}, {factor(time.high, digits)}]"
    ends = (f"{(end - 1) * 100:+.{1 if _is_fine(time) else 0}f}" for end in (time.low, time.high))
    return f"[{', '.join(ends)}]".replace("-", "\N{MINUS SIGN}")


def _rank_of(candidate: Candidate) -> str:
    """Write a rank, or the ranks that are possible; a glyph where there is none."""
    if candidate.decision == "ranked":
        ends = (candidate.best, candidate.worst)
        return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}\N{EN DASH}{ends[1]}"
    return GLYPHS["skipped"] if candidate.decision == "excluded" else GLYPHS["too few blocks"]


def _reasons_of(candidate: Candidate) -> str:
    """Write what most of the cost is for; of what is not ranked, why."""
    if candidate.unmet or candidate.doubts:
        kind = "does not meet: " if candidate.unmet else "cannot tell: "
        return kind + "; ".join(candidate.unmet or candidate.doubts)
    named = [line for line in candidate.lines if abs(line.share.value) >= _LEAST_SHARE][:_NAMED]
    return ", ".join(f"{share_of(line.share.value)} {line.title}" for line in named)


def _money_of(advice: Advice, candidate: Candidate) -> str:
    """Write what the work of one machine on bare metal costs an hour, or the machines for the load; may be empty."""
    if (machines := candidate.machines) is None:
        return "" if candidate.hourly is None or advice.asked.load is not None else f"{candidate.hourly:.4g}/h"
    texts = [f"{machines.count:,} {machines.kind.name or 'machine' + 's' * (machines.count != 1)}"]
    if machines.hourly is not None:
        texts.append(f"{machines.hourly:.4g}/h")
    return ", ".join(texts)


def _response_of(candidate: Candidate) -> str:
    """Write how long a request takes under the load, and how busy the machines are; empty without a load."""
    if (machines := candidate.machines) is None:
        return ""
    return f"{format_duration(machines.response_seconds)} at {percent(machines.busy)}"


def _legend(advice: Advice) -> str:
    """Describe what the numbers of the table are."""
    basket = advice.application.basket
    unit, baseline = advice.application.unit, advice.baseline
    own = f"{format_quantity(basket.elapsed_seconds, 's')}, {format_quantity(basket.cpu_seconds, 's')} of CPU"
    if basket.by_cpu:
        what, own = f"CPU time of a {unit}", format_quantity(basket.cpu_seconds, "s")
    elif basket.is_saturated:
        what = f"time of a {unit} with its CPUs always in use, the inverse of throughput"
    else:
        what = f"time of a {unit} where one is done after the other; while CPUs are idle, throughput may stay the same"
    return f"{what}: beyond {baseline} ({own}), with its interval of {percent(RESAMPLED_CONFIDENCE)}"


def situation(advice: Advice) -> str:
    """Describe what can change for an application that waits for requests; empty for others."""
    if not advice.by_cpu:
        return ""
    used, cpus = advice.application.basket.mean_cpus, advice.application.machine.cpus
    busy = f"{100 * used:.0f} %" if used >= _LEAST_BUSY else "less than 1 %"
    how = f"is busy {busy} of the time" if used < SATURATED else f"uses {used:.1f} of {cpus} CPUs, no thread always"
    return f"At this load the server {how}: what changes is CPU time."


def _remarks(advice: Advice) -> tuple[str, ...]:
    """Return all that is to be known beside the table."""
    lines = []
    if orientation := for_orientation(advice):
        lines.append(orientation)
    elif advice.unlike:
        doubt = (
            "" if advice.asked.across_machines else "; measure prices here with `tare prices`, or say --across-machines"
        )
        lines.append(f"the prices are of another machine or kernel than the profile: {'; '.join(advice.unlike)}{doubt}")
    lines += [f"! of the profile: {each}" for each in advice.application.cautions]
    corrected = [each for each in advice.candidates if each.correction]
    if not corrected:
        why = (
            f"there are {advice.references} of {LEAST} reference applications"
            if advice.references
            else "no --reference"
        )
        lines.append(f"intervals hold the noise of prices and profile, not what the model misses: {why}")
    elif len(corrected) < len(advice.candidates):
        names = [each.stack for each in advice.candidates if not each.correction]
        lines.append(f"not corrected, as fewer than {LEAST} references were measured there: {some_of(names)}")
    if advice.unpriced:
        lines.append(f"no prices of {listing(tuple(map(title_of, advice.unpriced)))}")
    lines += _cautions(advice)
    lines += [f"of the profile: {each.rstrip('.')}" for each in advice.application.missing]
    if advice.asked.load is not None:
        lines.append(
            "money and response: of the fewest machines that keep up, at this share of their CPU time; the mean time of"
            " a request that comes at random, without what it waits for beside CPUs"
        )
    elif advice.asked.node_price is not None:
        hours = "hours of CPU time" if advice.by_cpu else "hours"
        lines.append(f"money: the price of the {hours} that the work of one machine-hour on bare metal takes")
    return tuple(lines)


def for_orientation(advice: Advice) -> str:
    """Return of which machine prices are that tare has brought, and how to measure one's own; empty for others."""
    if advice.prices.folder != ORIENTATION:
        return ""
    record = advice.prices.record
    machine = record.measured_on
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
    named = [f"{kind} ({'all' if len(own) == many else some_of(own)})" for kind, own in stacks.items()]
    return [f"! cautions touch the prices: {listing(tuple(named))}"] if named else []


def sentence(advice: Advice) -> str:
    """Describe in one sentence which stack to take."""
    ranked, open_ones = advice.of("ranked"), advice.of("cannot tell")
    if not ranked:
        if not open_ones:
            return f"None of {len(advice.candidates)} stacks meets the needs."
        return f"Cannot tell: {open_ones[0].stack}: {'; '.join(open_ones[0].doubts)}."
    first = ranked[0]
    tied = [each.stack for each in ranked[1:] if each.best == 1]
    least = "costs the least CPU time" if advice.by_cpu else "costs the least"
    found = f"{first.stack} {'probably ' if tied else ''}{least}: {cost_of(first.cost)} {interval_of(first.cost)}"
    found = f"{found.rstrip()} relative to {advice.baseline}"
    if for_orientation(advice):
        found = f"On another machine, {found}"
    if tied:
        found += f"; no certain difference to {some_of(tied)}"
    if open_ones:
        found += f"; cannot tell of {some_of([each.stack for each in open_ones])}"
    return f"{found}."


def _next_step(advice: Advice) -> tuple[str, ...]:
    """Return what to do next, with the suite that it needs below it."""
    if (step := next_step(advice)) is None:
        return ()
    what = f"{'Check' if advice.is_settled else 'Settle'} it: {step.how}"
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
            "cpu_seconds": application.basket.cpu_seconds,
            "elapsed_seconds": None if advice.by_cpu else application.basket.elapsed_seconds,
            "cpus_in_use": application.basket.mean_cpus,
            "saturated": application.basket.is_saturated,
            "counts": dict(application.basket.counts),
            "machine": asdict(application.machine),
            "missing": application.missing,
            "cautions": application.cautions,
        },
        "prices": {
            "folder": str(advice.prices.folder),
            "for_orientation": bool(for_orientation(advice)),
            "started": record.started,
            "tare": record.tare,
            "machine": asdict(record.measured_on),
        },
        "references": advice.references,
        "ranked_by": "cpu" if advice.by_cpu else "time",
        "cells": [_fields(each, advice.by_cpu) for each in advice.candidates],
        "situation": situation(advice) or None,
        "answer": sentence(advice),
        "settled": advice.is_settled,
        "try": step and step.command,
        "suite": (step and step.suite) or None,
        "remarks": _remarks(advice),
    }


def _fields(candidate: Candidate, by_cpu: bool) -> dict[str, Any]:
    """Return a candidate as what JSON can hold."""
    correction = candidate.correction
    return {
        "stack": candidate.stack,
        "decision": candidate.decision,
        "rank": [candidate.best, candidate.worst] if candidate.decision == "ranked" else None,
        **_ends("time", None if by_cpu else candidate.cost),
        **_ends("cpu", candidate.cpu),
        "n": candidate.bill.blocks,
        "isolation": candidate.isolation_level,
        "isolation_reason": candidate.isolation.explanation if candidate.isolation else "",
        "memory_bytes": candidate.memory_bytes,
        "start_seconds": candidate.start_seconds,
        "hourly": candidate.hourly,
        "machines": candidate.machines and asdict(candidate.machines) | {"hourly": candidate.machines.hourly},
        "unmet": candidate.unmet,
        "doubts": candidate.doubts,
        "cautions": candidate.cautions,
        "references": correction.applications if correction else 0,
        "lines": [_line(line) for line in candidate.lines],
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "kind": line.kind,
        "count": line.count,
        "price": line.price,
        "ratio": line.ratio,
        **_ends("share", line.share),
    }


def _ends(name: str, found: Estimate | None) -> dict[str, float | None]:
    values = (None, None, None) if found is None else (found.value, found.low, found.high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _is_fine(time: Estimate) -> bool:
    return time.low is not None and time.high is not None and (time.high - time.low) / 2 < _FINE


def share_of(share: float) -> str:
    """Write a share of the time on bare metal that is paid or saved."""
    decimals = 1 if abs(share) < 0.0995 else 0
    return f"{share * 100:+.{decimals}f} %".replace("-", "\N{MINUS SIGN}")


def shares_of(share: Estimate) -> str:
    """Write the interval of a share; empty where there is none."""
    if share.low is None or share.high is None:
        return ""
    return f"[{', '.join(share_of(end).removesuffix(' %') for end in (share.low, share.high))}]"
