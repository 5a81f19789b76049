"""`unit_cost`, `net_client` and `net_server`, compiled here, perform each operation kind for real."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from compiled import call, compiled, started
from waiting import wait_until

from tare.model.operations import OPERATION_KINDS

NETWORK = ("message", "connection", "received", "sent")
INSIDE = tuple(work.name for work in OPERATION_KINDS if work.name not in NETWORK)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "unit_cost", "net_client", "net_server")


@pytest.fixture(scope="module")
def port(programs: Path) -> Iterator[int]:
    """The port of a server."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        number: int = free.getsockname()[1]
    with started(programs / "net_server", "127.0.0.1", str(number)):
        wait_until(
            lambda: call(programs / "net_client", "127.0.0.1", str(number), "message", "--times", "1").returncode == 0
        )
        yield number


def check(done: subprocess.CompletedProcess[bytes], kind: str, times: int) -> None:
    assert (done.returncode, done.stderr) == (0, b"")
    said = dict(line.split(": ") for line in done.stdout.decode().splitlines())
    assert (said["kind"], said["times"]) == (kind, str(times))
    assert float(said["seconds"]) > 0


@pytest.mark.parametrize("kind", INSIDE)
def test_each_kind_of_work_in_an_instance_is_done(programs: Path, tmp_path: Path, kind: str) -> None:
    check(call(programs / "unit_cost", str(tmp_path), kind, "--times", "70"), kind, 70)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", NETWORK)
def test_each_kind_of_work_on_the_network_is_done(programs: Path, port: int, kind: str) -> None:
    times = 40000  # more connections than there are ports for them
    check(call(programs / "net_client", "127.0.0.1", str(port), kind, "--times", str(times)), kind, times)


@pytest.mark.parametrize("request_", [b"x" * 64, b"r" + b"\xff" * 63, b"s" + 63 * b"\0", b"\0", b""])
def test_the_server_survives_requests_that_are_none(programs: Path, port: int, request_: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(request_)
    check(call(programs / "net_client", "127.0.0.1", str(port), "message", "--times", "16"), "message", 16)


@pytest.mark.parametrize("words", [(), ("nothing-like-it",), (".", "call", "--times", "0"), (".", "call", "5")])
def test_wrong_words_are_refused(programs: Path, words: tuple[str, ...]) -> None:
    assert call(programs / "unit_cost", *words).returncode == 2
    assert call(programs / "net_client", *words).returncode == 2
