"""crun: the container runtime in C that Podman uses, run directly, without an engine.

tare writes the OCI bundle, with the namespaces, capabilities and mounts that Docker and Podman use by default, in a
network namespace on tare's bridge. It has no seccomp filter: see docs/technologies.md.

Setting: `program` is the name or the path of the runtime.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tare.hosts.exec import SHARED_MEMORY, ExecHost
from tare.hosts.host import Host, Process
from tare.model.isolation import Isolation
from tare.model.trial import Family, Problem
from tare.plugins.technology import (
    CAPABILITIES,
    ENVIRONMENT,
    HOST_NAME,
    InstanceSandbox,
    LaunchRequest,
    Technology,
    create_sandbox,
    find_missing_tools,
    first_line,
    start_init,
)
from tare.plugins.workload import VOLUME, Instance

# Docker's lists, in programs/setup_helper.c, too.
_READ_ONLY = "bus fs irq sys sysrq-trigger"
_MASKED = "asound acpi kcore keys latency_stats timer_list timer_stats sched_debug scsi"


@dataclass(frozen=True)
class Crun(Technology):
    """Starts the image's `init_command` from an OCI bundle."""

    name = "crun"
    title = "crun"
    family: ClassVar[Family] = "container"
    isolation = Isolation("shared kernel", "namespaces, capabilities, a control group; no filter of system calls")
    network_path = "bridge"
    can_be_nested = True
    has_volumes = True
    package = "crun"
    expected_differences: ClassVar[Mapping[str, str]] = {"device core": "it links /dev/core to a file that is hidden"}

    program: str = "crun"

    @property
    def tools(self) -> Mapping[str, str]:
        """The runtime, unless a setting gives its path, and `ip`."""
        return {**({} if "/" in self.program else {self.program: self.package}), "ip": "iproute2"}

    def runtime_options(self, host: Host, name: str) -> tuple[str, ...]:  # noqa: ARG002 - gVisor asks for both
        """Return the options that every call of the runtime for this container needs."""
        return ()

    def prepare_root(self, ground: InstanceSandbox) -> None:
        """Arrange the root for the runtime, right before its start: nothing for most."""

    def external_effects(self) -> Sequence[str]:
        """Name the user's runtime."""
        return () if self.program == type(self).program else (f"runs {self.program} as root",)

    def version(self, host: Host) -> str:
        """Return the runtime's version."""
        return first_line(host, self.program, "--version").rpartition("version ")[2]

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find whether the runtime exists: Debian's, or that of the setting `program`."""
        missing = find_missing_tools(host, self.tools)
        if "/" in self.program and host.run("test", "-x", self.program, timeout=10, check=False).exit_code:
            fix = f'program = "…" is the path of {self.name}\'s program on the machine under test'
            return (*missing, Problem(f"{self.program} is no program", fix))
        return missing

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Run a bundle in a control group and a network namespace of tare's."""
        command = (self.program, *self.runtime_options(host, launch.name))
        address = launch.network.instance_address
        with ExitStack() as stack:
            ground = stack.enter_context(create_sandbox(launch, address))
            network = stack.enter_context(launch.network.create_namespace())
            bundle = json.dumps(_bundle_configuration(ground, network))
            host.write(str(launch.folder / "config.json"), bundle)
            self.prepare_root(ground)
            started: list[Process] = []
            delete = (*command, "delete", "--force", launch.name)
            # A runtime that ends well has removed its container.
            undone = launch.ledger.register_undo(*delete, unless=lambda: any(each.exit_code() == 0 for each in started))
            stack.enter_context(undone)
            launch.timeline.mark("started")
            run = (*ground.group.join, *command, "run", "--bundle", str(launch.folder), launch.name)
            started.append(runtime := stack.enter_context(start_init(host, *run)))
            inside = ExecHost(host, *launch.open_files_prefix, *command, "exec", launch.name)
            stack.enter_context(inside.attach_stream(runtime))
            yield ground.describe_instance(inside, address, self.network_path, runtime=launch.version(self, host))


def _bundle_configuration(ground: InstanceSandbox, network: str) -> dict[str, Any]:
    """Write the OCI runtime specification's configuration, version 1.0.2."""
    launch, volume = ground.launch, str(ground.volume)
    limit = launch.limits.open_files
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(ground.root)},
        "hostname": HOST_NAME,
        "process": {
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "args": launch.init_command(launch.network.instance_address),
            "env": list(ENVIRONMENT),
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES),
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": limit, "hard": limit}],
            "noNewPrivileges": False,
        },
        "mounts": [
            _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
            _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
            _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
            _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", f"size={SHARED_MEMORY}"),  # noqa: S108
            _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
            _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
            *_group_mounts(ground),
            *([{"destination": VOLUME, "source": volume, "options": ["bind", "rw"]}] if ground.volume else ()),
        ],
        "linux": {
            "cgroupsPath": f"/{launch.name}/tare-container",
            "namespaces": [
                *({"type": kind} for kind in ("pid", "ipc", "uts", "mount")),
                {"type": "network", "path": f"/run/netns/{network}"},
            ],
            "readonlyPaths": [f"/proc/{name}" for name in _READ_ONLY.split()],
            "maskedPaths": [*(f"/proc/{name}" for name in _MASKED.split()), "/sys/firmware"],
        },
    }


def _mount(path: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": path, "type": kind, "source": kind, "options": list(options)}


def _group_mounts(ground: InstanceSandbox) -> Iterator[dict[str, Any]]:
    """Yield the mounts by which a program sees the limits of the instance's group."""
    for each in ground.group.mounts:
        yield {"destination": each.target, "type": each.kind, "source": each.source, "options": list(each.options)}
