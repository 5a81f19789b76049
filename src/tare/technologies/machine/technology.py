"""User-supplied disk or kernel as a virtual machine, in QEMU, Firecracker or Cloud Hypervisor.

tare boots any system: another distribution, NetBSD or FreeBSD, an appliance, a cloud image, a golden image. It never
writes to your files: each machine gets an overlay of the disk, or a copy if the monitor has no overlays. Either the
client measures a service that the machine starts by itself, as with a unikernel, or tare logs in over SSH and runs any
workload in the machine. With a login, the system must be Linux, and the user must be root or may use sudo without a
password. The programs of a workload must be on the disk: tare only copies its programs to the machine.

The machine has one network card. By default, it requests its address by DHCP from dnsmasq, which tare runs. Otherwise,
its system sets the address: 198.18.0.10/24 with the gateway 198.18.0.1, unless the machine under test has a route
there, or the values of `{address}`, `{netmask}`, `{prefix}` and `{gateway}` in `arguments`.

Limits: the machine has one disk and one card, and on x86-64 a BIOS (SeaBIOS) unless `firmware` is set. A reboot ends
the machine. Firecracker only boots kernels, and Cloud Hypervisor a kernel or a firmware, both with KVM. The proof has
the SHA-256 of each file.

Settings, in which paths are on the machine under test or on this one:

- `disk`: a disk that a PC boots or that the kernel mounts. `disk_format`: `raw` or `qcow2`.
- `kernel`, with `initrd` and `arguments`, its command line.
- `monitor`: `qemu` (KVM), `qemu-tcg` (emulation), `firecracker` or `cloud-hypervisor`.
- `firmware`: the path of a firmware for UEFI.
- `devices`: `virtio`, or `emulated` (AHCI, e1000) for a system without virtio's drivers.
- `address`: `dhcp` or `static`.
- `service`: the workload that the machine serves, such as `nginx`, or a list. `port`: the TCP port of a single service,
  0 for its usual port.
- `user`: the user of the SSH login. `key`: the path of the private key, empty for a user without a password or for
  root's default keys.
- `cloud_init`: whether tare adds a disk for cloud-init, with a key for the user. `user_data`: the path of your data.
- `timeout`: the time for the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tare.guests import boot_media, ssh_login, user_files
from tare.guests.user_files import DiskFormat
from tare.guests.user_guest import QEMU, QEMU_TOOLS, UserGuest, UserGuestBoot
from tare.hosts.facts import architecture_of
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.model.units import Duration
from tare.plugins.technology import LaunchRequest, Technology
from tare.plugins.workload import Workload
from tare.technologies.cloud_hypervisor import CloudHypervisor
from tare.technologies.firecracker import Firecracker
from tare.technologies.machine import monitors

_MONITORS: Mapping[str, type[Technology]] = {monitor.name: monitor for monitor in (Firecracker, CloudHypervisor)}
_SEED = "its disk for cloud-init"  # key of the seed disk among the paths of the user's files
_REFUSAL_HINT = "is it the right user and key? It may be set on the disk, or by cloud_init = true"


@dataclass(frozen=True)
class UserMachine(UserGuest):
    """User-supplied disk or kernel on a monitor of choice."""

    name = "machine"
    title = "your disk or kernel"
    family = "type 2"
    isolation = Isolation("own kernel", "a guest on virtual hardware")
    needs = "a disk or kernel that you supply"
    packages = (*monitors.DHCP_TOOLS.values(), *ssh_login.TOOLS.values(), "xorriso")
    starts_quickly = False
    tests_path = "tests/contract/test_machine.py"
    board = ""
    kvm_alternative = 'use monitor = "qemu-tcg"'
    image_description = "a disk or kernel"
    example_settings = 'monitor = "qemu-tcg", disk = "PATH" and service = "nginx" or user = "root"'

    disk: str = ""
    disk_format: DiskFormat = "raw"
    kernel: str = ""
    initrd: str = ""
    arguments: str = ""
    monitor: Literal["qemu", "qemu-tcg", "firecracker", "cloud-hypervisor"] = "qemu"
    firmware: str = ""
    devices: Literal["virtio", "emulated"] = "virtio"
    address: Literal["dhcp", "static"] = "dhcp"
    service: str | tuple[str, ...] = ""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    user: str = ""
    key: str = ""
    cloud_init: bool = False
    user_data: str = ""
    timeout: Annotated[Duration, Field(gt=0, le=7200)] = 120.0

    @property
    def image(self) -> str:
        """The path of the kernel, or of the disk if it has a boot loader."""
        return self.kernel or self.disk

    @property
    def accelerator(self) -> Literal["kvm", "tcg"]:
        """`tcg` for `qemu-tcg`, `kvm` for other monitors."""
        return "tcg" if self.monitor == "qemu-tcg" else "kvm"

    @property
    def monitor_program(self) -> str:
        """The program that runs the machine."""
        return QEMU if self.monitor.startswith("qemu") else self.monitor

    @property
    def needs_kvm(self) -> bool:
        """Whether QEMU needs KVM; the technologies of the other monitors check for KVM themselves."""
        return self.monitor == "qemu"

    @property
    def tools(self) -> Mapping[str, str]:
        """The tools that the settings need, except a monitor that is not QEMU."""
        dhcp = monitors.DHCP_TOOLS if self.address == "dhcp" else {}
        seed = {"xorriso": "xorriso"} if self.has_seed else {}
        return {**QEMU_TOOLS, **dhcp, **(ssh_login.TOOLS if self.user else {}), **seed}

    @property
    def has_seed(self) -> bool:
        """Whether the machine gets a disk for cloud-init."""
        return self.cloud_init or bool(self.user_data)

    @property
    def extra_files(self) -> tuple[str, ...]:
        """The paths of the other files that the machine boots with."""
        return tuple(filter(None, (self.initrd, self.firmware, self.user_data)))

    @property
    def key_files(self) -> tuple[str, ...]:
        """The path of the private key, if set."""
        return (self.key,) if self.key else ()

    @property
    def has_fixed_address(self) -> bool:
        """Whether the address is configured on the disk."""
        return self.address == "static" and "{address}" not in self.arguments

    @property
    def start_timeout_seconds(self) -> float:
        """The setting `timeout`."""
        return self.timeout

    @property
    def has_endpoint(self) -> bool:
        """Whether the settings name a service or a login."""
        return bool(self.services or self.user)

    @property
    def first_port(self) -> int:
        """The port of the first service; the port of SSH without a service."""
        return next(iter(self.served_ports.values()), ssh_login.PORT)

    def unsupported_reason(self, workload: Workload) -> str | None:
        """Without a login, refuse workloads that run a program inside, except those that the machine serves."""
        if self.user or not workload.runs_inside or workload.service_name in self.served_ports:
            return None
        return f"it only serves {' and '.join(self.services)}: with user = … tare logs in and runs others"

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, faults of the settings, or files that the monitor cannot boot."""
        if problems := super().problems(host):
            return problems
        if self.monitor_program != QEMU and (problems := _MONITORS[self.monitor]().problems(host)):
            return problems
        return self.file_problems(host)

    def file_problems(self, host: Host) -> tuple[Problem, ...]:
        """Return the faults of a kernel and a disk that exist, by their first bytes."""
        architecture, boots = architecture_of(host), not (self.kernel or self.firmware)
        faults: list[tuple[str, user_files.FileFault]] = []
        if self.devices == "emulated" and not architecture.has_bios:
            return (
                Problem(f"the machine that QEMU emulates for {architecture.title} has no AHCI", 'devices = "virtio"'),
            )
        if boots and not architecture.has_bios:
            return (Problem(f"a disk boots by UEFI on {architecture.title}", user_files.uefi_hint(architecture)),)
        if self.kernel:
            header = user_files.read_header(host, self.kernel, self.name)
            faults.append((self.kernel, user_files.kernel_fault(header, architecture)))
        if self.disk:
            header = user_files.read_header(host, self.disk, self.name)
            faults.append((self.disk, user_files.disk_fault(header, self.disk_format, boots)))
        return tuple(Problem(f"{path}: {fault[0]}", fault[1]) for path, fault in faults if fault)

    def setting_problems(self) -> tuple[Problem, ...]:
        """Return missing settings, and settings that contradict each other."""
        virtual, boots = self.monitor_program == QEMU, "a disk boots its kernel itself"
        wrong = (
            (not self.kernel and (self.initrd or self.arguments), f"initrd and arguments need kernel = …: {boots}"),
            (self.key and not self.user, "key needs user = …, who logs in with it"),
            (self.monitor == "firecracker" and not self.kernel, "Firecracker needs kernel = …: it boots no disk"),
            (not virtual and not (self.kernel or self.firmware), f"{self.monitor} needs kernel = … or firmware = …"),
            (not virtual and self.devices == "emulated", f'{self.monitor} has no devices but "virtio"'),
        )
        problems = (Problem(what, "`tare technologies machine` has the settings") for fault, what in wrong if fault)
        return super().setting_problems() or tuple(problems)

    def prepare_files(self, host: Host, launch: LaunchRequest, host_paths: Mapping[str, str]) -> Mapping[str, str]:
        """Start the DHCP server, and make the files that the monitor and cloud-init need; return all paths."""
        paths = dict(host_paths)
        if self.address == "dhcp":
            monitors.serve_dhcp(launch)
        is_qemu = self.monitor_program == QEMU
        if self.disk and not is_qemu:
            paths[self.disk] = user_files.copy_disk(host, launch, host_paths[self.disk], self.disk_format)
        if self.kernel:
            header = user_files.read_header(host, self.kernel, self.name)
            if user_files.is_efi_zboot(header) or (user_files.is_compressed_linux(header) and not is_qemu):
                paths[self.kernel] = str(launch.folder / "vmlinux")
                boot_media.unpack_kernel(host, host_paths[self.kernel], paths[self.kernel])
        if self.has_seed:
            user_data = host_paths[self.user_data] if self.user_data else ""
            paths[_SEED] = monitors.make_seed(host, launch, user_data, self._public_key(host, launch))
        return paths

    def _key_path(self, host: Host, launch: LaunchRequest) -> str:
        """Return the path of the private key on the host: the user's, or the one for cloud-init; "" for neither."""
        if self.key:
            return user_files.ensure_on_host(host, launch, self.key, self.name)
        return f"{launch.folder}/key" if self.has_seed else ""

    def _public_key(self, host: Host, launch: LaunchRequest) -> str:
        """Return the public key for cloud-init, of a new pair unless the user has a key; "" without a login."""
        path = self._key_path(host, launch)
        if self.user and not self.key:
            return ssh_login.create_key(host, path)
        return host.run("ssh-keygen", "-y", "-f", path, timeout=30).text.strip() if self.user else ""

    def command(self, boot: UserGuestBoot) -> tuple[str, ...]:
        """Return the monitor's command."""
        files = {name: boot.files.get(path, "") for name, path in (("kernel", self.kernel), ("initrd", self.initrd))}
        hardware = monitors.Hardware(
            boot.launch,
            boot.tap,
            **files,
            kernel_command_line=boot.fill_placeholders(self.arguments),
            firmware=boot.files.get(self.firmware, ""),
            disk=boot.disk,
            seed=boot.files.get(_SEED, ""),
        )
        if self.monitor == "firecracker":
            return monitors.firecracker_command(hardware)
        if self.monitor == "cloud-hypervisor":
            here = boot.launch.ledger.host
            form = boot.launch.cache.read_once(
                "format of Cloud Hypervisor's disks", lambda: CloudHypervisor().disk_format_option(here)
            )
            return monitors.cloud_hypervisor_command(hardware, form)
        virtio = self.devices == "virtio"
        card = self.card_options(boot, "virtio-net-pci,romfile=" if virtio else "e1000,romfile=")
        return (*self.machine_options(boot), *monitors.qemu_options(hardware, virtio), *card)

    def describe_silence(self, launch: LaunchRequest) -> str:
        """Return how far a machine has come that does not become ready, by the log of the DHCP server."""
        if self.address == "static":
            return super().describe_silence(launch)
        log, network = monitors.dhcp_log(launch), launch.network
        if not monitors.has_requested_address(log, network.instance_mac):
            return "it asked for no address by DHCP"
        if not monitors.has_received_address(log, network.instance_mac):
            return "it asked for an address by DHCP, and did not take it"
        return f"it has its address, but {super().describe_silence(launch)}"

    def silence_hint(self, launch: LaunchRequest) -> str:
        """Return the hint for a machine that does not become ready."""
        if self.address == "static":
            network = launch.network
            return f"its address must be {network.instance_address}/24, its gateway {network.gateway}"
        return 'its console is the serial port; for a system without virtio drivers: devices = "emulated"'

    @contextmanager
    def enter_guest(self, host: Host, launch: LaunchRequest) -> Iterator[Host | None]:
        """Context manager: log in and yield the inside; None without a `user`. Raises TrialFailed."""
        if not self.user:
            yield None
            return
        key, address, seconds = (
            self._key_path(host, launch),
            launch.network.instance_address,
            launch.start_timeout_seconds,
        )
        host_keys = ssh_login.scan_host_keys(host, address, self.name, seconds)
        target = ssh_login.write_ssh_config(host, launch.folder, ssh_login.Login(address, self.user, key), host_keys)
        ssh_login.await_login(host, target, self.name, seconds, "" if self.has_seed else _REFUSAL_HINT)
        with ssh_login.enter_as_root(host, launch, target, self.name) as inside:
            yield inside
