"""Network of a run: a bridge with the client, this machine and each instance on a port.

    client ── bridge ── this machine (bare metal, and instances behind NAT)
                 ├───── instance in slot 0 (bridge, tap)
                 └───── instance in slot 1 …

The machine is the host of the outermost instances. Except for the machine's port, all devices are in namespaces of
tare's, so that the machine's firewall rules do not apply between client and instance. With Docker's rules and
connection tracking, bare metal served 13 % fewer pages. A client on another machine reaches the same addresses over a
route. In an instance that is itself a host, the network card becomes a port of a bridge, so that the instances in it
are on the same network.

Instances that are alive at the same time have different *slots*, 0 to 63. The slot determines an instance's addresses,
its hardware address, and the names of its devices and namespace. Addresses are from 198.18.0.0/15, which RFC 2544
reserves for benchmarks and no network routes. nftables drops packets to these addresses that arrive on the devices that
the machine had before the run, so that a neighbor with a route added by hand does not reach them either; no measured
packet passes these rules. A run takes a /21, which begins at 198.18.x.0:

    198.18.x.1                   the machine, which is the gateway of the client and the instances
    198.18.x.2                   the client
    198.18.x.(10 + 64 l + s)     the instance in slot s with l instances around it, up to .253
    198.18.(x + 1).(1 + s)       the machine for slot s: for NAT, and for bare metal with network = "host"
    198.18.(x + 2).0             a /24 for one bridge of an engine that many of its instances share
    198.18.(x + 4) and up        64 subnets /28, one per slot, for bridges that container engines create

The first /24 is the bridge's. The client reaches the machine's addresses for the slots over the gateway, whose neighbor
entry it has already, so that all slots respond equally fast. The packets of all technologies cross the same bridge.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tare.hosts.host import Host
from tare.hosts.ledger import EphemeralLedger, Ledger, UndoStep
from tare.hosts.subnet import (
    MACHINES_OFFSET,
    NO_ADDRESS,
    RUN_PREFIX,
    block_external_traffic,
    routed_networks,
    take_subnet,
)
from tare.hosts.tuning import CLIENT_SYSCTLS
from tare.model.errors import TareError, TrialFailed

_SECONDS = 30.0
SLOTS = 64
_FIRST_INSTANCE, _LAST_INSTANCE = 10, 253
_SHARED_OFFSET, _ENGINES_OFFSET = 512, 1024  # of their first addresses, relative to the bridge's subnet
_ENGINE_PREFIX = 28
# Runs in a guest as one command, because tare's connection to the guest uses the card that the script moves. The bridge
# keeps the card's hardware and IP address.
_BRIDGE_SCRIPT = """
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
_ONE_NETWORK = "connect them to one network, as in the papers; `address` in [hosts.server] is the address there"


