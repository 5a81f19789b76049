"""`load_client`, compiled here, with servers that answer as they should, and with servers that do not."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from compiled import call, compiled
from marks import slow

GET = b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntare\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\ntar\r\n2\r\ne\n\r\n0\r\nTrailer: x\r\n\r\n"
REDIS_GET = b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n"
NO_ERRORS = "connect 0, read 0, status 0, short 0"
NOT_HTTP, NOT_RESP = "a response that is not HTTP", "a response that is not RESP"
SHORT_TURN = "go 0.001 0.005"
Serve = Callable[[socket.socket], None]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "load_client") / "load_client"


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    return written(tmp_path, GET)


def written(folder: Path, *texts: bytes) -> Path:
    """Write a file of requests, whose name is their protocol."""
    path = folder / ("http" if b"HTTP" in texts[0] else "redis")
    path.write_bytes(b"".join(b"%d\n%b" % (len(text), text) for text in texts))
    return path


@contextmanager
def serving(serve: Serve) -> Iterator[str]:
    """Serve each connection in a thread; yield the port."""

    def take(connection: socket.socket) -> None:
        with connection:
            try:
                serve(connection)
            except OSError:
                return  # the client has gone

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=take, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        yield str(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join()


def answering(*answers: bytes, ends: int = 0, parts: int = 0, waits: float = 0.0, idles: float | None = None) -> Serve:
    """Return a server that answers each request with the next text, in parts of so many bytes, after a wait in seconds.

    It closes a connection after `ends` answers, and one that is idle for `idles` seconds.
    """

    def serve(connection: socket.socket) -> None:
        connection.settimeout(idles)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = 0
        while data := connection.recv(65536):
            time.sleep(waits)
            for _ in range(data.count(b"\r\n\r\n") or data.count(b"*2\r\n")):
                answer = answers[sent % len(answers)]
                for at in range(0, len(answer), parts or len(answer) or 1):
                    connection.sendall(answer[at : at + (parts or len(answer))])
                sent += 1
                if sent == ends:
                    return

    return serve


def turns(
    program: Path,
    port: str,
    requests: Path,
    *options: str,
    connections: int = 3,
    lines: tuple[str, ...] = (SHORT_TURN, SHORT_TURN),
) -> list[dict[str, str]]:
    """Run turns; return the answers by their names."""
    argv = (requests.name, "127.0.0.1", port, str(connections), str(requests), *options)
    done = call(program, *argv, data="".join(f"{line}\n" for line in lines).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    *texts, rest = done.stdout.decode().split("turn: done\n")
    assert (len(texts), rest) == (len(lines), "")
    return [dict(line.split(": ", 1) for line in text.splitlines()) for text in texts]


# --- responses as they should be


@pytest.mark.parametrize("parts", [0, 1, 7])
@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (PAGE, "5"),
        (CHUNKED, "5"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + PAGE, "5"),
        (b"HTTP/1.1 200\ncontent-length:5\n\ntare\n", "5"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\nX-Long: " + 2000 * b"x" + b"\r\nContent-Length: 0\r\n\r\n", ""),
    ],
)
def test_responses_of_http_are_parsed_to_their_end(
    program: Path, requests: Path, answer: bytes, body: str, parts: int
) -> None:
    with serving(answering(answer, parts=parts)) as port:
        for turn in turns(program, port, requests, *(("--body", body) if body else ())):
            assert int(turn["requests"]) > 0
            assert float(turn["seconds"]) >= 0.005
            assert float(turn["cpu_seconds"]) > 0
            assert float(turn["discarded_seconds"]) >= 0.001
            assert float(turn["discarded_rate"]) * float(turn["discarded_seconds"]) == pytest.approx(
                round(float(turn["discarded_rate"]) * float(turn["discarded_seconds"])), abs=0.01
            )  # a whole number of responses, the last of which begins the window
            assert float(turn["discarded_rate"]) > 0
            assert (turn["closes"], turn["errors"]) == ("0", NO_ERRORS)
            assert int(turn["bytes"]) % len(answer) == 0


@pytest.mark.parametrize("parts", [0, 1])
@pytest.mark.parametrize(
    "answer",
    [b"+OK\r\n", b"$3\r\nxyz\r\n", b"$0\r\n\r\n", b"$-1\r\n", b":7\r\n", b"*-1\r\n", b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n"],
)
def test_responses_of_redis_are_parsed_to_their_end(program: Path, tmp_path: Path, answer: bytes, parts: int) -> None:
    asked = written(tmp_path, REDIS_GET)
    with serving(answering(answer, parts=parts)) as port:
        for turn in turns(program, port, asked, "--pipeline", "4"):
            assert int(turn["requests"]) > 0
            assert turn["errors"] == NO_ERRORS
            assert int(turn["bytes"]) % (4 * len(answer)) == 0


def test_requests_are_sent_in_order_and_answered_by_the_end_of_a_turn(program: Path, tmp_path: Path) -> None:
    texts = tuple(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5))
    asked, received = written(tmp_path, *texts), bytearray()

    def serve(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            received.extend(data)
            connection.sendall(data.count(b"\r\n\r\n") * PAGE)

    with serving(serve) as port:
        found = turns(program, port, asked, "--pipeline", "3", connections=1)
    numbers = [int(each) for each in re.findall(rb"GET /(\d) ", received)]
    assert numbers == [at % 5 for at in range(len(numbers))]
    assert sum(int(turn["bytes"]) for turn in found) == len(PAGE) * len(numbers)


def test_without_keep_alive_each_request_has_its_connection(program: Path, requests: Path) -> None:
    connections = []

    def serve(connection: socket.socket) -> None:
        if request := connection.recv(65536):  # the turn may end between a connection and its request
            connections.append(request)
            connection.sendall(PAGE)

    with serving(serve) as port:
        (turn,) = turns(program, port, requests, "--close", lines=(SHORT_TURN,))
    assert set(connections) == {GET}
    assert len(connections) == int(turn["bytes"]) / len(PAGE) > 3
    assert (turn["closes"], turn["errors"]) == ("0", NO_ERRORS)


def test_polling_in_vain_is_no_cpu_time_of_the_load(program: Path, requests: Path) -> None:
    with serving(answering(PAGE, waits=0.02)) as port:
        (turn,) = turns(program, port, requests, "--poll", "1000000", lines=("go 0.001 0.3",), connections=1)
    assert turn["errors"] == NO_ERRORS
    assert float(turn["cpu_seconds"]) < 0.5 * float(turn["seconds"])


def test_the_window_begins_at_the_requested_moment(program: Path, requests: Path) -> None:
    with serving(answering(PAGE)) as port:
        began = time.monotonic() + 0.2
        (turn,) = turns(program, port, requests, lines=(f"{SHORT_TURN} {began:.9f}",))
        assert time.monotonic() > began + 0.005
    assert float(turn["behind"]) >= 0
    assert turn["errors"] == NO_ERRORS


def test_the_latencies_of_a_slow_server_are_in_the_histogram(program: Path, requests: Path) -> None:
    with serving(answering(PAGE, waits=0.02)) as port:
        (turn,) = turns(program, port, requests, "--latency", lines=("go 0.001 0.1",))
    buckets = [(float(low), int(count)) for low, count in (each.split(":") for each in turn["latency"].split())]
    assert sum(count for _, count in buckets) == int(turn["requests"])
    assert buckets == sorted(buckets)
    assert buckets[0][0] > 20_000 / 1.04


# --- servers that close, hang, or answer something else


@pytest.mark.parametrize("ends", [1, 3])
def test_a_server_that_closes_connections_is_counted(program: Path, requests: Path, ends: int) -> None:
    with serving(answering(PAGE, ends=ends)) as port:
        for turn in turns(program, port, requests, lines=("go 0.001 0.1", "go 0.001 0.1")):
            assert int(turn["requests"]) > 3
            assert turn["errors"] == NO_ERRORS
            assert int(turn["closes"]) > 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\ntare\n",
        PAGE.replace(b"OK\r\n", b"OK\r\nConnection: x, Close\r\n"),
        b"HTTP/1.1 200 OK\r\n\r\ntare\n",
    ],
)
def test_a_close_that_the_response_announces_is_counted(program: Path, requests: Path, answer: bytes) -> None:
    with serving(answering(answer, ends=1)) as port:
        (turn,) = turns(program, port, requests, "--body", "5", lines=("go 0.001 0.05",))
    assert turn["errors"] == NO_ERRORS
    assert int(turn["closes"]) == int(turn["bytes"]) / len(answer) > 3


def test_a_connection_that_the_server_closes_between_turns_is_replaced(program: Path, requests: Path) -> None:
    later = f"{SHORT_TURN} {time.monotonic() + 1:.9f}"
    with serving(answering(PAGE, idles=0.05)) as port:
        _, turn = turns(program, port, requests, lines=(SHORT_TURN, later))
    assert (turn["closes"], turn["errors"]) == ("3", NO_ERRORS)


@pytest.mark.parametrize("sent", [b"", PAGE[:-1], PAGE[:5]])
def test_a_server_that_hangs_ends_the_turn(program: Path, requests: Path, sent: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(sent)
        connection.recv(65536)

    with serving(serve) as port:
        turn = turns(program, port, requests, "--patience", "1")[1]
    assert turn["errors"] == "connect 0, read 1, status 0, short 0"
    assert turn["error"] == "the server did not answer all requests in time"
    assert (turn["requests"], turn["seconds"]) == ("0", "0.000000000")


def test_a_server_that_never_ends_a_response_ends_the_turn(program: Path, requests: Path) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x")

    with serving(serve) as port:
        (turn,) = turns(program, port, requests, "--patience", "1", lines=(SHORT_TURN,))
    assert turn["error"] == "the server did not answer all requests in time"


def test_a_refused_connection_is_an_error(program: Path, requests: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    (turn,) = turns(program, port, requests, lines=(SHORT_TURN,))
    assert (turn["errors"], turn["error"]) == ("connect 1, read 0, status 0, short 0", "Connection refused")


@pytest.mark.parametrize(
    ("answer", "errors", "first"),
    [
        (PAGE.replace(b"200 OK", b"404 No"), r"connect 0, read 0, status \d+, short 0", "status 404"),
        (CHUNKED.replace(b"0\r\nTr", b"1\r\nx\r\n0\r\nTr"), r".* short \d+", "a response of 6 bytes, not of 5"),
        (PAGE.replace(b": 5", b": 0"), r".* read 1, .*", "the server sent more than a response"),
        (PAGE + PAGE, r".* read 1, .*", "the server sent more than a response"),
        (b"SSH-2.0-x\r\n", r".* read 1, .*", NOT_HTTP),
        (PAGE.replace(b": 5", b": -5"), r".* read 1, .*", NOT_HTTP),
        (PAGE.replace(b": 5", b": 5\r\nContent-Length: 6"), r".* read 1, .*", NOT_HTTP),
        (PAGE.replace(b": 5", b": 99999999999999999999999"), r".* read 1, .*", NOT_HTTP),
        (CHUNKED.replace(b"3;", b"g;"), r".* read 1, .*", NOT_HTTP),
        (CHUNKED.replace(b"2\r\n", b"ffffffffffffffffff\r\n"), r".* read 1, .*", NOT_HTTP),
        (b"HTTP/1.1 200 OK\r\n" + 100_000 * b"x", r".* read 1, .*", NOT_HTTP),
        (b"-NOAUTH Authentication required.\r\n", r".* status [1-9]\d*, .*", "an error of Redis"),
        (PAGE, r".* read 1, .*", NOT_RESP),
        (b"$5\r\nxx\r\nyyyy\r\n", r".* read 1, .*", NOT_RESP),
        (b"$99999999999999999999\r\n", r".* read 1, .*", NOT_RESP),
        (b"*99999999999\r\n", r".* read 1, .*", NOT_RESP),
        (b"\r\n", r".* read 1, .*", NOT_RESP),
    ],
)
def test_other_responses_are_errors(program: Path, tmp_path: Path, answer: bytes, errors: str, first: str) -> None:
    is_redis = first in (NOT_RESP, "an error of Redis")
    asked, body = (REDIS_GET, ()) if is_redis else (GET, ("--body", "5"))
    with serving(answering(answer)) as port:
        (turn,) = turns(program, port, written(tmp_path, asked), *body, lines=(SHORT_TURN,))
    assert re.fullmatch(errors, turn["errors"]), turn
    assert turn["error"] == first


@pytest.mark.parametrize("protocol", ["http", "redis"])
@pytest.mark.parametrize("seed", slow(range(8), range(2, 8)))
def test_damaged_responses_neither_hang_nor_break_the_client(
    program: Path, tmp_path: Path, protocol: str, seed: int
) -> None:
    """AddressSanitizer ends the program with an error, which `turns` rejects."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    whole = (PAGE, CHUNKED) if protocol == "http" else (b"$3\r\nxyz\r\n", b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n")

    def damaged() -> bytes:
        text = bytearray(chance.choice(whole))
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(text))
            kind = chance.randrange(4)
            if kind == 0:
                text[at] = chance.randrange(256)
            elif kind == 1:
                del text[at : at + chance.randint(1, 9)]
            elif kind == 2:
                text[at:at] = chance.choice([b"\0", b"\r\n", b"9", b"-", b":", 300 * b"x", 300 * b"9", b"\xff"])
            else:
                text[at:at] = text[: chance.randrange(len(text))]
            text = text or bytearray(b"\n")
        return bytes(text)

    def serve(connection: socket.socket) -> None:
        while connection.recv(65536):
            text = damaged()
            cut = chance.randrange(len(text) + 1)
            connection.sendall(text[:cut])
            connection.sendall(text[cut:])
            if chance.random() < 0.2:  # a cut response is an answer in time, too
                return

    asked = written(tmp_path, GET if protocol == "http" else REDIS_GET)
    with serving(serve) as port:
        found = turns(program, port, asked, "--patience", "1", lines=20 * ("go 0 0.001",))
    assert any(turn["errors"] != NO_ERRORS for turn in found)


