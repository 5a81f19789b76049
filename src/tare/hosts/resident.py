"""One process that stays on a host and starts all others there: a command then costs a millisecond, not an engine's.

It is `supervise --resident` (programs/agent.h has the lines that it takes and gives), reached once, by what the host is
reached by: `docker exec`, `ssh`, a command that enters namespaces. It ends when its standard input does, and all that
it has started with it. When it ends early, all waiting commands fail at once with the reason, such as a lost
connection, and the next command starts another one.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from abc import ABC, abstractmethod
from binascii import a2b_qp, b2a_qp
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass

from tare.hosts.host import CommandScope, Process
from tare.hosts.streams import MAX_OUTPUT_BYTES, TOO_MUCH_OUTPUT, LineBuffer, command_hint
from tare.model.errors import TimedOut, TrialFailed, Unreachable
from tare.model.trial import Output, OutputLine

MAX_INPUT_BYTES = 1 << 20  # what the resident process keeps for a command that does not read
_CHUNK_BYTES = 8192
_ENDING_SECONDS = 5.0  # it ends a command in 3
_ENDED = "its resident process ended"
_SILENT = "it said nothing"
_MAX_ERROR_BYTES = 65536
_SHOWN_CHARACTERS = 60  # of what is no line of ours
FindConnectionError = Callable[[str], TrialFailed | None]


class ResidentEnded(TrialFailed):
    """The resident process of a host has ended, or printed what it should not: what ran there is gone."""

    @property
    def last_output(self) -> str:
        """Its last words."""
        return str(self).partition(f"{_ENDED}: ")[2]


class ResidentAgent:
    """The resident process of a host, started by `start`. Any thread may use it.

    `connection_error` is called with its last words when it has ended early; it returns the reason if the connection is
    lost.
    """

    def __init__(
        self, start: Callable[[], AbstractContextManager[Process]], find_connection_error: FindConnectionError
    ) -> None:
        self._start = start
        self._find_connection_error = find_connection_error
        self._session: _Session | None = None
        self._opening = threading.Lock()
        self._has_equal_conditions = False

    def open(self) -> None:
        """Start it, where it is not running; it is not waited for."""
        self._ensure_session()

    def await_ready(self, timeout: float) -> None:
        """Wait until it takes commands; raises TimedOut, and ResidentEnded or what `connection_error` returns."""
        session = self._ensure_session()
        if not session.ready_or_ended.wait(timeout):
            raise TimedOut(f"its resident process did not answer within {timeout:g} s", "")
        if session.loss:
            raise session.loss.to_error("the inside")

    def set_conditions(self) -> None:
        """Set the environment, umask, names and rights of all later commands to those of every stack."""
        self._has_equal_conditions = True
        self._ensure_session().set_conditions()

    def close(self) -> None:
        """End it, with all that it runs; the next command starts it again."""
        with self._opening:
            session, self._session = self._session, None
            if session:
                session.close()

    def run(
        self, argv: Sequence[str], name: str, timeout: float, data: bytes = b"", scope: CommandScope | None = None
    ) -> Output:
        """Run a command, called `name`, to its end; raises TimedOut, ResidentEnded, or `connection_error`.

        Where its purpose is gone, it is ended; then this raises TrialFailed.
        """
        began = time.monotonic()
        command = _CollectingCommand(self._ensure_session(), argv, name, scope)
        try:
            command.begin(data)
            if not command.ended.wait(timeout):
                raise TimedOut(f"{name}: did not end within {timeout:g} s", command_hint(argv))
        finally:
            command.finish()
        code, cpu_seconds = command.result()
        seconds = time.monotonic() - began
        return Output(tuple(argv), code, bytes(command.stdout), bytes(command.stderr), seconds, cpu_seconds)

    @contextmanager
    def spawn(
        self, argv: Sequence[str], name: str, die_with_parent: bool, scope: CommandScope | None = None
    ) -> Iterator[Process]:
        """Start a command, called `name`, for the block; see `Host.spawn`."""
        command = ResidentProcess(self._ensure_session(), argv, name, scope)
        try:
            command.begin()
            yield command
        finally:
            command.finish(die_with_parent)

    def _ensure_session(self) -> _Session:
        with self._opening:
            if self._session and self._session.loss:
                self._session.close()
                self._session = None
            if self._session is None:
                self._session = _Session(self._start(), self._find_connection_error)
                if self._has_equal_conditions:
                    self._session.set_conditions()
            return self._session


@dataclass(frozen=True)
class _AgentLoss:
    """Why a resident process is lost: its last words, and the reason if the connection to it is lost."""

    last_output: str
    connection_error: TrialFailed | None

    def to_error(self, name: str, hint: str = "") -> TrialFailed:
        """Return the reason why the command of this name has no result."""
        return self.connection_error or ResidentEnded(f"{name}: {_ENDED}: {self.last_output or _SILENT}", hint)


class _Session:
    """One resident process, from its start to its end, and the commands that it runs."""

    def __init__(self, process: AbstractContextManager[Process], find_connection_error: FindConnectionError) -> None:
        self.loss: _AgentLoss | None = None
        self.numbers = itertools.count(1)
        self.ready_or_ended = threading.Event()  # it is ready, or has ended
        self._find_connection_error = find_connection_error
        self._commands: dict[int, _AgentCommand] = {}
        self._changing = threading.Lock()
        self._open = ExitStack()
        self.process = self._open.enter_context(process)
        self.process.listen(self._handle_line)

    def close(self) -> None:
        """End the process."""
        self._open.close()

    def set_conditions(self) -> None:
        """Send the line that sets the conditions (programs/conditions.h); what goes wrong is seen by later commands."""
        with suppress(TrialFailed):
            self.process.send("conditions 0\n")

    def add(self, command: _AgentCommand) -> None:
        """Make a command known, before it is started."""
        with self._changing:
            if self.loss:
                raise command.loss_error(self.loss)
            self._commands[command.number] = command

    def remove(self, command: _AgentCommand) -> None:
        """Forget a command."""
        with self._changing:
            self._commands.pop(command.number, None)

    def send(self, command: _AgentCommand, *lines: str) -> None:
        """Send a message to the process; raises ResidentEnded, and what `connection_error` returns."""
        try:
            self.process.send("".join(f"{line}\n" for line in lines))
        except TrialFailed as error:
            raise command.loss_error(self._end(self._last_output())) from error

    def _handle_line(self, line: OutputLine | None) -> None:
        """Take a line that the process has printed; None at their end."""
        if self.loss:
            return
        if line is None:
            self._end(self._last_output())
            return
        try:
            self._dispatch(line)
        except (ValueError, IndexError):
            self._end(f"it printed {line.text[:_SHOWN_CHARACTERS]!r}")

    def _dispatch(self, line: OutputLine) -> None:
        """Pass a line to its command; raises ValueError or IndexError for what is none of ours."""
        verb, *words = line.text.split(" ")
        if not self.ready_or_ended.is_set():
            if line.text != "ready":
                raise ValueError(line.text)
            self.ready_or_ended.set()
            return
        command = self._commands.get(int(words[0]))  # None: no thread waits for it any more
        if verb == "ended":
            code, user, system = int(words[1]), float(words[2]), float(words[3])
            if command:
                self.remove(command)
                command.end(code, user + system)
            return
        is_error = {"out": False, "err": True}.get(verb)
        if is_error is None:
            raise ValueError(verb)
        if command:
            command.receive(is_error, unquote(words[1]), line.seconds)

    def _last_output(self) -> str:
        words = self.process.errors().strip().splitlines()
        return words[-1] if words else ""

    def _end(self, last_output: str) -> _AgentLoss:
        """End all commands without a result, for a reason. The first reason stays."""
        # After an ordered end, nothing waits. Checking whether a connection is lost takes a moment.
        waited_for = self._commands or not self.ready_or_ended.is_set()
        fault = _AgentLoss(last_output, self._find_connection_error(last_output) if waited_for else None)
        with self._changing:
            if self.loss:
                return self.loss
            self.loss = fault
            waiting, self._commands = tuple(self._commands.values()), {}
        self.ready_or_ended.set()
        for command in waiting:
            command.fail(fault)
        return fault


class _AgentCommand(ABC):
    """A command that a resident process runs for us."""

    def __init__(self, session: _Session, argv: Sequence[str], name: str, scope: CommandScope | None) -> None:
        self.argv = tuple(argv)
        self.name = name
        self.session = session
        self.scope = scope or CommandScope()
        self.number = next(session.numbers)
        self.ended = threading.Event()
        self._result: tuple[int, float] | None = None
        self._error: TrialFailed | None = None
        self._has_begun = False

    def begin(self, data: bytes | None = None) -> None:
        """Start it, with all of its standard input where there is no more to come."""
        lines = [f"start {self.number} {' '.join(quote(os.fsencode(word)) for word in self.argv)}"]
        if data is not None:
            lines += [*self._input(data), f"close {self.number}"]
        self.session.add(self)
        self._has_begun = True
        self.session.send(self, *lines)
        self.scope.add(self)  # once it can be ended

    def _input(self, data: bytes) -> Iterator[str]:
        for start in range(0, len(data), _CHUNK_BYTES):
            yield f"input {self.number} {quote(data[start : start + _CHUNK_BYTES])}"

    def finish(self, die_with_parent: bool = False) -> None:
        """See that it is gone: the end of its standard input is enough for one with a life line."""
        with suppress(TrialFailed):
            if self._has_begun and die_with_parent and not self.ended.is_set():
                self.session.send(self, f"close {self.number}")
                self.ended.wait(3)
            if self._has_begun and not self.ended.is_set():
                self.session.send(self, f"end {self.number}")
                self.ended.wait(_ENDING_SECONDS)
        self.session.remove(self)
        self.scope.remove(self)

    def result(self) -> tuple[int, float]:
        """Return its exit code, and the seconds of CPU that it has used; raises the reason if they are unknown."""
        if self._error or self._result is None:
            raise self._error or ResidentEnded(f"{self.name}: its result is unknown", command_hint(self.argv))
        return self._result

    @abstractmethod
    def receive(self, is_error: bool, data: bytes, seconds: float) -> None:
        """Take what it has printed."""

    def end(self, code: int, cpu_seconds: float) -> None:
        """Record that it has ended."""
        self._result = code, cpu_seconds
        self.ended.set()

    def fail(self, loss: _AgentLoss) -> None:
        """Record why its result is unknown."""
        self._error = self.loss_error(loss)
        self.ended.set()

    def loss_error(self, loss: _AgentLoss) -> TrialFailed:
        """Return the reason why it has no result."""
        return loss.to_error(self.name, command_hint(self.argv))

    def cancel(self, reason: str) -> None:
        """End it early; waiting for it then raises the reason."""
        if not self.ended.is_set():
            self._error = self.cancellation_error(reason)
            with suppress(TrialFailed):
                self.session.send(self, f"end {self.number}")

    def cancellation_error(self, reason: str) -> TrialFailed:
        """Return the reason why it has no purpose."""
        return TrialFailed(f"{self.name}: {reason}", command_hint(self.argv))


class _CollectingCommand(_AgentCommand):
    """A command whose output is wanted as a whole."""

    def __init__(self, session: _Session, argv: Sequence[str], name: str, scope: CommandScope | None) -> None:
        super().__init__(session, argv, name, scope)
        self.stdout, self.stderr = bytearray(), bytearray()

    def receive(self, is_error: bool, data: bytes, seconds: float) -> None:  # noqa: ARG002 - as commands are asked
        """Keep it, unless it is too much."""
        kept = len(self.stdout) + len(self.stderr)
        if kept + len(data) <= MAX_OUTPUT_BYTES:
            (self.stderr if is_error else self.stdout).extend(data)
        else:
            self.cancel(TOO_MUCH_OUTPUT)


class ResidentProcess(_AgentCommand):
    """A command whose output is wanted in lines, as they come: a `Process`."""

    def __init__(self, session: _Session, argv: Sequence[str], name: str, scope: CommandScope | None) -> None:
        super().__init__(session, argv, name, scope)
        self.pid = session.process.pid
        self._lines = LineBuffer(name, self.errors, command_hint(argv))
        self._errors = bytearray()
        self._rest = b""

    def read_line(self, timeout: float) -> OutputLine:
        """Return the next line; see `Process.read_line`."""
        return self._lines.read(timeout)

    def listen(self, listener: Callable[[OutputLine | None], None]) -> None:
        """Hand on all lines; see `Process.listen`."""
        self._lines.listen(listener)

    def send(self, text: str) -> None:
        """Write to its standard input; see `Process.send`."""
        if self.ended.is_set():
            raise self._error or TrialFailed(f"{self.name}: takes no more input", command_hint(self.argv))
        self.session.send(self, *self._input(text.encode()))

    def is_running(self) -> bool:
        """Return whether it is still there."""
        return not self.ended.is_set()

    def exit_code(self) -> int | None:
        """Return its exit code; see `Process.exit_code`."""
        return self._result[0] if self._result else None

    def errors(self) -> str:
        """Return what it has written to standard error, at most the last 64 KiB."""
        return self._errors.decode("utf-8", "replace")

    def receive(self, is_error: bool, data: bytes, seconds: float) -> None:
        """Keep it, or cut it into lines."""
        if is_error:
            self._errors = (self._errors + data)[-_MAX_ERROR_BYTES:]
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._lines.add(_to_line(line, seconds))

    def end(self, code: int, cpu_seconds: float) -> None:
        """Record that it has ended."""
        if self._rest:
            self._lines.add(_to_line(self._rest, time.monotonic()))
        super().end(code, cpu_seconds)
        self._lines.end(self._error)

    def fail(self, loss: _AgentLoss) -> None:
        """Record why its result is unknown; reading on then raises it."""
        # A host that cannot be reached is recognized by its own words, also by one behind it.
        own_words = loss.connection_error is None or isinstance(loss.connection_error, Unreachable)
        self._errors += f"\n{loss.last_output if own_words else loss.connection_error}".encode()
        super().fail(loss)
        self._lines.end(self._error)


def quote(data: bytes) -> str:
    """Write all bytes but visible ones, and `%`, as `%XX`: by MIME's quoted-printable, which Python has in C."""
    printable = b2a_qp(data, quotetabs=True, istext=False).replace(b"=\r\n", b"").replace(b"=\n", b"")
    return printable.replace(b"%", b"=25").replace(b"=", b"%").decode("ascii")


def unquote(text: str) -> bytes:
    """Return the bytes that were quoted."""
    return a2b_qp(text.replace("=", "%3D").replace("%", "="))


def _to_line(data: bytes, seconds: float) -> OutputLine:
    return OutputLine(seconds, data.decode("utf-8", "replace").rstrip("\r"))
