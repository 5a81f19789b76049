"""`unix_http`, compiled as in the image: what it sends to a server on a Unix socket, and which answers it refuses."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from compiled import call, compiled, started
from unix_server import serve_answers

PAUSE, STOP = ("PATCH", "/vm", '{"state": "Paused"}'), ("PUT", "/vmm.shutdown", "")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "unix_http") / "unix_http"


@pytest.mark.parametrize("answer", ["204 No Content", "200 OK\r\nserver: x\r\ncontent-length: 3\r\n\r\n{ }"])
def test_requests_are_sent_in_order_each_after_an_answer(program: Path, tmp_path: Path, answer: str) -> None:
    with serve_answers(tmp_path / "api", answer, answer) as requests:
        ended = call(program, str(tmp_path / "api"), "9", *PAUSE, *STOP)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert [each[:3] for each in requests] == [PAUSE, STOP]
    assert requests[0][3] == requests[1][3]  # one connection


def test_a_refusal_ends_it_with_the_reason(program: Path, tmp_path: Path) -> None:
    answer = '400 Bad Request\r\nContent-Length: 27\r\n\r\n{"fault_message": "paused"}'
    with serve_answers(tmp_path / "api", answer) as requests:
        ended = call(program, str(tmp_path / "api"), "9", *PAUSE, *STOP)
    assert ended.returncode == 1
    assert ended.stderr == b'unix_http: PATCH /vm: {"fault_message": "paused"}\n'
    assert [each[:3] for each in requests] == [PAUSE]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("404 Not Found", b"PATCH /vm: HTTP/1.1 404 Not Found"),
        ("", b"PATCH /vm: the server closed the connection"),
        ("200 OK\r\nContent-Length: 2\r\n\r\n{", b"PATCH /vm: the server closed the connection"),
        (f"200 OK\r\nContent-Length: {1 << 63}\r\n\r\n", b"PATCH /vm: the response is too long"),
        (f"200 OK\r\nContent-Length: {(1 << 64) - 1}\r\n\r\n", b"PATCH /vm: the response is too long"),
        ("200 OK\r\nX: " + 70_000 * "x", b"PATCH /vm: the response is too long"),
    ],
)
def test_an_answer_that_is_not_whole_is_refused(program: Path, tmp_path: Path, answer: str, reason: bytes) -> None:
    with serve_answers(tmp_path / "api", answer):
        ended = call(program, str(tmp_path / "api"), "9", *PAUSE)
    assert (ended.returncode, ended.stderr.strip()) == (1, b"unix_http: " + reason)


def test_it_waits_for_a_server_that_listens_later(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "api"
    with started(program, path, "60", *PAUSE) as process:
        time.sleep(0.2)
        assert process.poll() is None
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(path))  # connections are refused
            time.sleep(0.2)
        assert process.poll() is None
        path.unlink()
        with serve_answers(path, "204 No Content") as requests:
            assert process.wait() == 0
    assert [each[:3] for each in requests] == [PAUSE]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("/none", "0"), 1, b"unix_http: No such file or directory\n"),
        ((108 * "x", "0"), 1, b"unix_http: the path of the socket is too long\n"),
        (("/none",), 2, b"usage"),
        (("/none", "soon"), 2, b"usage"),
        (("/none", "-1"), 2, b"usage"),
        (("/none", "0", "GET", "/"), 2, b"usage"),
    ],
)
def test_without_a_server_or_with_wrong_words_it_fails(
    program: Path, words: tuple[str, ...], code: int, reason: bytes
) -> None:
    ended = call(program, *words)
    assert ended.returncode == code
    assert ended.stderr.startswith(reason)
