"""Resident agent: a long-lived process on a host that starts all commands there.

Starting a command through the agent takes about a millisecond; `docker exec` takes 50 to 80 ms. The agent is
`supervise --resident` (programs/agent.h documents its protocol). tare starts the agent once, through `docker exec`,
`ssh` or a command that enters namespaces. The agent ends when its standard input ends, and kills all commands that it
has started. If the agent ends early, all running commands fail at once with the reason, such as a lost connection, and
the next command starts a new agent.
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

MAX_INPUT_BYTES = 1 << 20  # the agent buffers the input of a command that does not read it
_CHUNK_BYTES = 8192  # CHUNK in programs/agent.h, whose line buffer holds one quoted chunk
_ENDING_SECONDS = 5.0  # longer than the agent's 3 seconds between SIGTERM and SIGKILL
_ENDED = "its resident process ended"
_SILENT = "it printed nothing"
_MAX_ERROR_BYTES = 65536
_SHOWN_CHARACTERS = 60  # of a line that is not part of the protocol
FindConnectionError = Callable[[str], TrialFailed | None]


class ResidentEnded(TrialFailed):
    """A command lost because the resident agent ended, or violated its protocol."""

    @property
    def last_output(self) -> str:
        """The last line that the agent printed to standard error."""
        return str(self).partition(f"{_ENDED}: ")[2]


class ResidentAgent:
    """Client of a host's resident agent, which `start` starts. Any thread may use it.

    `find_connection_error` is called with the agent's last output if the agent ended early. It returns the error if the
    connection to the host is lost, else None.
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
        """Start the agent if it is not running; do not wait until it is ready."""
        self._ensure_session()

    def await_ready(self, timeout: float) -> None:
        """Wait until the agent is ready; raises TimedOut, ResidentEnded or the connection error."""
        session = self._ensure_session()
        if not session.ready_or_ended.wait(timeout):
            raise TimedOut(f"its resident process did not answer within {timeout:g} s", "")
        if session.loss:
            raise session.loss.to_error("the instance")

    def set_conditions(self) -> None:
        """Give all later commands the environment, umask, host names and privileges that every stack has."""
        self._has_equal_conditions = True
        self._ensure_session().set_conditions()

    def close(self) -> None:
        """End the agent and all of its commands; the next command starts a new agent."""
        with self._opening:
            session, self._session = self._session, None
            if session:
                session.close()

    def run(
        self, argv: Sequence[str], name: str, timeout: float, data: bytes = b"", scope: CommandScope | None = None
    ) -> Output:
        """Run a command to its end; raises TimedOut, ResidentEnded or the connection error.

        Error messages call the command `name`. Raises TrialFailed if the scope is cancelled, which ends the command.
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
        """Context manager: start a command, called `name` in errors, and end it after the block; see `Host.spawn`."""
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
                if self._has_equal_conditions:  # a new agent inherits the conditions of the engine again
                    self._session.set_conditions()
            return self._session


@dataclass(frozen=True)
class _AgentLoss:
    """Loss of an agent, with the connection error if the connection is lost."""

    last_output: str
    connection_error: TrialFailed | None

    def to_error(self, name: str, hint: str = "") -> TrialFailed:
        """Return the error of the command `name`, whose result is lost."""
        return self.connection_error or ResidentEnded(f"{name}: {_ENDED}: {self.last_output or _SILENT}", hint)


class _Session:
    """Session with one agent process, from its start to its end, with its running commands."""

    def __init__(self, process: AbstractContextManager[Process], find_connection_error: FindConnectionError) -> None:
        self.loss: _AgentLoss | None = None
        self.numbers = itertools.count(1)
        self.ready_or_ended = threading.Event()
        self._find_connection_error = find_connection_error
        self._commands: dict[int, _AgentCommand] = {}
        self._changing = threading.Lock()
        self._open = ExitStack()
        self.process = self._open.enter_context(process)
        self.process.listen(self._handle_line)

    def close(self) -> None:
        self._open.close()

    def set_conditions(self) -> None:
        """Tell the agent to set the conditions of all later commands (programs/conditions.h)."""
        with suppress(TrialFailed):  # the next command raises the error, with a name and a hint
            self.process.send("conditions 0\n")

    def add(self, command: _AgentCommand) -> None:
        """Register a command, before the agent starts it; raises the error of a lost agent."""
        with self._changing:
            if self.loss:
                raise command.loss_error(self.loss)
            self._commands[command.number] = command

    def remove(self, command: _AgentCommand) -> None:
        with self._changing:  # later output of the command is dropped
            self._commands.pop(command.number, None)

    def send(self, command: _AgentCommand, *lines: str) -> None:
        """Send protocol lines to the agent; raises ResidentEnded or the connection error."""
        try:
            self.process.send("".join(f"{line}\n" for line in lines))
        except TrialFailed as error:
            raise command.loss_error(self._end(self._last_output())) from error

    def _handle_line(self, line: OutputLine | None) -> None:
        """Handle a line that the agent printed; None is the end of its output."""
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
        """Pass a line to its command; raises ValueError or IndexError for a line that is not part of the protocol."""
        verb, *words = line.text.split(" ")
        if not self.ready_or_ended.is_set():
            if line.text != "ready":
                raise ValueError(line.text)
            self.ready_or_ended.set()
            return
        command = self._commands.get(int(words[0]))  # None if the command was removed after a time-out
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
        """Record the loss of the agent and fail all of its commands; return the first recorded loss."""
        # Detecting a lost SSH connection takes 0.2 s: skip it after a regular end, when nothing waits.
        has_waiters = self._commands or not self.ready_or_ended.is_set()
        loss = _AgentLoss(last_output, self._find_connection_error(last_output) if has_waiters else None)
        with self._changing:
            if self.loss:  # the reader thread and a sender may both notice the end
                return self.loss
            self.loss = loss
            waiting, self._commands = tuple(self._commands.values()), {}
        self.ready_or_ended.set()
        for command in waiting:
            command.fail(loss)
        return loss


class _AgentCommand(ABC):
    """Command that a resident agent runs."""

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
        """Start the command; `data` is its whole standard input, or None if more input follows through `send`."""
        lines = [f"start {self.number} {' '.join(quote(os.fsencode(word)) for word in self.argv)}"]
        if data is not None:
            lines += [*self._input(data), f"close {self.number}"]
        self.session.add(self)
        self._has_begun = True
        self.session.send(self, *lines)
        self.scope.add(self)  # not earlier: a cancelled scope ends the command, which must exist for that

    def _input(self, data: bytes) -> Iterator[str]:
        for start in range(0, len(data), _CHUNK_BYTES):
            yield f"input {self.number} {quote(data[start : start + _CHUNK_BYTES])}"

    def finish(self, die_with_parent: bool = False) -> None:
        """End the command if it is running; with `die_with_parent`, close its standard input and wait 3 s first."""
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
        """Return the exit code and the CPU seconds used; raises the reason if they are unknown."""
        if self._error or self._result is None:
            raise self._error or ResidentEnded(f"{self.name}: its result is unknown", command_hint(self.argv))
        return self._result

    @abstractmethod
    def receive(self, is_error: bool, data: bytes, seconds: float) -> None:
        """Handle a piece of the command's standard error if `is_error`, else of its standard output."""

    def end(self, code: int, cpu_seconds: float) -> None:
        """Record the regular end of the command."""
        self._result = code, cpu_seconds
        self.ended.set()

    def fail(self, loss: _AgentLoss) -> None:
        self._error = self.loss_error(loss)
        self.ended.set()

    def loss_error(self, loss: _AgentLoss) -> TrialFailed:
        return loss.to_error(self.name, command_hint(self.argv))

    def cancel(self, reason: str) -> None:
        """End the command early; a thread that waits for the command then raises the reason."""
        if not self.ended.is_set():
            self._error = self.cancellation_error(reason)
            with suppress(TrialFailed):
                self.session.send(self, f"end {self.number}")

    def cancellation_error(self, reason: str) -> TrialFailed:
        """Return the command's error for this reason of a cancellation."""
        return TrialFailed(f"{self.name}: {reason}", command_hint(self.argv))


