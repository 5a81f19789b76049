"""Interference: how much a busy neighbor of the same stack slows an instance down.

A second instance of the stack, the neighbor, runs on the client's CPUs. tare runs the trial's instance in pairs of
turns: neighbor idle, neighbor busy. The value is the median of busy/idle: 1 means that the neighbor has no effect. So
each stack is its own baseline, and what is compared is how well stacks isolate performance, not how fast they are.

- `cpu`: user code, while the neighbor computes on all its CPUs.
- `memory`: user code that misses the second cache, while the neighbor streams through memory and so empties the last.
- `disk`: syncs of a file, while the neighbor syncs a file.
- `network`: messages from the client that the instance answers, while the neighbor sends messages to the client.

The client of `network` and the neighbor share CPUs. On a machine with few CPUs, the neighbor then slows the client, on
bare metal as in other stacks, and the ratio shows that, too. W. Matthews and others, "Quantifying the Performance
Isolation Properties of Virtualization Systems" (ExpCS 2007), measured isolation in this way.

Settings: `neighbors`, the kinds of neighbors; `turn`, the seconds of a turn; `pairs`, the number of pairs of turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from tare.hosts.host import Host, Process
from tare.loads.client_load import server_address
from tare.loads.parsing import EachOnce, check_labels
from tare.loads.turns import SLOWEST_CPU_FACTOR, limit_seconds
from tare.model.errors import TrialFailed
from tare.model.trial import OWN_BASELINE, Metric, RawOutput, Service, Value
from tare.model.units import Duration
from tare.plugins.workload import MeasurementContext, Workload
from tare.workloads.prices import read_unit_cost

Neighbor = Literal["cpu", "memory", "disk", "network"]
_PROGRAMS = "/usr/lib/tare/"
_FOLDER = "/srv"
_PORT, _CLIENT_PORT = 17071, 17072
_SETTLE_SECONDS = 0.05  # from the start of the neighbor's program until it works
_BUSY_SECONDS = "600"  # longer than any turn: the program is ended after the turn
_OPERATION_KINDS: dict[Neighbor, str] = {"cpu": "user", "memory": "user", "disk": "sync", "network": "message"}
_TITLES: dict[Neighbor, str] = {
    "cpu": "that computes",
    "memory": "that streams through memory",
    "disk": "that syncs files",
    "network": "that sends messages",
}


@dataclass(frozen=True)
class Interference(Workload):
    """Slowdown of an instance by a busy neighbor of the same stack."""

    name = "interference"
    title = "Interference by a neighbor"
    port = _PORT
    instances_at_once = 2

    neighbors: EachOnce[Neighbor] = ("cpu", "memory", "disk", "network")
    turn: Annotated[Duration, Field(ge=0.01, le=60)] = 0.1
    pairs: Annotated[int, Field(ge=1, le=1000)] = 10

    @property
    def metrics(self) -> Sequence[Metric]:
        """A metric for each kind of neighbor."""
        return tuple(
            Metric(each, f"Slowdown by a neighbor {_TITLES[each]}", OWN_BASELINE, "lower", overall=False)
            for each in self.neighbors
        )

    def service(self, listen: str) -> Service:
        """Return tare's small server, which answers the messages of `network`."""
        return Service((f"{_PROGRAMS}net_server", listen, str(_PORT)), _PORT)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Measure with each neighbor, idle and busy in turns; raises TrialFailed if a program of either ends."""
        setup.require_inside(self.name)
        with setup.require_starter(self.name).start_neighbor(self) as started:
            neighbor = started.setup.require_inside(self.name)
            for each in self.neighbors:
                for _ in range(self.pairs):
                    yield self._run_turn(setup, each, "idle")
                    with ExitStack() as exits:
                        busy = _keep_busy(exits, each, started.setup, neighbor)
                        time.sleep(_SETTLE_SECONDS)
                        raw = self._run_turn(setup, each, "busy")
                        if not busy.is_running():
                            what = f"the neighbor's program of {each} has ended: {busy.errors().strip() or 'silently'}"
                            raise TrialFailed(what, "`tare show` has its command")
                    yield raw

    def _run_turn(self, setup: MeasurementContext, kind: Neighbor, state: str) -> RawOutput:
        """Run a turn of the trial's instance, or of its client for `network`."""
        host, words = setup.require_inside(self.name), [f"{_PROGRAMS}unit_cost", _FOLDER]
        if kind == "network":
            host, words = setup.client, [f"{_PROGRAMS}net_client", server_address(setup), str(_PORT)]
        argv = (*words, _OPERATION_KINDS[kind], "--seconds", f"{self.turn:g}")
        output = host.run(*argv, timeout=limit_seconds(SLOWEST_CPU_FACTOR * self.turn))
        return RawOutput(f"{kind} {state}", argv, output.text, output.seconds)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the median ratio for each neighbor; raises TrialFailed unless each has all its turns."""
        pair = ("idle", "busy") * self.pairs
        check_labels(raw, [f"{each} {state}" for each in self.neighbors for state in pair])
        outputs, values = iter(raw), list[Value]()
        for each in self.neighbors:
            costs = [_read_cost(each, next(outputs)) for _ in range(2 * self.pairs)]
            ratios = [busy / idle for idle, busy in zip(costs[::2], costs[1::2], strict=True)]
            values.append(Value(each, None, median(ratios)))
        return values

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: a program finds its speed in half a turn."""
        return len(self.neighbors) * self.pairs * (3 * self.turn + _SETTLE_SECONDS)


def _read_cost(kind: Neighbor, raw: RawOutput) -> float:
    return read_unit_cost("net_client" if kind == "network" else "unit_cost", _OPERATION_KINDS[kind], raw)


def _keep_busy(exits: ExitStack, kind: Neighbor, setup: MeasurementContext, neighbor: Host) -> Process:
    """Start the neighbor's program, which works until `exits` closes, and return its process."""
    client, port = setup.client_address, str(_CLIENT_PORT)
    if kind == "network":
        server = exits.enter_context(setup.client.spawn(f"{_PROGRAMS}net_server", client, port))
        time.sleep(_SETTLE_SECONDS)
        if not server.is_running():
            what = f"the server of the neighbor's messages has ended: {server.errors().strip() or 'silently'}"
            raise TrialFailed(what, "`tare show` has its command")
    commands: dict[Neighbor, tuple[str, ...]] = {
        "cpu": ("sh", "-c", 'for cpu in $(seq "$(nproc)"); do while :; do :; done & done; wait'),
        "memory": ("sh", "-c", f"while {_PROGRAMS}ramspeed mem --passes 1 > /dev/null; do :; done"),
        "disk": (f"{_PROGRAMS}unit_cost", _FOLDER, "sync", "--seconds", _BUSY_SECONDS),
        "network": (f"{_PROGRAMS}net_client", client, port, "message", "--seconds", _BUSY_SECONDS),
    }
    return exits.enter_context(neighbor.spawn(*commands[kind]))
