"""The network of a run: a bridge with the client on one port, this machine on another, and the instance on a third.

    client ── bridge ── this machine (bare metal, and what it forwards to: nat)
                 └───── instance (bridge, tap)

The machine is the host of the outermost instances. Everything is in namespaces of tare's own but the machine's one
port, so that no firewall rule of the machine touches what passes between client and instance. A client on another
machine reaches the same addresses over a route. Within an instance that is itself a host, its own network card becomes
a port of a bridge there, so that what is started inside is on the same bridge, one address further.

Addresses are of 198.18.0.0/15, which RFC 2544 sets aside for benchmarks and which no network routes: only a neighbor
that adds a route by hand could reach the server of bare metal or of NAT. Every packet crosses the same bridge, whatever
technology is under test.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tare.contracts import Host
from tare.errors import TareError, TrialFailed
from tare.hosts.ledger import DoomedLedger, Ledger

_SECONDS = 30.0
_OURS = ipaddress.IPv4Network("198.18.0.0/15")
_SHORTEST_PREFIX = 8  # a VPN writes the default route as two of /1
# Inside a guest, in one go and with the same address: we are connected through the very card that is moved.
_BRIDGED = """
mac=$(cat /sys/class/net/eth0/address) && ip -batch - <<END
link add bridge type bridge forward_delay 0 stp_state 0
link set bridge address $mac
addr flush dev eth0
link set eth0 master bridge
addr add $1/24 dev bridge
link set bridge up
route add default via $2
END
"""


@dataclass(frozen=True)
class Network:
    """Names and addresses of a run's network on one host. `prefix` starts every name.

    `level` is how many instances are around the host: its own address, and that of what is started on it, follow from
    it. `near` says that the client is a namespace of the outermost host.
    """

    prefix: str
    subnet: ipaddress.IPv4Network
    ledger: Ledger
    level: int = 0
    near: bool = True

    @property
    def lan(self) -> str:
        """Namespace of the bridge; an empty text where it is in the host's own."""
        return "" if self.level else f"{self.prefix}-lan"

    @property
    def enter(self) -> tuple[str, ...]:
        """Command prefix that starts something where the bridge is."""
        return ("nsenter", f"--net=/run/netns/{self.lan}", "--") if self.lan else ()

    @property
    def _there(self) -> tuple[str, ...]:
        """Words of `ip` that make it look where the bridge is."""
        return ("-n", self.lan) if self.lan else ()

    @property
    def instance_mac(self) -> str:
        """Hardware address of an instance: always the same, so that the client's neighbor table stays right."""
        return f"02:74:61:72:65:{self.level + 1:02x}"

    @property
    def client(self) -> str:
        """Namespace of the client."""
        return f"{self.prefix}-client"

    @property
    def machine_address(self) -> str:
        """Address of the host on the bridge."""
        return str(self.subnet[9 + self.level] if self.level else self.subnet[1])

    @property
    def gateway(self) -> str:
        """Address over which an instance reaches all that is not on the bridge: the outermost host."""
        return str(self.subnet[1])

    @property
    def client_address(self) -> str:
        """Address of the client."""
        return str(self.subnet[2])

    @property
    def instance_address(self) -> str:
        """Address of the instance on the bridge."""
        return str(self.subnet[10 + self.level])

    @property
    def engine_subnet(self) -> ipaddress.IPv4Network:
        """Subnet for a bridge that a container engine makes itself."""
        return ipaddress.IPv4Network((int(self.subnet.network_address) + 256, 24))

    @contextlib.contextmanager
    def namespace(self) -> Iterator[str]:
        """Make a namespace for an instance, connected to the bridge; gives its name."""
        name, port = f"{self.prefix}-inside", f"{self.prefix}-i"
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.ledger.undone_by("ip", "netns", "delete", name))
            self.ip(f"netns add {name}")
            # The namespace would take its port along, but when the kernel likes, and the name is soon needed again.
            stack.enter_context(self.ledger.undone_by("ip", *self._there, "link", "delete", port))
            pair = f"link add {port} type veth peer name eth0 netns {name}"
            self.ip_in(self.lan, pair, f"link set {port} master bridge up")
            self.ip_in(
                name,
                "link set lo up",
                f"link set eth0 address {self.instance_mac} up",
                f"addr add {self.instance_address}/24 dev eth0",
                f"route add default via {self.gateway}",
            )
            yield name

    @contextlib.contextmanager
    def tap(self, headers: bool = True) -> Iterator[str]:
        """Make a tap device on the bridge, in the bridge's namespace; gives its name.

        `headers` tells the kernel to expect virtio's in front of every packet, as QEMU gives them.
        """
        name = f"{self.prefix}-t"
        if self.level:  # our guests have nobody who loads a module for a device that is not there yet
            self.ledger.host.run("modprobe", "tun", timeout=_SECONDS)
        with self.ledger.undone_by("ip", *self._there, "link", "delete", name):
            kind = "mode tap vnet_hdr" if headers else "mode tap"
            self.ip_in(self.lan, f"tuntap add dev {name} {kind}", f"link set {name} master bridge up")
            yield name

    @contextlib.contextmanager
    def adopted(self, tap: str) -> Iterator[None]:
        """Move a tap that a daemon has made in the host's own namespace to the bridge: its machine goes on using it."""
        with self.ledger.undone_by("ip", *self._there, "link", "delete", tap):
            if self.lan:
                self.ip(f"link set {tap} netns {self.lan}")
            self.ip_in(self.lan, f"link set {tap} master bridge up")
            yield

    @contextlib.contextmanager
    def port(self) -> Iterator[str]:
        """Make a network card of the host's own that is a port of the bridge, for hypervisors that bridge to one.

        Gives its name. It has no address: nothing passes over it but what the hypervisor sends and takes.
        """
        name = f"{self.prefix}-p"
        with self.ledger.undone_by("ip", "link", "delete", name):
            peer = f"netns {self.lan}" if self.lan else ""
            self.ip(f"link add {name} type veth peer name port {peer}", f"link set {name} addrgenmode none")
            self.ip_in(self.lan, "link set port master bridge up")
            self.ip(f"link set {name} up")
            yield name

    @contextlib.contextmanager
    def client_on(self, bridge: str) -> Iterator[None]:
        """Plug the client into the bridge of a container engine's own network, whose subnet is `engine_subnet`.

        Some engines make the bridge with the network, some with the first container: it is made where it is missing.
        All remove it with the network.
        """
        if self.level or not self.near:
            what = "the client cannot be a port of an engine's bridge that is not on its own machine"
            raise TrialFailed(what, 'give the stack network = "nat"')
        port = f"{self.prefix}-e"
        with self.ledger.undone_by("ip", "link", "delete", port):
            if self.ledger.host.run("ip", "link", "show", bridge, timeout=_SECONDS, check=False).exit_code:
                self.ip(f"link add {bridge} type bridge forward_delay 0 stp_state 0")
            self.ip(f"link add {port} type veth peer name eth1 netns {self.client}")
            self.ip(f"link set {port} master {bridge} up", f"link set {bridge} up")
            self.ip_in(self.client, f"addr add {self.engine_subnet[2]}/24 dev eth1", "link set eth1 up")
            _tune(self.ledger.host, self.client, "eth1")
            yield

    def within(self, host: Host) -> Network:
        """Make the network of an instance's inside: its network card becomes a port of a bridge there."""
        network = replace(self, ledger=DoomedLedger(host), level=self.level + 1)
        host.run("sh", "-c", _BRIDGED, "sh", network.machine_address, network.gateway, timeout=_SECONDS)
        return network

    def ip(self, *lines: str) -> None:
        """Run `ip` on the host, once for each line of words."""
        for line in lines:
            self.ledger.host.run("ip", *line.split(), timeout=_SECONDS)

    def ip_in(self, namespace: str, *lines: str) -> None:
        """Run a batch of `ip` in a namespace of the host, or in its own where the name is empty."""
        enter = ("-n", namespace) if namespace else ()
        batch = "\n".join(lines).encode() + b"\n"
        self.ledger.host.run("ip", *enter, "-batch", "-", timeout=_SECONDS, input=batch)


