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
from tare.model.trial import Limits, Raw
from tare.plugins import registry
from tare.plugins.technology import Technology
from tare.plugins.workload import Beside, Instance, Workload
from tare.runner.context import InstanceSpec, RunContext
from tare.runner.layers import combine_layers, start_stack
from tare.runner.service import ServicePlacement, ServiceProcess, run_service
from tare.runner.trial_log import TrialLog

_HOSTS = "/etc/hosts"
_ITSELF = "127.0.0.1"


@dataclass
class SidecarServices:
    """The services that run beside the one under test, or none. `purpose` is that of the loads: they end with them.

    `plain` starts their instances: bare metal, unless a test says otherwise.
    """

    servers: list[ServiceProcess] = field(default_factory=list)
    purpose: CommandScope = field(default_factory=CommandScope)
    plain: Technology | None = None

    def start(self, exits: ExitStack, context: RunContext, workload: Workload, instance: Instance) -> None:
        """Run what a workload has beside its server, each when the one before it is ready, until `exits` is closed.

        `instance` is the one under test, which learns their names, as they learn its. Raises Unavailable where they
        cannot reach each other, and TrialFailed; what has been started then goes on, and can be asked why.
        """
        if not workload.beside:
            return
        _place(instance)  # raises Unavailable where they cannot reach it
        places: dict[str, ServicePlacement] = {}
        for number, group in enumerate(groups(workload.beside)):
            place = exits.enter_context(self._started(context, group, SLOTS - 1 - number))
            places |= {each.name: place for each in group}
        _introduce(places, workload.called, instance)
        for each in workload.beside:
            server = exits.enter_context(run_service(places[each.name], each.service, self.purpose, each.name))
            self.servers.append(server)
            server.await_answer(context.client)

    def why(self) -> str:
        """Describe why one has ended, if one has: then this is why the load failed."""
        return next((why for server in self.servers if (why := server.why())), "")

    def last_words(self) -> tuple[Raw, ...]:
        """Return what they have printed, as raw outputs of a trial that failed."""
        return tuple(raw for server in self.servers for raw in server.last_words())

    @contextmanager
    def _started(self, context: RunContext, group: Sequence[Beside], slot: int) -> Iterator[ServicePlacement]:
        """Start the plain instance of some services."""
        image = context.images.sidecars.get(group[0].image)
        if image is None:
            raise TrialFailed(f"there is no image for {group[0].name}", "report this bug of tare")
        plain = self.plain or registry.find("technologies", "native")()
        limits = Limits(context.hosts.placement.beside, group[0].memory_bytes, context.limits.open_files)
        spec = InstanceSpec((plain,), image, limits, slot)
        names = ", ".join(each.name for each in group)
        with ExitStack() as exits:
            try:
                instance = combine_layers(exits.enter_context(start_stack(replace(context, live=[]), spec, TrialLog())))
            except TrialFailed as error:
                raise TrialFailed(f"the instance of {names}: {error}", error.hint, error.output) from error
            yield _place(instance, image)


def _place(instance: Instance, image: Image | None = None) -> ServicePlacement:
    """Return an instance as a place for services; raises Unavailable for one that is none."""
    if instance.inside is None or instance.address is None:
        what = "an application needs an instance with an inside and a network"
        raise Unavailable(what, "leave this stack out of applications")
    return ServicePlacement(instance.inside, instance.address, *((image.start, image.ends_by) if image else ()))


def groups(services: Sequence[Beside]) -> tuple[tuple[Beside, ...], ...]:
    """Put services together that share an instance: all of Debian's packages; each of others' images has its own."""
    together: dict[object, list[Beside]] = {}
    for each in services:
        together.setdefault(each.name if each.image.source else each.image, []).append(each)
    return tuple(map(tuple, together.values()))


def with_names(text: str, addresses: Mapping[str, str]) -> str:
    """Add names to the text of a hosts file; its own lines about them are dropped.

    Engines write `localhost` into it, and a fresh Debian has no such file: all stacks get that name.
    """
    kept = [line for line in text.splitlines() if not _names_in(line) & addresses.keys()]
    if not any("localhost" in _names_in(line) for line in kept):
        kept.insert(0, f"{_ITSELF}\tlocalhost")
    return "".join(f"{line}\n" for line in (*kept, *(f"{address}\t{name}" for name, address in addresses.items())))


def _names_in(line: str) -> set[str]:
    return set(line.partition("#")[0].split()[1:])


def _introduce(places: Mapping[str, ServicePlacement], under_test: str, instance: Instance) -> None:
    """Let the services of an application know each other's names."""
    own = _place(instance)
    addresses = {name: place.address for name, place in places.items()}
    own.put(_HOSTS, with_names(own.inside.read(_HOSTS), addresses | {under_test: _ITSELF}))
    for place in {place.address: place for place in places.values()}.values():
        place.put(_HOSTS, with_names(place.inside.read(_HOSTS), addresses | {under_test: own.address}))
