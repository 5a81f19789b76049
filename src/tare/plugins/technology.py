"""The contract of technologies, and what they start an instance with."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from tare.hosts.cgroups import ControlGroup, create_limited_cgroup
from tare.hosts.exec import ExecHost, fresh_root
from tare.hosts.host import Host, HostCache, Process
from tare.hosts.ledger import Ledger
from tare.hosts.network import Network
from tare.model.errors import TrialFailed, Unavailable
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.machine import SshTarget
from tare.model.trial import Family, Limits, Mark, Problem
from tare.plugins.workload import Instance, Workload

READINESS_PORT = 17007
START_TIMEOUT_SECONDS = 120.0  # an instance that has not answered the client by then has failed
NESTED_TIMEOUT_FACTOR = (
    5  # a machine in another or on an emulated one, and all in it, may take this many times as long to start
)
INIT = "/usr/lib/tare/init"
_READY_TIMEOUT_SECONDS = 20.0  # from the command that starts `init_command` to its word
HOST_NAME = "tare"  # of every instance: programs write it into logs and answers
# Docker's default for the root of a container, in programs/conditions.h, too.
CAPABILITIES = (
    *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD"),
    *("CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"),
    "CAP_SYS_CHROOT",
)
UNPRIVILEGED_PORT_SYSCTL = "net.ipv4.ip_unprivileged_port_start"  # 0: every user may listen on port 80, as in Docker
# Reasons of differences inside that several technologies declare.
SECCOMP_DIFFERENCES = {"status Seccomp": "it filters system calls"}
PROTECTED_PATH_DIFFERENCES = dict.fromkeys(
    ("mount /proc/*", "mount /sys/firmware"), "it protects /proc and /sys by other mounts"
)
ENGINE_FILE_DIFFERENCES = dict.fromkeys(
    ("mount /etc/hostname", "mount /etc/hosts", "mount /etc/resolv.conf"),
    "it mounts these files; the content is equal",
)
CGROUP_CONTROLLER_DIFFERENCES = {"mount /sys/fs/cgroup*": "it shows the groups of other controllers"}
KERNEL_DIFFERENCES = dict.fromkeys(
    ("device *", "mount /dev*", "mount /proc*", "mount /sys*", "limit *", "sysctl *"), "it has its own kernel"
)
NEEDS_ROOT = Problem("tare is not run by root", "sudo tare …")
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
CLEAN_ENVIRONMENT_OPTIONS = tuple(
    word for variable in ENVIRONMENT for word in ("-e", variable)
)  # of `exec_in`: no other environment


@dataclass
class StartTimeline:
    """The moments of an instance's start, on the machine's monotonic clock, as its `technology` reports them.

    `before_request` is called right before the moment `requested`.
    """

    marks: list[Mark] = field(default_factory=list)
    technology: str = "the technology"
    before_request: Callable[[], None] | None = None

    def mark(self, name: str, seconds: float | None = None) -> None:
        """Record a moment, in seconds of the monotonic clock; now by default. Raises TrialFailed unless finite."""
        if name == "requested" and self.before_request:
            self.before_request()
        moment = time.monotonic() if seconds is None else float(seconds)
        if not math.isfinite(moment):
            what = f"{self.technology}: the moment {name!r} of its start is {moment}"
            raise TrialFailed(what, "its plug-in has a bug")
        self.marks.append(Mark(name, moment))


class ReadinessProbe(Protocol):
    """Makes the client try to reach an instance until it answers."""

    def __call__(self, address: str, port: int | None = None) -> None:
        """Start the readiness probe of `init_command`, or of the TCP `port` of a server in the instance."""


@dataclass(frozen=True)
class LaunchRequest:
    """What a technology starts an instance with.

    `folder` is the instance's own path on the host's disk; the technology makes it. `volume_bytes` is how much must fit
    on a data volume, which is at `VOLUME` in the instance; 0 for none. The client must reach the TCP `ports` and, with
    `uses_udp`, those after the first by UDP, too. The technology calls `start_probe` once with the instance's address;
    from then on the client tries to reach it. It marks `requested` on the timeline after all work that many instances
    share, and `started` when it starts its tool. `init_command` answers on `readiness_port`: an instance and the
    machine around it may share an address. The instance must answer within `start_timeout_seconds`; a booting guest may
    be silent for that long at most.
    """

    name: str
    image: Image
    limits: Limits
    network: Network
    ports: tuple[int, ...]
    folder: Path
    ledger: Ledger
    start_probe: ReadinessProbe
    timeline: StartTimeline = field(default_factory=StartTimeline)
    readiness_port: int = READINESS_PORT
    uses_udp: bool = False
    start_timeout_seconds: float = START_TIMEOUT_SECONDS
    cache: HostCache = field(default_factory=HostCache)  # on the host, for the whole run
    volume_bytes: int = 0

    def version(self, technology: Technology, host: Host) -> str:
        """Return the version of the technology's tool, which is asked once in a run."""
        return self.cache.read_once(f"version of {technology!r}", lambda: technology.version(host))

    def prepare_image(self, technology: Technology, host: Host) -> None:
        """Let the technology prepare the host for the image, once in a run."""

        def prepare() -> str:
            technology.prepare_image(host, self.image)
            return self.image.digest

        self.cache.read_once(f"image {self.image.digest} of {technology!r}", prepare)

    @property
    def open_files_prefix(self) -> tuple[str, ...]:
        """Command prefix that sets the limit of open files."""
        return (self.ledger.setup_helper.exec_in, "-f", str(self.limits.open_files), "--")

    @property
    def cpu_list(self) -> str:
        """The CPUs that the instance is pinned to, as the kernel writes lists."""
        return ",".join(map(str, self.limits.cpus))

    def listen_address(self, address: str) -> str:
        """Return the address and port on which `init_command` must answer."""
        return f"{address}:{self.readiness_port}"

    def init_command(self, address: str) -> tuple[str, ...]:
        """Return the command of an instance's main process, whose streams become those of the resident process.

        It ends with its standard input.
        """
        return (INIT, self.listen_address(address), "--resident", self.name)


