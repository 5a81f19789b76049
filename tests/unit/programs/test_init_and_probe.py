"""`init` in an instance and `probe` on the client: compiled here as in the image, and run for real."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiled import call, compiled, first_line, started
from waiting import ENOUGH_SECONDS, in_time, rests, wait_until

PATIENCE = f"{ENOUGH_SECONDS:g}"
TRIES = 200  # with a pause of a second between two, they would take longer than a test waits

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "init", "probe")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def test_probe_reports_when_init_started(programs: Path) -> None:
    port = free_port()
    before = time.monotonic_ns()
    with started(programs / "init", f"127.0.0.1:{port}") as process:
        assert first_line(process) == b"tare-init: ready\n"
        output = call(programs / "probe", "127.0.0.1", str(port), PATIENCE)
    heard, word, began = output.stdout.decode().split()
    assert (output.returncode, word) == (0, "tare")
    assert before < int(began) < int(heard) < time.monotonic_ns()


def pauses(pid: int) -> int:
    """Return how often a process has slept."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_probe_may_start_before_init(programs: Path) -> None:
    port = free_port()
    with started(programs / "probe", "127.0.0.1", str(port), PATIENCE) as probe:
        wait_until(lambda: pauses(probe.pid) >= TRIES)
        before = time.monotonic_ns()
        with started(programs / "init", f"127.0.0.1:{port}"):
            output, _ = probe.communicate(timeout=ENOUGH_SECONDS)
    heard, _, began = output.decode().split()
    assert before < int(began) < int(heard) < time.monotonic_ns()


def test_probe_fails_with_the_last_error(programs: Path) -> None:
    port = free_port()
    begin = time.monotonic()
    output = call(programs / "probe", "127.0.0.1", str(port), "0.2")
    assert time.monotonic() - begin >= 0.2
    assert (output.returncode, output.stdout) == (1, b"")
    assert output.stderr == f"probe: 127.0.0.1:{port}: Connection refused\n".encode()


def test_probe_does_not_accept_a_silent_server(programs: Path) -> None:
    def probe(seconds: float) -> None:
        outputs.append(call(programs / "probe", "127.0.0.1", str(server.getsockname()[1]), f"{seconds / 10:g}"))
        assert (outputs[-1].returncode, outputs[-1].stdout) == (1, b"")

    outputs: list[subprocess.CompletedProcess[bytes]] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        in_time(probe, lambda: outputs[-1].stderr.endswith(b"connected, but no line came\n"))