@contextlib.contextmanager
def connected(ledger: Ledger, prefix: str) -> Iterator[Network]:
    """Make the network of a run whose client is on the same machine; all of it is gone after the block."""
    routes = ledger.host.read("/proc/net/route")
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(_bridged(Network(prefix, _free_subnet(routes), ledger)))
        stack.enter_context(ledger.undone_by("ip", "netns", "delete", network.client))
        network.ip(f"netns add {network.client}")
        network.ip_in(
            network.lan,
            f"link add client type veth peer name eth0 netns {network.client}",
            "link set client master bridge up",
        )
        network.ip_in(
            network.client,
            f"addr add {network.client_address}/24 dev eth0",
            "link set lo up",
            "link set eth0 up",
            f"route add default via {network.gateway}",
        )
        _tune(ledger.host, network.client, "eth0")
        yield network


@contextlib.contextmanager
def routed(ledger: Ledger, client: Ledger, prefix: str, machine: str) -> Iterator[Network]:
    """Make the network of a run whose client is another machine, which reaches the instances over a route.

    `machine` is the address of the instances' machine as the client sees it. Raises TareError where there is a router
    between the two: then no route of ours can lead to the instances.
    """
    routes = ledger.host.read("/proc/net/route") + client.host.read("/proc/net/route")
    route = ("route", "add", str(_both_halves(subnet := _free_subnet(routes))), "via", machine)
    undo = ("sh", "-c", 'ip route delete "$1" via "$2"', prefix, route[2], machine)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(_bridged(Network(prefix, subnet, ledger, near=False)))
        for option in _passing(prefix):
            stack.enter_context(ledger.undone_by("iptables", "-w", "-D", *option))
            ledger.host.run("iptables", "-w", "-I", *option, timeout=_SECONDS, check=False)
        ledger.host.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward", timeout=_SECONDS)
        stack.enter_context(client.undone_by(*undo))
        added = client.host.run("ip", *route, timeout=_SECONDS, check=False)
        if added.exit_code:
            words = added.stderr.decode("utf-8", "replace").strip()
            hint = "they have to be on one network, as in the papers; `address` in [hosts.server] is the server's there"
            raise TareError(f"the client has no way to the instances over {machine}: {words}", hint)
        yield network


