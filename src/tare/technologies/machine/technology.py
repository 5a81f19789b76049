"""A disk or kernel of yours as a virtual machine, in QEMU, Firecracker or Cloud Hypervisor.

tare boots what you have: another distribution, NetBSD or FreeBSD, an appliance, a cloud image, your own golden image.
It never writes to your files: each machine has an overlay of the disk, or a copy in a monitor that takes no overlays.
The machine is measured from the client by the service that it starts by itself, as a unikernel is, or tare logs in by
SSH and runs any workload in it. With a login it must be Linux on x86-64, and the user root or allowed to use sudo
without a password; a workload's programs must be on the disk, as tare brings its own alone.

The machine has one network card. It asks for its address by DHCP, which tare's own dnsmasq answers, or it has the
address itself: 198.18.0.10/24 with the gateway 198.18.0.1, unless the machine under test has a route there, or that of
`{address}`, `{netmask}`, `{prefix}` and `{gateway}` in `arguments`.

Limits: it has one disk and one card, and SeaBIOS unless a firmware is named; one that reboots has ended. Firecracker
boots kernels alone, Cloud Hypervisor a kernel or a firmware, both with KVM. The proof has the SHA-256 of each file.

Settings: `disk`, a disk that a PC boots, or that the kernel mounts, and `disk_format`, `raw` or `qcow2`; `kernel`, with
`initrd` and `arguments`, its command line; all are paths on the machine under test or on this one; `monitor`,
`qemu` (KVM), `qemu-tcg` (emulation), `firecracker` or `cloud-hypervisor`; `firmware`, the path of one
for UEFI; `devices`, `virtio`, or `emulated` for a system without its drivers (AHCI, e1000); `address`, `dhcp` or
`static`; `service`, the workload that it serves, such as `nginx`, or a list of several; `port`, the TCP port of a
single service, 0 for the usual one; `user`, who logs in by SSH, and `key`, the path of the private key, empty for a
user without a password or for root's own keys; `cloud_init`, whether tare gives it a disk for cloud-init, with a key
for that user, and `user_data`, the path of yours; `timeout`, for its start.
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
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.model.units import Duration
from tare.plugins.technology import LaunchRequest, Technology
from tare.plugins.workload import Workload
from tare.technologies.cloud_hypervisor import CloudHypervisor
from tare.technologies.firecracker import Firecracker
from tare.technologies.machine import monitors

_MONITORS: Mapping[str, type[Technology]] = {each.name: each for each in (Firecracker, CloudHypervisor)}
_SEED = "its disk for cloud-init"  # beside the user's files
_REFUSAL_HINT = "is it the right user and key? It may be set on the disk, or by cloud_init = true"


@dataclass(frozen=True)
class UserMachine(UserGuest):
    """Boots the user's disk or kernel."""

    name = "machine"
    title = "a disk or kernel of yours"
    family = "type 2"
    isolation = Isolation("own kernel", "a guest on virtual hardware")
    needs = "a disk or kernel of yours"
    packages = (*monitors.DHCP_TOOLS.values(), *ssh_login.TOOLS.values(), "xorriso")
    starts_quickly = False
    tests_path = "tests/contract/test_machine.py"
    board = "q35"
    kvm_alternative = 'use monitor = "qemu-tcg"'
    image_kind = "a disk or kernel"
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
        """The kernel, or the disk that boots itself."""
        return self.kernel or self.disk

    @property
    def accelerator(self) -> Literal["kvm", "tcg"]:
        """Emulation for `qemu-tcg` alone."""
        return "tcg" if self.monitor == "qemu-tcg" else "kvm"

    @property
    def monitor_program(self) -> str:
        """The program that runs the machine."""
        return QEMU if self.monitor.startswith("qemu") else self.monitor

    @property
    def needs_kvm(self) -> bool:
        """Whether QEMU needs KVM; the other monitors look for it themselves."""
        return self.monitor == "qemu"

    @property
    def tools(self) -> Mapping[str, str]:
        """What its settings need, beside the monitor if that is not QEMU."""
        asks = monitors.DHCP_TOOLS if self.address == "dhcp" else {}
        seeded = {"xorriso": "xorriso"} if self.has_seed else {}
        return {**QEMU_TOOLS, **asks, **(ssh_login.TOOLS if self.user else {}), **seeded}

    @property
    def has_seed(self) -> bool:
        """Whether it gets a disk for cloud-init."""
        return self.cloud_init or bool(self.user_data)

    @property
    def extra_files(self) -> tuple[str, ...]:
        """The files of the user that it boots with."""
        return tuple(filter(None, (self.initrd, self.firmware, self.user_data)))

    @property
    def key_files(self) -> tuple[str, ...]:
        """The private key."""
        return (self.key,) if self.key else ()

    @property
    def has_fixed_address(self) -> bool:
        """Whether its address is on the disk."""
        return self.address == "static" and "{address}" not in self.arguments

    @property
    def start_timeout_seconds(self) -> float:
        """The `timeout`."""
        return self.timeout

    @property
    def has_endpoint(self) -> bool:
        """Whether the settings name a service or a login."""
        return bool(self.services or self.user)

    @property
    def first_port(self) -> int:
        """The port of its first service, or that of SSH."""
        return next(iter(self.served_ports.values()), ssh_login.PORT)

    def unsupported_reason(self, workload: Workload) -> str | None:
        """Without a login, refuse all workloads but those that it serves and those that run nothing inside."""
        if self.user or not workload.runs_inside or workload.service_name in self.served_ports:
            return None
        return f"it serves {' and '.join(self.services)} alone: with user = … tare logs in and runs others"

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find what is missing, and whether the user's files can be booted on this monitor."""
        if problems := super().problems(host):
            return problems
        if self.monitor_program != QEMU and (problems := _MONITORS[self.monitor]().problems(host)):
            return problems
        return self.file_problems(host)

    def file_problems(self, host: Host) -> tuple[Problem, ...]:
        """Find whether kernel and disk, which exist, are what their settings say."""
        boots = not (self.kernel or self.firmware)
        found = []
        if self.kernel:
            found.append((self.kernel, user_files.kernel_fault(user_files.read_header(host, self.kernel, self.name))))
        if self.disk:
            begins = user_files.read_header(host, self.disk, self.name)
            found.append((self.disk, user_files.disk_fault(begins, self.disk_format, boots)))
        return tuple(Problem(f"{path}: {fault[0]}", fault[1]) for path, fault in found if fault)

    def setting_problems(self) -> tuple[Problem, ...]:
        """Find what the settings lack, and which of them do not go together."""
        virtual, boots = self.monitor_program == QEMU, "a disk boots a kernel of its own"
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
        """Start the DHCP server, and make the copies that the monitor and cloud-init need."""
        made = dict(host_paths)
        if self.address == "dhcp":
            monitors.serve_dhcp(launch)
        if self.monitor_program != QEMU:
            if self.disk:
                made[self.disk] = user_files.copy_disk(host, launch, host_paths[self.disk], self.disk_format)
            if self.kernel and user_files.is_compressed_linux(user_files.read_header(host, self.kernel, self.name)):
                made[self.kernel] = str(launch.folder / "vmlinux")
                boot_media.unpack_kernel(host, host_paths[self.kernel], made[self.kernel])
        if self.has_seed:
            user_data = host_paths[self.user_data] if self.user_data else ""
            made[_SEED] = monitors.make_seed(host, launch, user_data, self._public_key(host, launch))
        return made

    def _key_path(self, host: Host, launch: LaunchRequest) -> str:
        """Return the path of the private key on the host: of the user's, or of the one that cloud-init installs."""
        if self.key:
            return user_files.ensure_on_host(host, launch, self.key, self.name)
        return f"{launch.folder}/key" if self.has_seed else ""

    def _public_key(self, host: Host, launch: LaunchRequest) -> str:
        """Return the public key for cloud-init, which tare makes unless the user has one; empty without a login."""
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
        """Describe how far a machine came that does not answer."""
        if self.address == "static":
            return super().describe_silence(launch)
        log, network = monitors.dhcp_log(launch), launch.network
        if not monitors.has_requested_address(log, network.instance_mac):
            return "it asked for no address by DHCP"
        if not monitors.has_received_address(log, network.instance_mac):
            return "it asked for an address by DHCP, and did not take it"
        return f"it has its address, but {super().describe_silence(launch)}"

    def silence_hint(self, launch: LaunchRequest) -> str:
        """Return what to do about a machine that does not answer."""
        if self.address == "static":
            network = launch.network
            return f"its own address must be {network.instance_address}/24, its gateway {network.gateway}"
        return 'its console is the serial port; for a system without virtio drivers: devices = "emulated"'

    @contextmanager
    def enter_guest(self, host: Host, launch: LaunchRequest) -> Iterator[Host | None]:
        """Log in, if a user is given; raises TrialFailed."""
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
