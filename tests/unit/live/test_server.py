"""The HTTP surface against the real server on the loopback address, by bytes that we write ourselves."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS, wait_until

from tare.live.server import Server
from tare.live.serving import Showing

PAGE = b'<!doctype html><main>the page</main><div id="live"></div>'
PATIENT, IMPATIENT = ENOUGH_SECONDS, 0.3  # seconds of a connection


@pytest.fixture
def showing(tmp_path: Path) -> Showing:
    for name in ("raw", "telemetry", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "raw/dhrystone-000-00-docker+qemu.json").write_text("[]")
    (tmp_path / "telemetry/dhrystone-000.parquet").write_bytes(b"PAR1")
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "other/x.json").write_text("{}")
    shown = Showing(tmp_path / "no-board", run=tmp_path)
    shown.show(PAGE)
    return shown


@contextmanager
def started(showing: Showing, seconds: float) -> Iterator[Server]:
    with Server(0, showing, seconds) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server(showing: Showing) -> Iterator[Server]:
    with started(showing, PATIENT) as patient:
        yield patient


@pytest.fixture
def impatient(showing: Showing) -> Iterator[Server]:
    with started(showing, IMPATIENT) as server:
        yield server


def said(server: Server, text: str, more: bytes = b"") -> bytes:
    """What the server says to a request; {port} is its port."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=ENOUGH_SECONDS) as connection:
        connection.sendall(text.replace("{port}", str(server.server_port)).replace("\n", "\r\n").encode() + more)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def asked(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=ENOUGH_SECONDS)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_it_listens_on_the_loopback_address_alone(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}"])
def test_the_page_is_given_to_its_own_address(server: Server, host: str) -> None:
    answer = said(server, f"GET / HTTP/1.1\nHost: {host}\n\n")
    assert status(answer) == 200
    assert b"the page" in answer
    assert b"The run begins" in answer


@pytest.mark.parametrize(
    "lines",
    [
        "Host: evil.example:{port}\n",
        "Host: evil.example\n",
        "Host: 127.0.0.1\n",
        "Host: 127.0.0.1:1\n",
        "Host: 127.0.0.1.evil.example:{port}\n",
        "Host: localhost:{port}@evil.example\n",
        "Host: localhost:{port}\nHost: evil.example\n",
        "Host:\n",
        "",
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(server: Server, lines: str) -> None:
    answer = said(server, f"GET / HTTP/1.1\n{lines}\n")
    assert status(answer) == 421
    assert b"the page" not in answer


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:{port}", 200),
        ("http://localhost:{port}", 403),  # not the one in Host
        ("http://127.0.0.1:1", 403),
        ("https://127.0.0.1:{port}", 403),
        ("http://evil.example", 403),
        ("null", 403),
    ],
)
def test_only_the_page_itself_may_ask_from_a_page(server: Server, origin: str, expected: int) -> None:
    assert status(said(server, f"GET /now HTTP/1.1\nHost: 127.0.0.1:{{port}}\nOrigin: {origin}\n\n")) == expected


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get"])
def test_nothing_can_be_changed(server: Server, method: str) -> None:
    answer = said(server, f"{method} / HTTP/1.1\nHost: 127.0.0.1:{{port}}\n\n")
    assert status(answer) == 405
    assert b"\r\nAllow: GET, HEAD\r\n" in answer


def test_head_has_the_lengths_and_no_content(server: Server) -> None:
    full, content = asked(server, "/raw/dhrystone-000-00-docker+qemu.json")
    head, nothing = asked(server, "/raw/dhrystone-000-00-docker+qemu.json", "HEAD")
    assert (content, nothing) == (b"[]", b"")
    assert head.getheader("Content-Length") == full.getheader("Content-Length") == "2"
    assert asked(server, "/", "HEAD")[1] == b""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/raw/dhrystone-000-00-docker+qemu.json", "text/plain; charset=utf-8"),
        ("/raw/dhrystone-000-00-docker%2Bqemu.json", "text/plain; charset=utf-8"),
        ("/telemetry/dhrystone-000.parquet", "application/octet-stream"),
    ],
)
def test_the_files_that_a_page_leads_to_are_given_and_never_as_a_page(server: Server, path: str, kind: str) -> None:
    answer, _ = asked(server, path)
    assert (answer.status, answer.getheader("Content-Type")) == (200, kind)
    assert "sandbox" in (answer.getheader("Content-Security-Policy") or "")


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/run.json",
            "/raw",
            "/raw/",
            "/raw/x.json",
            "/raw/.json",
            "/other/x.json",
            "/index.html",
            "//",
            "/favicon.ico",
        ),
        *("/raw/../run.json", "/raw/%2e%2e/run.json", "/raw/..%2frun.json", "/raw/%2e%2e%2frun.json", "/../run.json"),
        *(
            "/raw/%2fetc%2fpasswd",
            "/raw//etc/passwd",
            "/raw/..%00.json",
            "/raw/link.json",
            "/raw/pipe.json",
            "/raw/dir.json",
        ),
        *("http://127.0.0.1/", "*", "/raw/" + "x" * 5000 + ".json", "/telemetry/dhrystone-000-00-docker+qemu.json"),
    ],
)
def test_nothing_else_is_given(server: Server, tmp_path: Path, path: str) -> None:
    (tmp_path / "raw/link.json").symlink_to(tmp_path / "run.json")
    (tmp_path / "raw/dir.json").mkdir()
    os.mkfifo(tmp_path / "raw/pipe.json")
    assert status(said(server, f"GET {path} HTTP/1.1\nHost: 127.0.0.1:{{port}}\n\n")) == (200 if path == "//" else 404)