@dataclass(frozen=True)
class InstanceSandbox:
    """What tare makes for an instance whose technology has neither: a control group and a fresh root.

    The footprint is that of the group's processes; the disk is what was written over the image. `volume` is a folder
    for the technology to mount at `VOLUME`; None if the instance needs none.
    """

    launch: LaunchRequest
    group: ControlGroup
    root: Path
    volume: Path | None = None

    def enter_namespaces(self, host: Host) -> ExecHost:
        """Return the inside of an instance, entered through the namespaces of `init_command`; raises TrialFailed."""
        pids = self.group.processes()
        pid = next((pid for pid in pids if host.read(f"/proc/{pid}/cmdline").startswith(INIT)), None)
        if pid is None:
            raise TrialFailed("the instance's first process is not there", "`tare show` has its last words")
        return ExecHost(host, *self.enter_prefix("-p", str(pid), *CLEAN_ENVIRONMENT_OPTIONS))

    def enter_prefix(self, *options: str) -> tuple[str, ...]:
        """Command prefix that joins the group, sets the limit of open files, and more (programs/exec_in.c)."""
        return (*self.group.join[:-1], *self.launch.open_files_prefix[1:-1], *options, "--")

    def wait_until_joinable(self) -> None:
        """Wait until the kernel lets a process join the group at once: the group is ours, not a part of the start."""
        self.launch.ledger.setup_helper.run_steps(("settle",))

    def describe_instance(self, inside: Host, address: str, path: str, **proof: str) -> Instance:
        """Describe the instance that runs here."""
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
def start_init(host: Host, *command: str) -> Iterator[Process]:
    """Run a command that starts `init_command` and ends with it; yield the process when `init_command` is ready."""
    with host.spawn(*command, die_with_parent=True) as process:
        process.read_line(_READY_TIMEOUT_SECONDS)
        yield process


