"""A server of HTTP on a Unix socket that notes its requests, and sends the answers that a test gives it."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import ENOUGH_SECONDS

_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")

Request = tuple[str, str, str, int]  # method, path, body, number of the connection


@contextmanager
def serve_answers(path: Path, *answers: str) -> Iterator[list[Request]]:
    """Serve a text after `HTTP/1.1 ` for each request, and close the connection after the last; yield the requests.

    A text without the end of a head gets one; an empty one is not sent.
    """
    requests: list[Request] = []
    left = list(answers)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(ENOUGH_SECONDS)
        server = threading.Thread(target=_serve, args=(listener, left, requests))
        server.start()
        try:
            yield requests
        finally:
            server.join()
    path.unlink()


def _serve(listener: socket.socket, answers: list[str], requests: list[Request]) -> None:
    number = 0
    while answers:
        number += 1
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(ENOUGH_SECONDS)
            while answers and (request := _read(connection)):
                requests.append((*request, number))
                if answer := answers.pop(0):
                    end = "" if "\r\n\r\n" in answer or len(answer) > 1000 else "\r\n\r\n"
                    connection.sendall(f"HTTP/1.1 {answer}{end}".encode())


def _read(connection: socket.socket) -> tuple[str, str, str] | None:
    """Read one request; None at the end of the connection."""
    text = b""
    while b"\r\n\r\n" not in text:
        text += (more := connection.recv(65536))
        if not more:
            return None
    head, _, body = text.partition(b"\r\n\r\n")
    found = _LENGTH.search(head + b"\r\n")
    assert found
    while len(body) < int(found[1]):
        body += connection.recv(65536)
    method, target, version = head.partition(b"\r\n")[0].decode().split()
    assert version == "HTTP/1.1"
    return method, target, body.decode()
