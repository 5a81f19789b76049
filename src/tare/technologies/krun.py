"""libkrun: a library that runs a virtual machine in the process of its caller, with the kernel of libkrunfw.

It is the monitor of crun's handler `krun`, of krunvm and of microsandbox. tare calls the library by a small program
(programs/krun_boot.c), with the image's disk and a tap: the guest has neither the shared directory nor the network by
sockets of the machine (TSI) that these programs use. The kernel is not the image's, and has no modules.

Run as libkrun 1.19.7, to whose source it is written, with libkrunfw 5.6.1, on KVM in an emulated machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.guests import guest, kvm
from tare.guests.monitors import create_guest_resources
from tare.hosts.host import Host
from tare.model.architecture import X86_64
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, Technology, find_missing_tools

_LIBRARIES = ("libkrun.so.1", "libkrunfw.so.5")
_INSTALL = "install libkrun and libkrunfw, from Fedora or built from github.com/containers/libkrun; run `ldconfig`"
# The loader's cache has `NAME (libc6,x86-64) => PATH`; PATH is a link to NAME with the whole version.
_LIST = """
PATH=$PATH:/usr/sbin:/sbin
for name do readlink -f "$(ldconfig -p | sed -n "s/^\\s*$name .* => //p" | head -n 1)" || echo; done
"""


@dataclass(frozen=True)
class Krun(Technology):
    """Boots libkrunfw's kernel on a copy of the image's disk."""

    name = "krun"
    title = "libkrun"
    family = "type 2"
    isolation = Isolation(
        "own kernel", "a guest on few virtual devices; nothing filters the system calls of its monitor"
    )
    needs = "libkrun with libkrunfw, KVM that boots a guest"
    architectures = (X86_64,)
    tools: ClassVar[Mapping[str, str]] = {kvm.PROGRAM: "qemu-system-x86", **guest.TOOLS}
    other_names = ("libkrun",)
    tested = "emulated"
    network_path = "tap"

    def version(self, host: Host) -> str:
        """Return libkrun's version."""
        return library_versions(host)[0]

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing libraries and tools, or the problem of KVM."""
        for library, version in zip(_LIBRARIES, library_versions(host), strict=True):
            if not version:
                return (Problem(f"{library} is not installed", _INSTALL, missing="program"),)
        return find_missing_tools(host, self.tools) or kvm.problems(host)

    def prepare_image(self, host: Host, image: Image) -> None:
        """Make the image's disk on hosts that received only the directory."""
        guest.ensure_disk(host, image)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Context manager: boot a machine on a copy of the image's disk."""
        launch.prepare_image(self, host)
        kernel_version = launch.cache.read_once("libkrunfw's version", lambda: library_versions(host)[1])
        with create_guest_resources(host, launch) as resources:
            disk = resources.copy_disk("raw")
            resources.kept = lambda: launch.ledger.setup_helper.bytes_below(str(launch.image.disk))
            resources.mark_requested()
            group = resources.create_cgroup()
            tap = resources.stack.enter_context(launch.network.create_tap())
            launch.timeline.mark("started")
            command = (*group.join, *launch.network.enter, *self.boot_command(launch, guest.Devices(disk, tap)))
            console = resources.stack.enter_context(host.spawn(*command))
            proof = {"accelerator": "kvm", "libkrun": launch.version(self, host), "libkrunfw": kernel_version}
            yield kvm.with_pvm(host, resources.await_boot(console, disk, self.network_path, **proof))

    def boot_command(self, launch: LaunchRequest, devices: guest.Devices) -> tuple[str, ...]:
        """Return the command that boots a machine, and prints its console."""
        limits = launch.limits
        return (
            launch.ledger.setup_helper.program_path("krun_boot"),
            *(str(len(limits.cpus)), str(limits.memory_bytes >> 20), devices.card, launch.network.instance_mac),
            f"rootfstype=ext4 {guest.command_line(launch, console='hvc0')}",
            devices.disk,
        )


def library_versions(host: Host) -> tuple[str, ...]:
    """Return the versions of libkrun and of libkrunfw by the names of their files; "" for a library that is missing."""
    files = host.run("sh", "-c", _LIST, "sh", *_LIBRARIES, timeout=20, check=False).text.split("\n")
    return tuple(file.partition(".so.")[2] for file in files[: len(_LIBRARIES)])
