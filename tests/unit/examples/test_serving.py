"""What both daemons share: queries in targets of requests, and answers over a real connection."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from threading import Thread

import pytest
from serving import LONGEST, Daemon, Handler, query_in


@pytest.mark.parametrize(
    ("target", "query"),
    [
        ("/?q=word", "word"),
        ("/?q=Two%20Words", "two words"),
        ("/?q=na%C3%AFve", "naïve"),
        (f"/?q={'a' * LONGEST}", "a" * LONGEST),
        (f"/?q={'a' * (LONGEST + 1)}", None),
        ("/?q=", None),
        ("/", None),
        ("/?q=one&q=two", None),
        ("/?" + "&".join(f"q{number}=1" for number in range(1000)), None),
        ("/?q", None),
        ("//[?q=word", None),
    ],
)
def test_a_query_is_one_word_of_bounded_length(target: str, query: str | None) -> None:
    assert query_in(target) == query


@contextmanager
def daemon() -> Iterator[HTTPConnection]:
    with Daemon(("127.0.0.1", 0), partial(Handler, lambda query: [query, "ä"])) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        finally:
            server.shutdown()
            thread.join()


def asked(connection: HTTPConnection, target: str) -> tuple[int, list[str]]:
    connection.request("GET", target)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_an_answer_is_sent_at_once() -> None:
    with daemon() as connection, socket.create_connection((connection.host, connection.port), timeout=60) as raw:
        raw.sendall(b"GET /?q=word HTTP/1.0\r\n\r\n")
        assert raw.recv(65536).endswith(b'["word", "\\u00e4"]')


def test_a_daemon_answers_with_words_and_refuses_what_is_no_query() -> None:
    with daemon() as connection:
        assert asked(connection, "/?q=word") == (200, ["word", "ä"])
        assert asked(connection, "/") == (400, [])
