"""A user's image of a unikernel that tare cannot build: what all technologies of this kind share.

tare boots the image with the command line that its project documents, which sets its address, and with the memory of
the suite. It has started when the port of its (first) service accepts connections; after 100 s it has failed. tare
never writes to the user's files: each instance has an overlay of the disk.

The docstring of each technology describes its settings: `tare technologies NAME` prints it.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tare import plugins
from tare.contracts.technologies import Launch, Technology, first_line, missing_tools
from tare.contracts.workloads import Instance, Workload
from tare.errors import TimedOut, TrialFailed, Unavailable, did_you_mean
from tare.guests import kvm
from tare.guests.guest import EMULATED, with_monitor
from tare.hosts.control_groups import limited
from tare.hosts.host import Host, Process
from tare.model.trials import Caution, Problem

BOOT_SECONDS = 100.0  # the client knocks for 120 s: ours is the better error
NETMASK, PREFIX = "255.255.255.0", 24
QEMU = "qemu-system-x86_64"
QEMU_TOOLS: Mapping[str, str] = {QEMU: "qemu-system-x86", "qemu-img": "qemu-utils", "ip": "iproute2"}
_KNOCK = "usr/lib/tare/knock"
_PAUSE_SECONDS = 0.2  # seldom enough not to disturb what boots; the client itself knocks without a pause


@dataclass(frozen=True)
class Boot:
    """What a monitor boots: the image, the overlay of its disk, the tap, and the paths of other files."""

    launch: Launch
    image: str
    disk: str
    tap: str
    files: Mapping[str, str]

    @property
    def address(self) -> str:
        """The instance's own address."""
        return self.launch.network.instance_address

    @property
    def gateway(self) -> str:
        """Its gateway."""
        return self.launch.network.gateway

    @property
    def memory_mib(self) -> int:
        """Its memory in MiB."""
        return self.launch.limits.memory_bytes >> 20


DiskFormat = Literal["raw", "qcow2"]


