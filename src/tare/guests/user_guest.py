"""User-supplied guest, which tare boots without changes: the parts that unikernels share with any disk or kernel.

A guest has started when the port of its first service accepts connections. The start fails if this takes more than five
sixths of an instance's timeout. tare never writes to the user's files: each guest gets an overlay of the disk, or a
copy for a monitor without overlays.

The docstring of each technology describes its settings: `tare technologies NAME` prints it.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

from tare.guests import kvm, user_files
from tare.guests.guest import EMULATION_CAUTION, with_monitor_memory
from tare.guests.user_files import DiskFormat
from tare.hosts.cgroups import create_limited_cgroup
from tare.hosts.facts import architecture_of
from tare.hosts.host import Host, Process
from tare.model.errors import TimedOut, TrialFailed, Unavailable, did_you_mean
from tare.model.trial import Caution, Problem
from tare.plugins import registry
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, Technology, find_missing_tools, first_line

NETMASK, PREFIX = "255.255.255.0", 24
QEMU = kvm.PROGRAM
QEMU_TOOLS: Mapping[str, str] = {QEMU: "qemu-system-x86", "qemu-img": "qemu-utils", "ip": "iproute2"}
_PROBE = "usr/lib/tare/probe"
# The client's readiness probe lasts for the whole timeout. tare must fail before it: its error has the last output.
_START_TIMEOUT_SHARE = 5 / 6
_PAUSE_SECONDS = 0.2  # rare enough not to disturb the booting guest; the client itself probes without a pause
_LAST_OUTPUT_SECONDS = 5.0  # to read the last lines of a monitor that has ended
_TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-9;?=]*[A-Za-z]|[()].|[A-Za-z])|[^\x20-\x7e]")
_PANIC = re.compile(r"Kernel panic - not syncing")


@dataclass(frozen=True)
class UserGuestBoot:
    """Boot parameters of a user-supplied guest: paths on the host and the tap.

    `image` is the booted file, `disk` the guest's private disk ("" without one). `files` has the host's path of every
    file that the settings name.
    """

    launch: LaunchRequest
    image: str
    disk: str
    tap: str
    files: Mapping[str, str]

    @property
    def memory_mib(self) -> int:
        """The guest's memory in MiB."""
        return self.launch.limits.memory_bytes >> 20

    def fill_placeholders(self, *words: str) -> str:
        """Join the non-empty words, with the guest's {address}, {netmask}, {prefix} and {gateway} filled in."""
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
    """User-supplied guest; a subclass builds the command line of its monitor.

    `service` is the workload that the guest serves, or several. `port` is the TCP port of a single service; 0 for its
    usual port. The user states `disk_format`: probing it would let an untrusted disk pretend to be another format,
    and so name any file of the host as its base.
    """

    network_path = "tap"
    board = "pc"  # QEMU's machine type; "" for that of the architecture
    has_one_cpu = False
    kvm_alternative = 'use accelerator = "tcg"'
    image_description = "an image"
    example_settings = 'image = "PATH" and service = "redis"'
    service: str | tuple[str, ...]
    port: int
    disk_format: DiskFormat = "raw"

    # --- what a subclass defines, or overrides -----------------------------------------------------------------------

    def command(self, boot: UserGuestBoot) -> tuple[str, ...]:
        """Return the monitor's command."""
        raise NotImplementedError

    @property
    def image(self) -> str:
        """The path of the booted file, as in the settings."""
        raise NotImplementedError

    @property
    def accelerator(self) -> Literal["kvm", "tcg"]:
        """The accelerator of QEMU; other monitors ignore it."""
        raise NotImplementedError

    @property
    def tools(self) -> Mapping[str, str]:
        """The tools, each with its Debian packages; the first is the monitor."""
        return QEMU_TOOLS

    @property
    def monitor_program(self) -> str:
        """The program of the monitor."""
        return next(iter(self.tools))

    @property
    def needs_kvm(self) -> bool:
        """Whether the guest cannot run without KVM."""
        return self.accelerator == "kvm"

    @property
    def disk(self) -> str:
        """The path of the disk that the guest gets as an overlay or a copy; "" if it has no disk."""
        return ""

    @property
    def extra_files(self) -> tuple[str, ...]:
        """The paths of the user's other files that the command names."""
        return ()

    @property
    def key_files(self) -> tuple[str, ...]:
        """The paths of the user's files that are not booted, such as SSH keys; the proof does not have them."""
        return ()

    @property
    def has_endpoint(self) -> bool:
        """Whether the settings name a service or port whose response shows that the guest is ready."""
        return bool(self.services)

    @property
    def first_port(self) -> int:
        """The TCP port of the first service, which tare probes for readiness."""
        return next(iter(self.served_ports.values()))

    def describe_silence(self, launch: LaunchRequest) -> str:
        """Return the error text for a guest that does not become ready."""
        return f"nothing answers at {launch.network.instance_address}:{self.first_port}"

    def silence_hint(self, launch: LaunchRequest) -> str:  # noqa: ARG002 - for images that have their address built in
        """Return an additional hint for a guest that does not become ready; "" if there is none."""
        return ""

    def output_hint(self, output: str) -> str:  # noqa: ARG002 - for images whose error messages are known
        """Return an additional hint for a guest whose last console output is `output`; "" if there is none."""
        return ""

    def prepare_files(self, host: Host, launch: LaunchRequest, host_paths: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002
        """Prepare the user's files before the start is timed; return the paths to boot from, by the user's paths."""
        return host_paths

    def enter_guest(self, host: Host, launch: LaunchRequest) -> AbstractContextManager[Host | None]:  # noqa: ARG002
        """Context manager: yield the inside of a guest that is ready; None for a guest without a shell."""
        return nullcontext()

    # --- all user-supplied guests ------------------------------------------------------------------------------------

    @property
    def services(self) -> tuple[str, ...]:
        """The workloads that the guest serves."""
        return tuple(filter(None, (self.service,) if isinstance(self.service, str) else self.service))

    @property
    def served_ports(self) -> dict[str, int]:
        """The workloads that the guest serves, each with its TCP port; without those whose port is unknown."""
        ports = {service: self.port or _usual_port(service) for service in self.services}
        return {service: port for service, port in ports.items() if port}

    def external_effects(self) -> Sequence[str]:
        """Return one line for each file that is booted."""
        return [f"boots {path}" for path in self.user_file_paths()]

    def version(self, host: Host) -> str:
        """Return the version of the monitor; tare cannot know the guest's."""
        line = first_line(host, "sh", "-c", '"$1" --version 2>&1', "sh", self._monitor_on(host))
        match = re.search(r"\bv(?:ersion v?)?(\d\S*)", line)
        return match[1] if match else ""

    def _monitor_on(self, host: Host) -> str:
        """Return the name of the monitor's program on a host."""
        return architecture_of(host).localize(self.monitor_program)

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, faults of the settings, missing files, or the problem of KVM."""
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
            host_paths = {
                path: user_files.ensure_on_host(host, launch, path, self.name) for path in self.user_file_paths()
            }
            digests = user_files.hash_files(launch, host_paths)
            files = self.prepare_files(host, launch, host_paths)
            count_written_bytes = _start_counting_written_bytes(launch)

            launch.start_probe(launch.network.instance_address, self.first_port)
            launch.timeline.mark("requested")
            group = stack.enter_context(
                create_limited_cgroup(launch.ledger, launch.name, with_monitor_memory(launch.limits))
            )
            disk = self._create_guest_disk(host, launch, files)
            tap = stack.enter_context(launch.network.create_tap(headers=self.monitor_program == QEMU))
            launch.timeline.mark("started")
            command = self.command(UserGuestBoot(launch, files[self.image], disk, tap, files))
            monitor = stack.enter_context(host.spawn(*group.join, *launch.network.enter, *command))
            self._await_ready(launch, monitor)
            inside = stack.enter_context(self.enter_guest(host, launch))

            instance = Instance(
                name=launch.name,
                inside=inside,
                address=launch.network.instance_address,
                network_path=self.network_path,
                processes=group.processes,
                proof=self._read_proof(host, inside, digests),
                written_bytes=count_written_bytes,
                image_bytes=lambda: user_files.disk_usage_bytes(host, host_paths.values()),
                cautions=self.cautions(launch),
                served_ports=self.served_ports,
                disk_file=disk or None,
            )
            yield kvm.with_pvm(host, instance) if self.needs_kvm else instance

    def _create_guest_disk(self, host: Host, launch: LaunchRequest, files: Mapping[str, str]) -> str:
        """Return the path of the disk that the guest may write to; "" if it has no disk.

        QEMU gets an overlay of the user's disk. For other monitors, `prepare_files` has made a copy.
        """
        if not self.disk:
            return ""
        if self.monitor_program != QEMU:
            return files[self.disk]
        return user_files.create_overlay(host, launch, files[self.disk], self.disk_format)

    def _read_proof(self, host: Host, inside: Host | None, digests: Mapping[str, str]) -> dict[str, str]:
        """Return the instance's proof: monitor, image with the `digests` of its files, accelerator, and kernel."""
        proof = {"monitor": f"{self._monitor_on(host)} {self.version(host)}", "image": self.image, **digests}
        if self.monitor_program == QEMU:
            proof["accelerator"] = self.accelerator
        if inside:
            proof["guest kernel"] = inside.run("uname", "-r", timeout=60).text.strip()
        return proof

    def user_file_paths(self) -> tuple[str, ...]:
        """Return the paths of the user's files without duplicates, with the booted file first."""
        return tuple(path for path in dict.fromkeys((self.image, self.disk, *self.extra_files)) if path)

    def setting_problems(self) -> tuple[Problem, ...]:
        """Return the first fault of the settings, or (), without a look at any file."""
        table = f'write a table [stacks.NAME] with stack = "{self.name}", {self.example_settings}'
        if not self.image or not self.has_endpoint:
            what = f"it boots {self.image_description} that you supply, but the stack names none"
            if self.image:
                what = f"the stack does not name the service in {self.image}"
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

    def _await_ready(self, launch: LaunchRequest, monitor: Process) -> None:
        """Wait until the first port accepts connections.

        Raises TrialFailed if the kernel panics or the monitor ends, and TimedOut, each with the console's last lines.
        """
        seconds = launch.start_timeout_seconds * _START_TIMEOUT_SHARE
        deadline, last_lines = time.monotonic() + seconds, deque[str](maxlen=3)
        failed = f"{self.name}: {self.image} did not boot: "
        while not self._accepts_connections(launch):
            has_ended = not monitor.is_running()  # asked before the console is read: then it has all that was printed
            for line in _read_lines(monitor, _LAST_OUTPUT_SECONDS if has_ended else 0.0):
                last_lines.append(line)
                if _PANIC.search(line):
                    raise TrialFailed(f"{failed}its kernel panicked", _format_output(last_lines))
            if has_ended:
                last_lines.extend(monitor.errors().splitlines())
                hint = _join_hints(_format_output(last_lines), self.output_hint("".join(last_lines)))
                raise TrialFailed(f"{failed}{self._monitor_on(launch.ledger.host)} ended", hint)
            if time.monotonic() > deadline:
                hint = _join_hints(_format_output(last_lines), self.silence_hint(launch))
                raise TimedOut(f"{failed}{self.describe_silence(launch)} for {seconds:g} s", hint)
            time.sleep(_PAUSE_SECONDS)

    def _accepts_connections(self, launch: LaunchRequest) -> bool:
        probe = (str(launch.image.root / _PROBE), launch.network.instance_address, str(self.first_port))
        output = launch.ledger.host.run(*probe, "0.02", "connect", timeout=30, check=False)
        return output.exit_code == 0

    def cautions(self, launch: LaunchRequest) -> tuple[Caution, ...]:
        """Return the cautions that every instance has."""
        cautions = []
        if self.monitor_program == QEMU and self.accelerator == "tcg":
            cautions.append(EMULATION_CAUTION)
        if self.has_one_cpu and len(launch.limits.cpus) > 1:
            cautions.append(Caution("limits-differ", f"uses one CPU, {len(launch.limits.cpus)} were asked for"))
        return tuple(cautions)

    # --- options of QEMU ---------------------------------------------------------------------------------------------

    def machine_options(self, boot: UserGuestBoot, emulated: str = "max", virtual: str = "host") -> tuple[str, ...]:
        """Return QEMU's options for the machine; the CPU model is `virtual` with KVM, `emulated` without."""
        accelerated = ("-accel", "kvm", "-cpu", virtual)
        processor = accelerated if self.accelerator == "kvm" else ("-accel", "tcg", "-cpu", emulated)
        cpus = 1 if self.has_one_cpu else len(boot.launch.limits.cpus)
        architecture = boot.launch.image.architecture
        return (
            *(architecture.qemu, *processor, "-M", self.board or architecture.board),
            *("-nodefaults", "-no-user-config", "-display", "none"),
            *("-no-reboot", "-serial", "stdio", "-smp", str(cpus), "-m", f"{boot.memory_mib}M"),
        )

    @staticmethod
    def card_options(boot: UserGuestBoot, device: str = "virtio-net-pci") -> tuple[str, ...]:
        """Return QEMU's options for the network card."""
        network = f"tap,id=net0,ifname={boot.tap},script=no,downscript=no"
        mac = boot.launch.network.instance_mac
        return ("-netdev", network, "-device", f"{device},netdev=net0,mac={mac}")


def _start_counting_written_bytes(launch: LaunchRequest) -> Callable[[], int]:
    """Return a function that counts the bytes that have been written to the guest's disk from now on."""
    count_bytes, folder = launch.ledger.setup_helper.bytes_below, str(launch.folder / "written")
    before = count_bytes(folder)
    return lambda: max(0, count_bytes(folder) - before)


def _usual_port(service: str) -> int:
    """Return the default port of a workload's server; 0 if it has no server, or if there is no such workload."""
    if service not in registry.names("workloads"):
        return 0
    workload = registry.find("workloads", service)()
    return workload.usual_port or workload.port or 0


def _read_lines(monitor: Process, seconds: float) -> Iterator[str]:
    """Yield the unread lines of the console, until its end or until no line arrives for `seconds`."""
    try:
        while True:
            yield monitor.read_line(seconds).text.strip()
    except TrialFailed:
        return


def _format_output(lines: Iterable[str]) -> str:
    text = " / ".join(filter(None, (_TERMINAL_CODES.sub("", line).strip() for line in lines)))[-300:]
    return f"its last output: {text}" if text else "its console stayed empty"


def _join_hints(*hints: str) -> str:
    return "; ".join(filter(None, hints))
