"""Subnet of a run: choice of a free one, and protection from other machines.

On a machine without nftables, a neighbor with a route to the addresses can reach the instances.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Iterator, Sequence

from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.model.errors import TareError

RUN_PREFIX = 21  # eight /24: the bridge's, the machine's, a shared bridge's, a free one, and four for engines
MACHINES_OFFSET = 256  # of the machine's addresses, relative to the bridge's subnet
_SECONDS = 30.0
_OURS = ipaddress.IPv4Network("198.18.0.0/15")
_SHORTEST_PREFIX = 8  # shorter ones are default routes: a VPN splits the default route into two of /1
NOBODY = "0.0.0.0"  # noqa: S104 - no packet has this source
# Adds a chain to every device except bridges, loopback and tare's devices. The kernel removes a chain with its device,
# and a device that vanishes during the script is no error.
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


def take_subnet(host: Host, port: str, elsewhere: Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Add the route to the machine's addresses for the slots in a free subnet; return the bridge's /24.

    `elsewhere` are the networks to which other machines have routes. Raises TareError if no subnet is free.
    """
    refused: list[ipaddress.IPv4Network] = []
    while True:
        subnet = _find_free_subnet([*routed_networks(host), *elsewhere, *refused])
        # One local route instead of 256 addresses, which other programs would list as addresses of the machine. The
        # kernel refuses a route that exists, so two runs that start at the same moment get different subnets.
        route = ("route", "add", "local", f"{subnet.network_address + MACHINES_OFFSET}/24", "dev", port)
        added = host.run("ip", *route, timeout=_SECONDS, check=False)
        if not added.exit_code:
            return subnet
        words = added.stderr.decode("utf-8", "replace").strip()
        if "File exists" not in words:
            raise TareError(f"no route to the instances: ip {' '.join(route)}: {words}", "see the kernel's log: dmesg")
        refused.append(subnet)


def routed_networks(host: Host) -> list[ipaddress.IPv4Network]:
    """Return the networks to which a host has routes, except default routes."""
    return _read_networks(host.run("ip", "-json", "-4", "route", timeout=_SECONDS).text)


def _read_networks(routes: str) -> list[ipaddress.IPv4Network]:
    """Parse the networks of the output of `ip -json -4 route`, without prefixes shorter than /8."""
    networks = [ipaddress.IPv4Network(route["dst"]) for route in json.loads(routes) if route["dst"] != "default"]
    return [network for network in networks if network.prefixlen >= _SHORTEST_PREFIX]


def _find_free_subnet(taken: Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Return the first /24 of the first /21 of 198.18.0.0/15 that overlaps none of `taken`; raises TareError."""
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
    ledger: Ledger, prefix: str, subnet: ipaddress.IPv4Network, allowed: Sequence[str]
) -> Iterator[None]:
    """Context manager: drop packets to a subnet that arrive on a device of the machine from a disallowed address.

    Only the devices that exist at the start of the block are filtered. The `allowed` addresses are not empty.
    """
    sources = f"{{ {', '.join(sorted(set(allowed)))} }}" if len(set(allowed)) > 1 else allowed[0]
    with ledger.register_undo("sh", "-c", _UNBLOCK_SCRIPT, "sh", prefix):
        ledger.host.run("sh", "-c", _BLOCK_SCRIPT, "sh", prefix, str(subnet), sources, timeout=_SECONDS, check=False)
        yield
