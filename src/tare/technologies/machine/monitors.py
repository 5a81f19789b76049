"""Monitors' commands for a user-supplied machine, its seed disk for cloud-init, and the DHCP server.

The DHCP server is dnsmasq without DNS. It runs in the namespace of the run's bridge, from the first guest that needs it
to the end of the run. It only serves the hardware addresses of the run's slots, each with the slot's address. It uses
no CPU time while no guest sends a request, so that it does not disturb measurements.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tare.guests.monitors import firecracker_configuration
from tare.hosts.exec import SUPERVISE
from tare.hosts.host import Host
from tare.hosts.network import SLOTS
from tare.hosts.streams import last_lines
from tare.model.errors import TrialFailed
from tare.plugins.technology import LaunchRequest

_WRITE_AND_START = 'printf %s "$2" > "$1" && exec firecracker --no-api --config-file "$1"'
DHCP_TOOLS: Mapping[str, str] = {"dnsmasq": "dnsmasq-base"}
_READY_SECONDS = 10.0
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Hardware:
    """Hardware of a machine, as paths on its host; "" for parts that it does not have."""

    launch: LaunchRequest
    tap: str
    kernel: str = ""
    initrd: str = ""
    kernel_command_line: str = ""
    firmware: str = ""
    disk: str = ""
    seed: str = ""


def qemu_options(machine: Hardware, virtio: bool) -> tuple[str, ...]:
    """Return QEMU's options for kernel, firmware and disks; the controllers are virtio's or those of a PC."""
    bus = "virtio" if virtio else "ide"
    return (
        *(("-kernel", machine.kernel, "-append", machine.kernel_command_line) if machine.kernel else ("-vga", "std")),
        *(("-initrd", machine.initrd) if machine.initrd else ()),
        *(("-bios", machine.firmware) if machine.firmware else ()),
        *(("-drive", f"file={machine.disk},if={bus},format=qcow2") if machine.disk else ()),
        *(("-drive", f"file={machine.seed},if={bus},format=raw,readonly=on") if machine.seed and virtio else ()),
        *(("-drive", f"file={machine.seed},if={bus},format=raw,media=cdrom") if machine.seed and not virtio else ()),
        *("-device", "virtio-rng-pci"),
    )


def firecracker_command(machine: Hardware) -> tuple[str, ...]:
    """Return a command that writes Firecracker's configuration and starts it."""
    source = {
        "kernel_image_path": machine.kernel,
        "boot_args": f"{machine.kernel_command_line} reboot=k panic=-1 pci=off",
    }
    source |= {"initrd_path": machine.initrd} if machine.initrd else {}
    disks = {"root": machine.disk, "seed": machine.seed}
    configuration = firecracker_configuration(machine.launch, machine.tap, source, disks)
    file = str(machine.launch.folder / "machine.json")
    return ("sh", "-c", _WRITE_AND_START, "sh", file, json.dumps(configuration))


def cloud_hypervisor_command(machine: Hardware, format_option: str) -> tuple[str, ...]:
    """Return Cloud Hypervisor's command; `format_option` is its option for the format of disks, "" in old versions."""
    disks = [f"path={machine.disk}{format_option}"] if machine.disk else []
    disks += [f"path={machine.seed}{format_option},readonly=on"] if machine.seed else []
    limits, mac = machine.launch.limits, machine.launch.network.instance_mac
    return (
        "cloud-hypervisor",
        *(("--kernel", machine.kernel, "--cmdline", machine.kernel_command_line) if machine.kernel else ()),
        *(("--initramfs", machine.initrd) if machine.initrd else ()),
        *(("--firmware", machine.firmware) if machine.firmware else ()),
        *("--cpus", f"boot={len(limits.cpus)}", "--memory", f"size={limits.memory_bytes >> 20}M"),
        *(("--disk", *disks) if disks else ()),
        *("--net", f"tap={machine.tap},mac={mac}", "--serial", "tty", "--console", "off"),
    )


