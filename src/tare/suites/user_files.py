"""User files and external commands on which a suite depends.

They lie below `/srv`: a path below the current folder keeps its folders, any other only its name. Words of the command
that are such a path become the place in the image.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.model.errors import UsageError
from tare.model.files import exists, is_file
from tare.suites.stacks import Stack
from tare.suites.suite import Suite

_PLACE = PurePosixPath("/srv")
# Programs of a distribution: the image has its own, which fit its libraries.
_OF_A_SYSTEM = ("/bin", "/lib", "/sbin", "/usr")
_NOT_OF_A_SYSTEM = "/usr/local"


@dataclass(frozen=True)
class Taken:
    """A command as it runs in the image, and the files that it needs there.

    `files` are pairs of the place in the image and the absolute path on this machine.
    """

    command: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


def taken_along(command: Sequence[str], files: Sequence[str], of_others: bool) -> Taken:
    """Return the command with its places in the image, and the files to put there; raises UsageError.

    In an image that others have built (`of_others`), an absolute path is one of the image's own.
    """
    for path in files:
        if not exists(path):
            raise UsageError(f"--file {path}: there is no such file or folder", "give a path of this machine")
    own = [path for path in command[:1] if _is_own(path, of_others)]
    places: dict[str, str] = {}
    sources: dict[str, str] = {}
    for path in (*own, *files):
        places[path] = place = _place(path)
        source = str(Path(path).absolute())
        if (there := sources.setdefault(place, source)) != source and not Path(there).samefile(source):
            hint = "rename one of them, or put both into a folder and give that"
            raise UsageError(f"{path}: {there} has the same name, and they share a folder in the image", hint)
    for path in command[:1]:
        if path in places:
            _refuse_unusable(path, places[path])
    return Taken(tuple(places.get(word, word) for word in command), tuple(sorted(sources.items())))


def _is_own(path: str, of_others: bool) -> bool:
    """Return whether the command's first word is a file of this machine that the image cannot be meant to have."""
    if "/" not in path or not is_file(path):
        return False
    if not Path(path).is_absolute():
        return True
    place = PurePosixPath(path)
    of_a_system = any(place.is_relative_to(each) for each in _OF_A_SYSTEM)
    return not of_others and (place.is_relative_to(_NOT_OF_A_SYSTEM) or not of_a_system)


def _place(path: str) -> str:
    """Return the place of a file in the image."""
    parts = PurePosixPath(os.path.normpath(path))
    below = not parts.is_absolute() and ".." not in parts.parts and parts.name
    return str(_PLACE / (parts if below else Path(path).resolve().name))


def _refuse_unusable(path: str, place: str) -> None:
    """Raise UsageError for a program that nothing could start."""
    if Path(path).is_dir():
        raise UsageError(f"{path}: a folder is no command", f"give the program in it: {path.rstrip('/')}/…")
    if not Path(path).stat().st_mode & 0o111:
        hint = f"chmod +x {path}, or let an interpreter run it: tare try --file {path} -- sh {place}"
        raise UsageError(f"{path}: the file is not executable", hint)


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
