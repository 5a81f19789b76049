"""What a suite, which may be untrusted, executes or opens outside tare."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tare.suites.stacks import Stack
from tare.suites.suite import Suite


def brought(suite: Suite) -> tuple[str, ...]:
    """Return a line for each of these things, once."""
    return tuple(dict.fromkeys((*_by_stacks(suite), *_by_workloads(suite), *_by_hosts(suite), *_by_image(suite))))


def own_files(suite: Suite) -> tuple[Path, ...]:
    """Return the absolute paths of the files and folders here that a suite names, without what is in others."""
    found = {Path(os.path.abspath(suite.folder / path)) for path in _named(suite)}  # noqa: PTH100 - links stay as they are
    return tuple(sorted(path for path in found if found.isdisjoint(path.parents)))


def _named(suite: Suite) -> Iterator[str | Path]:
    yield from (path for _, path in suite.image.files)
    for source in (suite.image.source, *(stack.own.source for stack in suite.stacks)):
        if source and source.path:
            yield source.path
    for stack in suite.stacks:  # these are relative to the current folder, on the machine under test or on this one
        yield from (Path(path).absolute() for layer in stack.layers for path in layer.own_files())
    for planned in suite.workloads:
        yield from planned.workload.own_files()


def _by_stacks(suite: Suite) -> Iterator[str]:
    for stack in suite.stacks:
        yield from (f"{stack.name}: {what}" for layer in stack.layers for what in layer.brings())
    for stack in suite.stacks:
        if stack.own.source:
            yield f"{stack.name}: an image of its own: {stack.own.source}"


def _by_workloads(suite: Suite) -> Iterator[str]:
    """Yield what each workload starts, with the instances that start it where stacks have different commands."""
    for planned in suite.workloads:
        measured = [stack for stack in suite.stacks if stack.name not in planned.exclude]
        alike: dict[tuple[str, ...], list[Stack]] = {}
        for stack in measured:
            own = stack.own.workload(planned.workload.started_in(stack.own.image(suite.image)))
            alike.setdefault(tuple(own.brings("")), []).append(stack)
        for stacks in alike.values():
            own = stacks[0].own.workload(planned.workload.started_in(stacks[0].own.image(suite.image)))
            yield from (f"{planned.name}: {what}" for what in own.brings(_instances(stacks, len(measured))))


def _instances(stacks: Sequence[Stack], of_all: int) -> str:
    """Describe in which instances a command runs, and whether that is on bare metal, without isolation."""
    where = (
        "in every instance" if len(stacks) == of_all else f"in instances of {', '.join(each.name for each in stacks)}"
    )
    is_bare = [all(layer.family == "bare metal" for layer in stack.layers) for stack in stacks]
    return f"{where}, on bare metal{'' if all(is_bare) else ' too'}" if any(is_bare) else where


def _by_hosts(suite: Suite) -> Iterator[str]:
    further = {f"client {number}": each for number, each in enumerate(suite.hosts.further_clients, start=2)}
    for role, machine in {"server": suite.hosts.server, "client": suite.hosts.client, **further}.items():
        if machine is not None:
            yield f"{role}: as root on {machine.ssh}"
        if machine is not None and machine.ssh_config:
            yield f"{role}: ssh reads {machine.ssh_config}, which may name programs to start (ProxyCommand)"


def _by_image(suite: Suite) -> Iterator[str]:
    source = suite.image.source
    if source and source.started.entry_point is None:
        yield f"image: {source}, whose entry point, if it has one, comes first"
