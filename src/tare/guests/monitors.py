"""What the plug-ins of machine monitors share beside tare/guests/guest.py: folder, disk and control group.

A monitor that tare starts runs in tare's control group, which pins it and limits its memory. An overlay of the image's
disk counts as part of the start, as a container's layer does. A copy of the disk does not: users of such a machine
prepare its disk beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tare.contracts import Host, Instance, Process
from tare.guests import guest, kvm
from tare.hosts.control_groups import ControlGroup, limited
from tare.launch import Launch

KVM_TOOLS: Mapping[str, str] = {kvm.PROGRAM: "qemu-system-x86", "qemu-img": "qemu-utils", **guest.TOOLS}
_COPY_SECONDS = 600.0


@dataclass
class Ground:
    """What a machine starts with: its own folder, and a control group.

    `stack` undoes at the end what the technology makes.
    """

    host: Host
    launch: Launch
    stack: ExitStack
    groups: list[ControlGroup] = field(default_factory=list)
    bytes_before: int = 0

    def requested(self) -> None:
        """Mark `requested`: all preparation that does not count is done."""
        self.launch.knock(self.launch.network.instance_address)
        self.launch.timeline.mark("requested")

    def group(self) -> ControlGroup:
        """Make the control group of a monitor that tare starts."""
        launch = self.launch
        around = guest.with_monitor(launch.limits)
        group = self.stack.enter_context(limited(launch.ledger, launch.name, around))
        self.groups.append(group)
        return group

    def disk(self, form: str, *options: str) -> str:
        """Copy the image's disk without its empty blocks, in a format of qemu-img; gives its path."""
        source, target = self.launch.image.disk, str(self.launch.folder / f"disk.{form}")
        if form == "raw" and source.suffix != ".qcow2":
            copy: tuple[str, ...] = ("cp", "--reflink=auto", "--sparse=always", str(source), target)
        else:
            base = "qcow2" if source.suffix == ".qcow2" else "raw"
            copy = ("qemu-img", "convert", "-f", base, "-O", form, *options, str(source), target)
        self.host.run(*copy, timeout=_COPY_SECONDS)
        self.bytes_before = self.launch.ledger.maker.bytes_below(str(self.launch.folder))
        return target

    def overlay(self) -> str:
        """Make an overlay of the image's disk; gives its path."""
        source, target = self.launch.image.disk, str(self.launch.folder / "disk.qcow2")
        base = ("-b", str(source), "-F", "qcow2" if source.suffix == ".qcow2" else "raw")
        self.host.run("qemu-img", "create", "-q", "-f", "qcow2", *base, target, timeout=30)
        return target

    def booted(self, console: Process, disk: str, path: str, **proof: str) -> Instance:
        """Wait until the machine's door is open, enter it and describe it."""
        launch = self.launch
        kernel = guest.watch_boot(console, launch)
        inside = self.stack.enter_context(guest.entered(self.host, launch))
        return Instance(
            name=launch.name,
            inside=inside,
            address=launch.network.instance_address,
            path=path,
            processes=self.groups[0].processes if self.groups else tuple,
            proof={**proof, "guest kernel": kernel},
            # A copy that was written in full does not grow.
            disk=lambda: max(0, launch.ledger.maker.bytes_below(str(launch.folder)) - self.bytes_before),
            storage=disk,
        )


@contextmanager
def prepared(host: Host, launch: Launch) -> Iterator[Ground]:
    """Make the folder of a machine; remove it, and undo its `stack`, after the block."""
    with ExitStack() as stack:
        stack.enter_context(launch.ledger.undone_by("rm", "-rf", "--one-file-system", str(launch.folder)))
        host.run("mkdir", "-p", str(launch.folder), timeout=30)
        yield Ground(host, launch, stack)
