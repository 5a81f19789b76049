"""Unikernels: of tare's server `micro` (tare/images/micro.py), and user-supplied images that tare cannot build.

tare builds them once, before the first instance. A unikernel has started when it responds to the client on the port of
`init`. The start fails if its console has no readiness message within 60 s. Unikernels have one CPU and no limit on
open files.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tare.guests import kvm
from tare.guests.guest import EMULATION_CAUTION, with_monitor_memory
from tare.guests.user_guest import UserGuest, UserGuestBoot
from tare.hosts.cgroups import ControlGroup, create_limited_cgroup
from tare.hosts.host import Host, Process
from tare.images.micro import SOLO5, MicroBuild, ensure_unikernels, unikernels_folder
from tare.model.architecture import X86_64, Architecture
from tare.model.errors import TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Family, Limits, Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, Technology, find_missing_tools, first_line
from tare.plugins.workload import Workload

BOOT_SECONDS = 60.0
SERVED_PORTS: Mapping[str, int] = {"micro-http": 18080, "micro-redis": 16379}
READY_LINE = "micro: ready"
_TENDER_MEMORY_BYTES = 16 << 20  # kept free of the unikernel's memory: more than a tender needs


@dataclass(frozen=True)
class UnikernelBoot:
    """Boot parameters of a unikernel: the folder of the unikernels on the host, and the tap."""

    launch: LaunchRequest
    folder: str
    tap: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command line of the application in the unikernel."""
        network = self.launch.network
        return (f"--ipv4={network.instance_address}/24", f"--gateway={network.gateway}")


