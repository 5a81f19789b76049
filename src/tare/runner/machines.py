"""Machines of a run: this machine, or others over SSH, for instances, client, or both.

The client, where the load runs, is a network namespace of the machine under test, or another machine. It has dedicated
CPUs, and a private root file system with the load generators.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tare.hosts.cgroups import restore_controllers
from tare.hosts.exec import SUPERVISE, ExecHost, ensure_resident, fresh_root, mount_system_folders
from tare.hosts.facts import architecture_of, is_emulated, read_clock, read_cores
from tare.hosts.host import BOOT_ID, Host, HostCache
from tare.hosts.ledger import Ledger, ledger_folder, state_folder
from tare.hosts.local import LocalHost
from tare.hosts.lock import lock_remote_machine
from tare.hosts.network import Network, create_local_network, create_routed_network, source_address
from tare.hosts.ssh import SshHost, connect_machine
from tare.images.image import copy_to_host
from tare.model.architecture import Architecture, this_architecture
from tare.model.errors import TareError, Unavailable
from tare.model.image import Image
from tare.model.machine import Facts, Hosts, SshTarget
from tare.model.trial import Caution, Limits, LimitsSpec
from tare.plugins.technology import ENVIRONMENT, find_problems
from tare.runner.context import (
    CpuPlacement,
    InstanceSpec,
    Provision,
    RunContext,
    RunHosts,
    RunImages,
    TelemetryConfig,
    choose_cpus,
)
from tare.runner.layers import prepare_disk

_CLIENT_MARK = "TARE_CLIENT"
# Ends the loads of a killed tare: on another machine, nothing else ends them before their time limit.
_KILL_LOADS_SCRIPT = f"""
grep -slzxF "{_CLIENT_MARK}=$1" /proc/[0-9]*/environ | while IFS=/ read -r _ _ process _; do kill -9 "$process"; done
true
"""
# When tare is killed, the kernel sends SIGTERM to `supervise`, which ends the load's process tree.
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM", "--")
_REMOTE_STATE_FOLDER = Path("/var/lib/tare")
_MAX_PROCESSES = 1 << 22  # Linux has no higher process numbers (PID_MAX_LIMIT)


@contextmanager
def create_client(
    ledger: Ledger, network: Network, client_image: Image, cpus: Sequence[int], folder: Path
) -> Iterator[ExecHost]:
    """Context manager: create the client of a run and yield it as a host. `ledger` is that of the client's machine."""
    name = f"{network.prefix}-client"
    with (
        fresh_root(ledger, client_image, folder) as root,
        ledger.register_undo("sh", "-c", _KILL_LOADS_SCRIPT, "sh", name),
    ):
        mount_system_folders(ledger, root)
        guard = _DIE_WITH_PARENT if isinstance(ledger.host, LocalHost) else ()
        namespace = ("nsenter", f"--net=/run/netns/{network.client_namespace}", "--") if network.client_is_local else ()
        pinned = ("taskset", "--cpu-list", ",".join(map(str, cpus)))
        environment = ("env", "-i", *ENVIRONMENT, f"{_CLIENT_MARK}={name}")
        client = ExecHost(ledger.host, *guard, *namespace, *pinned, *environment, "chroot", str(root))
        with ensure_resident(client):
            yield client


