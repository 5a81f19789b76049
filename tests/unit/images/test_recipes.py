"""What is in the images is the union of what the plug-ins of a suite declare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from plain import Plain

from plug_ins import own
from tare import plugins
from tare.images.recipes import CLIENT, GUEST, MACHINE, client_recipe, guest_recipe, machine_recipe
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


def test_the_image_has_what_the_workloads_of_a_suite_run_and_nothing_of_others() -> None:
    assert guest_recipe([Dhrystone()]).packages == tuple(sorted(GUEST))
    assert set(guest_recipe([Redis(), Dns()]).packages) == {*GUEST, "redis-server", "bind9"}


def test_the_client_root_has_their_loads_and_nothing_boots_it() -> None:
    recipe = client_recipe([Redis(), Nginx(), Dns()])
    assert {*CLIENT, "redis-tools", "wrk", "dnsperf"} <= set(recipe.packages)
    assert (recipe.kernel, recipe.server) == ("", False)


def test_all_suites_of_usual_workloads_share_one_client_root() -> None:
    assert client_recipe([Redis(), Nginx()]).key == client_recipe([Dhrystone()]).key == client_recipe().key


def test_the_order_of_workloads_makes_no_other_image() -> None:
    assert guest_recipe([Redis(), Dns()]).key == guest_recipe([Dns(), Redis()]).key


def test_another_load_generator_makes_another_client_root_but_the_same_image() -> None:
    assert guest_recipe([Dns()]) == guest_recipe([DnsWithAnotherLoad()])
    assert client_recipe([Dns()]).key != client_recipe([DnsWithAnotherLoad()]).key


def test_without_a_suite_the_images_are_for_all_workloads_but_those_with_large_packages() -> None:
    workloads = [found() for found in own("workloads").values()]
    usual = [workload for workload in workloads if not workload.large_packages]
    assert guest_recipe() == guest_recipe(usual)
    assert client_recipe(usual) == client_recipe()
    assert "kernel-build" in {workload.name for workload in workloads} - {workload.name for workload in usual}
    assert "linux-source" not in guest_recipe().packages


def test_the_disk_has_room_for_what_is_installed_and_for_the_workload_that_writes_most() -> None:
    gib = 1 << 30
    usual, large = guest_recipe([Redis()]), guest_recipe([Redis(), Writing(4 * gib), Writing(3 * gib)])
    assert (usual.room_bytes, large.room_bytes) == (gib, 4 * gib)
    assert usual.disk_bytes(installed_bytes=350_000_000) == 2 * gib
    assert large.disk_bytes(installed_bytes=700_000_000) == 6 * gib  # 1.1 * 4.65
    assert usual.key != large.key


def test_a_machine_has_the_technologies_that_can_be_in_it() -> None:
    found = {name: each() for name, each in own("technologies").items()}
    recipe = machine_recipe([found["docker"], found["native"]])
    assert set(recipe.packages) == {*MACHINE, "docker.io", "iptables", "iproute2", "util-linux"}
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
    assert "broken" in plugins.names("workloads")
    assert guest_recipe() == before
