"""nginx-latency: how long a static file over HTTP takes at constant rates, as percentiles up to the 99.9th.

The server and the file of 1 KiB are those of `nginx`. wrk on the client asks for the file at each of `rates`, on a
schedule that does not wait for answers, so that the waits which a stall of the server causes are all in the latencies
(no coordinated omission: loads.latency). None of the papers measured that: they asked without a pause, where a
latency is what throughput leaves of it.

A turn has a thousand requests at least, so it may be longer than those of others. A percentile is that of a turn, and
turns are compared within rounds. `answered` shows whether the server kept up with the rate: where it did not, requests
pile up, and latencies grow with the turn. With fewer `connections` than requests under way, they wait for one.

An error answer, a broken connection or a page of another size fails the trial.

Settings: `rates`, in requests a second; `connections`, over which they are spread; `duration` at each rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.latency import LatencyLoad
from tare.model.trial import Service
from tare.workloads.nginx import Nginx


@dataclass(frozen=True)
class NginxLatency(LatencyLoad):
    """Latency of a static file over HTTP at constant rates."""

    name = "nginx-latency"
    title = "nginx: latency at a constant rate"
    packages = Nginx.packages
    usual_port = Nginx.usual_port
    paths = Nginx.paths

    def service(self, listen: str) -> Service:
        """Return the server of `nginx`, with its file."""
        return Nginx(size=self.page_bytes).service(listen)