@dataclass(frozen=True)
class OwnImage(Technology):
    """Boots the user's image. Each technology of this kind builds the command line."""

    family = "unikernel"
    isolates = "a kernel with one application in it, on virtual hardware"
    path = "tap"
    tested_in = "tests/lab/test_real_things.py"
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "stand-in"
    board = "pc"
    one_cpu = False
    without_kvm = 'use accelerator = "tcg"'

    image: str = ""
    service: str | tuple[str, ...] = ""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    arguments: str = ""
    accelerator: Literal["kvm", "tcg"] = "kvm"

    def command(self, boot: Boot) -> tuple[str, ...]:
        """Return the command that boots the image."""
        raise NotImplementedError

    @property
    def tools(self) -> Mapping[str, str]:
        """The tools, each with its Debian packages; the monitor comes first."""
        return QEMU_TOOLS

    @property
    def needs_kvm(self) -> bool:
        """Whether it cannot run without KVM."""
        return self.accelerator == "kvm"

    @property
    def disk(self) -> str:
        """The disk of which the instance gets an overlay; empty if it has none."""
        return ""

    @property
    def disk_format(self) -> str:
        """The format of that disk. It is given, not probed: an untrusted disk may mislead the probe."""
        return "raw"

    @property
    def more_files(self) -> tuple[str, ...]:
        """The user's other files that the command names."""
        return ()

    @property
    def services(self) -> tuple[str, ...]:
        """The workloads that the image serves."""
        return tuple(filter(None, (self.service,) if isinstance(self.service, str) else self.service))

    @property
    def serves(self) -> dict[str, int]:
        """The workloads that the image serves, each with its port."""
        ports = {service: self.port or _usual_port(service) for service in self.services}
        return {service: port for service, port in ports.items() if port}

    def hint(self, launch: Launch) -> str:  # noqa: ARG002 - for images that have their address built in
        """Return a further hint for an image that does not answer."""
        return ""

    def remedy(self, said: str) -> str:  # noqa: ARG002 - for images whose last words are known
        """Return a further hint for an image that said this on its console."""
        return ""

    def brings(self) -> Sequence[str]:
        """Name the files that are booted."""
        return [f"boots {path}" for path in self._files()]

    def version(self, host: Host) -> str:
        """Return the version of the monitor; tare does not know that of the image."""
        line = first_line(host, "sh", "-c", '"$1" --version 2>&1', "sh", self._monitor)
        match = re.search(r"\bversion v?(\S+)", line)
        return match[1] if match else ""

    def problems(self, host: Host) -> Sequence[Problem]:
        """Find whether the settings name an image and its service, and whether its monitor can run."""
        if problems := missing_tools(host, self.tools) or self._setting_problems():
            return problems
        try:
            for path in self._files():
                self._look_for(host, path)
        except Unavailable as error:
            return (Problem(str(error), error.hint),)
        return kvm.problems(host, self.without_kvm) if self.needs_kvm else ()

    def refuses(self, workload: Workload) -> str | None:
        """Refuse all workloads but those that the image serves and those that run nothing inside."""
        if not workload.runs_inside or workload.server in self.serves:
            return None
        return f"a unikernel has no shell: this image serves {' and '.join(self.services) or 'nothing'} alone"

    @contextmanager
    def launch(self, host: Host, launch: Launch) -> Iterator[Instance]:
        """Boot the image and wait until its service's port accepts connections; raises TrialFailed after 100 s."""
        with ExitStack() as stack:
            stack.enter_context(launch.ledger.undone_by("rm", "-rf", "--one-file-system", str(launch.folder)))
            host.run("mkdir", "-p", str(launch.folder / "written"), timeout=30)
            placed = {path: self._placed(host, launch, path) for path in self._files()}
            digests = _digests(host, placed)
            launch.knock(launch.network.instance_address, next(iter(self.serves.values())))
            launch.timeline.mark("requested")
            around = with_monitor(launch.limits)
            group = stack.enter_context(limited(launch.ledger, launch.name, around))
            disk = _overlay(host, launch, placed[self.disk], self.disk_format) if self.disk else ""
            tap = stack.enter_context(launch.network.tap(headers=self._monitor == QEMU))
            launch.timeline.mark("started")
            command = self.command(Boot(launch, placed[self.image], disk, tap, placed))
            monitor = stack.enter_context(host.spawn(*group.join, *launch.network.enter, *command))
            self._await_service(launch, monitor)
            yield Instance(
                name=launch.name,
                inside=None,
                address=launch.network.instance_address,
                path=self.path,
                processes=group.processes,
                proof={"monitor": f"{self._monitor} {self.version(host)}", "image": self.image}
                | digests
                | ({"accelerator": self.accelerator} if self._monitor == QEMU else {}),
                disk=lambda: launch.ledger.maker.bytes_below(str(launch.folder / "written")),
                image=lambda: _bytes_of(host, placed.values()),
                cautions=self._cautions(launch),
                serves=self.serves,
                storage=disk or None,
            )

    @property
    def _monitor(self) -> str:
        return next(iter(self.tools))

    def _files(self) -> tuple[str, ...]:
        return tuple(path for path in dict.fromkeys((self.image, self.disk, *self.more_files)) if path)

    def _setting_problems(self) -> tuple[Problem, ...]:
        table = f'write a table [stacks.NAME] with stack = "{self.name}", image = "PATH" and service = "redis"'
        if not self.image or not self.services:
            return (Problem("it boots an image of your own, but the stack names none", table, missing="yours"),)
        if self.port and len(self.services) > 1:
            return (Problem("one port is given for several services", "leave out port: each has its usual one"),)
        known = plugins.names("workloads")
        for service in self.services:
            if service not in known:
                hint = did_you_mean(service, known, "`tare workloads` lists the names")
                return (Problem(f'service = "{service}": no workload of this name', hint),)
            if service not in self.serves:
                return (Problem(f"the port of {service} is not given", "add port = … to the stack's table"),)
        return ()

    def _look_for(self, host: Host, path: str) -> str:
        """Return where a user's file is: `there` on the host, or `here` on this machine; raises Unavailable."""
        if not host.run("test", "-f", path, timeout=30, check=False).exit_code:
            return "there"
        if Path(path).is_file():
            return "here"
        hint = "build it, or correct its path in the stack's table: a path on the machine under test, or on this one"
        raise Unavailable(f"{self.name}: there is no file {path}", hint)

    def _placed(self, host: Host, launch: Launch, path: str) -> str:
        """Return the path of a user's file on the host; copy it there for this instance, if needed."""
        if self._look_for(host, path) == "there":
            return path
        target = str(launch.folder / Path(path).name)
        host.put(Path(path), PurePosixPath(target))
        return target

    def _await_service(self, launch: Launch, monitor: Process) -> None:
        """Wait until the service's port accepts connections."""
        address, port = launch.network.instance_address, next(iter(self.serves.values()))
        knock = (str(launch.image.root / _KNOCK), address, str(port), "0.02", "connect")
        deadline, last = time.monotonic() + BOOT_SECONDS, deque[str](maxlen=3)
        while launch.ledger.host.run(*knock, timeout=30, check=False).exit_code:
            ended = not monitor.running()
            last.extend(_lines(monitor))
            if ended:
                last.extend(monitor.errors().splitlines())
                what = f"{self.name}: {self.image} did not boot: {self._monitor} ended"
                raise TrialFailed(what, "; ".join(filter(None, (_said(last), self.remedy("".join(last))))))
            if time.monotonic() > deadline:
                silent = f"nothing answers at {address}:{port} for {BOOT_SECONDS:g} s"
                what = f"{self.name}: {self.image} did not boot: {silent}"
                raise TimedOut(what, "; ".join(filter(None, (_said(last), self.hint(launch)))))
            time.sleep(_PAUSE_SECONDS)

    def _cautions(self, launch: Launch) -> tuple[Caution, ...]:
        cautions = []
        if self._monitor == QEMU and self.accelerator == "tcg":
            cautions.append(EMULATED)
        if self.one_cpu and len(launch.limits.cpus) > 1:
            cautions.append(Caution("limits-differ", f"uses one CPU, {len(launch.limits.cpus)} were asked for"))
        return tuple(cautions)

    def machine(self, boot: Boot, emulated: str = "max", virtual: str = "host") -> tuple[str, ...]:
        """Return QEMU's options for the machine; the processor's model is `emulated`, or `virtual` with KVM."""
        accelerated = ("-accel", "kvm", "-cpu", virtual)
        processor = accelerated if self.accelerator == "kvm" else ("-accel", "tcg", "-cpu", emulated)
        cpus = 1 if self.one_cpu else len(boot.launch.limits.cpus)
        return (
            *(QEMU, *processor, "-M", self.board, "-nodefaults", "-no-user-config", "-display", "none"),
            *("-no-reboot", "-serial", "stdio", "-smp", str(cpus), "-m", f"{boot.memory_mib}M"),
        )

    @staticmethod
    def card(boot: Boot, device: str = "virtio-net-pci") -> tuple[str, ...]:
        """Return QEMU's options for the network card."""
        network = f"tap,id=net0,ifname={boot.tap},script=no,downscript=no"
        mac = boot.launch.network.instance_mac
        return ("-netdev", network, "-device", f"{device},netdev=net0,mac={mac}")

    @property
    def words(self) -> tuple[str, ...]:
        """The application's arguments, split as a shell splits them."""
        return tuple(shlex.split(self.arguments))


