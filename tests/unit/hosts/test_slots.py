"""Tests of slots: instances that are alive at the same time on one bridge share no address and no device."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from tare.hosts.ledger import Ledger
from tare.hosts.network import SLOTS, Network
from tare.hosts.subnet import _find_free_subnet, _read_networks
from tare.model.errors import TareError, TrialFailed
from tare.plugins.technology import Technology
from tare.runner.context import assign_slots, create_instance_name
from tare.technologies.crun import Crun
from tare.technologies.nanos import Nanos
from tare.technologies.native import Native

LONGEST_PREFIX = f"tare-{4194304:x}"  # of Linux's largest process number on 64 bits
KINDS = "tipqeb"


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(LONGEST_PREFIX, ipaddress.IPv4Network("198.18.8.0/24"), Ledger(tmp_path / "ledger"))


def _places(network: Network) -> Iterator[Network]:
    """Every place on the bridge where an instance of a stack of up to three layers can be."""
    for slot in range(SLOTS):
        for level in range(3):
            yield replace(network.with_slot(slot), level=level)


def test_the_first_slot_has_the_addresses_that_are_built_into_images(network: Network) -> None:
    assert (network.instance_address, network.gateway) == ("198.18.8.10", "198.18.8.1")
    assert (network.machine_address, str(network.engine_subnet)) == ("198.18.9.1", "198.18.12.0/28")
    assert network.instance_mac == "02:74:61:72:65:01"


def test_the_last_slot_has_addresses_of_the_same_run(network: Network) -> None:
    last = network.with_slot(63)
    assert (last.instance_address, last.gateway) == ("198.18.8.73", "198.18.8.1")
    assert (last.machine_address, str(last.engine_subnet)) == ("198.18.9.64", "198.18.15.240/28")
    assert last.instance_mac == "02:74:61:72:65:40"
    assert replace(last, level=2).instance_address == "198.18.8.201"


def test_no_two_instances_share_an_address_or_a_name(network: Network) -> None:
    places = list(_places(network))
    instances = [place.instance_address for place in places]
    machines = [place.machine_address for place in places if place.level == 0]
    engines = [str(address) for slot in range(SLOTS) for address in network.with_slot(slot).engine_subnet]
    others = [network.gateway, network.client_address, str(network.subnet.broadcast_address)]
    everything = [*instances, *machines, *engines, *others]
    assert len(set(everything)) == len(everything) == 3 * 64 + 64 + 1024 + 3
    assert all(ipaddress.IPv4Address(each) in network.subnet.supernet(new_prefix=21) for each in everything)
    assert all(ipaddress.IPv4Address(each) in network.subnet for each in (*instances, *others))
    assert len({place.instance_mac for place in places}) == len(places)
    names = [network.with_slot(slot).device(kind) for slot in range(SLOTS) for kind in KINDS]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) == 15


def test_a_nested_machine_publishes_ports_at_the_address_of_its_instance(network: Network) -> None:
    for slot in (0, 5, 63):
        outer = network.with_slot(slot)
        inner = replace(outer, level=1)
        assert inner.machine_address == outer.instance_address
        assert inner.engine_subnet == outer.engine_subnet


def test_a_stack_that_is_too_deep_for_its_slot_is_refused(network: Network) -> None:
    assert replace(network.with_slot(51), level=3).instance_address == "198.18.8.253"
    with pytest.raises(TrialFailed, match="no address for layer 4 of the stack in slot 52"):
        _ = replace(network.with_slot(52), level=3).instance_address


@pytest.mark.parametrize("slot", [-1, 64])
def test_there_are_64_slots(network: Network, slot: int) -> None:
    with pytest.raises(TareError, match=f"no slot {slot}: a network has 64"):
        network.with_slot(slot)


def test_instances_that_start_in_the_same_millisecond_have_unique_names(network: Network) -> None:
    names = [create_instance_name(network.with_slot(slot)) for slot in range(SLOTS)]
    assert len(set(names)) == 64
    # Podman's firewall rules are found by a prefix of a name, so no name may be the prefix of another.
    assert not any(other.startswith(name) for name in names for other in names if other != name)
    assert all(len(name) <= 40 for name in names)


def test_an_image_whose_address_is_built_in_has_the_first_slot() -> None:
    stacks: dict[str, tuple[Technology, ...]] = {
        "native": (Native(),),
        "old": (Nanos(),),
        "crun": (Crun(),),
        "new": (Nanos(image="/other"),),
    }
    assert assign_slots(stacks) == {"new": 0, "old": 1, "native": 2, "crun": 3}
    in_another_order = dict(reversed(stacks.items()))
    assert assign_slots(in_another_order) == {"new": 0, "old": 1, "crun": 2, "native": 3}
    assert assign_slots({"crun": (Crun(),), "native": (Native(),)}) == {"crun": 0, "native": 1}


# --- the search for a run's subnet, in the output of `ip -json -4 route` ---------------------------------------------

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
    assert str(_find_free_subnet(_read_networks(MACHINE))) == "198.18.8.0/24"


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
    assert str(_find_free_subnet(_networks(*taken))) == subnet


def test_a_machine_with_routes_to_all_subnets_gets_the_hint_to_clean() -> None:
    taken = _networks(*(f"198.{second}.{third}.0/24" for second in (18, 19) for third in range(256)))
    with pytest.raises(TareError, match=r"no free subnet left in 198\.18\.0\.0/15") as caught:
        _find_free_subnet(taken)
    assert caught.value.hint == "remove the leftovers of killed runs: tare clean"


@pytest.mark.parametrize("network", ["198.18.0.0/15", "198.0.0.0/8"])
def test_a_route_that_covers_all_subnets_is_named(network: str) -> None:
    with pytest.raises(TareError) as caught:
        _find_free_subnet(_networks(network))
    assert str(caught.value) == f"no subnet of 198.18.0.0/15 is free: there is a route to {network}"
    assert caught.value.hint == f"remove the route if it is not needed: ip route delete {network}"


def _networks(*names: str) -> list[IPv4Network]:
    return _read_networks(json.dumps([{"dst": name} for name in names]))
