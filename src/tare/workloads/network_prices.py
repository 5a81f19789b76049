"""Network prices: the seconds that a message, a connection and a byte take over the path between client and instance.

`tare prices` runs it, and `tare advise` computes from it what an application would cost. A small server of tare's own
runs in the instance, and the client asks it:

- `message`: a request of 64 bytes and its answer, over open connections. `connection`: the same over a connection made
  for it, which the server closes. 16 of them are under way at a time, so that no side sleeps longer than it has to.
- `received`, `sent`: a byte that the instance receives or sends, in bulk over one connection.

A price is the time that passes for each unit. Where server and client work side by side, it is that of the slower one:
the caution `client-bound` says that the client was it, and that the server takes less.

In each turn the client's program starts anew and does as many units as fill the turn. Its start is not measured.

Settings: `duration`, of each kind.
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
    """What one unit of each kind of work takes over the network."""

    name = "network-prices"
    title = "Prices: work over the network"
    operation_kinds = NETWORK_KINDS
    program = "net_client"
    former_program = "ask"
    metrics = unit_cost_metrics(NETWORK_KINDS)
    port = _PORT
    is_closed_loop = True

    duration: Annotated[Duration, Field(gt=0, le=600)] = 0.2

    def service(self, listen: str) -> Service:
        """Return the server."""
        return Service(("/usr/lib/tare/net_server", listen, str(_PORT)), _PORT)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the client's program for each kind; raises TrialFailed for an answer that does not come."""
        place, seconds = (server_address(setup), str(_PORT)), turn_seconds(self.duration)
        timeout = limit_seconds(SLOWEST_CPU_FACTOR * seconds, setup.timeout_margin_seconds)
        for _ in range(self.rounds):
            for work in self.operation_kinds:
                argv = (f"/usr/lib/tare/{self.program}", *place, work.name, "--seconds", f"{seconds:.6g}")
                yield run_load(setup.client, work.name, *argv, timeout=timeout)
