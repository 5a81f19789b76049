"""A machine or guest that is reached over SSH, by OpenSSH's own client and with the user's own configuration."""

from __future__ import annotations

import hashlib
import itertools
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Self

from tare.contracts import Host, Process
from tare.errors import TareError, TrialFailed, Unreachable, UsageError
from tare.hosts.exec import ExecHost
from tare.hosts.process import checked
from tare.model import Machine, Output

_CONNECT_SECONDS = 30.0
_RECONNECT_SECONDS = 10.0  # less, as an attempt that began while the machine was away takes long to see it come back
_SEEN_SECONDS = 0.2
_AGAIN_SECONDS = 20.0  # how long a connection that could not be opened is not tried again
_BACK_SECONDS = 90.0  # how long a machine may be away between two trials
_ASKED = 'id -u; uname -sm; echo "$SSH_CONNECTION"'
_LOST = 255  # what OpenSSH's client exits with when the fault is the connection's
# A dead connection is noticed within 15 s, although no packet says so.
_ALIVE = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
# The client says when its control socket is there: to look for it would cost a slow machine what it needs to connect.
_TELLS = ("-o", "PermitLocalCommand=yes", "-o", "LocalCommand=echo connected")
# Part of OpenSSH's own words, and what mends it.
_HINTS = (
    ("Could not resolve hostname", "write the name as `ssh` knows it, or add it to ~/.ssh/config"),
    ("IDENTIFICATION HAS CHANGED", "if the machine was really set up anew: ssh-keygen -R {name}, then ssh {name}"),
    ("Host key verification failed", "connect once by hand and check the machine's key: ssh {name}"),
    ("Permission denied", "give the machine your key: ssh-copy-id {name}; tare never asks for a password"),
    ("Connection refused", "start its SSH server; another port goes into ~/.ssh/config"),
    ("timed out", "is the machine on, and is a firewall in between?"),
    ("No route to host", "is the machine on, and is the address right?"),
    ("unreachable", "is the machine on, and is the address right?"),
)


class SshHost(ExecHost):
    """A host behind `ssh`. `options` are the client's; host keys are always checked, passwords never asked for.

    `become` is a command prefix over there, such as `sudo`. `supervisor` is where programs/run.c is over there; without
    it a command that takes too long is only ended on this side.
    """

    def __init__(self, outer: Host, destination: str, *options: str) -> None:
        if destination.startswith("-"):
            raise UsageError(f"{destination}: not a machine's name", "write user@address")
        fixed = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR")
        super().__init__(outer, "ssh", *fixed, *options, destination, "--")
        self.destination = destination
        self.become: tuple[str, ...] = ()
        self.master: Master | None = None
        self.our_address = ""  # this end of the connection, as the machine sees it
        self.own_address = ""  # the other end

    def wrap(self, *argv: str) -> tuple[str, ...]:
        """Quote the command: SSH hands one text to the shell over there."""
        return (*self.prefix, shlex.join((*self.become, *argv)))

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command; see `Host.run`. Raises Unreachable when the connection is lost."""
        if self.master:
            self.master.ensure()
        output = super().run(*argv, timeout=timeout, input=input, check=False)
        if output.exit_code == _LOST and not (self.master and self.master.holds()):
            raise unreachable(self.destination, output.stderr.decode("utf-8", "replace"))
        return checked(output) if check else output

    def spawn(self, *argv: str, life_line: bool = False) -> AbstractContextManager[Process]:
        """Start a command; see `Host.spawn`."""
        if self.master:
            self.master.ensure()
        return super().spawn(*argv, life_line=life_line)


def unreachable(destination: str, words: str) -> Unreachable:
    """Say in two lines what OpenSSH said in many."""
    lines = [line.strip() for line in words.splitlines() if line.strip(" \r\n@")]
    hint = next((hint for part, hint in _HINTS if part in words), "try it by hand: ssh {name}")
    last = next((part for part, _ in _HINTS[:1] if part in words), lines[-1] if lines else "the connection was lost")
    return Unreachable(f"SSH to {destination}: {last}", hint.format(name=destination))


class Master:
    """One connection that every command then shares, over a control socket; opened again where it was lost.

    Any thread may use it, but only the one that made it opens it: `ssh` would be ended with the thread that started it,
    and no sample of telemetry is worth waiting for a machine that does not answer.
    """

    def __init__(self, host: SshHost, socket: str, again: bool = True, seconds: float = _CONNECT_SECONDS) -> None:
        self._host = host
        self._again = again
        self._seconds = seconds
        self._socket = socket
        self._open = ExitStack()
        self._process: Process | None = None
        self._was_open = False
        self._failed: tuple[float, Unreachable] | None = None
        self._maker = threading.get_ident()

    def __enter__(self) -> Self:
        """Open the connection; raises Unreachable with OpenSSH's own words where it cannot be had in time."""
        self.ensure()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._open.close()

    def holds(self) -> bool:
        """Tell whether the connection is still open; when it is lost, that takes a moment to be seen."""
        deadline = time.monotonic() + _SEEN_SECONDS
        while (process := self._process) is not None and process.running():
            if time.monotonic() > deadline:
                return True
            time.sleep(0.01)
        return False

    def ensure(self, seconds: float | None = None) -> None:
        """Open the connection where it is not open; raises Unreachable, at once if that has just failed.

        It may take so many seconds, or else 10 to come back, but never more than were said at first.
        """
        process = self._process
        if process is not None and (not self._again or process.running()):
            return
        if threading.get_ident() != self._maker:
            raise unreachable(self._host.destination, "the connection was lost")
        if self._failed and time.monotonic() - self._failed[0] < _AGAIN_SECONDS:
            raise self._failed[1]
        try:
            usual = _RECONNECT_SECONDS if self._was_open else self._seconds
            self._connect(min(seconds or usual, self._seconds))
        except Unreachable as error:
            self._failed = (time.monotonic(), error)
            raise

    def await_back(self) -> None:
        """Open the connection where it is not open, however long that takes, up to 90 s; raises Unreachable then."""
        deadline = time.monotonic() + _BACK_SECONDS
        for attempt in itertools.count(1):
            self._failed = None
            try:
                self.ensure(attempt * _RECONNECT_SECONDS)
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
            else:
                return

    def _connect(self, seconds: float) -> None:
        self._open.close()
        self._host.outer.run("rm", "-f", self._socket, timeout=10)
        *client, destination, _ = self._host.prefix
        process = self._open.enter_context(self._host.outer.spawn(*client, *_TELLS, "-M", "-N", destination))
        try:
            process.read_line(seconds)
        except TrialFailed as error:
            words = process.errors().strip() or f"no answer within {seconds:g} s: timed out"
            self._open.close()
            self._process = None
            raise unreachable(self._host.destination, words) from error
        self._process, self._was_open = process, True


