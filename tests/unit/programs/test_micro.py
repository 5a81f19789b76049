"""The server of the unikernels as a Linux process: built by `programs/unikernel/build`, and driven for real."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS as SECONDS

from tare.images.micro import LINUX

ADDRESS = f"127.17.{os.getpid() >> 8 & 255}.{os.getpid() % 254 + 1}"  # of this process alone
HTTP, REDIS, READY = 18080, 16379, 17007
PAGE = (b"tare\n" * 205)[:1024]

pytestmark = pytest.mark.skipif(
    shutil.which("cargo") is None and not Path("/usr/bin/cargo").exists(), reason="cargo builds the server"
)


@pytest.fixture(scope="session")
def micro() -> Path:
    """Return the server that the images have: it is built once on a machine."""
    return LINUX.ensure_built(print) / "micro"


@pytest.fixture(scope="session")
def server(micro: Path) -> Iterator[range]:
    """Yield the one server of all tests, so that what one of them does to it is seen by the next.

    Its value is the nanoseconds of its start.
    """
    before = time.monotonic_ns()
    with subprocess.Popen((micro, "--listen", ADDRESS), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"micro: ready\n"
            yield range(before, time.monotonic_ns())
            assert process.poll() is None, "the server ended while it was tested"
        finally:
            process.kill()


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection((ADDRESS, port), timeout=SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def receive(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length and (more := connection.recv(length - len(data))):
        data += more
    return data


def receive_all(connection: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):  # the server may not have read all that it refused
        while more := connection.recv(65536):
            data += more
    return data


def words(*each: bytes) -> bytes:
    return b"*%d\r\n" % len(each) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in each)


def answer(request: bytes, length: int) -> bytes:
    with connected(REDIS) as connection:
        connection.sendall(request)
        return receive(connection, length)


@pytest.mark.usefixtures("server")
class TestRedis:
    @pytest.mark.parametrize(
        ("request_", "expected"),
        [
            (b"PING\r\n", b"+PONG\r\n"),
            (words(b"ping"), b"+PONG\r\n"),
            (words(b"GET", b"nobody set this"), b"$-1\r\n"),
            (words(b"CONFIG", b"GET", b"save"), b"*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
            (words(b"CONFIG", b"GET", b"appendonly"), b"*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"),
            (words(b"COMMAND"), b"*0\r\n"),
            (words(b"FLUSHALL"), b"-ERR unknown command\r\n"),
            (words(b"GET"), b"-ERR wrong number of arguments\r\n"),
        ],
    )
    def test_each_command_has_its_answer(self, request_: bytes, expected: bytes) -> None:
        assert answer(request_, len(expected)) == expected

    def test_what_one_client_sets_another_gets_whatever_its_bytes(self) -> None:
        value = bytes(range(256)) * 40
        assert answer(words(b"SET", b"bytes", value), 5) == b"+OK\r\n"
        expected = b"$%d\r\n%s\r\n" % (len(value), value)
        assert answer(words(b"GET", b"bytes"), len(expected)) == expected

    def test_a_request_may_be_split_at_every_byte(self) -> None:
        request = words(b"SET", b"split", b"1\r\n2") + words(b"GET", b"split") + b"PING\r\n"
        expected = b"+OK\r\n$4\r\n1\r\n2\r\n+PONG\r\n"
        with connected(REDIS) as connection:
            for position in range(1, len(request)):
                connection.sendall(request[:position])
                time.sleep(0.001)
                connection.sendall(request[position:])
                assert receive(connection, len(expected)) == expected

    def test_a_client_that_sends_much_before_reading_gets_ordered_answers(self) -> None:
        count = 30_000
        requests = b"".join(words(b"PING", b"%06d" % number) for number in range(count))
        expected = b"".join(b"$6\r\n%06d\r\n" % number for number in range(count))
        with connected(REDIS) as connection:
            connection.settimeout(0.3)
            sent = 0
            with contextlib.suppress(TimeoutError):  # once the server waits for us to read
                while sent < len(requests):
                    sent += connection.send(requests[sent : sent + 65536])
            connection.settimeout(SECONDS)
            received = b""
            while len(received) < len(expected):
                sent += connection.send(requests[sent : sent + 4096]) if sent < len(requests) else 0
                received += connection.recv(65536)
        assert received == expected

    @pytest.mark.parametrize(
        "request_",
        [
            b"x" * 200_000,
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200000\r\n" + b"y" * 200_000,
            b"*99999999999999999999\r\n",
            b"*1\r\n$-7\r\n",
            b"*2\r\n\x00\xff",
        ],
    )
    def test_an_oversized_or_broken_request_is_refused_and_the_server_lives(self, request_: bytes) -> None:
        with connected(REDIS) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(request_)
                connection.shutdown(socket.SHUT_WR)
            assert receive_all(connection).startswith(b"-ERR Protocol error: ")
        assert answer(b"PING\r\n", 7) == b"+PONG\r\n"

    def test_a_full_store_refuses_keys_and_keeps_what_it_has(self) -> None:
        assert answer(words(b"SET", b"first", b"1"), 5) == b"+OK\r\n"
        with connected(REDIS) as connection:
            for number in range(3000):
                connection.sendall(words(b"SET", b"fill %d" % number, b"z" * 16_000))
                first = connection.recv(1000)
                if first != b"+OK\r\n":
                    break
        assert first.startswith(b"-OOM ")
        assert answer(words(b"GET", b"first"), 7) == b"$1\r\n1\r\n"

    def test_many_clients_are_served_at_once(self) -> None:
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(connected(REDIS)) for _ in range(300)]
            for number, connection in enumerate(connections):
                connection.sendall(words(b"PING", b"%03d" % number))
            for number, connection in reversed(list(enumerate(connections))):
                assert receive(connection, 9) == b"$3\r\n%03d\r\n" % number


def test_a_server_out_of_files_serves_current_clients_and_later_the_others(micro: Path) -> None:
    address = "127.17.7.2"
    command = ("prlimit", "--nofile=20", micro, "--listen", address)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == b"micro: ready\n"
        clients = [stack.enter_context(socket.create_connection((address, REDIS), timeout=SECONDS)) for _ in range(40)]
        for client in clients:
            client.sendall(b"PING\r\n")
        for client in clients:
            assert receive(client, 7) == b"+PONG\r\n"
            client.close()


@pytest.mark.usefixtures("server")
class TestHttp:
    def test_one_connection_serves_many_pages(self) -> None:
        connection = http.client.HTTPConnection(ADDRESS, HTTP, timeout=SECONDS)
        with contextlib.closing(connection):
            for path in ("/file", "/", "/other"):
                connection.request("GET", path)
                response = connection.getresponse()
                assert (response.status, response.read(), response.will_close) == (200, PAGE, False)

    def test_the_server_closes_when_asked_to(self) -> None:
        with connected(HTTP) as connection:
            connection.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            response = receive_all(connection)
        assert response.endswith(b"Connection: close\r\n\r\n" + PAGE)

    def test_a_request_without_an_end_is_refused(self) -> None:
        with connected(HTTP) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET /" + b"x" * 100_000)
            assert receive_all(connection).startswith(b"HTTP/1.1 431 ")

    def test_a_client_that_leaves_early_harms_nobody(self) -> None:
        for request in (b"", b"GET", b"GET /file HTTP/1.1\r\n\r\n" * 100):
            with connected(HTTP) as connection:
                connection.sendall(request)
        self.test_one_connection_serves_many_pages()


def test_readiness_is_one_line_with_the_time_of_the_start(server: range) -> None:
    lines = set()
    for _ in range(2):
        with connected(READY) as connection:
            lines.add(receive_all(connection))
    (line,) = lines
    word, nanoseconds = line.decode().split()
    assert (word, line[-1:]) == ("tare", b"\n")
    assert int(nanoseconds) in server


def test_a_wrong_command_line_is_refused(micro: Path) -> None:
    for arguments in ((), ("--listen",), ("--listen", "nowhere"), ("--listen", ADDRESS, "more")):
        result = subprocess.run((micro, *arguments), capture_output=True, text=True, check=False, timeout=SECONDS)
        assert (result.returncode, result.stderr) == (2, "usage: micro --listen ADDRESS\n")
