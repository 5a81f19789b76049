"""Machines of a run: this machine, or others over SSH, for instances, client, or both.

The client, where the load runs, is a network namespace of the machine under test, or another machine. It has its own
CPUs, and its own root file system with the load generators.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tare.contracts.technologies import ENVIRONMENT, Technology
from tare.errors import TareError, Unavailable, in_words
from tare.hosts.chroot import fresh_root, make_enterable
from tare.hosts.clocks import read_clock
from tare.hosts.control_groups import controllers_restored
from tare.hosts.cpus import Placement, choose_cpus
from tare.hosts.distributions import localized
from tare.hosts.exec import RUN, ExecHost, at_hand
from tare.hosts.facts import is_emulated, read_cores
from tare.hosts.host import BOOT_ID, Host
from tare.hosts.host_cache import HostCache
from tare.hosts.ledger import Ledger, ledgers, state_folder
from tare.hosts.local import LocalHost
from tare.hosts.lock import only_one_on
from tare.hosts.network import Network, connected, routed, source_address
from tare.hosts.ssh import SshHost, machine
from tare.images.image import carried
from tare.model.machines import Facts, Hosts, Machine
from tare.model.trials import Caution, Image, ImageWanted, Limits, Problem
from tare.runner.context import RunResources, Testbed
from tare.runner.layers import prepare_disk
from tare.suites.stacks import Stack

_MARK = "TARE_CLIENT"
# Ends the loads of a killed tare: on another machine, nothing else ends them before their time limit.
_END = f"""
grep -slzxF "{_MARK}=$1" /proc/[0-9]*/environ | while IFS=/ read -r _ _ process _; do kill -9 "$process"; done
true
"""
# When tare is killed, the kernel sends SIGTERM to `run`, which ends the load's process tree.
_DIES_WITH_US = ("setpriv", "--pdeathsig", "TERM", "--")


@contextmanager
def client_of(ledger: Ledger, network: Network, loads: Image, cpus: Sequence[int], folder: Path) -> Iterator[ExecHost]:
    """Yield the client of a run as a host; remove it after the block. `ledger` is that of the client's machine."""
    name = f"{network.prefix}-client"
    with (
        fresh_root(ledger, loads, folder) as root,
        ledger.undone_by("sh", "-c", _END, "sh", name),
    ):
        make_enterable(ledger, root)
        guard = _DIES_WITH_US if isinstance(ledger.host, LocalHost) else ()
        namespace = ("nsenter", f"--net=/run/netns/{network.client}", "--") if network.near else ()
        pinned = ("taskset", "--cpu-list", ",".join(map(str, cpus)))
        environment = ("env", "-i", *ENVIRONMENT, f"{_MARK}={name}")
        client = ExecHost(ledger.host, *guard, *namespace, *pinned, *environment, "chroot", str(root))
        with at_hand(client):
            yield client


Problems = Mapping[str, tuple[Problem, ...]]  # by the name of the stack that cannot run
_CARRIED_TO = Path("/var/lib/tare")
_MOST_PROCESSES = 1 << 22  # of Linux


@dataclass(frozen=True)
class Machines:
    """The machines of a run as hosts.

    A server that is lent for one trial has `lent_as`: it replaces the run's prefix of all names there.
    """

    hosts: Hosts = field(default_factory=Hosts)
    server: Host = field(default_factory=LocalHost)
    client: Host = field(default_factory=LocalHost)
    lent_as: str = ""
    further_clients: tuple[Host, ...] = ()

    @property
    def near(self) -> bool:
        """Whether the client is on the machine of the instances."""
        return self.hosts.server == self.hosts.client

    @property
    def clients(self) -> tuple[tuple[Host, Machine | None], ...]:
        """All clients, in the order of the suite, each with how it is reached."""
        further = zip(self.further_clients, self.hosts.further_clients, strict=True)
        return ((self.client, self.hosts.client), *further)

    @property
    def server_address(self) -> str:
        """Address of the instances' machine as the client's machine sees it."""
        if self.hosts.server is not None and self.hosts.server.address:
            return self.hosts.server.address
        if isinstance(self.server, SshHost):
            return self.server.own_address
        assert isinstance(self.client, SshHost)  # noqa: S101 - one of the two is not this machine
        return self.client.our_address


@contextmanager
def connect_machines(hosts: Hosts, image: Image, lent_as: str = "") -> Iterator[Machines]:
    """Connect to the machines of a run; raises Unreachable or TareError with the reason."""
    prefix = lent_as or _own_prefix(hosts)
    supervisor = image.root / RUN[1:]
    ledger = Ledger(ledgers() / f"{prefix}-sockets.jsonl")
    known: dict[Machine, Host] = {}
    with ExitStack() as stack:
        for target in (hosts.server, hosts.client, *hosts.further_clients):
            if target is not None and target not in known:
                socket = f"/run/{prefix}-{len(known)}.ssh"
                stack.enter_context(ledger.undone_by("rm", "-f", socket))
                known[target] = stack.enter_context(machine(LocalHost(), target, socket, supervisor))
                if lent_as:  # a lent server is ours alone, and the clients are locked already
                    continue
                is_another = stack.enter_context(only_one_on(known[target], target.ssh))
                if hosts.further_clients and not is_another:
                    what = f"{target.ssh} is a machine that [hosts] has under another name"
                    raise TareError(what, "name each machine once: several clients are machines of their own")

        def host(target: Machine | None) -> Host:
            return LocalHost() if target is None else known[target]

        further = tuple(map(host, hosts.further_clients))
        yield Machines(hosts, host(hosts.server), host(hosts.client), lent_as, further)


