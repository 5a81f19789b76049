"""The files of this machine that `tare try` puts into its image: the command's own program, and those of `--file`.

They lie below `/srv`: a path below the current folder keeps its folders, any other only its name. Words of the command
that are such a path become the place in the image.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.errors import UsageError
from tare.hosts.local import exists, is_file

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
