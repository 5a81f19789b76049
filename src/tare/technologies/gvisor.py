"""gVisor: a kernel in user space between the program and the machine, started by its OCI runtime, runsc.

Its platform is systrap where runsc has it, ptrace before (2023). runsc of 2022, as Debian 12 has it, cannot use its own
network stack in a namespace that exists already, so it is given the host's stack there; that is a caution, because
users of gVisor normally get its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

from tare.launch import Launch
from tare.model import Caution, Family, Host, Instance
from tare.technologies.crun import Crun


@dataclass(frozen=True)
class Gvisor(Crun):
    """Starts the image's `init` from an OCI bundle, as crun does, under runsc."""

    name: ClassVar[str] = "gvisor"
    title: ClassVar[str] = "gVisor"
    family: ClassVar[Family] = "sandbox"
    isolates: ClassVar[str] = "a kernel in user space between the program and the machine's"
    needs: ClassVar[str] = "runsc"
    package: ClassVar[str] = "runsc"
    program: ClassVar[str] = "runsc"

    def options(self, host: Host) -> tuple[str, ...]:
        """Give runsc's options. Control groups are tare's: runsc itself is started in one."""
        if self._modern(host):
            return ("--platform=systrap", "--network=sandbox", "--ignore-cgroups")
        return ("--platform=ptrace", "--network=host", "--ignore-cgroups")

    @contextmanager
    def launch(self, host: Host, launch: Launch) -> Iterator[Instance]:
        """Run a bundle under runsc."""
        # runsc keeps a lock there when its sandbox is ended by the memory limit.
        left = launch.ledger.undone_by("sh", "-c", 'rm -rf "/run/runsc/$1"*', "sh", launch.name)
        with left, super().launch(host, launch) as instance:
            options = self.options(host)
            text = "gVisor runs on the host's network stack: this runsc is too old for its own in a given namespace"
            cautions = (Caution("host-network-stack", text),) if "--network=host" in options else ()
            yield replace(instance, proof={**instance.proof, "options": " ".join(options)}, cautions=cautions)

    def _modern(self, host: Host) -> bool:
        flags = host.run(self.program, "flags", timeout=20, check=False)
        return b"systrap" in flags.stdout + flags.stderr