@dataclass(frozen=True)
class Network:
    """Names and addresses of a run's network on one host. All names start with `prefix`.

    `level` is the number of instances around the host. `level` and `slot` determine the addresses. `client_is_local`
    is True if the client is a namespace of the outermost host. Instances that are alive at the same time on one bridge
    have different slots.
    """

    prefix: str
    subnet: ipaddress.IPv4Network
    ledger: Ledger
    level: int = 0
    client_is_local: bool = True
    slot: int = 0

    def with_slot(self, slot: int) -> Network:
        """Return the same network for the instance in another slot."""
        if not 0 <= slot < SLOTS:
            raise TareError(f"no slot {slot}: a network has {SLOTS}", "run fewer instances at a time")
        return replace(self, slot=slot)

    def device(self, kind: str) -> str:
        """Return the name of the slot's device of a kind, which is one letter."""
        # The kernel allows 15 characters, and a prefix has up to 11.
        return f"{self.prefix}-{kind}{self.slot:02}"

    @property
    def lan(self) -> str:
        """Namespace of the bridge; "" if it is in the host's namespace."""
        return "" if self.level else f"{self.prefix}-lan"

    @property
    def run_subnet(self) -> ipaddress.IPv4Network:
        """Subnet of all addresses of the run."""
        return self.subnet.supernet(new_prefix=RUN_PREFIX)

    @property
    def enter(self) -> tuple[str, ...]:
        """Command prefix that starts a command in the bridge's namespace."""
        return ("nsenter", f"--net=/run/netns/{self.lan}", "--") if self.lan else ()

    @property
    def _ip_options(self) -> tuple[str, ...]:
        """Options of `ip` for the bridge's namespace."""
        return ("-n", self.lan) if self.lan else ()

    @property
    def instance_mac(self) -> str:
        """Hardware address of the instance."""
        # It depends on the IP address only, so that the client's neighbor table stays valid.
        return f"02:74:61:72:65:{self._address_number(self.level) - _FIRST_INSTANCE + 1:02x}"

    @property
    def client_namespace(self) -> str:
        """Namespace of the client."""
        return f"{self.prefix}-client"

    @property
    def inside_namespace(self) -> str:
        """Namespace of an instance that `create_namespace` makes."""
        return f"{self.prefix}-inside-{self.slot:02}"

    @property
    def machine_address(self) -> str:
        """Address of the host for the instance in this slot, on which no other instance uses ports."""
        if self.level:
            return str(self.subnet[self._address_number(self.level - 1)])
        return str(self.subnet.network_address + MACHINES_OFFSET + 1 + self.slot)

    @property
    def gateway(self) -> str:
        """Default gateway of an instance: the outermost host."""
        return str(self.subnet[1])

    @property
    def host_address(self) -> str:
        """Address from which the host reaches an instance on the bridge."""
        return self.machine_address if self.level else self.gateway

    @property
    def client_address(self) -> str:
        """Address of the client."""
        return str(self.subnet[2])

    @property
    def instance_address(self) -> str:
        """Address of the instance on the bridge."""
        return str(self.subnet[self._address_number(self.level)])

    @property
    def engine_subnet(self) -> ipaddress.IPv4Network:
        """Subnet for a bridge that a container engine creates for the instance in this slot."""
        size = 1 << (32 - _ENGINE_PREFIX)
        return ipaddress.IPv4Network(
            (int(self.subnet.network_address) + _ENGINES_OFFSET + size * self.slot, _ENGINE_PREFIX)
        )

    @property
    def shared_subnet(self) -> ipaddress.IPv4Network:
        """Subnet for a bridge that a container engine creates for all its instances of the run."""
        return ipaddress.IPv4Network((int(self.subnet.network_address) + _SHARED_OFFSET, 24))

    def _address_number(self, level: int) -> int:
        """Return the last number of an instance's address; raises TrialFailed if the bridge's subnet has no more."""
        number = _FIRST_INSTANCE + SLOTS * level + self.slot
        if number > _LAST_INSTANCE:
            what = f"there is no address for layer {level + 1} of the stack in slot {self.slot}"
            raise TrialFailed(what, "use fewer layers, or fewer stacks")
        return number

    @contextlib.contextmanager
    def create_namespace(self) -> Iterator[str]:
        """Context manager: create a namespace for an instance, connected to the bridge; yield its name."""
        name, port, lan = self.inside_namespace, self.device("i"), self.lan or "-"
        addresses = (self.instance_mac, self.instance_address, self.gateway)
        with self.ledger.create(
            (("namespace", name), ("join", name, port, lan, *addresses)),
            UndoStep(("unnamespace", name), ("ip", "netns", "delete", name)),
            # Deleting a pair of cards takes the kernel 12 to 30 ms. `unjoin` takes the port from the bridge instead, so
            # that no packet passes it, and the kernel deletes it with the namespace.
            UndoStep(("unjoin", port, lan), ("ip", *self._ip_options, "link", "delete", port)),
        ):
            yield name

    @contextlib.contextmanager
    def create_tap(self, headers: bool = True) -> Iterator[str]:
        """Context manager: create a tap device on the bridge, in the bridge's namespace; yield its name.

        If `headers`, a header of virtio precedes each packet, as QEMU expects.
        """
        name = self.device("t")
        if self.level:  # nothing in tare's guests loads the module on demand
            self.ledger.host.run("modprobe", "tun", timeout=_SECONDS)
        with self.ledger.register_undo("ip", *self._ip_options, "link", "delete", name, lane="network"):
            kind = "mode tap vnet_hdr" if headers else "mode tap"
            self.run_ip_in(self.lan, f"tuntap add dev {name} {kind}", f"link set {name} master bridge up")
            yield name

    @contextlib.contextmanager
    def adopt_tap(self, tap: str) -> Iterator[None]:
        """Context manager: connect a tap device, which a daemon has created in the host's namespace, to the bridge.

        The daemon's machine keeps using the device.
        """
        with self.ledger.register_undo("ip", *self._ip_options, "link", "delete", tap):
            if self.lan:
                self.run_ip(f"link set {tap} netns {self.lan}")
            self.run_ip_in(self.lan, f"link set {tap} master bridge up")
            yield

    @contextlib.contextmanager
    def create_port(self) -> Iterator[str]:
        """Context manager: create a network card of the host that is a port of the bridge; yield its name.

        It is for hypervisors that bridge to a card of the host. The card has no address.
        """
        name, end = self.device("p"), self.device("q")
        with self.ledger.register_undo("ip", "link", "delete", name):
            peer = f"netns {self.lan}" if self.lan else ""
            self.run_ip(f"link add {name} type veth peer name {end} {peer}", f"link set {name} addrgenmode none")
            self.run_ip_in(self.lan, f"link set {end} master bridge up")
            self.run_ip(f"link set {name} up")
            yield name

    @contextlib.contextmanager
    def connect_client(self, bridge: str) -> Iterator[None]:
        """Context manager: connect the client to the bridge of an engine's network, whose subnet is `engine_subnet`."""
        if self.level or not self.client_is_local:
            what = "the client cannot be a port of an engine's bridge on another machine"
            raise TrialFailed(what, 'give the stack network = "nat"')
        port, card = self.device("e"), f"eth{1 + self.slot}"
        with self.ledger.register_undo("ip", "link", "delete", port):
            # Some engines create the bridge with the network, some with the first container. All remove it with the
            # network, so this needs no undo.
            if self.ledger.host.run("ip", "link", "show", bridge, timeout=_SECONDS, check=False).exit_code:
                self.run_ip(f"link add {bridge} type bridge forward_delay 0 stp_state 0")
            self.run_ip(f"link add {port} type veth peer name {card} netns {self.client_namespace}")
            self.run_ip(f"link set {port} master {bridge} up", f"link set {bridge} up")
            address = f"{self.engine_subnet[2]}/{self.engine_subnet.prefixlen}"
            self.run_ip_in(self.client_namespace, f"addr add {address} dev {card}", f"link set {card} up")
            _tune(self.ledger.host, self.client_namespace, card)
            yield

    def create_inner(self, ledger: EphemeralLedger) -> Network:
        """Create the network in an instance that is itself a host: its card becomes a port of a new bridge."""
        network = replace(self, ledger=ledger, level=self.level + 1)
        ledger.host.run("sh", "-c", _BRIDGE_SCRIPT, "sh", network.machine_address, network.gateway, timeout=_SECONDS)
        return network

    def run_ip(self, *lines: str) -> None:
        """Run `ip` on the host once per line, with the line's words; raises TrialFailed."""
        for line in lines:
            self.ledger.host.run("ip", *line.split(), timeout=_SECONDS)

    def run_ip_in(self, namespace: str, *lines: str) -> None:
        """Run the lines as one batch of `ip` in a namespace, "" for the host's; raises TrialFailed."""
        enter = ("-n", namespace) if namespace else ()
        batch = "\n".join(lines).encode() + b"\n"
        self.ledger.host.run("ip", *enter, "-batch", "-", timeout=_SECONDS, input=batch)


