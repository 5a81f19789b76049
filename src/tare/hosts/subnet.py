"""Subnet of a run: choice of a free /21 of 198.18.0.0/15, and protection from other machines.

`network.py` has the addresses in the subnet. The first /24 belongs to the bridge of the instances. The second /24
belongs to the machine under test, which has an address there for each slot. A slot is the position of an instance among
those that are alive at the same time. On a machine without nftables, nothing protects the subnet: another machine of
the same network that adds a route to the addresses can reach the instances.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Iterator, Sequence

from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.model.errors import TareError

# Prefix length of a run's subnet, which has eight /24 in this order: one for the bridge, one for the machine, one for a
# bridge that many instances of an engine share, an unused one, and four for the bridges that container engines create.
RUN_PREFIX = 21
MACHINES_OFFSET = 256  # from the first address of the bridge's /24 to the first address of the machine's /24
_TIMEOUT_SECONDS = 30.0
_OURS = ipaddress.IPv4Network("198.18.0.0/15")
_SHORTEST_PREFIX = 8  # shorter ones are default routes: a VPN splits the default route into two of /1
# Source address that no packet of another machine has: `block_external_traffic` needs at least one allowed address.
NO_ADDRESS = "0.0.0.0"  # noqa: S104 - not an address to listen on
# Arguments: the run's name, the subnet, and the allowed addresses. Adds a chain to every network device except bridges,
# loopback and tare's devices, which start with the run's name. The kernel removes a chain with its device, and a device
# that vanishes during the script is no error.
_BLOCK_SCRIPT = """
nft add table netdev "$1" || exit
for path in /sys/class/net/*; do
    device=${path##*/}
    case $device in lo | "$1"-*) continue ;; esac
    if [ ! -e "$path/ifindex" ] || [ -e "$path/bridge" ]; then continue; fi
    nft -f - <<END || [ ! -e "$path" ] || exit
table netdev $1 {
    chain device-$(cat "$path/ifindex") {
        type filter hook ingress device "$device" priority -500
        ip daddr $2 ip saddr != $3 drop
    }
}
END
done
"""
_UNBLOCK_SCRIPT = '! nft list table netdev "$1" >/dev/null 2>&1 || nft delete table netdev "$1"'


def take_subnet(host: Host, device: str, elsewhere: Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Choose a free subnet for a run, and return its first /24, that of the bridge.

    A route over the network `device`, which connects the host to the bridge, makes all addresses of the machine's /24
    local addresses of the host. The route also reserves the subnet. `elsewhere` are the networks to which other
    machines have routes. Raises TareError if no subnet is free, or if the route cannot be added for another reason.
    """
    refused: list[ipaddress.IPv4Network] = []
    while True:
        subnet = _find_free_subnet([*routed_networks(host), *elsewhere, *refused])
        # One local route instead of 256 addresses, which other programs would list as addresses of the machine. The
        # kernel refuses a route that exists, so two runs that start at the same moment get different subnets.
        route = ("route", "add", "local", f"{subnet.network_address + MACHINES_OFFSET}/24", "dev", device)
        added = host.run("ip", *route, timeout=_TIMEOUT_SECONDS, check=False)
        if not added.exit_code:
            return subnet
        problem = added.stderr.decode("utf-8", "replace").strip()
        if "File exists" not in problem:
            raise TareError(
                f"no route to the instances: ip {' '.join(route)}: {problem}", "see the kernel's log: dmesg"
            )
        refused.append(subnet)


def routed_networks(host: Host) -> list[ipaddress.IPv4Network]:
    """Return the networks to which a host has routes, except default routes."""
    return _read_networks(host.run("ip", "-json", "-4", "route", timeout=_TIMEOUT_SECONDS).text)


def _read_networks(routes: str) -> list[ipaddress.IPv4Network]:
    """Parse the networks of the output of `ip -json -4 route`, without prefixes shorter than /8."""
    networks = [ipaddress.IPv4Network(route["dst"]) for route in json.loads(routes) if route["dst"] != "default"]
    return [network for network in networks if network.prefixlen >= _SHORTEST_PREFIX]


def _find_free_subnet(taken: Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Find the first /21 of 198.18.0.0/15 that overlaps no network of `taken`, and return the first /24 of this /21.

    Raises TareError if every /21 overlaps one.
    """
    for subnet in _OURS.subnets(new_prefix=RUN_PREFIX):
        if not any(subnet.overlaps(network) for network in taken):
            return next(subnet.subnets(new_prefix=24))
    covering = [str(network) for network in taken if network.supernet_of(_OURS)]
    if covering:
        what = f"no subnet of {_OURS} is free: there is a route to {covering[0]}"
        raise TareError(what, f"remove the route if it is not needed: ip route delete {covering[0]}")
    raise TareError(f"no free subnet left in {_OURS}", "remove the leftovers of killed runs: tare clean")


@contextlib.contextmanager
def block_external_traffic(
    ledger: Ledger, run_name: str, subnet: ipaddress.IPv4Network, allowed: Sequence[str]
) -> Iterator[None]:
    """Context manager: drop packets to a subnet that other machines send from addresses that are not `allowed`.

    `allowed` has at least one address, which is `NO_ADDRESS` if none is allowed. The name of the nftables table is
    `run_name`, with which the names of the run's network devices start, too. Only network devices that exist on entry
    to the context manager are filtered. Without nftables, nothing is dropped.
    """
    sources = f"{{ {', '.join(sorted(set(allowed)))} }}" if len(set(allowed)) > 1 else allowed[0]
    with ledger.register_undo("sh", "-c", _UNBLOCK_SCRIPT, "sh", run_name):
        command = ("sh", "-c", _BLOCK_SCRIPT, "sh", run_name, str(subnet), sources)
        ledger.host.run(*command, timeout=_TIMEOUT_SECONDS, check=False)
        yield
