"""iperf3: throughput to an instance over TCP and UDP, with retransmitted segments and lost datagrams.

An iperf3 server runs in the instance, and iperf3 on the client sends to it, one mode after the other. VTmark (Table 2
and section 4) ran iPerf3 3.6 for 180 s after 10 s that it dropped, in three modes: TCP, TCP with at most 1 Gbit/s, and
UDP without a limit. `duration = "180s"` with `omit = "10s"` repeats this.

Differences: VTmark's runs are one connection of 190 s each. Here a measurement has turns, each with a new connection,
and the first turns are dropped until `omit` is over. The option `-t` of iperf3 takes whole seconds (0.1 becomes 0,
which never ends), so each turn sends the bytes that fill it. The throughput is the number of bytes that the server has
received, divided by the server's time. The client has sent up to a quarter more, which is still in buffers. Datagrams
have 1448 bytes, the default of iPerf3 on an Ethernet. The loss is relative to the datagrams that the server knows of,
because iPerf3 reports a loss of 0 if none has arrived. iperf3 3.12 sends all its streams from one thread.

Settings: `modes`; `duration` of each mode; `omit`, the time before it that is dropped; `streams`, the number of
parallel connections; `cap`, the most bytes a second of all streams together, in the modes that end in `capped`: 125 MB
are 1 Gbit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from tare.loads.client_load import relate_to_sending, run_load, server_address, server_port
from tare.loads.parsing import EachOnce, ReportObject, as_output, check_labels, read_report
from tare.loads.turns import TurnWorkload, limit_seconds, turn_seconds
from tare.model.errors import TrialFailed
from tare.model.trial import Metric, RawOutput, Service, Value
from tare.model.units import Duration, Size
from tare.plugins.workload import MeasurementContext

DATAGRAM_BYTES = 1448
IPERF3_PORT = 15201  # a server of the machine may occupy the usual port
# With `--json`, iperf3 3.12 always exits with 0, and reports an `error` in its JSON. A missing number is `null`, or in
# earlier versions `-nan`, which is no JSON.
_ATTEMPTS = 10
_HANDSHAKE_SECONDS = 30.0  # iperf3 waits so long for the answer to its first datagram
# The server serves one test at a time. Under gVisor on the machine's network stack, it aborts a test at its begin,
# because a read fails if the data has not arrived yet.
_NOT_STARTED_ERRORS = (
    "the server is busy running a test",
    "control socket has closed unexpectedly",
    "unable to send control message",
)
_NOT_LISTENING = "unable to connect to server: Connection refused"  # the server does not listen between two tests
_NOT_STARTED_HINT = "the server aborted all tests; under gVisor on the machine's network stack, use a newer runsc"
_HINT = "`tare show` has the whole output; it is the JSON report of iperf3 3"
_BLOCKED = "Resource temporarily unavailable"
_BLOCKED_HINT = "no datagram came back: does the path carry UDP to the server's port?"
TransferMode = Literal["tcp", "tcp-capped", "udp", "udp-capped"]
_PROBES, _FIRST_PROBE_BYTES = 4, 1_000_000


@dataclass(frozen=True)
class IperfTest:
    """Test of iperf3: bytes over streams, with at most `cap_bytes_per_second` in all; 0 for no limit."""

    is_udp: bool
    size_bytes: int
    streams: int
    cap_bytes_per_second: int

    @property
    def options(self) -> tuple[str, ...]:
        """Options of iperf3, whose bit rate is that of a single stream."""
        kind = ("--udp", "--length", str(DATAGRAM_BYTES)) if self.is_udp else ()
        counts = ("--bytes", str(self.size_bytes), "--parallel", str(self.streams))
        return ("--json", *counts, "--bitrate", str(self._bit_rate), *kind)

    @property
    def _bit_rate(self) -> int:
        return 8 * self.cap_bytes_per_second // self.streams

    @property
    def expected_report(self) -> dict[str, object]:
        """Settings in the report of such a test."""
        common = {"num_streams": self.streams, "omit": 0, "reverse": 0, "target_bitrate": self._bit_rate}
        kind = {"protocol": "UDP", "blksize": DATAGRAM_BYTES} if self.is_udp else {"protocol": "TCP"}
        return {**common, **kind}


def _has_not_begun(text: str, *errors: str) -> bool:
    return '"intervals":\t[]' in text and any(f'"error":\t"{error}' in text for error in errors)


def read_sent(text: str, sending: IperfTest) -> tuple[float, float]:
    """Return the bytes a second that the client has sent, and the seconds.

    Raises TrialFailed unless the text is a complete report of such a test. Probes use this number, because a server
    that is not scheduled meanwhile receives none of a few datagrams.
    """
    sent = _read_end(text, sending).child("sum_sent")
    return sent.positive("bytes") / sent.positive("seconds"), sent.positive("seconds")


def read_received(text: str, sending: IperfTest) -> tuple[float, ...]:
    """Return the bytes a second that the server received; raises TrialFailed unless the report is complete.

    For TCP, the retransmitted segments a second follow. For UDP, the percentage of lost datagrams among those that the
    server knows of, and the jitter of RFC 1889 in seconds follow.
    """
    end = _read_end(text, sending)
    sent, received = end.child("sum_sent"), end.child("sum_received")
    if received.positive("bytes") > sent.positive("bytes"):
        received.refuse("has received more than was sent")
    rate = received.positive("bytes") / received.positive("seconds")
    if not sending.is_udp:
        return rate, sent.number("retransmits") / sent.positive("seconds")
    lost, known = received.number("lost_packets"), received.positive("packets")
    if lost > known:
        received.refuse("has lost more datagrams than it knows of")
    return rate, 100 * lost / known, received.number("jitter_ms") / 1000


def _read_end(text: str, sending: IperfTest) -> ReportObject:
    report = read_report(text, "iperf3", _HINT)
    if report.has_key("error"):
        error = report.word("error")
        raise TrialFailed(f"iperf3: {error}", _BLOCKED_HINT if _BLOCKED in error and sending.is_udp else _HINT)
    settings = report.child("start").child("test_start")
    if any(settings.value(name) != value for name, value in sending.expected_report.items()):
        settings.refuse("is of a test with other settings")
    return report.child("end")


def _metrics_of_mode(mode: TransferMode) -> tuple[Metric, ...]:
    """Return the metrics of a mode. Throughput is a headline only without a cap, which would hide differences."""
    title, free = mode.upper().replace("-CAPPED", " up to the cap"), not mode.endswith("capped")
    throughput = Metric(mode, f"{title}: throughput", "bytes/s", "higher", headline=free)
    if mode.startswith("tcp"):
        return throughput, Metric(f"{mode}-retransmits", f"{title}: sent again", "segments/s", "lower", headline=False)
    loss = Metric(f"{mode}-loss", f"{title}: lost datagrams", "%", "lower", headline=False)
    return throughput, loss, Metric(f"{mode}-jitter", f"{title}: jitter", "s", "lower", headline=False)


@dataclass(frozen=True)
class Iperf3(TurnWorkload):
    """Throughput, loss and jitter of the network."""

    name = "iperf3"
    title = "iperf3: network throughput"
    metrics = tuple(metric for mode in get_args(TransferMode) for metric in _metrics_of_mode(mode))
    packages = ("iperf3",)
    client_packages = ("iperf3",)
    datagrams = True
    port = IPERF3_PORT
    usual_port = 5201

    modes: EachOnce[TransferMode] = ("tcp", "tcp-capped", "udp")
    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0
    omit: Annotated[Duration, Field(ge=0, le=3600)] = 0.1
    streams: Annotated[int, Field(ge=1, le=128)] = 1
    cap: Annotated[Size, Field(ge=100_000, le=100_000_000_000)] = 125_000_000

    def service(self, listen: str) -> Service:
        """Return the server, which serves one test at a time."""
        return Service(("/usr/bin/iperf3", "--server", "--bind", listen, "--port", str(IPERF3_PORT)), IPERF3_PORT)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Send in each mode; raises TrialFailed if iperf3 reports an error.

        The outputs before the first round hold no values: a run of one byte, which measures the CPU time of a start,
        and for each mode a turn of probes and the turns of `omit`.
        """
        shortest, *_ = self._run(setup, "start", self._create_test("tcp", 1))
        start_seconds = (shortest.client_cpu or 0.0) * shortest.seconds  # CPU time before a load sends
        yield shortest.as_warm_up()
        sendings: dict[TransferMode, IperfTest] = {}
        for mode in self.modes:
            probe, sendings[mode] = self._probe_until_half_turn(setup, mode)
            yield probe
        for number in range(self._omitted_turns + self.rounds):
            for mode, sending in sendings.items():
                raw, rate, seconds = self._run(setup, mode, sending, warm_up=number < self._omitted_turns)
                yield relate_to_sending(raw, start_seconds, seconds)
                sendings[mode] = self._fill_turn(mode, rate)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the values of each mode; raises TrialFailed for anything but complete results with these settings."""
        check_labels(raw, self.modes)
        values: list[Value] = []
        for mode, each in zip(self.modes, raw, strict=True):
            found = read_received(each.text, self._create_test(mode, 0))
            values += (
                Value(metric.name, None, value) for metric, value in zip(_metrics_of_mode(mode), found, strict=True)
            )
        return tuple(values)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: probes, and the start and end of iperf3 in each turn."""
        return 0.05 + len(self.modes) * (2 + self._omitted_turns + self.rounds) * (0.03 + turn_seconds(self.duration))

    @property
    def _omitted_turns(self) -> int:
        """Number of turns of each mode that are dropped."""
        return math.ceil(self.omit / turn_seconds(self.duration) - 1e-9)

    def _probe_until_half_turn(self, setup: MeasurementContext, mode: TransferMode) -> tuple[RawOutput, IperfTest]:
        """Probe until a probe takes half as long as a turn; return the last probe and the test that fills a turn."""
        sending = self._create_test(mode, _FIRST_PROBE_BYTES)
        for _ in range(_PROBES):
            raw, rate, seconds = self._run(setup, f"probe {mode}", sending)
            sending = self._fill_turn(mode, rate)
            if seconds >= turn_seconds(self.duration) / 2:
                break
        return raw.as_warm_up(), sending

    def _fill_turn(self, mode: TransferMode, rate: float) -> IperfTest:
        return self._create_test(mode, math.ceil(rate * turn_seconds(self.duration)))

    def _create_test(self, mode: TransferMode, size_bytes: int) -> IperfTest:
        cap = self.cap if mode.endswith("capped") else 0
        return IperfTest(mode.startswith("udp"), max(size_bytes, self.streams), self.streams, cap)

    def _run(
        self, setup: MeasurementContext, label: str, sending: IperfTest, *, warm_up: bool = False
    ) -> tuple[RawOutput, float, float]:
        """Run iperf3; return its output, and rate and seconds of sending. Retry up to 10 times if no test began.

        Raises TrialFailed with the output unless it is a complete report.
        """
        server = ("--client", server_address(setup), "--port", str(server_port(setup, self.name, IPERF3_PORT)))
        argv = ("iperf3", *server, *sending.options)
        timeout = _HANDSHAKE_SECONDS + limit_seconds(turn_seconds(self.duration))
        for _ in range(_ATTEMPTS):
            raw = run_load(setup.client, label, *argv, timeout=timeout, warm_up=warm_up)
            if not _has_not_begun(raw.text, *_NOT_STARTED_ERRORS, _NOT_LISTENING):
                break
        try:
            return raw, *read_sent(raw.text, sending)
        except TrialFailed as error:
            error.output = as_output(raw)
            error.hint = _NOT_STARTED_HINT if _has_not_begun(raw.text, *_NOT_STARTED_ERRORS) else error.hint
            raise