def assign_cpus(machines: Machines, wanted: int) -> Placement:
    """Choose the CPUs of instances and client: different ones if both are on one machine."""
    placement = choose_cpus(_cores(machines.server), wanted)
    cautions = (*placement.cautions, *emulation_cautions(machines))
    if machines.near:
        return replace(placement, cautions=cautions)
    cautions = tuple(caution for caution in cautions if caution.kind != "shared-cpus")
    return Placement(placement.server, _cpus(machines.client), cautions, placement.client)


def _cores(host: Host) -> Sequence[Sequence[int]]:
    allowed = os.sched_getaffinity(0) if isinstance(host, LocalHost) else None
    online = [tuple(cpu for cpu in core if allowed is None or cpu in allowed) for core in read_cores(host.read)]
    return [core for core in online if core]


def _cpus(host: Host) -> tuple[int, ...]:
    return tuple(sorted(cpu for core in _cores(host) for cpu in core))


def emulation_cautions(machines: Machines) -> tuple[Caution, ...]:
    """Warn of machines that are emulated in software: values from there hold for no real machine."""
    further = {f"client {number}'s": host for number, host in enumerate(machines.further_clients, start=2)}
    by_name = {"the server's": machines.server, "the client's": machines.client, **further}
    names = [name for name, host in by_name.items() if is_emulated(host)]
    text = f"{' and '.join(names)} processors are emulated in software: these are not values of any real machine"
    return (Caution("emulated", text),) if names else ()


@dataclass(frozen=True)
class TestbedSpec:
    """What a testbed is made with.

    `loads` is the client root, `outer` the image of machines that are hosts, if the run needs any. All images are those
    of this machine, also in `run`. `lent` is called with the facts of each lent machine.
    """

    image: Image
    loads: Image
    outer: Image | None
    limits: Limits
    run: RunResources
    lent: Callable[[Facts], None] = lambda _: None


@contextmanager
def open_testbed(machines: Machines, spec: TestbedSpec) -> Iterator[Testbed]:
    """Make what all trials of a run share, the network and the client; remove it after the block."""
    prefix = machines.lent_as or _own_prefix(machines.hosts)
    with ExitStack() as stack:
        server = stack.enter_context(_ledger(machines.server, machines.hosts.server, prefix, kept=not machines.lent_as))
        clients = (server,) if machines.near else _client_ledgers(stack, machines, prefix)
        loads = [_on(each.host, spec.loads) for each in clients]
        if not machines.near:
            for ledger, root in zip(clients, loads, strict=True):
                stack.enter_context(ledger.making(root.root))
        image = _on(machines.server, spec.image)
        stack.enter_context(server.making(image.root))
        stack.enter_context(controllers_restored(server))
        network = stack.enter_context(_network(machines, server, clients, prefix))
        instances = _state(server.host) / "instances"
        for ledger in (server, *clients):
            ledger.host.run("mkdir", "-p", "-m", "700", str(_state(ledger.host) / "instances"), timeout=30)
        cpus = (spec.run.placement.client, *map(_cpus, machines.further_clients))
        client, *further = [
            stack.enter_context(
                client_of(ledger, network, root, own, _state(ledger.host) / "instances" / f"{prefix}-client")
            )
            for ledger, root, own in zip(clients, loads, cpus, strict=True)
        ]
        yield Testbed(
            client=client,
            further_clients=tuple(further),
            client_address=_client_address(machines) if further else "",
            cache=stack.enter_context(HostCache()),
            image=image,
            network=network,
            ledger=server,
            limits=spec.limits,
            instances=instances,
            outer=_on(server.host, spec.outer) if spec.outer else None,
            run=replace(
                spec.run,
                clock_ahead_seconds=_clock_ahead(machines.client),
                own={name: _on(machines.server, each) for name, each in spec.run.own.items()},
                # Nothing runs beside what is on a lent server.
                beside={} if machines.lent_as else _each_on(machines.server, spec.run.beside),
                lend=_Lender(machines.hosts, spec).testbed if machines.hosts.server is None else None,
            ),
        )


