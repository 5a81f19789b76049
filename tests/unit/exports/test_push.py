"""Sending, against a small server of the test, which answers as InfluxDB and the Pushgateway do, and as they do not."""

from __future__ import annotations

import threading
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from waiting import ENOUGH_SECONDS

from tare.errors import TareError, UsageError
from tare.exports import push as pushing
from tare.exports.push import influxdb_1, influxdb_2, push, pushgateway

LINES = [f"tare,run=a cpu_user={number}.0 {number}\n" for number in range(12_345)]


@dataclass
class Said:
    """What a server was asked, and what it answers."""

    status: int = 204
    answer: bytes = b""
    location: str = ""
    drips: bool = False
    requests: list[tuple[str, dict[str, list[str]], dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def serving(said: Said) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            address = urlsplit(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            said.requests.append((f"{self.command} {address.path}", parse_qs(address.query), dict(self.headers), body))
            if said.drips:
                self.close_connection = True
                self._drip()
                return
            self.send_response(said.status)
            self.send_header("Content-Length", str(len(said.answer)))
            if said.location:
                self.send_header("Location", said.location)
            self.end_headers()
            self.wfile.write(said.answer)

        def _drip(self) -> None:
            try:
                for letter in b"HTTP/1.1 204 " + b"x" * int(ENOUGH_SECONDS / 0.02):
                    self.wfile.write(bytes([letter]))
                    time.sleep(0.02)
            except OSError:
                pass  # the other side has had enough

        def do_PUT(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_lines_are_sent_some_thousands_at_a_time_over_one_connection() -> None:
    with serving(said := Said()) as url:
        assert push(iter(LINES), influxdb_1(url, "tare")) == 12_345
    assert [body.count(b"\n") for *_, body in said.requests] == [5000, 5000, 2345]
    assert b"".join(body for *_, body in said.requests).decode() == "".join(LINES)


def test_an_influxdb_1_is_asked_by_its_names_and_with_the_password_of_its_user() -> None:
    with serving(said := Said()) as url:
        push(LINES[:1], influxdb_1(f"{url}/below/", "a & b", "me", "secret"))
    ((path, names, headers, _),) = said.requests
    assert (path, names) == ("POST /below/write", {"db": ["a & b"], "precision": ["ns"]})
    assert headers["Authorization"] == f"Basic {b64encode(b'me:secret').decode()}"


def test_an_influxdb_2_is_asked_by_its_names_and_with_a_token() -> None:
    with serving(said := Said()) as url:
        push(LINES[:1], influxdb_2(url, "an org", "a/bucket", "t0k3n=="))
    ((path, names, headers, _),) = said.requests
    assert (path, names) == ("POST /api/v2/write", {"org": ["an org"], "bucket": ["a/bucket"], "precision": ["ns"]})
    assert headers["Authorization"] == "Token t0k3n=="


def test_a_pushgateway_gets_all_in_one_request_which_replaces_what_the_job_had() -> None:
    with serving(said := Said(200)) as url:
        assert push(LINES, pushgateway(f"{url}/below", "a/job ü")) == 12_345
    ((path, _, headers, body),) = said.requests
    method, _, job = path.partition("/below/metrics/job@base64/")
    assert (method, urlsafe_b64decode(job).decode()) == ("PUT ", "a/job ü")
    assert headers["Content-Type"].startswith("text/plain")
    assert body.decode() == "".join(LINES)


def test_secrets_are_not_shown() -> None:
    assert "t0k3n" not in repr(influxdb_2("http://localhost", "o", "b", "t0k3n"))


@pytest.mark.parametrize(("status", "answer", "what", "hint"), [
    (400, b'{"error":"partial write: field type conflict"}', "400 Bad Request: partial write: field type", "stay"),
    (401, b'{"code":"unauthorized","message":"unauthorized access"}', "401 Unauthorized: unauthorized access", "TOKEN"),
    (404, b'{"error":"database not found: \\"tare\\""}', '404 Not Found: database not found: "tare"', "first"),
    (500, b"<html>\n<b>broken</b>" + b"x" * 9999, "500 Internal Server Error: <html> <b>broken</b>xxx", "itself"),
    (200, b"welcome", "200 OK: welcome", "itself"),
    (503, b"", "503 Service Unavailable, after 0 lines", "itself"),
    (400, b"[1]", "400 Bad Request, after 0 lines", "stay"),
])  # fmt: skip
def test_what_the_server_refuses_is_reported_in_its_words(status: int, answer: bytes, what: str, hint: str) -> None:
    with serving(Said(status, answer)) as url, pytest.raises(TareError) as error:
        push(LINES, influxdb_1(url, "tare"))
    assert f"the server answered {what}" in str(error.value)
    assert len(str(error.value)) < 400
    assert hint in error.value.hint


def test_a_redirection_is_not_followed() -> None:
    with (
        serving(other := Said()) as elsewhere,
        serving(Said(307, location=f"{elsewhere}/write")) as url,
        pytest.raises(TareError, match="307"),
    ):
        push(LINES[:1], influxdb_1(url, "tare", "me", "secret"))
    assert other.requests == []


def test_a_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(proxy := Said()) as elsewhere, serving(said := Said()) as url:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, elsewhere)
        push(LINES[:1], influxdb_1(url, "tare"))
    assert (len(said.requests), len(proxy.requests)) == (1, 0)


def test_a_server_that_answers_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "_SECONDS", 0.3)
    with (
        serving(Said(drips=True)) as url,
        pytest.raises(TareError, match=r"no whole answer within 0\.3 s, after 0 lines"),
    ):
        push(LINES[:1], influxdb_1(url, "tare"))


def test_a_server_that_is_not_there_is_reported() -> None:
    with serving(Said()) as url:
        pass
    with pytest.raises(TareError, match=r"127\.0\.0\.1:\d+: .*refused, after 0 lines"):
        push(LINES[:1], influxdb_1(url, "tare"))


@pytest.mark.parametrize("url", [
    *("", "localhost:8086", "ftp://localhost", "http://", "http://[::1", "http://localhost:port", "http://h:99999"),
    *("http://h/?db=x", "http://h/#x", "http://h ost"),
])  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="not the address of a server"):
        influxdb_1(url, "tare")


def test_a_password_in_the_address_is_refused_without_showing_it() -> None:
    with pytest.raises(UsageError, match="other users") as error:
        influxdb_1("http://me:secret@localhost:8086", "tare")
    assert "secret" not in str(error.value) + error.value.hint
