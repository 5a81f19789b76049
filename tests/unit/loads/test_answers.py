"""The client that counts useful answers, with the server in Python that gives them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from tare.loads import answers

KEYS, BYTES = 40, 64


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The program, not next to modules of tare that have names of Python's, as it is in an instance."""
    return Path(shutil.copy(answers.__file__, tmp_path))


@pytest.fixture
def ask(script: Path) -> Ask:
    return lambda *words, **settings: run_client(script, *words, **settings)


def run_client(script: Path, port: int, *more: str, seconds: float = 20.0) -> subprocess.CompletedProcess[str]:
    words = ("ask", "127.0.0.1", str(port), f"{seconds:g}", str(KEYS), str(BYTES), *more)
    return subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False)


@pytest.fixture
def python_port(script: Path) -> Iterator[int]:
    """The port of the server in Python, which stays in the background until it is killed."""
    port = free_port()
    subprocess.run([sys.executable, script, "serve", str(port), str(BYTES)], check=True)
    yield port
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found = words.read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if [b"serve", str(port).encode()] == found[2:4]:
            signal.pidfd_send_signal(os.pidfd_open(int(words.parent.name)), signal.SIGKILL)


@contextmanager
def replying(*replies: bytes) -> Iterator[int]:
    """A server that gives these replies to the first requests of one client, and then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for reply in replies:
                    connection.recv(1 << 16)
                    connection.sendall(reply)

        server = Thread(target=serve)
        server.start()
        yield listener.getsockname()[1]
        server.join()


def test_all_values_arrive_and_each_step_is_reported(ask: Ask, python_port: int) -> None:
    for _ in range(2):  # the server takes the next client when one has gone
        output = ask(python_port)
        assert (output.stdout, output.stderr) == ("waiting\nfirst\nwarm\n", "")


@pytest.mark.parametrize("reply", [b"$-1\r\n", b"$64\r\n" + bytes(64) + b"\r\n", b"$3\r\nabc\r\n", b""])
def test_a_wrong_value_is_no_answer(ask: Ask, reply: bytes) -> None:
    with replying(reply) as port:
        output = ask(port)
    assert output.stdout == "waiting\n"
    assert "has a wrong value" in output.stderr
    assert output.returncode == 1


def test_a_server_that_takes_no_data_is_reported(ask: Ask) -> None:
    with replying(b"-OOM command not allowed\r\n") as port:
        output = ask(port, "fill")
    assert (output.stdout, output.returncode) == ("waiting\n", 1)
    assert "does not take key 0: b'-OOM" in output.stderr


def test_without_a_server_it_gives_up_at_its_time_limit(ask: Ask) -> None:
    output = ask(free_port(), seconds=0.1)
    assert (output.stdout, output.returncode) == ("waiting\n", 1)
    assert "ConnectionRefusedError" in output.stderr


def test_values_differ_by_key_and_are_the_same_everywhere() -> None:
    values = {answers.value_of(key, 4096) for key in range(KEYS)}
    assert len(values) == KEYS
    assert answers.value_of(7, 4).hex() == answers.value_of(7, 4).hex() != answers.value_of(8, 4).hex()


def test_wrong_arguments_show_the_usage() -> None:
    with pytest.raises(SystemExit, match="usage"):
        answers.main(["ask", "127.0.0.1"])
