"""Contract of technologies: the class that a plug-in inherits from, and the launch request that it receives."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from tare.hosts.facts import architecture_of
from tare.hosts.host import Host, HostCache
from tare.hosts.ledger import Ledger
from tare.hosts.network import Network
from tare.model.architecture import ARM64, X86_64, Architecture
from tare.model.errors import TrialFailed, Unavailable
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.machine import SshTarget
from tare.model.trial import Family, Limits, Mark, Problem
from tare.plugins.instance import Instance
from tare.plugins.workload import Workload

READINESS_PORT = 17007
START_TIMEOUT_SECONDS = 120.0  # without a response to the client by then, the start has failed
SNAPSHOT_SECONDS = 600.0  # for the writing of a snapshot, on an emulated machine, too
NESTED_TIMEOUT_FACTOR = 5  # nested and emulated machines, and all layers in them, start this many times slower
INIT = "/usr/lib/tare/init"
HOST_NAME = "tare"  # equal in all instances: programs write the host name into logs and responses
# Docker's default for the root of a container. programs/conditions.h has the same list: keep them equal.
CAPABILITIES = (
    *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD"),
    *("CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"),
    "CAP_SYS_CHROOT",
)
UNPRIVILEGED_PORT_SYSCTL = "net.ipv4.ip_unprivileged_port_start"  # 0: every user may listen on port 80, as in Docker
# Differences from bare metal that several technologies declare, each with its reason.
SECCOMP_DIFFERENCES = {"status Seccomp": "it filters system calls"}
PROTECTED_PATH_DIFFERENCES = dict.fromkeys(
    ("mount /proc/*", "mount /sys/firmware"), "it protects /proc and /sys by other mounts"
)
ENGINE_FILE_DIFFERENCES = dict.fromkeys(
    ("mount /etc/hostname", "mount /etc/hosts", "mount /etc/resolv.conf"),
    "it mounts these files; the content is equal",
)
# Where the kernel has /proc/kcore.
CORE_DEVICE_DIFFERENCES = {"device core": "it links /dev/core to a file that is hidden"}
CGROUP_CONTROLLER_DIFFERENCES = {"mount /sys/fs/cgroup*": "it shows the groups of other controllers"}
KERNEL_DIFFERENCES = dict.fromkeys(
    ("device *", "mount /dev*", "mount /proc*", "mount /sys*", "limit *", "sysctl *"), "it has its own kernel"
)
NEEDS_ROOT = Problem("tare is not run by root", "sudo tare …")
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
# With `exec_in -e`, a process has no other variables: those of tare's user must not reach the instance.
CLEAN_ENVIRONMENT_OPTIONS = tuple(word for variable in ENVIRONMENT for word in ("-e", variable))


@dataclass
class StartTimeline:
    """Timeline of an instance's start: moments on the machine's monotonic clock, as its `technology` reports them.

    `before_request` is called right before the moment `requested` is recorded.
    """

    marks: list[Mark] = field(default_factory=list)
    technology: str = "the technology"
    before_request: Callable[[], None] | None = None

    def mark(self, name: str, seconds: float | None = None) -> None:
        """Record a moment in seconds of the monotonic clock, by default now.

        Raises TrialFailed if the number is not finite: JSON and the statistics cannot represent it.
        """
        if name == "requested" and self.before_request:
            self.before_request()
        moment = time.monotonic() if seconds is None else float(seconds)
        if not math.isfinite(moment):
            what = f"{self.technology}: the moment {name!r} of its start is {moment}"
            raise TrialFailed(what, "its plug-in has a bug")
        self.marks.append(Mark(name, moment))


class ReadinessProbe(Protocol):
    """Readiness probe: makes the client connect to an instance repeatedly until the instance responds."""

    def __call__(self, address: str, port: int | None = None) -> None:
        """Start the probe, and return at once.

        It connects to the TCP `port` of a server in the instance, or to `init` on `readiness_port` if `port` is None.
        """


@dataclass(frozen=True)
class LaunchRequest:
    """Launch request: everything that a technology needs to start one instance.

    - `folder`: a path on the host's disk for this instance only. The technology creates and removes it.
    - `volume_bytes`: the size that the instance's data volume at `VOLUME` must have; 0 if it needs no volume.
    - `ports`: the TCP ports that the client must reach. With `uses_udp`, it must reach all but the first by UDP, too.
    - `start_probe`: the technology calls it once, with the instance's address. The client then probes this address.
    - `timeline`: the technology marks `requested` after all work that several instances share, and `started` right
      before it starts its tool.
    - `readiness_port`: the port of `init`. It differs between layers, as an instance may share its machine's address.
    - `start_timeout_seconds`: the time for the whole start, and the longest silence of a booting guest.
    - `cache`: results on the host that are valid for the whole run.
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
    cache: HostCache = field(default_factory=HostCache)
    volume_bytes: int = 0

    def version(self, technology: Technology, host: Host) -> str:
        """Return the version of the technology's tool; reads it on the host once per run."""
        return self.cache.read_once(f"version of {technology!r}", lambda: technology.version(host))

    def prepare_image(self, technology: Technology, host: Host) -> None:
        """Call the technology's `prepare_image` once per run."""

        def prepare() -> str:
            technology.prepare_image(host, self.image)
            return self.image.digest

        self.cache.read_once(f"image {self.image.digest} of {technology!r}", prepare)

    @property
    def open_files_prefix(self) -> tuple[str, ...]:
        """Command prefix that sets the limit on open files."""
        return (self.ledger.setup_helper.exec_in, "-f", str(self.limits.open_files), "--")

    @property
    def cpu_list(self) -> str:
        """The CPUs that the instance is pinned to, as a list of the kernel such as `0,2`."""
        return ",".join(map(str, self.limits.cpus))

    def listen_address(self, address: str) -> str:
        """Return ADDRESS:PORT, on which `init` must listen."""
        return f"{address}:{self.readiness_port}"

    def init_command(self, address: str) -> tuple[str, ...]:
        """Return the command of `init`, the instance's main process.

        `init` passes its standard streams to the resident agent, and exits when its standard input is closed: an
        instance does not outlive the client that holds the other end.
        """
        return (INIT, self.listen_address(address), "--resident", self.name)


