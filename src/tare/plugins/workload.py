"""The contracts: what hosts, instances and workloads offer. That of technologies is in `plugins/technology.py`.

A host is a place where commands can be run; an instance that has an inside is itself a host; and a workload never knows
where it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self

from tare.hosts.host import Host
from tare.model.errors import Fault, TrialFailed
from tare.model.image import Image, ImageSpec
from tare.model.machine import DiskBytes
from tare.model.trial import Caution, Footprint, LimitsCheck, LimitsSpec, Mark, Metric, RawOutput, Service, Sweep, Value

VOLUME = "/srv/tare-volume"  # where an instance has its data volume


@dataclass(frozen=True)
class Instance:
    """One started environment.

    `require_inside` is None for a unikernel, `address` without a network. `processes` returns the numbers of its
    processes on the host, and is called ten times a second. `proof` describes what really runs, read from inside and
    outside. `written_bytes` returns the bytes that it has written; `image_bytes` those on the host's disk of what it
    was started from, which instances share, in the form that its technology keeps. `served_ports` names the workloads
    whose server is built in, each with its TCP port. `disk_file` is the file of its disk on the host, if `qemu-img` can
    read it; the suffix is its format.
    """

    name: str
    inside: Host | None
    address: str | None
    network_path: str
    processes: Callable[[], Sequence[int]]
    proof: Mapping[str, str] = field(default_factory=dict)
    written_bytes: Callable[[], int | None] = lambda: None
    image_bytes: Callable[[], int | None] = lambda: None
    cautions: tuple[Caution, ...] = ()
    served_ports: Mapping[str, int] = field(default_factory=dict)
    disk_file: str | None = None


@dataclass(frozen=True)
class MeasurementContext:
    """What a workload measures with: the instance, the client, the marks of the instance's start, and its limits.

    `drop_caches` writes back and drops the file caches of the instance and of all machines that it runs on.
    `read_disk_bytes` returns what the disks of the machine under test have moved so far. `cold_read_bytes` is what the
    disks of the machine under test have read during a cold start; None for a warm one. A command that drives the server
    has `timeout_margin_seconds` beyond the time that it should take. `instance_starter` is for workloads of one round,
    whose instance is the only one alive; None for others. `start_command` is what runs a command in an image that
    others have built, with that image's settings: its user, environment and folder, and its entry point before the
    words. `extra_clients` share the load with the client, which they see at `client_address`; a workload that does not
    split its load has none.
    """

    instance: Instance
    client: Host
    timeline: tuple[Mark, ...]
    limits: LimitsCheck | None = None
    drop_caches: Callable[[], None] = lambda: None
    read_disk_bytes: Callable[[], DiskBytes] = lambda: DiskBytes(0, 0)
    cold_read_bytes: int | None = None
    timeout_margin_seconds: float = 30.0
    instance_starter: InstanceStarter | None = None
    start_command: tuple[str, ...] = ()
    extra_clients: tuple[Host, ...] = ()
    client_address: str = ""

    @property
    def clients(self) -> tuple[Host, ...]:
        """All clients, in the order of the suite."""
        return (self.client, *self.extra_clients)

    def require_inside(self, name: str) -> Host:
        """Return the instance's inside, where a program of this name is to run; raises TrialFailed without one."""
        if self.instance.inside is None:
            raise TrialFailed(f"{self.instance.name}: {name} runs inside", f"leave this stack out of {name}")
        return self.instance.inside


@dataclass(frozen=True)
class ExtraInstance:
    """A further instance of a trial's stack, whose server answers: what to measure it with, and what it has in swap."""

    setup: MeasurementContext
    swapped_bytes: Callable[[], int]


class InstanceStarter(Protocol):
    """Starts further instances of a trial's stack, beside the trial's own."""

    @property
    def memory_limit_bytes(self) -> int:
        """The memory limit of the trial's own instance."""

    def start_instance(
        self, workload: Workload, limit_bytes: int | None = None
    ) -> AbstractContextManager[ExtraInstance]:
        """Start an instance with the workload's server; take it away after the block.

        It has the limits of the trial's own instance, or another one of memory. An instance that does not answer soon
        raises TimedOut, one that a cluster has no room for NoRoom. A TrialFailed of the start or of the block comes out
        as OutOfMemory where a kernel has ended a process of the instance for lack of memory.
        """

    def measure_footprint(self) -> Footprint:
        """Return what the trial's own and all further instances that are alive cost their host together."""

    def spare_memory_share(self) -> float:
        """Return the share of the host's memory that is left when another instance uses all of its limit."""


@dataclass(frozen=True)
class Sidecar:
    """A service of an application that is not under test, and runs on the client's side, the same for all stacks.

    All services of the application find it by its `name`. `memory_bytes` limits what runs from its image.
    """

    name: str
    image: ImageSpec
    service: Service
    memory_bytes: int = 1 << 30

    @property
    def program(self) -> tuple[str, ...]:
        """The program that is started first, alone; empty where only the image knows."""
        return self.image.find_program(self.service.argv)


