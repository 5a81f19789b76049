"""nginx-latency: latency of a static file over HTTP at constant rates, as percentiles up to the 99.9th.

The server and the file of 1 KiB are those of `nginx`. wrk on the client requests the file at each of `rates`, on a
schedule that does not wait for answers. So the latencies include all waits that a stall of the server causes (no
coordinated omission: loads.latency). None of the papers measured this: their clients sent without a pause, where the
latency only follows from the throughput.

A turn has at least a thousand requests, so it may be longer than the turns of other workloads. A percentile is that of
a turn, and turns are compared within rounds. `answered` shows whether the server kept up with the rate. If it did not,
requests pile up, and latencies grow with the turn. If there are fewer `connections` than outstanding requests, requests
wait for a connection.

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
        """Return the server of `nginx` with its file."""
        return Nginx(size=self.page_bytes).service(listen)
