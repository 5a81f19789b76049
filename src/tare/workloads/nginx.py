"""nginx: a static file over HTTP, in requests a second over the number of clients.

One nginx worker in the instance serves a file from the instance's disk; wrk on the client requests it without a pause
over `clients` connections. The 2017 paper (section V-A, Figure 3) served its institute's favicon to 0 to 1000 clients
in steps of 100 with weighttp, keep-alive on. nginx has its default settings and sendfile, without access log or cache
of open files, so each request opens and reads the file. The worker runs as root: a container may have no other user.

A refused or broken connection, an answer after more than 10 s, a status other than 200 to 399, or a page that is not of
the file's size (an image of yours has its own) fails the trial. wrk's time includes the connecting of the clients: many
clients on a slow stack need a longer `duration`.

Settings: `clients`; `duration` of each point, rounded up to whole seconds, which is how wrk counts; `keep_alive`, or
else every request takes a new connection; `size` of the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from tare.contracts import Setup, Workload
from tare.errors import TrialFailed
from tare.loads.load import ClientCounts, measured_load, rising_clients, server_address, server_port
from tare.model import Metric, Raw, Service, Sweep, Value
from tare.units import Duration, Size

_PORT = 18080
# Not in /tmp, which some technologies keep in memory and others on a disk.
_CONFIGURATION_PATH = "/srv/tare-nginx.conf"
_FILE_PATH = "/srv/tare-nginx-file"
_CONFIGURATION = """\
daemon off;
user root;
pid /srv/tare-nginx.pid;
error_log stderr;
worker_processes 1;
events { worker_connections 4000; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 1000000000;
    server {
        listen LISTEN backlog=1024;
        location = /file { alias FILE; }
        location / { return 404; }
    }
}
"""
_RESULT = re.compile(
    r"Running \S+ test @ \S+\n"
    r"  1 threads and (?P<clients>\d+) connections\n"
    r"  Thread Stats .*\n    Latency .*\n    Req/Sec .*\n"
    r"  (?P<requests>\d+) requests in \S+, (?P<read>\d+\.\d+)(?P<unit>[KMGTP]?)B read\n"
    r"(?P<trouble>(?:  Socket errors: .*\n)?(?:  Non-2xx or 3xx responses: .*\n)?)"
    r"Requests/sec: +(?P<rate>\d+\.\d+)\n"
    r"Transfer/sec: .*\n",
    re.ASCII,
)
_UNITS = ("", "K", "M", "G", "T", "P")  # of 1024 each
_ROUNDED = 0.01  # wrk rounds what it read to hundredths of a unit
_LARGEST_HEAD = 1024  # bytes before a page


def _servable(size_bytes: int) -> int:
    if not 1 <= size_bytes <= 16 * 1024**2:
        raise ValueError("the file's size is from 1B to 16MiB")
    return size_bytes


@dataclass(frozen=True)
class HttpLoad(Workload):
    """Runs wrk, which requests the same page from a server; the plug-in chooses the server."""

    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("throughput", "HTTP throughput", "requests/s", "higher"),)
    sweep: ClassVar[Sweep | None] = Sweep("clients")
    client_packages: ClassVar[tuple[str, ...]] = ("wrk",)

    clients: ClientCounts = (1, 50, 200)
    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0
    keep_alive: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for numbers of clients that cannot be measured."""
        rising_clients(self.clients)

    @property
    def port(self) -> int:
        """The server's TCP port: not HTTP's own, which the machine may use."""
        return _PORT

    @property
    def page_bytes(self) -> int:
        """The size of the page, which every server has to give alike: an image of the user's has a page of its own."""
        return 1024

    def measure(self, setup: Setup) -> Iterable[Raw]:
        """Run wrk once for each number of clients; raises TrialFailed if it or the server fails."""
        return (self._run(setup, clients) for clients in self.clients)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the requests a second; raises TrialFailed for a missing or broken point, or one with errors."""
        labels = [f"clients {clients}" for clients in self.clients]
        if [each.label for each in raw] != labels:
            raise TrialFailed(f"expected outputs of {labels}, found {[each.label for each in raw]}")
        return tuple(
            Value("throughput", float(clients), _rate(each.text, clients, self.page_bytes))
            for clients, each in zip(self.clients, raw, strict=True)
        )

    def seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return len(self.clients) * (self._whole_seconds + 0.1)

    @property
    def _whole_seconds(self) -> int:
        return math.ceil(self.duration)

    def _run(self, setup: Setup, clients: int) -> Raw:
        header = () if self.keep_alive else ("-H", "Connection: close")
        how = ("-t1", f"-c{clients}", f"-d{self._whole_seconds}s", "--timeout", "10s", *header)
        server = f"{server_address(setup)}:{server_port(setup, self.name, _PORT)}"
        argv = ("wrk", *how, f"http://{server}/file")
        return measured_load(setup.client, f"clients {clients}", *argv, timeout=30 + 2 * self._whole_seconds)


@dataclass(frozen=True)
class Nginx(HttpLoad):
    """A static file over HTTP."""

    name: ClassVar[str] = "nginx"
    title: ClassVar[str] = "nginx: static file over HTTP"
    packages: ClassVar[tuple[str, ...]] = ("nginx-light",)
    usual_port: ClassVar[int] = 80
    paths: ClassVar[tuple[str, ...]] = (_FILE_PATH,)

    size: Annotated[Size, AfterValidator(_servable)] = 1024

    def __post_init__(self) -> None:
        """Raise ValueError for numbers of clients, or a size, that cannot be measured."""
        super().__post_init__()
        _servable(self.size)

    @property
    def page_bytes(self) -> int:
        """The size of the file."""
        return self.size

    def service(self, listen: str) -> Service:
        """Give nginx in the foreground; its backlog is somaxconn of the 2017 paper's Table III."""
        configuration = _CONFIGURATION.replace("LISTEN", f"{listen}:{_PORT}").replace("FILE", _FILE_PATH)
        content = ("tare\n" * (self.size // 5 + 1))[: self.size]
        argv = ("/usr/sbin/nginx", "-e", "stderr", "-c", _CONFIGURATION_PATH)
        return Service(argv, _PORT, ((_CONFIGURATION_PATH, configuration), (_FILE_PATH, content)))


def _rate(text: str, clients: int, page_bytes: int) -> float:
    """Read the requests a second from the output of wrk 4.1."""
    match = _RESULT.fullmatch(text)
    hint = "`tare show` has the whole output; it is that of `wrk` with one thread"
    if match and match["trouble"]:
        raise TrialFailed(f"wrk with {clients} clients: {' '.join(match['trouble'].split())}", hint)
    rate = float(match["rate"]) if match and int(match["clients"]) == clients else 0.0
    if match is None or not 0 < rate < math.inf:
        raise TrialFailed(f"wrk gave no rate for {clients} clients; it printed {text[:800]!r}", hint)
    _check_size(int(match["requests"]), float(match["read"]) * 1024 ** _UNITS.index(match["unit"]), clients, page_bytes)
    return rate


def _check_size(requests: int, read_bytes: float, clients: int, page_bytes: int) -> None:
    """Raise TrialFailed where the pages cannot have had the size: what wrk read has heads too, and parts at its end."""
    least = requests * page_bytes * (1 - _ROUNDED)
    most = (requests + clients) * (page_bytes + _LARGEST_HEAD) * (1 + _ROUNDED)
    if not least <= read_bytes <= most:
        each = f"{read_bytes / max(requests, 1):.0f} bytes an answer"
        hint = f"an image of yours has to serve a /file of {page_bytes} bytes: what is compared has to be the same page"
        raise TrialFailed(f"wrk with {clients} clients read {each}; the page has {page_bytes}", hint)
