"""User files and external effects of a suite: uploaded files, and commands that it runs outside of tare.

Files of `tare try` are copied below `/srv` of the image: a path below the current folder keeps its folders, any other
path only its last name. Words of the command that are such a path become the path in the image.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.model.errors import UsageError
from tare.model.files import exists, is_file
from tare.plugins.workload import Workload
from tare.suites.stacks import Stack
from tare.suites.suite import PlannedWorkload, Suite

_IMAGE_FOLDER = PurePosixPath("/srv")
# Programs there belong to a distribution. The image has other versions, which fit its libraries.
_SYSTEM_FOLDERS = ("/bin", "/lib", "/sbin", "/usr")
_LOCAL_FOLDER = "/usr/local"


@dataclass(frozen=True)
class PackedCommand:
    """Command with paths in the image, and the files that it needs there.

    `files` are pairs of a path in the image and an absolute path of this machine.
    """

    command: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


def collect_files(command: Sequence[str], files: Sequence[str], is_foreign_image: bool) -> PackedCommand:
    """Return the command with paths in the image, and the files to copy there; raises UsageError.

    In a foreign image, an absolute path of a program is a path in the image.
    """
    for path in files:
        if not exists(path):
            raise UsageError(f"--file {path}: there is no such file or folder", "give a path of this machine")
    for path in command[:1]:
        if path.startswith(("./", "../")) and not (is_foreign_image or exists(path)):
            raise UsageError(f"{path}: there is no such file here", "give a path of this machine, or a program's name")
    programs = [path for path in command[:1] if _is_user_file(path, is_foreign_image)]
    targets: dict[str, str] = {}
    sources: dict[str, str] = {}
    for path in (*programs, *files):
        targets[path] = target = _path_in_image(path)
        source = str(Path(path).absolute())
        if (other := sources.setdefault(target, source)) != source and not Path(other).samefile(source):
            hint = "rename one of them, or put both into a folder and give that"
            raise UsageError(f"{path}: {other} has the same name, and they share a folder in the image", hint)
    for path in command[:1]:
        if path in targets:
            _refuse_unusable(path, targets[path])
    return PackedCommand(tuple(targets.get(word, word) for word in command), tuple(sorted(sources.items())))


def _is_user_file(path: str, is_foreign_image: bool) -> bool:
    """Return whether the command's first word means a file of this machine, not a program of the image."""
    if "/" not in path or not is_file(path):
        return False
    if not Path(path).is_absolute():
        return True
    program = PurePosixPath(path)
    in_system_folder = any(program.is_relative_to(folder) for folder in _SYSTEM_FOLDERS)
    return not is_foreign_image and (program.is_relative_to(_LOCAL_FOLDER) or not in_system_folder)


def _path_in_image(path: str) -> str:
    """Return the path in the image for a file of this machine."""
    parts = PurePosixPath(os.path.normpath(path))
    below = not parts.is_absolute() and ".." not in parts.parts and parts.name
    return str(_IMAGE_FOLDER / (parts if below else Path(path).resolve().name))


def _refuse_unusable(path: str, path_in_image: str) -> None:
    """Raise UsageError if a command is a folder, or a program without permission to execute."""
    if Path(path).is_dir():
        raise UsageError(f"{path}: a folder is no command", f"give the program in it: {path.rstrip('/')}/…")
    if not Path(path).stat().st_mode & 0o111:
        hint = f"chmod +x {path}, or let an interpreter run it: tare try --file {path} -- sh {path_in_image}"
        raise UsageError(f"{path}: the file is not executable", hint)


def list_external_effects(suite: Suite) -> tuple[str, ...]:
    """Return a line for each user-supplied command, image and machine of a suite, without duplicates.

    `tare plan` prints these lines, so that a user can judge the suite of somebody else before running it.
    """
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
    """Return the absolute paths of all files and folders of this machine that a suite names.

    Files in a folder of the result are left out.
    """
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
            yield f"{stack.name}: per-stack image: {stack.override.source}"


def _list_workload_effects(suite: Suite) -> Iterator[str]:
    """Yield a line for each command of a workload, with the instances that run it."""
    for planned in suite.workloads:
        measured = [stack for stack in suite.stacks if stack.name not in planned.exclude]
        by_effects: dict[tuple[str, ...], list[Stack]] = {}  # stacks with overrides may run different commands
        for stack in measured:
            effects = _override_workload(suite, planned, stack).external_effects("")
            by_effects.setdefault(tuple(effects), []).append(stack)
        for stacks in by_effects.values():
            workload = _override_workload(suite, planned, stacks[0])
            effects = workload.external_effects(_describe_instances(stacks, len(measured)))
            yield from (f"{planned.name}: {effect}" for effect in effects)


def _override_workload(suite: Suite, planned: PlannedWorkload, stack: Stack) -> Workload:
    """Return the workload with the image and the command of a stack."""
    image = stack.override.apply_to_image(suite.image)
    return stack.override.apply_to_workload(planned.workload.adapt_to_image_spec(image))


def _describe_instances(stacks: Sequence[Stack], of_all: int) -> str:
    """Return a text for the instances that run a command, which mentions bare metal, as it has no isolation."""
    where = (
        "in every instance" if len(stacks) == of_all else f"in instances of {', '.join(each.name for each in stacks)}"
    )
    is_bare = [all(layer.family == "bare metal" for layer in stack.layers) for stack in stacks]
    return f"{where}, on bare metal{'' if all(is_bare) else ' too'}" if any(is_bare) else where


def _list_host_effects(suite: Suite) -> Iterator[str]:
    extra = {f"client {number}": machine for number, machine in enumerate(suite.hosts.extra_clients, start=2)}
    for role, machine in {"server": suite.hosts.server, "client": suite.hosts.client, **extra}.items():
        if machine is not None:
            yield f"{role}: as root on {machine.ssh}"
        if machine is not None and machine.ssh_config:
            yield f"{role}: ssh reads {machine.ssh_config}, which may name programs to start (ProxyCommand)"


def _list_image_effects(suite: Suite) -> Iterator[str]:
    source = suite.image.source
    if source and source.started.entry_point is None:
        yield f"image: {source}, whose entry point, if it has one, comes first"
