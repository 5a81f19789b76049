"""Open-loop HTTP load by httperf: a new connection for each request at a rate, without waiting for answers.

The 2015 paper (section 3.2, Figure 4) requested a static file in this way, for ten seconds at each rate. It gives the
mean response time and its standard deviation. Here the response time is httperf's connection time, from the begin of a
connection to its end, of connections with an answer. httperf's version is 0.9.0, as in Debian.

Limits of the client:

- httperf has 1,024 descriptors, the most that `select` takes. `fd-unavail` above 0 is a failure of the client. So that
  a late server does not use up the descriptors, an answer has to come within `timeout`, and within the time in which
  450 connections begin.
- A closed connection keeps its port for a minute (TIME_WAIT), for which the paper could not exceed 5000/s. httperf
  counts that as `other`, so tare reads from the client's kernel how many ports wait. tare's client namespace uses all
  ports from 1024 on, and reuses them after a second.
- httperf has one thread, so tare starts one process for each CPU of the client, which share the rate. httperf polls for
  events without a pause, so that its CPU time means nothing. Its duration shows whether it has kept the rate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tare.hosts.host import Host
from tare.loads.client_load import count_client_cpus, run_load, server_address, server_port
from tare.loads.http import HTTP_PORT, PageSize
from tare.loads.knee import KneeLoad, RateResult
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Value
from tare.plugins.workload import MeasurementContext

# Of 1,024 descriptors: a connection may wait for two time-outs, one until the server accepts and one for the answer.
_CONNECTIONS_PER_PROCESS = 450
# Starts the same command several times in parallel; exits with the code of the last one.
_PARALLEL_SCRIPT = 'n=$1; shift; while [ "$n" -gt 1 ]; do "$@" & n=$((n - 1)); done; "$@"; code=$?; wait; exit $code'
_N, _F, _D = r"\d{1,15}", r"\d{1,15}\.\d+", r"\d{1,15}(?:\.\d+)?"
_RESULT = re.compile(
    rf"httperf --timeout=(?P<timeout>{_D}) .*--rate=(?P<rate>{_D}) .*--num-conns=(?P<asked>{_N}) --num-calls=1\n"
    rf"(?:httperf: .*\n)*Maximum connect burst length: {_N}\n\n"
    rf"Total: connections (?P<connections>{_N}) requests {_N} replies (?P<replies>{_N}) "
    rf"test-duration (?P<seconds>{_F}) s\n\nConnection rate: .*\n"
    rf"Connection time \[ms\]: min {_F} avg (?P<mean>{_F}) max (?P<longest>{_F}) median {_F} stddev (?P<sd>{_F})\n"
    rf"Connection time \[ms\]: connect .*\nConnection length .*\n\nRequest rate: .*\nRequest size .*\n\n"
    rf"Reply rate .*\nReply time .*\nReply size \[B\]: header {_F} content (?P<size>{_F}) footer .*\n"
    rf"Reply status: 1xx={_N} 2xx=(?P<ok>{_N}) 3xx=(?P<moved>{_N}) 4xx={_N} 5xx={_N}\n\nCPU time .*\nNet I/O: .*\n\n"
    rf"Errors: total {_N} client-timo (?P<late>{_N}) socket-timo (?P<silent>{_N}) connrefused (?P<refused>{_N})"
    rf" connreset (?P<reset>{_N})\n"
    rf"Errors: fd-unavail (?P<descriptors>{_N}) addrunavail (?P<addresses>{_N}) ftab-full (?P<table>{_N}) "
    rf"other (?P<other>{_N})\n",
    re.ASCII,
)
_CLIENT_LINE = re.compile(r"client: .*\n\Z")
_PORTS_USED_UP_SHARE = 0.9  # of the port range: other programs of the client hold some ports
_PORTS = re.compile(rf"client: ports (?P<all>{_N}), of which wait (?P<waiting>{_N})\n\Z", re.ASCII)
_SOCKETS, _RANGE = "/proc/net/sockstat", "/proc/sys/net/ipv4/ip_local_port_range"
_CLIENT_PROBLEMS = {
    "descriptors": "the client had no descriptor free (fd-unavail {})",
    "addresses": "the client had no address free (addrunavail {})",
    "table": "the client's table of files was full (ftab-full {})",
    "other": "the client could not open connections (other {})",
}
HttperfOutputs = Sequence[re.Match[str]]  # one match for each process of httperf
_HINT = "`tare show` has the whole output; it is that of httperf 0.9"


@dataclass(frozen=True)
class HttperfLoad(KneeLoad):
    """Knee search by httperf, which requests the same page at rising rates. A plug-in provides the server."""

    metrics = (
        Metric("knee", "Highest rate that is followed", "requests/s", "higher"),
        Metric("answered", "Answers", "requests/s", "higher", headline=False),
        Metric("latency", "Response time", "s", "lower", headline=False),
        Metric("latency-sd", "Standard deviation of the response time", "s", "lower", headline=False),
        Metric("timed-out", "Requests without an answer in time", "requests/s", "lower", headline=False),
        Metric("refused", "Refused connections", "requests/s", "lower", headline=False),
        Metric("reset", "Reset connections", "requests/s", "lower", headline=False),
        Metric("bad-status", "Answers with a status of an error", "requests/s", "lower", headline=False),
    )
    client_packages = ("httperf",)
    port = HTTP_PORT
    usual_port = 80

    size: PageSize = 1024

    def run_rate(self, setup: MeasurementContext, rate: int) -> RawOutput:
        """Run one httperf for each CPU of the client; the output ends with the state of the client's ports."""
        place = ("--server", server_address(setup), "--port", str(server_port(setup, self.name, HTTP_PORT)))
        count = count_client_cpus(setup.client)
        connections = max(1, math.ceil(rate * self.duration / count))
        timeout = min(self.timeout, _CONNECTIONS_PER_PROCESS * count / rate)
        how = ("--rate", f"{rate / count:.6f}", "--num-conns", str(connections), "--timeout", f"{timeout:.6f}")
        argv = ("sh", "-c", _PARALLEL_SCRIPT, "sh", str(count), "httperf", *place, "--uri", "/file", *how)
        raw = run_load(setup.client, f"rate {rate}", *argv, timeout=self.limit_seconds)
        text = f"{raw.text}client: {_read_ports(setup.client)}\n"
        return replace(raw, text=text, client_cpu=None, sending_seconds=min(self.duration, raw.seconds))

    def read_rate_result(self, raw: RawOutput, rate: int) -> RateResult:
        """Return the combined result of all processes of httperf; raises TrialFailed."""
        parts = self._match_outputs(raw, rate)
        good, all_replies = _sum_groups(parts, "ok", "moved"), _sum_groups(parts, "replies")
        per_second = rate / _sum_groups(parts, "asked")
        counts = {
            "answered": good,
            "timed-out": _sum_groups(parts, "late", "silent"),
            "refused": _sum_groups(parts, "refused"),
            "reset": _sum_groups(parts, "reset"),
            "bad-status": all_replies - good,
        }
        values = [Value(name, float(rate), count * per_second) for name, count in counts.items()]
        if all_replies:
            mean, deviation = _pool_connection_times(parts)
            values += [Value("latency", float(rate), mean), Value("latency-sd", float(rate), deviation)]
        return RateResult(good * per_second / rate, tuple(values), self._describe_client_problem(parts, raw.text))

    def _match_outputs(self, raw: RawOutput, rate: int) -> HttperfOutputs:
        """Return a match for each process; raises TrialFailed for an incomplete output or a page of another size."""
        parts = list(_RESULT.finditer(raw.text))
        is_whole = bool(parts) and "".join(part[0] for part in parts) == _CLIENT_LINE.sub("", raw.text)
        asked, rates = _sum_groups(parts, "asked"), sum(float(part["rate"]) for part in parts)
        as_asked = math.isclose(rates, rate, rel_tol=0.001) and 0 <= asked - rate * self.duration <= len(parts)
        if not is_whole or not as_asked:
            raise TrialFailed(f"httperf gave no result at {rate}/s as asked; {quote_output(raw.text)}", _HINT)
        for part in parts:
            # httperf prints the mean size of all replies: error pages among them would change it.
            is_page = part["ok"] == part["replies"] != "0"
            if is_page and abs(float(part["size"]) - self.size) >= 1:
                hint = f"a user-supplied image has to serve a /file of {self.size} bytes"
                raise TrialFailed(f"httperf read pages of {part['size']} bytes, not of {self.size}", hint)
        return parts

    def _describe_client_problem(self, parts: HttperfOutputs, text: str) -> str:
        """Return the limit of the client that the outputs show; "" without one."""
        ports = _PORTS.search(text)
        if (
            ports
            and _sum_groups(parts, "other", "addresses")
            and int(ports["waiting"]) >= _PORTS_USED_UP_SHARE * int(ports["all"])
        ):
            return f"{ports['waiting']} of the client's {ports['all']} ports wait after the end of a connection"
        for name, what in _CLIENT_PROBLEMS.items():
            if count := _sum_groups(parts, name):
                return what.format(count)
        late = max(_sending_seconds(part) * float(part["rate"]) / int(part["asked"]) for part in parts)
        if late > 1 + self.tolerance:
            return f"the client took {late:.2f} times as long as it should to begin the connections"
        return ""


