"""Machines of a run: this machine, or others over SSH, for instances, client, or both.

The client, where the load runs, is a network namespace of the machine under test, or another machine. It has its own
CPUs, and its own root file system with the load generators.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tare.hosts.cgroups import controllers_restored
from tare.hosts.exec import RUN, ExecHost, at_hand, fresh_root, make_enterable
from tare.hosts.facts import is_emulated, read_clock, read_cores
from tare.hosts.host import BOOT_ID, Host, HostCache
from tare.hosts.ledger import Ledger, ledgers, state_folder
from tare.hosts.local import LocalHost
from tare.hosts.lock import only_one_on
from tare.hosts.network import Network, connected, routed, source_address
from tare.hosts.ssh import SshHost, machine
from tare.images.image import carried
from tare.model.errors import TareError, Unavailable
from tare.model.image import Image
from tare.model.machine import Facts, Hosts, Machine
from tare.model.trial import Caution, Limits, LimitsWanted
from tare.plugins.technology import ENVIRONMENT
from tare.runner.context import (
    InstanceSpec,
    Placement,
    Provision,
    RunContext,
    RunHosts,
    RunImages,
    Sampling,
    choose_cpus,
)
from tare.runner.layers import prepare_disk

_MARK = "TARE_CLIENT"
# Ends the loads of a killed tare: on another machine, nothing else ends them before their time limit.
_END = f"""
grep -slzxF "{_MARK}=$1" /proc/[0-9]*/environ | while IFS=/ read -r _ _ process _; do kill -9 "$process"; done
true
"""
# When tare is killed, the kernel sends SIGTERM to `run`, which ends the load's process tree.
_DIES_WITH_US = ("setpriv", "--pdeathsig", "TERM", "--")
_CARRIED_TO = Path("/var/lib/tare")
_MOST_PROCESSES = 1 << 22  # of Linux


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


@contextmanager
def connect_machines(hosts: Hosts, image: Image, cpus: int, provisioned_prefix: str = "") -> Iterator[RunHosts]:
    """Connect to the machines of a run, and choose this number of CPUs for an instance.

    Raises Unreachable or TareError with the reason.
    """
    prefix = provisioned_prefix or _own_prefix(hosts)
    supervisor = image.root / RUN[1:]
    ledger = Ledger(ledgers() / f"{prefix}-sockets.jsonl")
    known: dict[Machine, Host] = {}
    with ExitStack() as stack:
        for target in (hosts.server, hosts.client, *hosts.further_clients):
            if target is not None and target not in known:
                socket = f"/run/{prefix}-{len(known)}.ssh"
                stack.enter_context(ledger.undone_by("rm", "-f", socket))
                known[target] = stack.enter_context(machine(LocalHost(), target, socket, supervisor))
                if provisioned_prefix:  # a provisioned server is ours alone, and the clients are locked already
                    continue
                is_another = stack.enter_context(only_one_on(known[target], target.ssh))
                if hosts.further_clients and not is_another:
                    what = f"{target.ssh} is a machine that [hosts] has under another name"
                    raise TareError(what, "name each machine once: several clients are machines of their own")

        def host(target: Machine | None) -> Host:
            return LocalHost() if target is None else known[target]

        server, client, *extra = map(host, (hosts.server, hosts.client, *hosts.further_clients))
        placement = assign_cpus((server, client, *extra), cpus, client_is_local=hosts.server == hosts.client)
        yield RunHosts(hosts, server, client, placement, tuple(extra), provisioned_prefix)


def assign_cpus(hosts: Sequence[Host], wanted: int, *, client_is_local: bool = True) -> Placement:
    """Choose the CPUs of instances and client: different ones if both are on one machine.

    `hosts` are the server, the client, and the extra clients.
    """
    server, client, *_ = hosts
    placement = choose_cpus(_cores(server), wanted)
    cautions = (*placement.cautions, *emulation_cautions(hosts))
    if client_is_local:
        return Placement(placement.server, placement.client, cautions)
    cautions = tuple(caution for caution in cautions if caution.kind != "shared-cpus")
    return Placement(placement.server, _cpus(client), cautions, placement.client)


def _cores(host: Host) -> Sequence[Sequence[int]]:
    allowed = os.sched_getaffinity(0) if isinstance(host, LocalHost) else None
    online = [tuple(cpu for cpu in core if allowed is None or cpu in allowed) for core in read_cores(host.read)]
    return [core for core in online if core]


def _cpus(host: Host) -> tuple[int, ...]:
    return tuple(sorted(cpu for core in _cores(host) for cpu in core))


def emulation_cautions(hosts: Sequence[Host]) -> tuple[Caution, ...]:
    """Warn of machines that are emulated in software: values from there hold for no real machine."""
    names = ("the server's", "the client's", *(f"client {number}'s" for number in range(2, len(hosts))))
    emulated = [name for name, host in zip(names, hosts, strict=True) if is_emulated(host)]
    text = f"{' and '.join(emulated)} processors are emulated in software: these are not values of any real machine"
    return (Caution("emulated", text),) if emulated else ()


@contextmanager
def open_context(
    hosts: RunHosts,
    images: RunImages,
    limits: LimitsWanted,
    sampling: Sampling,
    on_provisioned: Callable[[Facts], None] = lambda _: None,
) -> Iterator[RunContext]:
    """Make what all trials of a run share, the network and the client; remove it after the block.

    All images are those of this machine. `on_provisioned` is called with the facts of each provisioned machine.
    """
    prefix = hosts.provisioned_prefix or _own_prefix(hosts.reached)
    with ExitStack() as stack:
        kept = not hosts.provisioned_prefix
        server = stack.enter_context(_ledger(hosts.server, hosts.reached.server, prefix, kept=kept))
        clients = (server,) if hosts.client_is_local else _client_ledgers(stack, hosts, prefix)
        roots = [_on(each.host, images.client) for each in clients]
        if not hosts.client_is_local:
            for ledger, root in zip(clients, roots, strict=True):
                stack.enter_context(ledger.making(root.root))
        there = _images_on(hosts, images)
        stack.enter_context(server.making(there.main.root))
        stack.enter_context(controllers_restored(server))
        network = stack.enter_context(_network(hosts, server, clients, prefix))
        for ledger in (server, *clients):
            ledger.host.run("mkdir", "-p", "-m", "700", str(_instances(ledger.host)), timeout=30)
        client, *extra = map(stack.enter_context, _clients(hosts, clients, roots, network))
        yield RunContext(
            hosts=hosts,
            images=there,
            network=network,
            ledger=server,
            limits=Limits(hosts.placement.server, limits.memory_bytes, limits.open_files),
            sampling=sampling,
            client=client,
            instances=_instances(server.host),
            extra_clients=tuple(extra),
            client_address=_client_address(hosts) if extra else "",
            clock_ahead_seconds=_clock_ahead(hosts.client),
            cache=stack.enter_context(HostCache()),
            provision=None if hosts.reached.server else _provisioner(hosts, images, limits, sampling, on_provisioned),
        )


def _provisioner(
    hosts: RunHosts,
    images: RunImages,
    limits: LimitsWanted,
    sampling: Sampling,
    on_provisioned: Callable[[Facts], None],
) -> Provision:
    """Return what opens a context on a provisioned machine, and prepares the inner layers of a stack there."""

    @contextmanager
    def provision(target: Machine, spec: InstanceSpec) -> Iterator[RunContext]:
        inner = spec.stack[:-1]
        reached = Hosts(target, hosts.reached.client, hosts.reached.further_clients)
        with connect_machines(reached, images.main, len(hosts.placement.server), _own_prefix(reached)) as machines:
            on_provisioned(machines.server.facts())
            # Nothing runs beside what is on a provisioned server.
            needed = RunImages(images.main, images.client, images.outer if len(inner) > 1 else None, images.by_stack)
            with open_context(machines, needed, limits, sampling) as context:
                if problems := tuple(inner[-1].problems(context.host)):
                    words = "; ".join(problem.what for problem in problems)
                    raise Unavailable(f"in the layer {inner[-1].name}: {words}", problems[0].fix)
                prepare_stack(context, context.spec(*inner), lambda _: None)
                yield context

    return provision


def prepare_stack(context: RunContext, spec: InstanceSpec, say: Callable[[str], None]) -> None:
    """Give the image to a stack's technology, or make the disk of the machine around its inner layers."""
    if len(spec.stack) > 1:
        prepare_disk(context, spec, say)
    else:
        spec.technology.imported(context.host, spec.image)


