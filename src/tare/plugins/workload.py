"""Contract of workloads, and the context in which they measure an instance.

A host runs commands. The inside of an instance is a host, too. A workload only sees hosts: it does not know which
technology runs it. The contract of technologies is in `plugins/technology.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from tare.hosts.host import Host
from tare.model.errors import Fault, TrialFailed, Unavailable
from tare.model.image import Image, ImageSpec
from tare.model.lifecycle import Burst
from tare.model.machine import DiskBytes
from tare.model.sidecar import Sidecar
from tare.model.trial import Caution, Footprint, LimitsCheck, LimitsSpec, Mark, Metric, RawOutput, Service, Sweep, Value
from tare.model.turn_length import TurnLength, TurnProbe
from tare.plugins.instance import Instance, OuterHost


@dataclass(frozen=True)
class MeasurementContext:
    """Measurement context: the instance, its clients, and functions that a workload needs to measure it.

    - `timeline`: the moments of the instance's start.
    - `limits`: the requested and observed limits; None if they were not read.
    - `drop_caches`: writes back and drops the file caches of the instance and of all machines that it runs on.
    - `read_disk_bytes`: returns the bytes that the disks of the machine under test have read and written so far.
    - `cold_read_bytes`: bytes that these disks have read during a cold start; None for a warm start.
    - `timeout_margin_seconds`: the grace period of a load command, added to its expected duration.
    - `instance_starter`: starts more instances of the stack; None unless the workload's instance is the only one alive.
    - `start_command`: a command prefix for user-supplied images that applies the image's user, environment, working
      directory and entry point; () for tare's images.
    - `extra_clients`: hosts that share the load with `client`. Workloads that cannot split their load get none.
    - `client_address`: the address of `client` for extra clients and for instances that a workload starts itself.
    - `outer`: the host that the innermost instance runs on; None in instances that a workload starts itself.
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
    outer: OuterHost | None = None

    @property
    def clients(self) -> tuple[Host, ...]:
        """All clients, in the order of the suite."""
        return (self.client, *self.extra_clients)

    def require_inside(self, name: str) -> Host:
        """Return the instance's inside; raises TrialFailed, with the `name` of the program, if there is none."""
        if self.instance.inside is None:
            raise TrialFailed(f"{self.instance.name}: {name} runs inside", f"leave this stack out of {name}")
        return self.instance.inside

    def require_starter(self, name: str) -> InstanceStarter:
        """Return the starter of extra instances; raises TrialFailed, with the workload's `name`, if there is none."""
        if self.instance_starter is None:
            raise TrialFailed(f"{name} starts extra instances", "this is a bug: it must have a single round")
        return self.instance_starter


@dataclass(frozen=True)
class ExtraInstance:
    """Additional instance of a trial's stack, whose server is ready.

    `swapped_bytes` returns the bytes of its memory that are in swap.
    """

    setup: MeasurementContext
    swapped_bytes: Callable[[], int]


@dataclass(frozen=True)
class Snapshot:
    """Snapshot of an instance with its server, in a folder on the host.

    Both functions are context managers that start an instance at `address`, and yield it when it responds; only one
    instance is alive at a time. `restore` starts it from the snapshot, without an inside, `start_cold` from its image.
    """

    address: str
    disk_bytes: int
    restore: Callable[[], AbstractContextManager[ExtraInstance]]
    start_cold: Callable[[], AbstractContextManager[ExtraInstance]]


class InstanceStarter(Protocol):
    """Starts additional instances of a trial's stack, next to the trial's first instance."""

    @property
    def memory_limit_bytes(self) -> int:
        """The memory limit of the trial's first instance."""

    def start_instance(
        self, workload: Workload, limit_bytes: int | None = None
    ) -> AbstractContextManager[ExtraInstance]:
        """Context manager: start an instance with the workload's server, and remove it after the block.

        The instance has the limits of the trial's first one, but for the memory limit if `limit_bytes` is given.
        Raises TimedOut if it is not ready in time, and Unschedulable if a cluster has no room for it. A TrialFailed of
        the start or of the block becomes OutOfMemory if a kernel has killed a process of the instance for lack of
        memory.
        """

    def start_neighbor(self, workload: Workload) -> AbstractContextManager[ExtraInstance]:
        """Context manager: start an instance like `start_instance`, but on the client's CPUs.

        Raises Unavailable if the machine has no CPUs for it.
        """

    def start_burst(self, count: int, stagger_seconds: float) -> Burst:
        """Request `count` instances without a server, `stagger_seconds` apart; remove them when all have answered."""

    def measure_stop(self) -> float:
        """Start an instance, stop it, and return the seconds until nothing of it is left; raises TrialFailed."""

    def take_snapshot(
        self,
        workload: Workload,  # noqa: ARG002 - for those that take snapshots
        warm_up: Callable[[ExtraInstance], None],  # noqa: ARG002
    ) -> AbstractContextManager[Snapshot]:
        """Context manager: start an instance, warm it up, and take a snapshot, which is removed after the block.

        The instance ends with its snapshot. Raises Unavailable if the stack has no snapshots.
        """
        raise Unavailable("this starter of instances takes no snapshots", "leave the workload out")

    def measure_footprint(self) -> Footprint:
        """Return the sum of the footprints of the trial's first and all additional instances that are alive."""

    def spare_memory_share(self) -> float:
        """Return the share of the host's memory, 0 to 1, that is left if one more instance uses all of its limit."""