@contextlib.contextmanager
def create_local_network(ledger: Ledger, prefix: str) -> Iterator[Network]:
    """Context manager: create the network of a run whose client is on the same machine."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(_create_bridge(ledger, prefix))
        stack.enter_context(ledger.register_undo("ip", "netns", "delete", network.client_namespace))
        network.run_ip(f"netns add {network.client_namespace}")
        network.run_ip_in(
            network.lan,
            f"link add client type veth peer name eth0 netns {network.client_namespace}",
            "link set client master bridge up",
        )
        network.run_ip_in(
            network.client_namespace,
            f"addr add {network.client_address}/24 dev eth0",
            "link set lo up",
            "link set eth0 up",
            f"route add default via {network.gateway}",
        )
        _tune(ledger.host, network.client_namespace, "eth0")
        yield network


@contextlib.contextmanager
def create_routed_network(ledger: Ledger, clients: Sequence[Ledger], prefix: str, machine: str) -> Iterator[Network]:
    """Context manager: create the network of a run whose clients are other machines, with a route to the instances.

    `machine` is the address of the instances' machine as the clients see it. Raises TareError if a client cannot have
    the route, because a router is between the machines.
    """
    with contextlib.ExitStack() as stack:
        allowed = [source_address(client.host, machine) for client in clients]
        elsewhere = [network for client in clients for network in routed_networks(client.host)]
        network = stack.enter_context(_create_bridge(ledger, prefix, elsewhere, allowed))
        network = replace(network, client_is_local=False)
        route = ("route", "add", str(network.run_subnet), "via", machine)
        # A shell only to have the prefix in the command: the ledger refuses a command that does not name tare's.
        undo = ("sh", "-c", 'ip route delete "$1" via "$2"', prefix, route[2], machine)
        for option in _forwarding_rules(prefix):
            stack.enter_context(ledger.register_undo("iptables", "-w", "-D", *option))
            # Docker's policy for FORWARD is DROP. A machine without iptables has no such rule.
            ledger.host.run("iptables", "-w", "-I", *option, timeout=_SECONDS, check=False)
        ledger.host.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward", timeout=_SECONDS)
        for number, client in enumerate(clients, start=1):
            stack.enter_context(client.register_undo(*undo))
            added = client.host.run("ip", *route, timeout=_SECONDS, check=False)
            if added.exit_code:
                who = f"client {number}" if len(clients) > 1 else "the client"
                words = added.stderr.decode("utf-8", "replace").strip()
                raise TareError(f"{who} has no route to the instances over {machine}: {words}", _ONE_NETWORK)
        yield network


def source_address(host: Host, target: str) -> str:
    """Return the source address of a host's packets to a target; `NO_ADDRESS` if the host's route has none."""
    routes = json.loads(host.run("ip", "-json", "route", "get", target, timeout=_SECONDS).text)
    return str(routes[0].get("prefsrc", NO_ADDRESS))


def _forwarding_rules(prefix: str) -> tuple[tuple[str, ...], ...]:
    """Return the firewall rules that let a machine forward the client's packets."""
    comment = ("-m", "comment", "--comment", prefix, "-j", "ACCEPT")
    return tuple(("FORWARD", direction, f"{prefix}-m", *comment) for direction in ("-i", "-o"))


