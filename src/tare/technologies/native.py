"""Bare metal: the image's programs on the machine itself, in a chroot, with no isolation but the limits.

It is the baseline. It runs the same bytes as every other stack, because VTmark (section 5) could not explain why Podman
beat a bare metal that ran another user space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.hosts.chroot import enterable
from tare.hosts.exec import ExecHost
from tare.launch import ENVIRONMENT, INIT, Launch, missing_tools, prepared
from tare.model import Family, Host, Instance, Problem


@dataclass(frozen=True)
class Native:
    """Starts nothing but the image's `init` in a control group and a chroot."""

    name: ClassVar[str] = "native"
    title: ClassVar[str] = "bare metal"
    family: ClassVar[Family] = "bare metal"
    path: ClassVar[str] = "host"

    def version(self, host: Host) -> str:
        """Give the kernel's release."""
        return host.run("uname", "-r", timeout=10).text.strip()

    def problems(self, host: Host) -> Sequence[Problem]:
        """Root and two tools are all that it takes."""
        return missing_tools(host, {"ip": "iproute2", "prlimit": "util-linux"})

    @contextmanager
    def launch(self, host: Host, launch: Launch) -> Iterator[Instance]:
        """Start `init` in a chroot of a fresh copy of the image."""
        address = launch.network.machine_address
        with ExitStack() as stack:
            ground = stack.enter_context(prepared(launch, address))
            stack.enter_context(enterable(launch.ledger, ground.root))
            enter = (*ground.group.join, *launch.open_files, "env", "-i", *ENVIRONMENT, "chroot", str(ground.root))
            launch.timeline.mark("started")
            stack.enter_context(host.spawn(*enter, INIT, launch.listen(address)))
            inside = ExecHost(host, *enter)
            yield ground.instance(inside, address, self.path)
