"""Closed-loop HTTP load by tare's load client or by wrk, in turns with other stacks, and the requests that it sends.

wrk by itself runs for whole seconds. It calls tare's script `turns.lua` before each request. The script counts and
times the requests of a turn, and then makes wrk wait for the next turn with its connections open. So a turn has the
requested length, and no process starts and no client connects within it.

The requests come from a suite or from a request file, which has a JSON object a line. Only `path` is required:

    {"path": "/search", "method": "POST", "headers": {"Content-Type": "text/plain"}, "body": "word"}

All connections together send the requests in order, and begin again after the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError, ValidationInfo

from tare.hosts.host import Host
from tare.loads.client_load import (
    ClientCounts,
    LoadDuration,
    SharedLoad,
    running_shared_load,
    server_address,
    server_port,
    with_cpu_shares,
)
from tare.loads.load_client import TURN, ClosedLoop, TurnPlan, least_turn_seconds, plan_turns, read_turn_rate
from tare.loads.parsing import as_output, check_labels
from tare.loads.turns import (
    ResidentProgram,
    ShortTurnWorkload,
    count_rounds,
    limit_seconds,
    running_program,
    turn_seconds,
)
from tare.model.errors import TrialFailed, quote_output
from tare.model.files import read_bounded
from tare.model.trial import Metric, RawOutput, Sweep, Value
from tare.model.turn_length import TurnLength, TurnProbe
from tare.model.units import Size
from tare.plugins.workload import MeasurementContext, Workload
from tare.suites.document import folder_of

MAX_REQUESTS, MAX_BYTES = 10_000, 1024**2  # each of up to 256 threads of wrk holds a copy of all requests
_REQUESTS_THERE = PurePosixPath("/srv/tare-requests.lua")
_PATH = re.compile(r"/[!-~]{0,8000}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_TEXT = re.compile(r"([!-~]([\t -~]{0,8000}[!-~])?)?", re.ASCII)
_RESERVED_HEADERS = ("connection", "content-length", "expect", "transfer-encoding", "upgrade")
HTTP_PORT = 18080  # a server of the machine may occupy the usual port
_SCRIPT = Path(__file__).with_name("turns.lua")
_SCRIPT_THERE = PurePosixPath("/srv/tare-turns.lua")
_LEAD_SECONDS = 0.02  # LEAD of turns.lua
_END = re.compile(
    r"^answers: (?P<answers>\d+)\nbytes: (?P<bytes>\d+)\nerrors: (?P<errors>.*)\nturn: done\n\Z",
    re.ASCII | re.MULTILINE,
)
_NO_ERRORS = "connect 0, read 0, write 0, status 0"
_LARGEST_HEAD = 1024  # bytes of an answer's status line and headers
_CLOSED = "a server that closes idle connections between turns needs a longer time-out for them, or keep_alive = false"
_HINT = "`tare show` has the whole output; it is that of `wrk` with tare's script"


def check_path(text: str) -> str:
    """Return the path of a request; raises ValueError for an invalid path."""
    if not _PATH.fullmatch(text):
        raise ValueError("a path begins with /, and has no blanks and ASCII alone, such as /search?word=caf%C3%A9")
    return text


@dataclass(frozen=True)
class Request:
    """HTTP request. HEAD is missing, because wrk would wait for the body that its Content-Length announces.

    Raises ValueError for characters that would end the request early or inject another request.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    path: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for characters that HTTP forbids, and for headers that the load itself controls."""
        check_path(self.path)
        for name, text in self.headers.items():
            if not _NAME.fullmatch(name) or not _TEXT.fullmatch(text):
                raise ValueError(f"{name[:100]!r} is no header: its name has no blanks, its text is one line of ASCII")
            if name.lower() in _RESERVED_HEADERS:
                raise ValueError(f"{name} is a header that the load gives itself, or cannot follow")


_REQUEST = TypeAdapter(Request)


def parse_requests(text: str) -> tuple[Request, ...]:
    """Parse the text of a request file; raises ValueError with the number of an invalid line, or for an empty file."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise ValueError('it has no request: a line is one, such as {"path": "/"}')
    return _check_count(tuple(_parse_request(line, f"line {number}") for number, line in lines))


def _read_requests(value: object, info: ValidationInfo) -> object:
    """Return the requests of a setting: a text is the path of a request file, a list has tables of requests."""
    if isinstance(value, list):
        texts = (json.dumps(each, default=str) for each in value)
        return _check_count(
            tuple(_parse_request(text, f"request {number}") for number, text in enumerate(texts, start=1))
        )
    if not isinstance(value, str):
        return value
    try:
        if not (path := folder_of(info) / value).is_file():
            raise ValueError(f"there is no such file: {path.absolute()}")
        return parse_requests(read_bounded(path, MAX_BYTES).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 text: byte {error.start} cannot be read") from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {(error.strerror or str(error)).lower()}") from None


Requests = Annotated[tuple[Request, ...], BeforeValidator(_read_requests)]


