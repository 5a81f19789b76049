"""crun: the container runtime in C that Podman uses, run directly, without an engine.

tare writes the OCI bundle with the namespaces, capabilities and mounts that Docker and Podman use by default. The
container runs in a network namespace on tare's bridge. It has no seccomp filter: see docs/technologies.md.

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
from tare.plugins.sandbox import InstanceSandbox, create_sandbox, start_init
from tare.plugins.technology import (
    CAPABILITIES,
    ENVIRONMENT,
    HOST_NAME,
    LaunchRequest,
    Technology,
    find_missing_tools,
    first_line,
)
from tare.plugins.workload import VOLUME, Instance

# Docker's lists. programs/setup_helper.c has them, too: keep them equal.
_READ_ONLY = "bus fs irq sys sysrq-trigger"
_MASKED = "asound acpi kcore keys latency_stats timer_list timer_stats sched_debug scsi"


@dataclass(frozen=True)
class Crun(Technology):
    """Starts the image's `init` from an OCI bundle."""

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

    def runtime_options(self, host: Host, name: str) -> tuple[str, ...]:  # noqa: ARG002 - gVisor needs both
        """Return the options that every call of the runtime for the container `name` needs."""
        return ()

    def prepare_root(self, sandbox: InstanceSandbox) -> None:
        """Change the root for the runtime, right before the start; does nothing for most runtimes."""

    def external_effects(self) -> Sequence[str]:
        """Return a line with the user's runtime, if the setting `program` names one."""
        return () if self.program == type(self).program else (f"runs {self.program} as root",)

    def version(self, host: Host) -> str:
        """Return the runtime's version."""
        return first_line(host, self.program, "--version").rpartition("version ")[2]

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, and a problem if the setting `program` names no program."""
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
            sandbox = stack.enter_context(create_sandbox(launch, address))
            network = stack.enter_context(launch.network.create_namespace())
            bundle = json.dumps(_bundle_configuration(sandbox, network))
            host.write(str(launch.folder / "config.json"), bundle)
            self.prepare_root(sandbox)
            runtimes: list[Process] = []
            delete = (*command, "delete", "--force", launch.name)
            # A runtime that exits with 0 has removed its container: `delete` would only cost time.
            undo = launch.ledger.register_undo(*delete, unless=lambda: any(each.exit_code() == 0 for each in runtimes))
            stack.enter_context(undo)
            launch.timeline.mark("started")
            run = (*sandbox.group.join, *command, "run", "--bundle", str(launch.folder), launch.name)
            runtimes.append(runtime := stack.enter_context(start_init(host, *run)))
            inside = ExecHost(host, *launch.open_files_prefix, *command, "exec", launch.name)
            stack.enter_context(inside.attach_stream(runtime))
            yield sandbox.describe_instance(inside, address, self.network_path, runtime=launch.version(self, host))


def _bundle_configuration(sandbox: InstanceSandbox, network: str) -> dict[str, Any]:
    """Return the configuration of the OCI runtime specification, version 1.0.2."""
    launch, volume = sandbox.launch, str(sandbox.volume)
    limit = launch.limits.open_files
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(sandbox.root)},
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
            *_group_mounts(sandbox),
            *([{"destination": VOLUME, "source": volume, "options": ["bind", "rw"]}] if sandbox.volume else ()),
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


def _mount(path: str, file_system: str, *options: str) -> dict[str, Any]:
    return {"destination": path, "type": file_system, "source": file_system, "options": list(options)}


def _group_mounts(sandbox: InstanceSandbox) -> Iterator[dict[str, Any]]:
    """Yield the mounts of the instance's control group, so that programs can read their limits."""
    for mount in sandbox.group.mounts:
        yield _mount(mount.target, mount.kind, *mount.options) | {"source": mount.source}