class _CollectingCommand(_AgentCommand):
    """Command whose whole output is collected."""

    def __init__(self, session: _Session, argv: Sequence[str], name: str, scope: CommandScope | None) -> None:
        super().__init__(session, argv, name, scope)
        self.stdout, self.stderr = bytearray(), bytearray()

    def receive(self, is_error: bool, data: bytes, seconds: float) -> None:  # noqa: ARG002 - as commands are asked
        """Collect the output; cancel the command if it prints more than 64 MiB."""
        collected_bytes = len(self.stdout) + len(self.stderr)
        if collected_bytes + len(data) <= MAX_OUTPUT_BYTES:
            (self.stderr if is_error else self.stdout).extend(data)
        else:
            self.cancel(TOO_MUCH_OUTPUT)


class ResidentProcess(_AgentCommand):
    """Command whose output is read in lines while it runs; implements `Process`."""

    def __init__(self, session: _Session, argv: Sequence[str], name: str, scope: CommandScope | None) -> None:
        super().__init__(session, argv, name, scope)
        self.pid = session.process.pid  # the command's PID is that of another namespace or machine
        self._lines = LineBuffer(name, self.errors, command_hint(argv))
        self._errors = bytearray()
        self._rest = b""

    def read_line(self, timeout: float) -> OutputLine:
        """Return the next line; see `Process.read_line`."""
        return self._lines.read(timeout)

    def listen(self, listener: Callable[[OutputLine | None], None]) -> None:
        """Pass all lines to a listener; see `Process.listen`."""
        self._lines.listen(listener)

    def send(self, text: str) -> None:
        """Write to the command's standard input; see `Process.send`."""
        if self.ended.is_set():
            raise self._error or TrialFailed(f"{self.name}: takes no more input", command_hint(self.argv))
        self.session.send(self, *self._input(text.encode()))

    def is_running(self) -> bool:
        """Return whether the command still runs."""
        return not self.ended.is_set()

    def exit_code(self) -> int | None:
        """Return the exit code; see `Process.exit_code`."""
        return self._result[0] if self._result else None

    def errors(self) -> str:
        """Return the last 64 KiB of standard error."""
        return self._errors.decode("utf-8", "replace")

    def receive(self, is_error: bool, data: bytes, seconds: float) -> None:
        """Store standard error, or split standard output into lines."""
        if is_error:
            self._errors = (self._errors + data)[-_MAX_ERROR_BYTES:]
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._lines.add(_to_line(line, seconds))

    def end(self, code: int, cpu_seconds: float) -> None:
        """Record the regular end of the command, after a last line without a line feed."""
        if self._rest:
            self._lines.add(_to_line(self._rest, time.monotonic()))
        super().end(code, cpu_seconds)
        self._lines.end(self._error)

    def fail(self, loss: _AgentLoss) -> None:
        """Record the loss of the agent, which `read_line` then raises."""
        # Keep the original message of `ssh`: a host behind this one recognizes a lost connection by its text.
        is_original = loss.connection_error is None or isinstance(loss.connection_error, Unreachable)
        self._errors += f"\n{loss.last_output if is_original else loss.connection_error}".encode()
        super().fail(loss)
        self._lines.end(self._error)


def quote(data: bytes) -> str:
    """Return bytes as text, with `%` and all bytes that are not visible ASCII written as `%XX`."""
    # quoted-printable (MIME) differs only in its escape character, and Python implements it in C.
    printable = b2a_qp(data, quotetabs=True, istext=False).replace(b"=\r\n", b"").replace(b"=\n", b"")
    return printable.replace(b"%", b"=25").replace(b"=", b"%").decode("ascii")


def unquote(text: str) -> bytes:
    """Return the bytes that `quote` has quoted."""
    return a2b_qp(text.replace("=", "%3D").replace("%", "="))


def _to_line(data: bytes, seconds: float) -> OutputLine:
    return OutputLine(seconds, data.decode("utf-8", "replace").rstrip("\r"))
