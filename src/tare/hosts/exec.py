"""Instances and chroots as hosts, in which tare runs commands through a prefix such as `docker exec`.

The image's `supervise` (programs/supervise.c) starts each command inside. It kills the command's process tree at the
time limit and when the connection is lost. It does not kill the processes that a finished command leaves running,
because a container's monitor is such a process.

With a resident agent inside (`ensure_resident`), the outer host enters once, and the agent starts all commands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tare.hosts.cgroups import Mount
from tare.hosts.facts import read_facts
from tare.hosts.host import CommandScope, Host, Process
from tare.hosts.ledger import Ledger, UndoStep
from tare.hosts.process import require_success
from tare.hosts.resident import MAX_INPUT_BYTES, ResidentAgent
from tare.hosts.setup_helper import SetupStep
from tare.hosts.streams import command_hint
from tare.model.errors import TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.machine import Facts
from tare.model.trial import Output

SUPERVISE = "/usr/lib/tare/supervise"
TOOLS = "/usr/lib/tare/busybox"  # in foreign images only, which may have no `sh` and no `cat`
ENTRYPOINT = "/usr/lib/tare/entrypoint"  # in foreign images only: starts a program as the image's configuration says
OPTIONS_END = "--"  # for ENTRYPOINT, before a user's words, which may look like options
_NOT_FOUND = 127
_GRACE_SECONDS = 10.0  # for the engine that starts `supervise`, whose time limit should end the command first
LOCKED = "nosuid,nodev,noexec"  # Docker's options for /proc, /sys, control groups, /dev/mqueue and /dev/shm
SHARED_MEMORY = "65536k"  # size of /dev/shm; Docker's default


class ExecHost:
    """Host that is reached by a command prefix on another host, such as `docker exec -i NAME`."""

    def __init__(self, outer: Host, *prefix: str) -> None:
        self.outer = outer
        self.prefix = prefix
        self.supervisor = SUPERVISE  # the path of `supervise` inside; "" until it has been copied there
        self.resident: ResidentAgent | None = None
        self.scope: CommandScope | None = None  # of the commands that the agent starts

    def with_scope(self, scope: CommandScope) -> ExecHost:
        """Return the same host, with the same resident agent, for commands of this scope."""
        other = copy(self)
        other.scope = scope
        return other

    def wrap(self, *argv: str) -> tuple[str, ...]:
        """Return the command line for the outer host that runs a command inside."""
        return (*self.prefix, *argv)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command; see `Host.run`."""
        guard = (self.supervisor, "-l", "-t", f"{timeout:.3f}", "--") if self.supervisor else ()
        output = self._run_inside((*guard, *argv), argv[0], timeout + _GRACE_SECONDS, input)
        if output.exit_code == 124 and b"tare-supervise: timeout" in output.stderr:
            raise TimedOut(f"{argv[0]}: did not end within {timeout:g} s", command_hint(output.argv), output)
        inside = replace(output, argv=argv)
        return require_success(inside) if check else inside

    def _run_inside(self, argv: tuple[str, ...], name: str, timeout: float, data: bytes | Path) -> Output:
        """Run a command through the agent, or through the prefix if there is no agent or the input is too large."""
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        if self.resident is None or size > MAX_INPUT_BYTES:
            return self.outer.run(*self.wrap(*argv), timeout=timeout, input=data, check=False)
        whole = data if isinstance(data, bytes) else data.read_bytes()
        return self.resident.run(argv, name, timeout, whole, self.scope)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[Process]:
        """Start a command; see `Host.spawn`."""
        if self.resident is not None:
            supervised = argv if die_with_parent else (self.supervisor, "--", *argv)
            return self.resident.spawn(supervised, argv[0], die_with_parent, self.scope)
        guard = () if die_with_parent or not self.supervisor else (self.supervisor, "-s", "--")
        # Killing the engine's client would leave the command running inside, so `run` or the command watches its input.
        return self.outer.spawn(*self.wrap(*guard, *argv), die_with_parent=True)

    @contextmanager
    def start_resident(self) -> Iterator[ResidentAgent]:
        """Context manager: run all commands through a resident agent, which is started unless there is one."""
        if self.resident is not None:
            yield self.resident
            return
        start = (self.supervisor, "--resident")
        with self.attach_resident(lambda: self.outer.spawn(*self.wrap(*start), die_with_parent=True)) as resident:
            yield resident

    @contextmanager
    def attach_resident(self, start: Callable[[], AbstractContextManager[Process]]) -> Iterator[ResidentAgent]:
        """Context manager: run all commands through the resident agent that `start` starts."""
        resident = ResidentAgent(start, self.connection_error)
        try:
            resident.open()
            self.resident = resident
            yield resident
        finally:
            self.resident = None
            resident.close()

    def attach_stream(self, process: Process) -> AbstractContextManager[ResidentAgent]:
        """Context manager: run all commands through the resident agent on the streams of `process`."""
        return self.attach_resident(lambda: nullcontext(process))

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Return the command line for tare's machine; see `Host.command_line`."""
        return self.outer.command_line(*self.wrap(*argv))

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Copy a file in; see `Host.put`."""
        mode = f"{source.stat().st_mode & 0o7777:o}"
        script = 'cat > "$1" && chmod "$2" "$1"'
        self._run_tool("sh", "-c", script, "sh", str(target), mode, timeout=900, data=source)

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file out; see `Host.get`."""
        target.write_bytes(self._run_tool("cat", str(source), timeout=60).stdout)

    def read(self, path: str) -> str:
        """Read a file; see `Host.read`."""
        return self._run_tool("cat", path, timeout=30, check=False).text

    def write(self, path: str, text: str) -> None:
        """Write a file; see `Host.write`."""
        self._run_tool("sh", "-c", 'umask 077 && cat > "$1"', "sh", path, timeout=30, data=text.encode())

    def read_matching(self, folder: str, name: str) -> str:
        """Read files; see `Host.read_matching`."""
        return self._run_tool("find", folder, "-name", name, "-exec", "cat", "{}", "+", timeout=30, check=False).text

    def _run_tool(self, *argv: str, timeout: float, data: bytes | Path = b"", check: bool = True) -> Output:
        """Run a tool of the instance, or tare's busybox if the instance lacks the tool."""
        output = self.run(*argv, timeout=timeout, input=data, check=False)
        if output.exit_code == _NOT_FOUND:
            output = self.run(TOOLS, *argv, timeout=timeout, input=data, check=False)
        return require_success(output) if check else output

    def facts(self) -> Facts:
        """Return the facts that the instance reports."""
        return read_facts(self.read)

    def connection_error(self, last_output: str) -> TrialFailed | None:
        """Return the error if the connection to the outer host is lost; see `Host.connection_error`."""
        return self.outer.connection_error(last_output)


