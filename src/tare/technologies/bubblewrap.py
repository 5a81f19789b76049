"""Bubblewrap: the sandbox of Flatpak, one small program that makes namespaces.

It makes no control group and no network: tare makes both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.hosts.exec import system_steps
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import InstanceSandbox, create_sandbox, start_init
from tare.plugins.technology import (
    HOST_NAME,
    PROTECTED_PATH_DIFFERENCES,
    LaunchRequest,
    Technology,
    first_line,
)


@dataclass(frozen=True)
class Bubblewrap(Technology):
    """Starts the image's `init` under bwrap; tare runs commands inside through its namespaces."""

    name = "bubblewrap"
    title = "Bubblewrap"
    family = "sandbox"
    isolation = Isolation("shared kernel", "namespaces and a control group; no filter of system calls")
    can_be_nested = True
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {"bwrap": "bubblewrap", "ip": "iproute2"}
    network_path = "bridge"
    expected_differences: ClassVar[Mapping[str, str]] = {
        **PROTECTED_PATH_DIFFERENCES,
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
            sandbox = stack.enter_context(create_sandbox(launch, address))
            network = stack.enter_context(launch.network.create_namespace())
            launch.ledger.setup_helper.run_steps(*system_steps(sandbox.root, sandbox.group.mounts))
            enter = sandbox.enter_prefix("-n", f"/run/netns/{network}")
            launch.timeline.mark("started")
            process = stack.enter_context(
                start_init(host, launch, *enter, *_bwrap(sandbox), *launch.init_command(address))
            )
            inside = sandbox.enter_namespaces(host)
            stack.enter_context(inside.attach_stream(process))
            yield sandbox.describe_instance(inside, address, self.network_path)


def _bwrap(sandbox: InstanceSandbox) -> tuple[str, ...]:
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
    volume = ("--bind", str(sandbox.volume), VOLUME) if sandbox.volume else ()
    # Not bwrap's --dev, which would add a console and its mounts: the root's /dev is equal in all stacks.
    system = ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
    mounts = ("--dev-bind", str(sandbox.root), "/", *system, *volume)
    return ("bwrap", *namespaces, *mounts, "--clearenv", "--")