@contextmanager
def create_sandbox(launch: LaunchRequest, address: str, is_timed: bool = True) -> Iterator[InstanceSandbox]:
    """Make the ground of an instance at `address`; remove it after the block.

    If `is_timed`, the time for it is part of the instance's start.
    """
    launch.start_probe(address)
    if is_timed:
        launch.timeline.mark("requested")
    with create_limited_cgroup(launch.ledger, launch.name, launch.limits) as group:  # noqa: SIM117 - the group outlives the root
        with fresh_root(launch.ledger, launch.image, launch.folder) as root:
            yield InstanceSandbox(launch, group, root, _create_volume(launch))


def _create_volume(launch: LaunchRequest) -> Path | None:
    """Make a folder on the file system that the root's upper layer is on; it goes with the instance's folder."""
    if not launch.volume_bytes:
        return None
    volume = launch.folder / "volume"
    launch.ledger.setup_helper.run_steps(("folder", str(volume)))
    return volume


class Technology(ABC):
    """Starts instances on a host. Plug-ins inherit from it; their settings are their dataclass fields.

    `packages` are the Debian packages that it needs beside those of its `tools`, `needs` is what Debian does not have.
    `can_host`: other technologies can run in its instances. `can_be_nested`: it can run in theirs, whose image then has
    its packages. `process_names` are those that it starts for an instance beside its `tools`, `list_commands` the
    commands that print the names of what it has made: tests look there for what is left. `tested` is how tare's tests
    run it: on the real thing, on the real thing in an emulated machine, or only against a program that stands in for
    it; `tests_path` is the folder or file of the tests on the real thing. With `provisions_machine`, it only lends a
    machine: it is the outermost layer, and tare starts the inner ones there as on any machine over SSH. `has_volumes`:
    it gives its instances a data volume where `LaunchRequest.volume_bytes` asks for one. `starts_quickly`: an instance
    answers within a few seconds, so that `tare try` takes it without being asked. `short_name` is another name of it in
    suites. A word after either name is the value of the setting that `variant_setting` names: with `pod` and
    `runtime_class`, `pod-gvisor` needs no table in a suite.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[Family]
    needs: ClassVar[str] = ""
    can_host: ClassVar[bool] = False
    can_be_nested: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ()
    process_names: ClassVar[tuple[str, ...]] = ()
    list_commands: ClassVar[tuple[tuple[str, ...], ...]] = ()
    provisions_machine: ClassVar[bool] = False
    has_volumes: ClassVar[bool] = False
    starts_quickly: ClassVar[bool] = True
    short_name: ClassVar[str] = ""
    variant_setting: ClassVar[str] = ""
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "real"
    tests_path: ClassVar[str] = "tests/contract"

    @property
    @abstractmethod
    def isolation(self) -> Isolation:
        """The level of isolation of an instance, and its reason; users choose a stack by it, so declare the weaker."""

    @property
    @abstractmethod
    def network_path(self) -> str:
        """The packets' path between client and instance: `host`, `bridge`, `nat`, `tap`, `pod`, `direct`, `none`."""

    @property
    def tools(self) -> Mapping[str, str]:
        """The programs that it calls on a host, each with its Debian packages, separated by spaces."""
        return {}

    @property
    def expected_differences(self) -> Mapping[str, str]:
        """The conditions inside (programs/inspect.c) that cannot be as on bare metal: fnmatch patterns with reasons."""
        return KERNEL_DIFFERENCES if self.family in ("type 1", "type 2", "emulator") else {}

    @property
    def debian_packages(self) -> tuple[str, ...]:
        """All Debian packages that it needs on a host."""
        named = (package for packages in self.tools.values() for package in packages.split())
        return tuple(sorted({*self.packages, *named}))

    @property
    def has_fixed_address(self) -> bool:
        """Whether its instances cannot be given an address: of stacks that are alive together, it has a first slot."""
        return False

    @property
    def start_timeout_seconds(self) -> float:
        """The seconds within which an instance must answer; it has more in another machine, and on an emulated one."""
        return START_TIMEOUT_SECONDS

    @property
    def needs_local_client(self) -> bool:
        """Whether the client must be on the same machine, as when it is a port of the technology's own bridge."""
        return False

    @abstractmethod
    def version(self, host: Host) -> str:
        """Return the version of the tool; empty where it is not installed."""

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find what is missing on a host, each with its fix. It changes nothing and leaves nothing running."""
        return find_missing_tools(host, self.tools)

    def advice(self, host: Host) -> Sequence[Problem]:  # noqa: ARG002 - most have none
        """Recommend improvements that are not required; `tare doctor` shows them, also where there are problems."""
        return ()

    def outdated_since(self, version: str) -> str:  # noqa: ARG002 - most are what they were
        """Return the year of a version that is unlike what its users run today, for tables; empty for others."""
        return ""

    def variants(self, host: Host) -> Sequence[str]:  # noqa: ARG002 - most have none
        """Return the words that can follow its name on a host where it has no problems, for `tare doctor`."""
        return ()

    def unsupported_reason(self, workload: Workload) -> str | None:  # noqa: ARG002 - most refuse none
        """Return the reason why a workload cannot run on it, or None."""
        return None

    def external_effects(self) -> Sequence[str]:
        """List what its settings execute or open outside tare, for `tare plan`."""
        return ()

    def user_file_paths(self) -> Sequence[str]:
        """Return the paths of the user's files that its settings name, each once."""
        return ()

    def run_engine(self, host: Host) -> AbstractContextManager[None]:  # noqa: ARG002 - most have none
        """Run its daemon in a machine that tare has just booted."""
        return nullcontext()

    def prepare_image(self, host: Host, image: Image) -> None:  # noqa: ARG002 - most do nothing
        """Prepare a host once for many instances, such as by importing the image into an engine."""
        return

    def remove_images(self, host: Host, tag: str) -> None:  # noqa: ARG002 - likewise
        """Undo `prepare_image` for all images whose `Image.tag` begins so, such as by removing them from an engine."""
        return

    @abstractmethod
    def launch(self, host: Host, launch: LaunchRequest) -> AbstractContextManager[Instance]:
        """Start an instance; remove it, with all that it made, after the block. Raises TrialFailed or Unavailable."""

    def provision_machine(
        self,
        host: Host,  # noqa: ARG002 - most give none
        ledger: Ledger,  # noqa: ARG002
        folder: Path,  # noqa: ARG002
        mark: Callable[[str], None],  # noqa: ARG002
    ) -> AbstractContextManager[tuple[SshTarget, Instance]]:
        """Lend a machine over SSH that answers, and describe it; called only with `provisions_machine`.

        The technology makes `folder`, and calls `mark` for `requested`, `started` and `start_init`.
        """
        raise Unavailable(f"{self.name} lends no machine", "report this bug of its plug-in")