# --- arguments and lines


@pytest.mark.parametrize(
    "line", ["end", "go", "go 1", "go -1 1", "go 0 0", "go 0 nan", "go 0 1 x", "go 0 1 2 3", "go 0 1e9"]
)
def test_a_wrong_line_ends_the_program(program: Path, requests: Path, line: str) -> None:
    done = call(program, "http", "127.0.0.1", "1", "1", str(requests), data=f"{line}\n".encode())
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"not a line such as" in done.stderr


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("http", "127.0.0.1", "80", "1"),
        ("ftp", "127.0.0.1", "80", "1", "FILE"),
        ("http", "localhost", "80", "1", "FILE"),
        ("http", "127.0.0.1", "0", "1", "FILE"),
        ("http", "127.0.0.1", "80", "0", "FILE"),
        ("http", "127.0.0.1", "80", "99999", "FILE"),
        ("http", "127.0.0.1", "80", "1", "FILE", "--pipeline", "129"),
        ("http", "127.0.0.1", "80", "1", "FILE", "--pipeline"),
        ("http", "127.0.0.1", "80", "1", "FILE", "--poll", "0"),
        ("http", "127.0.0.1", "80", "1", "FILE", "--other"),
    ],
)
def test_wrong_arguments_are_refused(program: Path, requests: Path, argv: tuple[str, ...]) -> None:
    done = call(program, *(str(requests) if each == "FILE" else each for each in argv))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"usage: ")


@pytest.mark.parametrize(
    "text", [b"", b"GET", b"5\nGET", b"0\n", b"3 GET", b"3\nGET4\nGET", b"-3\nGET", b"99999999999999999999\nGET"]
)
def test_a_broken_file_of_requests_is_refused(program: Path, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "broken").write_bytes(text)
    done = call(program, "http", "127.0.0.1", "80", "1", str(tmp_path / "broken"))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"not a list of requests" in done.stderr


def test_a_missing_file_of_requests_is_a_failure(program: Path, tmp_path: Path) -> None:
    done = call(program, "http", "127.0.0.1", "80", "1", str(tmp_path / "missing"))
    assert done.returncode == 1
    assert b"No such file" in done.stderr