def _usual_port(service: str) -> int:
    """Return the port that a workload's server usually has; 0 where there is none, or no such workload."""
    if service not in plugins.names("workloads"):
        return 0
    workload = plugins.find("workloads", service)()
    return workload.usual_port or workload.port or 0


def _digests(host: Host, placed: Mapping[str, str]) -> dict[str, str]:
    """Prove which files were booted: the image, then its disk and what else has the application in it."""
    digests = {path: host.run("sha256sum", place, timeout=120).text.split()[0] for path, place in placed.items()}
    return {
        f"sha256 of {path}" if number else "sha256": digest for number, (path, digest) in enumerate(digests.items())
    }


def _bytes_of(host: Host, files: Iterable[str]) -> int:
    """Return the bytes that the user's files take on the disk, those behind links, too."""
    counted = host.run("du", "--dereference-args", "--total", "--block-size=1", "--", *files, timeout=30).text
    return int(counted.split()[-2])


def _overlay(host: Host, launch: Launch, disk: str, form: str) -> str:
    """Make an overlay of the user's disk; raises TrialFailed if that disk refers to another file."""
    information = json.loads(host.run("qemu-img", "info", "-f", form, "--output=json", disk, timeout=30).text)
    about = information.get("format-specific", {}).get("data", {})
    if more := information.get("backing-filename") or about.get("data-file"):
        hint = f"make one file of it: qemu-img convert -O qcow2 {disk} NEW"
        raise TrialFailed(f"{disk}: it is only a part of a disk: it refers to {more}", hint)
    target = str(launch.folder / "written" / "disk.qcow2")
    base = ("-b", disk, "-F", form)
    host.run("qemu-img", "create", "-q", "-f", "qcow2", *base, target, timeout=30)
    return target


def _lines(monitor: Process) -> Iterator[str]:
    """Yield the unread lines of the console."""
    try:
        while True:
            yield monitor.read_line(0).text.strip()
    except TrialFailed:
        return


def _said(last: Iterable[str]) -> str:
    words = " / ".join(filter(None, last))[-300:]
    return f"its last output: {words}" if words else "its console stayed empty"
