"""Sandbox of instances: the control group and the root file system of technologies that make neither themselves.

And the limit on processes, which all technologies need.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tare.hosts.cgroups import ControlGroup, create_limited_cgroup
from tare.hosts.exec import ExecHost, fresh_root
from tare.hosts.host import Host, Process
from tare.model.errors import TrialFailed
from tare.plugins.instance import Instance
from tare.plugins.technology import CLEAN_ENVIRONMENT_OPTIONS, INIT, LaunchRequest, first_line

_MAX_PROCESSES = 32768  # as `set_limits` of programs/conditions.h has it on bare metal


@dataclass(frozen=True)
class InstanceSandbox:
    """Sandbox of an instance whose technology makes no control group and no root file system: tare makes both.

    The instance's memory and CPU usage are read from the group's processes, its disk usage from the root's upper layer.
    `volume` is a folder for the technology to mount at `VOLUME`; None if the instance needs no volume.
    """

    launch: LaunchRequest
    group: ControlGroup
    root: Path
    volume: Path | None = None

    def enter_namespaces(self, host: Host) -> ExecHost:
        """Return the inside of the instance, entered through the namespaces of `init`.

        Raises TrialFailed if the group has no process of `init`.
        """
        # Sandboxes such as bwrap stay in the group as parents of `init`, so the first process may be another one.
        pids = self.group.processes()
        pid = next((pid for pid in pids if host.read(f"/proc/{pid}/cmdline").startswith(INIT)), None)
        if pid is None:
            raise TrialFailed("the instance's first process is not running", "`tare show` has its last output")
        return ExecHost(host, *self.enter_prefix("-p", str(pid), *CLEAN_ENVIRONMENT_OPTIONS))

    def enter_prefix(self, *options: str) -> tuple[str, ...]:
        """Return a command prefix that joins the group, limits open files, and applies `options` of `enter`."""
        return (*self.group.join[:-1], *self.launch.open_files_prefix[1:-1], *options, "--")

    def wait_until_joinable(self) -> None:
        """Wait until a process can join the group without a delay by the kernel.

        Call it before `requested`: the group is made by tare, so this delay must not count as the technology's start.
        """
        self.launch.ledger.setup_helper.run_steps(("settle",))

    def describe_instance(self, inside: Host | None, address: str, path: str, **proof: str) -> Instance:
        """Return the description of the instance in this sandbox."""
        return Instance(
            name=self.launch.name,
            inside=inside,
            address=address,
            network_path=path,
            processes=self.group.processes,
            proof={"control group": self.group.paths[0]} | proof,
            written_bytes=lambda: self.launch.ledger.setup_helper.bytes_below(str(self.launch.folder / "upper")),
            image_bytes=lambda: sum(
                self.launch.ledger.setup_helper.bytes_below(str(tree)) for tree in self.launch.image.layer_roots
            ),
        )


@contextmanager
def start_init(host: Host, launch: LaunchRequest, *command: str) -> Iterator[Process]:
    """Context manager: run a command that starts `init` and ends with it; yield its process when `init` is ready."""
    with host.spawn(*command, die_with_parent=True) as process:
        process.read_line(launch.start_timeout_seconds)
        yield process


@contextmanager
def create_sandbox(
    launch: LaunchRequest, address: str, is_timed: bool = True, changes: str = ""
) -> Iterator[InstanceSandbox]:
    """Context manager: make the sandbox of an instance at `address`, and remove it after the block.

    With `is_timed`, it marks `requested` first, so that the time for the sandbox counts as part of the start. `changes`
    is a folder with the changes of an earlier instance to its root, which the new root has, too.
    """
    launch.start_probe(address)
    if is_timed:
        launch.timeline.mark("requested")
    with create_limited_cgroup(launch.ledger, launch.name, launch.limits) as group:  # noqa: SIM117 - the group outlives the root
        with fresh_root(launch.ledger, launch.image, launch.folder, changes) as root:
            yield InstanceSandbox(launch, group, root, _create_volume(launch))


def _create_volume(launch: LaunchRequest) -> Path | None:
    """Make the folder of the data volume, on the file system of the root's upper layer; None if none is requested."""
    if not launch.volume_bytes:
        return None
    volume = launch.folder / "volume"
    launch.ledger.setup_helper.run_steps(("folder", str(volume)))
    return volume


def find_max_processes(launch: LaunchRequest, can_raise: bool = True) -> str:
    """Return the limit on processes that a container gets: that of bare metal, or tare's if tare cannot set that.

    It is passed explicitly: a machine with less than 8 GB of memory has a lower limit, which tare's init in a container
    may not raise. Podman rejects values above the kernel's `pid_max`.
    """
    read = partial(_read_max_processes, launch.ledger.host, can_raise)
    return launch.cache.read_once(f"most processes, {'raised' if can_raise else 'inherited'}", read)


def _read_max_processes(host: Host, can_raise: bool) -> str:
    raised = ("prlimit", f"--nproc={_MAX_PROCESSES}:{_MAX_PROCESSES}", "true")
    is_raised = can_raise and not host.run(*raised, timeout=20, check=False).exit_code
    hard = "" if is_raised else first_line(host, "prlimit", "--nproc", "--output=HARD", "--noheadings")
    bounds = (hard, host.read("/proc/sys/kernel/pid_max").strip(), str(_MAX_PROCESSES))
    return str(min(int(bound) for bound in bounds if bound.isdigit()))