@contextmanager
def connect_machines(
    hosts: Hosts, images: Iterable[Image], cpus: int, provisioned_prefix: str = ""
) -> Iterator[RunHosts]:
    """Context manager: connect to the machines of a run, lock them, and choose `cpus` CPUs for an instance.

    `images` have tare's programs for the machines' architectures.

    Raises Unreachable, or TareError if a machine is locked by another run or named twice.
    """
    prefix = provisioned_prefix or _name_prefix(hosts)
    supervisors = [image.root / SUPERVISE[1:] for image in images]
    ledger = Ledger(ledger_folder() / f"{prefix}-sockets.jsonl")
    known: dict[SshTarget, Host] = {}
    with ExitStack() as stack:
        for target in (hosts.server, hosts.client, *hosts.extra_clients):
            if target is not None and target not in known:
                socket = f"/run/{prefix}-{len(known)}.ssh"
                stack.enter_context(ledger.register_undo("rm", "-f", socket))
                known[target] = stack.enter_context(connect_machine(LocalHost(), target, socket, *supervisors))
                if provisioned_prefix:  # no other run knows a provisioned server, and the clients are locked already
                    continue
                is_another = stack.enter_context(lock_remote_machine(known[target], target.ssh))
                if hosts.extra_clients and not is_another:
                    what = f"{target.ssh}: [hosts] names this machine twice"
                    raise TareError(what, "name each machine once: every client must be a separate machine")

        def host(target: SshTarget | None) -> Host:
            return LocalHost() if target is None else known[target]

        server, client, *extra = map(host, (hosts.server, hosts.client, *hosts.extra_clients))
        placement = assign_cpus((server, client, *extra), cpus, client_is_local=hosts.server == hosts.client)
        yield RunHosts(hosts, server, client, placement, tuple(extra), provisioned_prefix)


def find_target_architecture(target: SshTarget | None) -> Architecture:
    """Return the architecture of a machine of a run, before its image is built; None stands for this machine."""
    if target is None:
        return this_architecture()
    socket = f"/run/{_name_prefix(Hosts(target))}-architecture.ssh"
    ledger = Ledger(ledger_folder() / f"{_name_prefix(Hosts(target))}-architecture.jsonl")
    with ledger.register_undo("rm", "-f", socket), connect_machine(LocalHost(), target, socket) as host:
        return architecture_of(host)


def find_client_architecture(hosts: Hosts, server: Architecture) -> Architecture:
    """Return the architecture of a run's client; `server` is that of the machine under test."""
    return server if hosts.client == hosts.server else find_target_architecture(hosts.client)


def assign_cpus(hosts: Sequence[Host], count: int, *, client_is_local: bool = True) -> CpuPlacement:
    """Return the CPUs of instances and client: different CPUs if both are on one machine.

    `hosts` are the server, the client, and the extra clients.
    """
    server, client, *_ = hosts
    placement = choose_cpus(_read_cores_to_use(server), count)
    cautions = (*placement.cautions, *emulation_cautions(hosts))
    if client_is_local:
        return CpuPlacement(placement.server, placement.client, cautions)
    # Instances may use all CPUs of the server: the client has those of another machine.
    cautions = tuple(caution for caution in cautions if caution.kind != "shared-cpus")
    return CpuPlacement(placement.server, _read_cpus_to_use(client), cautions, placement.client)


def _read_cores_to_use(host: Host) -> Sequence[Sequence[int]]:
    # The user may have restricted tare to some CPUs, by `taskset` or a container.
    allowed = os.sched_getaffinity(0) if isinstance(host, LocalHost) else None
    online = [tuple(cpu for cpu in core if allowed is None or cpu in allowed) for core in read_cores(host.read)]
    return [core for core in online if core]


def _read_cpus_to_use(host: Host) -> tuple[int, ...]:
    return tuple(sorted(cpu for core in _read_cores_to_use(host) for cpu in core))


def emulation_cautions(hosts: Sequence[Host]) -> tuple[Caution, ...]:
    """Return a caution if machines are emulated in software: their values hold for no real machine."""
    names = ("the server's", "the client's", *(f"client {number}'s" for number in range(2, len(hosts))))
    emulated = [name for name, host in zip(names, hosts, strict=True) if is_emulated(host)]
    text = f"{' and '.join(emulated)} processors are emulated in software: these are not values of any real machine"
    return (Caution("emulated", text),) if emulated else ()


