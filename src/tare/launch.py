"""What a technology is, and what it is given to start an instance."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from tare.contracts import Host, Instance, Workload
from tare.errors import TrialFailed, Unavailable
from tare.hosts.chroot import bytes_below, fresh_root
from tare.hosts.control_groups import ControlGroup, limited
from tare.hosts.exec import ExecHost
from tare.hosts.ledger import Ledger
from tare.hosts.network import Network
from tare.model import Family, Image, Limits, Machine, Mark, Problem

ANSWER_PORT = 17007
START_SECONDS = 120.0  # until an instance that has not answered the client has failed
PATIENCE = 5  # a machine in a machine, or on an emulated one, and what is in it, has so many times as long to start
INIT = "/usr/lib/tare/init"
NOT_ROOT = Problem("tare is not run by root", "sudo tare …")
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")


@dataclass
class Timeline:
    """The moments of an instance's start, on the machine's monotonic clock."""

    marks: list[Mark] = field(default_factory=list)

    def mark(self, name: str, seconds: float | None = None) -> None:
        """Note a moment: now, unless said."""
        self.marks.append(Mark(name, time.monotonic() if seconds is None else seconds))


class Knock(Protocol):
    """Makes the client try to reach an instance until it answers."""

    def __call__(self, address: str, port: int | None = None) -> None:
        """Begin to knock: at our `init`, or at a `port` on which a server of the instance's own accepts connections."""


@dataclass(frozen=True)
class Launch:
    """What an instance is to be. `folder` is a place on the host's disk, not there yet, that is the instance's own.

    `ports` are the TCP ports that have to be reachable by the client. `knock` is called once with the instance's
    address: from then on the client tries to reach it, and so learns when it answered first. The technology marks
    `requested` on the timeline when all that is done once for many instances is done, and `started` when it starts the
    technology's own tool. `answer_port` is where `init` answers: an instance and the machine around it may share an
    address. Within `start_seconds` it has to answer, and a guest that boots has to say its next word.
    """

    name: str
    image: Image
    limits: Limits
    network: Network
    ports: tuple[int, ...]
    folder: Path
    ledger: Ledger
    knock: Knock
    timeline: Timeline = field(default_factory=Timeline)
    answer_port: int = ANSWER_PORT
    start_seconds: float = START_SECONDS

    @property
    def open_files(self) -> tuple[str, ...]:
        """Command prefix that sets the limit of open files."""
        return ("prlimit", f"--nofile={self.limits.open_files}:{self.limits.open_files}", "--")

    @property
    def cpu_list(self) -> str:
        """The CPUs that the instance is pinned to, as the kernel writes lists."""
        return ",".join(map(str, self.limits.cpus))

    def listen(self, address: str) -> str:
        """Where `init` has to answer."""
        return f"{address}:{self.answer_port}"


@dataclass(frozen=True)
class Ground:
    """What tare itself gives an instance whose technology has none of it: a control group and a fresh root.

    The instance's footprint is the processes of the group, its disk what was written over the image.
    """

    launch: Launch
    group: ControlGroup
    root: Path

    def entered(self, host: Host) -> ExecHost:
        """Give the inside of an instance that is entered through the namespaces of its first process, our `init`."""
        pids = self.group.processes()
        pid = next((pid for pid in pids if host.read(f"/proc/{pid}/cmdline").startswith(INIT)), None)
        if pid is None:
            raise TrialFailed("the instance's first process is not there", "`tare show` has its last words")
        limits = (*self.group.join, *self.launch.open_files, "env", "-i", *ENVIRONMENT)
        kinds = ("--mount", "--pid", "--ipc", "--uts", "--net", "--root", "--wd")
        return ExecHost(host, *limits, "nsenter", f"--target={pid}", *kinds, "--")

    def instance(self, inside: Host, address: str, path: str, **proof: str) -> Instance:
        """Describe the instance that was started here."""
        return Instance(
            name=self.launch.name,
            inside=inside,
            address=address,
            path=path,
            processes=self.group.processes,
            proof={"control group": self.group.paths[0]} | proof,
            disk=lambda: bytes_below(self.launch.ledger.host, self.launch.folder / "upper"),
        )


@contextmanager
def prepared(launch: Launch, address: str, counted: bool = True) -> Iterator[Ground]:
    """Make the ground of an instance that will be found at `address`; all of it is gone after the block.

    It is `counted` as part of the start of the instance, unless the instance would need none of it.
    """
    launch.knock(address)
    if counted:
        launch.timeline.mark("requested")
    with limited(launch.ledger, launch.name, launch.limits) as group:  # noqa: SIM117 - the group outlives the root
        with fresh_root(launch.ledger, launch.image, launch.folder) as root:
            yield Ground(launch, group, root)


