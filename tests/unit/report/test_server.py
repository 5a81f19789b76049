"""The server of a run's report: what it answers over real connections, and its process as a run starts it."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from runs import make_run, pairs, write
from waiting import ENOUGH_SECONDS, comes_true, wait_until

from tare.model.errors import UsageError
from tare.model.run_folder import Run, RunWriter, load_run
from tare.report import server as serving
from tare.report.server import REFRESH_SECONDS, ReportServer, ServedReport, serve_report
from tare.report.writer import write_report
from tare.runner.events import BlockEnded, RunBegins

WHOLE = pairs([1.0, 1.1, 1.2, 1.0], [1.0, 1.0, 1.1, 1.0])
REFRESH = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
RAW = "/raw/dhrystone-000-00-docker+qemu.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder with what a report links to, what it does not, and links that lead elsewhere."""
    run = tmp_path / "run"
    for name in ("report", "raw", "telemetry", "other", "raw/dir.json"):
        (run / name).mkdir(parents=True)
    (run / "report/index.html").write_text("the report")
    (run / "raw/dhrystone-000-00-docker+qemu.json").write_text("[]")
    (run / "telemetry/dhrystone-000.parquet").write_bytes(b"PAR1")
    for name in ("run.json", "other/x.json"):
        (run / name).write_text("{}")
    (run / "raw/link.json").symlink_to(run / "run.json")
    os.mkfifo(run / "raw/pipe.json")
    return run


@pytest.fixture
def server(folder: Path) -> Iterator[ReportServer]:
    with ReportServer(0) as started:
        started.folder = folder
        thread = threading.Thread(target=started.serve_forever, args=(0.01,))
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def port_of(server: ReportServer) -> int:
    return int(server.server_address[1])


def send(server: ReportServer, text: str) -> bytes:
    """Return the answer to a request that is sent as it is; {port} is the server's port."""
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=ENOUGH_SECONDS) as connection:
        connection.sendall(text.replace("{port}", str(port_of(server))).replace("\n", "\r\n").encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def ask(port: int, path: str = "/report/index.html", method: str = "GET") -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ENOUGH_SECONDS)
    connection.request(method, path)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer, content


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_it_listens_on_the_loopback_address_only(server: ReportServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "kind", "content"),
    [
        ("/report/index.html", "text/html; charset=utf-8", "the report"),
        (RAW, "text/plain; charset=utf-8", "[]"),
        (RAW.replace("+", "%2B"), "text/plain; charset=utf-8", "[]"),
        ("/telemetry/dhrystone-000.parquet", "application/octet-stream", "PAR1"),
    ],
)
def test_the_report_and_the_files_that_it_links_to_are_served(
    server: ReportServer, path: str, kind: str, content: str
) -> None:
    full, text = ask(port_of(server), path)
    head, nothing = ask(port_of(server), path, "HEAD")
    assert (full.status, full.getheader("Content-Type"), text, nothing) == (200, kind, content, "")
    assert head.getheader("Content-Length") == str(len(content))
    headers = {name: full.headers[name] for name in serving._HEADERS}
    assert headers == serving._HEADERS
    assert "Python" not in full.headers["Server"]


def test_the_address_leads_to_the_report_and_to_a_text_before_there_is_one(server: ReportServer) -> None:
    first, _ = ask(port_of(server), "/")
    assert (first.status, first.getheader("Location")) == (302, "/report/index.html")
    server.folder = None
    answer, text = ask(port_of(server))
    assert answer.status == 200
    assert "Its report follows after the first block" in text
    assert REFRESH in text
    assert ask(port_of(server), RAW)[0].status == 404


@pytest.mark.parametrize("path", [
    "/run.json", "/report", "/report/", "/raw/", "/raw/x.json", "/raw/.json", "/other/x.json", "/favicon.ico",
    "/raw/../run.json", "/raw/%2e%2e/run.json", "/raw/..%2frun.json", "/../run.json", "/report/../raw/../run.json",
    "/raw/%2fetc%2fpasswd", "/raw//etc/passwd", "/raw/..%00.json", "/raw/link.json", "/raw/pipe.json", "/raw/dir.json",
    "http://127.0.0.1/", "*", f"/raw/{'x' * 5000}.json", "/telemetry/../raw/x.parquet",
])  # fmt: skip
def test_nothing_else_is_served(server: ReportServer, path: str) -> None:
    assert status(send(server, f"GET {path} HTTP/1.1\nHost: 127.0.0.1:{{port}}\n\n")) == 404


def test_a_folder_that_is_a_link_leads_nowhere(server: ReportServer, folder: Path) -> None:
    (folder / "raw").rename(folder / "moved")
    (folder / "raw").symlink_to(folder / "moved")
    assert ask(port_of(server), RAW)[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_nothing_can_be_changed(server: ReportServer, method: str) -> None:
    answer = send(server, f"{method} / HTTP/1.1\nHost: 127.0.0.1:{{port}}\n\n")
    assert status(answer) == 501
    assert b"the report" not in answer


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        *((f"Host: {host}\n", 200) for host in ("127.0.0.1:{port}", "localhost:{port}", "LOCALHOST", "localhost:8000")),
        *((f"Host: {host}\n", 421) for host in ("evil.example:{port}", "127.0.0.2:{port}", "localhost:", "")),
        *((f"Host: {host}\n", 421) for host in ("127.0.0.1.evil.example:{port}", "localhost:{port}@evil.example")),
        ("Host: localhost:{port}\nHost: evil.example\n", 421),
        ("", 421),
    ],
)
def test_another_name_that_leads_to_the_server_is_refused(server: ReportServer, lines: str, expected: int) -> None:
    answer = send(server, f"GET /report/index.html HTTP/1.1\n{lines}\n")
    assert status(answer) == expected
    assert (b"the report" in answer) == (expected == 200)