def _read_ports(client: Host) -> str:
    """Return as text how many ports the client has for connections and how many are in TIME_WAIT, if known."""
    text = client.run("cat", _SOCKETS, _RANGE, timeout=30, check=False).text
    waiting = re.search(r"^TCP: .* tw (\d+) ", text, re.MULTILINE)
    ends = re.search(r"^(\d+)\s+(\d+)$", text, re.MULTILINE)
    if waiting is None or ends is None:
        return "ports unknown"
    return f"ports {int(ends[2]) - int(ends[1]) + 1}, of which wait {waiting[1]}"


def _sum_groups(parts: HttperfOutputs, *names: str) -> int:
    return sum(int(part[name]) for part in parts for name in names)


def _sending_seconds(part: re.Match[str]) -> float:
    """Return a lower bound of the seconds in which httperf opened connections.

    httperf only prints its whole duration. The last connection took no longer than the longest, or two time-outs (until
    the server accepted, and until it answered) if any timed out.
    """
    waited = 2 * float(part["timeout"]) if _sum_groups([part], "late", "silent") else 0.0
    return float(part["seconds"]) - max(waited, float(part["longest"]) / 1000)


def _pool_connection_times(parts: HttperfOutputs) -> tuple[float, float]:
    """Return mean and standard deviation, in seconds, of the answered connections of all processes together."""
    groups = [(int(part["replies"]), float(part["mean"]) / 1000, float(part["sd"]) / 1000) for part in parts]
    count = sum(replies for replies, _, _ in groups)
    mean = sum(replies * group_mean for replies, group_mean, _ in groups) / count
    variance = sum(n * (deviation**2 + (group_mean - mean) ** 2) for n, group_mean, deviation in groups) / count
    return mean, math.sqrt(variance)
