"""Hosts over SSH: machines and guests, reached by OpenSSH's client with the user's configuration."""

from __future__ import annotations

import hashlib
import itertools
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from tare.hosts.exec import ExecHost, ensure_resident
from tare.hosts.host import BOOT_ID, Host, Process
from tare.hosts.process import require_success
from tare.model.architecture import ARCHITECTURES, read_elf_architecture
from tare.model.errors import Rebooted, TareError, TrialFailed, Unreachable, UsageError
from tare.model.machine import SshTarget
from tare.model.trial import Output

_CONNECT_SECONDS = 30.0
_RECONNECT_SECONDS = 10.0  # short, because an attempt that began before a machine was back notices that late
_LOSS_DETECTION_SECONDS = 0.2  # the client ends somewhat later than the commands that use its connection
_RETRY_PAUSE_SECONDS = 20.0  # in which commands fail at once after a failed attempt to connect
_MAX_AWAY_SECONDS = 90.0  # for a machine to come back between two trials, such as after a reboot
_IDENTIFY_SCRIPT = 'id -u; uname -sm; echo "$SSH_CONNECTION"'
_CONNECTION_LOST_CODE = 255  # of OpenSSH's client for a connection error; a command may return it, too
# The client notices a dead connection within 15 s.
_KEEPALIVE_OPTIONS = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
# The client prints a line once its control socket exists: polling for it would slow down a slow machine.
_REPORT_CONNECTED_OPTIONS = ("-o", "PermitLocalCommand=yes", "-o", "LocalCommand=echo connected")
# Parts of OpenSSH's messages with their fixes; the first match counts.
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
    """Host behind `ssh` with these `options`. The client always checks host keys and never asks for passwords.

    `become` is a command prefix on the host, such as `sudo`. `supervisor` is the path of `supervise`
    (programs/supervise.c) there. If that is "", a time-out kills only the client.
    """

    def __init__(self, outer: Host, destination: str, *options: str) -> None:
        if destination.startswith("-"):
            raise UsageError(f"{destination}: not a machine's name", "write user@address")
        fixed = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR")
        super().__init__(outer, "ssh", *fixed, *options, destination, "--")
        self.destination = destination
        self.become: tuple[str, ...] = ()
        self.connection: SshConnection | None = None
        self.controller_address = ""  # tare's end of the connection, as the machine sees it
        self.machine_address = ""  # the machine's end

    def wrap(self, *argv: str) -> tuple[str, ...]:
        """Return the command line for the outer host, with the command as one quoted word."""
        # SSH passes one text to the shell on the host, and would only join the words with spaces.
        return (*self.prefix, shlex.join((*self.become, *argv)))

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command; see `Host.run`. Raises Unreachable when the connection is lost."""
        if self.connection:
            self.connection.ensure_open()
        output = super().run(*argv, timeout=timeout, input=input, check=False)
        if output.exit_code == _CONNECTION_LOST_CODE and not (self.connection and self.connection.is_open()):
            raise unreachable_error(self.destination, output.stderr.decode("utf-8", "replace"))
        return require_success(output) if check else output

    def connection_error(self, last_output: str) -> TrialFailed | None:
        """Return an error with OpenSSH's message if the connection is lost; see `Host.connection_error`."""
        if self.connection and not self.connection.is_open():
            return unreachable_error(self.destination, self.connection.last_output() or last_output)
        return super().connection_error(last_output)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[Process]:
        """Start a command; see `Host.spawn`."""
        if self.connection:
            self.connection.ensure_open()
        return super().spawn(*argv, die_with_parent=die_with_parent)


def unreachable_error(destination: str, message: str) -> Unreachable:
    """Return the error for a message of OpenSSH's, with a hint."""
    lines = [line.strip() for line in message.splitlines() if line.strip(" \r\n@")]  # warnings are framed by lines of @
    hint = next((hint for part, hint in _HINTS if part in message), "connect by hand: ssh {name}")
    last = next((part for part, _ in _HINTS[:1] if part in message), lines[-1] if lines else "the connection was lost")
    return Unreachable(f"SSH to {destination}: {last}", hint.format(name=destination))


