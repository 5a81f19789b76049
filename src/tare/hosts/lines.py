"""The lines that a process prints: kept until they are read, or passed on at once."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Sequence

from tare.errors import TimedOut, TrialFailed
from tare.model.trials import Line

MOST_OUTPUT_BYTES = 64 << 20  # of a command: more than any program that measures prints, and less than harms a machine
TOO_MUCH = f"it printed more than {MOST_OUTPUT_BYTES >> 20} MiB, and was ended"
_KEPT_LINES = 10_000
_SHOWN_CHARACTERS = 300
_ERROR = re.compile(r"(\w[\w.-]*: )?(Error\b|error during connect:)")
_HELP = re.compile(r"\s*(See|Run|Try) ['`\"].*--help\b")


def last_lines(text: str) -> str:
    """Return the lines of what a command printed that say why it failed, as one: at most three and 300 characters.

    They are the last ones, or begin with the first that says "Error", as those of container engines do. A longer last
    line keeps its beginning, where error messages have the cause.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _HELP.match(line)]
    first = next((place for place, line in enumerate(lines) if _ERROR.match(line)), None)
    # What follows an error is about the client, unless the error announces it.
    kept = lines[-3:] if first is None else lines[first : first + 1 + lines[first].endswith(":")]
    *earlier, last = ("", *kept)
    words = last if len(last) <= _SHOWN_CHARACTERS else f"{last[: _SHOWN_CHARACTERS - 2]} …"
    for line in reversed(earlier):
        if not line or len(line) + len(words) + 3 > _SHOWN_CHARACTERS:
            break
        words = f"{line} / {words}"
    return words


def shown(argv: Sequence[str]) -> str:
    """Return the hint of an error of a command."""
    return f"the command was: {' '.join(argv)}"


class Lines:
    """The lines of one process: one thread adds them, others read them, or one listens.

    `words` returns what the process has written to standard error; `hint` is that of the errors raised.
    """

    def __init__(self, name: str, words: Callable[[], str], hint: str) -> None:
        self._name = name
        self._words = words
        self._hint = hint
        self._kept: deque[Line] = deque(maxlen=_KEPT_LINES)
        self._listener: Callable[[Line | None], None] | None = None
        self._ended = False
        self._fault: TrialFailed | None = None
        self._changed = threading.Condition()

    def add(self, line: Line) -> None:
        """Add a line, before the end."""
        with self._changed:
            listener = self._listener
            if listener is None:
                self._kept.append(line)
                self._changed.notify_all()
        if listener:
            listener(line)

    def end(self, fault: TrialFailed | None = None) -> None:
        """Record that there will be no more; `fault` is the reason if the process did not end regularly."""
        with self._changed:
            self._ended, self._fault = True, fault
            self._changed.notify_all()
            listener = self._listener
        if listener:
            listener(None)

    def read(self, timeout: float) -> Line:
        """Return the next line; see `Process.read_line`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._kept or self._ended, timeout):
                raise TimedOut(f"{self._name}: printed nothing for {timeout:g} s", self._hint)
            if not self._kept:
                words = last_lines(self._words()) or "no output"
                raise self._fault or TrialFailed(f"{self._name}: ended: {words}", self._hint)
            return self._kept.popleft()

    def listen(self, listener: Callable[[Line | None], None]) -> None:
        """Pass on the kept lines, and then each new one; see `Process.listen`."""
        with self._changed:
            while self._kept:
                listener(self._kept.popleft())
            self._listener = listener
            if self._ended:
                listener(None)
