"""Network prices: unit costs of a message, a connection and a byte on the path between client and instance.

`tare prices` runs this workload, and `tare advise` computes from it what an application would cost. A small server of
tare runs in the instance, and a program on the client sends to it:

- `message`: a request of 64 bytes and its answer, over open connections. `connection`: the same over a new connection,
  which the server closes. 16 requests are outstanding at a time, so that no side sleeps longer than necessary.
- `received`, `sent`: a byte that the instance receives or sends, in bulk over one connection.

A unit cost is the elapsed time per unit. Server and client work in parallel, so the slower of them decides. The caution
`client-bound` reports that the client was slower; the unit cost is then an upper bound.

Each turn starts the client's program again, which performs the operations that fill the turn. Its start is not
measured.

Settings: `duration` of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tare.loads.client_load import run_load, server_address
from tare.loads.turns import SLOWEST_CPU_FACTOR, limit_seconds, turn_seconds
from tare.model.operations import NETWORK_KINDS
from tare.model.trial import RawOutput, Service
from tare.model.units import Duration
from tare.plugins.workload import MeasurementContext
from tare.workloads.prices import UnitCostWorkload, unit_cost_metrics

_PORT = 17070


@dataclass(frozen=True)
class NetworkPrices(UnitCostWorkload):
    """Unit costs of operations over the network."""

    name = "network-prices"
    title = "Prices: work over the network"
    operation_kinds = NETWORK_KINDS
    program = "net_client"
    metrics = unit_cost_metrics(NETWORK_KINDS)
    port = _PORT
    is_closed_loop = True

    duration: Annotated[Duration, Field(gt=0, le=600)] = 0.2

    def service(self, listen: str) -> Service:
        """Return tare's small server."""
        return Service(("/usr/lib/tare/net_server", listen, str(_PORT)), _PORT)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the client's program for each kind; raises TrialFailed if an answer does not arrive."""
        server, seconds = (server_address(setup), str(_PORT)), turn_seconds(self.duration)
        timeout = limit_seconds(SLOWEST_CPU_FACTOR * seconds, setup.timeout_margin_seconds)
        for _ in range(self.rounds):
            for kind in self.operation_kinds:
                argv = (f"/usr/lib/tare/{self.program}", *server, kind.name, "--seconds", f"{seconds:.6g}")
                yield run_load(setup.client, kind.name, *argv, timeout=timeout)
