"""The terminal: nothing that a guest, another machine or a stranger's run folder has said can steer it."""

from __future__ import annotations

from collections.abc import Iterable

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment


class Console(rich.console.Console):
    """Rich's console, which prints blanks in place of control characters: only its own styles steer the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Give the pieces of what is printed; see Rich."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def printable(text: str) -> str:
    """Put blanks in place of all that does not print, but for the ends of lines and tabs."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in text)
