"""The testbed of a benchmark: this machine alone, made as a run makes it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare.hosts.lock import only_one
from tare.model.trials import Image, Limits
from tare.runner.context import RunResources, Testbed
from tare.runner.machines import Machines, TestbedSpec, assign_cpus, open_testbed


@contextmanager
def own_testbed(image: Image, loads: Image) -> Iterator[Testbed]:
    """Make the network and the client for instances of one CPU and 512 MiB; no run may be here meanwhile.

    Telemetry has a folder of its own in one that is gone after the block.
    """
    machines = Machines()
    placement = assign_cpus(machines, 1)
    limits = Limits(placement.server, 512 << 20, 4096)
    with only_one(), tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
        telemetry = Path(folder) / "telemetry"
        telemetry.mkdir()
        with open_testbed(
            machines, TestbedSpec(image, loads, None, limits, RunResources(placement, telemetry))
        ) as testbed:
            yield testbed