def _control(socket: str, seconds: float = _CONNECT_SECONDS) -> tuple[str, ...]:
    return ("-o", f"ControlPath={socket}", "-o", f"ConnectTimeout={seconds:.0f}")


@contextmanager
def shared(outer: Host, destination: str, socket: str, *options: str, seconds: float) -> Iterator[SshHost]:
    """Open one connection that every command then shares, over the control socket `socket`; closed after the block.

    Raises Unreachable with OpenSSH's own words where it cannot be had within so many seconds.
    """
    host = SshHost(outer, destination, *options, *_control(socket, seconds))
    with Master(host, socket, again=False, seconds=seconds) as host.master:
        yield host


@contextmanager
def machine(outer: Host, target: Machine, socket: str, supervisor: Path | None) -> Iterator[SshHost]:
    """Connect to a machine, as root there; the connection is opened again when it is lost, and closed after the block.

    Nothing is needed over there but a POSIX shell. `supervisor` is our own programs/run.c, which is put there. Raises
    Unreachable, or TareError where we cannot be root or the machine cannot run our programs.
    """
    options = (*(("-F", target.ssh_config) if target.ssh_config else ()), *_ALIVE)
    host = SshHost(outer, target.ssh, *options, *_control(socket))
    with Master(host, socket) as master:
        host.master = master
        host.supervisor = ""
        user_id, system, ends = host.run("sh", "-c", _ASKED, timeout=30).text.split("\n")[:3]
        host.our_address, _, host.own_address, *_ = ends.split()
        if system != "Linux x86_64":
            raise TareError(f"{target.ssh}: it is a {system} machine", "tare's programs are for Linux on x86_64")
        if user_id != "0":
            host.become = ("sudo", "-n", "--")
            if host.run("true", timeout=30, check=False).exit_code:
                user = target.ssh.partition("@")[0]
                hint = f"write root@… in [hosts], or allow it in sudoers there: {user} ALL=(ALL) NOPASSWD: ALL"
                raise TareError(
                    f"{target.ssh}: tare is not root there, and sudo asks for a password or is missing", hint
                )
        if supervisor is None:
            yield host
            return
        path = f"/var/lib/tare/run-{hashlib.sha256(supervisor.read_bytes()).hexdigest()[:16]}"
        script = (
            'mkdir -p "${1%/*}" && chmod 700 "${1%/*}" || exit 1\n'
            'test -x "$1" || { cat > "$1.new" && chmod 755 "$1.new" && mv "$1.new" "$1"; }'
        )
        host.run("sh", "-c", script, "sh", path, timeout=60, input=supervisor)
        host.supervisor = path
        yield host
