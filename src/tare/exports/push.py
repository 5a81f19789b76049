"""Sends an export to the server that was named, and to nowhere else: no proxy is asked, and no redirection followed."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import islice
from typing import Literal
from urllib.parse import SplitResult, urlencode, urlsplit

from tare.errors import TareError, UsageError

_LINES = 5000  # in a request, as InfluxDB's own documentation advises
_SECONDS = 30.0  # for a request
_MOST_BYTES = 4096  # of an answer
_EXAMPLE = "for example --push http://localhost:8086"


_SECRETS = "set INFLUX_TOKEN, or INFLUX_USERNAME and INFLUX_PASSWORD, in the environment"
_HINTS = {
    400: "what was sent before stays; the server's log may say more",
    401: _SECRETS,
    403: _SECRETS,
    404: "make it first; --into is DATABASE for InfluxDB 1.x, and ORGANIZATION/BUCKET for 2.x",
}


@dataclass(frozen=True)
class Server:
    """Where to send to: the server's address, and the path of its endpoint with the names in it.

    `headers` have the secrets, `done` is the status of what it has taken, and `hints` are those to other answers.
    """

    address: SplitResult
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: Literal["POST", "PUT"] = "POST"
    done: int = 204
    most_lines: int | None = _LINES
    hints: Mapping[int, str] = field(default_factory=lambda: _HINTS)


def pushgateway(url: str, job: str) -> Server:
    """Return a Pushgateway, where what is sent replaces all that the job has.

    Raises UsageError for an address that is none.
    """
    name = urlsafe_b64encode(job.encode()).decode()  # so it may have a slash
    path = f"{(address := _address(url)).path.rstrip('/')}/metrics/job@base64/{name}"
    return Server(address, path, method="PUT", done=200, most_lines=None, hints={})


def influxdb_1(url: str, database: str, user: str = "", password: str = "") -> Server:
    """Return a server of InfluxDB 1.x. Raises UsageError for an address that is none."""
    names = urlencode({"db": database, "precision": "ns"})
    secret = {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"} if user else {}
    return Server(address := _address(url), f"{address.path.rstrip('/')}/write?{names}", secret)


def influxdb_2(url: str, organization: str, bucket: str, token: str) -> Server:
    """Return a server of InfluxDB 2.x. Raises UsageError for an address that is none."""
    names = urlencode({"org": organization, "bucket": bucket, "precision": "ns"})
    secret = {"Authorization": f"Token {token}"} if token else {}
    return Server(address := _address(url), f"{address.path.rstrip('/')}/api/v2/write?{names}", secret)


def _address(url: str) -> SplitResult:
    try:
        address = urlsplit(url)
        named = address.scheme in {"http", "https"} and address.hostname and (address.port or 1)
    except ValueError:
        named = False
    if not named or address.query or address.fragment or any(letter.isspace() for letter in url):
        raise UsageError(f"--push {url}: not the address of a server", _EXAMPLE)
    if address.username is not None or address.password is not None:
        what = "the address has a user or a password in it, which other users of this machine could see"
        raise UsageError(what, "set INFLUX_USERNAME and INFLUX_PASSWORD, or INFLUX_TOKEN")
    return address


def push(lines: Iterable[str], server: Server) -> int:
    """Send lines, no more than the server takes in a request; return their number.

    Raises TareError where it does not take them within 30 s. To send them again does no harm: InfluxDB replaces a point
    of the same name and time, a Pushgateway all that it has of the job.
    """
    sent, waiting = 0, iter(lines)
    with closing(_connection(server.address)) as connection:
        while some := list(islice(waiting, server.most_lines)):
            try:
                with _limited(connection):
                    _send("".join(some).encode(), connection, server)
            except (OSError, HTTPException) as error:
                why = str(error) or type(error).__name__
                what = f"{server.address.netloc}: {why[:1].lower()}{why[1:]}, after {sent} lines"
                raise TareError(what, "is the server there, and is this its address?") from error
            except _Refused as error:
                raise TareError(f"{server.address.netloc}: {error}, after {sent} lines", error.hint) from error
            sent += len(some)
    return sent


class _Refused(Exception):
    """The server's answer is no."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


def _connection(address: SplitResult) -> HTTPConnection:
    host = str(address.hostname)
    if address.scheme == "https":
        return HTTPSConnection(host, address.port, timeout=_SECONDS, context=ssl.create_default_context())
    return HTTPConnection(host, address.port, timeout=_SECONDS)


@contextmanager
def _limited(connection: HTTPConnection) -> Iterator[None]:
    """End a request that takes too long as a whole: the socket's own limit begins anew with each byte."""
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(OSError, AttributeError):  # it has ended just now
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if late.is_set():  # what was cut off may look like an answer, or like an error of the server
            raise TimeoutError(f"no whole answer within {_SECONDS:g} s")


def _send(body: bytes, connection: HTTPConnection, server: Server) -> None:
    headers = {"Content-Type": "text/plain; charset=utf-8", **server.headers}
    connection.request(server.method, server.path, body, headers)
    answer = connection.getresponse()
    text = answer.read(_MOST_BYTES).decode("utf-8", "replace")
    if answer.status == server.done:
        answer.read()
        return
    hint = server.hints.get(answer.status, "give the address of the server itself")
    raise _Refused(f"the server answered {answer.status} {answer.reason}: {_why(text)}".rstrip(": "), hint)


def _why(text: str) -> str:
    """Read the reason in an answer: 1.x gives an `error`, 2.x a `message`."""
    try:
        fields = json.loads(text)
    except ValueError:
        return " ".join(text.split())[:200]
    if not isinstance(fields, dict):
        return ""
    return " ".join(str(fields.get("message") or fields.get("error") or "").split())[:200]