def _both_halves(subnet: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """Give the subnet together with that of the engines, which follows it."""
    return subnet.supernet(new_prefix=23)


def _passing(prefix: str) -> tuple[tuple[str, ...], ...]:
    """Give the firewall rules that let the client's packets through a machine that forwards none of its own accord."""
    comment = ("-m", "comment", "--comment", prefix, "-j", "ACCEPT")
    return tuple(("FORWARD", way, f"{prefix}-m", *comment) for way in ("-i", "-o"))


@contextlib.contextmanager
def _bridged(network: Network) -> Iterator[Network]:
    """Make the bridge and the machine's port of it."""
    ledger, prefix = network.ledger, network.prefix
    with contextlib.ExitStack() as stack:
        # Engines turn forwarding on for NAT, and leave it on.
        restore = ("sh", "-c", 'echo "$1" > /proc/sys/net/ipv4/ip_forward', prefix)
        stack.enter_context(ledger.undone_by(*restore, ledger.host.read("/proc/sys/net/ipv4/ip_forward").strip()))
        stack.enter_context(ledger.undone_by("ip", "netns", "delete", network.lan))
        stack.enter_context(ledger.undone_by("ip", "link", "delete", f"{prefix}-m"))
        network.ip(f"netns add {network.lan}", f"link add {prefix}-m type veth peer name machine netns {network.lan}")
        network.ip_in(
            network.lan,
            "link add bridge type bridge forward_delay 0 stp_state 0",
            "link set machine master bridge",
            *(f"link set {port} up" for port in ("lo", "machine", "bridge")),
        )
        network.ip(f"addr add {network.machine_address}/24 dev {prefix}-m", f"link set {prefix}-m up")
        _set(ledger.host, _quick_neighbors(f"{prefix}-m"))
        yield network


def _quick_neighbors(device: str) -> dict[str, str]:
    """Ask for the neighbors on a device every 5 ms, not every second: an instance is found soon after it is up."""
    return {
        f"net/ipv4/neigh/{device}/retrans_time_ms": "5",
        f"net/ipv4/neigh/{device}/mcast_solicit": "100",
    }


def _tune(host: Host, namespace: str, device: str) -> None:
    """Make a device of the client fit for measuring starts and many connections.

    The ports are those of the 2017 paper's Table III. All of it is of the client's namespace alone.
    """
    settings = {"net/ipv4/ip_local_port_range": "1024 65535", "net/ipv4/tcp_tw_reuse": "1"}
    _set(host, _quick_neighbors(device) | settings, "ip", "netns", "exec", namespace)


def _set(host: Host, settings: Mapping[str, str], *enter: str) -> None:
    """Set the kernel's settings below /proc/sys."""
    script = 'while [ $# -gt 1 ]; do echo "$2" > "/proc/sys/$1"; shift 2; done'
    words = [word for setting in settings.items() for word in setting]
    host.run(*enter, "sh", "-c", script, "sh", *words, timeout=_SECONDS)


def _free_subnet(routes: str) -> ipaddress.IPv4Network:
    """Find two neighboring /24 of 198.18.0.0/15 without a route. `routes` is /proc/net/route of one machine or two."""
    taken = _routed_networks(routes)
    for subnet in _OURS.subnets(new_prefix=23):
        if not any(subnet.overlaps(network) for network in taken):
            return next(subnet.subnets(new_prefix=24))
    covering = [str(network) for network in taken if network.supernet_of(_OURS)]
    if covering:
        what = f"no subnet of {_OURS} is free: there is a route to {covering[0]}"
        raise TareError(what, f"remove it, if it is not needed: ip route delete {covering[0]}")
    raise TareError(f"no free subnet left in {_OURS}", "`tare clean` removes what killed runs left behind")


def _routed_networks(routes: str) -> list[ipaddress.IPv4Network]:
    """Read the networks with a route of their own; shorter prefixes than /8 lead to all that has none."""
    networks = []
    for line in routes.splitlines():
        if line.startswith("Iface"):
            continue
        destination, mask = (int.from_bytes(bytes.fromhex(line.split()[column]), "little") for column in (1, 7))
        networks.append(ipaddress.IPv4Network((destination, mask.bit_count())))
    return [network for network in networks if network.prefixlen >= _SHORTEST_PREFIX]
