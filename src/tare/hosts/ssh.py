"""A machine or guest that is reached over SSH, by OpenSSH's own client."""

from __future__ import annotations

import shlex

from tare.hosts.exec import ExecHost
from tare.model import Host


class SshHost(ExecHost):
    """A host behind `ssh`. `options` are the client's; host keys are always checked, passwords never asked for."""

    def __init__(self, outer: Host, destination: str, *options: str) -> None:
        fixed = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR")
        super().__init__(outer, "ssh", *fixed, *options, destination, "--")

    def wrap(self, *argv: str) -> tuple[str, ...]:
        """Quote the command: SSH hands one text to the shell over there."""
        return (*self.prefix, shlex.join(argv))
