"""A guest of the user's own, which tare boots as it is: what unikernels' images share with any disk or kernel.

It has started when the port of its (first) service accepts connections. It has failed when that takes more than five
sixths of the time that an instance has. tare never writes to the user's files: each guest has an overlay of the disk,
or a copy for a monitor that takes no overlays.

The docstring of each technology describes its settings: `tare technologies NAME` prints it.
"""

from __future__ import annotations

import re
import shlex
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tare.guests import kvm, user_files
from tare.guests.guest import EMULATION_CAUTION, with_monitor_memory
from tare.guests.user_files import DiskFormat
from tare.hosts.cgroups import create_limited_cgroup
from tare.hosts.host import Host, Process
from tare.model.errors import TimedOut, TrialFailed, Unavailable, did_you_mean
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Problem
from tare.plugins import registry
from tare.plugins.technology import LaunchRequest, Technology, find_missing_tools, first_line
from tare.plugins.workload import Instance, Workload

NETMASK, PREFIX = "255.255.255.0", 24
QEMU = kvm.PROGRAM
QEMU_TOOLS: Mapping[str, str] = {QEMU: "qemu-system-x86", "qemu-img": "qemu-utils", "ip": "iproute2"}
_PROBE = "usr/lib/tare/probe"
_START_TIMEOUT_SHARE = 5 / 6  # the client probes for as long as an instance may take to start: ours is the better error
_PAUSE_SECONDS = 0.2  # seldom enough not to disturb what boots; the client itself probes without a pause
_LAST_OUTPUT_SECONDS = 5.0  # until the last lines of a monitor that has ended are read
_TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-9;?=]*[A-Za-z]|[()].|[A-Za-z])|[^\x20-\x7e]")
_PANIC = re.compile(r"Kernel panic - not syncing")


@dataclass(frozen=True)
class UserGuestBoot:
    """What a monitor boots: the image, its own disk, the tap, and the paths of other files."""

    launch: LaunchRequest
    image: str
    disk: str
    tap: str
    files: Mapping[str, str]

    @property
    def memory_mib(self) -> int:
        """Its memory in MiB."""
        return self.launch.limits.memory_bytes >> 20

    def fill_placeholders(self, *words: str) -> str:
        """Return a command line, in which `{address}`, `{netmask}`, `{prefix}` and `{gateway}` are the guest's own."""
        network = self.launch.network
        line = " ".join(filter(None, words))
        for name, value in (
            ("address", network.instance_address),
            ("netmask", NETMASK),
            ("prefix", str(PREFIX)),
            ("gateway", network.gateway),
        ):
            line = line.replace(f"{{{name}}}", value)
        return line


