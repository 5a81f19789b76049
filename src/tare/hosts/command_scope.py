"""The scope of commands, such as those that ask one server: when the server ends, so do they."""

from __future__ import annotations

import threading
from typing import Protocol

from tare.errors import TrialFailed


class Command(Protocol):
    """A command that runs."""

    def give_up(self, why: str) -> None:
        """End it early; waiting for it then raises the reason."""

    def cancelled(self, why: str) -> TrialFailed:
        """Return the reason why it has no result."""


class CommandScope:
    """The scope of some commands. Any thread may use it."""

    def __init__(self) -> None:
        self._why = ""
        self._commands: set[Command] = set()
        self._changing = threading.Lock()

    def gone(self, why: str) -> None:
        """End all of its commands, also later ones; waiting for them raises the reason."""
        with self._changing:
            self._why = self._why or why
            commands, self._commands = self._commands, set()
        for command in commands:
            command.give_up(why)

    def add(self, command: Command) -> None:
        """Record a command that has been started; raises TrialFailed if the scope has ended."""
        with self._changing:
            if self._why:
                raise command.cancelled(self._why)
            self._commands.add(command)

    def remove(self, command: Command) -> None:
        """Forget a command that has ended."""
        with self._changing:
            self._commands.discard(command)