class Technology(ABC):
    """Starts instances on a host. Its settings are its dataclass fields.

    Plug-ins inherit from it. `isolates` is what keeps an instance apart and `needs` what has to be there, for the
    catalogue. `packages` are Debian packages that it needs beside those of its `tools`. `hosts` tells whether other
    technologies can run in its instances, `nests` whether it can run in theirs: its packages are in their image then.
    `tested` is how tare's own tests run it: on the real thing, on the real thing in an emulated machine, or only
    against a program that stands in for it; `tested_in` is where they run the real thing. One that `gives_machine` runs
    nothing itself: it is always the outermost layer, and what is in it is started as on any machine over SSH.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[Family]
    isolates: ClassVar[str] = ""
    needs: ClassVar[str] = ""
    hosts: ClassVar[bool] = False
    nests: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ()
    gives_machine: ClassVar[bool] = False
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "real"
    tested_in: ClassVar[str] = "tests/contract"

    @property
    @abstractmethod
    def path(self) -> str:
        """How packets travel between client and instance: `host`, `bridge`, `nat`, `tap`, `none`."""

    @property
    def tools(self) -> Mapping[str, str]:
        """The programs that it calls on a host, each with the Debian packages that have it."""
        return {}

    @property
    def debian_packages(self) -> tuple[str, ...]:
        """All Debian packages that it needs on a host."""
        named = (package for packages in self.tools.values() for package in packages.split())
        return tuple(sorted({*self.packages, *named}))

    @property
    def joins_client(self) -> bool:
        """Whether the client becomes a port of a bridge of its own, for which it has to be on the same machine."""
        return False

    @abstractmethod
    def version(self, host: Host) -> str:
        """Give the version of the tool, or an empty text where it is not installed."""

    @abstractmethod
    def problems(self, host: Host) -> Sequence[Problem]:
        """Find what is missing here, each with its fix. Changes nothing, starts nothing that stays."""

    def advice(self, host: Host) -> Sequence[Problem]:  # noqa: ARG002 - most have none
        """Say what is in nobody's way, and yet better done: `tare doctor` tells it where there are no problems."""
        return ()

    def refuses(self, workload: Workload) -> str | None:  # noqa: ARG002 - most refuse none
        """Tell why a workload cannot run on it, or None."""
        return None

    def brings(self) -> Sequence[str]:
        """Tell what its settings bring along that is executed or opened outside tare, for `tare plan`."""
        return ()

    def engine(self, host: Host) -> AbstractContextManager[None]:  # noqa: ARG002 - most have none
        """Run the daemon that it needs, on a host of ours that has just been started and has none."""
        return nullcontext()

    def imported(self, host: Host, image: Image) -> None:  # noqa: ARG002 - most do nothing
        """Do what is done once on a host for many instances, such as giving an engine the image."""
        return

    def forget(self, host: Host) -> None:  # noqa: ARG002 - likewise
        """Undo what `imported` has done for all images, such as removing them from an engine."""
        return

    @abstractmethod
    def launch(self, host: Host, launch: Launch) -> AbstractContextManager[Instance]:
        """Start an instance; it is gone, with all that it made, after the block."""

    def lent(
        self,
        host: Host,  # noqa: ARG002 - most give none
        ledger: Ledger,  # noqa: ARG002
        folder: Path,  # noqa: ARG002
        mark: Callable[[str], None],  # noqa: ARG002
    ) -> AbstractContextManager[tuple[Machine, Instance]]:
        """Give a machine over SSH that answers, and what is known of it; only asked of those that `gives_machine`.

        Its `folder` is not there yet. `mark` is told the moments `requested`, `started` and `ready`.
        """
        raise Unavailable(f"{self.name} gives no machine", "report this bug of its plug-in")


def missing_tools(host: Host, packages: Mapping[str, str]) -> tuple[Problem, ...]:
    """Find which tools a host lacks. `packages` names the Debian package of each; not being root is a problem too."""
    script = '[ "$(id -u)" = 0 ] || echo root; for tool do command -v "$tool" >/dev/null || echo "$tool"; done'
    missing = host.run("sh", "-c", script, "sh", *packages, timeout=10).text.split()
    return tuple(
        NOT_ROOT if tool == "root" else Problem.mended_by(f"{tool} is not installed", *packages[tool].split())
        for tool in missing
    )


def first_line(host: Host, *argv: str) -> str:
    """Give the first line that a command prints, or an empty text where it cannot be run."""
    try:
        lines = host.run(*argv, timeout=20, check=False).text.splitlines()
    except TrialFailed:
        return ""
    return lines[0].strip() if lines else ""
