"""BIND: queries of one name to an authoritative name server, and the highest rate at which it still answers.

A BIND in the instance serves one zone. dnsperf on the client queries one name over UDP at rates that rise until answers
no longer follow. The 2015 paper (section 3.1, Figures 2 and 3) ran BIND 9.10.1 on OSv and 9.8.4 on Linux, from 1000
queries a second on, with queryperf: Linux sustained about 19000/s, OSv about 28000/s. queryperf is no longer
maintained, and dnsperf is its successor. The paper gives no length of its runs for DNS. Here it is `duration`, and
several runs decide on a rate. Every stack runs the same BIND, with a thread for each CPU that it sees, as root. Under
gVisor of 2022, as in Debian 12, BIND aborts at its start by an assertion on the range of ports.

Values: the knee; by rate the answers a second, their mean latency and its standard deviation, lost queries, and answers
other than NOERROR. loads.knee defines the knee and its search, workloads/bind.py lists the limits of the client.

Settings: `rates`, which rise and then double; `duration` of a run; `runs` at each rate, an odd number; `tolerance`, the
share of queries that may lack a good answer; `resolution` of the knee; `timeout` of an answer.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from tare.hosts.host import Host
from tare.loads.client_load import count_client_cpus, relate_to_sending, run_load, server_address, server_port
from tare.loads.knee import KneeLoad, RateResult
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Service, Value
from tare.plugins.workload import MeasurementContext

DNS_PORT = 15353  # a server of the machine may occupy the usual port
_QUERIES_PATH = "/srv/tare-dnsperf"
_QUERIES_PER_THREAD, _MAX_THREADS = 10_000, 100
_BUFFER_KILOBYTES = "1024"  # requested socket buffer, which the client's kernel may limit
_NONE_LOST = re.compile(r"Queries lost: +0 ")
_N, _F = r"\d{1,15}", r"\d{1,15}\.\d+"
_RESULT = re.compile(
    rf"DNS Performance Testing Tool\nVersion 2\.\S+\n\n\[Status\] Command line: .* -Q (?P<rate>{_N}) .*\n"
    rf"(?:\[Status\] .*\n)+\[Status\] Stopping after (?P<duration>{_F}) seconds\n"
    rf"\[Status\] Testing complete \(time limit\)\n\nStatistics:\n\n"
    rf"  Queries sent: +(?P<sent>{_N})\n  Queries completed: +(?P<completed>{_N}) \(.*\)\n"
    rf"  Queries lost: +(?P<lost>{_N}) \(.*\)\n\n  Response codes: +(?:NOERROR (?P<good>{_N}) \(.*?\))?(?:, )?.*\n"
    rf"  Average packet size: .*\n  Run time \(s\): +{_F}\n  Queries per second: .*\n\n"
    rf"  Average Latency \(s\): +(?P<mean>{_F}) \(.*\)\n(?:  Latency StdDev \(s\): +(?P<sd>{_F})\n)?\n"
    rf"client: dropped (?P<dropped>{_N}|unknown)\n",
    re.ASCII,
)
_HINT = "`tare show` has the whole output; it is that of dnsperf 2"
_CONFIGURATION_PATH, _ZONE_PATH = "/srv/tare-named.conf", "/srv/tare-zone"
_CONFIGURATION = f"""\
options {{
    directory "/srv";
    pid-file none;
    session-keyfile none;
    listen-on port {DNS_PORT} {{ LISTEN; }};
    listen-on-v6 {{ none; }};
    recursion no;
    dnssec-validation no;
    notify no;
}};
controls {{ }};
zone "tare.test" {{ type primary; file "{_ZONE_PATH}"; }};
"""
_ZONE = """\
$TTL 3600
@ IN SOA ns host 1 3600 600 86400 3600
@ IN NS ns
ns IN A 192.0.2.1
www IN A 192.0.2.2
"""


@dataclass(frozen=True)
class Bind(KneeLoad):
    """Knee search for queries of one name to an authoritative server.

    dnsperf sends the queries over UDP, and does not wait for answers. Limits of dnsperf 2.10:

    - It stops sending at 100 outstanding queries (`-q`), and so silently misses the rate. tare raises `-q` to the
      number of queries in `timeout`, and checks how many were sent.
    - Until a thread has sent as many queries as `-q` allows, it pauses after every second query. It sends at most
      20,000/s, and then catches up in a burst. So there is a thread for each 10,000/s, and for each CPU of the client.
    - Its latency leaves out queries without an answer. They are in the metric `lost`.
    - It prints the standard deviation of the latency from two answers on: a rate with one answer has no `latency-sd`.
    - If it does not read answers in time, the client's kernel drops them. tare counts these, as they are no loss of the
      server.
    - While an answer is missing, it polls without a pause. Its CPU time then means nothing, and is not stored. An
      overloaded client shows by queries that it did not send, and by answers that its kernel dropped.

    Answers that arrive after a run count: up to a socket buffer of queries, some hundreds.
    """

    name = "bind"
    title = "BIND: one name of an authoritative server"
    metrics = (
        Metric("knee", "Highest rate that is followed", "requests/s", "higher"),
        Metric("answered", "Good answers", "requests/s", "higher", headline=False),
        Metric("latency", "Latency", "s", "lower", headline=False),
        Metric("latency-sd", "Standard deviation of the latency", "s", "lower", headline=False),
        Metric("lost", "Queries without an answer in time", "requests/s", "lower", headline=False),
        Metric("failed", "Answers other than NOERROR", "requests/s", "lower", headline=False),
    )
    packages = ("bind9",)
    client_packages = ("dnsperf",)
    usual_port = 53
    datagrams = True
    port = DNS_PORT
    question = "www.tare.test A"

    def service(self, listen: str) -> Service:
        """Return named in the foreground. It also listens over TCP, which tare's readiness probe uses."""
        address = "any" if listen == "0.0.0.0" else listen  # noqa: S104 - compared, not bound
        files = ((_CONFIGURATION_PATH, _CONFIGURATION.replace("LISTEN", address)), (_ZONE_PATH, _ZONE))
        return Service(("/usr/sbin/named", "-g", "-c", _CONFIGURATION_PATH), DNS_PORT, files)

    def run_rate(self, setup: MeasurementContext, rate: int) -> RawOutput:
        """Run dnsperf; the output ends with the number of answers that the client's kernel dropped."""
        client = setup.client
        client.write(_QUERIES_PATH, f"{self.question}\n")
        target = ("-s", server_address(setup), "-p", str(server_port(setup, self.name, DNS_PORT)), "-d", _QUERIES_PATH)
        cpus = count_client_cpus(client)
        threads = str(max(cpus, min(_MAX_THREADS, math.ceil(rate / _QUERIES_PER_THREAD))))
        limits = ("-Q", str(rate), "-q", str(max(100, math.ceil(rate * self.timeout))), "-t", f"{self.timeout:g}")
        parallel = ("-T", threads, "-c", threads, "-b", _BUFFER_KILOBYTES)
        how = ("-l", f"{self.duration:g}", *parallel, "-O", "suppress=timeout")
        before = _read_dropped_datagrams(client)
        raw = run_load(client, f"rate {rate}", "dnsperf", *target, *limits, *how, timeout=self.limit_seconds, cpus=cpus)
        raw = relate_to_sending(raw, 0.0, self.duration)
        after = _read_dropped_datagrams(client)
        dropped = "unknown" if before is None or after is None else str(after - before)
        share = raw.client_cpu if _NONE_LOST.search(raw.text) else None
        return replace(raw, text=f"{raw.text}client: dropped {dropped}\n", client_cpu=share)

    def read_rate_result(self, raw: RawOutput, rate: int) -> RateResult:
        """Return the result that dnsperf printed; raises TrialFailed for any other output."""
        found = _RESULT.fullmatch(raw.text)
        if found is None or not self._matches_request(found, rate):
            raise TrialFailed(f"dnsperf gave no result at {rate}/s as asked; {quote_output(raw.text)}", _HINT)
        sent, completed, good = (int(found[name] or 0) for name in ("sent", "completed", "good"))
        asked = rate * self.duration
        counts = {"answered": good, "lost": int(found["lost"]), "failed": completed - good}
        values = [Value(name, float(rate), count / self.duration) for name, count in counts.items()]
        if completed:
            values.append(Value("latency", float(rate), float(found["mean"])))
        if completed > 1:
            values.append(Value("latency-sd", float(rate), float(found["sd"])))
        share = good / asked
        client = "" if share >= 1 - self.tolerance else self._describe_client_problem(found, sent, good, asked)
        return RateResult(share, tuple(values), client)

    def _matches_request(self, found: re.Match[str], rate: int) -> bool:
        """Return whether the output is of this run, and has a standard deviation if there are several answers."""
        asked = (int(found["rate"]), float(found["duration"])) == (rate, round(self.duration, 6))
        return asked and (found["sd"] is not None) == (int(found["completed"]) > 1)

    def _describe_client_problem(self, found: re.Match[str], sent: int, good: int, requested: float) -> str:
        """Return the limit of the client that explains missing answers; "" if the server did not answer."""
        least = 1 - self.tolerance
        if found["dropped"] != "unknown" and good + int(found["dropped"]) >= least * requested:
            return f"the client's kernel dropped {found['dropped']} answers, for want of a buffer"
        if good >= least * sent:
            return f"the load sent {sent} queries, not {requested:.0f}"
        return ""


def _read_dropped_datagrams(client: Host) -> int | None:
    """Return how many datagrams the client's kernel has dropped for lack of a buffer; None if it is not reported."""
    lines = [line.split() for line in client.read("/proc/net/snmp").splitlines() if line.startswith("Udp:")]
    if len(lines) != 2 or "RcvbufErrors" not in lines[0]:
        return None
    return int(dict(zip(*lines, strict=True))["RcvbufErrors"])