def make_seed(host: Host, launch: LaunchRequest, user_data: str, public_key: str) -> str:
    """Make the seed disk for cloud-init (NoCloud) with a key and the user data; return its path.

    `user_data` is a path; "" for none. `public_key` is "" for none.
    """
    folder, target = launch.folder / "seed", str(launch.folder / "seed.iso")
    metadata = {"instance-id": launch.name, "local-hostname": launch.name}
    metadata_keys = {"public-keys": [public_key]} if public_key else {}
    host.run("mkdir", "-p", str(folder), timeout=30)
    host.write(f"{folder}/meta-data", json.dumps(metadata | metadata_keys) + "\n")
    if user_data:
        host.run("cp", user_data, f"{folder}/user-data", timeout=30)
    else:
        host.write(f"{folder}/user-data", "#cloud-config\n{}\n")
    make = ("xorriso", "-as", "mkisofs", "-quiet", "-V", "cidata", "-J", "-R", "-o", target, str(folder))
    host.run(*make, timeout=60)
    return target


def serve_dhcp(launch: LaunchRequest) -> None:
    """Start the DHCP server unless it runs; call it before each guest's start. Raises TrialFailed."""
    _log_length_before(launch)


def dhcp_log(launch: LaunchRequest) -> str:
    """Return the text that the server has logged since `serve_dhcp` was called for the guest."""
    return launch.ledger.host.read(_log_path(launch))[_log_length_before(launch) :]


def has_requested_address(log: str, mac: str) -> bool:
    """Return whether the guest with a hardware address has requested an address."""
    return any("DHCPDISCOVER" in line or "DHCPREQUEST" in line for line in log.splitlines() if mac in line)


def has_received_address(log: str, mac: str) -> bool:
    """Return whether the guest with a hardware address has accepted an address."""
    return any("DHCPACK" in line for line in log.splitlines() if mac in line)


def _log_path(launch: LaunchRequest) -> str:
    return launch.cache.create_once("DHCP server", lambda: _run_dhcp(launch))


def _log_length_before(launch: LaunchRequest) -> int:
    """Return the length of the log before the guest's start: earlier guests of the slot had the same MAC address."""
    read = launch.ledger.host.read
    return int(launch.cache.read_once(f"DHCP log before {launch.name}", lambda: str(len(read(_log_path(launch))))))


@contextmanager
def _run_dhcp(launch: LaunchRequest) -> Iterator[str]:
    network, host = launch.network, launch.ledger.host
    folder = launch.folder.with_name(f"{network.prefix}-dhcp")
    log, server_address = f"{folder}/log", str(network.subnet[3])  # after those of the machine and the client
    slots = (network.with_slot(slot) for slot in range(SLOTS))
    words = (
        *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", f"--log-facility={log}"),
        *("--port=0", "--interface=bridge", "--bind-interfaces", "--no-ping", "--dhcp-authoritative"),
        *("--leasefile-ro", f"--dhcp-range={network.subnet.network_address},static,255.255.255.0,infinite"),
        *(f"--dhcp-host={slot.instance_mac},{slot.instance_address}" for slot in slots),
        f"--dhcp-option=option:router,{network.gateway}",
    )
    with launch.ledger.register_undo("rm", "-rf", "--one-file-system", str(folder)):
        host.run("mkdir", "-p", str(folder), timeout=30)
        network.run_ip_in(network.lan, f"addr replace {server_address}/24 dev bridge")
        # dnsmasq drops root, which clears the signal that the kernel sends at its parent's death: `supervise` ends it.
        run = (f"{launch.image.root}{SUPERVISE}", "-s", "--")
        with host.spawn(*run, *network.enter, *words, die_with_parent=True) as server:
            deadline = time.monotonic() + _READY_SECONDS
            while "DHCP, static leases only" not in host.read(log):
                if not server.is_running() or time.monotonic() > deadline:
                    output = last_lines(server.errors() or host.read(log)) or "it printed nothing"
                    raise TrialFailed(f"dnsmasq did not start: {output}", 'address = "static" needs none')
                time.sleep(_PAUSE_SECONDS)
            yield log
