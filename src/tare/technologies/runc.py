"""runc: the reference container runtime, which Docker uses, run directly with the same bundle as crun."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tare.technologies.crun import Crun


@dataclass(frozen=True)
class Runc(Crun):
    """Starts the image's `init` from an OCI bundle."""

    name: ClassVar[str] = "runc"
    title: ClassVar[str] = "runc"
    package: ClassVar[str] = "runc"

    program: str = "runc"
