"""Exec: the time of a command in a running instance by the engine's own tool, from the request to the exit code.

This is a tool call of an agent, or a probe of an orchestrator: `docker exec`, `podman exec`, `kubectl exec`,
`lxc exec`, `runsc exec`. Bare metal and sandboxes without such a tool are entered through their namespaces, as by
`nsenter`, although their users may start another sandbox for each command. sandlock cannot enter a running sandbox: its
value is the start of a second one. tare's resident process in the instance, which other workloads use, takes no part.
Guests that boot tare's image are reached by a new SSH connection for each command, whose key exchange is part of the
time.

A program on the host that the instance runs on starts the tool and waits for its end. It takes a third of a millisecond
on bare metal. The first turn runs commands one after the other, until there are `commands` or `duration` is over; the
others run as many, so that all turns have the same percentiles.

Settings: `command`, a list of words or a line; `commands` and `duration` of a turn.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tare.hosts.exec import AgentHost, ExecHost
from tare.hosts.host import Host
from tare.hosts.streams import last_lines
from tare.loads.parsing import check_labels
from tare.model.errors import TrialFailed
from tare.model.lifecycle import duration_metrics, format_durations, parse_durations
from tare.model.trial import RawOutput, Value
from tare.model.units import Duration
from tare.plugins.instance import OuterHost
from tare.plugins.workload import MeasurementContext, Workload
from tare.suites.stacks import CommandLine, split_words

_LABEL = "exec"
_TURNS = 3
_COMMAND_SECONDS = 60.0
_USUAL_SECONDS = 0.1  # estimate of a command
_USAGE = re.compile(r"tare-rusage: wall (?P<seconds>\d+\.\d+) .* exit (?P<code>\d+)\n\Z")
# Not port 22: the image may have an SSH server there.
_SSH_PORT = 17022
_KEY_FILE = "exec-key"
_KEYS_INSIDE = "/run/tare-exec-keys"
_HOST_KEY = "/run/tare-exec-host-key"
_MAKE_KEY = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f")
_SERVER = (
    *("/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-h", _HOST_KEY, "-p", str(_SSH_PORT)),
    *("-o", "UsePAM=no", "-o", "StrictModes=no", "-o", f"AuthorizedKeysFile={_KEYS_INSIDE}"),
    *("-o", "PasswordAuthentication=no", "-o", "PidFile=none"),
)
_CLIENT = (
    *("ssh", "-F", "/dev/null", "-p", str(_SSH_PORT), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"),
    *("-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "ConnectTimeout=10"),
)
_READY_SECONDS = 60.0


@dataclass(frozen=True)
class Exec(Workload):
    """Command in a running instance, from the request to its exit code."""

    name = "exec"
    title = "A command by exec"
    metrics = duration_metrics("Time of a command")
    packages = ("openssh-server",)  # for guests

    command: CommandLine = "true"
    commands: Annotated[int, Field(ge=1, le=1000)] = 20
    duration: Annotated[Duration, Field(gt=0, le=600)] = 2.0

    @property
    def rounds(self) -> int:
        """Number of turns."""
        return _TURNS

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the turns; raises TrialFailed without an inside, and if a command fails."""
        inside, outer = setup.require_inside(self.name), setup.outer
        if outer is None:
            raise TrialFailed(f"{self.name} needs the host of the instance", "this is a bug: a trial has it")
        words = split_words(self.command)
        with _open_command_prefix(inside, outer, setup.instance.address) as prefix:
            # ssh joins its words by spaces, and the guest's shell splits them again.
            argv = (*prefix, *((shlex.join(words),) if isinstance(inside, AgentHost) else words))
            count = 0
            for _ in range(_TURNS):
                began = time.monotonic()
                seconds = self._run_turn(outer, argv, count)
                yield RawOutput(_LABEL, argv, format_durations(seconds), time.monotonic() - began)
                count = len(seconds)

    def _run_turn(self, outer: OuterHost, argv: tuple[str, ...], count: int) -> Sequence[float]:
        """Run `count` commands, or with 0 as many as a turn may have; return the duration of each in seconds."""
        began, seconds = time.monotonic(), list[float]()
        while len(seconds) < (count or self.commands):
            if seconds and not count and time.monotonic() - began >= self.duration:
                break
            output = outer.host.run(f"{outer.programs}/rusage", *argv, timeout=_COMMAND_SECONDS)
            usage = _USAGE.search(output.text)
            if usage is None or usage["code"] != "0":
                code = usage["code"] if usage else "unknown"
                errors = last_lines(output.stderr.decode("utf-8", "replace").strip()) or "it printed no error"
                raise TrialFailed(f"{argv[0]}: exit code {code}: {errors}", "run the command by hand", output)
            seconds.append(float(usage["seconds"]))
        return seconds

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the percentiles of a turn's commands; raises TrialFailed for other output."""
        check_labels(raw, [_LABEL])
        return parse_durations(raw[0].text)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return _TURNS * min(self.duration, self.commands * _USUAL_SECONDS)


@contextmanager
def _open_command_prefix(inside: Host, outer: OuterHost, address: str | None) -> Iterator[tuple[str, ...]]:
    """Context manager: yield the command prefix that enters the instance as its users do.

    In a guest that boots tare's image, an SSH server runs during the block. The client's key is in the instance's
    folder on the host.
    """
    if not isinstance(inside, AgentHost):
        yield _enter_prefix(inside)
        return
    key = f"{outer.folder}/{_KEY_FILE}"
    prefix = (*_CLIENT, "-i", key, f"root@{address}")
    if inside.run("test", "-x", _SERVER[0], timeout=_READY_SECONDS, check=False).exit_code:
        raise TrialFailed("the guest has no SSH server", "add openssh-server to the image: exec in guests needs it")
    try:
        outer.host.run(*_MAKE_KEY, key, timeout=_READY_SECONDS)
        inside.run(*_MAKE_KEY, _HOST_KEY, timeout=_READY_SECONDS)
        inside.write(_KEYS_INSIDE, outer.host.read(f"{key}.pub"))
        inside.run("mkdir", "-p", "/run/sshd", timeout=_READY_SECONDS)
        with inside.spawn(*_SERVER) as server:
            deadline = time.monotonic() + _READY_SECONDS
            while outer.host.run(*prefix, "true", timeout=_READY_SECONDS, check=False).exit_code:
                if time.monotonic() > deadline or not server.is_running():
                    what = f"no SSH connection to the guest: {last_lines(server.errors()) or 'sshd printed nothing'}"
                    raise TrialFailed(what, "`tare show` has the guest's last output")
                time.sleep(0.05)
            yield prefix
    finally:
        outer.host.run("rm", "-f", key, f"{key}.pub", timeout=_READY_SECONDS)
        with suppress(TrialFailed):  # the guest may have ended, which would hide why
            inside.run("rm", "-f", _HOST_KEY, f"{_HOST_KEY}.pub", _KEYS_INSIDE, timeout=_READY_SECONDS)


def _enter_prefix(inside: Host) -> tuple[str, ...]:
    """Return the command prefix for the host that the instance runs on.

    The loop adds `setpriv` and the like if an engine runs as another user.
    """
    prefix: tuple[str, ...] = () if isinstance(inside, ExecHost) else inside.command_line()
    while isinstance(inside, ExecHost):
        prefix, inside = (*inside.prefix, *prefix), inside.outer
    return prefix
