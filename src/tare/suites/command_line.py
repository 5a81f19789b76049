"""Command lines in a suite: a list of words, or a line that is split into words as a shell does it, and run by none."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Literal

from pydantic import AfterValidator

from tare.model.names import PackageName

_OF_A_SHELL = re.compile(r"[|&;]+|[0-9]*[<>]+&?[0-9]*")


def words_of(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command; raises ValueError for a line whose quotes have no end."""
    return tuple(shlex.split(command)) if isinstance(command, str) else command


def _checked(command: str | tuple[str, ...]) -> str | tuple[str, ...]:
    try:
        words = words_of(command)
    except ValueError as error:
        raise ValueError(f"it cannot be split into words: {str(error).lower()}") from error
    if not words or not words[0]:
        raise ValueError('name a program, as in command = "sysbench cpu run"')
    if any("\0" in word for word in words):
        raise ValueError("no word may have a zero byte")
    unquoted = shlex.split(command, posix=False) if isinstance(command, str) else ()
    if shells := [word for word in unquoted if _OF_A_SHELL.fullmatch(word)]:
        raise ValueError(f"no shell runs it, which {shells[0]} is for: write sh -c '…', or quote it")
    return command


CommandLine = Annotated[str | tuple[str, ...], AfterValidator(_checked)]
NoCommand = Literal[""]
Packages = tuple[PackageName, ...]
