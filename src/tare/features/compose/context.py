"""Surroundings of a Compose file: its folder and its variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from tare.features.compose.notes import Notes

Location = Literal["there", "missing", "outside"]


def _read_nothing(_: str) -> str | None:
    return None


def _locate_all(_: str) -> Location:
    return "there"


@dataclass(frozen=True)
class ComposeContext:
    """Surroundings of a Compose file.

    `folder` is the absolute path of its folder: files written by `docker compose config` have absolute paths.
    `variables` are those of the shell and of `.env`, and `unset` are those without a value that `.env` uses. `read`
    returns the text of a file in the folder, or None. `locate` returns whether a path in the folder exists, or leads
    out of the folder by a link.
    """

    folder: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[str], str | None] = _read_nothing
    locate: Callable[[str], Location] = _locate_all
    unset: tuple[str, ...] = ()

    def relative_path(self, notes: Notes, key: str, source: str) -> str:
        """Return a path relative to the folder; record a fault and return "" for a path that leads out of it."""
        path = PurePosixPath(source)
        if path.is_absolute() and path.is_relative_to(self.folder):
            path = path.relative_to(self.folder)
        hint = "copy it into the folder of the file, and name that"
        if path.is_absolute() or source.startswith("~") or ".." in path.parts:
            notes.add_fault(key, f"{source} is outside of the folder", hint)
            return ""
        if self.locate(str(path)) == "outside":
            notes.add_fault(key, f"{source} is a link that leads out of the folder", hint)
            return ""
        return str(path)
