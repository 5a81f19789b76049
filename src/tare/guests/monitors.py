"""What the plug-ins of machine monitors share beside tare/guests/guest.py: what a machine is started on, and its end.

A monitor that tare starts itself runs in tare's control group, which pins it and holds it to its memory. Its disk is
either made over the image's, which every start needs and which counts as part of it, as the layer of a container does;
or it is a copy of the image's, which does not: whoever has such a machine has made its disk before. The key for its
inside is tare's own need, and does not count either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tare.contracts import Host, Instance, Process
from tare.guests import guest, kvm
from tare.hosts.chroot import bytes_below
from tare.hosts.control_groups import ControlGroup, limited
from tare.launch import Launch

KVM_TOOLS: Mapping[str, str] = {kvm.PROGRAM: "qemu-system-x86", "qemu-img": "qemu-utils", **guest.TOOLS}
_COPY_SECONDS = 600.0


@dataclass
class Ground:
    """What a machine is started on: a folder of its own, a key for its inside, and a control group.

    `stack` undoes at the end what the technology makes on the way.
    """

    host: Host
    launch: Launch
    stack: ExitStack
    key: str
    groups: list[ControlGroup] = field(default_factory=list)
    bytes_before: int = 0

    def requested(self) -> None:
        """Begin to count: all that is made before for any such machine is there."""
        self.bytes_before = bytes_below(self.launch.ledger.host, self.launch.folder)
        self.launch.knock(self.launch.network.instance_address)
        self.launch.timeline.mark("requested")

    def group(self) -> ControlGroup:
        """Make the control group of a machine that tare itself starts."""
        launch = self.launch
        around = guest.with_monitor(launch.limits)
        group = self.stack.enter_context(limited(launch.ledger, launch.name, around))
        self.groups.append(group)
        return group

    def disk(self, form: str, *options: str) -> str:
        """Copy the image's disk, in a format of qemu-img's; gives its path. What is empty is not written."""
        source, target = self.launch.image.disk, str(self.launch.folder / f"disk.{form}")
        if form == "raw" and source.suffix != ".qcow2":
            copy: tuple[str, ...] = ("cp", "--reflink=auto", "--sparse=always", str(source), target)
        else:
            base = "qcow2" if source.suffix == ".qcow2" else "raw"
            copy = ("qemu-img", "convert", "-f", base, "-O", form, *options, str(source), target)
        self.host.run(*copy, timeout=_COPY_SECONDS)
        return target

    def overlay(self) -> str:
        """Make a disk that keeps what is written over the image's; gives its path."""
        source, target = self.launch.image.disk, str(self.launch.folder / "disk.qcow2")
        base = ("-b", str(source), "-F", "qcow2" if source.suffix == ".qcow2" else "raw")
        self.host.run("qemu-img", "create", "-q", "-f", "qcow2", *base, target, timeout=30)
        return target

    def booted(self, console: Process, disk: str, path: str, **proof: str) -> Instance:
        """Wait until the machine has told its host key, enter it and describe it."""
        launch, reader = self.launch, self.launch.ledger.host
        host_key = guest.watch_boot(console, launch)
        inside = self.stack.enter_context(guest.entered(self.host, launch, host_key))
        return Instance(
            name=launch.name,
            inside=inside,
            address=launch.network.instance_address,
            path=path,
            processes=self.groups[0].processes if self.groups else tuple,
            proof={**proof, "guest kernel": inside.run("uname", "-r", timeout=60).text.strip()},
            # A copy that was written in full does not grow.
            disk=lambda: max(0, bytes_below(reader, launch.folder) - self.bytes_before),
            storage=disk,
        )


@contextmanager
def prepared(host: Host, launch: Launch) -> Iterator[Ground]:
    """Make the ground of a machine; all of it, and all that its stack is given, is gone after the block."""
    with ExitStack() as stack:
        stack.enter_context(launch.ledger.undone_by("rm", "-rf", "--one-file-system", str(launch.folder)))
        yield Ground(host, launch, stack, guest.prepared_folder(host, launch))
