"""What all trials of a run share, what an instance is started with, and the CPUs of instances and client."""

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
from tare.plugins.technology import READINESS_PORT, Technology
from tare.plugins.workload import Instance, Workload
from tare.suites.tables import TelemetryTable
from tare.telemetry.sampler import Sampler, SamplingBackend, backend_for

_INSTANCES_FOLDER = Path("/var/lib/tare/instances")  # on a host that is not this machine
# What a machine needs for its kernel, its engine and their caches, beyond the limits of the layer in it. A machine in
# it needs the same again for its monitor.
_OUTER_BYTES = 1 << 30
_OUTER_FILES = 1 << 16


@dataclass(frozen=True)
class CpuPlacement:
    """CPU numbers of the instance and of the client, with cautions. tare itself runs on the client's CPUs.

    Services beside the one under test have the client's or, where that is on another machine, those that the machine of
    the instances `server_sidecar_cpus` them.
    """

    server: tuple[int, ...]
    client: tuple[int, ...]
    cautions: tuple[Caution, ...] = ()
    server_sidecar_cpus: tuple[int, ...] = ()

    @property
    def sidecar_cpus(self) -> tuple[int, ...]:
        """The CPUs of services beside the one under test."""
        return self.server_sidecar_cpus or self.client


def choose_cpus(cores: Sequence[Sequence[int]], count: int) -> CpuPlacement:
    """Return the instance the last `requested` CPUs, of different cores where possible, and the client the other cores.

    `cores` are the CPUs that tare may use, grouped by physical core. The instance gets the last ones because interrupts
    and kernel threads prefer the first.
    """
    one_of_each = [core[0] for core in cores]
    others = [cpu for core in cores for cpu in core[1:]]
    every = [*one_of_each, *others]
    server = tuple(sorted(one_of_each[-count:] if count <= len(one_of_each) else every[-count:]))
    used = [core for core in cores if set(core) & set(server)]
    client = tuple(sorted(cpu for core in cores if core not in used for cpu in core))
    if client and len(server) == count:
        return CpuPlacement(server, client)
    cautions = []
    if len(server) < count:
        cautions.append(Caution("too-few-cpus", f"{count} CPUs were asked for, the machine has {len(server)}"))
    if not client:
        siblings = tuple(sorted(set(every) - set(server)))
        shared = "share a core" if siblings else "run on the same CPUs"
        cautions.append(Caution("shared-cpus", f"client and instance {shared}: the machine is too small"))
        client = siblings or server
    return CpuPlacement(server, client, tuple(cautions))