class AgentHost(ExecHost):
    """Guest that is entered through tare's guest agent, as no user would: `exec` is measured over SSH instead."""


def ensure_resident(host: Host) -> AbstractContextManager[ResidentAgent | None]:
    """Context manager: run all commands on a host through a resident agent.

    Yield None for a host of another class or without `run`, whose commands are started as before.
    """
    return host.start_resident() if isinstance(host, ExecHost) and host.supervisor else nullcontext()


@contextlib.contextmanager
def fresh_root(ledger: Ledger, image: Image, folder: Path, changes: str = "") -> Iterator[Path]:
    """Context manager: yield a writable directory with the image's files; remove it, with all changes, after the block.

    The directory is an overlay mount in `folder`, which is created and removed. overlayfs must support the file system
    of `folder` for its upper layer. `changes` is the upper layer of an earlier root, to which the new one adds.
    """
    below = f"{changes}:{image.lowerdir}" if changes else image.lowerdir
    options = f"lowerdir={below},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    root = str(folder / "root")
    steps = [("folder", str(path)) for path in (folder, root, folder / "upper", folder / "work")]
    with ledger.create(
        [*steps, ("mount", "overlay", "overlay", root, options)],
        UndoStep.for_folder(str(folder)),
        # A lazy unmount also detaches the mounts below the root, such as /proc.
        UndoStep(("unmount", root), ("umount", "--lazy", root)),
    ):
        yield folder / "root"


def mount_system_folders(ledger: Ledger, root: Path, cgroup_mounts: Sequence[Mount] = ()) -> None:
    """Mount /proc, /sys and /dev in a fresh root, with the options and devices of Docker's containers.

    `cgroup_mounts` are the mounts of a control group. Unmounting the root also unmounts all of these mounts. /proc/sys
    is read-only, because a write there would change the host's settings.
    """
    proc = ("mount", "proc", "proc", str(root / "proc"), LOCKED)
    ledger.setup_helper.run_steps(proc, *system_steps(root, cgroup_mounts), ("protect", str(root)))


def system_steps(root: Path, cgroup_mounts: Sequence[Mount]) -> tuple[SetupStep, ...]:
    """Return the setup helper's steps that mount /sys, the control groups and /dev below a root."""
    devices = root / "dev"
    group_steps: list[SetupStep] = []
    for mount in cgroup_mounts:
        if group_steps:  # sysfs has the first mount point; the others are in the tmpfs that is mounted there
            group_steps.append(("folder", f"{root}{mount.target}"))
        kind = "-" if mount.kind == "bind" else mount.kind
        group_steps.append(("mount", kind, mount.source, f"{root}{mount.target}", ",".join(mount.options)))
    return (
        ("mount", "sysfs", "sysfs", str(root / "sys"), f"ro,{LOCKED}"),
        *group_steps,
        ("mount", "tmpfs", "tmpfs", str(devices), "nosuid,strictatime,mode=755,size=65536k"),
        ("devices", str(devices)),
        ("mount", "devpts", "devpts", str(devices / "pts"), "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"),
        ("mount", "mqueue", "mqueue", str(devices / "mqueue"), LOCKED),
        ("mount", "tmpfs", "shm", str(devices / "shm"), f"{LOCKED},mode=1777,size={SHARED_MEMORY}"),
    )
