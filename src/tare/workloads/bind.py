"""BIND: an authoritative name server asked for one name, and the highest rate of queries at which it still answers.

One BIND in the instance has one zone; dnsperf on the client asks for one name over UDP at rates that rise until answers
no longer follow. The 2015 paper (section 3.1, Figures 2 and 3) ran BIND 9.10.1 on OSv and 9.8.4 on Linux, from 1000
queries a second on, with queryperf: Linux sustained about 19000/s, OSv about 28000/s. queryperf is no longer made, and
dnsperf is its successor. The paper gives no length of its runs for DNS; here it is `duration`, and a rate is decided by
several runs. Every stack runs the same BIND, with as many threads as it sees CPUs, as root. Under gVisor of
2022, as in Debian 12, it ends as it starts, by an assertion on the range of ports.

Values: the knee; over the rate the answers a second, their mean latency and its standard deviation, lost queries, and
answers other than NOERROR. loads.knee defines the knee and its search, loads.dnsperf lists the limits
of the client.

Settings: `rates`, which rise and then double; `duration` of a run; `runs` at each rate, an odd number; `tolerance`, the
share of queries that may be without a good answer; `resolution` of the knee; `timeout` of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.model.trials import Service
from tare.workloads.loads.dnsperf import DNS_PORT, DnsperfLoad

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
class Bind(DnsperfLoad):
    """One name of an authoritative server."""

    name = "bind"
    title = "BIND: one name of an authoritative server"
    packages = ("bind9",)
    question = "www.tare.test A"

    def service(self, listen: str) -> Service:
        """Return named in the foreground; it answers over TCP, too, which tare waits for."""
        address = "any" if listen == "0.0.0.0" else listen  # noqa: S104 - compared, not bound
        files = ((_CONFIGURATION_PATH, _CONFIGURATION.replace("LISTEN", address)), (_ZONE_PATH, _ZONE))
        return Service(("/usr/sbin/named", "-g", "-c", _CONFIGURATION_PATH), DNS_PORT, files)
