"""Processes of this machine: the only module that starts and kills any.

A started process belongs to a tree, identified by an environment variable and by ancestry. Killing the process kills
its tree, including processes that have left the session or have another parent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shlex
import signal
import subprocess
import tempfile
import termios
import threading
import time
import tty
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from tare.hosts.streams import TOO_MUCH_OUTPUT, LineBuffer, OutputTooLarge, StreamExchange, command_hint, last_lines
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import Output, OutputLine

# Prefix for a command that must end with tare, even if tare is killed. Its PID namespace ends all of its children, and
# its mount namespace removes its mounts.
DIE_WITH_PARENT_PREFIX = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "--",
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--",
)
_LOG = logging.getLogger(__name__)
_TREE = "TARE_TREE"
_AT_ONCE_BYTES = 65536
_ENDING_SECONDS = 3.0  # for a process to end itself after the end of its standard input
_CLOSING_SECONDS = 3.0  # for a blocked writer of standard input to finish
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_REQUESTED = threading.Event()  # set by a signal that has raised KeyboardInterrupt; a library may have dropped that

# The receiver of the terminal's keys while a command runs on tare's streams. `kept`: tare, so that Ctrl-C ends the
# command. `passed`: a command that creates another terminal. `shared`: a command that uses tare's terminal.
Keys = Literal["kept", "passed", "shared"]


def execute(argv: Sequence[str], timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
    """Run a command to its end; see `Host.run`."""
    tree = uuid.uuid4().hex
    began = time.monotonic()
    process = None
    try:
        with _open_input(input) as stdin:
            with defer_signals():
                process = _start(argv, tree, stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                exchange = StreamExchange(process, input if isinstance(input, bytes) else b"")
            exchange.await_end(timeout)
    except OSError as error:
        if process is not None:
            raise
        output = _start_failure_output(argv, error)
        return require_success(output) if check else output
    except (subprocess.TimeoutExpired, OutputTooLarge) as error:
        assert process is not None  # noqa: S101 - only a started process can raise these
        kill_tree(process.pid, tree)
        exchange.await_end(None)
        stdout, stderr = (each[:_AT_ONCE_BYTES] for each in exchange.collected_output())
        output = Output(tuple(argv), 124, stdout, stderr, time.monotonic() - began)
        if isinstance(error, OutputTooLarge):
            raise TrialFailed(f"{argv[0]}: {TOO_MUCH_OUTPUT}", command_hint(argv), output) from None
        raise TimedOut(f"{argv[0]}: did not end within {timeout:g} s", command_hint(argv), output) from None
    finally:
        if process is not None and process.returncode is None:  # after KeyboardInterrupt
            kill_tree(process.pid, tree)
            exchange.await_end(None)
    output = Output(tuple(argv), _exit_code(process.returncode), *exchange.collected_output(), time.monotonic() - began)
    _log_command(argv, f" ({output.seconds:.3f} s, exit code {output.exit_code})")
    if check:
        require_success(output)
    return output


def _log_command(argv: Sequence[str], remark: str) -> None:
    if _LOG.isEnabledFor(logging.INFO):
        _LOG.info("%s%s", shlex.join(argv), remark)


def require_success(output: Output) -> Output:
    """Return the output if the command succeeded; raises TrialFailed with the command's last lines otherwise."""
    if output.exit_code:
        last = last_lines(output.stderr.decode("utf-8", "replace").strip() or output.text) or "it printed nothing"
        what = f"{output.argv[0]}: exit code {output.exit_code}: {last}"
        raise TrialFailed(what, command_hint(output.argv), output)
    return output


