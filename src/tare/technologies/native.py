"""Bare metal: the image's programs on the machine itself, in a chroot, with no isolation but the limits.

It is the baseline. It runs the same bytes as every other stack: VTmark (section 5) could not explain why Podman beat a
bare metal that ran another user space. Its server is in a network namespace on tare's bridge, as in other stacks: in
the machine's own namespace the firewall would slow it down, and containers would seem faster. With `network = "host"`
it uses the machine's own network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

from tare.hosts.exec import ExecHost, mount_system_folders
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.plugins.technology import (
    CLEAN_ENVIRONMENT_OPTIONS,
    HOST_NAME,
    LaunchRequest,
    Technology,
    create_sandbox,
    start_init,
)
from tare.plugins.workload import VOLUME, Instance


@dataclass(frozen=True)
class Native(Technology):
    """Starts the image's `init_command` in a control group and a chroot."""

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
        """Settings of the network, where that is the machine's."""
        return {"sysctl *": "they are the machine's"} if self.network == "host" else {}

    @property
    def network_path(self) -> str:
        """How packets travel."""
        return self.network

    def version(self, host: Host) -> str:
        """Return the kernel's release."""
        return host.run("uname", "-r", timeout=10).text.strip()

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start `init_command` in a chroot of a fresh copy of the image."""
        shared = self.network == "host"
        address = launch.network.machine_address if shared else launch.network.instance_address
        with ExitStack() as stack:
            ground = stack.enter_context(create_sandbox(launch, address, is_timed=False))
            mount_system_folders(launch.ledger, ground.root, ground.group.mounts)
            if ground.volume:  # it is unmounted with the root
                target = f"{ground.root}{VOLUME}"
                launch.ledger.setup_helper.run_steps(
                    ("folder", target), ("mount", "-", str(ground.volume), target, "bind")
                )
            namespace: tuple[str, ...] = ()
            if not shared:
                namespace = ("-n", f"/run/netns/{stack.enter_context(launch.network.create_namespace())}")
            ground.wait_until_joinable()
            enter = ground.enter_prefix(*namespace, "-u", HOST_NAME, "-r", str(ground.root), *CLEAN_ENVIRONMENT_OPTIONS)
            launch.timeline.mark("requested")
            launch.timeline.mark("started")
            process = stack.enter_context(start_init(host, *enter, *launch.init_command(address)))
            inside = ExecHost(host, *enter)
            stack.enter_context(inside.attach_stream(process))
            yield ground.describe_instance(inside, address, self.network_path)