def test_idle_connections_keep_nobody_waiting_and_too_many_are_closed(server: ReportServer) -> None:
    address = ("127.0.0.1", port_of(server))
    idle = [socket.create_connection(address, timeout=ENOUGH_SECONDS) for _ in range(8)]
    assert ask(port_of(server))[0].status == 200
    idle += [socket.create_connection(address, timeout=ENOUGH_SECONDS) for _ in range(12)]
    assert idle[-1].recv(1) == b""
    for each in idle:
        each.close()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where messages about a served run go; its process may take its time on a busy machine."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    for limit in ("_START_SECONDS", "_WRITE_SECONDS", "_CONNECTION_SECONDS"):
        monkeypatch.setattr(serving, limit, ENOUGH_SECONDS)
    return []


def port_in(said: list[str]) -> int:
    found = re.fullmatch(r"the run can be watched at http://127\.0\.0\.1:(\d+)/", said[0])
    assert found
    return int(found[1])


def child(report: ServedReport) -> int:
    assert report._process is not None
    return report._process.pid


def begin(report: ServedReport, run: Run, cpus: set[int] | None = None) -> None:
    report(RunBegins(run, 2, {}, cpus or set()))


def test_the_report_is_rewritten_after_blocks_for_a_twentieth_of_the_time(said: list[str], tmp_path: Path) -> None:
    run = replace(WHOLE, folder=tmp_path / "run")
    page = run.folder / "report/index.html"
    with serve_report(0, said.append) as report:
        number = child(report)
        write(replace(run, trials=()))
        begin(report, run)
        assert not page.exists()
        journal = RunWriter(run.folder)
        for trial in run.trials:
            journal.append((trial, ()))
        report._due = 0.0
        began = time.monotonic()
        report(BlockEnded(run))
        ended = time.monotonic()
        assert 0 < report._due - ended <= 20 * (ended - began)
        assert page.read_text().count(REFRESH) == 1
        assert ask(port_in(said), method="HEAD")[0].getheader("Content-Length") == str(page.stat().st_size)
        page.unlink()
        report(BlockEnded(run))
        assert not page.exists()
        write_report([load_run(run.folder)], ("html",))
        assert 'http-equiv="refresh"' not in page.read_text()
        report.end()
    assert len(said) == 1
    assert not Path(f"/proc/{number}").exists()


def test_ctrl_c_waits_for_the_report_so_that_no_later_one_is_overwritten(said: list[str], tmp_path: Path) -> None:
    run = replace(WHOLE, folder=tmp_path / "run")
    write(run)
    with serve_report(0, said.append) as report:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            begin(report, run)
        assert [path.name for path in (run.folder / "report").iterdir()] == ["index.html"]
        report.end()
    assert len(said) == 1


def test_the_end_waits_only_for_browsers_that_show_the_report(
    server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, method in (("/report/index.html", "HEAD"), (RAW, "GET")):
        ask(port_of(server), path, method)
    monkeypatch.setattr(serving, "REFRESH_SECONDS", ENOUGH_SECONDS)
    server.await_readers()  # or the test would hang
    monkeypatch.setattr(serving, "REFRESH_SECONDS", 0.2)
    began = time.monotonic()
    ask(port_of(server))
    server.await_readers()
    assert time.monotonic() - began >= 0.4


def test_a_report_that_cannot_be_written_ends_the_server_and_not_the_run(said: list[str], tmp_path: Path) -> None:
    with serve_report(0, said.append) as report:
        begin(report, replace(WHOLE, folder=tmp_path))  # which is no run folder
        report._due = 0.0
        report(BlockEnded(WHOLE))
        report.end()
        with pytest.raises(OSError, match="refused"):
            ask(port_in(said))
    (reason,) = said[1:]
    assert reason.startswith("the report is no longer served: ")
    assert f"ended: UsageError: {tmp_path}: not a run" in reason


def test_a_run_that_is_killed_ends_the_server() -> None:
    program = (
        "import time\nfrom tare.report.server import serve_report\n"
        "with serve_report(0, print) as report:\n    print(report._process.pid, flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        number = int([run.stdout.readline(), run.stdout.readline()][1])
        assert Path(f"/proc/{number}").exists()
        run.kill()
        assert comes_true(lambda: not _alive(number))


def _alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_a_port_in_use_is_an_error_of_two_lines(said: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError) as caught, serve_report(port, said.append):
            pass
    assert str(caught.value) == f"--port {port}: 127.0.0.1 cannot be listened on there: address already in use"
    assert caught.value.hint == "choose another port, or leave --port out for a free one"
    assert said == []


def test_the_server_keeps_off_measured_cpus_and_answers_only_on_idle_ones(said: list[str], tmp_path: Path) -> None:
    run = replace(make_run(()), folder=tmp_path / "run")
    write(run)
    allowed = os.sched_getaffinity(0)
    measured = {max(allowed)}
    with serve_report(0, said.append) as report:
        number = child(report)
        begin(report, run, measured)
        wait_until(lambda: os.SCHED_IDLE in policies(number, allowed - measured or allowed))


def policies(number: int, cpus: set[int]) -> set[int]:
    """Return the scheduling policies of a process's threads, all of which must be on these CPUs."""
    found = set()
    for each in Path(f"/proc/{number}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended
            found.add(os.sched_getscheduler(int(each.name)))
            assert os.sched_getaffinity(int(each.name)) == cpus
    return found
