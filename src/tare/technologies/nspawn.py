"""systemd-nspawn: the container runtime of systemd, started directly and not registered with machined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.contracts.technologies import Launch, Technology, first_line, prepared, ready
from tare.contracts.workloads import VOLUME, Instance
from tare.hosts.host import Host
from tare.model.isolation import Isolation

_OWN_TMP = ("env", "SYSTEMD_NSPAWN_TMPFS_TMP=0")  # /tmp stays on the root: no file system in memory over it


@dataclass(frozen=True)
class Nspawn(Technology):
    """Starts the image's `init` under systemd-nspawn; tare enters the inside through its namespaces."""

    name = "nspawn"
    title = "systemd-nspawn"
    family = "container"
    isolation = Isolation("shared kernel", "namespaces, capabilities, a control group; systemd-nspawn's seccomp filter")
    nests = True
    volumes = True
    tools: ClassVar[Mapping[str, str]] = {"systemd-nspawn": "systemd-container", "ip": "iproute2"}
    path = "bridge"

    def version(self, host: Host) -> str:
        """Return systemd's version."""
        return first_line(host, "systemd-nspawn", "--version").removeprefix("systemd ").partition(" ")[0]

    @contextmanager
    def launch(self, host: Host, launch: Launch) -> Iterator[Instance]:
        """Start systemd-nspawn in a control group and a network namespace of tare's."""
        address = launch.network.instance_address
        with ExitStack() as stack:
            ground = stack.enter_context(prepared(launch, address))
            network = stack.enter_context(launch.network.namespace())
            inode = host.run("stat", "--format=%d:%i", str(ground.root), timeout=20).text.strip()
            lock = f"/run/systemd/nspawn/locks/inode-{inode}"
            left = f"/run/systemd/nspawn/propagate/{launch.name}"
            stack.enter_context(launch.ledger.undone_by("rm", "-rf", left, lock))
            launch.timeline.mark("started")
            nspawn = (*_OWN_TMP, "systemd-nspawn", "--quiet", "--register=no", "--keep-unit")
            options = (
                f"--directory={ground.root}",
                f"--machine={launch.name}",
                f"--network-namespace-path=/run/netns/{network}",
                "--console=pipe",
                "--setenv=LANG=",  # or it sets C.UTF-8, in which sort takes a third longer
            )
            limit = f"--rlimit=RLIMIT_NOFILE={launch.limits.open_files}"
            volume = (f"--bind={ground.volume}:{VOLUME}",) if ground.volume else ()
            command = (*ground.group.join, *nspawn, *options, limit, *volume, "--", *launch.init(address))
            process = stack.enter_context(ready(host, *command))
            inside = ground.entered(host)
            stack.enter_context(inside.over(process))
            yield ground.instance(inside, address, self.path, systemd=launch.version(self, host))
