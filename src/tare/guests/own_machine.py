"""How each monitor boots a disk or kernel of the user's, and the disk for its cloud-init."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tare.contracts.technologies import LaunchRequest
from tare.hosts.host import Host

_WRITE_AND_START = 'printf %s "$2" > "$1" && exec firecracker --no-api --config-file "$1"'


@dataclass(frozen=True)
class Hardware:
    """What a machine is made of, by paths on its host; empty where it has none. `line` is the kernel's command line."""

    launch: LaunchRequest
    tap: str
    kernel: str = ""
    initrd: str = ""
    line: str = ""
    firmware: str = ""
    disk: str = ""
    seed: str = ""

    @property
    def cpus(self) -> int:
        """The number of its CPUs."""
        return len(self.launch.limits.cpus)

    @property
    def memory_mib(self) -> int:
        """Its memory in MiB."""
        return self.launch.limits.memory_bytes >> 20

    @property
    def mac(self) -> str:
        """The hardware address of its card."""
        return self.launch.network.instance_mac


def qemu(machine: Hardware, virtio: bool) -> tuple[str, ...]:
    """Return QEMU's options for kernel, firmware and disks, with virtio's controllers or those of a PC."""
    bus = "virtio" if virtio else "ide"
    return (
        *(("-kernel", machine.kernel, "-append", machine.line) if machine.kernel else ("-vga", "std")),
        *(("-initrd", machine.initrd) if machine.initrd else ()),
        *(("-bios", machine.firmware) if machine.firmware else ()),
        *(("-drive", f"file={machine.disk},if={bus},format=qcow2") if machine.disk else ()),
        *(("-drive", f"file={machine.seed},if={bus},format=raw,readonly=on") if machine.seed and virtio else ()),
        *(("-drive", f"file={machine.seed},if={bus},format=raw,media=cdrom") if machine.seed and not virtio else ()),
        *("-device", "virtio-rng-pci"),
    )


def firecracker(machine: Hardware) -> tuple[str, ...]:
    """Return a command that writes Firecracker's configuration and starts it."""
    source = {"kernel_image_path": machine.kernel, "boot_args": f"{machine.line} reboot=k panic=-1 pci=off"}
    drives = {"root": machine.disk, "seed": machine.seed}
    configuration = {
        "boot-source": source | ({"initrd_path": machine.initrd} if machine.initrd else {}),
        "drives": [
            {"drive_id": name, "path_on_host": path, "is_root_device": False, "is_read_only": name == "seed"}
            for name, path in drives.items()
            if path
        ],
        "machine-config": {"vcpu_count": machine.cpus, "mem_size_mib": machine.memory_mib},
        "network-interfaces": [{"iface_id": "eth0", "host_dev_name": machine.tap, "guest_mac": machine.mac}],
    }
    file = str(machine.launch.folder / "machine.json")
    return ("sh", "-c", _WRITE_AND_START, "sh", file, json.dumps(configuration))


def cloud_hypervisor(machine: Hardware, form: str) -> tuple[str, ...]:
    """Return Cloud Hypervisor's command; `form` is its option for the format of disks, if it has one."""
    disks = [f"path={path}{form}" for path in (machine.disk,) if path]
    disks += [f"path={machine.seed}{form},readonly=on"] if machine.seed else []
    return (
        "cloud-hypervisor",
        *(("--kernel", machine.kernel, "--cmdline", machine.line) if machine.kernel else ()),
        *(("--initramfs", machine.initrd) if machine.initrd else ()),
        *(("--firmware", machine.firmware) if machine.firmware else ()),
        *("--cpus", f"boot={machine.cpus}", "--memory", f"size={machine.memory_mib}M"),
        *(("--disk", *disks) if disks else ()),
        *("--net", f"tap={machine.tap},mac={machine.mac}", "--serial", "tty", "--console", "off"),
    )


def seed(host: Host, launch: LaunchRequest, user_data: str, public_key: str) -> str:
    """Make the disk from which cloud-init reads (NoCloud): a key for its user, and the user's data; return its path."""
    folder, target = launch.folder / "seed", str(launch.folder / "seed.iso")
    about = {"instance-id": launch.name, "local-hostname": launch.name}
    host.run("mkdir", "-p", str(folder), timeout=30)
    host.write(f"{folder}/meta-data", json.dumps(about | ({"public-keys": [public_key]} if public_key else {})) + "\n")
    if user_data:
        host.run("cp", user_data, f"{folder}/user-data", timeout=30)
    else:
        host.write(f"{folder}/user-data", "#cloud-config\n{}\n")
    make = ("xorriso", "-as", "mkisofs", "-quiet", "-V", "cidata", "-J", "-R", "-o", target, str(folder))
    host.run(*make, timeout=60)
    return target
