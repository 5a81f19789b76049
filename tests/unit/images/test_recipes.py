"""Tests of recipes: the packages of an image are the union of those that the suite's plug-ins declare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from plain import Plain

from plug_ins import own
from tare.images.foreign_images import find_missing_in_trees
from tare.images.recipes import (
    CLIENT_PACKAGES,
    GUEST_PACKAGES,
    MACHINE_PACKAGES,
    client_recipe,
    guest_recipe,
    machine_recipe,
)
from tare.plugins import registry
from tare.workloads.bonnie import Bonnie
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.nginx import Nginx
from tare.workloads.redis import Redis


@dataclass(frozen=True)
class Dns(Plain):
    packages: ClassVar[tuple[str, ...]] = ("bind9",)
    client_packages: ClassVar[tuple[str, ...]] = ("dnsperf",)


@dataclass(frozen=True)
class DnsWithAnotherLoad(Dns):
    client_packages: ClassVar[tuple[str, ...]] = ("knot-dnsutils",)


@dataclass(frozen=True)
class Writing(Dns):
    most_bytes: int = 0

    @property
    def disk_bytes(self) -> int:
        return self.most_bytes


def test_the_image_has_only_the_programs_of_the_workloads_of_a_suite() -> None:
    assert guest_recipe([Dhrystone()]).packages == tuple(sorted(GUEST_PACKAGES))
    assert set(guest_recipe([Redis(), Dns()]).packages) == {*GUEST_PACKAGES, "redis-server", "bind9"}


def test_the_client_root_has_their_loads_and_nothing_boots_it() -> None:
    recipe = client_recipe([Redis(), Nginx(), Dns()])
    assert {*CLIENT_PACKAGES, "redis-tools", "wrk", "dnsperf"} <= set(recipe.packages)
    assert (recipe.kernel, recipe.server) == ("", False)


def test_all_suites_of_usual_workloads_share_one_client_root() -> None:
    assert client_recipe([Redis(), Nginx()]).key == client_recipe([Dhrystone()]).key == client_recipe().key


def test_the_order_of_workloads_makes_no_other_image() -> None:
    assert guest_recipe([Redis(), Dns()]).key == guest_recipe([Dns(), Redis()]).key


def test_another_load_generator_changes_the_client_root_but_not_the_image() -> None:
    assert guest_recipe([Dns()]) == guest_recipe([DnsWithAnotherLoad()])
    assert client_recipe([Dns()]).key != client_recipe([DnsWithAnotherLoad()]).key


def test_without_a_suite_images_serve_all_workloads_except_large_packages() -> None:
    workloads = [found() for found in own("workloads").values()]
    usual = [workload for workload in workloads if not workload.has_large_packages]
    assert guest_recipe() == guest_recipe(usual)
    assert client_recipe(usual) == client_recipe()
    assert "kernel-build" in {workload.name for workload in workloads} - {workload.name for workload in usual}
    assert "linux-source" not in guest_recipe().packages


def test_the_disk_has_room_for_packages_and_the_workload_that_writes_most() -> None:
    gib = 1 << 30
    usual, large = guest_recipe([Redis()]), guest_recipe([Redis(), Writing(4 * gib), Writing(3 * gib)])
    assert (usual.room_bytes, large.room_bytes) == (gib, 4 * gib)
    assert usual.disk_bytes(installed_bytes=350_000_000) == 2 * gib
    assert large.disk_bytes(installed_bytes=700_000_000) == 6 * gib  # 1.1 * 4.65
    assert usual.key != large.key


def test_a_machine_has_the_technologies_that_can_be_in_it() -> None:
    found = {name: each() for name, each in own("technologies").items()}
    recipe = machine_recipe([found["docker"], found["native"]])
    assert set(recipe.packages) == {*MACHINE_PACKAGES, "docker.io", "iptables", "iproute2", "util-linux"}
    assert machine_recipe(found.values()) == machine_recipe()
    assert {"lxd", "podman", "containernetworking-plugins", "qemu-system-x86"} <= set(machine_recipe().packages)
    assert not {"ovmf", "libvirt-daemon-system", "user-mode-linux"} & set(machine_recipe().packages)


def test_a_plugin_that_is_broken_leaves_the_images_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = guest_recipe()
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tare.workloads]\nbroken = no_such_module:Broken\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "broken" in registry.names("workloads")
    assert guest_recipe() == before


# --- lookup of a program in an image, as in an engine; nothing outside of the image counts ---------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image as Debian's are: /bin is a link, and alternatives are links of links."""
    root = tmp_path / "root"
    for folder in ("usr/bin", "usr/local/bin", "etc/alternatives", "opt/app"):
        (root / folder).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    for name in ("usr/bin/sysbench", "usr/bin/mawk", "opt/app/bench"):
        (root / name).write_text("")
        (root / name).chmod(0o755)
    (root / "etc/alternatives/awk").symlink_to("/usr/bin/mawk")
    (root / "usr/bin/awk").symlink_to("/etc/alternatives/awk")
    (root / "usr/bin/notes").write_text("no program")
    (root / "usr/bin/folder").mkdir(mode=0o755)
    (root / "usr/bin/self").symlink_to("self")
    (root / "usr/bin/gone").symlink_to("/usr/bin/nothing")
    (root / "usr/local/bin/up").symlink_to("../../../../../../../../bin/sysbench")
    (root / "usr/bin/outside").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text("")
    (tmp_path / "outside").chmod(0o755)
    return root


@pytest.mark.parametrize("program", ["sysbench", "awk", "up", "/bin/sysbench", "/opt/app/bench", "opt/app/bench"])
def test_a_program_of_the_image_is_found(root: Path, program: str) -> None:
    assert find_missing_in_trees([root], [program]) == []


@pytest.mark.parametrize(
    "program",
    [
        *("bench", "notes", "folder", "self", "gone", "outside", "/usr/bin/nothing", "/opt/app", "/", "..", "."),
        *(300 * "x", f"/{300 * 'x'}/x"),
    ],
)
def test_what_an_engine_would_not_start_is_missing(root: Path, program: str) -> None:
    (fault,) = find_missing_in_trees([root], [program])
    assert fault.message == f"{program}: the image has no such program"


def test_each_missing_program_is_said_once_with_what_helps(root: Path) -> None:
    package = 'give the Debian package that has it: --package P, or packages = ["…"] in a suite'
    faults = find_missing_in_trees([root], ["sysbenhc", "fio", "fio", "sysbench cpu run", "/opt/app/bnech"])
    assert [fault.hint for fault in faults] == [
        f'did you mean "sysbench"? or {package}',
        package,
        "it is one word with spaces: leave out its quotes, or write sh -c 'sysbench cpu run'",
        f'did you mean "/opt/app/bench"? or {package}',
    ]


def test_the_disk_of_a_guest_has_room_for_the_files_of_the_paper() -> None:
    assert guest_recipe([Bonnie(memory=16_000 << 20, files=2500)]).disk_bytes(400 << 20) > 32_000 << 20
