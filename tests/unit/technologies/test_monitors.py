from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET

import pytest
from fakes import launch_at

from tare.guests import guest
from tare.guests.guest import Devices
from tare.hosts.exec import ExecHost
from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.model.trial import Limits, Output, Problem
from tare.plugins import registry
from tare.plugins.technology import LaunchRequest
from tare.technologies.cloud_hypervisor import CloudHypervisor
from tare.technologies.firecracker import Firecracker
from tare.technologies.kata import Kata
from tare.technologies.libvirt import Libvirt
from tare.technologies.libvirt_tcg import LibvirtTcg
from tare.technologies.uml import Uml
from tare.technologies.virtualbox import Virtualbox
from tare.technologies.vmware import configuration, find_free_vmnet
from tare.technologies.xen import Xen

STAND_INS = Path(__file__).parents[2] / "stand_ins"
NETWORKING = """VERSION=1,0
answer VNET_1_DHCP yes
answer VNET_2_HOSTONLY_SUBNET 10.0.0.0
answer VNL_DEFAULT_BRIDGE_VNET -1
add_bridge_mapping eth1 3
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Within(ExecHost):
    """This machine, with its commands behind a prefix."""

    def __init__(self, *prefix: str) -> None:
        super().__init__(LocalHost(), *prefix)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        return self.outer.run(*self.prefix, *argv, timeout=timeout, input=input, check=check)


@pytest.fixture
def launch(tmp_path: Path) -> LaunchRequest:
    return launch_at(tmp_path, limits=Limits((1, 3), 513 << 20, 4096))


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Put the programs that stand in on the PATH; return what runs one of them."""
    monkeypatch.setenv("PATH", f"{STAND_INS}:{os.environ['PATH']}")
    monkeypatch.setenv("TARE_STAND_INS", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return lambda *argv: subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_guest_that_boots_again_and_again_did_not_boot(launch: LaunchRequest) -> None:
    said = (
        *("BdsDxe: starting Boot0001", "Linux version 6.1", "Kernel command line: panic=-1"),
        *("Kernel panic - not syncing: no root", "Kernel Offset: disabled"),
    )
    script = "for boot in 1 2; do printf '%s\\n' \"$@\"; done; sleep 60"
    with LocalHost().spawn("sh", "-c", script, "sh", *said) as console, pytest.raises(TrialFailed) as caught:
        guest.watch_boot(console, launch)
    assert str(caught.value) == "the guest did not boot: it rebooted"
    assert caught.value.hint == "its kernel said: 'Kernel panic - not syncing: no root'"


def test_a_guest_gets_the_address_of_its_host_also_in_another_guest(launch: LaunchRequest) -> None:
    assert "tare.host=198.18.0.1 tare.agent=17006" in guest.command_line(launch)
    inner = replace(launch, network=replace(launch.network, level=1, slot=3))
    assert {"tare.host=198.18.0.13", "tare.address=198.18.0.77"} <= set(guest.command_line(inner).split())


def test_vmware_gets_the_first_virtual_network_that_nobody_uses() -> None:
    assert find_free_vmnet(NETWORKING) == 4
    assert find_free_vmnet("") == 2


def test_vmware_s_machine_has_the_limits_and_memory_in_steps_of_4_mib(launch: LaunchRequest) -> None:
    lines = configuration(launch, "4").splitlines()
    assert {'numvcpus = "2"', 'memsize = "512"', 'ethernet0.vnet = "/dev/vmnet4"'} <= set(lines)
    assert 'scsi0.virtualDev = "pvscsi"' in lines


def test_virtualbox_gets_vtmark_s_settings(launch: LaunchRequest) -> None:
    steps = [" ".join(words) for words in Virtualbox().setup_commands(launch, Devices("D", "card", "C", "serial"))]
    assert "--nic1 bridged --bridgeadapter1 card" in steps[1]
    assert "--cpus 2 --memory 513" in steps[1]
    assert steps[2] == "storagectl tare-test-1 --name SCSI --add scsi --controller BusLogic"
    assert steps[4].endswith("--storagectl SCSI --port 0 --device 0 --type hdd --medium D")


def test_libvirt_s_domain_is_pinned_and_named_by_its_kind(launch: LaunchRequest) -> None:
    domain = ET.fromstring(Libvirt().domain_xml(launch, Devices("/d'isk", "tap", serial="/serial")))  # noqa: S314 - ours
    assert domain.get("type") == "kvm"
    assert [pin.attrib for pin in domain.iter("vcpupin")] == [
        {"vcpu": "0", "cpuset": "1"},
        {"vcpu": "1", "cpuset": "3"},
    ]
    assert domain.findtext("memory") == "513"
    assert next(source.get("file") for source in domain.iter("source")) == "/d'isk"
    assert "tare.host=198.18.0.1" in (domain.findtext("os/cmdline") or "")
    assert domain.findtext("os/kernel") == str(launch.image.kernel.with_name("vmlinux"))  # as that of qemu
    assert "<domain type='qemu'>" in LibvirtTcg().domain_xml(launch, Devices("/disk", "tap", serial="/serial"))


def test_a_kata_container_gets_its_runtime_and_as_many_cpus_as_are_pinned(launch: LaunchRequest) -> None:
    options = Kata(runtime="kata-runtime").limit_options(LocalHost(), launch)
    assert options[:3] == ("--runtime=kata-runtime", "--cpus=2", "--cpuset-cpus=1,3")


@pytest.mark.parametrize(
    ("docker", "runtime", "what"),
    [
        ("20.10.24 runc", "kata-runtime", "Docker knows no runtime kata-runtime, but runc"),
        ("20.10.24 runc kata-runtime", "kata-runtime", None),
        ("20.10.24 runc", "io.containerd.kata.v2", "Docker 20 starts only runtimes that its daemon.json names"),
        ("26.1.0 runc", "io.containerd.kata.v2", None),
    ],
)
def test_a_docker_that_cannot_start_kata_reports_why(
    tool: Run, monkeypatch: pytest.MonkeyPatch, docker: str, runtime: str, what: str | None
) -> None:
    monkeypatch.setenv("TARE_STAND_IN_DOCKER", docker)
    found = Kata(runtime=runtime).runtime_problems(LocalHost())
    assert [problem.what for problem in found] == ([] if what is None else [what])
    assert tool("docker", "run", f"--runtime={runtime}").returncode == (0 if what is None else 125)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("firecracker", "1.13.0"),
        ("cloud-hypervisor", "53.0.0"),
        ("virtualbox", "7.0.26r168464"),
        ("vmware", "1.17.0"),
        ("uml", "6.1.0"),
        ("kata", "3.2.0"),
    ],
)
def test_a_tool_reports_its_version(tool: Run, name: str, version: str) -> None:
    del tool  # only on the PATH
    assert registry.find("technologies", name)().version(LocalHost()) == version