def select_cpus(cpus: tuple[int, ...], cores: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    """Return so many of these CPUs, of different cores where possible."""
    among = [core for each in cores if (core := tuple(cpu for cpu in each if cpu in cpus))]
    return choose_cpus(among or [(cpu,) for cpu in cpus], count).server


@dataclass(frozen=True)
class RunHosts:
    """Connected machines of a run: the server, on which instances are started, and the clients.

    `placement` has the CPUs of instances and client there. A server that is provisioned for one trial has a
    `provisioned_prefix`: it replaces the run's prefix of all names there.
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
        """All clients, in the order of the suite, each with how it is reached."""
        extra = zip(self.extra_clients, self.targets.extra_clients, strict=True)
        return ((self.client, self.targets.client), *extra)

    @property
    def server_address(self) -> str:
        """Address of the instances' machine as the client's machine sees it."""
        if self.targets.server is not None and self.targets.server.address:
            return self.targets.server.address
        if isinstance(self.server, SshHost):
            return self.server.machine_address
        assert isinstance(self.client, SshHost)  # noqa: S101 - one of the two is not this machine
        return self.client.controller_address


@dataclass(frozen=True)
class RunImages:
    """Images of a run: `main` is the suite's, `client` that of the loads.

    `base_image` is the image of machines around other layers, None if no stack needs one. `by_stack` has the images of
    stacks that override the main one, `sidecars` those of sidecar services.
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
    """Telemetry of a run: the folder of its files, and the suite's settings."""

    folder: Path
    settings: TelemetryTable = field(default_factory=TelemetryTable)

    def backend_for(self, host: Host) -> SamplingBackend:
        """Return how a host is sampled."""
        return backend_for(host, self.settings.every)


@dataclass(frozen=True)
class RunContext:
    """What all instances on a host share: the run's hosts, images, limits and telemetry, and the host's own network.

    `ledger` is that of the host on which instances are started, and has that host; `images` are in its paths.
    `live_instances` are the instances on it, in whichever slot. `extra_clients` share the load with the client, which
    they see at `client_address`; the client's clock is ahead of ours by `clock_ahead_seconds`. `provision` opens a
    context on a machine that a technology provisions, None where that is not possible.
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
        """Return what an instance of a stack is started with; `name` is the stack's, which may have its own image."""
        return InstanceSpec(stack, self.images.for_stack(name), self.limits)

    def restrict_limits(self, requested: LimitsSpec) -> Limits:
        """Return limits that lie within those of the run, on CPUs of different cores where it can."""
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
        """Return the context of an instance's inside; all that is made there vanishes with the instance."""
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
    """What an instance of a stack is started with, its inner technology first in `stack`.

    No two instances that are alive together have the same `slot`. The service listens on the TCP `port`, with `udp`
    also by UDP. The innermost instance gets a data volume of `volume_bytes`; 0 for none. `parent_ready_at` is when the
    parent layer became ready, on our clock; None for the outermost layer. `start_timeout_seconds` bounds the start;
    technologies may have less. `sampler` is that of the instances that are alive together; without it, each has its
    own.
    """

    stack: tuple[Technology, ...]
    image: Image
    limits: Limits
    slot: int = 0
    port: int | None = None
    udp: bool = False
    volume_bytes: int = 0
    start_timeout_seconds: float = math.inf
    parent_ready_at: float | None = None
    sampler: Sampler | None = None

    @property
    def technology(self) -> Technology:
        """The outermost technology, which is started next."""
        return self.stack[-1]

    def with_workload(self, workload: Workload) -> InstanceSpec:
        """Return it with the port and the volume that a workload needs."""
        return replace(self, port=workload.port, udp=workload.datagrams, volume_bytes=workload.volume_bytes)

    def outer_spec(self, image: Image) -> InstanceSpec:
        """Return what the machine around the inner layers is started with, from this image."""
        return replace(self, image=image, limits=outer_limits(self.limits, len(self.stack) - 1), volume_bytes=0)

    def inner_spec(self, context: RunContext, parent_ready_at: float | None = None) -> InstanceSpec:
        """Return what the inner layers are started with in the machine around them, whose inside is `context`."""
        return replace(
            self,
            stack=self.stack[:-1],
            image=context.images.main,
            limits=context.limits,
            parent_ready_at=parent_ready_at,
        )

    def outer_image(self, base_image: Image | None) -> Image:
        """Return the image of the machine around the inner layers, with the disk that `layers.prepare_disk` makes."""
        if base_image is None:
            raise Unavailable("there is no image for the machine around the inner layers", "report this bug of tare")
        names = "/".join(technology.name for technology in self.stack)
        key = hashlib.sha256(f"{base_image.digest} {self.image.digest} {names}".encode()).hexdigest()
        return replace(base_image, disk=base_image.disk.parents[1] / f"nested-{key[:24]}.qcow2")


Provision = Callable[[SshTarget, InstanceSpec], AbstractContextManager[RunContext]]


def outer_limits(limits: Limits, layers: int) -> Limits:
    """Return the limits of a machine around this number of layers; `limits` are those of the innermost."""
    more = (2 * layers - 1) * _OUTER_BYTES
    return Limits(limits.cpus, limits.memory_bytes + more, max(limits.open_files, _OUTER_FILES))


def outer_port(context: RunContext) -> int:
    """Return the port on which a machine around others answers; an instance in it may publish its own there."""
    return READINESS_PORT + 1 + context.network.level


def assign_slots(stacks: Mapping[str, Sequence[Technology]]) -> dict[str, int]:
    """Return each of the stacks that are alive together a slot of its own, in their order.

    Stacks whose address is built into an image always have the same: they come first, by their names.
    """
    fixed = sorted(name for name, stack in stacks.items() if any(layer.has_fixed_address for layer in stack))
    return {name: slot for slot, name in enumerate(dict.fromkeys((*fixed, *stacks)))}


def create_instance_name(network: Network) -> str:
    """Name an instance by its slot, in which nothing else is alive, and by the time. No name begins another."""
    return f"{network.prefix}-{network.slot:02}-{time.monotonic_ns() // 1_000_000:x}"
