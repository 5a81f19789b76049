"""The context of a benchmark: this machine alone, made as a run makes it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare.hosts.lock import lock_this_machine
from tare.model.image import Image
from tare.model.machine import Hosts
from tare.model.trial import LimitsSpec
from tare.plugins.technology import Technology
from tare.runner.context import InstanceSpec, RunContext, RunImages, TelemetryConfig
from tare.runner.machines import connect_machines, open_context


@contextmanager
def own_context(image: Image, loads: Image) -> Iterator[RunContext]:
    """Make the network and the client for instances of one CPU and 512 MiB; no run may be here meanwhile.

    Telemetry has a folder of its own in one that is gone after the block.
    """
    with lock_this_machine(), tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
        telemetry = Path(folder) / "telemetry"
        telemetry.mkdir()
        with (
            connect_machines(Hosts(), (image,), 1) as hosts,
            open_context(hosts, RunImages(image, loads), LimitsSpec(), TelemetryConfig(telemetry)) as context,
        ):
            yield context


def second_prefix() -> str:
    """Return a prefix for resources that differs from the testbed's, which is the number of this process."""
    return f"tare-{(os.getpid() ^ 0x8000) & 0xFFFF:x}"


VOLUME_BYTES = 64 << 20


def spec_of(
    context: RunContext,
    *stack: Technology,
    port: int | None = None,
    image: Image | None = None,
    slot: int = 0,
) -> InstanceSpec:
    """Return what an instance of a stack is started with: with a data volume, unless it has another image."""
    volume_bytes = 0 if image else VOLUME_BYTES
    image = image or context.images.main
    return InstanceSpec(stack, image, context.limits, slot, port=port, volume_bytes=volume_bytes)
