"""Standard streams of a process: exchange, line buffer, and extraction of error messages."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import OutputLine

MAX_OUTPUT_BYTES = 64 << 20  # of a command: more than a benchmark prints, and not enough to exhaust the memory
TOO_MUCH_OUTPUT = f"it printed more than {MAX_OUTPUT_BYTES >> 20} MiB, and was ended"
_MAX_LINES = 10_000  # of a process whose lines are not read in time; the oldest are dropped
_SHOWN_CHARACTERS = 300
_ERROR = re.compile(r"(\w[\w.-]*: )?(Error\b|error during connect:)")
_HELP = re.compile(r"\s*(See|Run|Try) ['`\"].*--help\b")
_AT_ONCE_BYTES = 65536


def last_lines(text: str) -> str:
    """Return the lines of a command's output that explain its failure, joined: at most three and 300 characters.

    These are the last lines, or else the first line that begins with "Error", as container engines print it. A longer
    last line is cut at its end, because error messages begin with the cause.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _HELP.match(line)]
    first = next((index for index, line in enumerate(lines) if _ERROR.match(line)), None)
    # The lines after an error are about the client, unless the error ends with a colon.
    shown = lines[-3:] if first is None else lines[first : first + 1 + lines[first].endswith(":")]
    *earlier, last = ("", *shown)
    words = last if len(last) <= _SHOWN_CHARACTERS else f"{last[: _SHOWN_CHARACTERS - 2]} …"
    for line in reversed(earlier):
        if not line or len(line) + len(words) + 3 > _SHOWN_CHARACTERS:
            break
        words = f"{line} / {words}"
    return words


def command_hint(argv: Sequence[str]) -> str:
    """Return the hint of an error about a command: its command line."""
    return f"the command was: {' '.join(argv)}"


class LineBuffer:
    """Lines of one process: one thread adds lines, and other threads read them or a listener gets them.

    `read_errors` returns the process's standard error so far. `hint` is the hint of all errors that `read` raises.
    """

    def __init__(self, name: str, read_errors: Callable[[], str], hint: str) -> None:
        self._name = name
        self._read_errors = read_errors
        self._hint = hint
        self._lines: deque[OutputLine] = deque(maxlen=_MAX_LINES)
        self._listener: Callable[[OutputLine | None], None] | None = None
        self._ended = False
        self._error: TrialFailed | None = None
        self._changed = threading.Condition()

    def add(self, line: OutputLine) -> None:
        """Add a line; pass it to the listener if there is one."""
        with self._changed:
            listener = self._listener
            if listener is None:
                self._lines.append(line)
                self._changed.notify_all()
        if listener:
            listener(line)

    def end(self, error: TrialFailed | None = None) -> None:
        """Record the end of the lines; `error` is the reason if the process did not end regularly, else None."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()
            listener = self._listener
        if listener:
            listener(None)

    def read(self, timeout: float) -> OutputLine:
        """Return the next line; see `Process.read_line`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._lines or self._ended, timeout):
                raise TimedOut(f"{self._name}: printed nothing for {timeout:g} s", self._hint)
            if not self._lines:
                words = last_lines(self._read_errors()) or "no output"
                raise self._error or TrialFailed(f"{self._name}: ended: {words}", self._hint)
            return self._lines.popleft()

    def listen(self, listener: Callable[[OutputLine | None], None]) -> None:
        """Pass the buffered lines to `listener`, then each new line; see `Process.listen`."""
        with self._changed:  # during the calls, so that no new line overtakes a buffered one
            while self._lines:
                listener(self._lines.popleft())
            self._listener = listener
            if self._ended:
                listener(None)


class OutputTooLarge(Exception):
    """The output of a command exceeds MAX_OUTPUT_BYTES."""


class StreamExchange:
    """Exchange with a process: writes its input, and collects its output up to MAX_OUTPUT_BYTES."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        self._process = process
        self._data = memoryview(data)
        self._output = {process.stdout: bytearray(), process.stderr: bytearray()}
        self._is_full = False
        self._selector = selectors.DefaultSelector()
        for stream in self._output:
            self._selector.register(stream, selectors.EVENT_READ)  # type: ignore[arg-type]  # they are pipes
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE)

    def await_end(self, timeout: float | None) -> None:
        """Wait until the streams and then the process have ended; raises TimeoutExpired or OutputTooLarge.

        OutputTooLarge is raised once: the caller then kills the process, and waits again while the rest is dropped.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._selector.get_map():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(self._process.args, timeout or 0.0)
            for key, _ in self._selector.select(left):
                if key.events == selectors.EVENT_WRITE:
                    self._write_input(key)
                elif piece := os.read(key.fd, _AT_ONCE_BYTES):
                    self._store(key.fileobj, piece)
                else:
                    self._close(key)
        self._process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def collected_output(self) -> tuple[bytes, bytes]:
        """Return the standard output and the standard error so far."""
        return bytes(self._output[self._process.stdout]), bytes(self._output[self._process.stderr])

    def _write_input(self, key: selectors.SelectorKey) -> None:
        try:
            self._data = self._data[os.write(key.fd, self._data[:_AT_ONCE_BYTES]) :]
        except BrokenPipeError:  # the process has closed its input, which is no error: `head` does so
            self._data = self._data[:0]
        except BlockingIOError:
            return
        if not self._data:
            self._close(key)

    def _store(self, stream: Any, piece: bytes) -> None:
        if self._is_full:
            return
        self._output[stream].extend(piece)
        self._is_full = sum(map(len, self._output.values())) > MAX_OUTPUT_BYTES
        if self._is_full:
            raise OutputTooLarge

    def _close(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]  # they are files
