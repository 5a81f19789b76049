"""VirtualBox: a machine that VBoxManage makes and VBoxHeadless runs, on VirtualBox's kernel module instead of KVM.

Written to Oracle's documentation, and never run on the real thing: "Oracle VM VirtualBox User Manual" 6.0 (VTmark's
version), chapter 7 (createvm, modifyvm, storagectl, storageattach, controlvm, unregistervm) and section 7.1.2
(VBoxHeadless); 7.0 and newer take the same options. The settings are those of VTmark (section 4.3): a bridged network,
a disk that is allocated in full behind a SCSI controller, no display. The image's kernel drives BusLogic of the SCSI
controllers, and virtio of the network cards. The kernel cannot be loaded directly: a CD boots it.

Setting: `controller` is that of the disk: `BusLogic` (SCSI, the default, as in VTmark) or `VirtIO`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from tare.guests import boot_media, guest, monitors
from tare.guests.monitors import VirtualPc
from tare.hosts.host import Host
from tare.model.trial import Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, find_missing_tools, missing_program

_SECONDS = 120.0
_INSTALL = "install VirtualBox from virtualbox.org: Debian has no package of it"


@dataclass(frozen=True)
class Virtualbox(VirtualPc):
    """Registers a machine for each instance, and removes it with its disk."""

    name = "virtualbox"
    title = "VirtualBox"
    needs = "VirtualBox and its kernel modules"
    drivers = ("virtio_pci", "sd_mod", "BusLogic", "virtio_scsi", "virtio_net")

    controller: Literal["BusLogic", "VirtIO"] = "BusLogic"

    def version(self, host: Host) -> str:
        """Return VirtualBox's version; warnings may come before it."""
        lines = host.run("sh", "-c", "VBoxManage --version || true", timeout=30, check=False).text.split()
        return next((line for line in reversed(lines) if line[:1].isdigit()), "")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing programs, or the problem of a kernel module that is not loaded."""
        missing = missing_program(host, _INSTALL, "VBoxManage", "VBoxHeadless") or find_missing_tools(host, self.tools)
        if missing := missing or boot_media.find_missing_files(host, boot_media.LOADER):
            return missing
        for device, module in (("/dev/vboxdrv", "vboxdrv"), ("/dev/vboxnetctl", "vboxnetflt")):
            if host.run("test", "-c", device, timeout=10, check=False).exit_code:
                fix = "/sbin/vboxconfig builds VirtualBox's modules and loads them; Secure Boot wants them signed"
                return (Problem(f"the kernel module {module} is not loaded: no {device}", fix),)
        return ()

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Register and start a machine on a fully allocated copy of the image's disk."""
        launch.prepare_image(self, host)
        with monitors.create_guest_resources(host, launch) as resources:
            disk = resources.copy_disk("vdi", "-o", "static=on", "-S", "0")
            cd = self.make_boot_cd(host, launch)
            card = resources.stack.enter_context(launch.network.create_port())
            resources.mark_requested()
            group = resources.create_cgroup()
            undo = ("VBoxManage", "unregistervm", launch.name, "--delete")
            resources.stack.enter_context(launch.ledger.register_undo(*undo))
            serial = str(launch.folder / "console")
            for words in self.setup_commands(launch, guest.Devices(disk, card, cd, serial)):
                host.run("VBoxManage", *words, timeout=_SECONDS)
            launch.timeline.mark("started")
            start = (*group.join, "VBoxHeadless", "--startvm", launch.name, "--vrde", "off")
            console = resources.stack.enter_context(host.spawn(*boot_media.with_console_output(serial, *start)))
            resources.stack.enter_context(
                launch.ledger.register_undo("VBoxManage", "controlvm", launch.name, "poweroff")
            )
            resources.written = lambda: None  # the disk was allocated in full before the start
            proof = {"virtualbox": launch.version(self, host), "controller": self.controller}
            yield resources.await_boot(console, disk, self.network_path, **proof)

    def setup_commands(self, launch: LaunchRequest, devices: guest.Devices) -> Iterator[tuple[str, ...]]:
        """Yield the commands of VBoxManage that make the machine."""
        name = launch.name
        folder, mac = str(launch.folder / "machine"), launch.network.instance_mac.replace(":", "")
        yield "createvm", "--name", name, "--ostype", "Debian_64", "--basefolder", folder, "--register"
        yield (
            *("modifyvm", name, "--cpus", str(len(launch.limits.cpus))),
            *("--memory", str(launch.limits.memory_bytes >> 20)),
            *("--ioapic", "on", "--boot1", "dvd", "--boot2", "none"),
            *("--nic1", "bridged", "--bridgeadapter1", devices.card, "--nictype1", "virtio", "--macaddress1", mac),
            *("--uart1", "0x3F8", "4", "--uartmode1", "file", devices.serial),
        )
        bus = "scsi" if self.controller == "BusLogic" else "virtio"
        yield "storagectl", name, "--name", "SCSI", "--add", bus, "--controller", self.controller
        yield "storagectl", name, "--name", "IDE", "--add", "ide", "--controller", "PIIX4"
        for controller, drive, file in (("SCSI", "hdd", devices.disk), ("IDE", "dvddrive", devices.cd)):
            slot = ("--storagectl", controller, "--port", "0", "--device", "0")
            yield "storageattach", name, *slot, "--type", drive, "--medium", file