@contextmanager
def open_context(
    hosts: RunHosts,
    images: RunImages,
    limits: LimitsSpec,
    telemetry: TelemetryConfig,
    on_provisioned: Callable[[Facts], None] = lambda _: None,
) -> Iterator[RunContext]:
    """Context manager: create the network and the client that all trials of a run share, and yield the run's context.

    `images` have paths on this machine. `on_provisioned` is called with the facts of each provisioned machine.
    """
    prefix = hosts.provisioned_prefix or _name_prefix(hosts.targets)
    with ExitStack() as stack:
        is_persistent = not hosts.provisioned_prefix
        server = stack.enter_context(_open_ledger(hosts.server, hosts.targets.server, prefix, is_persistent))
        clients = (server,) if hosts.client_is_local else _open_client_ledgers(stack, hosts, prefix)
        roots = [_copy_if_remote(each.host, images.client) for each in clients]
        if not hosts.client_is_local:
            for ledger, root in zip(clients, roots, strict=True):
                stack.enter_context(ledger.open_setup_helper(root.root))
        there = _copy_images(hosts, images)
        stack.enter_context(server.open_setup_helper(there.main.root))
        stack.enter_context(restore_controllers(server))
        network = stack.enter_context(_create_network(hosts, server, clients, prefix))
        for ledger in (server, *clients):
            _create_instances_folder(ledger.host)
        client, *extra = map(stack.enter_context, _prepare_clients(hosts, clients, roots, network))
        yield RunContext(
            hosts=hosts,
            images=there,
            network=network,
            ledger=server,
            limits=Limits(hosts.placement.server, limits.memory_bytes, limits.open_files),
            telemetry=telemetry,
            client=client,
            instances_folder=_instances_folder(server.host),
            extra_clients=tuple(extra),
            client_address=_client_address(hosts) if extra else "",
            clock_ahead_seconds=_clock_ahead_seconds(hosts.client),
            cache=stack.enter_context(HostCache()),
            provision=None
            if hosts.targets.server
            else _create_provisioner(hosts, images, limits, telemetry, on_provisioned),
        )


def _create_provisioner(
    hosts: RunHosts,
    images: RunImages,
    limits: LimitsSpec,
    sampling: TelemetryConfig,
    on_provisioned: Callable[[Facts], None],
) -> Provision:
    """Return a context manager that opens a context on a provisioned machine and prepares a stack's inner layers."""

    @contextmanager
    def provision(target: SshTarget, spec: InstanceSpec) -> Iterator[RunContext]:
        inner = spec.stack[:-1]
        reached = Hosts(target, hosts.targets.client, hosts.targets.extra_clients)
        programs = (images.main, images.client)
        with connect_machines(reached, programs, len(hosts.placement.server), _name_prefix(reached)) as machines:
            on_provisioned(machines.server.facts())
            # Without images of sidecar services: they cannot run on a provisioned machine.
            needed = RunImages(images.main, images.client, images.outer if len(inner) > 1 else None, images.by_stack)
            with open_context(machines, needed, limits, sampling) as context:
                if problems := tuple(find_problems(inner[-1], context.host)):
                    what = "; ".join(problem.what for problem in problems)
                    raise Unavailable(f"in the layer {inner[-1].name}: {what}", problems[0].fix)
                prepare_stack(context, context.create_spec(*inner), lambda _: None)
                yield context

    return provision


def prepare_stack(context: RunContext, spec: InstanceSpec, say: Callable[[str], None]) -> None:
    """Let a stack's technology import the image, or make the disk of the stack's outer machine."""
    if len(spec.stack) > 1:
        prepare_disk(context, spec, say)
    else:
        spec.technology.prepare_image(context.host, spec.image)


class _InMemoryLedger(Ledger):
    """Undo ledger of a provisioned server, without a file: this machine's ledger deletes the server as a whole."""

    def _write(self) -> None:
        pass


def _name_prefix(hosts: Hosts) -> str:
    """Return the prefix of a run's names: the process number or, on other machines, a hash.

    The hash is of process number, boot ID and server name: several controllers may use one machine, and one controller
    may provision several at the same time. Six digits, because names of network cards have at most 15 characters.
    """
    if hosts == Hosts():
        # Leftovers of a killed run keep its names until `tare clean`. If this process has the number of such a run, it
        # takes a number instead that no process can have.
        names = [f"tare-{os.getpid() + offset:x}" for offset in range(0, 1 << 24, _MAX_PROCESSES)]
        folder = ledger_folder()
        return next((name for name in names if not (folder / f"{name}.jsonl").exists()), names[-1])
    server = hosts.server.ssh if hosts.server else ""
    identity = f"{os.getpid()} {server} {LocalHost().read(BOOT_ID)}"
    return f"tare-{hashlib.sha256(identity.encode()).hexdigest()[:6]}"


