"""Useful answers of a server: the client that counts them, and a server in Python with many modules.

The client of tare and an instance start this file as a program, so it imports nothing of tare. Both sides compute a
key's value from the key. The values cannot be compressed, and the client compares every byte.

    answers.py ask ADDRESS PORT SECONDS KEYS BYTES [fill]
    answers.py serve PORT BYTES

`ask` prints `waiting`, tries to connect for SECONDS, and prints `first` when the value of a random key has arrived, and
`warm` when those of all keys have, in random order. With `fill` it sets all keys first. `serve` stays in the
background. It speaks the part of Redis' protocol that `ask` needs, without SET.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import socket
import sys
import time
import types
from typing import BinaryIO

_PATIENCE_SHARE = 0.02  # of the time since the first attempt: an attempt whose packets are lost costs no more
_MIN_PATIENCE_SECONDS, _PAUSE_SECONDS = 0.002, 0.0005
# Modules of applications: networks, formats, databases, tests.
_MODULES = (
    *("argparse", "asyncio", "csv", "ctypes", "dataclasses", "decimal", "difflib", "email.message", "ftplib", "gzip"),
    *("html.parser", "http.client", "http.server", "imaplib", "inspect", "ipaddress", "logging.config", "lzma"),
    *("multiprocessing.pool", "optparse", "pickle", "pydoc", "sqlite3", "ssl", "statistics", "tarfile", "typing"),
    *(
        "unittest.mock",
        "urllib.request",
        "uuid",
        "xml.dom.minidom",
        "xml.etree.ElementTree",
        "xmlrpc.client",
        "zipfile",
    ),
)


def value_of(key: int, size: int) -> bytes:
    """Return the value of a key: random bytes that both sides can compute."""
    return random.Random(key).randbytes(size)  # noqa: S311 - data, no secret


def connect(address: str, port: int, seconds: float) -> socket.socket:
    """Connect to a server that may not run yet; raises OSError after `seconds`."""
    began = time.monotonic()
    while True:
        passed = time.monotonic() - began
        try:
            connection = socket.create_connection((address, port), _MIN_PATIENCE_SECONDS + passed * _PATIENCE_SHARE)
        except OSError:
            if passed > seconds:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            connection.settimeout(seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def check_value(connection: socket.socket, stream: BinaryIO, key: int, expected: bytes) -> None:
    """Request the value of a key; raises SystemExit unless it is the expected one."""
    connection.sendall(b"GET key:%d\r\n" % key)
    head = stream.readline()
    if head != b"$%d\r\n" % len(expected) or stream.read(len(expected) + 2) != expected + b"\r\n":
        sys.exit(f"answers: key {key} has a wrong value after {head[:60]!r}")


def fill(connection: socket.socket, stream: BinaryIO, values: list[bytes]) -> None:
    """Set all keys; raises SystemExit if the server refuses one."""
    for key, value in enumerate(values):
        name = b"key:%d" % key
        connection.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(value), value))
        if (answer := stream.readline()) != b"+OK\r\n":
            sys.exit(f"answers: the server does not take key {key}: {answer[:60]!r}")


def report(word: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def ask(address: str, port: int, seconds: float, values: list[bytes], *, fills: bool) -> None:
    """Print a line when the first answer and when all answers have arrived; see above."""
    order = random.sample(range(len(values)), len(values))
    gc.disable()
    report("waiting")
    with connect(address, port, seconds) as connection, connection.makefile("rb") as stream:
        if fills:
            fill(connection, stream, values)
        check_value(connection, stream, order[0], values[order[0]])
        report("first")
        for key in order:
            check_value(connection, stream, key, values[key])
        report("warm")


def read_through(module: types.ModuleType) -> int:
    """Read the code of all functions of a module and of its classes; return the sum of its bytes."""
    things = [*vars(module).values()]
    things += [each for thing in things if isinstance(thing, type) for each in vars(thing).values()]
    return sum(sum(thing.__code__.co_code) for thing in things if isinstance(thing, types.FunctionType))


def answer(key: int, size: int, modules: list[tuple[types.ModuleType, int]]) -> bytes:
    """Return the value of a key, after reading through the key's module; b"" if the module's code has changed."""
    module, total = modules[key % len(modules)]
    return value_of(key, size) if read_through(module) == total else b""


def serve(port: int, size: int) -> None:
    """Import the modules, then answer one connection after the other in the background."""
    modules = [(module, read_through(module)) for module in map(importlib.import_module, _MODULES)]
    listener = socket.create_server(("0.0.0.0", port), backlog=128)  # noqa: S104 - the instance's network is private
    if os.fork():
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as requests:
            try:
                for line in requests:
                    value = answer(int(line.rpartition(b":")[2]), size, modules)
                    requests.write(b"$%d\r\n%b\r\n" % (len(value), value))
                    requests.flush()
            except OSError:  # the client has gone
                continue


def main(words: list[str]) -> None:
    """Run one of the two programs."""
    match words:
        case ["serve", port, size]:
            serve(int(port), int(size))
        case ["ask", address, port, seconds, keys, size, *filling] if filling in ([], ["fill"]):
            values = [value_of(key, int(size)) for key in range(int(keys))]
            ask(address, int(port), float(seconds), values, fills=bool(filling))
        case _:
            sys.exit("usage: answers.py ask ADDRESS PORT SECONDS KEYS BYTES [fill], or answers.py serve PORT BYTES")


if __name__ == "__main__":
    main(sys.argv[1:])
