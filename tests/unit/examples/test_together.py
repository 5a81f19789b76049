"""Several programs as one service, with real programs: they start in order, and end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "examples" / "dictionary" / "services"
LISTENER = """
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    server.accept()
    print(sys.argv[1], flush=True)
    server.settimeout(60)
    while True:
        server.accept()
"""
STARTER = """
import sys
from together import Program, run_together
programs = [Program((sys.executable, "-c", sys.argv[1], port), "127.0.0.1", int(port)) for port in sys.argv[3:]]
if sys.argv[2]:
    programs.append(Program((sys.executable, "-c", sys.argv[2]), "127.0.0.1", 1))
sys.exit(run_together(programs))
"""


def ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return found


def started(last: str, *listening: str) -> subprocess.Popen[str]:
    argv = (sys.executable, "-c", STARTER, LISTENER, last, *listening)
    environment = os.environ | {"PYTHONPATH": str(FOLDER), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def is_open(port: str) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", int(port))) == 0


def test_programs_start_in_order_and_end_when_the_service_is_asked_to() -> None:
    first, second = ports(2)
    with started("", first, second) as service:
        assert service.stdout is not None
        assert [service.stdout.readline().strip() for _ in range(2)] == [first, second]
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
    assert not is_open(first)
    assert not is_open(second)


def test_one_that_ends_before_it_is_ready_ends_all() -> None:
    (port,) = ports(1)
    with started("raise SystemExit(3)", port) as service:
        _, errors = service.communicate(timeout=60)
    assert service.returncode == 1
    assert "has ended with 3" in errors
    assert not is_open(port)