@contextmanager
def _open_ledger(host: Host, target: SshTarget | None, name: str, is_persistent: bool = True) -> Iterator[Ledger]:
    ledger = (Ledger if is_persistent else _InMemoryLedger)(ledger_folder() / f"{name}.jsonl", host, target)
    try:
        yield ledger
    finally:
        ledger.undo_all()


def _create_network(
    hosts: RunHosts, server: Ledger, clients: Sequence[Ledger], prefix: str
) -> AbstractContextManager[Network]:
    if hosts.client_is_local:
        return create_local_network(server, prefix)
    return create_routed_network(server, clients, prefix, hosts.server_address)


def _create_instances_folder(host: Host) -> None:
    """Create the folder of the instances, whose subfolders ext4 then spreads over the disk.

    ext4 does not use an inode again for minutes after its file was deleted, and searches for another one file by file.
    Without the attribute T, an instance was next to the deleted files of earlier ones: `git clone` took 250 in place of
    75 ms there, on bare metal, too. Other file systems refuse the attribute, and need none.
    """
    folder = str(_instances_folder(host))
    host.run("mkdir", "-p", "-m", "700", folder, timeout=30)
    host.run("chattr", "+T", folder, timeout=30, check=False)


def _instances_folder(host: Host) -> Path:
    """Return the folder of the instances and the client on a machine of the run."""
    return (state_folder() if isinstance(host, LocalHost) else _REMOTE_STATE_FOLDER) / "instances"


def _copy_if_remote(host: Host, image: Image) -> Image:
    return image if isinstance(host, LocalHost) else copy_to_host(host, image)


def _copy_images(hosts: RunHosts, images: RunImages) -> RunImages:
    """Return the images with their paths on the server, after they were copied there."""

    def copy_image(image: Image) -> Image:
        return _copy_if_remote(hosts.server, image)

    return RunImages(
        main=copy_image(images.main),
        client=images.client,
        outer=copy_image(images.outer) if images.outer else None,
        by_stack={name: copy_image(image) for name, image in images.by_stack.items()},
        sidecars={spec: copy_image(image) for spec, image in images.sidecars.items()},
    )


def _clock_ahead_seconds(host: Host) -> float:
    """Return the seconds by which a machine's monotonic clock is ahead of this machine's."""
    return read_clock(host, host.supervisor).ahead_seconds if isinstance(host, SshHost) else 0.0


def _open_client_ledgers(stack: ExitStack, hosts: RunHosts, prefix: str) -> tuple[Ledger, ...]:
    """Open an undo ledger for each client of a run; `stack` closes them."""
    names = [f"{prefix}-client", *(f"{prefix}-client-{n}" for n in range(2, 2 + len(hosts.extra_clients)))]
    opened = [_open_ledger(host, target, name) for name, (host, target) in zip(names, hosts.clients, strict=True)]
    return tuple(map(stack.enter_context, opened))


def _prepare_clients(
    hosts: RunHosts, ledgers: Sequence[Ledger], roots: Sequence[Image], network: Network
) -> Iterator[AbstractContextManager[ExecHost]]:
    """Yield context managers that create the clients of a run, each on its machine, in its root and on its CPUs."""
    cpus_by_client = (hosts.placement.client, *map(_read_cpus_to_use, hosts.extra_clients))
    for ledger, root, cpus in zip(ledgers, roots, cpus_by_client, strict=True):
        yield create_client(ledger, network, root, cpus, _instances_folder(ledger.host) / f"{network.prefix}-client")


def _client_address(hosts: RunHosts) -> str:
    """Return the address at which extra clients reach the first client."""
    target = hosts.targets.client
    return (target.address if target else "") or source_address(hosts.client, hosts.server_address)