def test_probe_waits_longer_for_slow_servers(tmp_path: Path) -> None:
    compiled(tmp_path, "probe", settings=("-DQUICK_NANOSECONDS=0", "-DSHARE_OF_SLOW=4"))

    class Slow(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            time.sleep(0.1)
            with contextlib.suppress(OSError):  # the first to ask have not waited
                self.request.sendall(b"at last\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        output = call(tmp_path / "probe", "127.0.0.1", str(server.server_address[1]), PATIENCE)
        server.shutdown()
    assert (output.returncode, output.stdout.partition(b" ")[2]) == (0, b"at last\n")


def test_probe_can_accept_a_connection(programs: Path) -> None:
    before = time.monotonic_ns()
    with socket.create_server(("127.0.0.1", 0)) as server:
        output = call(programs / "probe", "127.0.0.1", str(server.getsockname()[1]), PATIENCE, "connect")
    heard, word = output.stdout.decode().split()
    assert (output.returncode, word) == (0, "connected")
    assert before < int(heard) < time.monotonic_ns()


def test_probe_does_not_accept_a_connection_that_ends_at_once(tmp_path: Path) -> None:
    """As with `nginx -t`, which listens for a moment."""
    compiled(tmp_path, "probe", settings=("-DSHARE_OF_TIME=1",))
    port = free_port()
    with started(tmp_path / "probe", "127.0.0.1", str(port), PATIENCE, "connect") as probe:
        wait_until(lambda: pauses(probe.pid) >= 5 * TRIES)
        with socket.create_server(("127.0.0.1", port)) as checking:
            accepted, _ = checking.accept()
            accepted.close()
        before = time.monotonic_ns()
        with socket.create_server(("127.0.0.1", port)):
            output, _ = probe.communicate(timeout=ENOUGH_SECONDS)
    heard, word = output.decode().split()
    assert (word, before < int(heard) < time.monotonic_ns()) == ("connected", True)


@pytest.mark.parametrize("arguments", [(), ("here", "80", "1"), ("127.0.0.1", "0", "1"), ("127.0.0.1", "80", "soon")])
def test_probe_prints_its_usage(programs: Path, arguments: tuple[str, ...]) -> None:
    output = call(programs / "probe", *arguments)
    assert output.returncode == 2
    assert b"usage: probe ADDRESS PORT SECONDS [connect]" in output.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_init_ends_with_0_when_it_is_asked_to(programs: Path, number: int) -> None:
    with started(programs / "init", "-") as process:
        assert first_line(process) == b"tare-init: ready\n"
        process.send_signal(number)
        assert process.wait(ENOUGH_SECONDS) == 0


def test_init_waits_for_its_address_to_appear(programs: Path) -> None:
    with started(programs / "init", f"192.0.2.1:{free_port()}") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.terminate()
        assert process.wait(ENOUGH_SECONDS) == 0
        assert first_line(process) == b""


def test_init_refuses_a_port_that_is_taken(programs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        output = call(programs / "init", f"127.0.0.1:{server.getsockname()[1]}")
    assert (output.returncode, output.stdout) == (1, b"")
    assert output.stderr == b"init: listen: Address already in use\n"


def test_init_prints_its_limits_after_it_is_ready(programs: Path) -> None:
    with started(programs / "init", "-", "--limits") as process:
        lines = [first_line(process).decode() for _ in range(5)]
    assert lines[0] == "tare-init: ready\n"
    assert [re.sub(":.*", "", line, flags=re.DOTALL) for line in lines[1:]] == [
        "cpus",
        "open_files",
        "memory",
        "kernel",
    ]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the programs where they are in an image."""
    folder = tmp_path_factory.mktemp("root")
    (folder / "usr/lib/tare").mkdir(parents=True)
    compiled(folder / "usr/lib/tare", "init", "supervise", alone=True)
    return folder


@contextlib.contextmanager
def with_resident(root: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    init = ("/usr/lib/tare/init", f"127.0.0.1:{port}", "--resident", "tare-1")
    with started("/usr/sbin/chroot", root, *init) as process:
        assert first_line(process) == b"tare-init: ready\n"
        yield process


@needs_root
def test_init_starts_and_ends_with_a_resident_process_after_an_answer(root: Path) -> None:
    port = free_port()
    with with_resident(root, port) as process:
        assert process.stdin is not None
        process.stdin.write(b"start 1 /usr/lib/tare/supervise --clock\n")
        process.stdin.flush()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        time.sleep(0.1)
        assert children.read_text() == ""
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), timeout=ENOUGH_SECONDS) as client:
                assert client.recv(64).startswith(b"tare ")
        assert first_line(process) == b"ready\n"
        assert first_line(process).startswith(b"out 1 ")
        assert len(children.read_text().split()) == 1
        process.stdin.close()
        assert process.wait(ENOUGH_SECONDS) == 0


@needs_root
def test_init_ends_with_its_standard_input_before_anybody_has_come(root: Path) -> None:
    with with_resident(root, free_port()) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(ENOUGH_SECONDS) == 0


def test_init_uses_no_time_while_it_waits(programs: Path) -> None:
    with started(programs / "init", f"127.0.0.1:{free_port()}") as process:
        assert first_line(process) == b"tare-init: ready\n"
        wait_until(lambda: rests(process.pid))


def test_init_answers_clients_that_spoke_first_and_many_of_them(programs: Path) -> None:
    port = free_port()
    with started(programs / "init", f"127.0.0.1:{port}") as process:
        assert first_line(process) == b"tare-init: ready\n"
        answers = set()
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", port), timeout=ENOUGH_SECONDS) as client:
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answers.add(client.makefile("rb").readline())
    assert len(answers) == 1
    assert re.fullmatch(rb"tare [0-9]+\n", answers.pop())
