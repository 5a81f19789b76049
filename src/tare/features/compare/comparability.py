"""Comparability of two runs: checks that they can be compared at all, and the differences between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tare.model.errors import UsageError
from tare.model.machine import Facts
from tare.model.run_folder import Run, RunRecord
from tare.model.trial import Limits, Trial
from tare.model.units import format_count, format_size, to_singular

_UNSET = (None,)  # a setting that one of the runs does not have
# Facts that identify a machine. Kernel and operating system are left out: users compare them on the same machine.
_MACHINE_FACTS = {
    "architecture": "architecture",
    "cpu_model": "CPU",
    "cpus": "number of CPUs",
    "virtualization": "virtualization below",
    "clock_source": "clock source",
}
# Linux reports the memory without that reserved by the kernel, which depends on its version and options.
_MEMORY_TOLERANCE = 0.05
_MAX_PACKAGES_SHOWN = 5


def require_one_machine(before: Run, after: Run) -> None:
    """Raise UsageError if the two runs are of different machines."""
    if differences := run_machine_differences(before, after):
        raise UsageError(
            f"the runs are of different machines: {'; '.join(differences)}",
            "compare runs of one machine, or say --across-machines",
        )


def run_machine_differences(before: Run, after: Run) -> tuple[str, ...]:
    """Return a text for each difference between the machines of two runs."""
    return machine_differences(before.record.machine, after.record.machine, ("before", "after"))


def machine_differences(one: Facts, other: Facts, labels: tuple[str, str]) -> tuple[str, ...]:
    """Return a text for each difference between two machines; `labels` name the two in these texts."""
    differences = [
        f"{name}: {_format_value(getattr(one, fact))} {labels[0]}, {_format_value(getattr(other, fact))} {labels[1]}"
        for fact, name in _MACHINE_FACTS.items()
        if getattr(one, fact) != getattr(other, fact)
    ]
    if has_different_memory(one, other):
        sizes = [format_size(facts.memory_bytes) if facts.memory_bytes else "unknown" for facts in (one, other)]
        differences.append(f"memory: {sizes[0]} {labels[0]}, {sizes[1]} {labels[1]}")
    return tuple(differences)


def has_different_memory(one: Facts, other: Facts) -> bool:
    """Return whether two machines differ in memory by more than the kernels' reserved memory explains."""
    larger = max(one.memory_bytes, other.memory_bytes)
    return abs(one.memory_bytes - other.memory_bytes) > _MEMORY_TOLERANCE * larger


def units_of(run: Run, stacks: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield workload, metric, and unit with direction as text, for each value of these stacks.

    If the unit that the program printed is known, yield it as an additional entry.
    """
    for trial in run.trials:
        if trial.status == "ok" and trial.stack in stacks:
            for value in trial.values:
                yield trial.workload, value.metric, f"{value.unit or 'no unit'} ({value.better} is better)"
                if value.printed_unit:
                    yield trial.workload, f"{value.metric}, as it was printed,", to_singular(value.printed_unit)


def require_same_units(units: Iterable[tuple[str, str, str]]) -> None:
    """Raise UsageError if a metric of a workload has two units or two directions."""
    seen: dict[tuple[str, str], str] = {}
    for workload, metric, stated in sorted(set(units)):
        if seen.setdefault((workload, metric), stated) != stated:
            raise UsageError(
                f"{workload}: {metric} is in {seen[workload, metric]} and in {stated}",
                "such values cannot be compared; `tare reparse` reads old ones anew",
            )


def run_differences(before: Run, after: Run, stacks: Collection[str]) -> tuple[str, ...]:
    """Return a text for each difference in software, settings and proof between two runs of one machine."""
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
    """Return the machine settings of both runs that fit the recommendation of `tare tune` in only one of them.

    Other differences of settings, such as a frequency that changes by itself, would be noise.
    """
    old = {each.name: each for each in before.record.tuning}
    return [
        (each.name, old[each.name].now, each.now)
        for each in after.record.tuning
        if each.name in old and each.fits != old[each.name].fits
    ]


def _program_overrides(old: RunRecord, new: RunRecord, stacks: Collection[str]) -> list[tuple[str, str, str]]:
    """Return the per-stack commands and images of both runs; "" if a stack has none."""
    return [
        (f"{stack}: its own {key}", old.own.get(stack, {}).get(key, ""), new.own.get(stack, {}).get(key, ""))
        for stack in sorted(stacks)
        for key in ("command", "image")
    ]


def _package_differences(before: str, after: str) -> list[str]:
    """Return a line about packages of the image with different versions, no line without any.

    A line of `before` and `after` is a name and a version.
    """
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
    """Return a text for each different setting of a workload, including settings of one run only."""
    old = {record.name: record.settings for record in before.record.workloads}
    pairs = (
        (record.name, old[record.name], record.settings) for record in after.record.workloads if record.name in old
    )
    return [
        f"{workload}: {name} = {_format_value(first.get(name), _UNSET)} before, "
        f"{_format_value(second.get(name), _UNSET)} after"
        for workload, first, second in pairs
        for name in sorted(first.keys() | second.keys())
        if _to_lists(first.get(name)) != _to_lists(second.get(name))
    ]


def _proof_differences(before: Run, after: Run, stacks: Collection[str]) -> list[str]:
    """Return a text for each version, accelerator and network path of a stack that differs."""
    lines = []
    for stack in sorted(stacks):
        old, new = stable_proof(before.trials, stack), stable_proof(after.trials, stack)
        lines += [
            f"{stack}: {name} {old[name]} before, {new[name]} after"
            for name in old
            if name in new and old[name] != new[name]
        ]
    return lines


def stable_proof(trials: Sequence[Trial], stack: str) -> Mapping[str, str]:
    """Return the entries of `proof` (and the network path) that are equal in all successful trials of a stack.

    The result is empty with fewer than two trials. Entries that vary, such as an ID, belong to a single instance. They
    would differ between any two runs.
    """
    texts_by_name: dict[str, set[str]] = {}
    successful = [trial for trial in trials if trial.stack == stack and trial.status == "ok"]
    for trial in successful:
        for name, text in (*trial.proof, ("network path", trial.path)):
            texts_by_name.setdefault(name, set()).add(text)
    if len(successful) < 2:
        return {}
    return {name: next(iter(texts)) for name, texts in texts_by_name.items() if len(texts) == 1}


def _requested_limits(trials: Sequence[Trial]) -> str:
    limits = {_format_limits(trial.limits.asked) for trial in trials if trial.limits is not None}
    return " and ".join(sorted(limits))


def _format_limits(limits: Limits) -> str:
    return (
        f"{format_count(len(limits.cpus), 'CPU')}, {format_size(limits.memory_bytes)}, {limits.open_files} open files"
    )


def _to_lists(value: object) -> object:
    """Convert tuples to lists, recursively: JSON does not distinguish them."""
    return [_to_lists(each) for each in value] if isinstance(value, list | tuple) else value


def _format_value(value: object, unknown: tuple[object, ...] = ("", 0, None)) -> str:
    """Return a value as text; facts of a machine are unknown if they are empty or 0, unlike settings."""
    plain = _to_lists(value)
    if isinstance(plain, list):
        return ", ".join(_format_value(each, unknown) for each in plain) or "none"
    return "unknown" if plain in unknown else str(plain)
