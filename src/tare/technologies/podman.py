"""Podman: containers without a daemon, with Docker's command line; run by root, with root's networks.

Setting: `network` is the path from the client: `nat` (default), over a published port, or `bridge`, a port of
the container's own bridge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.hosts import engines
from tare.hosts.host import Host, Process
from tare.hosts.ledger import UndoStep
from tare.hosts.network import Network
from tare.hosts.streams import last_lines
from tare.model.trial import Problem
from tare.plugins.technology import LaunchRequest, first_line
from tare.technologies.crun import Crun
from tare.technologies.docker import Docker

# Before Linux 5.2, the mount of the container's network namespace vanishes with a tare that is killed, and Podman
# leaves the empty file: `ip netns` would complain of it to every user. Podman cannot inspect such a container either if
# CNI made its network; then CNI's notes name the file, and stay as well.
_REMOVE = """
notes=$(grep -lsF "\\"K8S_POD_NAME\\",\\"$1\\"" /var/lib/cni/results/*)
keys=$(sed -n 's|.*"sandbox":"\\(/[^"]*\\)".*|\\1|p' $notes /dev/null)
[ -n "$keys" ] || keys=$(podman inspect --format '{{.NetworkSettings.SandboxKey}}' "$1" 2>/dev/null)
podman rm --force --volumes "$1" && code=0 || code=1
for key in $keys; do
    case $key in
    *..*) ;;
    /run/netns/netns-*) mountpoint -q "$key" || rm -f "$key" ;;
    esac
done
rm -f $notes
[ $code = 0 ] || { podman container exists "$1"; [ $? = 1 ]; }
"""

# The last address of a network stays in the notes of its plug-ins (CNI) when the network is removed; and what they
# wrote of a container, where tare was killed just then.
_FORGET_NOTES = 'rm -rf "/var/lib/cni/networks/$1" "/var/lib/cni/results/$1-"*'

# Where a network is described, by CNI and by netavark: Podman takes a tenth of a second to print the same.
_NETWORK_FILES = {"/etc/cni/net.d": "conflist", "/etc/containers/networks": "json"}
_BRIDGE = re.compile(r'"(?:bridge|network_interface)": *"([^"]+)"')
# Of a tare that was killed, CNI cannot take its rules back either. They name the network in a comment; the number of a
# rule is that of its line after the chain's own. One that stays sends packets for the next container's port to nowhere.
_FORGET_RULES = """
for chain in POSTROUTING CNI-HOSTPORT-DNAT; do
    iptables -w -t nat -S "$chain" 2>/dev/null | grep -nF "$1" | sort -rn | while IFS=: read -r line rule; do
        iptables -w -t nat -D "$chain" "$((line - 1))"
        target=${rule##* -j }
        case $target in CNI-*) iptables -w -t nat -F "$target" && iptables -w -t nat -X "$target" ;; esac
        address=$(echo "$rule" | sed -n 's|.* -s \\([0-9./]*\\) .*|\\1|p')
        [ -n "$address" ] || continue
        iptables -w -D CNI-FORWARD -d "$address" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        iptables -w -D CNI-FORWARD -s "$address" -j ACCEPT
    done
done 2>/dev/null
true
"""


@dataclass(frozen=True)
class Podman(Docker):
    """Starts the image's `init` by `podman run`."""

    name = "podman"
    title = "Podman"
    packages = ("containernetworking-plugins", "iptables")
    needs = ""
    process_names = ("conmon",)
    list_commands = (
        ("podman", "ps", "--all", "--format", "{{.Names}}"),
        ("podman", "network", "ls", "--format", "{{.Name}}"),
        ("podman", "volume", "ls", "--format", "{{.Name}}"),
    )
    package = "podman"
    program = "podman"
    can_commit = False  # its images have the variables of the container
    removes_containers = False  # by `--rm`, with which the container's root ignores fsync
    expected_differences: ClassVar[Mapping[str, str]] = {
        **Docker.expected_differences,
        **Crun.expected_differences,
        **dict.fromkeys(("mount /dev", "mount /sys/dev/block", "mount /run/.containerenv"), "Podman's way of mounting"),
    }

    @contextmanager
    def run_engine(self, host: Host) -> Iterator[None]:  # noqa: ARG002 - there is no daemon
        """Do nothing: it has no daemon."""
        yield

    def engine_problems(self, host: Host) -> tuple[Problem, ...]:
        """Find why Podman does not work."""
        form = "{{.Host.ServiceIsRemote}} {{.Host.RemoteSocket.Path}}"
        output = host.run("podman", "info", "--format", form, timeout=30, check=False)
        if output.exit_code:
            return (
                Problem(f"podman info fails: {last_lines(output.stderr.decode('utf-8', 'replace'))}", "podman info"),
            )
        is_remote, _, socket = output.text.strip().partition(" ")
        if is_remote == "true":
            fix = "unset CONTAINER_HOST and CONTAINER_CONNECTION; `remote` in containers.conf is false"
            return (Problem(f"podman is the client of a service at {socket}, and runs no containers itself", fix),)
        return ()

    def engine_settings(self, host: Host) -> tuple[str, ...]:
        """Return the settings of Podman that change its containers, and that tare cannot undo."""
        return engines.read_podman_settings(host)

    def version(self, host: Host) -> str:
        """Return Podman's version."""
        return first_line(host, "podman", "--version").removeprefix("podman version ")

    def limit_options(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:
        """Return the options that set the limits, with as many processes as a container may have here."""
        count = launch.cache.read_once("most processes", lambda: _most_processes(launch.ledger.host))
        return (*super().limit_options(host, launch), f"--ulimit=nproc={count}:{count}")

    def removal_command(self, name: str) -> tuple[str, ...]:
        """Return the command that removes a container, with what a killed tare has left of its network namespace."""
        return ("sh", "-c", _REMOVE, "sh", name)

    @contextmanager
    def _run_container(self, host: Host, launch: LaunchRequest) -> Iterator[Process]:
        """Run the container from the instance's folder: there, conmon leaves a file `oom` when the memory ran out."""
        folder = str(launch.folder)
        made = launch.ledger.create([("folder", folder)], UndoStep.for_folder(folder))
        with made, super()._run_container(host, launch) as client:
            yield client

    def _run_prefix(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:  # noqa: ARG002 - Docker asks the host
        """Return the command that runs a container, without what the host and the configuration add to it."""
        return ("env", f"--chdir={launch.folder}", self.program, "run", "--http-proxy=false", "--env-host=false")

    @contextmanager
    def _create_network(self, host: Host, launch: LaunchRequest) -> Iterator[str]:
        """Make a network, also for `nat`: Podman would leave the bridge of its default network on the machine.

        That of `nat` serves all containers of the run, as the default network would.
        """
        network = launch.network
        if self.network == "nat":
            name = f"{network.prefix}-podman"
            launch.cache.create_once(name, lambda: self._create_named_network(host, launch, name))
            yield network.machine_address
            return
        with self._create_named_network(host, launch, launch.name) as bridge, network.connect_client(bridge):
            yield str(network.engine_subnet[10])

    @contextmanager
    def _create_named_network(self, host: Host, launch: LaunchRequest, name: str) -> Iterator[str]:
        """Make a network; yield its bridge."""
        with ExitStack() as stack:
            stack.enter_context(launch.ledger.register_undo("sh", "-c", _FORGET_NOTES, "sh", name))
            stack.enter_context(launch.ledger.register_undo("podman", "network", "rm", name))
            stack.enter_context(launch.ledger.register_undo("sh", "-c", _FORGET_RULES, "sh", name))
            bridge = self.create_bridge(host, launch, name)
            # netavark leaves the bridge where it cannot finish a network; elsewhere it is gone by then.
            gone = 'ip link delete "$1" 2>/dev/null || true'
            stack.enter_context(launch.ledger.register_undo("sh", "-c", gone, name, bridge))
            for packets in self._forwarded_packets(launch.network, bridge):
                rule = ("FORWARD", *packets, "-m", "comment", "--comment", name, "-j", "ACCEPT")
                stack.enter_context(launch.ledger.register_undo("iptables", "-w", "-D", *rule))
                host.run("iptables", "-w", "-I", *rule, timeout=30)
            yield bridge

    def _forwarded_packets(self, network: Network, bridge: str) -> tuple[tuple[str, ...], ...]:
        """Return what a Docker daemon beside it drops, and has to be accepted.

        CNI accepts answers where Docker drops them. netavark does so in a table of its own, which helps nothing: what
        one table of nftables drops is dropped.
        """
        if self.network == "bridge":
            return (("-i", bridge),)
        near = f"{network.prefix}-m"
        return ("-i", near), ("-i", bridge, "-o", near, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")

    def _address_options(self, launch: LaunchRequest) -> tuple[str, ...]:
        own = () if self.network == "bridge" else (f"--network={launch.network.prefix}-podman",)
        return (*own, *super()._address_options(launch))

    def create_bridge(self, host: Host, launch: LaunchRequest, name: str) -> str:
        """Make a network of this name; Podman chooses the name of its bridge."""
        network = launch.network
        subnet = network.engine_subnet if self.network == "bridge" else network.shared_subnet
        host.run("podman", "network", "create", "--disable-dns", f"--subnet={subnet}", name, timeout=60)
        described = "".join(host.read(f"{folder}/{name}.{kind}") for folder, kind in _NETWORK_FILES.items())
        if found := _BRIDGE.search(described):
            return found[1]
        form = "{{.NetworkInterface}}"
        return host.run("podman", "network", "inspect", "--format", form, name, timeout=60).text.strip()


def _most_processes(host: Host) -> str:
    """Return the most processes that a container may have.

    Podman's own default is higher than it may be where hard limits cannot be raised. Podman holds itself to the
    kernel's `pid_max`.
    """
    hard = first_line(host, "prlimit", "--nproc", "--output=HARD", "--noheadings")
    most = host.read("/proc/sys/kernel/pid_max").strip()
    return str(min(int(number) for number in (hard, most, str(1 << 22)) if number.isdigit()))