def encode_request(request: Request, host: str, *, keep_alive: bool) -> bytes:
    """Return the bytes of a request. `host`, an address and port, is its Host header unless the request has one."""
    body = request.body.encode()
    lines = [f"{request.method} {request.path} HTTP/1.1"]
    lines += [f"{name}: {text}" for name, text in request.headers.items()]
    if "host" not in {name.lower() for name in request.headers}:
        lines.append(f"Host: {host}")
    if body or request.method in {"POST", "PUT", "PATCH"}:  # without a length of 0, some servers answer these with 411
        lines.append(f"Content-Length: {len(body)}")
    if not keep_alive:
        lines.append("Connection: close")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii") + body


def put_requests(client: Host, requests: Sequence[Request], host: str, *, keep_alive: bool = True) -> tuple[str, ...]:
    """Write a file with the requests to the client; return the argument of wrk's script that names the file.

    The argument is () without requests: the script then requests the URL on wrk's command line.
    """
    if not requests:
        return ()
    with NamedTemporaryFile("w", encoding="ascii") as file:
        file.write(as_lua(encode_request(each, host, keep_alive=keep_alive) for each in requests))
        file.flush()
        client.put(Path(file.name), _REQUESTS_THERE)
    return (str(_REQUESTS_THERE),)


def as_lua(texts: Iterable[bytes]) -> str:
    """Return a Lua chunk that returns a list of texts. Bytes are escaped by number, so that none ends a text early."""
    written = ("".join(f"\\{byte:03d}" for byte in text) for text in texts)
    return "return {\n" + "".join(f'"{text}",\n' for text in written) + "}\n"


def _parse_request(text: str, where: str) -> Request:
    try:
        return _REQUEST.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"{part}: " for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        raise ValueError(f"{where}: {key}{said}") from None


