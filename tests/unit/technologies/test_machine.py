"""A disk or kernel of the user's: the monitors' command lines, and what is refused before anything starts."""

from __future__ import annotations

import ipaddress
import itertools
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import launch_on
from pydantic import TypeAdapter, ValidationError

from tare.guests.user_guest import UserGuestBoot
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.network import Network
from tare.model.image import Image
from tare.plugins.technology import find_missing_tools
from tare.runner.layers import start_timeout_seconds
from tare.technologies.machine import monitors
from tare.technologies.machine.technology import UserMachine
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.nginx import Nginx
from tare.workloads.startup import Startup

HERE = Image("0" * 64, Path("/root"), Path("/archive"), Path("/disk"), Path("/kernel"), Path("/initrd"), "")
NETBSD = UserMachine("/netbsd.img", monitor="qemu-tcg", service="nginx")
LINUX = UserMachine(kernel="/vmlinuz", initrd="/initrd", arguments="console=ttyS0", monitor="qemu-tcg", service="nginx")


@pytest.fixture
def boot(tmp_path: Path) -> UserGuestBoot:
    """What a monitor would be given on a network that is never made."""
    network = Network("tare-own", ipaddress.IPv4Network("198.18.0.0/24"), Ledger(tmp_path / "ledger"))
    launch = launch_on(network, HERE, tmp_path / "instance")
    files = {"/vmlinuz": "/own/vmlinuz", "/initrd": "/own/initrd", "/fw": "/own/fw", "its disk for cloud-init": ""}
    return UserGuestBoot(launch, "/own/vmlinuz", "/instance/disk", "tare-own-t00", files)


