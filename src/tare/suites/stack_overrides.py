"""Per-stack overrides of command and image, and the splitting of command lines.

With overrides, two stacks of one technology compare an old and a new version of a program in turns of one run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from tare.model.errors import UsageError
from tare.model.image import Image, ImageReference, ImageSpec
from tare.model.units import PackageName
from tare.plugins.workload import Workload
from tare.suites.document import Document, TomlKey
from tare.suites.tables import read_source

_SHELL_SYNTAX = re.compile(r"[|&;]+|[0-9]*[<>]+&?[0-9]*")
NoCommand = Literal[""]
Packages = tuple[PackageName, ...]
OVERRIDE_KEYS = ("command", "image")


def split_words(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command line, or of a list; raises ValueError for a line with an unclosed quote."""
    return tuple(shlex.split(command)) if isinstance(command, str) else command


def _check_command(command: str | tuple[str, ...]) -> str | tuple[str, ...]:
    try:
        words = split_words(command)
    except ValueError as error:
        raise ValueError(f"it cannot be split into words: {str(error).lower()}") from error
    if not words or not words[0]:
        raise ValueError('name a program, as in command = "sysbench cpu run"')
    if any("\0" in word for word in words):
        raise ValueError("no word may have a zero byte")
    # Without `posix`, quoted words keep their quotes, so that only unquoted operators match.
    unquoted = shlex.split(command, posix=False) if isinstance(command, str) else ()
    if shells := [word for word in unquoted if _SHELL_SYNTAX.fullmatch(word)]:
        raise ValueError(f"no shell runs it, which {shells[0]} is for: write sh -c '…', or quote it")
    return command


CommandLine = Annotated[str | tuple[str, ...], AfterValidator(_check_command)]


@dataclass(frozen=True)
class StackOverride:
    """Command and image that a stack runs in place of those of the workload and of the run.

    An empty command or a source of None overrides nothing.
    """

    command: tuple[str, ...] = ()
    source: ImageReference | None = None

    def apply_to_workload(self, workload: Workload) -> Workload:
        """Return the workload with the stack's command, or unchanged if it runs no user-supplied command."""
        return (workload.with_command(self.command) or workload) if self.command else workload

    def apply_to_image(self, requested: ImageSpec) -> ImageSpec:
        """Return the stack's image, with the start configuration and the files of the run's image."""
        if self.source is None:
            return requested
        source = self.source
        if requested.source is not None:
            source = requested.source.with_name(source.transport, source.name)
        return ImageSpec(source=source, files=requested.files)

    def describe(self, image: Image | None = None) -> dict[str, str]:
        """Return the overridden keys and their values as text; `image` is the stack's image, None if not yet built."""
        values = {"command": shlex.join(self.command)} if self.command else {}
        if self.source is not None:
            values["image"] = str(self.source) if image is None else image.origin or image.digest
        return values


@dataclass(frozen=True)
class _OverrideTable:
    """Override keys of a table `[stacks.NAME]`."""

    command: CommandLine | None = None
    image: str | None = None


def read_stack_override(document: Document, key: TomlKey, names: Sequence[str] = OVERRIDE_KEYS) -> StackOverride:
    """Return the override in a stack's table; only `names` are override keys. Invalid values become faults."""
    written = document.table(key)
    table: _OverrideTable = document.build(key, _OverrideTable, tuple(written)) or _OverrideTable()
    source = None
    if "image" in names and table.image is not None:
        try:
            source = read_source(table.image, document.folder)
        except UsageError as error:
            document.add_fault((*key, "image"), str(error), error.hint)
    command = table.command if "command" in names else None
    return StackOverride(() if command is None else split_words(command), source)
