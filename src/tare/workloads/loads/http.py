"""The load of a page over HTTP: wrk asks for it without a pause, in turns with those of other stacks.

By itself, wrk runs for whole seconds. A script of ours (`turns.lua`), which wrk calls before each request, counts and
times the requests of a turn, and makes wrk wait for the next one with its connections open. So a turn takes as long as
it should, and nothing is started or connected in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar

from pydantic import AfterValidator

from tare.contracts.workloads import MeasurementContext, Workload
from tare.errors import TrialFailed, printed
from tare.hosts.host import Host
from tare.model.trials import Metric, Raw, Sweep, Value
from tare.units import Size
from tare.workloads.loads.load import ClientCounts, LoadDuration, server_address, server_port
from tare.workloads.loads.outputs import as_output, check_labels
from tare.workloads.loads.requests import Request, put_requests
from tare.workloads.loads.together import Together, cpu_shares, started_together, texts_in, window_seconds, windows_in
from tare.workloads.loads.turns import Resident, limit_seconds, resident, rounds_of, turn_seconds

HTTP_PORT = 18080  # not the usual one, which the machine may use
_SCRIPT = Path(__file__).with_name("turns.lua")
_SCRIPT_THERE = PurePosixPath("/srv/tare-turns.lua")
_LEAD_SECONDS = 0.02  # of the script
_NUMBER = r"\d+\.\d+"
# What wrk prints of its own when it begins is there before the first turn, which warms up.
_TURN = re.compile(
    rf"requests: (?P<requests>\d+)\nseconds: (?P<seconds>{_NUMBER})\ncpu_seconds: (?P<cpu>{_NUMBER})\n"
    rf"(?:behind: {_NUMBER}\n)?turn: done\n",  # the clients of a load that several share say so
    re.ASCII,
)
_END = re.compile(
    r"^answers: (?P<answers>\d+)\nbytes: (?P<bytes>\d+)\nerrors: (?P<errors>.*)\nturn: done\n\Z",
    re.ASCII | re.MULTILINE,
)
_NO_ERRORS = "connect 0, read 0, write 0, status 0"
_LARGEST_HEAD = 1024  # bytes before a page
_CLOSED = "a server that closes idle connections between turns needs a longer time-out for them, or keep_alive = false"
_HINT = "`tare show` has the whole output; it is that of `wrk` with tare's script"


def servable(size_bytes: int) -> int:
    """Return the size of a page; raises ValueError unless it is from 1 byte to 16 MiB."""
    if not 1 <= size_bytes <= 16 * 1024**2:
        raise ValueError("the file's size is from 1B to 16MiB")
    return size_bytes


PageSize = Annotated[Size, AfterValidator(servable)]


def page(size_bytes: int) -> str:
    """Return a page of this size."""
    return ("tare\n" * (size_bytes // 5 + 1))[:size_bytes]


@dataclass(frozen=True)
class WrkLoad(Workload):
    """wrk asks a server for the same page, or for several, driven by a script of ours."""

    client_packages = ("wrk",)
    port = HTTP_PORT
    keep_alive = True  # a connection takes one request after the other, not one alone

    @property
    def page_bytes(self) -> int:
        """The size of the page, the same for every server; 0 for answers of any size.

        An image of the user's has a page of its own.
        """
        return 1024

    @property
    def asked(self) -> tuple[Request, ...]:
        """The requests, in their order; none for the page alone."""
        return ()

    @property
    def splits(self) -> bool:
        """Its connections are divided among several clients."""
        return True

    @contextmanager
    def wrk(
        self, setup: MeasurementContext, script: PurePosixPath, clients: int, threads: int | None = None
    ) -> Iterator[Together]:
        """Start wrk on all clients, which have the script: with so many threads, or one for each connection."""
        place = f"{server_address(setup)}:{server_port(setup, self.server, self.port)}"
        header = () if self.keep_alive else ("-H", "Connection: close")

        def start(stack: ExitStack, client: Host, own: int) -> Resident:
            asked = put_requests(client, self.asked, place, keep_alive=self.keep_alive)
            # Its table of latencies grows with the time-out. Neither is used, nor does it run for as long as this.
            how = (f"-t{threads or own}", f"-c{own}", "-d24h", "--timeout", "1s", "-s", str(script), *header)
            argv = ("wrk", *how, f"http://{place}/file", str(own), *asked)
            return stack.enter_context(resident(client, *argv, last="turn: done"))

        with started_together(setup.clients, clients, start) as wrk:
            yield wrk


@dataclass(frozen=True)
class HttpLoad(WrkLoad):
    """wrk asks a server for the same page again and again. A plug-in provides the server."""

    name: ClassVar[str]
    metrics = (Metric("throughput", "HTTP throughput", "requests/s", "higher"),)
    sweep = Sweep("clients")
    without_pause = True

    clients: ClientCounts = (1, 50, 200)
    duration: LoadDuration = 1.0
    keep_alive: bool = True

    @property
    def rounds(self) -> int:
        """Turns of a tenth of the duration."""
        return rounds_of(self.duration)

    def measure(self, setup: MeasurementContext) -> Iterator[Raw]:
        """Run wrk for each number of clients; raises TrialFailed if it or the server fails.

        All turns of a point come before those of the next one: only its connections are open. In a first turn,
        which does not count, the clients connect.
        """
        for client in setup.clients:
            client.put(_SCRIPT, _SCRIPT_THERE)
        for clients in self.clients:
            with self.wrk(setup, _SCRIPT_THERE, clients, 1) as wrk:
                patience_seconds = limit_seconds(turn_seconds(self.duration), setup.patience_seconds)
                for number in range(1 + self.rounds):
                    raw = self._turn(wrk, clients, patience_seconds, warm_up=number == 0)
                    yield replace(raw, client_limit=wrk.doubt(raw)) if number == self.rounds else raw
                check_ends(wrk, self.page_bytes)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the requests a second; raises TrialFailed for a point that is missing or broken."""
        labels = [f"clients {clients}" for clients in self.clients]
        check_labels(raw, labels)
        return tuple(
            Value("throughput", float(clients), _rate(each.text, clients))
            for clients, each in zip(self.clients, raw, strict=True)
        )

    def seconds(self) -> float:
        """Estimate the seconds of `measure`: a first turn comes before those that count, and a lead before each."""
        return len(self.clients) * (0.1 + (1 + self.rounds) * (turn_seconds(self.duration) + _LEAD_SECONDS))

    def _turn(self, wrk: Together, clients: int, patience_seconds: float, *, warm_up: bool) -> Raw:
        lines = [f"{turn_seconds(self.duration):.6g}"] * len(wrk.parts)
        raw = wrk.turn(f"clients {clients}", lines, patience_seconds, warm_up)
        found = [None if warm_up else _TURN.fullmatch(each) for each in texts_in(raw.text)]
        cpu, each_cpu = cpu_shares([_cpu_share(each) for each in found])
        return replace(raw, client_cpu=cpu, clients_cpu=each_cpu if cpu is not None else ())


