"""Bubblewrap: the sandbox of Flatpak, one small program that makes namespaces.

It makes neither control group nor network: tare makes both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.hosts.exec import system_steps
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.plugins.technology import HOST_NAME, PROTECTED, Ground, LaunchRequest, Technology, first_line, prepared, ready
from tare.plugins.workload import VOLUME, Instance


@dataclass(frozen=True)
class Bubblewrap(Technology):
    """Starts the image's `init` under bwrap; tare enters the inside through its namespaces."""

    name = "bubblewrap"
    title = "Bubblewrap"
    family = "sandbox"
    isolation = Isolation("shared kernel", "namespaces and a control group; no filter of system calls")
    nests = True
    volumes = True
    tools: ClassVar[Mapping[str, str]] = {"bwrap": "bubblewrap", "ip": "iproute2"}
    path = "bridge"
    differs: ClassVar[Mapping[str, str]] = {
        **PROTECTED,
        **dict.fromkeys(
            ("status NoNewPrivs", "setuid"),
            "bwrap sets no_new_privs: setuid programs and file capabilities have no effect",
        ),
    }

    def version(self, host: Host) -> str:
        """Return bwrap's version."""
        return first_line(host, "bwrap", "--version").removeprefix("bubblewrap ")

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start bwrap in a control group and a network namespace of tare's."""
        address = launch.network.instance_address
        with ExitStack() as stack:
            ground = stack.enter_context(prepared(launch, address))
            network = stack.enter_context(launch.network.namespace())
            launch.ledger.maker.make(*system_steps(ground.root, ground.group.mounts))
            enter = ground.entry("-n", f"/run/netns/{network}")
            launch.timeline.mark("started")
            process = stack.enter_context(ready(host, *enter, *_bwrap(ground), *launch.init(address)))
            inside = ground.entered(host)
            stack.enter_context(inside.over(process))
            yield ground.instance(inside, address, self.path)


def _bwrap(ground: Ground) -> tuple[str, ...]:
    namespaces = (
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--hostname",
        HOST_NAME,
        "--die-with-parent",
        "--as-pid-1",
        "--chdir",
        "/",
    )
    volume = ("--bind", str(ground.volume), VOLUME) if ground.volume else ()
    # bwrap's --dev makes a console and a folder for shared memory: the root's /dev is as in other stacks.
    system = ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
    mounts = ("--dev-bind", str(ground.root), "/", *system, *volume)
    return ("bwrap", *namespaces, *mounts, "--clearenv", "--")
