"""Starts and ends processes: the only module that does.

A started process belongs to a tree, identified by an environment variable and by ancestry. To end the process is to end
its tree, including processes that have left the session or have another parent.
"""

from __future__ import annotations

import contextlib
import os
import select
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

# A command that ends with us, however we end, and with it all that it has started and mounted.
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
_TREE = "TARE_TREE"
_AT_ONCE_BYTES = 65536
_ENDING_SECONDS = 3.0  # how long a process may take to end with its life line
_CLOSING_SECONDS = 3.0  # how long a writer may delay the end of a process
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_REQUESTED = threading.Event()  # a signal has raised KeyboardInterrupt, which a library may have dropped

# Who gets the keys of our terminal while a command runs on our streams. `kept`: this process, so that Ctrl-C ends the
# command. `passed`: a command that makes a terminal of its own. `shared`: a command that uses ours.
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
        assert process is not None  # noqa: S101 - it is what took too long
        kill_tree(process.pid, tree)
        exchange.await_end(None)
        stdout, stderr = (each[:_AT_ONCE_BYTES] for each in exchange.collected_output())
        output = Output(tuple(argv), 124, stdout, stderr, time.monotonic() - began)
        if isinstance(error, OutputTooLarge):
            raise TrialFailed(f"{argv[0]}: {TOO_MUCH_OUTPUT}", command_hint(argv), output) from None
        raise TimedOut(f"{argv[0]}: did not end within {timeout:g} s", command_hint(argv), output) from None
    finally:
        if process is not None and process.returncode is None:  # we were interrupted
            kill_tree(process.pid, tree)
            exchange.await_end(None)
    output = Output(tuple(argv), _exit_code(process.returncode), *exchange.collected_output(), time.monotonic() - began)
    if check:
        require_success(output)
    return output


def require_success(output: Output) -> Output:
    """Return the output of a command that succeeded; raises TrialFailed with its last words otherwise."""
    if output.exit_code:
        last = last_lines(output.stderr.decode("utf-8", "replace").strip() or output.text) or "it printed nothing"
        what = f"{output.argv[0]}: exit code {output.exit_code}: {last}"
        raise TrialFailed(what, command_hint(output.argv), output)
    return output


@contextlib.contextmanager
def start_process(argv: Sequence[str], die_with_parent: bool = False) -> Iterator[LocalProcess]:
    """Start a command; kill its tree after the block; see `Host.spawn`. Raises TrialFailed."""
    tree = uuid.uuid4().hex
    # A command that watches its life line must not get SIGKILL with us: it ends a tree of its own.
    guard = () if die_with_parent else ("setpriv", "--pdeathsig", "KILL", "--")
    with tempfile.TemporaryFile() as errors, contextlib.ExitStack() as stack:
        try:
            with defer_signals():
                process = _start((*guard, *argv), tree, subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
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
    """Wait until a child has ended, for so long at most; `Popen.wait` would look every 50 ms."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(1000 * seconds)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP until the end of the block.

    While Popen starts a process, Python cannot yet end it or wait for it. An interrupt then would leave it running
    while tare undoes what it is about to make.
    """
    if threading.current_thread() is not threading.main_thread():
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
    """Raise KeyboardInterrupt where a signal has asked to stop, and that was dropped on the way."""
    if STOP_REQUESTED.is_set():
        raise KeyboardInterrupt


def run_interactive(argv: Sequence[str], keys: Keys) -> int:
    """Run a command on our standard streams; return its exit code."""
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
    """Pass the keys of our terminal to a command in the block; restore the terminal's settings after it."""
    if keys == "kept":
        yield
        return
    before = termios.tcgetattr(0)
    # The command handles Ctrl-C. Where it shares our terminal, this process gets the signal too, and ignores it.
    handlers = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGQUIT)}
    try:
        if keys == "passed":
            tty.setraw(0)
        yield
    finally:
        with contextlib.suppress(termios.error):  # a terminal that was closed
            termios.tcsetattr(0, termios.TCSADRAIN, before)
        for each, handler in handlers.items():
            signal.signal(each, handler)


class LocalProcess:
    """A process of this machine. A thread reads its standard output, so that it never waits for us."""

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
        """Hand on all lines; see `Process.listen`."""
        self._lines.listen(listener)

    def send(self, text: str) -> None:
        """Write to its standard input; see `Process.send`."""
        whole = rest = text.encode()
        with self._writing:
            try:
                while rest and self._process.stdin is not None:
                    rest = rest[os.write(self._process.stdin.fileno(), rest[:_AT_ONCE_BYTES]) :]
            except (OSError, ValueError) as error:  # it has ended, or its standard input was closed
                raise TrialFailed(f"{self.argv[0]}: takes no more input", command_hint(self.argv)) from error
            finally:
                if rest != whole and rest and self._process.stdin is not None:
                    self._process.stdin.close()  # we were interrupted: nothing must follow half a text

    def close_input(self) -> None:
        """End its standard input, unless a writer blocks it."""
        if self._process.stdin is not None and self._writing.acquire(timeout=_CLOSING_SECONDS):
            try:
                self._process.stdin.close()
            finally:
                self._writing.release()

    def is_running(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    def exit_code(self) -> int | None:
        """Return its exit code; see `Process.exit_code`."""
        code = self._process.poll()
        return None if code is None else _exit_code(code)

    def errors(self) -> str:
        """Return the last 64 KiB of standard error."""
        if self._last_errors is not None:
            return self._last_errors
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), 65536, max(0, size - 65536)).decode("utf-8", "replace")

    def await_output(self) -> None:
        """Wait up to 5 s until the thread has read all output, and keep the errors, whose file is about to vanish."""
        self._reader.join(timeout=5)
        self._last_errors = self.errors()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - opened as a pipe by `started_ticks`
        with self._process.stdout as stream:
            for line in stream:
                self._lines.add(OutputLine(time.monotonic(), line.decode("utf-8", "replace").rstrip("\r\n")))
        self._lines.end()


def kill_tree(pid: int, tree: str) -> None:
    """Kill a process, its descendants, and all processes with the tree's variable; wait up to 5 s for their end."""
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
    """Yield a command's standard input: a pipe for bytes, or the open file."""
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
        start_new_session=True,  # so that Ctrl-C reaches us alone
    )


def _start_failure_output(argv: Sequence[str], error: OSError) -> Output:
    """Return the exit code that a shell and all other hosts return for a program that cannot start: 127 or 126."""
    code = 127 if isinstance(error, FileNotFoundError) else 126
    return Output(tuple(argv), code, b"", f"{argv[0]}: {error.strerror}\n".encode(), 0.0)


@dataclass(frozen=True)
class _ProcEntry:
    """A process in /proc; `started_ticks` is in ticks since the machine's boot."""

    is_alive: bool  # no zombie
    parent: int
    started_ticks: int


def _find_members(pid: int, tree: str, since_ticks: int) -> set[int]:
    """Find the living processes of a tree whose first process started at `since_ticks`; older ones are no part."""
    names = os.listdir("/proc")  # noqa: PTH208 - the quickest, for some ten times a trial
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
    except (OSError, IndexError, ValueError):  # it is gone
        return None


def _has_tree(pid: int, tree: str) -> bool:
    try:
        return f"{_TREE}={tree}".encode() in _read_bytes(f"/proc/{pid}/environ")
    except OSError:
        return False


def _read_bytes(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, _AT_ONCE_BYTES), b""))
    finally:
        os.close(descriptor)


def _exit_code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode
