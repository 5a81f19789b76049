"""User-mode Linux: a kernel that runs as a process of the machine, like the processes in it.

It is the kernel of the package `user-mode-linux`, not Debian's cloud kernel; it has no modules in the image, and one
CPU. Written to "User Mode Linux HOWTO v2" and the boot parameters of Linux 6.1 (`linux --help`): `ubd0=`, `mem=`,
`eth0=tuntap,DEVICE,ADDRESS`, `con0=`. Newer kernels lack the transport `tuntap`: `vector = true` uses theirs.

It does not run on every CPU: with AVX-512, Linux 6.1's cannot save the registers, and panics in its first program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.guests import guest, monitors
from tare.hosts.host import Host
from tare.model.architecture import X86_64
from tare.model.errors import TrialFailed
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, Technology, find_missing_tools, first_line

_PROGRAM = "linux.uml"
_PROBE_SECONDS = 30.0  # enough on an emulated CPU
_PROBE_WORD = "tare-uml-runs-programs"
_CONSOLE = ("con0=null,fd:1", "con=null", "ssl=null")
# Boots from the machine's root, read-only, and runs a program of it that prints a word.
_PROBE = ("mem=128M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "init=/bin/echo", *_CONSOLE)


@dataclass(frozen=True)
class Uml(Technology):
    """Boots the image's disk in a kernel that is a process."""

    name = "uml"
    title = "User-mode Linux"
    family = "type 2"
    architectures = (X86_64,)
    isolation = Isolation(
        "shared kernel", "a Linux kernel as an unfiltered process: root in it reaches the machine's kernel"
    )
    needs = "a CPU on which it runs a program"
    tools: ClassVar[Mapping[str, str]] = {_PROGRAM: "user-mode-linux", "mke2fs": "e2fsprogs", **guest.TOOLS}
    tested = "stand-in"
    network_path = "tap"

    vector: bool = False

    def version(self, host: Host) -> str:
        """Return the version of the kernel."""
        return first_line(host, _PROGRAM, "--version")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, or a problem if the kernel cannot run a program on this CPU."""
        if missing := find_missing_tools(host, self.tools):
            return missing
        try:
            lines = host.run(
                _PROGRAM, *_PROBE, "--", _PROBE_WORD, timeout=_PROBE_SECONDS, check=False
            ).text.splitlines()
        except TrialFailed:
            lines = [f"it runs no program within {_PROBE_SECONDS:g} s"]
        # The kernel prints its command line, which has the word, too, but never as a whole line.
        if _PROBE_WORD in (line.strip() for line in lines):
            return ()
        last = next((line.strip() for line in lines if "failed, errno" in line or "panic" in line), "")
        what = f"it does not run a program on this CPU: {last or (lines[-1] if lines else 'it says nothing')}"
        return (Problem(what, "try a newer kernel, or a CPU without AVX-512: an emulated one has none"),)

    def prepare_image(self, host: Host, image: Image) -> None:
        """Make the image's disk on hosts that received only its directory."""
        guest.ensure_disk(host, image)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Boot a kernel on a copy of the image's disk."""
        launch.prepare_image(self, host)
        with monitors.create_guest_resources(host, launch) as resources:
            disk = resources.copy_disk("raw")
            resources.mark_requested()
            group = resources.create_cgroup()
            tap = resources.stack.enter_context(launch.network.create_tap(headers=self.vector))
            words = guest.command_line(launch, root="/dev/ubda", console="tty0").split()
            launch.timeline.mark("started")
            # The guest's memory is a file in TMPDIR: in the instance's folder, it is removed with the instance.
            kernel = ("env", f"TMPDIR={launch.folder}", _PROGRAM, *self.machine_parameters(launch, disk, tap), *words)
            console = resources.stack.enter_context(host.spawn(*group.join, *launch.network.enter, *kernel))
            yield resources.await_boot(console, disk, self.network_path, uml=launch.version(self, host))

    def machine_parameters(self, launch: LaunchRequest, disk: str, tap: str) -> tuple[str, ...]:
        """Return the parameters that describe the machine."""
        mac = launch.network.instance_mac
        card = f"vec0:transport=tap,ifname={tap},mac={mac}" if self.vector else f"eth0=tuntap,{tap},{mac}"
        names = ("net.ifnames=0",) if self.vector else ()
        folders = (f"umid={launch.name}", f"uml_dir={launch.folder}/")
        return (f"mem={launch.limits.memory_bytes >> 20}M", f"ubd0={disk}", card, *names, *folders, *_CONSOLE)
