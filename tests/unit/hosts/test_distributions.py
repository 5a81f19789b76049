"""Tests of the packages of other distributions, and of the check for tare's tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from documents import DOCS, section
from tare_fake.technology import FakeHost

from plug_ins import own
from tare.hosts import distributions
from tare.hosts.distributions import (
    _TARE_TOOLS,
    _load_distributions,
    distribution_of,
    find_missing_tools,
    localize_problems,
    require_tools,
)
from tare.hosts.local import LocalHost
from tare.images.build_environment import PACKAGES
from tare.images.micro import LINUX, SOLO5
from tare.images.skopeo import TOOLS
from tare.model.architecture import ARM64
from tare.model.trial import Problem


def test_the_page_has_the_command_of_each_distribution() -> None:
    described = re.findall(r"`([^`]+)` \(([^,)]+)[^)]*\)", section(DOCS / "operations.md", "Distributions"))
    commands = {title: command for command, title in described}
    for each in _load_distributions().values():
        assert commands[each.title] == each.install


def test_this_machine_has_what_tare_needs() -> None:
    assert find_missing_tools(LocalHost()) == ()
    require_tools(LocalHost())


def test_tools_that_are_missing_or_of_another_kind_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sh", "grep", "cat", "mke2fs", "nsenter", "setpriv", "tar", "unshare"):
        (tmp_path / name).symlink_to(
            next(path for folder in os.get_exec_path() if (path := Path(folder) / name).exists())
        )
    other = tmp_path / "taskset"
    other.write_text("#!/bin/sh\necho BusyBox\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_missing_tools(LocalHost())
    assert [each.what for each in found] == [
        "ip is not installed",
        "taskset is not that of util-linux",
    ]
    assert [each.fix for each in found] == ["apt-get install iproute2", "apt-get install util-linux"]


# The lines that matter of each distribution's os-release(5).
RELEASES = {
    'NAME="Fedora Linux"\nID=fedora\nVERSION_ID=42\n': "dnf install",
    'NAME="Red Hat Enterprise Linux"\nID="rhel"\nID_LIKE="fedora"\n': "dnf install",
    'NAME="CentOS Stream"\nID="centos"\nID_LIKE="rhel fedora"\n': "dnf install",
    'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\n': "dnf install",
    'NAME="Oracle Linux Server"\nID="ol"\nID_LIKE="fedora"\n': "dnf install",
    'NAME="openSUSE Tumbleweed"\nID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n': "zypper install",
    'NAME="SLES"\nID="sles"\nID_LIKE="suse"\n': "zypper install",
    'NAME="Arch Linux"\nID=arch\n': "pacman -S",
    'NAME="Manjaro Linux"\nID=manjaro\nID_LIKE=arch\n': "pacman -S",
    'NAME="Alpine Linux"\nID=alpine\n': "apk add",
    'NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\n': "apt-get install",
    "": "apt-get install",
}


@dataclass(frozen=True)
class Released(FakeHost):
    """A host with this os-release(5)."""

    text: str = ""

    def read(self, path: str) -> str:
        return self.text if path == "/etc/os-release" else ""


@pytest.mark.parametrize("text", RELEASES, ids=lambda text: text.partition("\n")[0])
def test_the_installer_is_that_of_the_distribution_or_of_a_similar_one(text: str) -> None:
    assert distribution_of(Released(text=text)).install == RELEASES[text]
    [problem] = localize_problems(Released(text=text), [Problem.from_packages("no crun", "crun")])
    assert problem.fix == f"{RELEASES[text]} crun"


def test_a_step_of_a_longer_fix_has_the_names_of_the_distribution_too() -> None:
    longer = Problem("no driver", "apt-get install qemu-system-x86 lxd-agent, modprobe vhost_vsock, then restart it")
    [found] = localize_problems(Released(text="ID=arch\n"), [longer])
    assert found.fix == (
        "pacman -S qemu-system-x86; install what Debian's lxd-agent has, modprobe vhost_vsock, then restart it"
    )
    others = (Problem("no KVM", "turn it on"), Problem("no image", "name one", missing="yours"))
    assert localize_problems(Released(text="ID=arch\n"), others) == others


def test_a_row_is_of_a_package_that_something_needs() -> None:
    data = tomllib.loads(Path(distributions.__file__).with_name("distributions.toml").read_text())
    needed = {package for each in own("technologies").values() for package in each().debian_packages}
    needed |= {*PACKAGES, *LINUX.debian_packages, *SOLO5.debian_packages, *TOOLS.values(), "incus"}
    needed |= {*ARM64.local_names.values()}
    needed |= {package for *_, package in _TARE_TOOLS}
    assert {*data["packages"], *data["same"]} <= needed


@pytest.mark.skipif(not shutil.which("busybox"), reason="apt-get install busybox-static")
def test_the_tools_of_busybox_are_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busybox = shutil.which("busybox")
    assert busybox
    applets = {*subprocess.check_output((busybox, "--list"), text=True).split()}
    names = {program for program, *_ in _TARE_TOOLS} & applets
    for name in (*names, "sh", "grep"):
        (tmp_path / name).symlink_to(busybox)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {each.what.partition(" ")[0] for each in find_missing_tools(LocalHost()) if "not that of" in each.what}
    assert found == names
