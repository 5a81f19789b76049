"""youki: a container runtime in Rust, run directly with the same bundle as crun.

`youki run` (0.7.0) misses the end of a container that ends before it waits: an `init` that cannot start then fails the
trial by the time-out of its readiness message.

Setting: `program` is the name or the path of the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tare.hosts.host import Host
from tare.model.trial import Problem
from tare.plugins.technology import first_line, missing_program
from tare.technologies.crun import Crun

_INSTALL = "put `youki` of a release of github.com/youki-dev/youki on the PATH, or: cargo install youki --locked"


@dataclass(frozen=True)
class Youki(Crun):
    """Starts the image's `init` from an OCI bundle."""

    name = "youki"
    title = "youki"
    needs = "youki"
    can_be_nested = False  # no Debian package: the outer machine's image lacks it
    process_names = ("youki", "4")  # it runs from a copy in memory, which the kernel names by its descriptor
    expected_differences: ClassVar[Mapping[str, str]] = {"device kcore": "it links /dev/kcore to a file that is hidden"}
    tools: ClassVar[Mapping[str, str]] = {"ip": "iproute2"}

    program: str = "youki"

    def version(self, host: Host) -> str:
        """Return youki's version."""
        return first_line(host, self.program, "--version").partition("version: ")[2]

    def snapshot_problems(self, host: Host) -> Sequence[Problem]:  # noqa: ARG002 - equal for all versions so far
        """Return the problem that youki takes checkpoints, and cannot restore them."""
        return (Problem("youki cannot restore a checkpoint", "leave youki out of restore"),)

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, or the problem that youki is not installed."""
        return super().problems(host) or missing_program(host, _INSTALL, self.program)
