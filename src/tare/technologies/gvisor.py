"""gVisor: a kernel in user space between the program and the machine, started by its OCI runtime, runsc.

tare uses the platform systrap if runsc has it (2023 and newer), otherwise ptrace. runsc of 2022, as in Debian 12,
cannot use gVisor's network stack in an existing namespace. It uses the host's stack there, with a caution, because
users of gVisor normally get gVisor's. runsc mounts a tmpfs over an empty /tmp: a folder /tmp/.tare keeps /tmp on the
root, as in other technologies.

Settings: `program` is the name or the path of runsc. `overlay` (default: true, as runsc's) keeps the root's files in an
overlay of gVisor's own, where a sync of a file does not reach the disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

from tare.hosts.distributions import distribution_of
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import APT, Caution, Problem
from tare.plugins.instance import Instance
from tare.plugins.sandbox import InstanceSandbox
from tare.plugins.technology import PROTECTED_PATH_DIFFERENCES, LaunchRequest, first_line
from tare.technologies.crun import Crun

# The version that the tests build: the newest one on 2026-11-22 of the branch that the go command can build.
CURRENT_RUNSC = "gvisor.dev/gvisor/runsc@v0.0.0-20260905035102-160fafc42237"
# A runsc of `go install` prints no version, but Go stores the module's version in the program.
_MODULE_VERSION = r"gvisor\.dev/gvisor[[:space:]]v0\.0\.0-[0-9]+-[0-9a-f]+"
_DATE = re.compile(r"[~-](20\d{6})")  # in a version
_YEAR = 1_00_00  # difference of two dates as numbers YYYYMMDD
# From gVisor's documentation, g3doc/user_guide/install.md, but without gpg: apt accepts the key in text form.
_INSTALL_GUIDE = "https://gvisor.dev/docs/user_guide/install/"
_INSTALL = (
    "curl -fsSLo /etc/apt/keyrings/gvisor.asc https://gvisor.dev/archive.key && "
    'echo "deb [signed-by=/etc/apt/keyrings/gvisor.asc] https://storage.googleapis.com/gvisor/releases release main" '
    ">/etc/apt/sources.list.d/gvisor.list && apt update && apt install runsc"
)


# tare passes --net-raw to the runsc that it starts, but a shim starts runsc with the user's configuration.
RAW_SOCKET_DIFFERENCES = {"status Cap???": "CAP_NET_RAW needs `net-raw = true` in the configuration of runsc"}


@dataclass(frozen=True)
class Gvisor(Crun):
    """Starts the image's `init` with runsc, from the same OCI bundle as crun."""

    name = "gvisor"
    title = "gVisor"
    family = "sandbox"
    isolation = Isolation(
        "user-space kernel",
        "a kernel in user space, behind a seccomp filter that lets it make few system calls",
    )
    # Until gVisor's kernel has calibrated its clock, a second after the start, reading the clock is a system call of 12
    # to 18 µs, later a call of 0.02 µs. Programs that read the clock often then lose a quarter of their speed.
    settle_seconds = 1.5
    process_names = ("runsc-sandbox", "runsc-gofer", "exe")
    package = "runsc"
    expected_differences: ClassVar[Mapping[str, str]] = {
        **PROTECTED_PATH_DIFFERENCES,
        **dict.fromkeys(("device *", "mount /dev*", "mount /proc", "mount /sys*"), "made by gVisor's kernel"),
        **dict.fromkeys(("status CapAmb", "status NoNewPrivs", "status SigIgn", "sysctl *"), "gVisor does not show it"),
        "limit locked memory": "gVisor sets 64 KiB",
        "setuid": "gVisor ignores the setuid bit of a program",
    }

    program: str = "runsc"
    overlay: bool = True

    def version(self, host: Host) -> str:
        """Return runsc's version, or that of its Go module; "" if it is not installed."""
        version = super().version(host)
        if any(letter.isdigit() for letter in version):
            return version
        script = 'grep -aoEm 1 "$1" "$(command -v "$2")"'
        return first_line(host, "sh", "-c", script, "sh", _MODULE_VERSION, self.program).rpartition("v")[2]

    def advice(self, host: Host) -> Sequence[Problem]:
        """Recommend gVisor's package repository if runsc is missing or over a year old, like Debian's package."""
        version = self.version(host)
        install = _INSTALL if distribution_of(host).install == APT else _INSTALL_GUIDE
        if not version:
            return (Problem("Debian's runsc is old; gVisor's repository has a current one", install),)
        date = _DATE.search(version)
        if not self._has_systrap(host):
            year = date[1][:4] if date else "before 2023"
            return (Problem(f"runsc is from {year}: slower, and uses the host's network stack", install),)
        today = first_line(host, "date", "+%Y%m%d")
        if date is None or not today.isdigit() or int(today) - int(date[1]) <= _YEAR:
            return ()
        return (Problem(f"runsc is from {date[1][:4]}, over a year old", install),)

    def outdated_since(self, version: str) -> str:
        """Return the year of a runsc without systrap, such as Debian 12's; "" for a newer one."""
        year = re.search(r"[~-](20[01]\d|202[0-2])\d{4}\b", version)
        return year[1] if year else ""

    def runtime_options(self, host: Host, name: str) -> tuple[str, ...]:
        """Return runsc's options; it makes no control groups, because tare starts it in the instance's group."""
        always = ("--ignore-cgroups", "--net-raw", f"--root={_state_folder(name)}")
        if not self._has_systrap(host):
            return ("--platform=ptrace", "--network=host", *always)
        # On a kernel newer than itself, a runsc of 2024 mistakes its private network namespace for the machine's.
        old = "~2024" in self.version(host)
        overlay = () if self.overlay else ("--overlay2=none",)
        return ("--platform=systrap", f"--network={'host' if old else 'sandbox'}", *overlay, *always)

    def prepare_root(self, sandbox: InstanceSandbox) -> None:
        """Make a folder in /tmp, because runsc mounts a tmpfs over an empty /tmp."""
        sandbox.launch.ledger.setup_helper.run_steps(("folder", f"{sandbox.root}/tmp/.tare"))  # noqa: S108 - the instance's own

    def snapshot_problems(self, host: Host) -> Sequence[Problem]:
        """Return a problem if runsc uses the host's network stack, whose sockets it cannot restore."""
        if self._has_systrap(host):
            return ()
        return (
            Problem(
                "runsc of 2022 and older takes no snapshots with a network", f"install a newer one: {_INSTALL_GUIDE}"
            ),
        )

    @contextmanager
    def _start(self, host: Host, launch: LaunchRequest, snapshot: str = "") -> Iterator[Instance]:
        """Run a bundle under runsc; the instance has a caution if it uses the host's network stack."""
        # runsc keeps an empty network namespace for its next container in its state folder, and a lock after a kill.
        undo = 'while umount -l "$1/null-netns" 2>/dev/null; do :; done; rm -rf "$1"'
        cleanup = launch.ledger.register_undo("sh", "-c", undo, "sh", _state_folder(launch.name))
        with cleanup, super()._start(host, launch, snapshot) as instance:
            options = self.runtime_options(host, launch.name)
            text = "gVisor uses the host's network stack: this runsc is too old for gVisor's in an existing namespace"
            cautions = (Caution("host-network-stack", text),) if "--network=host" in options else ()
            yield replace(instance, proof={**instance.proof, "options": " ".join(options)}, cautions=cautions)

    def _has_systrap(self, host: Host) -> bool:
        flags = host.run(self.program, "flags", timeout=20, check=False)
        return b"systrap" in flags.stdout + flags.stderr


def _state_folder(name: str) -> str:
    """Return the folder of runsc's state for a container, separate from the machine's /run/runsc."""
    return f"/run/{name}"