@pytest.mark.parametrize(("version", "form"), [("50.0", ""), ("50.1", ",image_type=raw"), ("53.0", ",image_type=raw")])
def test_cloud_hypervisor_gets_the_format_of_its_disk_where_it_takes_it(
    tool: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, form: str
) -> None:
    monkeypatch.setenv("TARE_STAND_IN_CLOUD_HYPERVISOR", version)
    assert CloudHypervisor().disk_format_option(LocalHost()) == form
    kernel = tmp_path / "kernel"
    kernel.write_bytes(b"\x7fELF")
    machine = ("--cpus", "boot=1", "--memory", "size=1M", "--net", "tap=none,mac=0")
    ended = tool("cloud-hypervisor", "--kernel", str(kernel), *machine, "--disk", "path=/none,image_type=raw")
    assert ("unknown option: image_type" in ended.stderr) == (not form)


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ("flags\t\t: fpu svm npt xsave avx\n", []),
        ("Features\t: fp asimd\n", []),
        (
            "flags\t\t: fpu svm npt xsaveopt\n",
            ['the processor has no XSAVE, without which Firecracker ends with "Missing KVM capabilities"'],
        ),
    ],
)
def test_firecracker_has_a_problem_with_a_processor_without_xsave(flags: str, what: list[str]) -> None:
    class Emulated(LocalHost):
        """A machine whose processor has other flags."""

        def read(self, path: str) -> str:
            return f"processor\t: 0\n{flags}\n" if path == "/proc/cpuinfo" else super().read(path)

    assert [problem.what for problem in Firecracker().processor_problems(Emulated())] == what


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("firecracker", "firecracker is not installed"),
        ("cloud-hypervisor", "cloud-hypervisor is not installed"),
        ("virtualbox", "VBoxManage is not installed"),
        ("vmware", "vmrun is not installed"),
    ],
)
def test_a_tool_that_is_not_there_is_named_with_where_to_get_it(name: str, what: str) -> None:
    (problem,) = registry.find("technologies", name)().problems(Within("env", "PATH=/usr/bin:/bin"))
    assert problem.what == what
    assert problem.fix


def test_user_mode_linux_is_usable_only_where_it_runs_a_program(tool: Run) -> None:
    del tool  # only on the PATH
    assert [problem for problem in Uml().problems(LocalHost()) if "program" in problem.what] == []
    broken = Within("sh", "-c", 'case $1 in linux.uml) echo bad;; *) "$@";; esac', "sh")
    fix = "try a newer kernel, or a CPU without AVX-512: an emulated one has none"
    assert Problem("it does not run a program on this CPU: bad", fix) in Uml().problems(broken)


@pytest.mark.parametrize(("mode", "console"), [("pv", "hvc0"), ("pvh", "hvc0"), ("hvm", "ttyS0")])
def test_a_domain_of_xen_is_as_asked(launch: LaunchRequest, mode: Literal["pv", "pvh", "hvm"], console: str) -> None:
    text = Xen(mode=mode).configuration(launch, Devices("/dev/mapper/tare-1", "/run/card"))
    domain = {name: ast.literal_eval(value) for name, value in (line.split(" = ", 1) for line in text.splitlines())}
    words = domain.pop("extra").split()
    assert {"root=/dev/xvda", f"console={console}", "tare.host=198.18.0.1", "tare.files=4096"} <= set(words)
    expected = {
        "name": "tare-test-1",
        "type": mode,
        "kernel": str(launch.image.kernel),
        "ramdisk": str(launch.image.initrd),
        "memory": 513,
        "maxmem": 513,
        "vcpus": 2,
        "cpus": "1,3",
        "disk": ["phy:/dev/mapper/tare-1,xvda,w"],
        "vif": [f"mac={launch.network.instance_mac},script=/run/card"],
        "on_poweroff": "destroy",
        "on_reboot": "destroy",
        "on_crash": "destroy",
    }
    assert domain == expected | ({"serial": "pty", "vga": "none", "nographic": 1} if mode == "hvm" else {})