@contextlib.contextmanager
def start_process(argv: Sequence[str], die_with_parent: bool = False) -> Iterator[LocalProcess]:
    """Context manager: start a command and kill its tree after the block; see `Host.spawn`. Raises TrialFailed."""
    tree = uuid.uuid4().hex
    # A command that watches its standard input must not get SIGKILL when tare dies: it first ends its own processes,
    # which may run in a container or on another machine.
    guard = () if die_with_parent else ("setpriv", "--pdeathsig", "KILL", "--")
    with tempfile.TemporaryFile() as errors, contextlib.ExitStack() as stack:
        try:
            with defer_signals():
                process = _start((*guard, *argv), tree, subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
                _log_command(argv, " &")
                local = LocalProcess(process, errors, tuple(argv))
                stack.callback(local.await_output)
                stack.callback(_end, local, process, tree, die_with_parent)
        except OSError as error:
            raise TrialFailed(f"{argv[0]}: {error.strerror}", command_hint(argv)) from error
        yield local


def _end(local: LocalProcess, process: subprocess.Popen[bytes], tree: str, die_with_parent: bool) -> None:
    local.close_input()
    if die_with_parent and process.poll() is None:
        _await_end(process.pid, _ENDING_SECONDS)
    kill_tree(process.pid, tree)
    process.wait()


def _await_end(pid: int, seconds: float) -> None:
    """Wait until a child has ended, at most for `seconds`."""
    # `Popen.wait` with a timeout polls up to every 50 ms, as long as a whole turn. A pidfd wakes at once.
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(1000 * seconds)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Context manager: defer SIGINT, SIGTERM and SIGHUP until the end of the block.

    An interrupt while Popen starts a process would lose the new process's PID. tare could not kill the process, which
    would create resources while tare removes them.
    """
    if threading.current_thread() is not threading.main_thread():  # Python runs signal handlers in the main thread only
        yield
        return
    arrived: list[int] = []
    before = {each: signal.signal(each, lambda number, _: arrived.append(number)) for each in STOP_SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        for number in arrived:
            signal.raise_signal(number)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if a signal has raised it before and a library has dropped it."""
    if STOP_REQUESTED.is_set():
        raise KeyboardInterrupt


def run_interactive(argv: Sequence[str], keys: Keys) -> int:
    """Run a command on tare's standard streams; return its exit code."""
    tree = uuid.uuid4().hex
    process = None
    with _pass_keys(keys):
        try:
            with defer_signals():
                process = subprocess.Popen(
                    tuple(argv),
                    stdin=None if keys != "kept" or not os.isatty(0) else subprocess.DEVNULL,
                    env=os.environ | {_TREE: tree},
                    start_new_session=keys != "shared",
                )
            return _exit_code(process.wait())
        finally:
            if process is not None:
                kill_tree(process.pid, tree)
                process.wait()


@contextlib.contextmanager
def _pass_keys(keys: Keys) -> Iterator[None]:
    """Context manager: pass the terminal's keys to a command; restore the terminal's settings after the block."""
    if keys == "kept":
        yield
        return
    before = termios.tcgetattr(0)
    # The command handles Ctrl-C. If it shares the terminal, the kernel sends the signal to tare, too: ignore it. A
    # handler instead of SIG_IGN, as a child would inherit SIG_IGN.
    handlers = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGQUIT)}
    try:
        if keys == "passed":
            tty.setraw(0)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be closed
            termios.tcsetattr(0, termios.TCSADRAIN, before)
        for each, handler in handlers.items():
            signal.signal(each, handler)


class LocalProcess:
    """Process of this machine. A thread reads its standard output, so that the process never blocks on a full pipe."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], argv: tuple[str, ...]) -> None:
        self.pid = process.pid
        self.argv = argv
        self._process = process
        self._errors = errors
        self._lines = LineBuffer(argv[0], self.errors, command_hint(argv))
        self._last_errors: str | None = None
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def read_line(self, timeout: float) -> OutputLine:
        """Return the next line; see `Process.read_line`."""
        return self._lines.read(timeout)

    def listen(self, listener: Callable[[OutputLine | None], None]) -> None:
        """Pass all lines to a listener; see `Process.listen`."""
        self._lines.listen(listener)

    def send(self, text: str) -> None:
        """Write to the process's standard input; see `Process.send`."""
        whole = rest = text.encode()
        with self._writing:
            try:
                while rest and self._process.stdin is not None:
                    rest = rest[os.write(self._process.stdin.fileno(), rest[:_AT_ONCE_BYTES]) :]
            except (OSError, ValueError) as error:  # OSError: the process has ended; ValueError: the file is closed
                raise TrialFailed(f"{self.argv[0]}: takes no more input", command_hint(self.argv)) from error
            finally:
                if rest != whole and rest and self._process.stdin is not None:
                    self._process.stdin.close()  # interrupted within the text: a later text must not complete it

    def close_input(self) -> None:
        """Close the process's standard input, unless a writer blocks on it for more than 3 s."""
        if self._process.stdin is not None and self._writing.acquire(timeout=_CLOSING_SECONDS):
            try:
                self._process.stdin.close()
            finally:
                self._writing.release()

    def is_running(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    def exit_code(self) -> int | None:
        """Return the exit code; see `Process.exit_code`."""
        code = self._process.poll()
        return None if code is None else _exit_code(code)

    def errors(self) -> str:
        """Return the last 64 KiB of standard error."""
        if self._last_errors is not None:
            return self._last_errors
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), 65536, max(0, size - 65536)).decode("utf-8", "replace")

    def await_output(self) -> None:
        """Wait up to 5 s until the thread has read all output; then copy the errors, as their file will be closed."""
        self._reader.join(timeout=5)  # a process that left the tree may hold the pipe open
        self._last_errors = self.errors()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - `start_process` opens it as a pipe
        with self._process.stdout as stream:
            for line in stream:
                self._lines.add(OutputLine(time.monotonic(), line.decode("utf-8", "replace").rstrip("\r\n")))
        self._lines.end()


