"""Podman: what is read from its files instead of asked, and which ports it publishes as Docker does."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tare.hosts.ledger import Ledger, leftovers
from tare.hosts.local import LocalHost
from tare.hosts.network import Network
from tare.model.trial import Image, Limits, Output
from tare.plugins.technology import LaunchRequest
from tare.technologies.docker import Docker
from tare.technologies.podman import Podman

# As Podman 4.3 with CNI and Podman 5 with netavark write them, shortened.
CNI = '{"cniVersion": "0.4.0", "plugins": [{"type": "bridge", "bridge": "cni-podman1", "isGateway": true}]}'
NETAVARK = '{"name": "tare-1", "driver": "bridge", "network_interface": "podman1", "subnets": []}'


@dataclass
class Described(LocalHost):
    """A host on which Podman describes its networks so."""

    files: dict[str, str]
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        self.calls.append(argv)
        return Output(argv, 0, b"asked\n", b"", timeout)

    def read(self, path: str) -> str:
        return self.files.get(path, "")


def _launch(folder: Path) -> LaunchRequest:
    ledger = Ledger(folder / "ledger" / "tare-1.jsonl")
    network = Network("tare-1", ipaddress.IPv4Network("198.18.0.0/24"), ledger)
    image = Image("ab" * 32, folder, folder, folder, folder, folder, "")
    return LaunchRequest("tare-1", image, Limits((0,), 1 << 29, 4096), network, (), folder, ledger, lambda *_: None)


@pytest.mark.parametrize(("datagrams", "kinds"), [(False, ["17007", "16379"]), (True, ["17007", "16379", "16379/udp"])])
def test_the_port_of_a_server_that_takes_datagrams_is_published_for_them_too(
    tmp_path: Path, datagrams: bool, kinds: list[str]
) -> None:
    launch = replace(_launch(tmp_path), ports=(17007, 16379), datagrams=datagrams)
    for engine in (Docker(), Podman()):
        published = [option for option in engine._addresses(launch) if option.startswith("--publish=")]
        assert [option.rpartition(":")[2] for option in published] == kinds


@pytest.mark.parametrize(
    ("path", "text", "bridge"),
    [
        ("/etc/cni/net.d/tare-1.conflist", CNI, "cni-podman1"),
        ("/etc/containers/networks/tare-1.json", NETAVARK, "podman1"),
        ("/somewhere/else", CNI, "asked"),
    ],
)
def test_the_bridge_is_read_from_the_networks_file_or_asked_for(
    tmp_path: Path, path: str, text: str, bridge: str
) -> None:
    host = Described({path: text})
    assert Podman().bridge(host, _launch(tmp_path), "tare-1") == bridge
    assert [call[2] for call in host.calls] == (["create", "inspect"] if bridge == "asked" else ["create"])


def test_the_version_and_the_image_are_asked_for_once_in_a_run(tmp_path: Path) -> None:
    host, launch = Described({}), _launch(tmp_path)
    assert [launch.version(Podman(), host) for _ in range(3)] == ["asked"] * 3
    for _ in range(3):
        launch.imported(Podman(), host)
    assert host.calls == [
        ("podman", "--version"),
        ("podman", "image", "inspect", "tare-image:abababababababab"),
    ]


class Lacking(Described):
    """A host whose engine does not have the image yet."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        output = super().run(*argv, timeout=timeout, input=input, check=check)
        return replace(output, exit_code=1) if argv[1:3] == ("image", "inspect") else output


def test_what_the_engine_wrote_is_read_anew_from_the_disk_as_what_tare_wrote_is(tmp_path: Path) -> None:
    host, launch = Lacking({}), _launch(tmp_path)
    launch.imported(Podman(), host)
    assert [call[1] for call in host.calls[:2]] == ["image", "import"]
    assert "drop_caches" in host.calls[2][-1]


def test_a_container_is_run_from_the_instances_folder_where_conmon_may_write(tmp_path: Path) -> None:
    launch = replace(_launch(tmp_path), folder=tmp_path / "instances" / "tare-1-00")
    command = Podman()._command(Described({}), launch)
    assert command[:4] == ("env", f"--chdir={launch.folder}", "podman", "run")


def test_what_docker_drops_is_accepted_both_ways_over_nat_and_each_rule_is_undone(tmp_path: Path) -> None:
    host, launch = Described({"/etc/containers/networks/tare-1-podman.json": NETAVARK}), _launch(tmp_path)
    rules = [("FORWARD", "-i", "tare-1-m"), ("FORWARD", "-i", "podman1", "-o", "tare-1-m")]
    answers = ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
    named = ("-m", "comment", "--comment", "tare-1-podman", "-j", "ACCEPT")
    wanted = [(*rules[0], *named), (*rules[1], *answers, *named)]
    with launch.cache:
        with Podman()._network(host, launch):
            pass
        assert [call[3:] for call in host.calls if call[:3] == ("iptables", "-w", "-I")] == wanted
        (left,) = leftovers(launch.ledger.path.parent).values()
        assert [entry[3:] for entry in left.entries if entry[:3] == ("iptables", "-w", "-D")] == wanted[::-1]
    assert leftovers(launch.ledger.path.parent) == {}


def test_containers_over_nat_share_one_network_of_the_run(tmp_path: Path) -> None:
    host, launch = Described({}), _launch(tmp_path)
    with launch.cache:
        for slot in (0, 5):
            with Podman()._network(host, replace(launch, network=launch.network.at(slot))) as address:
                assert address == f"198.18.1.{1 + slot}"
    created = [call for call in host.calls if call[:3] == ("podman", "network", "create")]
    assert created == [("podman", "network", "create", "--disable-dns", "--subnet=198.18.2.0/24", "tare-1-podman")]


def test_on_its_own_bridge_a_container_is_accepted_both_ways_by_one_rule(tmp_path: Path) -> None:
    network = Network("tare-1", ipaddress.IPv4Network("198.18.0.0/24"), Ledger(tmp_path / "ledger.jsonl"))
    assert Podman(network="bridge")._forwarded(network, "podman1") == (("-i", "podman1"),)