@dataclass(frozen=True)
class Unikernel(Technology):
    """Unikernel of `micro` in a monitor; `file` is the unikernel's name in its folder."""

    family: ClassVar[Family] = "unikernel"
    network_path = "tap"
    tests_path = "tests/contract/test_unikernels.py"
    architectures: ClassVar[tuple[Architecture, ...]] = (X86_64,)
    build: ClassVar[MicroBuild] = SOLO5
    file: ClassVar[str]
    noun: ClassVar[str] = "unikernel"  # of `file`, in messages
    tools: ClassVar[Mapping[str, str]] = {"ip": "iproute2", "nsenter": "util-linux"}
    has_virtio_headers = False  # whether the monitor passes packets with virtio's headers to the tap
    has_firmware = False  # whether a firmware runs before the unikernel

    @property
    def debian_packages(self) -> tuple[str, ...]:
        """The Debian packages that it needs on a host, and those of its build."""
        return tuple(sorted({*super().debian_packages, *self.build.debian_packages}))

    @property
    def needs_kvm(self) -> bool:
        """Whether the unikernel is a guest on KVM."""
        return False

    def command(self, boot: UnikernelBoot) -> tuple[str, ...]:
        """Return the command that starts the unikernel."""
        raise NotImplementedError

    def cgroup_limits(self, limits: Limits) -> Limits:
        """Return the limits of the control group that holds the monitor and the unikernel."""
        return limits

    def proof(self, host: Host) -> dict[str, str]:
        """Return the monitor and its version, for the instance's proof."""
        raise NotImplementedError

    def cautions(self, limits: Limits) -> tuple[Caution, ...]:
        """Return the cautions of an instance with these limits."""
        caution = Caution("limits-differ", f"uses one CPU, {len(limits.cpus)} were asked for")
        return () if len(limits.cpus) == 1 else (caution,)

    def acceleration_problems(self, host: Host) -> Sequence[Problem]:  # noqa: ARG002 - most need no KVM
        """Return the problem that prevents the use of the accelerator, or ()."""
        return ()

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return what the host lacks to start it, and what this machine lacks to build it if it is not built."""
        return find_missing_tools(host, self.tools) or self.build.problems() or self.acceleration_problems(host)

    def unsupported_reason(self, workload: Workload) -> str | None:
        """Refuse workloads that run a program inside, except those that `micro` serves."""
        if not workload.runs_inside or workload.service_name in SERVED_PORTS:
            return None
        return f"a {self.noun} has no shell: this one only serves {' and '.join(SERVED_PORTS)}"

    def prepare_image(self, host: Host, image: Image) -> None:  # noqa: ARG002 - it has no image
        """Build the unikernels and copy them to the host."""
        ensure_unikernels(host, lambda _: None, self.build)

    def prepare(self, launch: LaunchRequest, folder: str, group: ControlGroup, stack: ExitStack) -> tuple[str, ...]:  # noqa: ARG002 - others need the group
        """Make what the unikernel in `folder` needs, until `stack` ends; return the command that starts it."""
        tap = stack.enter_context(launch.network.create_tap(headers=self.has_virtio_headers))
        return (*launch.network.enter, *self.command(UnikernelBoot(launch, folder, tap)))

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start the unikernel in a control group and wait for the readiness message on its console."""
        folder = ensure_unikernels(launch.ledger.host, lambda _: None, self.build)
        digest = host.run("sha256sum", f"{folder}/{self.file}", timeout=60).text.split()[0]
        address = launch.network.instance_address
        launch.start_probe(address)
        launch.timeline.mark("requested")
        with ExitStack() as stack:
            group = stack.enter_context(
                create_limited_cgroup(launch.ledger, launch.name, self.cgroup_limits(launch.limits))
            )
            command = self.prepare(launch, folder, group, stack)
            launch.timeline.mark("started")
            console = stack.enter_context(host.spawn(*group.join, *command))
            self._await_ready(console, launch)
            instance = Instance(
                name=launch.name,
                inside=None,
                address=address,
                network_path=self.network_path,
                processes=group.processes,
                proof={**self.proof(launch.ledger.host), self.noun: self.file, "sha256": digest},
                written_bytes=lambda: 0,  # it has no disk
                image_bytes=lambda: launch.ledger.setup_helper.bytes_below(f"{folder}/{self.file}"),
                cautions=self.cautions(launch.limits),
                served_ports=SERVED_PORTS,
            )
            yield kvm.with_pvm(host, instance) if self.needs_kvm else instance

    def _await_ready(self, console: Process, launch: LaunchRequest) -> None:
        """Read the console until the readiness message; with a firmware, mark its first line as `kernel`.

        Raises TrialFailed with the last line if the monitor ends, and TimedOut after 60 s.
        """
        last, deadline = "", time.monotonic() + BOOT_SECONDS
        while last != READY_LINE:
            left = deadline - time.monotonic()
            try:
                if left < 0:
                    raise TimedOut("too late")
                line = console.read_line(left)
            except TrialFailed as error:
                # Standard output is the guest's console; the monitor prints its errors on standard error.
                words = [last, *filter(None, (text.strip() for text in console.errors().splitlines()))]
                late = isinstance(error, TimedOut)
                end = f"it does not serve after {BOOT_SECONDS:g} s" if late else "its monitor ended"
                what = f"{self.name}: the {self.noun} did not boot: {end}"
                kind = TimedOut if late else TrialFailed
                raise kind(what, f"its last line was: {words[-1][-200:]!r}") from error
            if line.text.strip() and not last and self.has_firmware:
                launch.timeline.mark("kernel", line.seconds)
            last = line.text.strip() or last


@dataclass(frozen=True)
class Solo5(Unikernel):
    """Unikernel in a Solo5 tender, which is built with it. Both share the memory limit."""

    tender: ClassVar[str]

    def version(self, host: Host) -> str:
        """Return the version of Solo5; "" before it is built."""
        return solo5_version(host)

    def proof(self, host: Host) -> dict[str, str]:
        """Return the tender with its version."""
        return {"tender": f"{self.tender} {self.version(host)}"}

    def command(self, boot: UnikernelBoot) -> tuple[str, ...]:
        """Return the tender's command; `net` is the device that the unikernel's manifest names."""
        memory = max(boot.launch.limits.memory_bytes - _TENDER_MEMORY_BYTES, _TENDER_MEMORY_BYTES) >> 20
        network = (f"--net:net={boot.tap}", f"--net-mac:net={boot.launch.network.instance_mac}")
        tender = (f"{boot.folder}/{self.tender}", f"--mem={memory}", *network)
        return (*tender, "--", f"{boot.folder}/{self.file}", *boot.arguments)


