"""The search for a run's subnet, in the output of `ip -json -4 route`."""

from __future__ import annotations

import json
from ipaddress import IPv4Network

import pytest

from tare.errors import TareError
from tare.hosts.subnets import _free_subnet, _read_networks

# Captured from iproute2 6.1: a machine during a run.
MACHINE = """[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},\
{"dst":"172.17.0.0/16","dev":"docker0","protocol":"kernel","scope":"link","prefsrc":"172.17.0.1","flags":["linkdown"]},\
{"dst":"192.0.2.0/24","dev":"eth0","protocol":"kernel","scope":"link","prefsrc":"192.0.2.2","flags":[]},\
{"dst":"198.18.0.0/24","dev":"tare-74ae-m","protocol":"kernel","scope":"link","prefsrc":"198.18.0.1","flags":[]}]"""
# Half of a VPN's default route, routes to nowhere, and one to a single address.
OTHERS = """[{"dst":"0.0.0.0/1","dev":"lo","scope":"link","flags":[]},\
{"type":"unreachable","dst":"default","flags":[]},{"type":"blackhole","dst":"10.1.0.0/16","flags":[]},\
{"dst":"10.4.0.0/24","gateway":"10.9.0.1","dev":"lo","flags":[]},\
{"dst":"10.5.0.7","dev":"lo","scope":"link","flags":[]}]"""


@pytest.mark.parametrize(
    ("routes", "networks"),
    [
        ("[ ]\n", []),
        (MACHINE, ["172.17.0.0/16", "192.0.2.0/24", "198.18.0.0/24"]),
        (OTHERS, ["10.1.0.0/16", "10.4.0.0/24", "10.5.0.7/32"]),
    ],
)
def test_networks_are_read_but_for_default_routes(routes: str, networks: list[str]) -> None:
    assert [str(each) for each in _read_networks(routes)] == networks


def test_the_subnet_after_that_of_a_run_is_taken() -> None:
    assert str(_free_subnet(_read_networks(MACHINE))) == "198.18.8.0/24"


@pytest.mark.parametrize(
    ("taken", "subnet"),
    [
        ([], "198.18.0.0/24"),
        (["198.18.4.16/28"], "198.18.8.0/24"),  # an engine's
        (["198.18.0.0/24", "198.18.9.0/24"], "198.18.16.0/24"),
        (["10.0.0.0/24"], "198.18.0.0/24"),
        ([f"198.18.{third}.0/24" for third in range(256)], "198.19.0.0/24"),
        (["198.18.0.0/16"], "198.19.0.0/24"),
        (["198.18.0.0/21"], "198.18.8.0/24"),
        (["198.18.0.128/25"], "198.18.8.0/24"),
    ],
)
def test_the_first_subnet_without_a_route_is_taken(taken: list[str], subnet: str) -> None:
    assert str(_free_subnet(_networks(*taken))) == subnet


def test_a_machine_with_routes_to_all_subnets_gets_the_hint_to_clean() -> None:
    taken = _networks(*(f"198.{second}.{third}.0/24" for second in (18, 19) for third in range(256)))
    with pytest.raises(TareError, match=r"no free subnet left in 198\.18\.0\.0/15") as caught:
        _free_subnet(taken)
    assert caught.value.hint == "`tare clean` removes what killed runs left behind"


@pytest.mark.parametrize("network", ["198.18.0.0/15", "198.0.0.0/8"])
def test_a_route_that_covers_all_subnets_is_named(network: str) -> None:
    with pytest.raises(TareError) as caught:
        _free_subnet(_networks(network))
    assert str(caught.value) == f"no subnet of 198.18.0.0/15 is free: there is a route to {network}"
    assert caught.value.hint == f"remove it, if it is not needed: ip route delete {network}"


def _networks(*names: str) -> list[IPv4Network]:
    return _read_networks(json.dumps([{"dst": name} for name in names]))
