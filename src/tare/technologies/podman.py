"""Podman: containers without a daemon, with Docker's command line; run by root, with root's networks.

Setting: `network` is the path of packets. With `nat` (default), the client reaches the container over a published port.
With `bridge`, the client is a port of the container's bridge.
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

# Before Linux 5.2, the mount of the container's network namespace disappears when tare is killed, and Podman leaves an
# empty file, of which `ip netns` warns every user. If CNI made the network, Podman cannot inspect such a container, but
# CNI's result files name the file. They are leftovers, too.
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

# CNI's plug-ins keep the last address of a removed network, and the results of containers of a killed tare.
_FORGET_NOTES = 'rm -rf "/var/lib/cni/networks/$1" "/var/lib/cni/results/$1-"*'

# Files of CNI and netavark that describe a network: `podman network inspect` takes a tenth of a second for the same.
_NETWORK_FILES = {"/etc/cni/net.d": "conflist", "/etc/containers/networks": "json"}
_BRIDGE = re.compile(r'"(?:bridge|network_interface)": *"([^"]+)"')
# CNI cannot remove its rules after tare was killed, and a leftover rule sends packets for the next container's port to
# nowhere. The rules name the network in a comment. A rule's number is its line's, without the line of the chain.
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
    """Starts the image's `init` with `podman run`."""

    name = "podman"
    title = "Podman"
    packages: ClassVar[tuple[str, ...]] = ("containernetworking-plugins", "iptables")
    needs = ""
    process_names: ClassVar[tuple[str, ...]] = ("conmon",)
    list_commands: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("podman", "ps", "--all", "--format", "{{.Names}}"),
        ("podman", "network", "ls", "--format", "{{.Name}}"),
        ("podman", "volume", "ls", "--format", "{{.Name}}"),
    )
    package = "podman"
    program = "podman"
    can_commit = False  # an image that it makes of a container has the container's variables
    removes_containers = False  # with `--rm`, Podman mounts the root as volatile, which ignores fsync
    expected_differences: ClassVar[Mapping[str, str]] = {
        **Docker.expected_differences,
        **Crun.expected_differences,
        **dict.fromkeys(("mount /dev", "mount /sys/dev/block", "mount /run/.containerenv"), "Podman's way of mounting"),
    }

    @contextmanager
    def run_engine(self, host: Host) -> Iterator[None]:  # noqa: ARG002 - there is no daemon
        """Context manager: do nothing, as Podman has no daemon."""
        yield

    def engine_problems(self, host: Host) -> tuple[Problem, ...]:
        """Return the problem of Podman on the host: it fails, or is the client of a remote service; or ()."""
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
        """Return Podman's settings that change its containers and that tare cannot override."""
        return engines.read_podman_settings(host)

    def version(self, host: Host) -> str:
        """Return Podman's version."""
        return first_line(host, "podman", "--version").removeprefix("podman version ")

    def removal_command(self, name: str) -> tuple[str, ...]:
        """Return the command that removes a container and the leftovers of its network namespace."""
        return ("sh", "-c", _REMOVE, "sh", name)

    @contextmanager
    def _run_container(self, host: Host, launch: LaunchRequest) -> Iterator[Process]:
        """Context manager: run the container from the instance's folder.

        When memory runs out, conmon writes a file `oom` to its working directory, which must not be the user's.
        """
        folder = str(launch.folder)
        created = launch.ledger.create([("folder", folder)], UndoStep.for_folder(folder))
        with created, super()._run_container(host, launch) as client:
            yield client

    def _run_prefix(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:  # noqa: ARG002 - Docker asks the host
        """Return the command that runs a container without variables from the host or the configuration."""
        # The working directory is where conmon writes `oom`: see `_run_container`.
        return ("env", f"--chdir={launch.folder}", self.program, "run", "--http-proxy=false", "--env-host=false")

    @contextmanager
    def _create_network(self, host: Host, launch: LaunchRequest) -> Iterator[str]:
        """Context manager: make the network of the container; yield the address for the client.

        `nat` gets a network, too, because Podman would leave the bridge of its default network on the machine. All
        containers of the run share it, as they would share the default network.
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
        """Context manager: make a network of Podman; yield the name of its bridge."""
        with ExitStack() as stack:
            stack.enter_context(launch.ledger.register_undo("sh", "-c", _FORGET_NOTES, "sh", name))
            stack.enter_context(launch.ledger.register_undo("podman", "network", "rm", name))
            stack.enter_context(launch.ledger.register_undo("sh", "-c", _FORGET_RULES, "sh", name))
            bridge = self.create_bridge(host, launch, name)
            # netavark leaves the bridge if it fails to set up a network. Usually the bridge no longer exists here.
            delete = 'ip link delete "$1" 2>/dev/null || true'
            stack.enter_context(launch.ledger.register_undo("sh", "-c", delete, name, bridge))
            for packets in self._forwarded_packets(launch.network, bridge):
                rule = ("FORWARD", *packets, "-m", "comment", "--comment", name, "-j", "ACCEPT")
                stack.enter_context(launch.ledger.register_undo("iptables", "-w", "-D", *rule))
                host.run("iptables", "-w", "-I", *rule, timeout=30)
            yield bridge

    def _forwarded_packets(self, network: Network, bridge: str) -> tuple[tuple[str, ...], ...]:
        """Return iptables matches of packets to accept, because a Docker daemon on the same host drops them.

        CNI accepts replies in the table in which Docker drops them. netavark accepts them in a separate table, which
        has no effect: a packet that one nftables table drops is dropped.
        """
        if self.network == "bridge":
            return (("-i", bridge),)
        client_port = f"{network.prefix}-m"
        replies = ("-i", bridge, "-o", client_port, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
        return ("-i", client_port), replies

    def _address_options(self, launch: LaunchRequest) -> tuple[str, ...]:
        shared = () if self.network == "bridge" else (f"--network={launch.network.prefix}-podman",)
        return (*shared, *super()._address_options(launch))

    def create_bridge(self, host: Host, launch: LaunchRequest, name: str) -> str:
        """Make a network of Podman; return the name of its bridge, which Podman chooses."""
        network = launch.network
        subnet = network.engine_subnet if self.network == "bridge" else network.shared_subnet
        host.run("podman", "network", "create", "--disable-dns", f"--subnet={subnet}", name, timeout=60)
        description = "".join(host.read(f"{folder}/{name}.{suffix}") for folder, suffix in _NETWORK_FILES.items())
        if match := _BRIDGE.search(description):
            return match[1]
        form = "{{.NetworkInterface}}"
        return host.run("podman", "network", "inspect", "--format", form, name, timeout=60).text.strip()