@dataclass(frozen=True)
class _Lender:
    """Makes testbeds on machines that technologies lend."""

    hosts: Hosts
    spec: TestbedSpec

    @contextmanager
    def testbed(self, target: Machine, inner: Sequence[Technology]) -> Iterator[Testbed]:
        """Make a testbed on a lent machine, and prepare these layers there."""
        hosts = replace(self.hosts, server=target)
        lent_as = _own_prefix(hosts)
        with connect_machines(hosts, self.spec.image, lent_as) as machines:
            placement = assign_cpus(machines, len(self.spec.limits.cpus))
            spec = replace(
                self.spec,
                outer=self.spec.outer if len(inner) > 1 else None,
                limits=replace(self.spec.limits, cpus=placement.server),
                run=replace(self.spec.run, placement=placement),
            )
            self.spec.lent(machines.server.facts())
            with open_testbed(machines, spec) as testbed:
                if problems := tuple(inner[-1].problems(testbed.host)):
                    words = "; ".join(problem.what for problem in problems)
                    raise Unavailable(f"in the layer {inner[-1].name}: {words}", problems[0].fix)
                if len(inner) > 1:
                    prepare_disk(testbed, inner, lambda _: None)
                else:
                    inner[-1].imported(testbed.host, testbed.image)
                yield testbed


class _UnwrittenLedger(Ledger):
    """The ledger of a lent server, which writes no file: an entry in this machine's ledger deletes the whole server."""

    def _write(self) -> None:
        pass


def _own_prefix(hosts: Hosts) -> str:
    """Return the prefix of a run's names: its process number, or on other machines a hash of it and this controller.

    The hash is also of the server's name: several machines may be lent at the same time. The name of a network card has
    room for six digits. A killed run may have had the same process number: what it has left keeps its names until
    `tare clean`, and another number is taken, which no process can have.
    """
    if hosts == Hosts():
        names = [f"tare-{os.getpid() + further:x}" for further in range(0, 1 << 24, _MOST_PROCESSES)]
        folder = ledgers()
        return next((name for name in names if not (folder / f"{name}.jsonl").exists()), names[-1])
    server = hosts.server.ssh if hosts.server else ""
    unlike = f"{os.getpid()} {server} {LocalHost().read(BOOT_ID)}"
    return f"tare-{hashlib.sha256(unlike.encode()).hexdigest()[:6]}"


@contextmanager
def _ledger(host: Host, target: Machine | None, name: str, kept: bool = True) -> Iterator[Ledger]:
    ledger = (Ledger if kept else _UnwrittenLedger)(ledgers() / f"{name}.jsonl", host, target)
    try:
        yield ledger
    finally:
        ledger.sweep()


@contextmanager
def _network(machines: Machines, server: Ledger, clients: Sequence[Ledger], prefix: str) -> Iterator[Network]:
    if machines.near:
        with connected(server, prefix) as network:
            yield network
    else:
        with routed(server, clients, prefix, machines.server_address) as network:
            yield network


def _state(host: Host) -> Path:
    return state_folder() if isinstance(host, LocalHost) else _CARRIED_TO


def _on(host: Host, image: Image) -> Image:
    return image if isinstance(host, LocalHost) else carried(host, image)


def _each_on(host: Host, images: Mapping[ImageWanted, Image]) -> Mapping[ImageWanted, Image]:
    return {wanted: _on(host, image) for wanted, image in images.items()}


def _clock_ahead(host: Host) -> float:
    """Return the seconds by which a machine's monotonic clock is ahead of ours."""
    return read_clock(host, host.supervisor).ahead_seconds if isinstance(host, SshHost) else 0.0


def _client_ledgers(stack: ExitStack, machines: Machines, prefix: str) -> tuple[Ledger, ...]:
    """Open a ledger for each client of a run; they are closed with `stack`."""
    names = [f"{prefix}-client", *(f"{prefix}-client-{n}" for n in range(2, 2 + len(machines.further_clients)))]
    opened = [_ledger(host, target, name) for name, (host, target) in zip(names, machines.clients, strict=True)]
    return tuple(map(stack.enter_context, opened))


def _client_address(machines: Machines) -> str:
    """Return the first client's address as the further ones see it."""
    target = machines.hosts.client
    return (target.address if target else "") or source_address(machines.client, machines.server_address)


def problems_by_stack(stacks: Iterable[Stack], look: Callable[[Stack], Sequence[Problem]]) -> Problems:
    """Return the problems of the stacks that have some; an engine that hangs, or a bug, costs its own stack alone."""
    found: dict[str, tuple[Problem, ...]] = {}
    for stack in stacks:
        try:
            problems = tuple(look(stack))
        except Exception as error:  # noqa: BLE001 - plug-ins are anybody's, and may raise anything
            reason = in_words(error)
            problems = (Problem(str(reason), reason.hint or "`tare doctor` says more"),)
        if problems:
            found[stack.name] = problems
    return found


def find_unusable(stacks: Iterable[Stack], host: Host, say: Callable[[str], None]) -> Problems:
    """Return the problems of the stacks whose outermost technology cannot run on a host, by stack."""

    def look(stack: Stack) -> Sequence[Problem]:
        say(f"checking {stack.name}")
        return localized(host, stack.layers[-1].problems(host))

    return problems_by_stack(stacks, look)
