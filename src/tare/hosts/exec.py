"""Instances and chroots as hosts: enter them and run commands inside.

The image's `run` (programs/run.c) starts each command inside. It kills the command's process tree at the time limit and
when the connection is lost. Processes that a finished command leaves running go on, as a container's monitor must.

With a resident process inside (`at_hand`), the outer host enters once; the resident process starts each command.
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
from tare.hosts.ledger import Ledger, Undo
from tare.hosts.process import checked
from tare.hosts.resident import MOST_INPUT_BYTES, Resident
from tare.hosts.setup_helper import Step
from tare.hosts.streams import shown
from tare.model.errors import TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.machine import Facts
from tare.model.trial import Output

RUN = "/usr/lib/tare/run"
TOOLS = "/usr/lib/tare/busybox"  # in images that others have built, which may have no tools
START = "/usr/lib/tare/start"  # likewise: starts a program as the image's configuration says
WORDS = "--"  # between the options of that and words of a user's, which may look like some
_NOT_FOUND = 127
_GRACE_SECONDS = 10.0  # for the engine between us and `run`
LOCKED = "nosuid,nodev,noexec"  # Docker's options for /proc, /sys, control groups, /dev/mqueue and /dev/shm
SHARED_MEMORY = "65536k"  # size of /dev/shm; Docker's default


class ExecHost:
    """A host behind a prefix on another host, such as `docker exec -i NAME`."""

    def __init__(self, outer: Host, *prefix: str) -> None:
        self.outer = outer
        self.prefix = prefix
        self.supervisor = RUN  # its path inside; empty until it is there
        self.resident: Resident | None = None
        self.purpose: CommandScope | None = None  # of the commands that the resident process starts

    def serving(self, purpose: CommandScope) -> ExecHost:
        """Return the same host for commands that have a purpose; its resident process, if it has one, is shared."""
        other = copy(self)
        other.purpose = purpose
        return other

    def wrap(self, *argv: str) -> tuple[str, ...]:
        """Return the command line for the outer host that runs a command inside."""
        return (*self.prefix, *argv)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command; see `Host.run`."""
        guard = (self.supervisor, "-l", "-t", f"{timeout:.3f}", "--") if self.supervisor else ()
        output = self._output((*guard, *argv), argv[0], timeout + _GRACE_SECONDS, input)
        if output.exit_code == 124 and b"tare-run: timeout" in output.stderr:
            raise TimedOut(f"{argv[0]}: did not end within {timeout:g} s", shown(output.argv), output)
        inside = replace(output, argv=argv)
        return checked(inside) if check else inside

    def _output(self, argv: tuple[str, ...], name: str, timeout: float, data: bytes | Path) -> Output:
        """Run a command through the resident process, unless there is none or the input is too large for it."""
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        if self.resident is None or size > MOST_INPUT_BYTES:
            return self.outer.run(*self.wrap(*argv), timeout=timeout, input=data, check=False)
        whole = data if isinstance(data, bytes) else data.read_bytes()
        return self.resident.run(argv, name, timeout, whole, self.purpose)

    def spawn(self, *argv: str, life_line: bool = False) -> AbstractContextManager[Process]:
        """Start a command; see `Host.spawn`. `run` watches the life line, unless the command does (`life_line`)."""
        if self.resident is not None:
            supervised = argv if life_line else (self.supervisor, "--", *argv)
            return self.resident.spawn(supervised, argv[0], life_line, self.purpose)
        guard = () if life_line or not self.supervisor else (self.supervisor, "-s", "--")
        return self.outer.spawn(*self.wrap(*guard, *argv), life_line=True)

    @contextmanager
    def residing(self) -> Iterator[Resident]:
        """Keep a resident process inside for the block, if there is none; it starts all commands there."""
        if self.resident is not None:
            yield self.resident
            return
        start = (self.supervisor, "--resident")
        with self.attended(lambda: self.outer.spawn(*self.wrap(*start), life_line=True)) as resident:
            yield resident

    @contextmanager
    def attended(self, start: Callable[[], AbstractContextManager[Process]]) -> Iterator[Resident]:
        """Start all commands in the block by the resident process that `start` returns."""
        resident = Resident(start, self.lost)
        try:
            resident.open()
            self.resident = resident
            yield resident
        finally:
            self.resident = None
            resident.close()

    def over(self, process: Process) -> AbstractContextManager[Resident]:
        """Start all commands in the block by the resident process on the streams of `process`."""
        return self.attended(lambda: nullcontext(process))

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Return the command line for the machine that tare itself runs on; see `Host.command_line`."""
        return self.outer.command_line(*self.wrap(*argv))

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Copy a file in; see `Host.put`."""
        mode = f"{source.stat().st_mode & 0o7777:o}"
        script = 'cat > "$1" && chmod "$2" "$1"'
        self._by_tool("sh", "-c", script, "sh", str(target), mode, timeout=900, data=source)

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file out; see `Host.get`."""
        target.write_bytes(self._by_tool("cat", str(source), timeout=60).stdout)

    def read(self, path: str) -> str:
        """Read a file; see `Host.read`."""
        return self._by_tool("cat", path, timeout=30, check=False).text

    def write(self, path: str, text: str) -> None:
        """Write a file; see `Host.write`."""
        self._by_tool("sh", "-c", 'umask 077 && cat > "$1"', "sh", path, timeout=30, data=text.encode())

    def gather(self, folder: str, name: str) -> str:
        """Read files; see `Host.gather`."""
        return self._by_tool("find", folder, "-name", name, "-exec", "cat", "{}", "+", timeout=30, check=False).text

    def _by_tool(self, *argv: str, timeout: float, data: bytes | Path = b"", check: bool = True) -> Output:
        """Run a tool of the inside, or tare's own copy where it has none."""
        output = self.run(*argv, timeout=timeout, input=data, check=False)
        if output.exit_code == _NOT_FOUND:
            output = self.run(TOOLS, *argv, timeout=timeout, input=data, check=False)
        return checked(output) if check else output

    def facts(self) -> Facts:
        """Read the facts that the inside reports."""
        return read_facts(self.read)

    def lost(self, words: str) -> TrialFailed | None:
        """Return the reason if the way to the outer host is lost; see `Host.lost`."""
        return self.outer.lost(words)