def test_a_folder_that_is_a_link_leads_nowhere(server: Server, tmp_path: Path) -> None:
    (tmp_path / "raw").rename(tmp_path / "moved")
    (tmp_path / "raw").symlink_to(tmp_path / "moved")
    assert asked(server, "/raw/dhrystone-000-00-docker+qemu.json")[0].status == 404


def test_before_there_is_a_run_there_are_no_files(server: Server, showing: Showing) -> None:
    showing.run = None
    assert asked(server, "/raw/dhrystone-000-00-docker+qemu.json")[0].status == 404


@pytest.mark.parametrize("path", ["/", "/now", "/nothing", "/telemetry/dhrystone-000.parquet"])
def test_every_answer_forbids_to_keep_it_to_guess_at_it_and_to_show_it_in_another_page(
    server: Server, path: str
) -> None:
    headers = asked(server, path)[0].headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Python" not in headers["Server"]


def test_what_has_not_changed_is_not_sent_again(server: Server, showing: Showing) -> None:
    first, content = asked(server, "/now")
    tag = first.getheader("ETag") or ""
    assert content
    again, nothing = asked(server, "/now", If_None_Match=tag)
    assert (again.status, nothing) == (304, b"")
    showing.show(PAGE)
    assert asked(server, "/now", If_None_Match=tag)[0].status == 200


@pytest.mark.parametrize(
    "request_text",
    [
        "GET /" + "x" * 20_000 + " HTTP/1.1\nHost: 127.0.0.1:{port}\n\n",
        "GET / HTTP/1.1\nHost: 127.0.0.1:{port}\n" + "X-Long: y\n" * 2000 + "\n",
        "GET / HTTP/1.1\nHost: 127.0.0.1:{port}\nX-Long: " + "y" * 20_000 + "\n\n",
    ],
)
def test_a_long_header_is_refused(server: Server, request_text: str) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=ENOUGH_SECONDS) as connection:
        connection.sendall(
            request_text.replace("{port}", str(server.server_port)).replace("\n", "\r\n").encode()[:16384]
        )
        answer = connection.recv(65536)
    assert status(answer) == 431
    assert b"the page" not in answer


@pytest.mark.parametrize("text", ["\n\n", "GET\n\n", "GET / HTTP/9.9\n\n", "\x00\x01\x02\n\n", "GET / HTTP/1.1 x\n\n"])
def test_what_is_no_request_is_refused_without_a_word_of_it(server: Server, text: str) -> None:
    answer = said(server, text)
    assert b"the page" not in answer
    assert b"Traceback" not in answer
    assert asked(server, "/")[0].status == 200


def test_a_request_that_comes_drop_by_drop_is_cut_off(impatient: Server) -> None:
    with socket.create_connection(("127.0.0.1", impatient.server_port), timeout=ENOUGH_SECONDS) as connection:
        ended = time.monotonic() + ENOUGH_SECONDS
        with pytest.raises(OSError, match=r"reset|Broken pipe"):  # noqa: PT012 - the drops are what is refused
            while time.monotonic() < ended:
                connection.sendall(b"G")
                time.sleep(IMPATIENT / 10)


def test_those_who_hang_do_not_keep_others_waiting_and_too_many_are_turned_away(server: Server) -> None:
    hanging = [socket.create_connection(("127.0.0.1", server.server_port), timeout=ENOUGH_SECONDS) for _ in range(15)]
    assert asked(server, "/")[0].status == 200
    hanging += [socket.create_connection(("127.0.0.1", server.server_port), timeout=ENOUGH_SECONDS) for _ in range(10)]
    assert hanging[-1].recv(1) == b""
    for each in hanging:
        each.close()


def test_a_reader_that_takes_nothing_is_left_and_the_file_is_closed(impatient: Server, tmp_path: Path) -> None:
    with (tmp_path / "raw/large.json").open("wb") as file:
        file.truncate(64 << 20)
    with socket.create_connection(("127.0.0.1", impatient.server_port), timeout=ENOUGH_SECONDS) as connection:
        host = f"127.0.0.1:{impatient.server_port}"
        connection.sendall(f"GET /raw/large.json HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert connection.recv(4)
        wait_until(lambda: not any("large.json" in each for each in _open_files()))


def test_a_browser_that_goes_away_is_no_error(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=ENOUGH_SECONDS)
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
    assert asked(server, "/")[0].status == 200
    assert capfd.readouterr() == ("", "")


def test_a_port_that_is_taken_is_an_error(server: Server, showing: Showing) -> None:
    with pytest.raises(OSError, match="in use"):
        Server(server.server_port, showing)


def _open_files() -> list[str]:
    names = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            names.append(str(each.readlink()))
        except OSError:  # closed meanwhile
            continue
    return names
