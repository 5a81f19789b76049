"""One process that stays on a host and starts all others there: a command then costs a millisecond, not an engine's.

It is `run --resident` (programs/resident.h has the lines that it takes and gives), reached once, by what the host is
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
from tare.hosts.streams import MOST_OUTPUT_BYTES, TOO_MUCH, Lines, shown
from tare.model.errors import TimedOut, TrialFailed, Unreachable
from tare.model.trial import Line, Output

MOST_INPUT_BYTES = 1 << 20  # what the resident process keeps for a command that does not read
_CHUNK_BYTES = 8192
_ENDING_SECONDS = 5.0  # it ends a command in 3
_ENDED = "its resident process ended"
_SILENT = "it said nothing"
_KEPT_ERROR_BYTES = 65536
_SHOWN_CHARACTERS = 60  # of what is no line of ours
Lost = Callable[[str], TrialFailed | None]


class ResidentEnded(TrialFailed):
    """The resident process of a host has ended, or printed what it should not: what ran there is gone."""

    @property
    def words(self) -> str:
        """Its last words."""
        return str(self).partition(f"{_ENDED}: ")[2]


class Resident:
    """The resident process of a host, started by `start`. Any thread may use it.

    `lost` is called with its last words when it has ended early; it returns the reason if the connection is lost.
    """

    def __init__(self, start: Callable[[], AbstractContextManager[Process]], lost: Lost) -> None:
        self._start = start
        self._lost = lost
        self._session: _Session | None = None
        self._opening = threading.Lock()
        self._equal = False

    def open(self) -> None:
        """Start it, where it is not running; it is not waited for."""
        self._running()

    def await_ready(self, timeout: float) -> None:
        """Wait until it takes commands; raises TimedOut, and ResidentEnded or what `lost` returns."""
        session = self._running()
        if not session.settled.wait(timeout):
            raise TimedOut(f"its resident process did not answer within {timeout:g} s", "")
        if session.fault:
            raise session.fault.of("the inside")

    def set_conditions(self) -> None:
        """Set the environment, umask, names and rights of all later commands to those of every stack."""
        self._equal = True
        self._running().set_conditions()

    def close(self) -> None:
        """End it, with all that it runs; the next command starts it again."""
        with self._opening:
            session, self._session = self._session, None
            if session:
                session.close()

    def run(
        self, argv: Sequence[str], name: str, timeout: float, data: bytes = b"", purpose: CommandScope | None = None
    ) -> Output:
        """Run a command, called `name`, to its end; raises TimedOut, ResidentEnded, and what `lost` returns.

        Where its purpose is gone, it is ended; then this raises TrialFailed.
        """
        began = time.monotonic()
        command = _Collected(self._running(), argv, name, purpose)
        try:
            command.begin(data)
            if not command.ended.wait(timeout):
                raise TimedOut(f"{name}: did not end within {timeout:g} s", shown(argv))
        finally:
            command.finish()
        code, cpu_seconds = command.result()
        seconds = time.monotonic() - began
        return Output(tuple(argv), code, bytes(command.stdout), bytes(command.stderr), seconds, cpu_seconds)

    @contextmanager
    def spawn(
        self, argv: Sequence[str], name: str, life_line: bool, purpose: CommandScope | None = None
    ) -> Iterator[Process]:
        """Start a command, called `name`, for the block; see `Host.spawn`."""
        command = ResidentProcess(self._running(), argv, name, purpose)
        try:
            command.begin()
            yield command
        finally:
            command.finish(life_line)

    def _running(self) -> _Session:
        with self._opening:
            if self._session and self._session.fault:
                self._session.close()
                self._session = None
            if self._session is None:
                self._session = _Session(self._start(), self._lost)
                if self._equal:
                    self._session.set_conditions()
            return self._session


@dataclass(frozen=True)
class _Fault:
    """Why a resident process is lost: its last words, and the reason if the connection to it is lost."""

    words: str
    lost: TrialFailed | None

    def of(self, name: str, hint: str = "") -> TrialFailed:
        """Return the reason why the command of this name has no result."""
        return self.lost or ResidentEnded(f"{name}: {_ENDED}: {self.words or _SILENT}", hint)


class _Session:
    """One resident process, from its start to its end, and the commands that it runs."""

    def __init__(self, process: AbstractContextManager[Process], lost: Lost) -> None:
        self.fault: _Fault | None = None
        self.numbers = itertools.count(1)
        self.settled = threading.Event()  # it is ready, or has ended
        self._lost = lost
        self._commands: dict[int, _Command] = {}
        self._changing = threading.Lock()
        self._open = ExitStack()
        self.process = self._open.enter_context(process)
        self.process.listen(self._take)

    def close(self) -> None:
        """End the process."""
        self._open.close()

    def set_conditions(self) -> None:
        """Send the line that sets the conditions (programs/conditions.h); what goes wrong is seen by later commands."""
        with suppress(TrialFailed):
            self.process.send("conditions 0\n")

    def add(self, command: _Command) -> None:
        """Make a command known, before it is started."""
        with self._changing:
            if self.fault:
                raise command.failed(self.fault)
            self._commands[command.number] = command

    def remove(self, command: _Command) -> None:
        """Forget a command."""
        with self._changing:
            self._commands.pop(command.number, None)

    def send(self, command: _Command, *lines: str) -> None:
        """Send a message to the process; raises ResidentEnded, and what `lost` returns."""
        try:
            self.process.send("".join(f"{line}\n" for line in lines))
        except TrialFailed as error:
            raise command.failed(self._end(self._last_words())) from error

    def _take(self, line: Line | None) -> None:
        """Take a line that the process has printed; None at their end."""
        if self.fault:
            return
        if line is None:
            self._end(self._last_words())
            return
        try:
            self._pass_on(line)
        except (ValueError, IndexError):
            self._end(f"it printed {line.text[:_SHOWN_CHARACTERS]!r}")

    def _pass_on(self, line: Line) -> None:
        """Pass a line to its command; raises ValueError or IndexError for what is none of ours."""
        verb, *words = line.text.split(" ")
        if not self.settled.is_set():
            if line.text != "ready":
                raise ValueError(line.text)
            self.settled.set()
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
            command.take(is_error, unquoted(words[1]), line.seconds)

    def _last_words(self) -> str:
        words = self.process.errors().strip().splitlines()
        return words[-1] if words else ""

    def _end(self, words: str) -> _Fault:
        """End all commands without a result, for a reason. The first reason stays."""
        # After an ordered end, nothing waits. Checking whether a connection is lost takes a moment.
        waited_for = self._commands or not self.settled.is_set()
        fault = _Fault(words, self._lost(words) if waited_for else None)
        with self._changing:
            if self.fault:
                return self.fault
            self.fault = fault
            waiting, self._commands = tuple(self._commands.values()), {}
        self.settled.set()
        for command in waiting:
            command.fail(fault)
        return fault


class _Command(ABC):
    """A command that a resident process runs for us."""

    def __init__(self, session: _Session, argv: Sequence[str], name: str, purpose: CommandScope | None) -> None:
        self.argv = tuple(argv)
        self.name = name
        self.session = session
        self.purpose = purpose or CommandScope()
        self.number = next(session.numbers)
        self.ended = threading.Event()
        self._result: tuple[int, float] | None = None
        self._fault: TrialFailed | None = None
        self._begun = False

    def begin(self, data: bytes | None = None) -> None:
        """Start it, with all of its standard input where there is no more to come."""
        lines = [f"start {self.number} {' '.join(quoted(os.fsencode(word)) for word in self.argv)}"]
        if data is not None:
            lines += [*self._input(data), f"close {self.number}"]
        self.session.add(self)
        self._begun = True
        self.session.send(self, *lines)
        self.purpose.add(self)  # once it can be ended

    def _input(self, data: bytes) -> Iterator[str]:
        for start in range(0, len(data), _CHUNK_BYTES):
            yield f"input {self.number} {quoted(data[start : start + _CHUNK_BYTES])}"

    def finish(self, life_line: bool = False) -> None:
        """See that it is gone: the end of its standard input is enough for one with a life line."""
        with suppress(TrialFailed):
            if self._begun and life_line and not self.ended.is_set():
                self.session.send(self, f"close {self.number}")
                self.ended.wait(3)
            if self._begun and not self.ended.is_set():
                self.session.send(self, f"end {self.number}")
                self.ended.wait(_ENDING_SECONDS)
        self.session.remove(self)
        self.purpose.remove(self)

    def result(self) -> tuple[int, float]:
        """Return its exit code, and the seconds of CPU that it has used; raises the reason if they are unknown."""
        if self._fault or self._result is None:
            raise self._fault or ResidentEnded(f"{self.name}: its result is unknown", shown(self.argv))
        return self._result

    @abstractmethod
    def take(self, is_error: bool, data: bytes, seconds: float) -> None:
        """Take what it has printed."""

    def end(self, code: int, cpu_seconds: float) -> None:
        """Record that it has ended."""
        self._result = code, cpu_seconds
        self.ended.set()

    def fail(self, fault: _Fault) -> None:
        """Record why its result is unknown."""
        self._fault = self.failed(fault)
        self.ended.set()

    def failed(self, fault: _Fault) -> TrialFailed:
        """Return the reason why it has no result."""
        return fault.of(self.name, shown(self.argv))

    def give_up(self, why: str) -> None:
        """End it early; waiting for it then raises the reason."""
        if not self.ended.is_set():
            self._fault = self.cancelled(why)
            with suppress(TrialFailed):
                self.session.send(self, f"end {self.number}")

    def cancelled(self, why: str) -> TrialFailed:
        """Return the reason why it has no purpose."""
        return TrialFailed(f"{self.name}: {why}", shown(self.argv))


class _Collected(_Command):
    """A command whose output is wanted as a whole."""

    def __init__(self, session: _Session, argv: Sequence[str], name: str, purpose: CommandScope | None) -> None:
        super().__init__(session, argv, name, purpose)
        self.stdout, self.stderr = bytearray(), bytearray()

    def take(self, is_error: bool, data: bytes, seconds: float) -> None:  # noqa: ARG002 - as commands are asked
        """Keep it, unless it is too much."""
        kept = len(self.stdout) + len(self.stderr)
        if kept + len(data) <= MOST_OUTPUT_BYTES:
            (self.stderr if is_error else self.stdout).extend(data)
        else:
            self.give_up(TOO_MUCH)


class ResidentProcess(_Command):
    """A command whose output is wanted in lines, as they come: a `Process`."""

    def __init__(self, session: _Session, argv: Sequence[str], name: str, purpose: CommandScope | None) -> None:
        super().__init__(session, argv, name, purpose)
        self.pid = session.process.pid
        self._lines = Lines(name, self.errors, shown(argv))
        self._errors = bytearray()
        self._rest = b""

    def read_line(self, timeout: float) -> Line:
        """Return the next line; see `Process.read_line`."""
        return self._lines.read(timeout)

    def listen(self, listener: Callable[[Line | None], None]) -> None:
        """Hand on all lines; see `Process.listen`."""
        self._lines.listen(listener)

    def send(self, text: str) -> None:
        """Write to its standard input; see `Process.send`."""
        if self.ended.is_set():
            raise self._fault or TrialFailed(f"{self.name}: takes no more input", shown(self.argv))
        self.session.send(self, *self._input(text.encode()))

    def running(self) -> bool:
        """Return whether it is still there."""
        return not self.ended.is_set()

    def exit_code(self) -> int | None:
        """Return its exit code; see `Process.exit_code`."""
        return self._result[0] if self._result else None

    def errors(self) -> str:
        """Return what it has written to standard error, at most the last 64 KiB."""
        return self._errors.decode("utf-8", "replace")

    def take(self, is_error: bool, data: bytes, seconds: float) -> None:
        """Keep it, or cut it into lines."""
        if is_error:
            self._errors = (self._errors + data)[-_KEPT_ERROR_BYTES:]
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._lines.add(_line(line, seconds))

    def end(self, code: int, cpu_seconds: float) -> None:
        """Record that it has ended."""
        if self._rest:
            self._lines.add(_line(self._rest, time.monotonic()))
        super().end(code, cpu_seconds)
        self._lines.end(self._fault)

    def fail(self, fault: _Fault) -> None:
        """Record why its result is unknown; reading on then raises it."""
        # A host that cannot be reached is recognized by its own words, also by one behind it.
        own_words = fault.lost is None or isinstance(fault.lost, Unreachable)
        self._errors += f"\n{fault.words if own_words else fault.lost}".encode()
        super().fail(fault)
        self._lines.end(self._fault)


def quoted(data: bytes) -> str:
    """Write all bytes but visible ones, and `%`, as `%XX`: by MIME's quoted-printable, which Python has in C."""
    printable = b2a_qp(data, quotetabs=True, istext=False).replace(b"=\r\n", b"").replace(b"=\n", b"")
    return printable.replace(b"%", b"=25").replace(b"=", b"%").decode("ascii")


def unquoted(text: str) -> bytes:
    """Return the bytes that were quoted."""
    return a2b_qp(text.replace("=", "%3D").replace("%", "="))


def _line(data: bytes, seconds: float) -> Line:
    return Line(seconds, data.decode("utf-8", "replace").rstrip("\r"))
