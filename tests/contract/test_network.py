"""The network of a run: who reaches whom, on which addresses, and that nothing of it stays."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from calls import NothingLeft
from waiting import ENOUGH_SECONDS as SECONDS

from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.network import Network, create_local_network
from tare.model.errors import TrialFailed

pytestmark = pytest.mark.machine

HOST = LocalHost()
LARGEST_PID = 4194304  # of Linux on 64 bits, seven digits


@pytest.fixture
def network(ledger: Ledger, nothing_left: NothingLeft) -> Iterator[Network]:
    """A network whose names are as long as names get; nothing of it is left after the test."""
    with nothing_left(), create_local_network(ledger, f"tare-{LARGEST_PID:x}") as found:
        yield found


def test_every_part_of_the_network_can_be_made_under_the_longest_name(network: Network) -> None:
    network = network.with_slot(63)
    bridge = network.device("b")
    with ExitStack() as stack:
        stack.enter_context(network.create_tap())
        stack.enter_context(network.create_namespace())
        stack.enter_context(network.ledger.register_undo("ip", "link", "delete", bridge))
        stack.enter_context(network.connect_client(bridge))
        names = {*_links(), *_links(network.lan), *_links(network.client_namespace)}
    made = {name for name in names if name.startswith(network.prefix)}
    assert made == {"tare-400000-m", *(f"tare-400000-{part}63" for part in "tieb")}


def test_the_client_reaches_the_instance_and_the_machine(network: Network) -> None:
    with network.create_namespace() as inside:
        assert _answers(network.client_namespace, network.instance_address)
        assert _answers(network.client_namespace, network.machine_address)
        assert _answers(inside, network.client_address)


def test_the_client_has_one_link_and_knows_no_way_but_over_it(network: Network) -> None:
    subnet, machine = network.subnet, network.gateway
    assert sorted(_links(network.client_namespace)) == ["eth0", "lo"]
    routes = json.loads(_said("ip", "-n", network.client_namespace, "-json", "route"))
    ways = [(route["dst"], route["dev"], route.get("gateway", "")) for route in routes]
    assert ways == [("default", "eth0", machine), (str(subnet), "eth0", "")]


def test_the_network_of_an_instance_is_gone_with_it(network: Network) -> None:
    with network.create_namespace():
        assert _answers(network.client_namespace, network.instance_address)
    assert not _answers(network.client_namespace, network.instance_address)
    with network.create_namespace():
        assert _answers(network.client_namespace, network.instance_address)


def test_the_instance_has_the_same_hardware_address_every_time(network: Network) -> None:
    with network.create_namespace() as inside:
        assert (
            json.loads(_said("ip", "-n", inside, "-json", "link", "show", "eth0"))[0]["address"] == "02:74:61:72:65:01"
        )


def test_two_networks_at_a_time_have_different_subnets(network: Network, ledger: Ledger) -> None:
    with create_local_network(ledger, "tare-400001") as other:
        assert not network.subnet.overlaps(other.subnet)
        assert not network.engine_subnet.overlaps(other.subnet)
        assert not network.engine_subnet.overlaps(other.engine_subnet)


def test_two_networks_that_begin_at_one_moment_have_different_subnets(
    network: Network, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has read the routes before the other added its own: what decides is the kernel."""
    monkeypatch.setattr("tare.hosts.subnet.routed_networks", lambda _host: [])
    with create_local_network(ledger, "tare-400001") as second, create_local_network(ledger, "tare-400002") as third:
        assert len({network.subnet, second.subnet, third.subnet}) == 3
        assert not network.engine_subnet.overlaps(second.engine_subnet)


@pytest.fixture
def neighbor() -> Iterator[str]:
    """A namespace like another machine on this one's network, which has a route to all addresses over this one."""
    name = f"neighbor-{os.getpid():x}"
    HOST.run("ip", "netns", "add", name, timeout=SECONDS)
    try:
        card = f"n{os.getpid():x}"
        for words in (
            f"link add {card} type veth peer name eth0 netns {name}",
            f"addr add 203.0.113.1/30 dev {card}",
            f"link set {card} up",
            f"-n {name} addr add 203.0.113.2/30 dev eth0",
            f"-n {name} link set eth0 up",
            f"-n {name} route add default via 203.0.113.1",
        ):
            HOST.run("ip", *words.split(), timeout=SECONDS)
        yield name
    finally:
        HOST.run("ip", "netns", "delete", name, timeout=SECONDS)


def test_a_neighbor_with_a_route_reaches_nothing_of_a_run(
    neighbor: str, ledger: Ledger, nothing_left: NothingLeft
) -> None:
    assert _answers(neighbor, "203.0.113.1")
    with nothing_left(), create_local_network(ledger, "tare-closed") as network, network.create_namespace():
        for address in (network.gateway, network.machine_address, network.instance_address):
            assert _answers(network.client_namespace, address)
            assert not _answers(neighbor, address)
        HOST.run("nft", "flush", "table", "netdev", "tare-closed", timeout=SECONDS)
        assert _answers(neighbor, network.machine_address), "there was no way to it anyway"


def test_a_network_that_cannot_be_completed_leaves_nothing(ledger: Ledger, nothing_left: NothingLeft) -> None:
    prefix = "tare-much-too-long"
    with nothing_left():
        with pytest.raises(TrialFailed, match="exit code"), create_local_network(ledger, prefix):
            pytest.fail("a link cannot have this name")
        assert not ledger.path.exists()


def _answers(namespace: str, address: str) -> bool:
    """Return whether a TCP connection to a closed port is refused, which only somebody who is there does."""
    script = f"import socket; socket.create_connection(({address!r}, 9), 1)"
    output = HOST.run("ip", "netns", "exec", namespace, "python3", "-c", script, timeout=SECONDS, check=False)
    return b"ConnectionRefusedError" in output.stderr


def _links(namespace: str | None = None) -> list[str]:
    select = ("-n", namespace) if namespace else ()
    return [link["ifname"] for link in json.loads(_said("ip", *select, "-json", "link"))]


def _said(*argv: str) -> str:
    return HOST.run(*argv, timeout=SECONDS).text
