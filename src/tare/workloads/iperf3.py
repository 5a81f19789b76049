"""iperf3: how many bytes a second an instance receives over TCP and UDP, what is sent again, and what is lost.

An iperf3 server runs in the instance, and iperf3 on the client sends to it, one mode after the other. VTmark (Table 2
and section 4) ran iPerf3 3.6 for 180 s after 10 s that it dropped, in three modes: TCP, TCP with at most 1 Gbit/s, and
UDP without a limit. `duration = "180s"` with `omit = "10s"` is that.

What differs, and why: VTmark's runs are one connection of 190 s each. Here a measurement has turns, each with a
connection of its own, and the first turns, for as long as `omit`, are dropped. By `-t`, iperf3 only runs for whole
seconds (0.1 is 0, which never ends), so each turn sends as many bytes as fill it. What counts is what the server has
received, over its own time: what the client has sent is up to a quarter more, which still lies in buffers. Datagrams
have 1448 bytes, which iPerf3 chooses itself on an Ethernet. The loss is that among the datagrams of which the server
knows, as iPerf3 reports a loss of 0 where none has arrived at all. iperf3 3.12 sends all its streams from one thread.

Settings: `modes`; `duration` of each, and `omit`, what is dropped before; `streams`, the connections at a time; `cap`,
the most bytes a second in the modes that end in `capped`, of all streams together: 125 MB are 1 Gbit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from pydantic import Field

from tare.contracts.workloads import MeasurementContext, Workload
from tare.model.trials import Metric, Raw, Service, Value
from tare.units import Duration, Size
from tare.workloads.loads.iperf3 import IPERF3_PORT, Sending, Sent, read_received, send
from tare.workloads.loads.load import while_sending
from tare.workloads.loads.outputs import check_labels
from tare.workloads.loads.settings import EachOnce
from tare.workloads.loads.turns import limit_seconds, rounds_of, turn_seconds

Mode = Literal["tcp", "tcp-capped", "udp", "udp-capped"]
_PROBES, _FIRST_PROBE_BYTES = 4, 1_000_000


def _metrics(mode: Mode) -> tuple[Metric, ...]:
    """Return what is measured in a mode. Only without a cap is throughput the speed of a stack."""
    title, free = mode.upper().replace("-CAPPED", " up to the cap"), not mode.endswith("capped")
    throughput = Metric(mode, f"{title}: throughput", "bytes/s", "higher", headline=free)
    if mode.startswith("tcp"):
        return throughput, Metric(f"{mode}-retransmits", f"{title}: sent again", "segments/s", "lower", headline=False)
    loss = Metric(f"{mode}-loss", f"{title}: lost datagrams", "%", "lower", headline=False)
    return throughput, loss, Metric(f"{mode}-jitter", f"{title}: jitter", "s", "lower", headline=False)


@dataclass(frozen=True)
class Iperf3(Workload):
    """Throughput, loss and jitter of the network."""

    name = "iperf3"
    title = "iperf3: network throughput"
    metrics = tuple(metric for mode in get_args(Mode) for metric in _metrics(mode))
    packages = ("iperf3",)
    client_packages = ("iperf3",)
    datagrams = True
    port = IPERF3_PORT
    usual_port = 5201

    modes: EachOnce[Mode] = ("tcp", "tcp-capped", "udp")
    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0
    omit: Annotated[Duration, Field(ge=0, le=3600)] = 0.1
    streams: Annotated[int, Field(ge=1, le=128)] = 1
    cap: Annotated[Size, Field(ge=100_000, le=100_000_000_000)] = 125_000_000

    @property
    def rounds(self) -> int:
        """Turns of a tenth of the duration."""
        return rounds_of(self.duration)

    def service(self, listen: str) -> Service:
        """Return a server, which serves one test at a time."""
        return Service(("/usr/bin/iperf3", "--server", "--bind", listen, "--port", str(IPERF3_PORT)), IPERF3_PORT)

    def measure(self, setup: MeasurementContext) -> Iterator[Raw]:
        """Send in each mode; raises TrialFailed if iperf3 reports an error.

        What comes before the first round holds no values: a run as short as can be, which measures the cost of its
        start, and for each mode a turn of probes, and those that `omit` asks for.
        """
        least, _ = self._run(setup, "start", self._sending("tcp", 1))
        start_seconds = (least.client_cpu or 0.0) * least.seconds  # of CPU, before a load sends
        yield replace(least, client_cpu=None, warm_up=True)
        sendings: dict[Mode, Sending] = {}
        for mode in self.modes:
            probe, sendings[mode] = self._probed(setup, mode)
            yield probe
        for number in range(self._omitted + self.rounds):
            for mode, sending in sendings.items():
                raw, sent = self._run(setup, mode, sending)
                yield replace(while_sending(raw, start_seconds, sent.seconds), warm_up=number < self._omitted)
                sendings[mode] = self._filling(mode, sent)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the values of each mode; raises TrialFailed for anything but whole results with these settings."""
        check_labels(raw, self.modes)
        values: list[Value] = []
        for mode, each in zip(self.modes, raw, strict=True):
            found = read_received(each.text, self._sending(mode, 0))
            values += (Value(metric.name, None, value) for metric, value in zip(_metrics(mode), found, strict=True))
        return tuple(values)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`: probes, and what iperf3 takes to start and to end in each turn."""
        return 0.05 + len(self.modes) * (2 + self._omitted + self.rounds) * (0.03 + turn_seconds(self.duration))

    @property
    def _omitted(self) -> int:
        """How many turns of each mode are dropped."""
        return math.ceil(self.omit / turn_seconds(self.duration) - 1e-9)

    def _probed(self, setup: MeasurementContext, mode: Mode) -> tuple[Raw, Sending]:
        """Probe until a probe takes half as long as a turn; return the last one, and what fills a turn."""
        sending = self._sending(mode, _FIRST_PROBE_BYTES)
        for _ in range(_PROBES):
            raw, sent = self._run(setup, f"probe {mode}", sending)
            sending = self._filling(mode, sent)
            if sent.seconds >= turn_seconds(self.duration) / 2:
                break
        return replace(raw, client_cpu=None, warm_up=True), sending

    def _filling(self, mode: Mode, sent: Sent) -> Sending:
        return self._sending(mode, math.ceil(sent.rate * turn_seconds(self.duration)))

    def _sending(self, mode: Mode, size_bytes: int) -> Sending:
        cap = self.cap if mode.endswith("capped") else 0
        return Sending(mode.startswith("udp"), max(size_bytes, self.streams), self.streams, cap)

    def _run(self, setup: MeasurementContext, label: str, sending: Sending) -> tuple[Raw, Sent]:
        return send(setup, label, sending, limit_seconds(turn_seconds(self.duration)))