class Technology(ABC):
    """Technology: starts instances on a host. Plug-ins inherit from it; their settings are their dataclass fields.

    - `needs`: the software that Debian does not package, as text for users; "" if Debian has everything.
    - `can_host`: other technologies can run in its instances.
    - `can_be_nested`: it can run in an instance of another technology, whose image then gets its packages.
    - `architectures`: those on which it runs.
    - `packages`: Debian packages in addition to those of its `tools`.
    - `process_names`: processes that it starts for an instance, in addition to its `tools`.
    - `list_commands`: commands that print the names of the objects that it has created; `tare clean` and tests search
      their output for leftovers.
    - `provisions_machine`: it only provisions a machine. It is the outermost layer of a stack, and tare starts the
      inner layers on its machine over SSH.
    - `has_volumes`: its instances get a data volume if `LaunchRequest.volume_bytes` requests one.
    - `starts_quickly`: an instance is ready within a few seconds, so that `tare try` includes it by default.
    - `settle_seconds`: the time after its start in which an instance works slower than later. Turns wait for its end.
    - `short_name`: another name in suites; "" if there is none.
    - `other_names`: names of its programs that a user may take for its name. A suite with one of them is refused with
      the right name.
    - `variant_setting`: the setting whose value may follow either name after a hyphen, so that `pod-gvisor` (`pod`
      with `runtime_class = "gvisor"`) needs no table in a suite; "" if there is none.
    - `tested`: tare's tests run the real tool, the real tool in an emulated machine, or only a stand-in for it.
    - `tests_path`: the folder or file of the tests with the real tool.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[Family]
    needs: ClassVar[str] = ""
    can_host: ClassVar[bool] = False
    can_be_nested: ClassVar[bool] = False
    architectures: ClassVar[tuple[Architecture, ...]] = (X86_64, ARM64)
    packages: ClassVar[tuple[str, ...]] = ()
    process_names: ClassVar[tuple[str, ...]] = ()
    list_commands: ClassVar[tuple[tuple[str, ...], ...]] = ()
    provisions_machine: ClassVar[bool] = False
    has_volumes: ClassVar[bool] = False
    starts_quickly: ClassVar[bool] = True
    settle_seconds: ClassVar[float] = 0.0
    short_name: ClassVar[str] = ""
    other_names: ClassVar[tuple[str, ...]] = ()
    variant_setting: ClassVar[str] = ""
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "real"
    tests_path: ClassVar[str] = "tests/contract"

    @property
    @abstractmethod
    def isolation(self) -> Isolation:
        """The level of isolation of an instance, with its reason.

        Users choose a stack by this level: declare the weaker one of two.
        """

    @property
    @abstractmethod
    def network_path(self) -> str:
        """The path of packets between client and instance.

        One of `host`, `bridge`, `nat`, `tap`, `pod`, `direct`, `rootlesskit` and `none`.
        """

    @property
    def tools(self) -> Mapping[str, str]:
        """The programs that it calls on a host, each with its Debian packages, separated by spaces."""
        return {}

    @property
    def expected_differences(self) -> Mapping[str, str]:
        """The conditions inside (programs/inspect.c) that cannot equal those on bare metal.

        The keys are fnmatch patterns of conditions, the values are reasons.
        """
        return KERNEL_DIFFERENCES if self.family in ("type 1", "type 2", "emulator") else {}

    @property
    def debian_packages(self) -> tuple[str, ...]:
        """All Debian packages that it needs on a host, sorted."""
        named = (package for packages in self.tools.values() for package in packages.split())
        return tuple(sorted({*self.packages, *named}))

    @property
    def has_fixed_address(self) -> bool:
        """Whether its instances have a built-in address.

        Among stacks that are measured together, such an instance gets the first slot, which has this address.
        """
        return False

    @property
    def start_timeout_seconds(self) -> float:
        """The seconds within which an instance must be ready.

        tare multiplies them by `NESTED_TIMEOUT_FACTOR` in another machine and on an emulated processor.
        """
        return START_TIMEOUT_SECONDS

    @property
    def needs_local_client(self) -> bool:
        """Whether the client must be on the same machine, for example as a port of the technology's bridge."""
        return False

    @abstractmethod
    def version(self, host: Host) -> str:
        """Return the version of the tool; "" if it is not installed."""

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return the problems that prevent a start on the host, each with its fix; empty if there are none.

        It changes nothing on the host and leaves nothing running: `tare doctor` calls it on machines in use.
        """
        return find_missing_tools(host, self.tools)

    def advice(self, host: Host) -> Sequence[Problem]:  # noqa: ARG002 - most have none
        """Return recommendations that are not required; `tare doctor` shows them even if there are problems."""
        return ()

    def outdated_since(self, version: str) -> str:  # noqa: ARG002 - most versions are still representative
        """Return the year of a version whose results differ from those of today's versions; "" for other versions.

        Tables of results show the year next to the stack.
        """
        return ""

    def variants(self, host: Host) -> Sequence[str]:  # noqa: ARG002 - most have none
        """Return the values of `variant_setting` that work on the host, for `tare doctor`.

        It is called only if the host has no problems.
        """
        return ()

    def unsupported_reason(self, workload: Workload) -> str | None:  # noqa: ARG002 - most support all
        """Return the reason why a workload cannot run on it; None if it can."""
        return None

    def external_effects(self) -> Sequence[str]:
        """Return the programs and connections that its settings start outside tare, as text for `tare plan`."""
        return ()

    def user_file_paths(self) -> Sequence[str]:
        """Return the paths of the user's files that its settings name, without duplicates."""
        return ()

    def run_engine(self, host: Host) -> AbstractContextManager[None]:  # noqa: ARG002 - most have none
        """Context manager: run its daemon in a machine that tare has just booted, where no init system starts it."""
        return nullcontext()

    def prepare_image(self, host: Host, image: Image) -> None:  # noqa: ARG002 - most do nothing
        """Prepare a host once for many instances, for example by importing the image into an engine."""
        return

    def remove_images(self, host: Host, tag: str) -> None:  # noqa: ARG002 - likewise
        """Undo `prepare_image` for all images whose `Image.tag` starts with `tag`."""
        return

    @abstractmethod
    def launch(self, host: Host, launch: LaunchRequest) -> AbstractContextManager[Instance]:
        """Context manager: start an instance; remove it and everything made for it after the block.

        Raises TrialFailed if the start fails, and Unavailable if the host lacks a requirement.
        """

    def provision_machine(
        self,
        host: Host,  # noqa: ARG002 - most provision none
        ledger: Ledger,  # noqa: ARG002
        folder: Path,  # noqa: ARG002
        mark: Callable[[str], None],  # noqa: ARG002
    ) -> AbstractContextManager[tuple[SshTarget, Instance]]:
        """Context manager: provision a machine that responds over SSH; yield its login and its description.

        It is called only with `provisions_machine`. The technology creates `folder`, and calls `mark` with
        `requested`, `started` and `ready`.
        """
        raise Unavailable(f"{self.name} provisions no machine", "report this bug of its plug-in")


