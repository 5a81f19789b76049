"""Table of the observed isolation: a row for each process that a kernel confines, by stack and layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tare.model.isolation import Isolation, IsolationLevel
from tare.model.observed_isolation import CAPABILITIES, Confinement, ObservedIsolation, find_contradictions
from tare.model.run_folder import Run
from tare.model.units import format_count
from tare.report.tradeoff import find_isolation
from tare.statistics.summary import Summary

TITLE = "Isolation as read in running instances"
NOTE = (
    "Read once for each stack from the kernel, for the first process of an instance. A guest or a kernel in user space "
    "also has a row for the process that runs it: who breaks out has the privileges of that process. Workloads run "
    "with Docker's 14 capabilities at most in every stack. Namespaces are those that the process does not share with "
    "its host; those of another kernel are not compared."
)
COLUMNS = ("kernel", "system calls", "capabilities", "no_new_privs", "user namespace", "Landlock", "private namespaces")
UNKNOWN, NOT_COMPARED = "unknown", "\N{EN DASH}"
_KERNELS: Mapping[IsolationLevel, str] = {"user-space kernel": "in user space", "own kernel": "own"}
_NO_LANDLOCK = {"off": "none (off)", "not in the kernel": "none (not in its kernel)", "refused": "unknown (refused)"}


@dataclass(frozen=True)
class IsolationCell:
    """Text of a cell, and more of it for a tooltip."""

    text: str
    detail: str = ""


@dataclass(frozen=True)
class IsolationRow:
    """Row of a process: its cells are in the order of `COLUMNS`. `notes` are contradictions to what is declared."""

    stack: str
    process: str
    cells: tuple[IsolationCell, ...]
    notes: tuple[str, ...] = ()


def isolation_rows(summary: Summary, run: Run) -> tuple[IsolationRow, ...]:
    """Return the rows of all stacks with known isolation except the A/A control, in the order of the summary."""
    observed: dict[str, dict[tuple[ObservedIsolation, ...], None]] = {stack: {} for stack in summary.stacks}
    for trial in run.trials:
        if trial.isolation and trial.stack != summary.control:
            observed.setdefault(trial.stack, {})[trial.isolation] = None
    return tuple(
        row
        for stack, found in observed.items()
        for layers in found
        for row in _stack_rows(summary.title(stack), layers, declared_by_layer(run, stack))
    )


def declared_by_layer(run: Run, stack: str) -> Mapping[str, Isolation]:
    """Return the declared isolation of each layer of a stack, by the layer's name; "" for the only layer."""
    layers = {each.layer: each for each in run.record.isolation.get(stack, ())}
    if len(layers) == 1:  # the runtime of containerd or Kubernetes counts
        return {"": find_isolation(run, (stack,))[stack]}
    return layers


def _stack_rows(
    title: str, layers: Sequence[ObservedIsolation], declared: Mapping[str, Isolation]
) -> Iterator[IsolationRow]:
    for seen in layers:
        isolation = declared.get(seen.layer if len(declared) > 1 else "")
        notes = tuple(find_contradictions(isolation, seen)) if isolation else ()
        layer, of_layer = (f" {seen.layer}", f" of {seen.layer}") if len(layers) > 1 else ("", "")
        if seen.inside:
            kernel, landlock = _describe_kernel(seen, isolation), _describe_landlock(seen)
            process = f"{seen.inside.process or 'first process'} inside{layer}"
            yield IsolationRow(title, process, _cells(seen.inside, kernel, landlock), notes)
        if seen.monitor:
            kernel = IsolationCell("shared") if seen.inside else _describe_kernel(seen, isolation)
            process = f"{seen.monitor.process or 'process'} on the host{of_layer}"
            cells = _cells(seen.monitor, kernel, IsolationCell(UNKNOWN, "it cannot be read from outside"))
            yield IsolationRow(title, process, cells, () if seen.inside else notes)


def describe_isolation(layers: Sequence[ObservedIsolation], declared: Mapping[str, Isolation]) -> Iterator[str]:
    """Yield a line of text for each row of a trial's layers."""
    for row in _stack_rows("", layers, declared):
        cells = zip(COLUMNS, row.cells, strict=True)
        yield f"{row.process}: {'; '.join(f'{name}: {cell.text}' for name, cell in cells)}"


def _describe_kernel(seen: ObservedIsolation, declared: Isolation | None) -> IsolationCell:
    detail = f"declared: {declared.level}: {declared.reason}" if declared else ""
    if seen.has_private_kernel is False:
        return IsolationCell("shared", detail)
    text = _KERNELS.get(declared.level, "shared" if seen.has_private_kernel is None else "own") if declared else "own"
    if seen.has_private_kernel is None:
        return IsolationCell(f"{text}, as declared" if declared else UNKNOWN, detail)
    return IsolationCell(text, detail)


def _describe_landlock(seen: ObservedIsolation) -> IsolationCell:
    if seen.landlock:
        return IsolationCell(format_count(seen.landlock, "ruleset"))
    return IsolationCell(_NO_LANDLOCK.get(seen.landlock_note, "none" if seen.landlock == 0 else UNKNOWN))


def _cells(process: Confinement, kernel: IsolationCell, landlock: IsolationCell) -> tuple[IsolationCell, ...]:
    names = process.namespaces
    maps = f"uid_map {process.uid_map}; gid_map {process.gid_map}" if process.uid_map else ""
    return (
        kernel,
        IsolationCell(_describe_filter(process), f"security label: {process.label}" if process.label else ""),
        _describe_capabilities(process),
        IsolationCell({None: UNKNOWN, True: "yes", False: "no"}[process.no_new_privileges]),
        IsolationCell(_describe_user_namespace(process), maps),
        landlock,
        IsolationCell(NOT_COMPARED if names is None else ", ".join(names) or "none"),
    )


def _describe_filter(process: Confinement) -> str:
    if process.seccomp is None:
        return UNKNOWN
    if process.seccomp == 0:
        return "no filter"
    if process.seccomp == 1:
        return "seccomp, strict"
    count = process.seccomp_filters
    return "seccomp" if count is None else f"seccomp, {format_count(count, 'filter')}"


def _describe_capabilities(process: Confinement) -> IsolationCell:
    """Return the number of capabilities, and their names; if most are there, the names of the others."""
    if process.capabilities is None:
        return IsolationCell(UNKNOWN)
    names, last = process.capability_names, process.last_capability
    if last is None:
        return IsolationCell(str(len(names)), ", ".join(names))
    missing = [name for name in CAPABILITIES[: last + 1] if name not in names]
    detail = ", ".join(names) if len(names) <= len(missing) else f"all but {', '.join(missing)}" if missing else "all"
    if names and process.has_user_namespace:
        detail += "; they hold in its user namespace only"
    return IsolationCell(f"{len(names)} of {last + 1}", detail)


def _describe_user_namespace(process: Confinement) -> str:
    if not process.has_user_namespace:
        return UNKNOWN if process.has_user_namespace is None else "none"
    root = process.outer_root
    return "without root" if root is None else "root is the host's" if root == 0 else f"root is user {root}"
