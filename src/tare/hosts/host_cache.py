"""What the instances of a run share on a host: found out or made once, and taken away at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Self


class HostCache:
    """Texts by what they tell; with some of them, something is kept on the host until the end of the block."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Return it, empty."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take everything away."""
        self.close()

    def once(self, what: str, find: Callable[[], str]) -> str:
        """Return a text that is found out when it is asked for first."""
        if what not in self._texts:
            self._texts[what] = find()
        return self._texts[what]

    def made(self, what: str, make: Callable[[], AbstractContextManager[str]]) -> str:
        """Return the name of a thing that is made when it is asked for first."""
        return self.once(what, lambda: self._open.enter_context(make()))

    def close(self) -> None:
        """Take away what was made, the last thing first, and forget the rest; it can be used again."""
        self._texts.clear()
        self._open.close()