class Workload(ABC):
    """Runs a program or a load, and reads its output. Plug-ins inherit from it; their settings are dataclass fields.

    `runs_inside`: a program or server of its own runs in the instance. Without it, it can measure every unikernel.
    `usual_port` is where its server listens in an image of the user's, who may give another; 0 if that is `port`.
    `has_large_packages`: only a suite that names it has its packages in the images, not `tare shell` without one. In a
    block, each point is measured in `rounds` turns, between those of the other stacks. With one round, stacks are
    measured one after the other. `is_adaptive`: it chooses its points while it measures, so that turns of several
    stacks are no rounds; `parse` reads all outputs of a trial. `has_user_server`: its server is the user's, which an
    image that others have built starts with its own settings. `has_unknown_paths`: its program is the user's, so that
    nobody knows its `paths` before it has run; tare then looks for what it has written.

    What does not depend on its settings may be a class attribute in place of a property, such as `metrics`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    runs_inside: ClassVar[bool] = True
    usual_port: ClassVar[int] = 0
    has_large_packages: ClassVar[bool] = False
    is_adaptive: ClassVar[bool] = False
    has_user_server: ClassVar[bool] = False
    has_unknown_paths: ClassVar[bool] = False

    @property
    @abstractmethod
    def metrics(self) -> Sequence[Metric]:
        """Its metrics."""

    @property
    def all_metrics(self) -> Sequence[Metric]:
        """Every metric that it has values of: where `metrics` is a setting, there may be others beside the user's."""
        return self.metrics

    @property
    def sweep(self) -> Sweep | None:
        """What it varies within a trial; None if nothing."""
        return None

    @property
    def packages(self) -> Sequence[str]:
        """The Debian packages of what runs in the instance."""
        return ()

    @property
    def client_packages(self) -> Sequence[str]:
        """The Debian packages of its load."""
        return ()

    @property
    def client_files(self) -> tuple[tuple[str, str], ...]:
        """The files of its load: pairs of an absolute path on the client, and one of this machine."""
        return ()

    @property
    def image(self) -> ImageSpec | None:
        """The image that it brings, in place of the suite's; None for that."""
        return None

    def adapt_to_image(self, image: Image) -> Self:  # noqa: ARG002 - most have no server of the user's
        """Return it as it runs in the image that is to be measured, which may set the port of its server.

        Raises TareError where none is set.
        """
        return self

    def adapt_to_image_spec(self, image: ImageSpec) -> Self:  # noqa: ARG002 - likewise
        """Return it with what an image that is not there yet decides about its server; see `adapt_to_image`."""
        return self

    def find_image_faults(self, image: ImageSpec) -> Mapping[str, Fault]:  # noqa: ARG002 - likewise
        """Return what is wrong with its settings in the image that a suite asks for, by setting."""
        return {}

    def with_command(self, command: tuple[str, ...]) -> Self | None:  # noqa: ARG002 - most run none of the user's
        """Return it with another command of the user's in the instance; None where the user gives it no command."""
        return None

    @property
    def hostname(self) -> str:
        """The name by which the services of its application find its server; empty without others."""
        return ""

    @property
    def sidecars(self) -> tuple[Sidecar, ...]:
        """The services that run beside its server on the client's side, in the order of their start."""
        return ()

    @property
    def programs(self) -> Sequence[str]:
        """The programs that its user wants run in the instance: nothing is started unless the image has them."""
        return ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The files and folders that it uses in the instance while it measures."""
        return ()

    @property
    def volume_bytes(self) -> int:
        """How many bytes it needs on a data volume at `VOLUME`; 0 if it needs none."""
        return 0

    @property
    def port(self) -> int | None:
        """The TCP port of its server; None without one."""
        return None

    @property
    def datagrams(self) -> bool:
        """Whether its server takes UDP on its port, too."""
        return False

    @property
    def starts_cold(self) -> bool:
        """Whether the file caches of the machine under test are dropped before the instance is started."""
        return False

    @property
    def service_name(self) -> str:
        """The name under which an image of the user's, or a unikernel, serves it: that of another with its server."""
        return self.name

    @property
    def rounds(self) -> int:
        """The number of turns into which the measurement of a point is divided."""
        return 1

    @property
    def runs_exclusively(self) -> bool:
        """Whether stacks are measured one after the other, each alone on the machine."""
        return self.rounds == 1

    @property
    def disk_bytes(self) -> int:
        """The bytes that it writes in the instance at most: the image's disk has room for them."""
        return 0

    @property
    def is_closed_loop(self) -> bool:
        """Whether its clients ask again as soon as they have an answer, so that some CPU is busy unless one waits."""
        return False

    @property
    def can_split_load(self) -> bool:
        """Whether its load can be divided among several clients."""
        return False

    @property
    def duration_setting(self) -> str:
        """The setting that a bound of time lowers; the workload may be without it."""
        return "duration"

    def fit_to_limits(self, limits: LimitsSpec) -> Mapping[str, object]:  # noqa: ARG002 - most fit into any
        """Return the settings, by name, that an instance with these limits has room for, in place of others.

        Raises ValueError with the reason if there are none.
        """
        return {}

    def external_effects(self, instances: str) -> Sequence[str]:  # noqa: ARG002 - most start nothing of the user's
        """List what its settings, which may be untrusted, start, for `tare plan`; `instances` says in which."""
        return ()

    def user_file_paths(self) -> Sequence[str]:
        """Return the paths of the user's files and folders that its settings name, each once."""
        return ()

    def service(self, listen: str) -> Service | None:  # noqa: ARG002 - most have none
        """Return the server that tare runs in the instance, if any. It must listen on the address `listen`."""
        return None

    @abstractmethod
    def measure(self, setup: MeasurementContext) -> Iterable[RawOutput]:
        """Run the load, or the program inside; yield each command's output at once.

        A yield ends the turn: the other stacks have theirs before the next output is asked for. The n-th output with
        the same label is of the n-th round; `warm_up` marks outputs without a value. A failed trial keeps what was
        yielded before the failure.
        """

    @abstractmethod
    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Read one round's values of exactly these metrics; raises TrialFailed otherwise. Pure."""

    @abstractmethod
    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, for the plan and the progress display."""
