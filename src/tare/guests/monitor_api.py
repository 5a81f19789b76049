"""API of a machine monitor: HTTP requests over a Unix socket in the machine's folder, in which the monitor runs.

A snapshot stores the path of the disk: a relative path fits to the folder of each machine that is restored from it.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from tare.guests import kvm
from tare.guests.monitors import DirectBoot, GuestResources, create_guest_resources
from tare.hosts.host import Host
from tare.hosts.streams import last_lines
from tare.model.errors import TrialFailed
from tare.plugins.instance import Instance
from tare.plugins.snapshots import Snapshots, explain_failed_restore
from tare.plugins.technology import SNAPSHOT_SECONDS, LaunchRequest

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


class ApiMonitor(DirectBoot, Snapshots):
    """Monitor with an API, whose program has the technology's name."""

    socket_option: ClassVar[str]

    def machine_options(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:  # noqa: ARG002 - others have a file
        """Return the options of a new machine; their preparation does not count as part of the start."""
        return ()

    @abstractmethod
    def network_options(self, host: Host, launch: LaunchRequest, tap: str) -> tuple[str, ...]:
        """Return the options that connect a new machine to its tap."""

    @abstractmethod
    def restore_requests(self, snapshot: Path) -> tuple[ApiRequest, ...]:
        """Return the requests that restore a machine from a snapshot, and resume it."""

    @abstractmethod
    def snapshot_requests(self, folder: str) -> tuple[ApiRequest, ...]:
        """Return the requests that pause a machine, and write its snapshot to a folder."""

    def launch(self, host: Host, launch: LaunchRequest) -> AbstractContextManager[Instance]:
        """Context manager: boot a machine on a copy of the image's disk."""
        return self._start(host, launch)

    def restore(self, host: Host, launch: LaunchRequest, snapshot: str) -> AbstractContextManager[Instance]:
        """Context manager: resume the machine of a snapshot, on a copy of its disk."""
        return self._start(host, launch, Path(snapshot))

    @contextmanager
    def _start(self, host: Host, launch: LaunchRequest, snapshot: Path | None = None) -> Iterator[Instance]:
        launch.prepare_image(self, host)
        with create_guest_resources(host, launch) as resources:
            api = MonitorApi(self.name, resources)
            disk = resources.copy_disk("raw", base=snapshot and snapshot / DISK)
            options = () if snapshot else self.machine_options(host, launch)
            resources.mark_requested()
            group = resources.create_cgroup()
            tap = resources.stack.enter_context(launch.network.create_tap())
            options += () if snapshot else self.network_options(host, launch, tap)
            launch.timeline.mark("started")
            command = api.command(self.name, self.socket_option, SOCKET, *options)
            console = resources.stack.enter_context(host.spawn(*group.join, *launch.network.enter, *command))
            proof = {"accelerator": "kvm", self.name: launch.version(self, host)}
            if snapshot:
                api.load_snapshot(*self.restore_requests(snapshot))
                with explain_failed_restore(console, self.name):
                    instance = resources.describe_instance(None, disk, self.network_path, **proof)
                    yield kvm.with_pvm(host, instance)
                return
            instance = resources.await_boot(console, disk, self.network_path, **proof)

            def take_snapshot(folder: str) -> None:
                api.take_snapshot(folder, *self.snapshot_requests(folder))

            yield replace(kvm.with_pvm(host, instance), take_snapshot=take_snapshot)
