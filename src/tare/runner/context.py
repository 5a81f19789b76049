"""Run context: resources that all trials of a run share, the specification of an instance, and CPU placement."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tare.hosts.exec import ExecHost
from tare.hosts.facts import read_cores
from tare.hosts.host import Host, HostCache
from tare.hosts.ledger import EphemeralLedger, Ledger
from tare.hosts.network import Network
from tare.hosts.ssh import SshHost
from tare.images.image import with_remote_paths
from tare.model.errors import Unavailable
from tare.model.image import Image, ImageSpec
from tare.model.machine import Hosts, SshTarget
from tare.model.trial import Caution, Limits, LimitsSpec
from tare.plugins.instance import Instance
from tare.plugins.technology import READINESS_PORT, Technology
from tare.plugins.workload import Workload
from tare.suites.tables import TelemetryTable
from tare.telemetry.sampler import Sampler, SamplingBackend, backend_for

_INSTANCES_FOLDER = Path("/var/lib/tare/instances")  # on a host that is not this machine
# An outer machine gets these in addition to the limits of the layer in it: for its kernel, its engine and their caches.
# A machine inside it needs the memory once more, for its monitor.
_OUTER_BYTES = 1 << 30
_OUTER_FILES = 1 << 16


@dataclass(frozen=True)
class CpuPlacement:
    """CPU placement: CPU numbers of the instance and of the client, with cautions. tare runs on the client's CPUs.

    Sidecar services also run on the client's CPUs. If the client is on another machine, they run on
    `server_sidecar_cpus` of the instances' machine.
    """

    server: tuple[int, ...]
    client: tuple[int, ...]
    cautions: tuple[Caution, ...] = ()
    server_sidecar_cpus: tuple[int, ...] = ()

    @property
    def sidecar_cpus(self) -> tuple[int, ...]:
        """The CPUs of sidecar services, on the machine of the instances."""
        return self.server_sidecar_cpus or self.client


def choose_cpus(cores: Sequence[Sequence[int]], count: int) -> CpuPlacement:
    """Give the instance `count` CPUs, of different cores where possible, and the client all CPUs of the other cores.

    `cores` are the CPUs that tare may use, grouped by physical core. The instance gets the last ones because interrupts
    and kernel threads prefer the first.
    """
    first_threads = [core[0] for core in cores]
    siblings_of_first = [cpu for core in cores for cpu in core[1:]]
    all_cpus = [*first_threads, *siblings_of_first]
    server = tuple(sorted(first_threads[-count:] if count <= len(first_threads) else all_cpus[-count:]))
    used = [core for core in cores if set(core) & set(server)]
    client = tuple(sorted(cpu for core in cores if core not in used for cpu in core))
    if client and len(server) == count:
        return CpuPlacement(server, client)
    cautions = []
    if len(server) < count:
        cautions.append(Caution("too-few-cpus", f"{count} CPUs were asked for, the machine has {len(server)}"))
    if not client:
        # The second thread of the instance's core still disturbs it less than the same thread would.
        siblings = tuple(sorted(set(all_cpus) - set(server)))
        shared = "share a core" if siblings else "run on the same CPUs"
        cautions.append(Caution("shared-cpus", f"client and instance {shared}: the machine is too small"))
        client = siblings or server
    return CpuPlacement(server, client, tuple(cautions))


def select_cpus(cpus: tuple[int, ...], cores: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    """Return `count` of `cpus`, of different cores where possible."""
    usable_cores = [usable for core in cores if (usable := tuple(cpu for cpu in core if cpu in cpus))]
    return choose_cpus(usable_cores or [(cpu,) for cpu in cpus], count).server


@dataclass(frozen=True)
class RunHosts:
    """Connected machines of a run: the server, on which instances are started, and the clients.

    `placement` has the CPUs of instances and client. On a server that is provisioned for one trial,
    `provisioned_prefix` replaces the run's prefix in all names; it is empty on other servers.
    """

    targets: Hosts
    server: Host
    client: Host
    placement: CpuPlacement
    extra_clients: tuple[Host, ...] = ()
    provisioned_prefix: str = ""

    @property
    def client_is_local(self) -> bool:
        """Whether the client is on the machine of the instances."""
        return self.targets.server == self.targets.client

    @property
    def clients(self) -> tuple[tuple[Host, SshTarget | None], ...]:
        """All clients in the order of the suite, with their SSH targets; None for this machine."""
        extra = zip(self.extra_clients, self.targets.extra_clients, strict=True)
        return ((self.client, self.targets.client), *extra)

    @property
    def server_address(self) -> str:
        """The address at which the client's machine reaches the instances' machine."""
        if self.targets.server is not None and self.targets.server.address:
            return self.targets.server.address
        if isinstance(self.server, SshHost):
            return self.server.machine_address
        assert isinstance(self.client, SshHost)  # noqa: S101 - one of the two is not this machine
        return self.client.controller_address


@dataclass(frozen=True)
class RunImages:
    """Images of a run: `main` is the suite's, `client` that of the loads.

    `outer` is the image of outer machines, which have other layers inside; None if no stack needs it. `by_stack` has
    per-stack images that override `main`, `sidecars` the images of sidecar services.
    """

    main: Image
    client: Image
    outer: Image | None = None
    by_stack: Mapping[str, Image] = field(default_factory=dict)
    sidecars: Mapping[ImageSpec, Image] = field(default_factory=dict)

    def for_stack(self, stack: str) -> Image:
        """Return the image of a stack."""
        return self.by_stack.get(stack, self.main)


@dataclass(frozen=True)
class TelemetryConfig:
    """Telemetry configuration: the folder of the run's files, and the suite's settings."""

    folder: Path
    settings: TelemetryTable = field(default_factory=TelemetryTable)

    def backend_for(self, host: Host) -> SamplingBackend:
        """Return the backend that samples a host, with the suite's sampling interval."""
        return backend_for(host, self.settings.every)


