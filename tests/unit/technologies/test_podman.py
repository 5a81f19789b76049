"""Podman: what is read from its files instead of asked, and which ports it publishes as Docker does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fakes import launch_at

from tare.hosts.ledger import Ledger, read_pending_undos
from tare.hosts.local import LocalHost
from tare.model.trial import Output
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


@pytest.fixture
def launch(tmp_path: Path) -> LaunchRequest:
    return launch_at(tmp_path, "tare-1")


@pytest.mark.parametrize(("datagrams", "kinds"), [(False, ["17007", "16379"]), (True, ["17007", "16379", "16379/udp"])])
def test_the_port_of_a_datagram_server_is_also_published_for_udp(
    launch: LaunchRequest, datagrams: bool, kinds: list[str]
) -> None:
    both = replace(launch, ports=(17007, 16379), uses_udp=datagrams)
    for engine in (Docker(), Podman()):
        published = [option for option in engine._address_options(both) if option.startswith("--publish=")]
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
    launch: LaunchRequest, path: str, text: str, bridge: str
) -> None:
    host = Described({path: text})
    assert Podman().create_bridge(host, launch, "tare-1") == bridge
    assert [call[2] for call in host.calls] == (["create", "inspect"] if bridge == "asked" else ["create"])


def test_the_version_and_the_image_are_asked_for_once_in_a_run(launch: LaunchRequest) -> None:
    host = Described({})
    assert [launch.version(Podman(), host) for _ in range(3)] == ["asked"] * 3
    for _ in range(3):
        launch.prepare_image(Podman(), host)
    assert host.calls == [
        ("podman", "--version"),
        ("podman", "image", "inspect", "tare-image:0000000000000000"),
    ]


class Lacking(Described):
    """A host whose engine does not have the image yet."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        output = super().run(*argv, timeout=timeout, input=input, check=check)
        return replace(output, exit_code=1) if argv[1:3] == ("image", "inspect") else output


def test_files_written_by_the_engine_are_reread_from_disk_like_others(launch: LaunchRequest) -> None:
    host = Lacking({})
    launch.prepare_image(Podman(), host)
    assert [call[1] for call in host.calls[:2]] == ["image", "import"]
    assert "drop_caches" in host.calls[2][-1]


def test_a_container_runs_from_the_instance_folder_where_conmon_may_write(launch: LaunchRequest) -> None:
    command = Podman()._command(Described({}), launch)
    assert command[:4] == ("env", f"--chdir={launch.folder}", "podman", "run")


def test_nat_traffic_that_docker_drops_is_accepted_and_rules_are_undone(launch: LaunchRequest, tmp_path: Path) -> None:
    launch = replace(launch, ledger=Ledger(tmp_path / "ledgers" / "tare-1.jsonl"))
    host = Described({"/etc/containers/networks/tare-1-podman.json": NETAVARK})
    rules = [("FORWARD", "-i", "tare-1-m"), ("FORWARD", "-i", "podman1", "-o", "tare-1-m")]
    answers = ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
    named = ("-m", "comment", "--comment", "tare-1-podman", "-j", "ACCEPT")
    wanted = [(*rules[0], *named), (*rules[1], *answers, *named)]
    with launch.cache:
        with Podman()._create_network(host, launch):
            pass
        assert [call[3:] for call in host.calls if call[:3] == ("iptables", "-w", "-I")] == wanted
        (left,) = read_pending_undos(launch.ledger.path.parent).values()
        assert [entry[3:] for entry in left.entries if entry[:3] == ("iptables", "-w", "-D")] == wanted[::-1]
    assert read_pending_undos(launch.ledger.path.parent) == {}


def test_containers_over_nat_share_one_network_of_the_run(launch: LaunchRequest) -> None:
    host = Described({})
    with launch.cache:
        for slot in (0, 5):
            with Podman()._create_network(host, replace(launch, network=launch.network.with_slot(slot))) as address:
                assert address == f"198.18.1.{1 + slot}"
    created = [call for call in host.calls if call[:3] == ("podman", "network", "create")]
    assert created == [("podman", "network", "create", "--disable-dns", "--subnet=198.18.2.0/24", "tare-1-podman")]


def test_on_its_own_bridge_a_container_is_accepted_both_ways_by_one_rule(launch: LaunchRequest) -> None:
    assert Podman(network="bridge")._forwarded_packets(launch.network, "podman1") == (("-i", "podman1"),)