def list_by_reason(differences: Iterable[tuple[str, str]]) -> list[str]:
    """Return a text for each reason: all patterns with this reason, and the reason in parentheses."""
    patterns: dict[str, dict[str, None]] = {}
    for pattern, reason in differences:
        patterns.setdefault(reason, {})[pattern] = None
    return [f"{', '.join(names)} ({reason})" for reason, names in patterns.items()]


def find_problems(technology: Technology, host: Host) -> Sequence[Problem]:
    """Return the problems that prevent a start on the host, or the one that its architecture is another."""
    return find_architecture_problem(technology, architecture_of(host)) or technology.problems(host)


def find_architecture_problem(technology: Technology, here: Architecture) -> tuple[Problem, ...]:
    """Return the problem that a technology does not run on an architecture, or ()."""
    if here in technology.architectures:
        return ()
    known = " and ".join(each.title for each in technology.architectures)
    return (Problem(f"it runs on {known} only, and the machine is {here.title}", "choose another stack"),)


def find_missing_tools(host: Host, packages: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return a problem for each missing tool, and one if tare is not root on the host.

    `packages` has the Debian packages of each tool, separated by spaces, with the names on x86-64.
    """
    localize = architecture_of(host).localize
    packages = {localize(tool): localize(names) for tool, names in packages.items()}
    # One shell for all tools: over SSH, a command per tool would take a round trip each.
    script = '[ "$(id -u)" = 0 ] || echo root; for tool do command -v "$tool" >/dev/null || echo "$tool"; done'
    missing = host.run("sh", "-c", script, "sh", *packages, timeout=10).text.split()
    return tuple(
        NEEDS_ROOT if tool == "root" else Problem.from_packages(f"{tool} is not installed", *packages[tool].split())
        for tool in missing
    )


def missing_program(host: Host, fix: str, *programs: str) -> tuple[Problem, ...]:
    """Return a problem with `fix` for the first missing program; () if the host has all.

    It is for programs that no Debian package has.
    """
    script = 'for program do command -v "$program" >/dev/null || { echo "$program"; break; }; done'
    missing = host.run("sh", "-c", script, "sh", *programs, timeout=10).text.strip()
    return (Problem(f"{missing} is not installed", fix, missing="program"),) if missing else ()


def unusable_program(host: Host, fix: str, *argv: str, expected: str) -> tuple[Problem, ...]:
    """Return a problem with `fix` if a program is missing, or its command does not print `expected`; () otherwise.

    Packages of registries may lack the program for the machine's processor, or the libraries that it needs.
    """
    if missing := missing_program(host, fix, argv[0]):
        return missing
    output = host.run(*argv, timeout=20, check=False)
    printed = output.stdout + output.stderr
    if expected.encode() in printed:
        return ()
    last = printed.decode("utf-8", "replace").strip().splitlines()[-1:]
    return (Problem(f"{argv[0]} does not run: {''.join(last) or 'it prints nothing'}", fix, missing="program"),)


def first_line(host: Host, *argv: str) -> str:
    """Return the first line that a command prints, stripped; "" if it prints nothing or cannot run."""
    try:
        lines = host.run(*argv, timeout=20, check=False).text.splitlines()
    except TrialFailed:
        return ""
    return lines[0].strip() if lines else ""