@dataclass(frozen=True)
class RunContext:
    """Context of all instances on one host: the run's hosts, images, limits and telemetry, and the host's network.

    - `ledger` is the undo ledger of the host on which instances start; `images` have their paths there.
    - `live_instances` are all running instances on the host.
    - `extra_clients` share the load with the client; they reach it at `client_address`.
    - `clock_ahead_seconds`: the client's monotonic clock is ahead of this machine's.
    - `provision` opens a context on a machine that a technology provisions; None if the suite names a server.
    """

    hosts: RunHosts
    images: RunImages
    network: Network
    ledger: Ledger
    limits: Limits
    telemetry: TelemetryConfig
    client: Host
    instances_folder: Path
    extra_clients: tuple[Host, ...] = ()
    client_address: str = ""
    clock_ahead_seconds: float = 0.0
    cache: HostCache = field(default_factory=HostCache)
    live_instances: list[Instance] = field(default_factory=list)
    provision: Provision | None = None

    @property
    def host(self) -> Host:
        """The host that instances are started on."""
        return self.ledger.host

    def create_spec(self, *stack: Technology, name: str = "") -> InstanceSpec:
        """Return the specification of an instance; `name` is the stack's, to find its per-stack image."""
        return InstanceSpec(stack, self.images.for_stack(name), self.limits)

    def restrict_limits(self, requested: LimitsSpec) -> Limits:
        """Return the requested limits on CPUs out of those of the run, of different cores where possible."""
        if (len(self.limits.cpus), self.limits.memory_bytes) == (requested.cpus, requested.memory_bytes):
            return self.limits
        cpus = select_cpus(self.limits.cpus, read_cores(self.host.read), requested.cpus)
        return Limits(cpus, requested.memory_bytes, self.limits.open_files)

    def await_machines(self) -> None:
        """Wait until the run's machines over SSH respond; raises Unreachable after 90 s."""
        clients = (self.client, *self.extra_clients)
        for host in (self.host, *(each.outer for each in clients if isinstance(each, ExecHost))):
            if isinstance(host, SshHost) and host.connection:
                host.connection.await_reconnection()
        self.ledger.run_overdue_undos()

    def create_inner_context(self, instance: Instance, spec: InstanceSpec) -> RunContext:
        """Return the context of an instance's inside, for inner layers. Raises Unavailable if there is no inside.

        Its ledger needs no undo commands: whatever tare creates inside vanishes with the instance.
        """
        if instance.inside is None:
            raise Unavailable(f"{instance.name} has no inside", "choose another outer layer")
        instance.inside.run("mkdir", "-p", str(_INSTANCES_FOLDER), timeout=30)
        image, outer, limits = with_remote_paths(spec.image), self.images.outer, spec.limits
        ledger = EphemeralLedger(instance.inside, image.root)
        return replace(
            self,
            images=RunImages(image, self.images.client, with_remote_paths(outer) if outer else None),
            network=self.network.with_slot(spec.slot).create_inner(ledger),
            ledger=ledger,
            limits=Limits(tuple(range(len(limits.cpus))), limits.memory_bytes, limits.open_files),
            instances_folder=_INSTANCES_FOLDER,
            live_instances=[],
            cache=HostCache(),
        )


