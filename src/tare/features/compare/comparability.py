"""Whether two runs can be compared at all, and what is different about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tare.model.errors import UsageError
from tare.model.journal import Run, RunRecord
from tare.model.machine import Facts
from tare.model.trial import Limits, Trial
from tare.model.units import format_count, format_size, to_singular

# What makes a machine another one. Its kernel and operating system are software, which may be what one compares.
_MACHINE_FACTS = {
    "architecture": "architecture",
    "cpu_model": "CPU",
    "cpus": "number of CPUs",
    "virtualization": "virtualization below",
    "clock_source": "clock source",
}
# How much memory Linux reports depends on what its kernel keeps.
_MEMORY_TOLERANCE = 0.05
_MAX_PACKAGES_SHOWN = 5


def require_one_machine(before: Run, after: Run) -> None:
    """Raise UsageError where the two runs are of unlike machines."""
    if apart := run_machine_differences(before, after):
        raise UsageError(
            f"the runs are of unlike machines: {'; '.join(apart)}",
            "compare runs of one machine, or say --across-machines",
        )


def run_machine_differences(before: Run, after: Run) -> tuple[str, ...]:
    """State what makes the machines of two runs unlike."""
    return machine_differences(before.record.machine, after.record.machine, ("before", "after"))


def machine_differences(one: Facts, other: Facts, labels: tuple[str, str]) -> tuple[str, ...]:
    """State what makes two machines unlike; `labels` are the words that say which of them is which."""
    apart = [
        f"{name}: {_format_value(getattr(one, fact))} {labels[0]}, {_format_value(getattr(other, fact))} {labels[1]}"
        for fact, name in _MACHINE_FACTS.items()
        if getattr(one, fact) != getattr(other, fact)
    ]
    if has_different_memory(one, other):
        sizes = [format_size(facts.memory_bytes) if facts.memory_bytes else "unknown" for facts in (one, other)]
        apart.append(f"memory: {sizes[0]} {labels[0]}, {sizes[1]} {labels[1]}")
    return tuple(apart)


def has_different_memory(one: Facts, other: Facts) -> bool:
    """Return whether two machines have another amount of memory, beyond what their kernels keep."""
    most = max(one.memory_bytes, other.memory_bytes)
    return abs(one.memory_bytes - other.memory_bytes) > _MEMORY_TOLERANCE * most


def units_of(run: Run, stacks: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield a workload, a metric, and its unit and direction as text, for each value of these stacks.

    The unit that a program printed follows, if it is known.
    """
    for trial in run.trials:
        if trial.status == "ok" and trial.stack in stacks:
            for value in trial.values:
                yield trial.workload, value.metric, f"{value.unit or 'no unit'} ({value.better} is better)"
                if value.printed_unit:
                    yield trial.workload, f"{value.metric}, as it was printed,", to_singular(value.printed_unit)


def require_same_units(units: Iterable[tuple[str, str, str]]) -> None:
    """Raise UsageError where a metric of a workload is in two units, or has two directions."""
    seen: dict[tuple[str, str], str] = {}
    for workload, metric, stated in sorted(set(units)):
        if seen.setdefault((workload, metric), stated) != stated:
            raise UsageError(
                f"{workload}: {metric} is in {seen[workload, metric]} and in {stated}",
                "such values cannot be compared; `tare reparse` reads old ones anew",
            )


def run_differences(before: Run, after: Run, stacks: Collection[str]) -> tuple[str, ...]:
    """State what is not the same about two runs of one machine."""
    old, new = before.record, after.record
    pairs = (
        ("tare", old.tare, new.tare),
        ("kernel", old.machine.kernel, new.machine.kernel),
        ("microcode", old.machine.microcode, new.machine.microcode),
        ("operating system", old.machine.operating_system, new.machine.operating_system),
        ("image", old.image.removeprefix("sha256:")[:12], new.image.removeprefix("sha256:")[:12]),
        ("limits", _requested_limits(before.trials), _requested_limits(after.trials)),
        *_tuning_differences(before, after),
        *_program_overrides(old, new, stacks),
    )
    lines = [
        f"{name}: {_format_value(first)} before, {_format_value(second)} after"
        for name, first, second in pairs
        if first != second
    ]
    if old.started > new.started:
        lines.insert(0, f"the run before was started after the other one: {old.started}, {new.started}")
    return (
        *lines,
        *_package_differences(old.packages, new.packages),
        *_setting_differences(before, after),
        *_proof_differences(before, after, stacks),
    )


