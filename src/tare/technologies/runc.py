"""runc: the reference container runtime, which Docker uses, run directly with the same bundle as crun.

Setting: `program` is the name or the path of the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.technologies.crun import Crun


@dataclass(frozen=True)
class Runc(Crun):
    """Starts the image's `init` from an OCI bundle."""

    name = "runc"
    title = "runc"
    package = "runc"

    program: str = "runc"