@dataclass(frozen=True)
class InstanceSpec:
    """Specification of an instance: the technologies of its stack, innermost first, its image and its limits.

    - `slot` differs between instances that run at the same time: names and addresses derive from it.
    - `port` is the TCP port of the service, with `udp` also its UDP port; None without a service. `extra_ports` are
      those of other workloads that share the instance.
    - `volume_bytes` is the size of the innermost instance's data volume; 0 for none.
    - `start_timeout_seconds` limits the start; a technology may have a shorter time-out.
    - `parent_ready_at` is the time at which the parent layer became ready, on this machine's monotonic clock; None for
      the outermost layer.
    - `sampler` is shared by instances that take turns; None gives the trial a private one.
    - `snapshot` is the folder of a snapshot that the instance starts from; "" starts it from its image.
    """

    stack: tuple[Technology, ...]
    image: Image
    limits: Limits
    slot: int = 0
    port: int | None = None
    udp: bool = False
    extra_ports: tuple[int, ...] = ()
    volume_bytes: int = 0
    start_timeout_seconds: float = math.inf
    parent_ready_at: float | None = None
    sampler: Sampler | None = None
    snapshot: str = ""

    @property
    def technology(self) -> Technology:
        """The outermost technology, which is started next."""
        return self.stack[-1]

    @property
    def shares_kernel(self) -> bool:
        """Whether the instance runs on the kernel of the machine under test, which then counts its CPU time itself.

        The kernel of a guest may count time that the machine gave to others.
        """
        return all(
            each.isolation.level in ("none", "shared kernel")
            and each.family in ("bare metal", "container", "sandbox")  # User Mode Linux is a process with a kernel
            and not each.provisions_machine
            for each in self.stack
        )

    def with_workload(self, workload: Workload) -> InstanceSpec:
        """Return the specification with the port and the data volume that a workload needs."""
        udp = self.udp or workload.datagrams
        return replace(self, port=workload.port, udp=udp, volume_bytes=workload.volume_bytes)

    def outer_spec(self, image: Image) -> InstanceSpec:
        """Return the specification of the outer machine, booted from `image`, with limits that leave room for it."""
        return replace(self, image=image, limits=outer_limits(self.limits, len(self.stack) - 1), volume_bytes=0)

    def inner_spec(self, context: RunContext, parent_ready_at: float | None = None) -> InstanceSpec:
        """Return the specification of the inner layers; `context` is that of the outer machine's inside."""
        return replace(
            self,
            stack=self.stack[:-1],
            image=context.images.main,
            limits=context.limits,
            parent_ready_at=parent_ready_at,
        )

    def outer_image(self, base_image: Image | None) -> Image:
        """Return the outer machine's image with the disk that `layers.prepare_disk` makes for this stack."""
        if base_image is None:
            raise Unavailable("there is no image for the outer machine", "report this bug of tare")
        names = "/".join(technology.name for technology in self.stack)
        key = hashlib.sha256(f"{base_image.digest} {self.image.digest} {names}".encode()).hexdigest()
        return replace(base_image, disk=base_image.disk.parents[1] / f"nested-{key[:24]}.qcow2")


Provision = Callable[[SshTarget, InstanceSpec], AbstractContextManager[RunContext]]


def outer_limits(limits: Limits, layers: int) -> Limits:
    """Return the limits of an outer machine with `layers` layers inside; `limits` are those of the innermost layer."""
    more = (2 * layers - 1) * _OUTER_BYTES
    return Limits(limits.cpus, limits.memory_bytes + more, max(limits.open_files, _OUTER_FILES))


def outer_port(context: RunContext) -> int:
    """Return the port of an outer machine's readiness probe.

    It differs from layer to layer: an inner instance may publish the same port at the outer machine's address.
    """
    return READINESS_PORT + 1 + context.network.level


def assign_slots(stacks: Mapping[str, Sequence[Technology]]) -> dict[str, int]:
    """Assign a different slot to each stack of a block, in the stacks' order.

    Stacks with an address built into an image come first, by name: their slot must be the same in every block.
    """
    fixed = sorted(name for name, stack in stacks.items() if any(layer.has_fixed_address for layer in stack))
    return {name: slot for slot, name in enumerate(dict.fromkeys((*fixed, *stacks)))}


def create_instance_name(network: Network) -> str:
    """Return a name from the slot, which no other live instance has, and the time. No name is a prefix of another."""
    return f"{network.prefix}-{network.slot:02}-{time.monotonic_ns() // 1_000_000:x}"