def _tuning_differences(before: Run, after: Run) -> list[tuple[str, str, str]]:
    """Return what was set of the machine in both runs, where `tare tune` would have set it in one of them alone."""
    old = {each.name: each for each in before.record.tuning}
    return [
        (each.name, old[each.name].now, each.now)
        for each in after.record.tuning
        if each.name in old and each.fits != old[each.name].fits
    ]


def _program_overrides(old: RunRecord, new: RunRecord, stacks: Collection[str]) -> list[tuple[str, str, str]]:
    """Return the commands and images that stacks have of their own, in both runs."""
    return [
        (f"{stack}: its own {what}", old.own.get(stack, {}).get(what, ""), new.own.get(stack, {}).get(what, ""))
        for stack in sorted(stacks)
        for what in ("command", "image")
    ]


def _package_differences(before: str, after: str) -> list[str]:
    """State which packages of the image have other versions; each line is a name and a version."""
    old, new = (dict(line.split(" ", 1) for line in text.splitlines() if " " in line) for text in (before, after))
    changed = [
        f"{name} {old.get(name, 'not there')} → {new.get(name, 'not there')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if not changed:
        return []
    more = f" and {len(changed) - _MAX_PACKAGES_SHOWN} more" if len(changed) > _MAX_PACKAGES_SHOWN else ""
    return [f"packages of the image: {', '.join(changed[:_MAX_PACKAGES_SHOWN])}{more}"]


def _setting_differences(before: Run, after: Run) -> list[str]:
    """State which settings of workloads differ, also those that only one of the runs knows."""
    old = {record.name: record.settings for record in before.record.workloads}
    pairs = (
        (record.name, old[record.name], record.settings) for record in after.record.workloads if record.name in old
    )
    return [
        f"{workload}: {name} = {_format_value(first.get(name))} before, {_format_value(second.get(name))} after"
        for workload, first, second in pairs
        for name in sorted(first.keys() | second.keys())
        if _to_lists(first.get(name)) != _to_lists(second.get(name))
    ]


def _proof_differences(before: Run, after: Run, stacks: Collection[str]) -> list[str]:
    """State which versions, accelerators and network paths of stacks differ."""
    lines = []
    for stack in sorted(stacks):
        old, new = constant_reports(before.trials, stack), constant_reports(after.trials, stack)
        lines += [
            f"{stack}: {name} {old[name]} before, {new[name]} after"
            for name in old
            if name in new and old[name] != new[name]
        ]
    return lines


def constant_reports(trials: Sequence[Trial], stack: str) -> Mapping[str, str]:
    """Return what all trials of a stack report alike, and so nothing that names a single instance."""
    seen: dict[str, set[str]] = {}
    own = [trial for trial in trials if trial.stack == stack and trial.status == "ok"]
    for trial in own:
        for name, text in (*trial.proof, ("network path", trial.path)):
            seen.setdefault(name, set()).add(text)
    return {name: next(iter(texts)) for name, texts in seen.items() if len(texts) == 1 and len(own) > 1}


def _requested_limits(trials: Sequence[Trial]) -> str:
    asked = {_format_limits(trial.limits.asked) for trial in trials if trial.limits is not None}
    return " and ".join(sorted(asked))


def _format_limits(limits: Limits) -> str:
    return (
        f"{format_count(len(limits.cpus), 'CPU')}, {format_size(limits.memory_bytes)}, {limits.open_files} open files"
    )


def _to_lists(value: object) -> object:
    """Turn tuples into lists: JSON does not distinguish them."""
    return [_to_lists(each) for each in value] if isinstance(value, list | tuple) else value


def _format_value(value: object) -> str:
    plain = _to_lists(value)
    if isinstance(plain, list):
        return ", ".join(_format_value(each) for each in plain) or "none"
    return "unknown" if plain in ("", 0, None) else str(plain)
