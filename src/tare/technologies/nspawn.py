"""systemd-nspawn: the container runtime of systemd, started directly and not registered with machined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.hosts.host import Host
from tare.hosts.ledger import UndoStep
from tare.model.isolation import Isolation
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import create_sandbox, start_init
from tare.plugins.technology import (
    CGROUP_CONTROLLER_DIFFERENCES,
    CORE_DEVICE_DIFFERENCES,
    HOST_NAME,
    PROTECTED_PATH_DIFFERENCES,
    SECCOMP_DIFFERENCES,
    LaunchRequest,
    Technology,
    first_line,
)

_KEEP_TMP = ("env", "SYSTEMD_NSPAWN_TMPFS_TMP=0")  # /tmp stays on the root, as in other technologies: no tmpfs


@dataclass(frozen=True)
class Nspawn(Technology):
    """Starts the image's `init` under systemd-nspawn; tare runs commands inside through its namespaces."""

    name = "nspawn"
    title = "systemd-nspawn"
    family = "container"
    isolation = Isolation("shared kernel", "namespaces, capabilities, a control group; systemd-nspawn's seccomp filter")
    can_be_nested = True
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {"systemd-nspawn": "systemd-container", "ip": "iproute2"}
    network_path = "bridge"
    expected_differences: ClassVar[Mapping[str, str]] = {
        **SECCOMP_DIFFERENCES,
        **CORE_DEVICE_DIFFERENCES,
        **PROTECTED_PATH_DIFFERENCES,
        **CGROUP_CONTROLLER_DIFFERENCES,
        **dict.fromkeys(("device char", "device net", "mount /dev/shm"), "it makes /dev itself"),
        "mount /run": "a tmpfs, into which tare mounts what the image has there",
        "mount /run/*": "folders of systemd, and what the image has there",
    }

    def version(self, host: Host) -> str:
        """Return systemd's version."""
        return first_line(host, "systemd-nspawn", "--version").removeprefix("systemd ").partition(" ")[0]

    def _run_folder_binds(self, launch: LaunchRequest, folder: str) -> tuple[str, ...]:
        """Return the options that mount the image's entries of /run, which are in `folder`, into nspawn's tmpfs there.

        nspawn refuses to start with another file system instead of the tmpfs.
        """
        find = ("find", folder, "-mindepth", "1", "-maxdepth", "1", "-not", "-type", "l", "-printf", "%f\\0")
        key, host = f"files of /run in {launch.image.digest}", launch.ledger.host
        listed = launch.cache.read_once(key, lambda: host.run(*find, timeout=20).text)
        escaped = (name.replace("\\", "\\\\").replace(":", "\\:") for name in filter(None, listed.split("\0")))
        return tuple(f"--bind={folder}/{name}:/run/{name}" for name in escaped)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start systemd-nspawn in a control group and a network namespace of tare's."""
        address = launch.network.instance_address
        with ExitStack() as stack:
            sandbox = stack.enter_context(create_sandbox(launch, address))
            network = stack.enter_context(launch.network.create_namespace())
            inode = host.run("stat", "--format=%d:%i", str(sandbox.root), timeout=20).text.strip()
            lock = f"/run/systemd/nspawn/locks/inode-{inode}"
            propagate = f"/run/systemd/nspawn/propagate/{launch.name}"
            stack.enter_context(launch.ledger.register_undo("rm", "-rf", propagate, lock))
            run = str(launch.folder / "run")  # nspawn's tmpfs would cover the folder below the root
            steps = (("folder", run), ("mount", "-", f"{sandbox.root}/run", run, "bind"))
            stack.enter_context(launch.ledger.create(steps, UndoStep(("unmount", run), ("umount", "--lazy", run))))
            launch.timeline.mark("started")
            nspawn = (*_KEEP_TMP, "systemd-nspawn", "--quiet", "--register=no", "--keep-unit")
            options = (
                f"--directory={sandbox.root}",
                f"--machine={launch.name}",
                f"--network-namespace-path=/run/netns/{network}",
                "--console=pipe",
                f"--hostname={HOST_NAME}",
                "--resolv-conf=off",
                "--timezone=off",
                *self._run_folder_binds(launch, run),
            )
            limit = f"--rlimit=RLIMIT_NOFILE={launch.limits.open_files}"
            volume = (f"--bind={sandbox.volume}:{VOLUME}",) if sandbox.volume else ()
            command = (*sandbox.group.join, *nspawn, *options, limit, *volume, "--", *launch.init_command(address))
            process = stack.enter_context(start_init(host, launch, *command))
            inside = sandbox.enter_namespaces(host)
            stack.enter_context(inside.attach_stream(process))
            yield sandbox.describe_instance(inside, address, self.network_path, systemd=launch.version(self, host))
