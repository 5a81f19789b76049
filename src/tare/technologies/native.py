"""Bare metal: the image's programs on the machine itself, in a chroot, without isolation except limits.

It is the baseline. It runs the same bytes as every other stack: VTmark (section 5) could not explain why Podman was
faster than bare metal with another user space. Its server is in a network namespace on tare's bridge, as in other
stacks: in the machine's namespace, the firewall would slow it down, and containers would seem faster. With
`network = "host"`, it uses the machine's network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

from tare.hosts.exec import ExecHost, mount_system_folders
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import create_sandbox, start_init
from tare.plugins.technology import (
    CLEAN_ENVIRONMENT_OPTIONS,
    HOST_NAME,
    LaunchRequest,
    Technology,
)


@dataclass(frozen=True)
class Native(Technology):
    """Starts the image's `init` in a control group and a chroot."""

    name = "native"
    title = "bare metal"
    family = "bare metal"
    isolation = Isolation("none", "a process of the machine: a control group limits what it uses")
    can_be_nested = True
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {"ip": "iproute2"}

    network: Literal["bridge", "host"] = "bridge"

    @property
    def expected_differences(self) -> Mapping[str, str]:
        """The network's sysctls with `network = "host"`; none with the bridge."""
        return {"sysctl *": "they are the machine's"} if self.network == "host" else {}

    @property
    def network_path(self) -> str:
        """The setting `network`."""
        return self.network

    def version(self, host: Host) -> str:
        """Return the kernel's release."""
        return host.run("uname", "-r", timeout=10).text.strip()

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start `init` in a chroot of a fresh copy of the image."""
        shared = self.network == "host"
        address = launch.network.machine_address if shared else launch.network.instance_address
        with ExitStack() as stack:
            sandbox = stack.enter_context(create_sandbox(launch, address, is_timed=False))
            mount_system_folders(launch.ledger, sandbox.root, sandbox.group.mounts)
            if sandbox.volume:  # unmounting the root unmounts it, too
                target = f"{sandbox.root}{VOLUME}"
                launch.ledger.setup_helper.run_steps(
                    ("folder", target), ("mount", "-", str(sandbox.volume), target, "bind")
                )
            namespace: tuple[str, ...] = ()
            if not shared:
                namespace = ("-n", f"/run/netns/{stack.enter_context(launch.network.create_namespace())}")
            # The baseline's start must not have a delay of tare's control group: it would make other stacks look fast.
            sandbox.wait_until_joinable()
            enter = sandbox.enter_prefix(
                *namespace, "-u", HOST_NAME, "-r", str(sandbox.root), *CLEAN_ENVIRONMENT_OPTIONS
            )
            launch.timeline.mark("requested")
            launch.timeline.mark("started")
            process = stack.enter_context(start_init(host, launch, *enter, *launch.init_command(address)))
            inside = ExecHost(host, *enter)
            stack.enter_context(inside.attach_stream(process))
            yield sandbox.describe_instance(inside, address, self.network_path)
