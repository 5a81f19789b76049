"""Whether an image has a program: looked up in its root file system, so that nothing has to be started for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tare.contracts.technologies import ENVIRONMENT
from tare.errors import Fault, did_you_mean
from tare.hosts.local import exists

_MOST_LINKS = 40  # as the kernel follows
_PACKAGE = 'give the Debian package that has it: --package P, or packages = ["…"] in a suite'


def missing_programs(
    trees: Sequence[Path], programs: Sequence[str], environment: Sequence[str] = ENVIRONMENT, hint: str = _PACKAGE
) -> list[Fault]:
    """Return a fault for each program that the file system of these trees, the upper first, does not have.

    `environment` has the PATH. `hint` is how to add one to an image.
    """
    path = dict(each.split("=", 1) for each in environment)["PATH"].split(":")
    return [_fault(trees, program, path, hint) for program in dict.fromkeys(programs) if not _has(trees, program, path)]


def _fault(trees: Sequence[Path], program: str, path: Sequence[str], otherwise: str) -> Fault:
    if " " in program:
        hint = f"it is one word with spaces: leave out its quotes, or write sh -c '{program}'"
        return Fault(f"{program}: the image has no such program", hint)
    parent = program.rpartition("/")[0]
    known = {name for folder in path for name in _names(trees, folder)}
    if "/" in program:
        known = {f"{parent}/{name}" for name in _names(trees, parent)}
    meant = did_you_mean(program, known, "")
    return Fault(f"{program}: the image has no such program", f"{meant} or {otherwise}" if meant else otherwise)


def _has(trees: Sequence[Path], program: str, path: Sequence[str]) -> bool:
    """Return whether an engine would find the program: by its path, or in the folders of PATH."""
    places = [program] if "/" in program else [f"{folder}/{program}" for folder in path]
    return any(_is_program(found) for place in places for found in _inside(trees, place)[:1])


def _is_program(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _names(trees: Sequence[Path], folder: str) -> set[str]:
    found = [each for each in _inside(trees, folder) if exists(each) and each.is_dir()]
    return {each.name for folder in found for each in folder.iterdir()}


def _inside(trees: Sequence[Path], place: str) -> list[Path]:
    """Follow a path as a process in there would: links that begin with / begin at the root of the trees.

    Return what is there in the trees, the upper first; nothing for a path of too many links.
    """
    left = list(reversed(PurePosixPath("/", place).parts[1:]))
    at, links = PurePosixPath("/"), 0
    while left:
        part = left.pop()
        if part == "..":
            at = at.parent
            continue
        here = next(iter(_there(trees, at / part)), trees[0])
        if not os.path.islink(here):  # noqa: PTH114 - Path's raises for a name that is too long
            at = at / part
            continue
        links += 1
        if links > _MOST_LINKS:
            return []
        target = PurePosixPath(here.readlink())
        at = PurePosixPath("/") if target.is_absolute() else at
        left += reversed([each for each in target.parts if each != "/"])
    return _there(trees, at)


def _there(trees: Sequence[Path], at: PurePosixPath) -> list[Path]:
    return [path for tree in trees if os.path.lexists(path := tree.joinpath(*at.parts[1:]))]
