"""Keeps other machines away from a run's addresses, at the devices on which they send: nothing that is measured passes.

Where the machine has no nftables, a neighbor with a route to the addresses reaches them.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator, Sequence

from tare.hosts.ledger import Ledger

NOBODY = "0.0.0.0"  # noqa: S104 - the source of no packet
_SECONDS = 30.0
# Every device but those that engines' containers are connected to; a device that goes meanwhile takes its chain along.
_CLOSE = """
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
_OPEN = '! nft list table netdev "$1" >/dev/null 2>&1 || nft delete table netdev "$1"'


@contextlib.contextmanager
def closed(ledger: Ledger, prefix: str, subnet: ipaddress.IPv4Network, allowed: Sequence[str]) -> Iterator[None]:
    """Drop in the block what comes for a subnet on a device that was there before, but from the `allowed` addresses."""
    sources = f"{{ {', '.join(sorted(set(allowed)))} }}" if len(set(allowed)) > 1 else allowed[0]
    with ledger.undone_by("sh", "-c", _OPEN, "sh", prefix):
        ledger.host.run("sh", "-c", _CLOSE, "sh", prefix, str(subnet), sources, timeout=_SECONDS, check=False)
        yield
