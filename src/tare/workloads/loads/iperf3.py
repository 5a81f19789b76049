"""The options of iperf3, and its report in JSON.

With `--json`, iperf3 3.12 ends with exit code 0 whatever happens: an `error` is in its report. A missing number
is `null` there, and `-nan` in earlier versions, which is no JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.contracts.workloads import MeasurementContext
from tare.errors import TrialFailed
from tare.model.trials import Raw
from tare.workloads.loads.json_report import Part, read_report
from tare.workloads.loads.load import measured_load, server_address, server_port
from tare.workloads.loads.outputs import as_output

DATAGRAM_BYTES = 1448
IPERF3_PORT = 15201  # not the usual one, which the machine may use
_ATTEMPTS = 10
_HANDSHAKE_SECONDS = 30.0  # for which iperf3 waits for a datagram, before it reports that none came back
# The server serves one test at a time. gVisor on the machine's network stack gives it up before it begins, as a read of
# what is not there yet fails.
_NOT_BEGUN = (
    "the server is busy running a test",
    "control socket has closed unexpectedly",
    "unable to send control message",
)
_NOT_LISTENING = "unable to connect to server: Connection refused"  # for a moment between two tests
_NOT_BEGUN_HINT = "the server gave up test after test; under gVisor on the machine's network stack, take a newer runsc"
_HINT = "`tare show` has the whole output; it is the JSON report of iperf3 3"
_BLOCKED = "Resource temporarily unavailable"
_BLOCKED_HINT = "no datagram came back: does the path carry UDP to the server's port?"


@dataclass(frozen=True)
class Sending:
    """What iperf3 sends: so many bytes, over so many streams, with at most `cap` bytes a second in all, 0 for any."""

    is_udp: bool
    size_bytes: int
    streams: int
    cap: int

    @property
    def options(self) -> tuple[str, ...]:
        """The options of iperf3. Its limit is that of each stream, in bits a second."""
        kind = ("--udp", "--length", str(DATAGRAM_BYTES)) if self.is_udp else ()
        counts = ("--bytes", str(self.size_bytes), "--parallel", str(self.streams))
        return ("--json", *counts, "--bitrate", str(self._bit_rate), *kind)

    @property
    def _bit_rate(self) -> int:
        return 8 * self.cap // self.streams

    @property
    def reported(self) -> dict[str, object]:
        """The settings in the report of such a test."""
        common = {"num_streams": self.streams, "omit": 0, "reverse": 0, "target_bitrate": self._bit_rate}
        kind = {"protocol": "UDP", "blksize": DATAGRAM_BYTES} if self.is_udp else {"protocol": "TCP"}
        return {**common, **kind}


@dataclass(frozen=True)
class Sent:
    """What the client has sent: bytes a second, and for how long."""

    rate: float
    seconds: float


def send(setup: MeasurementContext, label: str, sending: Sending, timeout: float) -> tuple[Raw, Sent]:
    """Run iperf3 to its end; again, a few times, where the server did not begin the test.

    Raises TrialFailed with its output unless that is a whole report.
    """
    place = ("--client", server_address(setup), "--port", str(server_port(setup, "iperf3", IPERF3_PORT)))
    argv = ("iperf3", *place, *sending.options)
    for _ in range(_ATTEMPTS):
        raw = measured_load(setup.client, label, *argv, timeout=_HANDSHAKE_SECONDS + timeout)
        if not _not_begun(raw.text, *_NOT_BEGUN, _NOT_LISTENING):
            break
    try:
        return raw, read_sent(raw.text, sending)
    except TrialFailed as error:
        error.output = as_output(raw)
        error.hint = _NOT_BEGUN_HINT if _not_begun(raw.text, *_NOT_BEGUN) else error.hint
        raise


def _not_begun(text: str, *errors: str) -> bool:
    return '"intervals":\t[]' in text and any(f'"error":\t"{error}' in text for error in errors)


def read_sent(text: str, sending: Sending) -> Sent:
    """Read what the client has sent; raises TrialFailed unless it is a whole report of such a test.

    Of a few datagrams, a server that does not run meanwhile receives none.
    """
    sent = _end_of(text, sending).part("sum_sent")
    return Sent(sent.positive("bytes") / sent.positive("seconds"), sent.positive("seconds"))


def read_received(text: str, sending: Sending) -> tuple[float, ...]:
    """Read the bytes a second that the server received; raises TrialFailed unless it is a whole report of such a test.

    With TCP, segments a second that were sent again follow. With UDP, the percentage that is lost of the datagrams that
    the server knows of, and the jitter of RFC 1889 in seconds.
    """
    end = _end_of(text, sending)
    sent, received = end.part("sum_sent"), end.part("sum_received")
    if received.positive("bytes") > sent.positive("bytes"):
        received.refuse("has received more than was sent")
    rate = received.positive("bytes") / received.positive("seconds")
    if not sending.is_udp:
        return rate, sent.number("retransmits") / sent.positive("seconds")
    lost, known = received.number("lost_packets"), received.positive("packets")
    if lost > known:
        received.refuse("has lost more datagrams than it knows of")
    return rate, 100 * lost / known, received.number("jitter_ms") / 1000


def _end_of(text: str, sending: Sending) -> Part:
    report = read_report(text, "iperf3", _HINT)
    if report.has("error"):
        error = report.word("error")
        raise TrialFailed(f"iperf3: {error}", _BLOCKED_HINT if _BLOCKED in error and sending.is_udp else _HINT)
    settings = report.part("start").part("test_start")
    if any(settings.value(name) != value for name, value in sending.reported.items()):
        settings.refuse("is of a test with other settings")
    return report.part("end")
