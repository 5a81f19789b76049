"""Sidecar services of an application, in plain instances on the client's side of the bridge.

They are the same for all stacks: the image's programs in a chroot, with a control group and a network namespace. They
run on the client's CPUs or, if the client is on another machine, on CPUs of the instances' machine that no instance
uses. `/etc/hosts` of every instance has the names of all services.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from tare.hosts.host import CommandScope
from tare.hosts.network import SLOTS
from tare.loads.application import EVERYWHERE
from tare.model.errors import TrialFailed, Unavailable
from tare.model.image import Image
from tare.model.sidecar import Sidecar
from tare.model.trial import Limits, RawOutput
from tare.plugins import registry
from tare.plugins.instance import Instance
from tare.plugins.technology import HOST_NAME, Technology
from tare.plugins.workload import Workload
from tare.runner.context import InstanceSpec, RunContext
from tare.runner.layers import combine_layers, start_stack
from tare.runner.service import HOST_NETWORK_PATH, ServicePlacement, ServiceProcess, run_service
from tare.runner.trial_log import TrialLog

_HOSTS_FILE = "/etc/hosts"
_LOOPBACK = "127.0.0.1"


@dataclass
class SidecarServices:
    """Sidecar services of a trial, or none. `scope` is that of the loads, which end when a service ends.

    `plain_technology` starts the instances; None for bare metal.
    """

    servers: list[ServiceProcess] = field(default_factory=list)
    scope: CommandScope = field(default_factory=CommandScope)
    plain_technology: Technology | None = None
    _places: dict[str, ServicePlacement] = field(default_factory=dict)
    _ready: set[str] = field(default_factory=set)  # names of the services that have been ready

    def start(self, exits: ExitStack, context: RunContext, workload: Workload, instance: Instance) -> None:
        """Start the sidecar services that start before the service under test; they run until `exits` closes.

        Return when the services that the service under test waits for are ready. `instance` is the instance under test:
        it and the services get each other's names. Raises Unavailable if they cannot reach each other, and TrialFailed
        if a service fails. After a failure, the services keep running until `exits` closes, so that `failure_reason`
        and `final_output` can explain it.
        """
        if workload.sidecars:
            _placement_of(instance)  # before anything starts: raises Unavailable for an instance without a network
        for number, group in enumerate(group_by_instance(workload.sidecars)):
            # Slots from the end: the stacks of a block have the first ones.
            place = exits.enter_context(self._start_group(context, group, SLOTS - 1 - number))
            self._places |= {each.name: place for each in group}
        if workload.hostname and instance.inside is not None:
            _write_host_files(self._places, workload, instance)
        self._start_services(exits, context, [each for each in workload.sidecars if not each.follows_tested])
        tested = workload.service(EVERYWHERE) if workload.sidecars else None
        self._await(context, tested.after if tested else ())

    def start_followers(self, exits: ExitStack, context: RunContext, workload: Workload) -> None:
        """Start the sidecar services that wait for the service under test; return when all services are ready.

        The service under test is ready. Raises TrialFailed if a service fails.
        """
        self._start_services(exits, context, [each for each in workload.sidecars if each.follows_tested])
        self._await(context, None)

    def _start_services(self, exits: ExitStack, context: RunContext, sidecars: Sequence[Sidecar]) -> None:
        """Start services in this order, each when those that it waits for are ready."""
        for each in sidecars:
            self._await(context, each.service.after)
            server = exits.enter_context(run_service(self._places[each.name], each.service, self.scope, each.name))
            self.servers.append(server)

    def _await(self, context: RunContext, names: Sequence[str] | None) -> None:
        """Wait until the started sidecar services of these names are ready; None for all."""
        for server in self.servers:
            name = server.service_name
            if name not in self._ready and (names is None or name in names):
                server.await_ready(context.client)
                self._ready.add(name)

    def failure_reason(self) -> str:
        """Return a text that a service has ended, with its last line of output; empty while all run."""
        return next((why for server in self.servers if (why := server.failure_reason())), "")

    def final_output(self) -> tuple[RawOutput, ...]:
        """Return the output of all services, as raw outputs of a failed trial."""
        return tuple(raw for server in self.servers for raw in server.final_output())

    @contextmanager
    def _start_group(self, context: RunContext, group: Sequence[Sidecar], slot: int) -> Iterator[ServicePlacement]:
        """Context manager: start the plain instance that a group of services shares."""
        image = context.images.sidecars.get(group[0].image)
        if image is None:
            raise TrialFailed(f"there is no image for {group[0].name}", "report this bug of tare")
        plain = self.plain_technology or registry.find("technologies", "native")()
        limits = Limits(context.hosts.placement.sidecar_cpus, group[0].memory_bytes, context.limits.open_files)
        spec = InstanceSpec((plain,), image, limits, slot)
        names = ", ".join(each.name for each in group)
        with ExitStack() as exits:
            try:
                # Not among the live instances, whose footprint is measured.
                instance = combine_layers(
                    exits.enter_context(start_stack(replace(context, live_instances=[]), spec, TrialLog()))
                )
            except TrialFailed as error:
                raise TrialFailed(f"the instance of {names}: {error}", error.hint, error.output) from error
            yield _placement_of(instance, image)


def _placement_of(instance: Instance, image: Image | None = None) -> ServicePlacement:
    """Return the placement of services in an instance. Raises Unavailable without an inside or a network."""
    if instance.inside is None or instance.address is None:
        what = "an application needs an instance with an inside and a network"
        raise Unavailable(what, "leave this stack out of applications")
    start, stop_signal = (image.start_command, image.stop_signal) if image else ((), "")
    return ServicePlacement(instance.inside, instance.address, start, stop_signal, instance.socket_tables)


def group_by_instance(services: Sequence[Sidecar]) -> tuple[tuple[Sidecar, ...], ...]:
    """Return groups of services that share an instance: all with Debian packages; foreign images cannot be combined."""
    together: dict[object, list[Sidecar]] = {}
    for each in services:
        together.setdefault(each.name if each.image.source else each.image, []).append(each)
    return tuple(map(tuple, together.values()))


def add_host_names(text: str, addresses: Mapping[str, str]) -> str:
    """Return the text of a hosts file with these names, in place of its lines about them.

    `localhost` is added if it is missing: engines write it, a fresh Debian has no such file, and stacks must be equal.
    """
    kept = [line for line in text.splitlines() if not _parse_names(line) & addresses.keys()]
    if not any("localhost" in _parse_names(line) for line in kept):
        kept.insert(0, f"{_LOOPBACK}\tlocalhost")
    return "".join(f"{line}\n" for line in (*kept, *(f"{address}\t{name}" for name, address in addresses.items())))


def _parse_names(line: str) -> set[str]:
    return set(line.partition("#")[0].split()[1:])


def _write_host_files(places: Mapping[str, ServicePlacement], workload: Workload, instance: Instance) -> None:
    """Write the names of all services of an application into the hosts file of each instance."""
    tested, service = _placement_of(instance), workload.service(EVERYWHERE)
    addresses = {name: place.address for name, place in places.items()}
    for sidecar in workload.sidecars:
        addresses |= dict.fromkeys(sidecar.service.names, places[sidecar.name].address)
    names_of_tested = (workload.hostname, *(service.names if service else ()))
    text = tested.inside.read(_HOSTS_FILE)
    own_address = _find_own_address(text, instance) or tested.address
    tested.put(_HOSTS_FILE, add_host_names(text, addresses | dict.fromkeys(names_of_tested, own_address)))
    names_for_sidecars = addresses | dict.fromkeys(names_of_tested, tested.address)
    for place in {place.address: place for place in places.values()}.values():  # services may share an instance
        place.put(_HOSTS_FILE, add_host_names(place.inside.read(_HOSTS_FILE), names_for_sidecars))


def _find_own_address(hosts: str, instance: Instance) -> str:
    """Return the address that the instance under test has inside; "" if it is unknown.

    Its service listens there if it listens at its own name. Clients may know another address: an engine publishes
    ports at an address of the machine.
    """
    if instance.network_path == HOST_NETWORK_PATH:
        return ""
    return next((line.split()[0] for line in hosts.splitlines() if HOST_NAME in _parse_names(line)), "")
