"""VMware Workstation and Player: a machine with a .vmx file, which vmrun controls.

Written to VMware's documentation, and never run on the real thing: "Using vmrun to Control Virtual Machines" (VIX 1.15;
`-T ws|player`, start … nogui, stop … hard, list) and "Using VMware Workstation Pro" 15 to 17 (virtual networks: the
file /etc/vmware/networking and `vmware-networks`); the keys of the .vmx file as Workstation 15.5, VTmark's version,
writes them. The settings are those of VTmark (section 4.3): a bridged network, a disk that is allocated in full behind
the SCSI controller that VMware recommends, no display. The kernel cannot be loaded directly: a CD boots it. Each
additional bridge restarts VMware's networks, which interrupts machines that are alive already: in a block, this is
before the first turn.

Setting: `product` is `ws` (Workstation, the default) or `player`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from tare.guests import boot_media, monitors
from tare.guests.monitors import VirtualPc
from tare.hosts.host import Host
from tare.model.trial import Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, find_missing_tools, missing_program

_SECONDS = 120.0
_INSTALL = "install VMware Workstation or Player from Broadcom's site: Debian has no package of it"
_NETWORKING = "/etc/vmware/networking"
# Restarts VMware's networks with one more bridge; tare's lines have the name of its network card.
_RESTART = "vmware-networks --stop; vmware-networks --start"
_BRIDGE = f'echo "add_bridge_mapping $1 $2" >>{_NETWORKING}; {_RESTART}'
_UNBRIDGE = f'sed -i "/^add_bridge_mapping $1 /d" {_NETWORKING}; {_RESTART}'


@dataclass(frozen=True)
class Vmware(VirtualPc):
    """Writes a machine for each instance, and removes it with its disk."""

    name = "vmware"
    title = "VMware Workstation"
    needs = "VMware Workstation or Player and its kernel modules"
    drivers = ("sd_mod", "vmw_pvscsi", "vmxnet3")

    product: Literal["ws", "player"] = "ws"

    def version(self, host: Host) -> str:
        """Return the version of vmrun."""
        match = re.search(r"vmrun version (\S+)", host.run("vmrun", timeout=30, check=False).text)
        return match[1] if match else ""

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find whether VMware and the tools for its CD are installed, and whether it works."""
        missing = missing_program(host, _INSTALL, "vmrun", "vmware-networks") or find_missing_tools(host, self.tools)
        if missing := missing or boot_media.find_missing_files(host, boot_media.LOADER):
            return missing
        return self.service_problems(host)

    def service_problems(self, host: Host) -> tuple[Problem, ...]:
        """Find whether its modules are loaded, its license is accepted, and no other machine uses its networks."""
        for device in ("/dev/vmmon", "/dev/vmnet0"):
            if host.run("test", "-c", device, timeout=10, check=False).exit_code:
                module = device.removeprefix("/dev/").rstrip("0")
                fix = "vmware-modconfig --console --install-all, then systemctl restart vmware"
                return (Problem(f"the kernel module {module} is not loaded: no {device}", fix),)
        listed = host.run("vmrun", "-T", self.product, "list", timeout=30, check=False)
        if listed.exit_code:
            words = f"{listed.text} {listed.stderr.decode('utf-8', 'replace')}".strip()
            return (Problem(f"vmrun does not work: {words}", "start VMware once, and accept its license"),)
        if "Total running VMs: 0" not in listed.text:
            return (Problem("other VMware machines run: their network would be interrupted", "shut them down"),)
        return ()

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Write and start a machine on a fully allocated copy of the image's disk."""
        launch.prepare_image(self, host)
        with monitors.create_guest_resources(host, launch) as resources:
            disk = resources.copy_disk("vmdk", "-o", "subformat=monolithicFlat,adapter_type=lsilogic", "-S", "0")
            self.make_boot_cd(host, launch)
            card = resources.stack.enter_context(launch.network.create_port())
            number = str(find_free_vmnet(host.read(_NETWORKING)))
            resources.stack.enter_context(launch.ledger.register_undo("sh", "-c", _UNBRIDGE, "sh", card))
            host.run("sh", "-c", _BRIDGE, "sh", card, number, timeout=_SECONDS)
            resources.mark_requested()
            group = resources.create_cgroup()
            file, run = str(launch.folder / "machine.vmx"), ("vmrun", "-T", self.product)
            host.write(file, configuration(launch, number))
            console = resources.stack.enter_context(boot_media.follow_console(host, str(launch.folder / "console")))
            launch.timeline.mark("started")
            resources.stack.enter_context(launch.ledger.register_undo(*run, "stop", file, "hard"))
            host.run(*group.join, *run, "start", file, "nogui", timeout=_SECONDS)
            resources.written = lambda: None  # the disk was allocated in full before the start
            yield resources.await_boot(
                console, disk, self.network_path, vmrun=launch.version(self, host), controller="pvscsi"
            )


def find_free_vmnet(networking: str) -> int:
    """Return the number of a free virtual network of VMware; VMware itself uses 0, 1 and 8."""
    words = re.findall(r"^answer VNET_(\d+)_|^add_bridge_mapping \S+ (-?\d+)", networking, flags=re.MULTILINE)
    taken = {0, 1, 8, *(int(answer or mapping) for answer, mapping in words)}
    return next(number for number in range(2, 255) if number not in taken)


def configuration(launch: LaunchRequest, vmnet: str) -> str:
    """Return the text of the machine's .vmx file."""
    keys = {
        ".encoding": "UTF-8",
        "config.version": "8",
        "virtualHW.version": "16",
        "displayName": launch.name,
        "guestOS": "debian10-64",
        "numvcpus": str(len(launch.limits.cpus)),
        "memsize": str((launch.limits.memory_bytes >> 20) // 4 * 4),  # VMware takes multiples of 4 MiB
        "mainMem.useNamedFile": "FALSE",
        **{f"pciBridge{number}.present": "TRUE" for number in (0, 4)},
        "pciBridge4.virtualDev": "pcieRootPort",
        "pciBridge4.functions": "8",
        "scsi0.present": "TRUE",
        "scsi0.virtualDev": "pvscsi",
        "scsi0:0.present": "TRUE",
        "scsi0:0.fileName": "disk.vmdk",
        "ide1:0.present": "TRUE",
        "ide1:0.deviceType": "cdrom-image",
        "ide1:0.fileName": "cd.iso",
        "bios.bootOrder": "cdrom",
        "ethernet0.present": "TRUE",
        "ethernet0.virtualDev": "vmxnet3",
        "ethernet0.connectionType": "custom",
        "ethernet0.vnet": f"/dev/vmnet{vmnet}",
        "ethernet0.addressType": "static",
        "ethernet0.address": launch.network.instance_mac,
        "ethernet0.checkMACAddress": "FALSE",  # it is not in VMware's range
        "serial0.present": "TRUE",
        "serial0.fileType": "file",
        "serial0.fileName": "console",
        **{f"{device}.present": "FALSE" for device in ("floppy0", "sound", "usb")},
        "msg.autoAnswer": "TRUE",  # without it, a question of VMware would block the start
        "uuid.action": "create",
    }
    return "".join(f'{name} = "{value}"\n' for name, value in keys.items())