class UserGuest(Technology):
    """Boots what the user brings. Each technology of this kind builds the command line.

    `service` is the workload that it serves, or several, `port` the TCP port of a single one, 0 for the usual one.
    The format of its disk is given, not probed: an untrusted disk may mislead the probe.
    """

    network_path = "tap"
    board = "pc"
    has_one_cpu = False
    kvm_alternative = 'use accelerator = "tcg"'
    image_kind = "an image"
    example_settings = 'image = "PATH" and service = "redis"'
    service: str | tuple[str, ...]
    port: int
    disk_format: DiskFormat = "raw"

    def command(self, boot: UserGuestBoot) -> tuple[str, ...]:
        """Return the command that boots it."""
        raise NotImplementedError

    @property
    def image(self) -> str:
        """The file that is booted."""
        raise NotImplementedError

    @property
    def accelerator(self) -> Literal["kvm", "tcg"]:
        """How QEMU runs the guest's instructions."""
        raise NotImplementedError

    @property
    def tools(self) -> Mapping[str, str]:
        """The tools, each with its Debian packages; the monitor comes first."""
        return QEMU_TOOLS

    @property
    def monitor_program(self) -> str:
        """The program that runs the guest."""
        return next(iter(self.tools))

    @property
    def needs_kvm(self) -> bool:
        """Whether it cannot run without KVM."""
        return self.accelerator == "kvm"

    @property
    def disk(self) -> str:
        """The disk of which the guest gets an overlay or a copy; empty if it has none."""
        return ""

    @property
    def extra_files(self) -> tuple[str, ...]:
        """The user's other files that the command names."""
        return ()

    @property
    def key_files(self) -> tuple[str, ...]:
        """The user's files that are not booted, and stay out of the proof."""
        return ()

    @property
    def services(self) -> tuple[str, ...]:
        """The workloads that it serves."""
        return tuple(filter(None, (self.service,) if isinstance(self.service, str) else self.service))

    @property
    def served_ports(self) -> dict[str, int]:
        """The workloads that it serves, each with its port."""
        ports = {service: self.port or _usual_port(service) for service in self.services}
        return {service: port for service, port in ports.items() if port}

    @property
    def first_port(self) -> int:
        """The TCP port at which it answers first."""
        return next(iter(self.served_ports.values()))

    def describe_silence(self, launch: LaunchRequest) -> str:
        """Describe why a guest that boots does not answer."""
        return f"nothing answers at {launch.network.instance_address}:{self.first_port}"

    def silence_hint(self, launch: LaunchRequest) -> str:  # noqa: ARG002 - for images that have their address built in
        """Return a further hint for a guest that does not answer."""
        return ""

    def output_hint(self, output: str) -> str:  # noqa: ARG002 - for images whose last words are known
        """Return a further hint for a guest that said this on its console."""
        return ""

    def prepare_files(self, host: Host, launch: LaunchRequest, host_paths: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002
        """Prepare what is not a part of the start; return the paths of the user's files as they are booted."""
        return host_paths

    def enter_guest(self, host: Host, launch: LaunchRequest) -> AbstractContextManager[Host | None]:  # noqa: ARG002
        """Enter a guest that answers; None for one without an inside."""
        return nullcontext()

    def external_effects(self) -> Sequence[str]:
        """Name the files that are booted."""
        return [f"boots {path}" for path in self.user_file_paths()]

    def version(self, host: Host) -> str:
        """Return the version of the monitor; tare does not know that of the guest."""
        line = first_line(host, "sh", "-c", '"$1" --version 2>&1', "sh", self.monitor_program)
        match = re.search(r"\bv(?:ersion v?)?(\d\S*)", line)
        return match[1] if match else ""

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find whether the settings name the user's files and a service, and whether the monitor can run."""
        if problems := find_missing_tools(host, self.tools) or self.setting_problems():
            return problems
        try:
            for path in (*self.user_file_paths(), *self.key_files):
                user_files.locate_file(host, path, self.name)
        except Unavailable as error:
            return (Problem(str(error), error.hint),)
        return kvm.problems(host, self.kvm_alternative) if self.needs_kvm else ()

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Boot the guest and wait until its first port accepts connections; raises TrialFailed."""
        with ExitStack() as stack:
            stack.enter_context(launch.ledger.register_undo("rm", "-rf", "--one-file-system", str(launch.folder)))
            host.run("mkdir", "-p", str(launch.folder / "written"), timeout=30)
            placed = {path: user_files.ensure_on_host(host, launch, path, self.name) for path in self.user_file_paths()}
            digests = user_files.hash_files(launch, placed)
            files = self.prepare_files(host, launch, placed)
            measure, written = launch.ledger.setup_helper.bytes_below, str(launch.folder / "written")
            before = measure(written)
            launch.start_probe(launch.network.instance_address, self.first_port)
            launch.timeline.mark("requested")
            group = stack.enter_context(
                create_limited_cgroup(launch.ledger, launch.name, with_monitor_memory(launch.limits))
            )
            disk = files[self.disk] if self.disk else ""
            if disk and self.monitor_program == QEMU:
                disk = user_files.create_overlay(host, launch, disk, self.disk_format)
            tap = stack.enter_context(launch.network.create_tap(headers=self.monitor_program == QEMU))
            launch.timeline.mark("started")
            command = self.command(UserGuestBoot(launch, files[self.image], disk, tap, files))
            monitor = stack.enter_context(host.spawn(*group.join, *launch.network.enter, *command))
            self._await_ready(launch, monitor)
            inside = stack.enter_context(self.enter_guest(host, launch))
            yield Instance(
                name=launch.name,
                inside=inside,
                address=launch.network.instance_address,
                network_path=self.network_path,
                processes=group.processes,
                proof={"monitor": f"{self.monitor_program} {self.version(host)}", "image": self.image}
                | digests
                | ({"accelerator": self.accelerator} if self.monitor_program == QEMU else {})
                | ({"guest kernel": inside.run("uname", "-r", timeout=60).text.strip()} if inside else {}),
                written_bytes=lambda: max(0, measure(written) - before),
                image_bytes=lambda: user_files.disk_usage_bytes(host, placed.values()),
                cautions=self.cautions(launch),
                served_ports=self.served_ports,
                disk_file=disk or None,
            )

    def user_file_paths(self) -> tuple[str, ...]:
        """Return the paths of the user's files, each once: what is booted comes first."""
        return tuple(path for path in dict.fromkeys((self.image, self.disk, *self.extra_files)) if path)

    def setting_problems(self) -> tuple[Problem, ...]:
        """Find what the settings lack, without looking at any file."""
        table = f'write a table [stacks.NAME] with stack = "{self.name}", {self.example_settings}'
        if not self.image or not self.has_endpoint:
            what = f"it boots {self.image_kind} of your own, but the stack names none"
            if self.image:
                what = f"the stack does not say what answers in {self.image}"
            return (Problem(what, table, missing="yours"),)
        if self.port and len(self.services) > 1:
            return (Problem("one port is given for several services", "leave out port: each has its usual one"),)
        known = registry.names("workloads")
        for service in self.services:
            if service not in known:
                hint = did_you_mean(service, known, "`tare workloads` lists the names")
                return (Problem(f'service = "{service}": no workload of this name', hint),)
            if service not in self.served_ports:
                return (Problem(f"the port of {service} is not given", "add port = … to the stack's table"),)
        return ()

    @property
    def has_endpoint(self) -> bool:
        """Whether the settings name something that answers."""
        return bool(self.services)

    def _await_ready(self, launch: LaunchRequest, monitor: Process) -> None:
        """Wait until the first port accepts connections."""
        seconds = launch.start_timeout_seconds * _START_TIMEOUT_SHARE
        probe = (str(launch.image.root / _PROBE), launch.network.instance_address, str(self.first_port))
        deadline, last = time.monotonic() + seconds, deque[str](maxlen=3)
        failed = f"{self.name}: {self.image} did not boot: "
        while launch.ledger.host.run(*probe, "0.02", "connect", timeout=30, check=False).exit_code:
            ended = not monitor.is_running()
            for line in _read_lines(monitor, _LAST_OUTPUT_SECONDS if ended else 0.0):
                last.append(line)
                if _PANIC.search(line):
                    raise TrialFailed(f"{failed}its kernel panicked", _format_output(last))
            if ended:
                last.extend(monitor.errors().splitlines())
                hint = "; ".join(filter(None, (_format_output(last), self.output_hint("".join(last)))))
                raise TrialFailed(f"{failed}{self.monitor_program} ended", hint)
            if time.monotonic() > deadline:
                hint = "; ".join(filter(None, (_format_output(last), self.silence_hint(launch))))
                raise TimedOut(f"{failed}{self.describe_silence(launch)} for {seconds:g} s", hint)
            time.sleep(_PAUSE_SECONDS)

    def cautions(self, launch: LaunchRequest) -> tuple[Caution, ...]:
        """Return the cautions of every instance."""
        cautions = []
        if self.monitor_program == QEMU and self.accelerator == "tcg":
            cautions.append(EMULATION_CAUTION)
        if self.has_one_cpu and len(launch.limits.cpus) > 1:
            cautions.append(Caution("limits-differ", f"uses one CPU, {len(launch.limits.cpus)} were asked for"))
        return tuple(cautions)

    def machine_options(self, boot: UserGuestBoot, emulated: str = "max", virtual: str = "host") -> tuple[str, ...]:
        """Return QEMU's options for the machine; the processor's model is `emulated`, or `virtual` with KVM."""
        accelerated = ("-accel", "kvm", "-cpu", virtual)
        processor = accelerated if self.accelerator == "kvm" else ("-accel", "tcg", "-cpu", emulated)
        cpus = 1 if self.has_one_cpu else len(boot.launch.limits.cpus)
        return (
            *(QEMU, *processor, "-M", self.board, "-nodefaults", "-no-user-config", "-display", "none"),
            *("-no-reboot", "-serial", "stdio", "-smp", str(cpus), "-m", f"{boot.memory_mib}M"),
        )

    @staticmethod
    def card_options(boot: UserGuestBoot, device: str = "virtio-net-pci") -> tuple[str, ...]:
        """Return QEMU's options for the network card."""
        network = f"tap,id=net0,ifname={boot.tap},script=no,downscript=no"
        mac = boot.launch.network.instance_mac
        return ("-netdev", network, "-device", f"{device},netdev=net0,mac={mac}")


def _usual_port(service: str) -> int:
    """Return the port that a workload's server usually has; 0 where there is none, or no such workload."""
    if service not in registry.names("workloads"):
        return 0
    workload = registry.find("workloads", service)()
    return workload.usual_port or workload.port or 0


def _read_lines(monitor: Process, seconds: float) -> Iterator[str]:
    """Yield the unread lines of the console, and those of the next seconds, up to its end."""
    try:
        while True:
            yield monitor.read_line(seconds).text.strip()
    except TrialFailed:
        return


def _format_output(last: Iterable[str]) -> str:
    words = " / ".join(filter(None, (_TERMINAL_CODES.sub("", line).strip() for line in last)))[-300:]
    return f"its last output: {words}" if words else "its console stayed empty"


@dataclass(frozen=True)
class UserUnikernel(UserGuest):
    """A user's image of a unikernel that tare cannot build.

    It is booted with the command line that its project documents, which sets its address, and with the memory of the
    suite. Each technology of this kind says where its kernel takes the address.

    `kernel_command_line` is the kernel's command line, in which `{address}` and the like are filled in; `drive_options`
    has QEMU's options for the disk, in which `{disk}` is its path.
    """

    family = "unikernel"
    needs = "an image of yours"
    tests_path = "tests/lab/test_real_things.py"
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "stand-in"
    cpu_model: ClassVar[str] = "host"  # with KVM
    drive_options: ClassVar[tuple[str, ...]] = ()
    extra_options: ClassVar[tuple[str, ...]] = ()  # QEMU's further options

    image: str = ""
    service: str | tuple[str, ...] = ""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    arguments: str = ""
    accelerator: Literal["kvm", "tcg"] = "kvm"

    def kernel_command_line(self, boot: UserGuestBoot) -> str:
        """Return the kernel's command line."""
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
        """Refuse all workloads but those that the image serves and those that run nothing inside."""
        if not workload.runs_inside or workload.service_name in self.served_ports:
            return None
        return f"a unikernel has no shell: this image serves {' and '.join(self.services) or 'nothing'} alone"

    @property
    def isolation(self) -> Isolation:
        """That of a unikernel in QEMU."""
        return Isolation("own kernel", "a unikernel on virtual hardware: one application with its kernel")

    @property
    def argument_words(self) -> tuple[str, ...]:
        """The application's arguments, split as a shell splits them."""
        return tuple(shlex.split(self.arguments))
