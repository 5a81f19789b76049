"""What the two search daemons share: the words of the database, and answers over HTTP by several processes.

A daemon reads all words once, when it starts; then it divides into worker processes, which share the words' memory and
the listening socket, as a Python process computes on one CPU. Each answers one request after the other.
"""

from __future__ import annotations

import json
import os
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from urllib.parse import parse_qs, urlsplit

from database import add_database_options, connected

LONGEST = 100  # characters of a query: a longer one is in no dictionary, and would cost most
_WORDS = "SELECT DISTINCT word FROM dictionary.senses"


def query_in(target: str) -> str | None:
    """Take the query `q` out of the target of a request; None if there is none, two, or one that is too long."""
    try:
        found = parse_qs(urlsplit(target).query, strict_parsing=True, max_num_fields=4).get("q", [])
    except ValueError:
        return None
    return found[0].lower() if len(found) == 1 and 0 < len(found[0]) <= LONGEST else None


class Daemon(TCPServer):
    """Listens; who comes while all workers compute waits in the kernel.

    http.server's own class would ask for the name of its address, which takes seconds where no name server answers.
    """

    allow_reuse_address = True
    request_queue_size = 1024


class Handler(BaseHTTPRequestHandler):
    """Answers `GET /?q=…` with the words that `answer` finds, as a JSON list."""

    timeout = 5.0  # seconds that a client may be silent
    wbufsize = -1  # one packet: a second one would wait for the client's word that it has the first

    def __init__(self, answer: Callable[[str], Sequence[str]], *others: object) -> None:
        self.answer = answer
        super().__init__(*others)  # type: ignore[arg-type]  # the server's own three

    def do_GET(self) -> None:  # the name that http.server calls
        """Answer a request."""
        query = query_in(self.path)
        body = json.dumps(self.answer(query) if query is not None else []).encode()
        self.send_response(200 if query is not None else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no line for each request."""


def daemon_options(description: str) -> ArgumentParser:
    """Give the options that both daemons have."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes; one for each CPU")
    add_database_options(parser)
    return parser


def words_of(options: Namespace) -> list[str]:
    """Read all words from the database, in order."""
    with closing(connected(options)) as database, database.cursor() as cursor:
        cursor.execute(_WORDS)
        return sorted(word for (word,) in cursor.fetchall())


def serve(answer: Callable[[str], Sequence[str]], options: Namespace) -> None:
    """Answer until the process is ended; all workers end with it, and it ends with any of them."""
    with Daemon((options.address, options.port), partial(Handler, answer)) as daemon:
        workers = [_worker(daemon) for _ in range(options.workers)]
        signal.signal(signal.SIGTERM, lambda *_: _end(workers))
        os.wait()
        _end(workers)


def _worker(daemon: Daemon) -> int:
    process = os.fork()
    if process == 0:
        try:
            daemon.serve_forever()
        finally:
            os._exit(1)
    return process


def _end(workers: Sequence[int]) -> None:
    for each in workers:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os._exit(1)