def kill_tree(pid: int, tree: str) -> None:
    """Kill a process, its descendants, and all processes with the tree's variable; wait up to 5 s for their end."""
    # Repeat: a member may start another process between the listing and its SIGKILL.
    deadline = time.monotonic() + 5
    root = _read_proc_entry(str(pid))
    since = root.started_ticks if root else 0
    while (pids := _find_members(pid, tree, since)) and time.monotonic() < deadline:
        for member in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        time.sleep(0.001)


@contextlib.contextmanager
def _open_input(source: bytes | Path) -> Iterator[int | IO[bytes]]:
    """Context manager: yield a command's standard input, a pipe for bytes or the open file."""
    if isinstance(source, bytes):
        yield subprocess.PIPE
    else:
        with source.open("rb") as file:
            yield file


def _start(
    argv: Sequence[str], tree: str, stdin: int | IO[bytes], stdout: int, stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        tuple(argv),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=os.environ | {_TREE: tree},
        start_new_session=True,  # so that Ctrl-C reaches only tare, which ends commands in order
    )


def _start_failure_output(argv: Sequence[str], error: OSError) -> Output:
    """Return the output for a program that cannot start, with a shell's exit code: 127 if it is missing, else 126."""
    code = 127 if isinstance(error, FileNotFoundError) else 126
    return Output(tuple(argv), code, b"", f"{argv[0]}: {error.strerror}\n".encode(), 0.0)


@dataclass(frozen=True)
class _ProcEntry:
    """Process in /proc; `started_ticks` is in clock ticks since the machine's boot."""

    is_alive: bool  # False for a zombie
    parent: int
    started_ticks: int


def _find_members(pid: int, tree: str, since_ticks: int) -> set[int]:
    """Return the PIDs of the living processes of a tree whose first process started at `since_ticks`.

    Older processes cannot be members; tare need not read the environments of all processes of the machine.
    """
    names = os.listdir("/proc")  # noqa: PTH208 - the fastest way; a trial calls this about ten times
    seen = {int(name): each for name in names if name.isdigit() and (each := _read_proc_entry(name))}
    young = {number: each for number, each in seen.items() if each.is_alive and each.started_ticks >= since_ticks}
    found = {number for number in young if _has_tree(number, tree)} | ({pid} & young.keys())
    while more := {number for number, each in young.items() if each.parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _read_proc_entry(name: str) -> _ProcEntry | None:
    try:
        fields = _read_bytes(f"/proc/{name}/stat").rpartition(b")")[2].split()
        return _ProcEntry(fields[0] not in (b"Z", b"X"), int(fields[1]), int(fields[19]))
    except (OSError, IndexError, ValueError):  # the process has ended
        return None


def _has_tree(pid: int, tree: str) -> bool:
    try:
        return f"{_TREE}={tree}".encode() in _read_bytes(f"/proc/{pid}/environ")
    except OSError:
        return False


def _read_bytes(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a file object takes a quarter longer, per process
    try:
        return b"".join(iter(lambda: os.read(descriptor, _AT_ONCE_BYTES), b""))
    finally:
        os.close(descriptor)


def _exit_code(returncode: int) -> int:
    """Return Popen's code as a shell writes it: -9 for SIGKILL becomes 137."""
    return 128 - returncode if returncode < 0 else returncode