class Workload(ABC):
    """Workload: runs a program or a load, and parses its output.

    Plug-ins inherit from it; their settings are their dataclass fields. A class attribute may replace any property
    whose value does not depend on the settings, such as `metrics`.

    - `leaves_instance_fresh`: it measures the start of an instance, which other workloads can then use.
    - `runs_inside`: the workload runs a program or server in the instance. If not, it can measure every unikernel.
    - `usual_port`: the default port of its server in a user-supplied image; 0 if it equals `port`.
    - `has_large_packages`: images contain its packages only if the suite names it, and not in `tare shell` by default.
    - `is_adaptive`: it chooses its points while it measures. The turns of several stacks are then no rounds, and
      `parse` reads all outputs of a trial together.
    - `needs_snapshots`: it restores instances from snapshots.
    - `has_user_server`: its server is user-supplied; a user-supplied image starts it with the image's settings.
    - `needs_other_user`: its server changes from root to another user, which some sandboxes do not have.
    - `has_unknown_paths`: its program is user-supplied, so that `paths` is not known in advance. tare then searches for
      the files that the program has written.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    leaves_instance_fresh: ClassVar[bool] = False
    runs_inside: ClassVar[bool] = True
    usual_port: ClassVar[int] = 0
    has_large_packages: ClassVar[bool] = False
    is_adaptive: ClassVar[bool] = False
    needs_snapshots: ClassVar[bool] = False
    has_user_server: ClassVar[bool] = False
    needs_other_user: ClassVar[bool] = False
    has_unknown_paths: ClassVar[bool] = False

    @property
    @abstractmethod
    def metrics(self) -> Sequence[Metric]:
        """The metrics of its results."""

    @property
    def all_metrics(self) -> Sequence[Metric]:
        """All metrics that it has values of, including those that the user did not select in a setting `metrics`."""
        return self.metrics

    @property
    def sweep(self) -> Sweep | None:
        """The parameter that it varies within a trial; None if there is none."""
        return None

    @property
    def packages(self) -> Sequence[str]:
        """The Debian packages that it needs in the instance."""
        return ()

    @property
    def client_packages(self) -> Sequence[str]:
        """The Debian packages that its load needs on the client."""
        return ()

    @property
    def client_files(self) -> tuple[tuple[str, str], ...]:
        """The files of its load, as pairs of an absolute path on the client and a path on this machine."""
        return ()

    @property
    def image(self) -> ImageSpec | None:
        """The image that it needs instead of the suite's; None if it runs in the suite's."""
        return None

    def adapt_to_image(self, image: Image) -> Self:  # noqa: ARG002 - most have no user-supplied server
        """Return a copy whose server has the settings of the image, such as its port.

        Raises TareError if neither the image nor the workload's settings have a required one.
        """
        return self

    def adapt_to_image_spec(self, image: ImageSpec) -> Self:  # noqa: ARG002 - likewise
        """Return a copy like that of `adapt_to_image`, for an image that is not built or pulled yet."""
        return self

    def find_image_faults(self, image: ImageSpec) -> Mapping[str, Fault]:  # noqa: ARG002 - likewise
        """Return the faults of its settings together with the image of a suite, by setting; empty if none."""
        return {}

    def with_command(self, command: tuple[str, ...]) -> Self | None:  # noqa: ARG002 - most run no command of the user
        """Return a copy that runs another command in the instance; None if it runs no command of the user."""
        return None

    @property
    def hostname(self) -> str:
        """The name by which its server and the other services of its application resolve it; "" without a name."""
        return ""

    @property
    def sidecars(self) -> tuple[Sidecar, ...]:
        """The sidecar services of its application, in the order of their start, the followers last."""
        return ()

    @property
    def programs(self) -> Sequence[str]:
        """The user's programs that it runs in the instance; a run does not start unless the image has them."""
        return ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The files and folders that it uses in the instance while it measures."""
        return ()

    @property
    def volume_bytes(self) -> int:
        """The bytes that it needs on a data volume at `VOLUME`; 0 if it needs no volume."""
        return 0

    @property
    def port(self) -> int | None:
        """The TCP port of its server; None without a server."""
        return None

    @property
    def datagrams(self) -> bool:
        """Whether its server receives UDP on its port, too."""
        return False

    @property
    def starts_cold(self) -> bool:
        """Whether tare drops the file caches of the machine under test before it starts the instance."""
        return False

    @property
    def service_name(self) -> str:
        """The `service` by which stacks with a built-in server declare support: workloads with one server share it."""
        return self.name

    @property
    def rounds(self) -> int:
        """The number of turns into which the measurement of a point is divided.

        In a block, the turns of the stacks alternate, so that slow changes of the machine affect all stacks equally.
        """
        return 1

    @property
    def turn_lengths(self) -> Sequence[TurnLength]:
        """The lengths among which a run chooses that of its turns; () if their length is fixed."""
        return ()

    @property
    def turn_length(self) -> TurnLength | None:
        """The length of its turns, if they are those of a resident program."""
        return None

    def with_turn_length(self, length: TurnLength) -> Self:  # noqa: ARG002 - most have a fixed length
        """Return a copy whose turns have this length."""
        return self

    def probe_turns(self, setup: MeasurementContext, lengths: Iterable[TurnLength]) -> Iterable[TurnProbe]:  # noqa: ARG002
        """Run a turn of each of these lengths at one point of the workload, and yield what its program reported.

        As in `measure`, each yield ends a turn. Lengths are among `turn_lengths`.
        """
        return ()

    @property
    def instances_at_once(self) -> int:
        """The most instances of a stack that it needs alive at a time; a run refuses more than fit into memory."""
        return 1

    @property
    def runs_exclusively(self) -> bool:
        """Whether only one stack is alive on the machine at a time; by default with one round."""
        return self.rounds == 1

    @property
    def shares_instance(self) -> bool:
        """Whether it can be measured in an instance in which other workloads were measured before.

        By default, a workload needs an instance for itself if it runs exclusively, starts cold, writes to disks, or
        runs the user's programs, whose traces are unknown.
        """
        if self.leaves_instance_fresh:
            return not self.starts_cold
        alone = self.runs_exclusively or self.starts_cold or self.has_user_server or self.has_unknown_paths
        return not (alone or self.disk_bytes or self.volume_bytes or self.sidecars or self.image)

    @property
    def disk_bytes(self) -> int:
        """The most bytes that it writes in the instance; the image's disk gets this much free space."""
        return 0

    @property
    def is_closed_loop(self) -> bool:
        """Whether its clients send the next request as soon as a response arrives.

        A closed loop keeps a CPU of the client or the server busy, unless something else makes it wait.
        """
        return False

    @property
    def can_split_load(self) -> bool:
        """Whether its load can be divided among several clients."""
        return False

    @property
    def duration_setting(self) -> str:
        """The setting that tare lowers to meet a time limit; a workload need not have this setting."""
        return "duration"

    def fit_to_limits(self, limits: LimitsSpec) -> Mapping[str, object]:  # noqa: ARG002 - most fit into any
        """Return the settings to replace so that the workload fits into an instance with these limits, by name.

        Raises ValueError with the reason if it cannot fit.
        """
        return {}

    def external_effects(self, instances: str) -> Sequence[str]:  # noqa: ARG002 - most start no user's program
        """Return the programs that its settings, which may be untrusted, start, as text for `tare plan`.

        `instances` is the text that names the instances.
        """
        return ()

    def user_file_paths(self) -> Sequence[str]:
        """Return the paths of the user's files and folders that its settings name, without duplicates."""
        return ()

    def service(self, listen: str) -> Service | None:  # noqa: ARG002 - most have none
        """Return the server that tare starts in the instance, listening on the address `listen`; None without one."""
        return None

    @abstractmethod
    def measure(self, setup: MeasurementContext) -> Iterable[RawOutput]:
        """Run the load or the program, and yield the output of each command as soon as it is complete.

        Each yield ends a turn: tare measures a turn of each other stack before it requests the next output. The n-th
        output with a label belongs to the n-th round. `warm_up` marks outputs without a value. If the trial fails, the
        outputs yielded before the failure are stored.
        """

    @abstractmethod
    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return one round's values, exactly those of the declared metrics; raises TrialFailed if the output lacks one.

        Pure: tare may parse the same output again.
        """

    def find_cautions(self, raw: Sequence[RawOutput]) -> Sequence[Caution]:  # noqa: ARG002 - most have none
        """Return cautions that the outputs of a successful trial show."""
        return ()

    @abstractmethod
    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, for the plan and the progress display."""
