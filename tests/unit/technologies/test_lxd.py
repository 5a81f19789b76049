"""LXD's technology drives Incus by the same file: a stand-in named `incus` checks its options, and keeps state."""

from __future__ import annotations

import ipaddress
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tare.guests import boot_media, monitors
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.network import Network
from tare.hosts.process import LocalProcess
from tare.model.errors import TrialFailed
from tare.model.image import Image
from tare.model.trial import Limits, Output, Problem
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.technology import LaunchRequest
from tare.technologies.lxd import Lxd, package_of_client
from tare.technologies.lxd_vm import LxdVm, machine_settings

INCUS = (Path(__file__).parents[2] / "stand_ins/incus").read_text(encoding="utf-8")
QUIET = "#!/bin/sh\n"
SAYS = "#!/bin/sh\necho '{}'\n"
TOOLS = ("cat", "echo", "env", "mktemp", "rm", "sh", "sleep", "tar", "uname")
ALIAS = "tare-image-0123456789abcdef"
NOTHING_LEFT = {"images": [ALIAS], "pools": [], "volumes": [], "instances": {}, "busy": 0}


class WithIncus(LocalHost):
    """This machine as root of it would see it, with Incus as its only client, and without touching its network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = ("/usr/bin/env", f"PATH={folder}")

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        return super().run(*self._prefix, *argv, timeout=timeout, input=input, check=check)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[LocalProcess]:
        return super().spawn(*self._prefix, *argv, die_with_parent=die_with_parent)

    @property
    def state(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / "state.json").read_text(encoding="utf-8"))
        return found

    @property
    def asked_of_ip(self) -> list[str]:
        return (self.folder / "ip.log").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def host(tmp_path: Path) -> WithIncus:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
    programs = {
        "incus": f"#!{sys.executable}\n{INCUS}",
        "ip": f'#!/bin/sh\necho "ip $*" >> {folder}/ip.log\n',
        "id": SAYS.format("0"),
        "du": SAYS.format("4096\t/"),
        "sync": QUIET,
    }
    for name, text in programs.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    return WithIncus(folder)


Start = Callable[[], AbstractContextManager[Instance]]


@pytest.fixture
def launch(host: WithIncus, tmp_path: Path) -> LaunchRequest:
    """Describe an instance."""
    ledger = Ledger(tmp_path / "ledger/tare-test.jsonl", host)
    archive = tmp_path / "root.tar"
    archive.write_text("the archive", encoding="utf-8")
    image = Image("0123456789abcdef" * 4, tmp_path, archive, tmp_path, tmp_path, tmp_path, "")
    return LaunchRequest(
        name="tare-1-a",
        image=image,
        limits=Limits((1, 3), 512 << 20, 4096),
        network=Network("tare-1", ipaddress.IPv4Network("198.18.0.0/24"), ledger),
        ports=(17007,),
        folder=tmp_path / "tare-1-a",
        ledger=ledger,
        start_probe=lambda address, port=None: None,  # noqa: ARG005 - nobody answers
    )


@pytest.fixture
def start(host: WithIncus, launch: LaunchRequest) -> Start:
    """Start an instance on the stand-in."""

    @contextmanager
    def started() -> Iterator[Instance]:
        with Lxd().launch(host, replace(launch)) as instance:
            yield instance
        assert not launch.ledger.path.exists()

    return started


def test_an_instance_of_incus_is_started_entered_and_removed(host: WithIncus, start: Start) -> None:
    with start() as instance:
        assert instance.inside is not None
        assert instance.inside.run("echo", "hello", timeout=60).text == "hello\n"
        assert instance.proof["incus"] == "6.0.4"
        assert instance.proof["liblxc"] == "6.0.4"
        assert instance.address == "198.18.0.10"
        assert set(host.state["instances"]) == {"tare-1-a"}  # type: ignore[call-overload]
    assert host.state == NOTHING_LEFT


def test_the_container_gets_its_limits_its_card_and_its_first_process(host: WithIncus, start: Start) -> None:
    with start():
        settings = host.state["instances"]["tare-1-a"]  # type: ignore[index]
    assert settings["config"] == {
        "linux.sysctl.net.ipv4.ip_unprivileged_port_start": "0",
        "security.guestapi": "false",
        "limits.cpu": "1-1,3-3",
        "limits.memory": "536870912",
        "limits.kernel.nofile": "4096:4096",
        "raw.lxc": "lxc.uts.name = tare\n"
        "lxc.init.cmd = /usr/lib/tare/init 0.0.0.0:17007\n"
        "lxc.net.0.ipv4.address = 198.18.0.10/24 198.18.0.255\n"
        "lxc.net.0.ipv4.gateway = 198.18.0.1\n"
        "lxc.mount.entry = tmpfs dev/shm tmpfs nosuid,nodev,noexec,mode=1777,size=65536k,create=dir 0 0\n"
        "lxc.mount.entry = mqueue dev/mqueue mqueue nosuid,nodev,noexec,create=dir 0 0\n",
    }
    assert settings["devices"] == {
        "root": {"type": "disk", "path": "/", "pool": "tare-1-a"},
        "eth0": {
            "type": "nic",
            "nictype": "physical",
            "parent": "tare-1-c00",
            "name": "eth0",
            "hwaddr": "02:74:61:72:65:01",
        },
    }
    assert host.asked_of_ip == [
        "ip link add tare-1-c00 type veth peer name tare-1-d00 netns tare-1-lan",
        "ip -n tare-1-lan link set tare-1-d00 master bridge up",
        "ip -n tare-1-lan link delete tare-1-d00",
    ]


def test_a_data_volume_is_in_a_separate_pool_and_leaves_nothing(host: WithIncus, launch: LaunchRequest) -> None:
    with Lxd().launch(host, replace(launch, volume_bytes=1 << 20)):
        devices = host.state["instances"]["tare-1-a"]["devices"]  # type: ignore[index]
        assert devices["volume"] == {"type": "disk", "path": VOLUME, "pool": "tare-1-a", "source": "volume"}
        assert host.state["volumes"] == ["tare-1-a"]
    assert host.state == NOTHING_LEFT


def test_nothing_is_left_of_a_data_volume_instance_that_fails_to_start(host: WithIncus, launch: LaunchRequest) -> None:
    (host.folder / "broken").touch()
    with pytest.raises(TrialFailed, match="forkstart"), Lxd().launch(host, replace(launch, volume_bytes=1 << 20)):
        pytest.fail("it cannot start")
    assert host.state == NOTHING_LEFT


def test_the_image_is_imported_once(host: WithIncus, start: Start) -> None:
    for _ in range(2):
        with start():
            pass
    assert host.state["images"] == [ALIAS]


def test_an_instance_still_being_created_is_removed_as_soon_as_possible(host: WithIncus, start: Start) -> None:
    with start():
        (host.folder / "state.json").write_text(json.dumps(host.state | {"busy": 3}), encoding="utf-8")
    assert host.state == NOTHING_LEFT


def test_an_instance_is_removed_once_its_daemon_answers_again(host: WithIncus, start: Start) -> None:
    back = threading.Timer(1, (host.folder / "down").unlink)
    with start():
        (host.folder / "down").touch()
        back.start()
    assert host.state == NOTHING_LEFT


def test_incus_says_that_it_is_incus(host: WithIncus) -> None:
    assert Lxd().version(host) == "Incus 6.0.4"
    assert list(Lxd().problems(host)) == []


def test_an_incus_without_its_daemon_reports_it(host: WithIncus) -> None:
    (host.folder / "down").touch()
    what = "no daemon: The incus daemon doesn't appear to be started"
    assert list(Lxd().problems(host)) == [Problem(what, "systemctl start incus")]


def test_without_a_client_the_package_of_this_debian_is_to_be_installed(host: WithIncus) -> None:
    (host.folder / "incus").unlink()
    assert list(Lxd().problems(host)) == [Problem.from_packages("lxc is not installed", package_of_client(host))]
    assert Lxd().version(host) == ""


def test_a_machine_gets_its_limits_its_card_and_the_cd_that_boots_it(launch: LaunchRequest) -> None:
    found = machine_settings(launch, "/cd.iso", "/serial")
    assert found["config"]["limits.cpu"] == "1-1,3-3"
    assert found["config"]["limits.memory"] == "536870912"
    assert found["config"]["raw.qemu"] == "-serial file:/serial"
    assert found["devices"] == {
        "root": {"type": "disk", "path": "/", "pool": "tare-1-a"},
        "boot": {"type": "disk", "source": "/cd.iso", "boot.priority": "10"},
        "eth0": {
            "type": "nic",
            "nictype": "p2p",
            "host_name": "tare-1-t00",
            "name": "eth0",
            "hwaddr": "02:74:61:72:65:01",
        },
    }


def test_a_daemon_without_a_driver_for_machines_reports_it(host: WithIncus) -> None:
    for tool in {*boot_media.EFI_TOOLS, *monitors.KVM_TOOLS} - {"ip"}:
        (host.folder / tool).symlink_to("/bin/true")
    (host.folder / "test").symlink_to("/usr/bin/test")  # the files of the boot loader are this machine's
    (host.folder / "no-qemu").touch()
    (problem,) = LxdVm().problems(host)
    assert problem.what == "the daemon cannot run virtual machines: its driver of QEMU does not work"
    assert "ovmf" in problem.fix
