"""The HTTP surface of the live page: loopback alone, read only, from memory, and bounded in every direction.

It answers GET and HEAD of the page, of its bar, and of the run's raw output and telemetry. Each connection has one
request, and a limit for its time and its header. A page of another site can neither ask (Host and Origin are
checked, so that no name that leads here by its DNS helps) nor show what is here in itself.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import socket
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from threading import BoundedSemaphore
from typing import BinaryIO, Protocol
from urllib.parse import parse_qs, unquote

ADDRESS = "127.0.0.1"

_NAMES = ("127.0.0.1", "localhost")
_KINDS = {"raw": (".json", "text/plain; charset=utf-8"), "telemetry": (".parquet", "application/octet-stream")}
_CONNECTIONS = 16
_HEADER_BYTES = 16384
_CHUNK_BYTES = 65536
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_FRAMELESS = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_STRICT = f"default-src 'none'; {_FRAMELESS}; sandbox"
_HTML = "text/html; charset=utf-8"


class Shown(Protocol):
    """What is served; several threads ask for it."""

    def page(self) -> bytes:
        """Return the page; its own policy names its scripts."""

    def now(self) -> bytes:
        """Return the page's bar."""

    def folder(self) -> Path | None:
        """Return the run folder; None as long as there is none."""

    def loads(self) -> None:
        """Record that a browser loads the page."""

    def asks(self, name: str, page: int) -> None:
        """Record that the script of a page asks; `page` is the number of the page that it shows."""


@dataclass(frozen=True)
class Answer:
    """What a request is answered with: some bytes, or an open file."""

    status: HTTPStatus
    content: bytes | BinaryIO
    kind: str = "text/plain; charset=utf-8"
    more: Mapping[str, str] = field(default_factory=dict)


def refusal(method: str, headers: Message, port: int) -> Answer | None:
    """Return the answer to a request that does not come from the page or its reader; None if it does."""
    own = {f"{name}:{port}" for name in _NAMES} | (set(_NAMES) if port == 80 else set())
    hosts, origins = headers.get_all("Host", []), headers.get_all("Origin", [])
    if len(hosts) != 1 or hosts[0].strip().lower() not in own:
        text = f"This is http://{ADDRESS}:{port}/ and nothing else; over SSH: ssh -L {port}:{ADDRESS}:{port} MACHINE"
        return _text(HTTPStatus.MISDIRECTED_REQUEST, text)
    if any(origin.strip().lower() != f"http://{hosts[0].strip().lower()}" for origin in origins):
        return _text(HTTPStatus.FORBIDDEN, "Pages of other sites cannot ask here")
    if method not in ("GET", "HEAD"):
        return _text(HTTPStatus.METHOD_NOT_ALLOWED, "Nothing can be changed here", {"Allow": "GET, HEAD"})
    return None


class Server(ThreadingHTTPServer):
    """Listens on the loopback address; port 0 takes a free one. Raises OSError where it cannot."""

    daemon_threads = True
    request_queue_size = _CONNECTIONS

    def __init__(self, port: int, shown: Shown, seconds: float = 10.0) -> None:
        self.shown = shown
        self.seconds = seconds  # of a connection, for the request, and again for the answer
        self._free = BoundedSemaphore(_CONNECTIONS)
        super().__init__((ADDRESS, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without asking DNS for a name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Answer in a thread, or hang up where there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Answer, and release the place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a browser that goes away, or hangs, is no error."""


class _TooLong(Exception):
    """A header is too long."""


class _Patient(io.RawIOBase):
    """A connection that is read for so long and so far only, whatever the other side does."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._until = time.monotonic() + seconds
        self._room = _HEADER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._room:
            raise _TooLong
        self._connection.settimeout(_left(self._until))
        count = self._connection.recv_into(buffer[: self._room])
        self._room -= count
        return count


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    server_version = "tare"
    sys_version = ""
    requestline = command = ""  # of a request that is too long to be read
    request_version = "HTTP/1.0"
    close_connection = True

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Patient(self.connection, self.server.seconds))

    def handle_one_request(self) -> None:
        with suppress(OSError):
            try:
                super().handle_one_request()
            except _TooLong:
                self._send(_text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The header is too long"))

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        refused = refusal(self.command, self.headers, self.server.server_port)
        if refused:
            self._send(refused)
        return not refused

    def do_GET(self) -> None:
        answer = self._answer()
        try:
            self._send(answer)
        finally:
            if not isinstance(answer.content, bytes):
                answer.content.close()

    do_HEAD = do_GET  # noqa: N815 - as the library calls it

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library calls it
        """Write no log."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer what is no request, without its own words."""
        self._send(_text(HTTPStatus(code), HTTPStatus(code).phrase))

    def _answer(self) -> Answer:
        path, _, query = self.path.partition("?")
        shown = self.server.shown
        if path == "/":
            if not query:
                shown.loads()
            return Answer(HTTPStatus.OK, shown.page(), _HTML, _policy(_FRAMELESS))
        if path == "/now":
            asked = parse_qs(query)
            name, page = asked.get("as", [""])[0], asked.get("page", [""])[0]
            if re.fullmatch(r"[0-9a-f-]{1,40}", name) and re.fullmatch(r"[0-9]{1,9}", page):
                shown.asks(name, int(page))
            return self._unless_known(Answer(HTTPStatus.OK, shown.now(), _HTML))
        folder = shown.folder()
        found = _file(folder, path) if folder else None
        return found or _text(HTTPStatus.NOT_FOUND, "There is no such thing here")

    def _unless_known(self, answer: Answer) -> Answer:
        """Answer that the content has not changed, if the browser has it already."""
        assert isinstance(answer.content, bytes)  # noqa: S101 - no file has a tag
        tag = f'"{hashlib.sha256(answer.content).hexdigest()[:16]}"'
        more = {**answer.more, "ETag": tag}
        if tag in self.headers.get("If-None-Match", ""):
            return Answer(HTTPStatus.NOT_MODIFIED, b"", answer.kind, more)
        return Answer(answer.status, answer.content, answer.kind, more)

    def _send(self, answer: Answer) -> None:
        until = time.monotonic() + self.server.seconds
        content = io.BytesIO(answer.content) if isinstance(answer.content, bytes) else answer.content
        self.send_response(answer.status)
        for name, value in {**_HEADERS, **_policy(_STRICT), **answer.more}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        if answer.status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(content.seek(0, os.SEEK_END)))
        self.connection.settimeout(_left(until))
        self.end_headers()
        content.seek(0)
        while self.command != "HEAD" and (chunk := content.read(_CHUNK_BYTES)):
            self.connection.settimeout(_left(until))
            self.wfile.write(chunk)


def _text(status: HTTPStatus, text: str, more: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, f"{text}.\n".encode(), more=more or {})


def _policy(text: str) -> dict[str, str]:
    return {"Content-Security-Policy": text}


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _file(run: Path, path: str) -> Answer | None:
    """Open a file of a run by its address, such as `/raw/TRIAL.json`; None if it is none of those that pages lead to.

    The folder may be untrusted: no symbolic link in it is followed.
    """
    _, _, rest = path.partition("/")
    folder, _, written = rest.partition("/")
    name = unquote(written)
    if folder not in _KINDS or "/" in name or "\0" in name or not name.endswith(_KINDS[folder][0]):
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with suppress(OSError):
        within = os.open(run / folder, flags | os.O_DIRECTORY)
        try:
            file = os.fdopen(os.open(name, flags, dir_fd=within), "rb")
        finally:
            os.close(within)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return Answer(HTTPStatus.OK, file, _KINDS[folder][1])
        file.close()
    return None
