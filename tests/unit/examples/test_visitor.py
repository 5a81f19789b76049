"""A user on the line, against a real server: ten requests, one session, and what is dropped after a failure."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest
from tally import Tally
from visitor import REQUESTS, Visitor

Answer = tuple[int, bytes]
SESSION = "0123456789abcdef0123456789abcdef"
FOUND = json.dumps(["word", "ward", "words"]).encode()


class Site:
    """What a server answers, and what it was asked."""

    def __init__(self, answers: dict[str, Answer | None]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.sent: list[tuple[str, str]] = []
        self.connections: list[object] = []


class Server(ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A connection that a test breaks is no error."""


def handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10.0
        wbufsize = -1

        def setup(self) -> None:
            site.connections.append(self.client_address)
            super().setup()

        def answer(self) -> None:
            path = urlsplit(self.path).path
            site.asked.append(f"{self.command} {self.path}")
            form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            site.sent.append((self.headers.get("Cookie", ""), form))
            answer = site.answers.get(path, (200, FOUND if path == "/search" else b"{}"))
            if answer is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(answer[1])))
            if self.command == "POST" and answer[0] == 200:
                self.send_header("Set-Cookie", f"session={SESSION}; path=/; HttpOnly; SameSite=Strict")
            self.end_headers()
            self.wfile.write(answer[1])

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def served(answers: dict[str, Answer | None] | None = None) -> Iterator[tuple[Site, Visitor]]:
    site = Site(answers or {})
    with Server(("127.0.0.1", 0), handler(site)) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site, Visitor("user-7", ("127.0.0.1", server.server_address[1]), 10.0, Tally(), ticking())
        finally:
            server.shutdown()
            thread.join()


def ticking() -> Callable[[], float]:
    """A clock on which no time passes."""
    return lambda: 0.0


def counts(visitor: Visitor) -> dict[str, int]:
    return {kind: counter.total() for kind, counter in visitor.tally.answers.items() if counter}


def test_a_search_is_ten_requests_over_one_connection() -> None:
    with served() as (site, visitor):
        assert visitor.search("word")
    assert site.asked == [
        "POST /",
        "GET /style.css",
        "GET /dictionary.js",
        "GET /suggest?q=wo",
        "GET /suggest?q=word",
        "GET /search?q=word",
        "GET /entry?word=word",
        "GET /entry?word=ward",
        "GET /user",
        "GET /popular",
    ]
    assert len(site.asked) == REQUESTS == visitor.tally.answers["200"].total()
    assert len(site.connections) == 1


def test_the_session_of_the_first_page_is_kept_for_all_that_follows() -> None:
    with served() as (site, visitor):
        assert visitor.search("word")
        assert visitor.search("word")
    assert site.sent[0] == ("", "name=user-7&password=user-7-password")
    assert set(site.sent[1:]) == {(f"session={SESSION}", "")}
    assert site.asked[REQUESTS] == "GET /"
    assert len(site.connections) == 2


def test_a_user_whose_first_page_failed_begins_a_session_with_the_next() -> None:
    with served({"/": (503, b"")}) as (site, visitor):
        assert not visitor.search("word")
        assert site.asked == ["POST /"]
        site.answers.clear()
        assert visitor.search("word")
    assert site.asked[1] == "POST /"


@pytest.mark.parametrize("failure", [(503, b"no"), (500, b""), (404, b"{}"), None])
@pytest.mark.parametrize(("path", "before"), [("/", 0), ("/style.css", 1), ("/search", 5), ("/popular", 9)])
def test_what_follows_a_failure_is_dropped(failure: Answer | None, path: str, before: int) -> None:
    with served({path: failure}) as (site, visitor):
        assert not visitor.search("word")
    kind = "transport" if failure is None else "other" if failure[0] == 404 else "50x"
    assert counts(visitor) == ({"200": before} if before else {}) | {kind: 1}
    assert len(site.asked) == before + 1  # and nothing is tried again


def test_a_server_that_is_not_there_is_an_error_of_transport() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    visitor = Visitor("user-7", ("127.0.0.1", port), 10.0, Tally(), ticking())
    assert not visitor.search("word")
    assert counts(visitor) == {"transport": 1}


def test_a_server_that_never_answers_is_one_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        visitor = Visitor("user-7", silent.getsockname(), 0.05, Tally(), ticking())
        assert not visitor.search("word")
    assert counts(visitor) == {"transport": 1}


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b"null", b"[1, null]", b"no JSON", b"\xff"])
def test_a_search_that_finds_no_words_still_makes_its_requests(answer: bytes) -> None:
    with served({"/search": (200, answer)}) as (site, visitor):
        assert visitor.search("word")
    assert site.asked[6:8] == ["GET /entry?word=word"] * 2


def test_words_are_encoded_in_paths() -> None:
    with served({"/search": (200, json.dumps(["a&b=c d/ä"]).encode())}) as (site, visitor):
        assert visitor.search("q?#")
    assert site.asked[5] == "GET /search?q=q%3F%23"
    assert site.asked[6] == "GET /entry?word=a%26b%3Dc+d%2F%C3%A4"