@dataclass(frozen=True)
class QemuUnikernel(Unikernel):
    """Unikernel in QEMU."""

    tools: ClassVar[Mapping[str, str]] = {kvm.PROGRAM: "qemu-system-x86", **Unikernel.tools}
    has_virtio_headers = True
    has_firmware = True
    board: ClassVar[str]
    emulated_cpu_model: ClassVar[str]
    card_options = ""  # extra options of the network card

    accelerator: Literal["tcg", "kvm"] = "tcg"

    @property
    def needs_kvm(self) -> bool:
        """Whether KVM is the accelerator."""
        return self.accelerator == "kvm"

    def cgroup_limits(self, limits: Limits) -> Limits:
        """Add the memory that QEMU itself needs."""
        return with_monitor_memory(limits)

    def proof(self, host: Host) -> dict[str, str]:
        """Return the accelerator, QEMU's version, and that of the unikernel's system."""
        return {"accelerator": self.accelerator, "qemu": kvm.qemu_version(host), "system": self.version(host)}

    def cautions(self, limits: Limits) -> tuple[Caution, ...]:
        """Add a caution for emulation."""
        return (*(() if self.needs_kvm else (EMULATION_CAUTION,)), *super().cautions(limits))

    def acceleration_problems(self, host: Host) -> Sequence[Problem]:
        """Return the problem that prevents the use of KVM if it is the accelerator, or ()."""
        return kvm.problems(host, 'use accelerator = "tcg"') if self.needs_kvm else ()

    def command(self, boot: UnikernelBoot) -> tuple[str, ...]:
        """Return QEMU's command."""
        processor = ("-cpu", "host" if self.accelerator == "kvm" else self.emulated_cpu_model)
        network = f"tap,id=net0,ifname={boot.tap},script=no,downscript=no"
        card = f"virtio-net-pci,netdev=net0,mac={boot.launch.network.instance_mac},romfile={self.card_options}"
        return (
            *(X86_64.qemu, "-accel", self.accelerator, "-machine", self.board, *processor),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-serial", "stdio", "-monitor", "none"),
            *("-smp", "1", "-m", f"{boot.launch.limits.memory_bytes >> 20}M"),
            *("-netdev", network, "-device", card),
            *("-kernel", f"{boot.folder}/{self.file}", "-append", " ".join(boot.arguments)),
        )


def solo5_version(host: Host) -> str:
    """Return the version of Solo5; "" before its tenders are built with the unikernels."""
    line = first_line(host, "sh", "-c", '"$1" --version 2>&1', "sh", f"{unikernels_folder(host, SOLO5)}/solo5-spt")
    return line.partition("version v")[2]


@dataclass(frozen=True)
class UserUnikernel(UserGuest):
    """User-supplied unikernel: an image that tare cannot build.

    tare boots it with the suite's memory, and with the command line that the unikernel's project documents. This line
    sets the address: a subclass writes it in `kernel_command_line`. `drive_options` has QEMU's options for the disk, in
    which `{disk}` is replaced by its path.
    """

    family = "unikernel"
    needs = "an image that you supply"
    tests_path = "tests/lab/test_real_things.py"
    architectures = (X86_64,)
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "stand-in"
    cpu_model: ClassVar[str] = "host"  # with KVM
    drive_options: ClassVar[tuple[str, ...]] = ()
    extra_options: ClassVar[tuple[str, ...]] = ()  # more options of QEMU

    image: str = ""
    service: str | tuple[str, ...] = ""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    arguments: str = ""
    accelerator: Literal["kvm", "tcg"] = "kvm"

    def kernel_command_line(self, boot: UserGuestBoot) -> str:
        """Return the kernel's command line for an instance."""
        raise NotImplementedError

    def command(self, boot: UserGuestBoot) -> tuple[str, ...]:
        """Return QEMU's command: the kernel and its line, the disk and the network card."""
        return (
            *self.machine_options(boot, virtual=self.cpu_model),
            *("-kernel", boot.image, "-append", self.kernel_command_line(boot)),
            *(word.replace("{disk}", boot.disk) for word in (self.drive_options if boot.disk else ())),
            *self.card_options(boot),
            *self.extra_options,
        )

    def unsupported_reason(self, workload: Workload) -> str | None:
        """Refuse workloads that run a program inside, except those that the image serves."""
        if not workload.runs_inside or workload.service_name in self.served_ports:
            return None
        served = " and ".join(self.services)
        return f"a unikernel has no shell: this image {f'only serves {served}' if served else 'serves nothing'}"

    @property
    def isolation(self) -> Isolation:
        """The isolation of a unikernel in QEMU."""
        return Isolation("own kernel", "a unikernel on virtual hardware: one application with its kernel")

    @property
    def argument_words(self) -> tuple[str, ...]:
        """The application's arguments, split as a shell splits them."""
        return tuple(shlex.split(self.arguments))
