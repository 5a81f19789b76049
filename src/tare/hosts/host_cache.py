"""What the instances of a run share on a host: read or made once, and removed at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Self


class HostCache:
    """Texts by their meaning; some of them name a thing that exists on the host until the end of the block."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Return it, empty."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""
        self.close()

    def once(self, what: str, find: Callable[[], str]) -> str:
        """Return a text that is read at the first call."""
        if what not in self._texts:
            self._texts[what] = find()
        return self._texts[what]

    def made(self, what: str, make: Callable[[], AbstractContextManager[str]]) -> str:
        """Return the name of a thing that is made at the first call."""
        return self.once(what, lambda: self._open.enter_context(make()))

    def close(self) -> None:
        """Remove what was made, the last thing first, and forget the rest. It can be used again."""
        self._texts.clear()
        self._open.close()