def option(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


def drives(command: tuple[str, ...]) -> list[str]:
    return [value for name, value in itertools.pairwise(command) if name == "-drive"]


def test_a_disk_boots_as_in_a_pc(boot: UserGuestBoot) -> None:
    command = NETBSD.command(boot)
    assert "-kernel" not in command
    assert option(command, "-vga") == "std"
    assert (option(command, "-accel"), option(command, "-M"), option(command, "-m")) == ("tcg", "q35", "256M")
    assert drives(command) == ["file=/instance/disk,if=virtio,format=qcow2"]
    assert "virtio-net-pci,romfile=,netdev=net0,mac=02:74:61:72:65:01" in command


def test_a_system_without_virtios_drivers_gets_a_pcs_devices(boot: UserGuestBoot) -> None:
    command = replace(NETBSD, devices="emulated").command(boot)
    assert drives(command) == ["file=/instance/disk,if=ide,format=qcow2"]
    assert "e1000,romfile=,netdev=net0,mac=02:74:61:72:65:01" in command


def test_a_kernel_has_its_words_with_the_machines_own_address(boot: UserGuestBoot) -> None:
    words = "ip={address}::{gateway}:{netmask}::eth0:off a={b}"
    command = replace(LINUX, arguments=words, address="static").command(replace(boot, disk=""))
    assert option(command, "-append") == "ip=198.18.0.10::198.18.0.1:255.255.255.0::eth0:off a={b}"
    assert (option(command, "-kernel"), option(command, "-initrd")) == ("/own/vmlinuz", "/own/initrd")
    assert drives(command) == []


def test_a_firmware_is_that_of_the_user(boot: UserGuestBoot) -> None:
    assert option(replace(NETBSD, firmware="/fw").command(boot), "-bios") == "/own/fw"


def test_the_disk_of_cloud_init_is_read_only_and_a_cd_without_virtio(boot: UserGuestBoot) -> None:
    seeded = replace(boot, files={**boot.files, "its disk for cloud-init": "/seed"})
    assert drives(NETBSD.command(seeded))[1] == "file=/seed,if=virtio,format=raw,readonly=on"
    emulated = replace(NETBSD, devices="emulated")
    assert drives(emulated.command(seeded))[1] == "file=/seed,if=ide,format=raw,media=cdrom"


def test_firecracker_gets_what_its_configuration_names(boot: UserGuestBoot) -> None:
    shell, *_, file, text = replace(LINUX, monitor="firecracker").command(boot)
    assert (shell, file) == ("sh", str(boot.launch.folder / "machine.json"))
    assert json.loads(text) == {
        "boot-source": {
            "kernel_image_path": "/own/vmlinuz",
            "initrd_path": "/own/initrd",
            "boot_args": "console=ttyS0 reboot=k panic=-1 pci=off",
        },
        "drives": [
            {"drive_id": "root", "path_on_host": "/instance/disk", "is_root_device": False, "is_read_only": False}
        ],
        "machine-config": {"vcpu_count": 1, "mem_size_mib": 256},
        "network-interfaces": [{"iface_id": "eth0", "host_dev_name": "tare-own-t00", "guest_mac": "02:74:61:72:65:01"}],
    }


def test_cloud_hypervisor_boots_a_firmware_or_a_kernel(boot: UserGuestBoot) -> None:
    machine = monitors.Hardware(boot.launch, boot.tap, firmware="/fw", disk="/disk", seed="/seed")
    command = monitors.cloud_hypervisor_command(machine, ",image_type=raw")
    assert "--kernel" not in command
    assert option(command, "--firmware") == "/fw"
    assert command[command.index("--disk") :][1:3] == (
        "path=/disk,image_type=raw",
        "path=/seed,image_type=raw,readonly=on",
    )
    with_kernel = replace(machine, firmware="", kernel="/vmlinux", kernel_command_line="a b")
    assert option(monitors.cloud_hypervisor_command(with_kernel, ""), "--cmdline") == "a b"


def test_without_a_login_it_runs_what_it_serves_and_with_one_everything() -> None:
    assert NETBSD.unsupported_reason(Nginx()) is None
    assert NETBSD.unsupported_reason(Startup()) is None
    assert NETBSD.unsupported_reason(Dhrystone()) == (
        "it only serves nginx: with user = … tare logs in and runs others"
    )
    assert replace(NETBSD, user="root").unsupported_reason(Dhrystone()) is None


def test_it_answers_at_its_services_port_or_at_that_of_ssh() -> None:
    assert NETBSD.first_port == 80
    assert replace(NETBSD, service="", user="root").first_port == 22
    assert replace(NETBSD, user="root").first_port == 80


def test_only_an_address_on_the_disk_needs_a_slot_of_its_own() -> None:
    assert not NETBSD.has_fixed_address
    assert replace(NETBSD, address="static").has_fixed_address
    assert not replace(LINUX, address="static", arguments="ip={address}").has_fixed_address


def test_it_has_the_time_that_its_user_gives_it() -> None:
    assert start_timeout_seconds(NETBSD, 0, ()) == 120
    assert start_timeout_seconds(replace(NETBSD, timeout=300.0), 0, ()) == 300


@pytest.mark.parametrize(
    ("machine", "what"),
    [
        (UserMachine(), "it boots a disk or kernel that you supply, but the stack names none"),
        (UserMachine("/d"), "the stack does not name the service in /d"),
        (UserMachine("/d", service="ngin"), 'service = "ngin": no workload of this name'),
        (replace(NETBSD, arguments="-s"), "initrd and arguments need kernel = …: a disk boots its kernel itself"),
        (replace(NETBSD, key="/k"), "key needs user = …, who logs in with it"),
        (replace(NETBSD, monitor="firecracker"), "Firecracker needs kernel = …: it boots no disk"),
        (replace(NETBSD, monitor="cloud-hypervisor"), "cloud-hypervisor needs kernel = … or firmware = …"),
        (replace(LINUX, monitor="firecracker", devices="emulated"), 'firecracker has no devices but "virtio"'),
    ],
)
def test_settings_that_cannot_be_are_problems(machine: UserMachine, what: str) -> None:
    problem, *_ = machine.setting_problems()
    assert problem.what == what
    assert problem.fix


@pytest.mark.parametrize("wrong", [{"monitor": "xen"}, {"timeout": "0s"}, {"disk_format": "vmdk"}, {"port": -1}])
def test_a_setting_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(UserMachine).validate_python({"disk": "/d", "service": "redis"} | wrong)


def test_a_file_that_is_no_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no disk\n" * 100)
    (problem,) = UserMachine(str(path), service="nginx").file_problems(LocalHost())
    assert problem.what == f"{path}: it is not a disk that a PC boots: its first sector has no signature"


def test_a_file_that_is_not_there_is_named_also_a_key(tmp_path: Path) -> None:
    here = tmp_path / "disk"
    here.touch()
    machine = UserMachine(str(here), monitor="qemu-tcg", user="root", key=str(tmp_path / "key"))
    if find_missing_tools(LocalHost(), machine.tools):
        pytest.skip("its tools are not all installed, or this is not root")
    (problem,) = machine.problems(LocalHost())
    assert problem.what == f"machine: there is no file {tmp_path}/key"
    (problem,) = replace(machine, disk="/nowhere.img").problems(LocalHost())
    assert problem.what == "machine: there is no file /nowhere.img"


# What dnsmasq 2.90 wrote for a guest that asked and took its address, and for one that only asked.
LOG = """\
Nov 25 13:05:01 dnsmasq-dhcp[7]: 1 available DHCP subnet: 198.18.0.0/255.255.255.0
Nov 25 13:05:01 dnsmasq-dhcp[7]: DHCPDISCOVER(bridge) 02:74:61:72:65:01
Nov 25 13:05:01 dnsmasq-dhcp[7]: DHCPOFFER(bridge) 198.18.0.10 02:74:61:72:65:01
Nov 25 13:05:01 dnsmasq-dhcp[7]: DHCPREQUEST(bridge) 198.18.0.10 02:74:61:72:65:01
Nov 25 13:05:01 dnsmasq-dhcp[7]: DHCPACK(bridge) 198.18.0.10 02:74:61:72:65:01 golden
Nov 25 13:05:09 dnsmasq-dhcp[7]: DHCPDISCOVER(bridge) 02:74:61:72:65:02
Nov 25 13:05:09 dnsmasq-dhcp[7]: DHCPOFFER(bridge) 198.18.0.11 02:74:61:72:65:02
"""


@pytest.mark.parametrize(
    ("mac", "asked", "given"),
    [("02:74:61:72:65:01", True, True), ("02:74:61:72:65:02", True, False), ("02:74:61:72:65:03", False, False)],
)
def test_the_log_says_how_far_a_guest_came(mac: str, asked: bool, given: bool) -> None:
    assert (monitors.has_requested_address(LOG, mac), monitors.has_received_address(LOG, mac)) == (asked, given)


@pytest.mark.skipif(not shutil.which("xorriso"), reason="apt-get install xorriso")
def test_the_disk_for_cloud_init_has_its_label_the_key_and_the_users_data(boot: UserGuestBoot, tmp_path: Path) -> None:
    data = tmp_path / "user-data"
    data.write_text("#cloud-config\nfqdn: golden\n")
    made = monitors.make_seed(LocalHost(), boot.launch, str(data), "ssh-ed25519 AAAA")
    listed = ("xorriso", "-indev", made, "-pvd_info", "-osirrox", "on", "-extract", "/", str(tmp_path / "out"))
    said = subprocess.run(listed, capture_output=True, text=True, timeout=60, check=True)
    assert "cidata" in said.stdout + said.stderr
    assert (tmp_path / "out/user-data").read_text() == data.read_text()
    about = json.loads((tmp_path / "out/meta-data").read_text())
    assert about["public-keys"] == ["ssh-ed25519 AAAA"]
    assert about["instance-id"] == boot.launch.name
