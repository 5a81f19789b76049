"""A machine or guest that is reached over SSH, by OpenSSH's own client."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tare.hosts.exec import ExecHost
from tare.model import Host, TrialFailed

_CONNECT_SECONDS = 30.0


class SshHost(ExecHost):
    """A host behind `ssh`. `options` are the client's; host keys are always checked, passwords never asked for."""

    def __init__(self, outer: Host, destination: str, *options: str) -> None:
        fixed = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR")
        super().__init__(outer, "ssh", *fixed, *options, destination, "--")

    def wrap(self, *argv: str) -> tuple[str, ...]:
        """Quote the command: SSH hands one text to the shell over there."""
        return (*self.prefix, shlex.join(argv))


@contextmanager
def shared(outer: Host, destination: str, socket: str, *options: str) -> Iterator[SshHost]:
    """Open one connection that every command then shares, over the control socket `socket`; closed after the block.

    Raises TrialFailed with SSH's own words where it cannot be had within 30 s.
    """
    options = (*options, "-o", f"ControlPath={socket}", "-o", f"ConnectTimeout={_CONNECT_SECONDS:.0f}")
    master = SshHost(outer, destination, *options, "-M", "-N")
    with outer.spawn(*master.prefix[:-1]) as connection:
        deadline = time.monotonic() + _CONNECT_SECONDS
        while outer.run("test", "-S", socket, timeout=10, check=False).exit_code:
            if not connection.running() or time.monotonic() > deadline:
                words = connection.errors().strip() or f"no answer within {_CONNECT_SECONDS:g} s"
                raise TrialFailed(f"SSH to {destination}: {words}", "`tare show` has what was run")
            time.sleep(0.02)
        yield SshHost(outer, destination, *options)
