"""Choose a free subnet for a run and block access to it from other machines.

Where the machine has no nftables, a neighbor with a route to the addresses reaches them.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Iterator, Sequence

from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.model.errors import TareError

RUN_PREFIX = 21  # a /24 of the bridge, one of the machine, one of a shared bridge, one that is free, four of engines
MACHINES_OFFSET = 256  # where the machine's addresses begin, counted from the bridge's subnet
_SECONDS = 30.0
_OURS = ipaddress.IPv4Network("198.18.0.0/15")
_SHORTEST_PREFIX = 8  # a VPN writes the default route as two of /1
NOBODY = "0.0.0.0"  # noqa: S104 - the source of no packet
# Every device but those that engines' containers are connected to; a device that goes meanwhile takes its chain along.
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
    """Add the route to the machine's addresses for the slots, in a subnet that is free; return the bridge's /24.

    One route has all these addresses, so that none is on a list that somebody may read as the machine's. The kernel
    refuses the route where another run has it: of two runs that begin at the same moment, the second takes the next
    subnet. `elsewhere` are the networks to which other machines have routes. Raises TareError if none is free.
    """
    refused: list[ipaddress.IPv4Network] = []
    while True:
        subnet = _find_free_subnet([*routed_networks(host), *elsewhere, *refused])
        route = ("route", "add", "local", f"{subnet.network_address + MACHINES_OFFSET}/24", "dev", port)
        added = host.run("ip", *route, timeout=_SECONDS, check=False)
        if not added.exit_code:
            return subnet
        words = added.stderr.decode("utf-8", "replace").strip()
        if "File exists" not in words:
            raise TareError(f"no route to the instances: ip {' '.join(route)}: {words}", "see the kernel's log: dmesg")
        refused.append(subnet)


def routed_networks(host: Host) -> list[ipaddress.IPv4Network]:
    """Return the networks to which a host has routes, but for default routes."""
    return _read_networks(host.run("ip", "-json", "-4", "route", timeout=_SECONDS).text)


def _read_networks(routes: str) -> list[ipaddress.IPv4Network]:
    """Read the networks in the output of `ip -json -4 route`; prefixes shorter than /8 count as default routes."""
    networks = [ipaddress.IPv4Network(each["dst"]) for each in json.loads(routes) if each["dst"] != "default"]
    return [network for network in networks if network.prefixlen >= _SHORTEST_PREFIX]


def _find_free_subnet(taken: Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Return the first /24 of a /21 of 198.18.0.0/15 that overlaps with no other network.

    Raises TareError if no subnet is free.
    """
    for subnet in _OURS.subnets(new_prefix=RUN_PREFIX):
        if not any(subnet.overlaps(network) for network in taken):
            return next(subnet.subnets(new_prefix=24))
    covering = [str(network) for network in taken if network.supernet_of(_OURS)]
    if covering:
        what = f"no subnet of {_OURS} is free: there is a route to {covering[0]}"
        raise TareError(what, f"remove it, if it is not needed: ip route delete {covering[0]}")
    raise TareError(f"no free subnet left in {_OURS}", "`tare clean` removes what killed runs left behind")


@contextlib.contextmanager
def block_external_traffic(
    ledger: Ledger, prefix: str, subnet: ipaddress.IPv4Network, allowed: Sequence[str]
) -> Iterator[None]:
    """Drop in the block what comes for a subnet on a device that was there before, but from the `allowed` addresses."""
    sources = f"{{ {', '.join(sorted(set(allowed)))} }}" if len(set(allowed)) > 1 else allowed[0]
    with ledger.register_undo("sh", "-c", _UNBLOCK_SCRIPT, "sh", prefix):
        ledger.host.run("sh", "-c", _BLOCK_SCRIPT, "sh", prefix, str(subnet), sources, timeout=_SECONDS, check=False)
        yield
