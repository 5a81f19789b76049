"""Where instances are started, and what they share: a host with its ledger, images, limits and network."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tare.contracts.technologies import ANSWER_PORT, Technology
from tare.contracts.workloads import Instance
from tare.errors import Unavailable
from tare.hosts.cpus import Placement, fewer_cpus
from tare.hosts.exec import ExecHost
from tare.hosts.facts import read_cores
from tare.hosts.host import Host
from tare.hosts.host_cache import HostCache
from tare.hosts.ledger import DoomedLedger, Ledger
from tare.hosts.network import Network
from tare.hosts.ssh import SshHost
from tare.images.image import located
from tare.model.machines import Machine
from tare.model.trials import Image, ImageWanted, Limits, LimitsWanted
from tare.runner.inside_check import InsideCheck
from tare.telemetry.sampler import PERIOD_SECONDS, Sampler

_INSTANCES = Path("/var/lib/tare/instances")  # on a host that is not this machine
# What a machine needs for its kernel, its engine and their caches, beyond the limits of the layer in it. A machine in
# it needs the same again for its monitor.
_AROUND_BYTES = 1 << 30
_AROUND_FILES = 1 << 16


@dataclass(frozen=True)
class RunResources:
    """What all instances of a run share, on whichever host they are.

    `placement` has the CPUs of instances and client, `telemetry` is the folder of samples, `sample_seconds` the time
    from one sample to the next. The client's clock is ahead of ours by `clock_ahead_seconds`. `beside` has the images
    of services beside those under test, `own` those of stacks with an image of their own, by the stacks' names. `lend`
    makes a testbed of a machine that a technology lends. `inside` has the conditions that each stack gives a process.
    """

    placement: Placement
    telemetry: Path
    sample_seconds: float = PERIOD_SECONDS
    clock_ahead_seconds: float = 0.0
    beside: Mapping[ImageWanted, Image] = field(default_factory=dict)
    own: Mapping[str, Image] = field(default_factory=dict)
    lend: Lend | None = None
    inside: InsideCheck | None = None


@dataclass(frozen=True)
class StartOptions:
    """What starting an instance needs to know.

    With `datagrams`, the service takes UDP on its port, too. The innermost instance gets a data volume on which
    `volume_bytes` fit; 0 for none. The layer around answered at `since`, on our clock. `before_request` is called right
    before the outermost layer's start. An instance of a kind of which one has started before has `most_seconds`.
    `sampler` is that of the instances that are alive together; without it, each has its own.
    """

    datagrams: bool = False
    volume_bytes: int = 0
    since: float | None = None
    before_request: Callable[[], None] = lambda: None
    most_seconds: float = math.inf
    sampler: Sampler | None = None


@dataclass(frozen=True)
class Testbed:
    """Where an instance is started, and with what: a host with its ledger, and its image, limits and network.

    `outer` is the image of machines that are hosts. `alive` are the instances on the same host, in whichever slot.
    `further_clients` share the load with the client, which they see at `client_address`.
    """

    client: Host
    image: Image
    network: Network
    ledger: Ledger
    limits: Limits
    instances: Path
    run: RunResources
    start: StartOptions = field(default_factory=StartOptions)
    outer: Image | None = None
    cache: HostCache = field(default_factory=HostCache)
    alive: list[Instance] = field(default_factory=list)
    further_clients: tuple[Host, ...] = ()
    client_address: str = ""

    def of(self, stack: str) -> Testbed:
        """Return the same testbed with the image of a stack."""
        return replace(self, image=self.run.own[stack]) if stack in self.run.own else self

    @property
    def host(self) -> Host:
        """The host that instances are started on."""
        return self.ledger.host

    def within(self, wanted: LimitsWanted) -> Testbed:
        """Return the same testbed with limits that lie within its own, on CPUs of different cores where it can."""
        if (len(self.limits.cpus), self.limits.memory_bytes) == (wanted.cpus, wanted.memory_bytes):
            return self
        cpus = fewer_cpus(self.limits.cpus, read_cores(self.host.read), wanted.cpus)
        return replace(self, limits=replace(self.limits, cpus=cpus, memory_bytes=wanted.memory_bytes))

    def slot(self, number: int) -> Testbed:
        """Return the same testbed for an instance that is alive together with others, each in a slot of its own."""
        return replace(self, network=self.network.at(number))

    def await_machines(self) -> None:
        """Wait until the run's machines over SSH answer; raises Unreachable after 90 s."""
        clients = (self.client, *self.further_clients)
        for host in (self.host, *(each.outer for each in clients if isinstance(each, ExecHost))):
            if isinstance(host, SshHost) and host.master:
                host.master.await_back()
        self.ledger.catch_up()

    def inside(self, instance: Instance, since: float | None = None) -> Testbed:
        """Return an instance's inside as a testbed; all that is made there vanishes with the instance.

        The instance answered at `since`, on our clock.
        """
        if instance.inside is None:
            raise Unavailable(f"{instance.name} has no inside", "choose another outer layer")
        instance.inside.run("mkdir", "-p", str(_INSTANCES), timeout=30)
        image = located(self.image)
        ledger = DoomedLedger(instance.inside, image.root)
        return replace(
            self,
            image=image,
            outer=located(self.outer) if self.outer else None,
            network=self.network.within(ledger),
            ledger=ledger,
            limits=replace(self.limits, cpus=tuple(range(len(self.limits.cpus)))),
            instances=_INSTANCES,
            alive=[],
            start=replace(self.start, since=since, before_request=lambda: None),
            cache=HostCache(),
        )

    def machine_image(self, stack: Sequence[Technology]) -> Image:
        """Return the image of the machine around a stack's inner layers, with the disk that nesting.py prepares."""
        if self.outer is None:
            raise Unavailable("there is no image for the machine around the inner layers", "report this bug of tare")
        names = "/".join(technology.name for technology in stack)
        key = hashlib.sha256(f"{self.outer.digest} {self.image.digest} {names}".encode()).hexdigest()
        return replace(self.outer, disk=self.outer.disk.parents[1] / f"nested-{key[:24]}.qcow2")

    @property
    def machine_ports(self) -> tuple[int]:
        """The port on which a machine around others answers; an instance in it may publish its own there."""
        return (ANSWER_PORT + 1 + self.network.level,)


Lend = Callable[[Machine, Sequence[Technology]], AbstractContextManager[Testbed]]


def outer_limits(limits: Limits, layers: int) -> Limits:
    """Return the limits of a machine around this number of layers; `limits` are those of the innermost."""
    more = (2 * layers - 1) * _AROUND_BYTES
    return Limits(limits.cpus, limits.memory_bytes + more, max(limits.open_files, _AROUND_FILES))


def assign_slots(stacks: Mapping[str, Sequence[Technology]]) -> dict[str, int]:
    """Return each of the stacks that are alive together a slot of its own, in their order.

    Stacks whose address is built into an image always have the same: they come first, by their names.
    """
    fixed = sorted(name for name, stack in stacks.items() if any(layer.built_in_address for layer in stack))
    return {name: slot for slot, name in enumerate(dict.fromkeys((*fixed, *stacks)))}


def new_name(network: Network) -> str:
    """Name an instance by its slot, in which nothing else is alive, and by the time. No name begins another."""
    return f"{network.prefix}-{network.slot:02}-{time.monotonic_ns() // 1_000_000:x}"