def at_hand(host: Host) -> AbstractContextManager[Resident | None]:
    """Keep a resident process on a host for the block, if the host is reached through a command."""
    return host.residing() if isinstance(host, ExecHost) and host.supervisor else nullcontext()


@contextlib.contextmanager
def fresh_root(ledger: Ledger, image: Image, folder: Path) -> Iterator[Path]:
    """Context manager: yield a writable directory with the image's files, and remove what was written afterwards.

    The directory is an overlay mount in `folder`, which is created and removed. overlayfs must support the file system
    of `folder` for its upper layer.
    """
    options = f"lowerdir={image.lower},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    root = str(folder / "root")
    steps = [("folder", str(each)) for each in (folder, root, folder / "upper", folder / "work")]
    with ledger.made(
        [*steps, ("mount", "overlay", "overlay", root, options)],
        Undo.of_folder(str(folder)),
        Undo(("unmount", root), ("umount", "--lazy", root)),
    ):
        yield folder / "root"


def make_enterable(ledger: Ledger, root: Path, groups: Sequence[Mount] = ()) -> None:
    """Mount /proc, /sys and /dev in a fresh root, with the options and devices of Docker's containers.

    `groups` are the mounts of a control group. The unmounting of the root also unmounts all of these. /proc/sys is
    read-only, as writing there would change the host's settings.
    """
    proc = ("mount", "proc", "proc", str(root / "proc"), LOCKED)
    ledger.maker.make(proc, *system_steps(root, groups), ("protect", str(root)))


def system_steps(root: Path, groups: Sequence[Mount]) -> tuple[Step, ...]:
    """Return the setup helper's steps that mount /sys, the control groups and /dev below a root."""
    devices = root / "dev"
    group_steps: list[Step] = []
    for each in groups:
        if group_steps:  # in a file system in memory; /sys has the folder of the first one
            group_steps.append(("folder", f"{root}{each.target}"))
        kind = "-" if each.kind == "bind" else each.kind
        group_steps.append(("mount", kind, each.source, f"{root}{each.target}", ",".join(each.options)))
    return (
        ("mount", "sysfs", "sysfs", str(root / "sys"), f"ro,{LOCKED}"),
        *group_steps,
        ("mount", "tmpfs", "tmpfs", str(devices), "nosuid,strictatime,mode=755,size=65536k"),
        ("devices", str(devices)),
        ("mount", "devpts", "devpts", str(devices / "pts"), "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"),
        ("mount", "mqueue", "mqueue", str(devices / "mqueue"), LOCKED),
        ("mount", "tmpfs", "shm", str(devices / "shm"), f"{LOCKED},mode=1777,size={SHARED_MEMORY}"),
    )
