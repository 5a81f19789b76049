"""The network of a run: a bridge with the client on one port, this machine on another, and the instance on a third.

    client ── bridge ── this machine (bare metal, and what it forwards to: nat)
                 └───── instance (bridge, tap)

Everything is in namespaces of tare's own but the machine's one port, so that no firewall rule of the machine touches
what passes between client and instance. Addresses are of 198.18.0.0/15, which RFC 2544 sets aside for benchmarks and
which no network routes: only a neighbor that adds a route by hand could reach the server of bare metal or of NAT. Every
packet crosses the same bridge, whatever technology is under test.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from tare.hosts.local import LocalHost, read_text
from tare.ledger import Ledger
from tare.model import TareError

_HOST = LocalHost()
_SECONDS = 20.0
# Every instance has the same one, so that the client's neighbour table is never out of date.
INSTANCE_MAC = "02:74:61:72:65:01"


@dataclass(frozen=True)
class Network:
    """Names and addresses of a run's network. `prefix` starts every name, `lan` is the namespace of the bridge."""

    prefix: str
    subnet: ipaddress.IPv4Network
    ledger: Ledger

    @property
    def lan(self) -> str:
        """Namespace of the bridge."""
        return f"{self.prefix}-lan"

    @property
    def client(self) -> str:
        """Namespace of the client."""
        return f"{self.prefix}-client"

    @property
    def machine_address(self) -> str:
        """Address of this machine on the bridge."""
        return str(self.subnet[1])

    @property
    def client_address(self) -> str:
        """Address of the client."""
        return str(self.subnet[2])

    @property
    def instance_address(self) -> str:
        """Address of the instance on the bridge."""
        return str(self.subnet[10])

    @property
    def engine_subnet(self) -> ipaddress.IPv4Network:
        """Subnet for a bridge that a container engine makes itself."""
        return ipaddress.IPv4Network((int(self.subnet.network_address) + 256, 24))

    @contextlib.contextmanager
    def namespace(self) -> Iterator[str]:
        """Make a namespace for an instance, connected to the bridge; gives its name."""
        name, port = f"{self.prefix}-inside", f"{self.prefix}-i"
        with self.ledger.undone_by("ip", "netns", "delete", name):
            _ip(f"netns add {name}", f"-n {self.lan} link add {port} type veth peer name eth0 netns {name}")
            _in(self.lan, f"link set {port} master bridge up")
            _in(
                name,
                "link set lo up",
                f"link set eth0 address {INSTANCE_MAC} up",
                f"addr add {self.instance_address}/24 dev eth0",
                f"route add default via {self.machine_address}",
            )
            yield name

    @contextlib.contextmanager
    def tap(self) -> Iterator[str]:
        """Make a tap device on the bridge, in the bridge's namespace; gives its name."""
        name = f"{self.prefix}-t"
        with self.ledger.undone_by("ip", "-n", self.lan, "link", "delete", name):
            _in(self.lan, f"tuntap add dev {name} mode tap vnet_hdr", f"link set {name} master bridge up")
            yield name

    @contextlib.contextmanager
    def client_on(self, bridge: str) -> Iterator[None]:
        """Plug the client into the bridge of a container engine's own network, whose subnet is `engine_subnet`.

        Some engines make the bridge with the network, some with the first container: it is made where it is missing.
        All remove it with the network.
        """
        port = f"{self.prefix}-e"
        with self.ledger.undone_by("ip", "link", "delete", port):
            if _HOST.run("ip", "link", "show", bridge, timeout=_SECONDS, check=False).exit_code:
                _ip(f"link add {bridge} type bridge forward_delay 0 stp_state 0")
            _ip(f"link add {port} type veth peer name eth1 netns {self.client}")
            _ip(f"link set {port} master {bridge} up", f"link set {bridge} up")
            _in(self.client, f"addr add {self.engine_subnet[2]}/24 dev eth1", "link set eth1 up")
            _tune(self.client, "eth1")
            yield


@contextlib.contextmanager
def connected(ledger: Ledger, prefix: str) -> Iterator[Network]:
    """Make the network of a run; all of it is gone after the block."""
    network = Network(prefix, _free_subnet(read_text("/proc/net/route")), ledger)
    with contextlib.ExitStack() as stack:
        # Engines turn forwarding on for NAT, and leave it on.
        restore = ("sh", "-c", 'echo "$1" > /proc/sys/net/ipv4/ip_forward', prefix)
        stack.enter_context(ledger.undone_by(*restore, read_text("/proc/sys/net/ipv4/ip_forward").strip()))
        for name in (network.lan, network.client):
            stack.enter_context(ledger.undone_by("ip", "netns", "delete", name))
        stack.enter_context(ledger.undone_by("ip", "link", "delete", f"{prefix}-m"))
        _ip(f"netns add {network.lan}", f"netns add {network.client}")
        _ip(f"link add {prefix}-m type veth peer name machine netns {network.lan}")
        _in(
            network.lan,
            "link add bridge type bridge forward_delay 0 stp_state 0",
            f"link add client type veth peer name eth0 netns {network.client}",
            *(f"link set {port} master bridge" for port in ("machine", "client")),
            *(f"link set {port} up" for port in ("lo", "machine", "client", "bridge")),
        )
        _ip(f"addr add {network.machine_address}/24 dev {prefix}-m", f"link set {prefix}-m up")
        _in(
            network.client,
            f"addr add {network.client_address}/24 dev eth0",
            "link set lo up",
            "link set eth0 up",
            f"route add default via {network.machine_address}",
        )
        _tune(network.client, "eth0")
        yield network


def _tune(namespace: str, device: str) -> None:
    """Make a device of the client fit for measuring starts and many connections.

    Its neighbours are asked for every 5 ms instead of every second, so that an instance is found soon after it is up.
    The ports are those of the 2017 paper's Table III. All of it is of the client's namespace alone.
    """
    settings = {
        f"net/ipv4/neigh/{device}/retrans_time_ms": "5",
        f"net/ipv4/neigh/{device}/mcast_solicit": "100",
        "net/ipv4/ip_local_port_range": "1024 65535",
        "net/ipv4/tcp_tw_reuse": "1",
    }
    script = 'while [ $# -gt 1 ]; do echo "$2" > "/proc/sys/$1"; shift 2; done'
    words = [word for setting in settings.items() for word in setting]
    _HOST.run("ip", "netns", "exec", namespace, "sh", "-c", script, "sh", *words, timeout=_SECONDS)


def _free_subnet(routes: str) -> ipaddress.IPv4Network:
    """Find two neighbouring /24 of 198.18.0.0/15 to which the machine has no route. `routes` is /proc/net/route."""
    taken = set()
    for line in routes.splitlines()[1:]:
        destination = int.from_bytes(bytes.fromhex(line.split()[1]), "little")
        taken.add(destination >> 8)
    for subnet in ipaddress.IPv4Network("198.18.0.0/15").subnets(new_prefix=23):
        start = int(subnet.network_address) >> 8
        if start not in taken and start + 1 not in taken:
            return ipaddress.IPv4Network((int(subnet.network_address), 24))
    raise TareError("no free subnet left in 198.18.0.0/15", "`tare clean` removes what killed runs left behind")


def _ip(*lines: str) -> None:
    for line in lines:
        _HOST.run("ip", *line.split(), timeout=_SECONDS)


def _in(namespace: str, *lines: str) -> None:
    _HOST.run("ip", "-n", namespace, "-batch", "-", timeout=_SECONDS, input="\n".join(lines).encode() + b"\n")
