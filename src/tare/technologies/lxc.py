"""LXC: containers of liblxc, each with a configuration file, started by lxc-execute.

They lack the capabilities and system calls that LXC's common configuration drops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.hosts.exec import SHARED_MEMORY, ExecHost
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import InstanceSandbox, create_sandbox, start_init
from tare.plugins.technology import (
    HOST_NAME,
    PROTECTED_PATH_DIFFERENCES,
    SECCOMP_DIFFERENCES,
    LaunchRequest,
    Technology,
    first_line,
)


@dataclass(frozen=True)
class Lxc(Technology):
    """Starts the image's `init` as an application container."""

    name = "lxc"
    title = "LXC"
    family = "container"
    isolation = Isolation("shared kernel", "namespaces, capabilities, a control group; LXC's common seccomp filter")
    can_be_nested = True
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {"lxc-execute": "lxc", "lxc-attach": "lxc", "ip": "iproute2"}
    network_path = "bridge"
    expected_differences: ClassVar[Mapping[str, str]] = {
        **SECCOMP_DIFFERENCES,
        **PROTECTED_PATH_DIFFERENCES,
        "mount /sys": "it mounts /sys read-only, without other options",
        **dict.fromkeys(
            ("device console", "device ptmx", "mount /dev", "mount /dev/console", "mount /dev/ptmx"),
            "it makes a console",
        ),
    }

    def version(self, host: Host) -> str:
        """Return liblxc's version."""
        return first_line(host, "lxc-execute", "--version")

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start a container in a control group and a network namespace of tare's."""
        address = launch.network.instance_address
        with ExitStack() as stack:
            sandbox = stack.enter_context(create_sandbox(launch, address))
            network = stack.enter_context(launch.network.create_namespace())
            home = str(launch.folder)
            host.write(f"{home}/config", _configuration(sandbox, network))
            select = ("--name", launch.name, "--lxcpath", home)
            launch.timeline.mark("started")
            start = ("lxc-execute", *select, "--rcfile", f"{home}/config", "--logfile", f"{home}/log")
            command = (*sandbox.group.join, *start, "--", *launch.init_command(address))
            process = stack.enter_context(start_init(host, launch, *command))
            attach = ("lxc-attach", *select, "--rcfile", f"{home}/config", "--clear-env")
            inside = ExecHost(host, *launch.open_files_prefix, *attach, "--")
            stack.enter_context(inside.attach_stream(process))
            yield sandbox.describe_instance(inside, address, self.network_path, liblxc=launch.version(self, host))


def _configuration(sandbox: InstanceSandbox, network: str) -> str:
    launch = sandbox.launch
    limit = launch.limits.open_files
    volume = f"lxc.mount.entry = {sandbox.volume} {VOLUME[1:]} none bind,create=dir 0 0\n" if sandbox.volume else ""
    group_mounts = "".join(
        f"lxc.mount.entry = {mount.source} {mount.target[1:]} {mount.kind} {','.join(mount.options)},create=dir 0 0\n"
        for mount in sandbox.group.mounts
    )
    return f"""\
lxc.uts.name = {HOST_NAME}
lxc.rootfs.path = dir:{sandbox.root}
lxc.apparmor.profile = unconfined
lxc.autodev = 1
lxc.pty.max = 1024
lxc.mount.auto = proc:mixed sys:ro
lxc.mount.entry = tmpfs dev/shm tmpfs nosuid,nodev,noexec,mode=1777,size={SHARED_MEMORY},create=dir 0 0
lxc.mount.entry = mqueue dev/mqueue mqueue nosuid,nodev,noexec,create=dir 0 0
lxc.namespace.share.net = /run/netns/{network}
lxc.cgroup.relative = 1
lxc.cgroup.dir = {launch.name}
lxc.prlimit.nofile = {limit}:{limit}
lxc.cap.drop = mac_admin mac_override sys_time sys_module sys_rawio
lxc.seccomp.profile = /usr/share/lxc/config/common.seccomp
{group_mounts}{volume}"""