class SshConnection:
    """Connection that all commands share, over a control socket. It is reopened after a loss.

    Any thread may use the connection, but only the thread that created the object opens it. The reasons: `ssh` ends
    with the thread that started it (PR_SET_PDEATHSIG), and a telemetry sample must not wait for an unreachable machine.
    """

    def __init__(self, host: SshHost, socket: str) -> None:
        self._host = host
        self._socket = socket
        self._open = ExitStack()
        self._process: Process | None = None
        self._was_open = False
        self._last_failure: tuple[float, Unreachable] | None = None
        self._owner_thread = threading.get_ident()
        self._boots: set[str] = set()

    def __enter__(self) -> Self:
        """Open the connection; raises Unreachable with OpenSSH's message if that fails or takes too long."""
        self.ensure_open()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._close()

    def is_open(self) -> bool:
        """Return whether the connection is open, after 0.2 s in which a loss becomes noticeable."""
        deadline = time.monotonic() + _LOSS_DETECTION_SECONDS
        while (process := self._process) is not None and process.is_running():
            if time.monotonic() > deadline:
                return True
            time.sleep(0.01)
        return False

    def last_output(self) -> str:
        """Return the last messages of OpenSSH; "" if there are none, or if another thread reopens the connection."""
        with suppress(ValueError):  # the other thread has closed the file
            return self._process.errors().strip() if self._process else ""
        return ""

    def ensure_open(self, seconds: float | None = None) -> None:
        """Open the connection unless it is open; raises Unreachable, immediately for 20 s after a failed attempt.

        An attempt takes up to `seconds` (default: 30, or 10 to reconnect), and never more than 30.
        """
        process = self._process
        if process is not None and process.is_running():
            return
        if threading.get_ident() != self._owner_thread:
            raise unreachable_error(self._host.destination, "the connection was lost")
        if self._last_failure and time.monotonic() - self._last_failure[0] < _RETRY_PAUSE_SECONDS:
            raise self._last_failure[1]
        try:
            usual = _RECONNECT_SECONDS if self._was_open else _CONNECT_SECONDS
            self._connect(min(seconds or usual, _CONNECT_SECONDS))
        except Unreachable as error:
            self._last_failure = (time.monotonic(), error)
            raise

    def await_reconnection(self) -> None:
        """Retry for up to 90 s until the connection is open; raises Unreachable, or Rebooted if the boot ID changed."""
        deadline = time.monotonic() + _MAX_AWAY_SECONDS
        for attempt in itertools.count(1):
            self._last_failure = None
            try:
                self.ensure_open(attempt * _RECONNECT_SECONDS)
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
            else:
                break
        if len(self._boots) > 1:
            raise Rebooted(f"{self._host.destination} was rebooted")

    def _close(self) -> None:
        """End the client and remove its socket."""
        self._open.close()
        # A killed client leaves its socket, and a new client refuses to replace it.
        self._host.outer.run("rm", "-f", self._socket, timeout=10)

    def _connect(self, seconds: float) -> None:
        self._close()
        if self._host.resident:
            self._host.resident.close()  # the agent died with the lost connection
        *client, destination, _ = self._host.prefix
        process = self._open.enter_context(
            self._host.outer.spawn(*client, *_REPORT_CONNECTED_OPTIONS, "-M", "-N", destination)
        )
        try:
            process.read_line(seconds)
        except TrialFailed as error:
            words = process.errors().strip() or f"no answer within {seconds:g} s: timed out"
            self._close()
            self._process = None
            raise unreachable_error(self._host.destination, words) from error
        self._process, self._was_open = process, True
        if boot := self._host.read(BOOT_ID):
            self._boots.add(boot)


@contextmanager
def connect_machine(outer: Host, target: SshTarget, socket: str, *supervisors: Path) -> Iterator[SshHost]:
    """Context manager: connect to a machine as root, with a resident agent there if there are `supervisors`.

    The machine needs only a POSIX shell. `supervisors` are local paths of `supervise` (programs/supervise.c) for
    different architectures; tare copies the one for the machine. Raises Unreachable, or TareError if tare cannot be
    root or the machine cannot run tare's programs.
    """
    configuration = ("-F", target.ssh_config) if target.ssh_config else ()
    control = ("-o", f"ControlPath={socket}", "-o", f"ConnectTimeout={_CONNECT_SECONDS:.0f}")
    host = SshHost(outer, target.ssh, *configuration, *_KEEPALIVE_OPTIONS, *control)
    with SshConnection(host, socket) as master:
        host.connection = master
        host.supervisor = ""
        user_id, system, ends = host.run("sh", "-c", _IDENTIFY_SCRIPT, timeout=30).text.split("\n")[:3]
        host.controller_address, _, host.machine_address, *_ = ends.split()
        kernel, _, machine = system.partition(" ")
        if kernel != "Linux" or machine not in ARCHITECTURES:
            known = " or ".join(each.title for each in ARCHITECTURES.values())
            raise TareError(f"{target.ssh}: it is a {system} machine", f"use a machine with Linux on {known}")
        architecture = ARCHITECTURES[machine]
        if user_id != "0":
            host.become = ("sudo", "-n", "--")
            if host.run("true", timeout=30, check=False).exit_code:
                user = target.ssh.partition("@")[0]
                hint = f"write root@… in [hosts], or allow it in sudoers there: {user} ALL=(ALL) NOPASSWD: ALL"
                raise TareError(
                    f"{target.ssh}: tare is not root there, and sudo asks for a password or is missing", hint
                )
        if not supervisors:
            yield host
            return
        supervisor = next((path for path in supervisors if read_elf_architecture(path) is architecture), None)
        if supervisor is None:
            what = f"{target.ssh}: it is an {architecture.title} machine, and the image is for another architecture"
            raise TareError(what, "use machines of one architecture")
        # The name has the hash, as another version of tare may use the same machine.
        path = f"/var/lib/tare/supervise-{hashlib.sha256(supervisor.read_bytes()).hexdigest()[:16]}"
        script = (
            'mkdir -p "${1%/*}" && chmod 700 "${1%/*}" || exit 1\n'
            'test -x "$1" || { cat > "$1.new" && chmod 755 "$1.new" && mv "$1.new" "$1"; }'
        )
        host.run("sh", "-c", script, "sh", path, timeout=60, input=supervisor)
        host.supervisor = path
        with ensure_resident(host):
            yield host