@contextlib.contextmanager
def _create_bridge(
    ledger: Ledger, prefix: str, elsewhere: Sequence[ipaddress.IPv4Network] = (), allowed: Sequence[str] = (NO_ADDRESS,)
) -> Iterator[Network]:
    """Context manager: create the bridge and the machine's port, in a free subnet that overlaps none of `elsewhere`.

    If the machine has nftables, it drops packets of other machines that are not from the `allowed` addresses.
    """
    with contextlib.ExitStack() as stack:
        # Engines turn on forwarding for NAT and leave it on: restore the first value.
        restore = ("sh", "-c", 'echo "$1" > /proc/sys/net/ipv4/ip_forward', prefix)
        stack.enter_context(ledger.register_undo(*restore, ledger.host.read("/proc/sys/net/ipv4/ip_forward").strip()))
        lan, port = f"{prefix}-lan", f"{prefix}-m"
        stack.enter_context(ledger.register_undo("ip", "netns", "delete", lan))
        stack.enter_context(ledger.register_undo("ip", "link", "delete", port))
        for command in (f"netns add {lan}", f"link add {port} type veth peer name machine netns {lan}"):
            ledger.host.run("ip", *command.split(), timeout=_SECONDS)
        ledger.host.run("ip", "link", "set", port, "up", timeout=_SECONDS)
        network = Network(prefix, take_subnet(ledger.host, port, elsewhere), ledger)
        network.run_ip(f"addr add {network.gateway}/24 dev {port}")
        network.run_ip_in(
            network.lan,
            "link add bridge type bridge forward_delay 0 stp_state 0",
            "link set machine master bridge",
            *(f"link set {device} up" for device in ("lo", "machine", "bridge")),
        )
        _set_sysctls(ledger.host, _quick_neighbor_settings(port))
        stack.enter_context(block_external_traffic(ledger, prefix, network.run_subnet, allowed))
        yield network


def _quick_neighbor_settings(device: str) -> dict[str, str]:
    """Return settings with which the kernel asks for neighbors on a device every 5 ms."""
    # The kernel's default of one second between attempts would dominate a measured start-up time.
    return {
        f"net/ipv4/neigh/{device}/retrans_time_ms": "5",
        f"net/ipv4/neigh/{device}/mcast_solicit": "100",
    }


def _tune(host: Host, namespace: str, device: str) -> None:
    """Tune a device of the client, in the client's namespace, for start-up times and many connections.

    The settings for connections are those of the 2017 paper's Table III.
    """
    _set_sysctls(host, _quick_neighbor_settings(device) | CLIENT_SYSCTLS, "ip", "netns", "exec", namespace)


def _set_sysctls(host: Host, settings: Mapping[str, str], *enter: str) -> None:
    """Set kernel settings below /proc/sys; `enter` is the command prefix of a namespace."""
    script = 'while [ $# -gt 1 ]; do echo "$2" > "/proc/sys/$1"; shift 2; done'
    words = [word for setting in settings.items() for word in setting]
    host.run(*enter, "sh", "-c", script, "sh", *words, timeout=_SECONDS)
