"""crun: the container runtime in C that Podman uses, run directly, without an engine.

tare writes the OCI bundle with the namespaces, capabilities and mounts that Docker and Podman use by default. The
container runs in a network namespace on tare's bridge. It has no seccomp filter: see docs/technologies.md.

Setting: `program` is the name or the path of the runtime.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tare.hosts.exec import SHARED_MEMORY, ExecHost
from tare.hosts.host import Host, Process
from tare.hosts.streams import last_lines
from tare.model.errors import TrialFailed
from tare.model.isolation import Isolation
from tare.model.trial import Family, Problem
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import InstanceSandbox, create_sandbox, find_max_processes, start_init
from tare.plugins.snapshots import Snapshots, explain_failed_restore
from tare.plugins.technology import (
    CAPABILITIES,
    CORE_DEVICE_DIFFERENCES,
    ENVIRONMENT,
    HOST_NAME,
    SNAPSHOT_SECONDS,
    LaunchRequest,
    Technology,
    find_missing_tools,
    first_line,
)

# Docker's lists. programs/setup_helper.c has them, too: keep them equal.
_READ_ONLY = "bus fs irq sys sysrq-trigger"
_BUNDLE = "config.json"
_PROCESSES, _CHANGES = "processes", "changes"  # folders in a snapshot: what the runtime writes, and the root's changes
_CRIU_FIX = "install CRIU 4.1 or newer, as in Debian 13"
_MASKED = "asound acpi kcore keys latency_stats timer_list timer_stats sched_debug scsi"


@dataclass(frozen=True)
class Crun(Technology, Snapshots):
    """Starts the image's `init` from an OCI bundle."""

    name = "crun"
    title = "crun"
    family: ClassVar[Family] = "container"
    isolation = Isolation("shared kernel", "namespaces, capabilities, a control group; no filter of system calls")
    network_path = "bridge"
    can_be_nested = True
    has_volumes = True
    package = "crun"
    expected_differences: ClassVar[Mapping[str, str]] = CORE_DEVICE_DIFFERENCES

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

    def snapshot_problems(self, host: Host) -> Sequence[Problem]:
        """Return the problem of the runtime, or of CRIU: an old one does not know a new kernel."""
        if host.run(self.program, "checkpoint", "--help", timeout=10, check=False).exit_code:
            return (Problem(f"this {self.name} has no checkpoints", "install one that is built with CRIU"),)
        if missing := find_missing_tools(host, {"criu": "criu"}):
            return missing
        check = host.run("sh", "-c", "exec criu check 2>&1", timeout=20, check=False)
        if check.exit_code:
            why = last_lines(check.text) or "it printed nothing"
            return (Problem(f"CRIU does not work with this kernel: {why}", _CRIU_FIX, missing="program"),)
        return ()

    def launch(self, host: Host, launch: LaunchRequest) -> AbstractContextManager[Instance]:
        """Context manager: run a bundle in a control group and a network namespace of tare's."""
        return self._start(host, launch)

    def restore(self, host: Host, launch: LaunchRequest, snapshot: str) -> AbstractContextManager[Instance]:
        """Context manager: like `launch`, with the processes and the changed files of a snapshot."""
        return self._start(host, launch, snapshot)

    @contextmanager
    def _start(self, host: Host, launch: LaunchRequest, snapshot: str = "") -> Iterator[Instance]:
        command = (self.program, *self.runtime_options(host, launch.name))
        address = launch.network.instance_address
        find_max_processes(launch)  # for the bundle: read on the machine once, and not while a start is timed
        with ExitStack() as stack:
            changes = f"{snapshot}/{_CHANGES}" if snapshot else ""
            sandbox = stack.enter_context(create_sandbox(launch, address, changes=changes))
            network = stack.enter_context(launch.network.create_namespace())
            bundle = bundle_configuration(sandbox, network)
            if snapshot:  # the restored process has the name of its first instance in its arguments, as gVisor checks
                bundle["process"] = json.loads(host.read(f"{snapshot}/{_BUNDLE}"))["process"]
            host.write(f"{launch.folder}/{_BUNDLE}", json.dumps(bundle))
            self.prepare_root(sandbox)
            runtimes: list[Process] = []
            delete = (*command, "delete", "--force", launch.name)
            # A runtime that exits with 0 has removed its container: `delete` would only cost time.
            undo = launch.ledger.register_undo(*delete, unless=lambda: any(each.exit_code() == 0 for each in runtimes))
            stack.enter_context(undo)
            launch.timeline.mark("started")
            proof = {"runtime": launch.version(self, host)}
            if snapshot:
                image = f"--image-path={snapshot}/{_PROCESSES}"
                run = (*sandbox.group.join, *command, "restore", image, "--bundle", str(launch.folder), launch.name)
                runtimes.append(runtime := stack.enter_context(host.spawn(*run, die_with_parent=True)))
                stack.enter_context(explain_failed_restore(runtime, self.name))
                yield sandbox.describe_instance(None, address, self.network_path, **proof)
                return
            run = (*sandbox.group.join, *command, "run", "--bundle", str(launch.folder), launch.name)
            runtimes.append(runtime := stack.enter_context(start_init(host, launch, *run)))
            inside = ExecHost(host, *launch.open_files_prefix, *command, "exec", launch.name)
            stack.enter_context(inside.attach_stream(runtime))
            instance = sandbox.describe_instance(inside, address, self.network_path, **proof)

            def take_snapshot(folder: str) -> None:
                image = f"--image-path={folder}/{_PROCESSES}"
                host.run(*command, "checkpoint", image, launch.name, timeout=SNAPSHOT_SECONDS)
                _await_end(runtime)  # gVisor still removes files of the root
                # With -a, overlayfs's marks of removed files are copied, too.
                host.run("cp", "-a", f"{launch.folder}/upper", f"{folder}/{_CHANGES}", timeout=SNAPSHOT_SECONDS)
                host.run("cp", f"{launch.folder}/{_BUNDLE}", folder, timeout=SNAPSHOT_SECONDS)

            yield replace(instance, take_snapshot=take_snapshot)


def _await_end(runtime: Process) -> None:
    """Wait until a runtime has ended; raises TrialFailed."""
    deadline = time.monotonic() + SNAPSHOT_SECONDS
    while runtime.is_running():
        if time.monotonic() > deadline:
            what = f"the runtime has not ended {SNAPSHOT_SECONDS:g} s after its snapshot"
            raise TrialFailed(what, "leave this stack out of workloads that take snapshots")
        time.sleep(0.01)


def bundle_configuration(sandbox: InstanceSandbox, network: str) -> dict[str, Any]:
    """Return the configuration of the OCI runtime specification, version 1.0.2."""
    launch, volume = sandbox.launch, str(sandbox.volume)
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
            "rlimits": [_limit("NOFILE", launch.limits.open_files), _limit("NPROC", int(find_max_processes(launch)))],
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


def _limit(resource: str, most: int) -> dict[str, Any]:
    return {"type": f"RLIMIT_{resource}", "soft": most, "hard": most}


def _mount(path: str, file_system: str, *options: str) -> dict[str, Any]:
    return {"destination": path, "type": file_system, "source": file_system, "options": list(options)}


def _group_mounts(sandbox: InstanceSandbox) -> Iterator[dict[str, Any]]:
    """Yield the mounts of the instance's control group, so that programs can read their limits."""
    for mount in sandbox.group.mounts:
        yield _mount(mount.target, mount.kind, *mount.options) | {"source": mount.source}
