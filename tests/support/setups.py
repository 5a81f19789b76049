"""What workloads measure with in tests: an instance that serves at an address, or one that has an inside."""

from __future__ import annotations

from tare_fake.technology import FakeHost

from tare.contracts.workloads import Instance, MeasurementContext
from tare.hosts.host import Host


def serving(client: Host, address: str | None = "198.18.0.10") -> MeasurementContext:
    """Return an instance at an address, without an inside, and its client."""
    return MeasurementContext(Instance("tare-x", None, address, "bridge", processes=tuple), client, ())


def running_in(inside: Host | None) -> MeasurementContext:
    """Return an instance with an inside, without an address."""
    return MeasurementContext(Instance("tare-x", inside, None, "none", processes=tuple), inside or FakeHost(), ())
