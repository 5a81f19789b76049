"""What runs beside the service under test of an application: plain instances on the client's side of the bridge.

They are the same for all stacks: the image's programs in a chroot, with a control group and a network namespace, on the
client's CPUs or, where that is on another machine, on those that the machine of the instances has beside them. All
services of the application find one another by their names, in `/etc/hosts` of every instance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from tare.hosts.host import CommandScope
from tare.hosts.network import SLOTS
from tare.model.errors import TrialFailed, Unavailable
from tare.model.image import Image
from tare.model.trial import Limits, RawOutput
from tare.plugins import registry
from tare.plugins.technology import Technology
from tare.plugins.workload import Instance, Sidecar, Workload
from tare.runner.context import InstanceSpec, RunContext
from tare.runner.layers import combine_layers, start_stack
from tare.runner.service import ServicePlacement, ServiceProcess, run_service
from tare.runner.trial_log import TrialLog

_HOSTS_FILE = "/etc/hosts"
_LOOPBACK = "127.0.0.1"


@dataclass
class SidecarServices:
    """The services that run beside the one under test, or none. `scope` is that of the loads: they end with them.

    `plain_technology` starts their instances: bare metal, unless a test says otherwise.
    """

    servers: list[ServiceProcess] = field(default_factory=list)
    scope: CommandScope = field(default_factory=CommandScope)
    plain_technology: Technology | None = None

    def start(self, exits: ExitStack, context: RunContext, workload: Workload, instance: Instance) -> None:
        """Run what a workload has beside its server, each when the one before it is ready, until `exits` is closed.

        `instance` is the one under test, which learns their names, as they learn its. Raises Unavailable where they
        cannot reach each other, and TrialFailed; what has been started then goes on, and can be asked why.
        """
        if not workload.sidecars:
            return
        _placement_of(instance)  # raises Unavailable where they cannot reach it
        places: dict[str, ServicePlacement] = {}
        for number, group in enumerate(group_by_instance(workload.sidecars)):
            place = exits.enter_context(self._start_group(context, group, SLOTS - 1 - number))
            places |= {each.name: place for each in group}
        _write_host_files(places, workload.hostname, instance)
        for each in workload.sidecars:
            server = exits.enter_context(run_service(places[each.name], each.service, self.scope, each.name))
            self.servers.append(server)
            server.await_ready(context.client)

    def failure_reason(self) -> str:
        """Describe why one has ended, if one has: then this is why the load failed."""
        return next((why for server in self.servers if (why := server.failure_reason())), "")

    def final_output(self) -> tuple[RawOutput, ...]:
        """Return what they have printed, as raw outputs of a trial that failed."""
        return tuple(raw for server in self.servers for raw in server.final_output())

    @contextmanager
    def _start_group(self, context: RunContext, group: Sequence[Sidecar], slot: int) -> Iterator[ServicePlacement]:
        """Start the plain instance of some services."""
        image = context.images.sidecars.get(group[0].image)
        if image is None:
            raise TrialFailed(f"there is no image for {group[0].name}", "report this bug of tare")
        plain = self.plain_technology or registry.find("technologies", "native")()
        limits = Limits(context.hosts.placement.sidecar_cpus, group[0].memory_bytes, context.limits.open_files)
        spec = InstanceSpec((plain,), image, limits, slot)
        names = ", ".join(each.name for each in group)
        with ExitStack() as exits:
            try:
                instance = combine_layers(
                    exits.enter_context(start_stack(replace(context, live_instances=[]), spec, TrialLog()))
                )
            except TrialFailed as error:
                raise TrialFailed(f"the instance of {names}: {error}", error.hint, error.output) from error
            yield _placement_of(instance, image)


def _placement_of(instance: Instance, image: Image | None = None) -> ServicePlacement:
    """Return an instance as a place for services; raises Unavailable for one that is none."""
    if instance.inside is None or instance.address is None:
        what = "an application needs an instance with an inside and a network"
        raise Unavailable(what, "leave this stack out of applications")
    return ServicePlacement(
        instance.inside, instance.address, *((image.start_command, image.stop_signal) if image else ())
    )


def group_by_instance(services: Sequence[Sidecar]) -> tuple[tuple[Sidecar, ...], ...]:
    """Put services together that share an instance: all of Debian's packages; each of others' images has its own."""
    together: dict[object, list[Sidecar]] = {}
    for each in services:
        together.setdefault(each.name if each.image.source else each.image, []).append(each)
    return tuple(map(tuple, together.values()))


def add_host_names(text: str, addresses: Mapping[str, str]) -> str:
    """Add names to the text of a hosts file; its own lines about them are dropped.

    Engines write `localhost` into it, and a fresh Debian has no such file: all stacks get that name.
    """
    kept = [line for line in text.splitlines() if not _parse_names(line) & addresses.keys()]
    if not any("localhost" in _parse_names(line) for line in kept):
        kept.insert(0, f"{_LOOPBACK}\tlocalhost")
    return "".join(f"{line}\n" for line in (*kept, *(f"{address}\t{name}" for name, address in addresses.items())))


def _parse_names(line: str) -> set[str]:
    return set(line.partition("#")[0].split()[1:])


def _write_host_files(places: Mapping[str, ServicePlacement], under_test: str, instance: Instance) -> None:
    """Let the services of an application know each other's names."""
    own = _placement_of(instance)
    addresses = {name: place.address for name, place in places.items()}
    own.put(_HOSTS_FILE, add_host_names(own.inside.read(_HOSTS_FILE), addresses | {under_test: _LOOPBACK}))
    for place in {place.address: place for place in places.values()}.values():
        place.put(_HOSTS_FILE, add_host_names(place.inside.read(_HOSTS_FILE), addresses | {under_test: own.address}))
