"""The search for a subnet of a run's own, in the text of /proc/net/route."""

from __future__ import annotations

import ipaddress

import pytest

from tare.errors import TareError
from tare.hosts.subnets import _free_subnet

HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT = "eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"


def _route(destination: str, mask: str = "00FFFFFF") -> str:
    return f"tare-1-m\t{destination}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n"


@pytest.mark.parametrize(
    ("routes", "subnet"),
    [
        ("", "198.18.0.0/24"),
        (HEADER + DEFAULT, "198.18.0.0/24"),
        (HEADER + _route("000012C6"), "198.18.8.0/24"),  # 198.18.0.0 is taken
        (HEADER + _route("100412C6", "F0FFFFFF"), "198.18.8.0/24"),  # 198.18.4.16/28, an engine's, is taken
        (HEADER + _route("000012C6") + _route("000912C6"), "198.18.16.0/24"),
        (HEADER + _route("0000000A"), "198.18.0.0/24"),  # 10.0.0.0 is somebody else's
        (HEADER + "".join(_route(f"00{third:02X}12C6") for third in range(256)), "198.19.0.0/24"),
        (HEADER + _route("000012C6", "0000FFFF"), "198.19.0.0/24"),  # one route to 198.18.0.0/16
        (HEADER + _route("000012C6", "00F8FFFF"), "198.18.8.0/24"),  # 198.18.0.0/21
        (HEADER + _route("800012C6", "80FFFFFF"), "198.18.8.0/24"),  # 198.18.0.128/25
        (HEADER + _route("00000080", "00000080"), "198.18.0.0/24"),  # 128.0.0.0/1, half of a VPN's default route
    ],
)
def test_the_first_subnet_without_a_route_is_taken(routes: str, subnet: str) -> None:
    assert _free_subnet(routes) == ipaddress.IPv4Network(subnet)


def test_a_machine_with_routes_to_all_subnets_gets_the_hint_to_clean() -> None:
    routes = "".join(_route(f"00{third:02X}{second}C6") for second in ("12", "13") for third in range(256))
    with pytest.raises(TareError, match=r"no free subnet left in 198\.18\.0\.0/15") as caught:
        _free_subnet(HEADER + routes)
    assert caught.value.hint == "`tare clean` removes what killed runs left behind"


@pytest.mark.parametrize(
    ("destination", "mask", "network"),
    [("000012C6", "0000FEFF", "198.18.0.0/15"), ("000000C6", "000000FF", "198.0.0.0/8")],
)
def test_a_route_that_covers_all_subnets_is_named(destination: str, mask: str, network: str) -> None:
    with pytest.raises(TareError) as caught:
        _free_subnet(HEADER + DEFAULT + _route(destination, mask))
    assert str(caught.value) == f"no subnet of 198.18.0.0/15 is free: there is a route to {network}"
    assert caught.value.hint == f"remove it, if it is not needed: ip route delete {network}"