def _cpu_share(found: re.Match[str] | None) -> float | None:
    seconds = float(found["seconds"]) if found else 0.0
    return min(1.0, float(found["cpu"]) / seconds) if found and seconds else None


def check_ends(wrk: Together, page_bytes: int) -> None:
    """End wrk on all clients; raise TrialFailed as `check_end` does."""
    for part, raw in zip(wrk.parts, wrk.end(30), strict=True):
        check_end(raw, part.connections, page_bytes)


def check_end(raw: Raw, clients: int, page_bytes: int) -> None:
    """Raise TrialFailed where wrk counted errors, or where the pages cannot have had the size, unless that is 0.

    What it read has heads, too, and parts of answers at its end.
    """
    output = as_output(raw)
    found = _END.search(raw.text)
    if found is None:
        raise TrialFailed(f"wrk did not end as it should; {printed(raw.text)}", _HINT, output)
    if found["errors"] != _NO_ERRORS:
        hint = _HINT if ", read 0," in found["errors"] else _CLOSED
        raise TrialFailed(f"wrk with {clients} clients counted errors: {found['errors']}", hint, output)
    answers, read_bytes = int(found["answers"]), int(found["bytes"])
    if page_bytes and not answers * page_bytes <= read_bytes <= (answers + clients) * (page_bytes + _LARGEST_HEAD):
        each = f"{read_bytes / max(answers, 1):.0f} bytes an answer"
        hint = f"an image of yours has to serve a /file of {page_bytes} bytes: what is compared has to be the same page"
        raise TrialFailed(f"wrk with {clients} clients read {each}; the page has {page_bytes}", hint, output)


def _rate(text: str, clients: int) -> float:
    """Read the requests a second of a turn."""
    parts = texts_in(text)
    found = [each for each in map(_TURN.fullmatch, parts) if each]
    seconds = window_seconds(windows_in(text)) if len(parts) > 1 else sum(float(each["seconds"]) for each in found)
    rate = sum(float(each["requests"]) for each in found) / seconds if len(found) == len(parts) and seconds > 0 else 0.0
    if not 0 < rate < math.inf:
        raise TrialFailed(f"wrk gave no rate for {clients} clients; {printed(text)}", _HINT)
    return rate