class _InMemoryLedger(Ledger):
    """Ledger of a provisioned server, without a file: an entry in this machine's ledger deletes the whole server."""

    def _write(self) -> None:
        pass


def _own_prefix(hosts: Hosts) -> str:
    """Return the prefix of a run's names: its process number, or on other machines a hash of it and this controller.

    The hash is also of the server's name: several machines may be provisioned at the same time. The name of a network
    card has room for six digits. A killed run may have had the same process number: its leftovers keep their names
    until `tare clean`, and another number is taken, which no process can have.
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
    ledger = (Ledger if kept else _InMemoryLedger)(ledgers() / f"{name}.jsonl", host, target)
    try:
        yield ledger
    finally:
        ledger.sweep()


def _network(
    hosts: RunHosts, server: Ledger, clients: Sequence[Ledger], prefix: str
) -> AbstractContextManager[Network]:
    if hosts.client_is_local:
        return connected(server, prefix)
    return routed(server, clients, prefix, hosts.server_address)


def _instances(host: Host) -> Path:
    """Return the folder of the instances and the client on a machine of the run."""
    return (state_folder() if isinstance(host, LocalHost) else _CARRIED_TO) / "instances"


def _on(host: Host, image: Image) -> Image:
    return image if isinstance(host, LocalHost) else carried(host, image)


def _images_on(hosts: RunHosts, images: RunImages) -> RunImages:
    """Return the images with their paths on the server, after they were copied there."""

    def there(image: Image) -> Image:
        return _on(hosts.server, image)

    return RunImages(
        main=there(images.main),
        client=images.client,
        outer=there(images.outer) if images.outer else None,
        by_stack={name: there(image) for name, image in images.by_stack.items()},
        sidecars={wanted: there(image) for wanted, image in images.sidecars.items()},
    )


def _clock_ahead(host: Host) -> float:
    """Return the seconds by which a machine's monotonic clock is ahead of ours."""
    return read_clock(host, host.supervisor).ahead_seconds if isinstance(host, SshHost) else 0.0


def _client_ledgers(stack: ExitStack, hosts: RunHosts, prefix: str) -> tuple[Ledger, ...]:
    """Open a ledger for each client of a run; they are closed with `stack`."""
    names = [f"{prefix}-client", *(f"{prefix}-client-{n}" for n in range(2, 2 + len(hosts.extra_clients)))]
    opened = [_ledger(host, target, name) for name, (host, target) in zip(names, hosts.clients, strict=True)]
    return tuple(map(stack.enter_context, opened))


def _clients(
    hosts: RunHosts, ledgers: Sequence[Ledger], roots: Sequence[Image], network: Network
) -> Iterator[AbstractContextManager[ExecHost]]:
    """Yield the clients of a run, each in its root and on its CPUs; they are made when they are entered."""
    cpus = (hosts.placement.client, *map(_cpus, hosts.extra_clients))
    for ledger, root, own in zip(ledgers, roots, cpus, strict=True):
        yield client_of(ledger, network, root, own, _instances(ledger.host) / f"{network.prefix}-client")


def _client_address(hosts: RunHosts) -> str:
    """Return the first client's address as the extra ones see it."""
    target = hosts.reached.client
    return (target.address if target else "") or source_address(hosts.client, hosts.server_address)
