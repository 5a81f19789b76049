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

_IMAGE_FOLDER = PurePosixPath("/srv")
# Programs of a distribution: the image has its own, which fit its libraries.
_SYSTEM_FOLDERS = ("/bin", "/lib", "/sbin", "/usr")
_LOCAL_FOLDER = "/usr/local"


@dataclass(frozen=True)
class PackedCommand:
    """A command as it runs in the image, and the files that it needs there.

    `files` are pairs of the place in the image and the absolute path on this machine.
    """

    command: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


def collect_files(command: Sequence[str], files: Sequence[str], is_foreign_image: bool) -> PackedCommand:
    """Return the command with its places in the image, and the files to put there; raises UsageError.

    In an image that others have built (`is_foreign_image`), an absolute path is one of the image's own.
    """
    for path in files:
        if not exists(path):
            raise UsageError(f"--file {path}: there is no such file or folder", "give a path of this machine")
    own = [path for path in command[:1] if _is_user_file(path, is_foreign_image)]
    places: dict[str, str] = {}
    sources: dict[str, str] = {}
    for path in (*own, *files):
        places[path] = place = _path_in_image(path)
        source = str(Path(path).absolute())
        if (there := sources.setdefault(place, source)) != source and not Path(there).samefile(source):
            hint = "rename one of them, or put both into a folder and give that"
            raise UsageError(f"{path}: {there} has the same name, and they share a folder in the image", hint)
    for path in command[:1]:
        if path in places:
            _refuse_unusable(path, places[path])
    return PackedCommand(tuple(places.get(word, word) for word in command), tuple(sorted(sources.items())))


def _is_user_file(path: str, is_foreign_image: bool) -> bool:
    """Return whether the command's first word is a file of this machine that the image cannot be meant to have."""
    if "/" not in path or not is_file(path):
        return False
    if not Path(path).is_absolute():
        return True
    place = PurePosixPath(path)
    of_a_system = any(place.is_relative_to(each) for each in _SYSTEM_FOLDERS)
    return not is_foreign_image and (place.is_relative_to(_LOCAL_FOLDER) or not of_a_system)


def _path_in_image(path: str) -> str:
    """Return the place of a file in the image."""
    parts = PurePosixPath(os.path.normpath(path))
    below = not parts.is_absolute() and ".." not in parts.parts and parts.name
    return str(_IMAGE_FOLDER / (parts if below else Path(path).resolve().name))


def _refuse_unusable(path: str, place: str) -> None:
    """Raise UsageError for a program that nothing could start."""
    if Path(path).is_dir():
        raise UsageError(f"{path}: a folder is no command", f"give the program in it: {path.rstrip('/')}/…")
    if not Path(path).stat().st_mode & 0o111:
        hint = f"chmod +x {path}, or let an interpreter run it: tare try --file {path} -- sh {place}"
        raise UsageError(f"{path}: the file is not executable", hint)


def list_external_effects(suite: Suite) -> tuple[str, ...]:
    """Return a line for each of these things, once."""
    return tuple(
        dict.fromkeys(
            (
                *_list_stack_effects(suite),
                *_list_workload_effects(suite),
                *_list_host_effects(suite),
                *_list_image_effects(suite),
            )
        )
    )


def list_user_files(suite: Suite) -> tuple[Path, ...]:
    """Return the absolute paths of the files and folders here that a suite names, without what is in others."""
    found = {Path(os.path.abspath(suite.folder / path)) for path in _list_named_files(suite)}  # noqa: PTH100 - links stay as they are
    return tuple(sorted(path for path in found if found.isdisjoint(path.parents)))


def _list_named_files(suite: Suite) -> Iterator[str | Path]:
    yield from (path for _, path in suite.image.files)
    for source in (suite.image.source, *(stack.override.source for stack in suite.stacks)):
        if source and source.path:
            yield source.path
    for stack in suite.stacks:  # these are relative to the current folder, on the machine under test or on this one
        yield from (Path(path).absolute() for layer in stack.layers for path in layer.user_file_paths())
    for planned in suite.workloads:
        yield from planned.workload.user_file_paths()


def _list_stack_effects(suite: Suite) -> Iterator[str]:
    for stack in suite.stacks:
        yield from (f"{stack.name}: {what}" for layer in stack.layers for what in layer.external_effects())
    for stack in suite.stacks:
        if stack.override.source:
            yield f"{stack.name}: an image of its own: {stack.override.source}"


def _list_workload_effects(suite: Suite) -> Iterator[str]:
    """Yield what each workload starts, with the instances that start it where stacks have different commands."""
    for planned in suite.workloads:
        measured = [stack for stack in suite.stacks if stack.name not in planned.exclude]
        alike: dict[tuple[str, ...], list[Stack]] = {}
        for stack in measured:
            own = stack.override.apply_to_workload(
                planned.workload.adapt_to_image_spec(stack.override.apply_to_image(suite.image))
            )
            alike.setdefault(tuple(own.external_effects("")), []).append(stack)
        for stacks in alike.values():
            own = stacks[0].override.apply_to_workload(
                planned.workload.adapt_to_image_spec(stacks[0].override.apply_to_image(suite.image))
            )
            yield from (
                f"{planned.name}: {what}" for what in own.external_effects(_describe_instances(stacks, len(measured)))
            )


def _describe_instances(stacks: Sequence[Stack], of_all: int) -> str:
    """Describe in which instances a command runs, and whether that is on bare metal, without isolation."""
    where = (
        "in every instance" if len(stacks) == of_all else f"in instances of {', '.join(each.name for each in stacks)}"
    )
    is_bare = [all(layer.family == "bare metal" for layer in stack.layers) for stack in stacks]
    return f"{where}, on bare metal{'' if all(is_bare) else ' too'}" if any(is_bare) else where


def _list_host_effects(suite: Suite) -> Iterator[str]:
    further = {f"client {number}": each for number, each in enumerate(suite.hosts.extra_clients, start=2)}
    for role, machine in {"server": suite.hosts.server, "client": suite.hosts.client, **further}.items():
        if machine is not None:
            yield f"{role}: as root on {machine.ssh}"
        if machine is not None and machine.ssh_config:
            yield f"{role}: ssh reads {machine.ssh_config}, which may name programs to start (ProxyCommand)"


def _list_image_effects(suite: Suite) -> Iterator[str]:
    source = suite.image.source
    if source and source.started.entry_point is None:
        yield f"image: {source}, whose entry point, if it has one, comes first"