def _check_count(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    size = sum(len(encode_request(each, "", keep_alive=True)) for each in requests)
    if len(requests) > MAX_REQUESTS or size > MAX_BYTES:
        raise ValueError(f"requests are at most {MAX_REQUESTS}, and 1 MiB together")
    return requests


def check_page_size(size_bytes: int) -> int:
    """Return the size of a page; raises ValueError unless it is from 1 byte to 16 MiB."""
    if not 1 <= size_bytes <= 16 * 1024**2:
        raise ValueError("the file's size is from 1B to 16MiB")
    return size_bytes


PageSize = Annotated[Size, AfterValidator(check_page_size)]


def create_page(size_bytes: int) -> str:
    """Return a page of this size."""
    return ("tare\n" * (size_bytes // 5 + 1))[:size_bytes]


class WrkLoad(Workload):
    """Workload that drives a server by wrk with a script of tare.

    `requests_to_send` are the requests, in order; () requests the page `/file` alone.
    """

    client_packages = ("wrk",)
    port = HTTP_PORT
    requests_to_send: tuple[Request, ...] = ()
    can_split_load = True  # connections are divided among several clients
    keep_alive = True  # False opens a new connection for each request
    is_user_server = False

    @property
    def page_bytes(self) -> int:
        """Size of the page, the same on every stack; 0 accepts answers of any size.

        A user-supplied image has to serve a `/file` of this size.
        """
        return 1024

    @contextmanager
    def running_wrk(
        self, setup: MeasurementContext, script: PurePosixPath, clients: int, threads: int | None = None
    ) -> Iterator[SharedLoad]:
        """Context manager: run wrk on all clients, which already have the script.

        `clients` is the total number of connections. wrk has `threads` threads; None gives each connection its thread.
        """
        place = f"{server_address(setup)}:{server_port(setup, self.service_name, self.port)}"
        header = () if self.keep_alive else ("-H", "Connection: close")

        def start_client(stack: ExitStack, client: Host, connections: int) -> ResidentProgram:
            requests = put_requests(client, self.requests_to_send, place, keep_alive=self.keep_alive)
            # wrk's table of latencies grows with its time-out. tare uses neither, and ends wrk long before 24 h.
            limits = ("-d24h", "--timeout", "1s")
            how = (f"-t{threads or connections}", f"-c{connections}", *limits, "-s", str(script), *header)
            argv = ("wrk", *how, f"http://{place}/file", str(connections), *requests)
            return stack.enter_context(running_program(client, *argv, last_line="turn: done"))

        with running_shared_load(setup.clients, clients, start_client) as wrk:
            yield wrk


@dataclass(frozen=True)
class HttpLoad(ShortTurnWorkload, WrkLoad):
    """Closed-loop load: clients request the same page without a pause. A plug-in provides the server."""

    name: ClassVar[str]
    metrics = (Metric("throughput", "HTTP throughput", "requests/s", "higher"),)
    sweep = Sweep("clients")
    is_closed_loop = True

    clients: ClientCounts = (1, 50, 200)
    duration: LoadDuration = 1.0
    keep_alive: bool = True
    load: Literal["tare", "wrk"] = "tare"

    @property
    def _turn_plan(self) -> TurnPlan:
        usual = self.is_user_server
        return plan_turns(self.duration, self.clients[-1], self.turn_length, has_usual_turns=usual)

    @property
    def has_short_turns(self) -> bool:
        """Whether tare's load client drives a server that responds within a short turn."""
        return self.load == "tare" and not self.is_user_server

    @property
    def least_measure_seconds(self) -> float:
        """The shortest turn that most clients have time for."""
        return least_turn_seconds(self.clients[-1])

    @property
    def rounds(self) -> int:
        """Number of turns of a point; of fewer, longer turns if several clients share the load."""
        return self._turn_plan.rounds if self.load == "tare" else count_rounds(self.duration)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the load for each number of clients; raises TrialFailed if it or the server fails.

        All turns of a point come before those of the next point, so that only its connections are open. The clients
        connect in a first turn, which does not count.
        """
        if self.load == "wrk":
            yield from self._measure_by_wrk(setup)
            return
        load = self._closed_loop(setup)
        for clients in self.clients:
            yield from load.run_point(setup, f"clients {clients}", clients)

    def probe_turns(self, setup: MeasurementContext, lengths: Iterable[TurnLength]) -> Iterator[TurnProbe]:
        """Run turns of these lengths at the middle point; raises TrialFailed if the load or the server fails."""
        yield from self._closed_loop(setup).probe_turns(setup, self.clients[len(self.clients) // 2], lengths)

    def _closed_loop(self, setup: MeasurementContext) -> ClosedLoop:
        port = server_port(setup, self.service_name, self.port)
        place = f"{server_address(setup)}:{port}"
        asked = self.requests_to_send or (Request("/file"),)
        texts = [encode_request(each, place, keep_alive=self.keep_alive) for each in asked]
        return ClosedLoop(
            "http",
            port,
            texts,
            self.duration,
            self.clients[-1],
            keep_alive=self.keep_alive,
            body_bytes=self.page_bytes,
            is_user_server=self.is_user_server,
            turn=self.turn_length,
        )

    def _measure_by_wrk(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        for client in setup.clients:
            client.put(_SCRIPT, _SCRIPT_THERE)
        for clients in self.clients:
            with self.running_wrk(setup, _SCRIPT_THERE, clients, 1) as wrk:
                patience_seconds = limit_seconds(turn_seconds(self.duration), setup.timeout_margin_seconds)
                lines = [f"{turn_seconds(self.duration):.6g}"] * len(wrk.client_shares)
                for number in range(1 + self.rounds):
                    raw = wrk.run_turn(f"clients {clients}", lines, patience_seconds, warm_up=number == 0)
                    yield with_cpu_shares(raw, TURN, wrk.describe_overlap_caution(raw) if number == self.rounds else "")
                check_ends(wrk, self.page_bytes)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the requests a second of each point; raises TrialFailed for a missing or incomplete point."""
        labels = [f"clients {clients}" for clients in self.clients]
        check_labels(raw, labels)
        return tuple(
            Value("throughput", float(clients), read_turn_rate(each.text, f"{clients} clients"))
            for clients, each in zip(self.clients, raw, strict=True)
        )

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: a warm-up turn at each point, and a lead before each turn."""
        if self.load == "tare":
            return sum(map(self._turn_plan.estimate_seconds, self.clients))
        return len(self.clients) * (0.1 + (1 + self.rounds) * (turn_seconds(self.duration) + _LEAD_SECONDS))


def check_ends(wrk: SharedLoad, page_bytes: int) -> None:
    """End wrk on all clients; raises TrialFailed for errors that wrk counted (see `check_end`)."""
    for part, raw in zip(wrk.client_shares, wrk.end(30), strict=True):
        check_end(raw, part.connections, page_bytes)


def check_end(raw: RawOutput, clients: int, page_bytes: int) -> None:
    """Raise TrialFailed if wrk counted errors, or read too few or too many bytes for pages of this size.

    The bytes that wrk read include the headers, and at its end partial answers, up to one on each connection. A
    `page_bytes` of 0 accepts any number of bytes.
    """
    output = as_output(raw)
    found = _END.search(raw.text)
    if found is None:
        raise TrialFailed(f"wrk did not end as it should; {quote_output(raw.text)}", _HINT, output)
    if found["errors"] != _NO_ERRORS:
        hint = _HINT if ", read 0," in found["errors"] else _CLOSED
        raise TrialFailed(f"wrk with {clients} clients counted errors: {found['errors']}", hint, output)
    answers, read_bytes = int(found["answers"]), int(found["bytes"])
    if page_bytes and not answers * page_bytes <= read_bytes <= (answers + clients) * (page_bytes + _LARGEST_HEAD):
        each = f"{read_bytes / max(answers, 1):.0f} bytes an answer"
        hint = f"a user-supplied image has to serve a /file of {page_bytes} bytes: all stacks serve the same page"
        raise TrialFailed(f"wrk with {clients} clients read {each}; the page has {page_bytes}", hint, output)