def list_by_reason(differences: Iterable[tuple[str, str]]) -> str:
    """Return patterns of conditions that differ as text, each reason once with its patterns."""
    patterns: dict[str, dict[str, None]] = {}
    for pattern, reason in differences:
        patterns.setdefault(reason, {})[pattern] = None
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in patterns.items())


def find_missing_tools(host: Host, packages: Mapping[str, str]) -> tuple[Problem, ...]:
    """Find the tools that a host lacks, and whether tare is root; `packages` names the Debian packages of each tool."""
    script = '[ "$(id -u)" = 0 ] || echo root; for tool do command -v "$tool" >/dev/null || echo "$tool"; done'
    missing = host.run("sh", "-c", script, "sh", *packages, timeout=10).text.split()
    return tuple(
        NEEDS_ROOT if tool == "root" else Problem.from_packages(f"{tool} is not installed", *packages[tool].split())
        for tool in missing
    )


def missing_program(host: Host, fix: str, *programs: str) -> tuple[Problem, ...]:
    """Find the first that a host lacks of the programs of another project, which no Debian package has."""
    script = 'for program do command -v "$program" >/dev/null || { echo "$program"; break; }; done'
    missing = host.run("sh", "-c", script, "sh", *programs, timeout=10).text.strip()
    return (Problem(f"{missing} is not installed", fix, missing="program"),) if missing else ()


def first_line(host: Host, *argv: str) -> str:
    """Return the first line that a command prints; empty if it cannot run."""
    try:
        lines = host.run(*argv, timeout=20, check=False).text.splitlines()
    except TrialFailed:
        return ""
    return lines[0].strip() if lines else ""
