"""API of a machine monitor: HTTP requests over a Unix socket in the machine's folder, in which the monitor runs.

A snapshot stores the path of the disk: a relative path fits to the folder of each machine that is restored from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tare.guests.monitors import GuestResources
from tare.hosts.streams import last_lines
from tare.model.errors import TrialFailed
from tare.plugins.technology import SNAPSHOT_SECONDS

SOCKET = "api.sock"
DISK = "disk.raw"  # in the folder of a machine, and of a snapshot
_LISTEN_SECONDS = 60.0  # a monitor that does not listen by then has failed, on an emulated machine, too

ApiRequest = tuple[str, str, Mapping[str, object]]  # method, path and body; an empty body is not sent


@dataclass(frozen=True)
class MonitorApi:
    """API of the monitor of one machine; `name` is that of the monitor's technology."""

    name: str
    resources: GuestResources

    def command(self, *argv: str) -> tuple[str, ...]:
        """Return a command that runs in the machine's folder."""
        return ("env", "-C", str(self.resources.launch.folder), *argv)

    def load_snapshot(self, *requests: ApiRequest) -> None:
        """Send the requests that restore a snapshot; raises TrialFailed with the monitor's reason."""
        self._send("restore the snapshot", requests)

    def take_snapshot(self, folder: str, *requests: ApiRequest) -> None:
        """Send the requests that take a snapshot, copy the machine's disk to the snapshot, and end the monitor."""
        host = self.resources.host
        self._send("take a snapshot", requests)
        copy = ("cp", "--sparse=always", DISK, f"{folder}/{DISK}")
        host.run(*self.command(*copy), timeout=SNAPSHOT_SECONDS)
        host.run("kill", *map(str, self.resources.processes()), timeout=30)

    def _send(self, action: str, requests: tuple[ApiRequest, ...]) -> None:
        words = [word for method, path, body in requests for word in (method, path, json.dumps(body) if body else "")]
        program = self.resources.launch.ledger.setup_helper.program_path("unix_http")
        command = self.command(program, SOCKET, f"{_LISTEN_SECONDS:g}", *words)
        output = self.resources.host.run(*command, timeout=_LISTEN_SECONDS + SNAPSHOT_SECONDS, check=False)
        if output.exit_code:
            why = last_lines(output.stderr.decode("utf-8", "replace").strip()) or "it printed nothing"
            raise TrialFailed(f"{self.name} cannot {action}: {why}", "`tare show` has its commands", output)
