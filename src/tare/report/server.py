"""Server of a run's report: a child process writes the report between blocks and serves it on the loopback address.

`serve_report` starts the child from the process that measures; `main` is the child, which keeps off the measured CPUs.
It answers GET and HEAD for the report and the files that it links to. docs/decisions/page.md has the reasons.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import BinaryIO
from urllib.parse import unquote

from tare.errors import TrialFailed, UsageError
from tare.hosts.host import Process
from tare.hosts.local import LocalHost
from tare.hosts.process import held_back
from tare.journal import load, write_within
from tare.running.progress import BlockEnded, Event, RunBegins

ADDRESS = "127.0.0.1"
REFRESH_SECONDS = 5

_START_SECONDS = 20.0
_WRITE_SECONDS = 60.0  # a report that takes longer is the last one
_SHARE = 0.05  # of the run's time that writing may take
_CONNECTION_SECONDS = 10.0
_CONNECTIONS = 16
_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]+)?", re.IGNORECASE)  # any port: SSH may forward another one
_PAGE = "/report/index.html"
_FILES = {  # of each folder that is served: the ending of names, and the type
    "report": (".html", "text/html; charset=utf-8"),
    "raw": (".json", "text/plain; charset=utf-8"),
    "telemetry": (".parquet", "application/octet-stream"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_WAITING = f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta http-equiv="refresh" content="{REFRESH_SECONDS}"><link rel="icon" href="data:,"><title>tare</title>
<p>The run has begun. Its report follows after the first block.</p>
""".encode()


class ServedReport:
    """Progress reporter that has the report rewritten after blocks; the run continues if its server is lost."""

    def __init__(self, process: Process, stop: Callable[[], None], say: Callable[[str], None]) -> None:
        self._process: Process | None = process
        self._stop = stop
        self._say = say
        self._due = 0.0
        self._cpus: list[int] = []

    def __call__(self, event: Event) -> None:
        """Have the report written when the run begins and after a block, while nothing is measured."""
        if isinstance(event, RunBegins):
            allowed = os.sched_getaffinity(0)
            self._cpus = sorted(allowed - set(event.cpus) or allowed)
        elif not isinstance(event, BlockEnded) or time.monotonic() < self._due:
            return
        began = time.monotonic()
        with held_back():  # the child must not still write when an interrupted run writes its last report
            self._order([str(event.run.folder.absolute()), self._cpus], _WRITE_SECONDS)
        self._due = time.monotonic() + (time.monotonic() - began) / _SHARE

    def end(self) -> None:
        """Wait until browsers that show the unfinished report have loaded the last one."""
        self._order(None, 2 * REFRESH_SECONDS + _CONNECTION_SECONDS)

    def _order(self, order: object, timeout_seconds: float) -> None:
        if self._process is None:
            return
        try:
            self._process.send(json.dumps(order) + "\n")
            self._process.read_line(timeout_seconds)
        except TrialFailed as error:
            self._process = None
            self._stop()  # it must not work while the run measures
            self._say(f"the report is no longer served: {error}")


@contextmanager
def serve_report(port: int, say: Callable[[str], None]) -> Iterator[ServedReport]:
    """Serve the report of a run until the end of the block; port 0 chooses a free one. Raises UsageError."""
    with ExitStack() as exits:
        process = exits.enter_context(LocalHost().spawn(sys.executable, "-P", "-m", "tare.report.server", str(port)))
        answer = process.read_line(_START_SECONDS).text
        if not answer.isdigit():
            what = f"--port {port}: {ADDRESS} cannot be listened on there: {answer}"
            raise UsageError(what, "choose another port, or leave --port out for a free one")
        say(f"the run can be watched at http://{ADDRESS}:{answer}/")
        yield ServedReport(process, exits.close, say)


class ReportServer(ThreadingMixIn, TCPServer):
    """Server on the loopback address, with a bounded number of connections. Raises OSError for a port in use."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = _CONNECTIONS

    def __init__(self, port: int) -> None:
        self.folder: Path | None = None  # of the run; None until it exists
        self.last_shown = float("-inf")  # when a browser loaded the report, by the monotonic clock
        super().__init__((ADDRESS, port), _Handler)

    def await_readers(self) -> None:
        """Wait until a browser that shows the report has refreshed it; to load it takes as long again at most."""
        time.sleep(max(0.0, self.last_shown + 2 * REFRESH_SECONDS - time.monotonic()))

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002 - the library's
        """Return False, which closes the connection, if there are too many."""
        return threading.active_count() <= _CONNECTIONS


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    timeout = _CONNECTION_SECONDS
    server_version, sys_version = "tare", ""

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if not self._has_own_host():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        elif path == "/":
            self._begin(HTTPStatus.FOUND, {"Location": _PAGE, "Content-Length": "0"})
        elif file := open_linked(self.server.folder, path) or (io.BytesIO(_WAITING) if path == _PAGE else None):
            with file:
                size, kind = file.seek(0, os.SEEK_END), _FILES[path.split("/")[1]][1]
                self._begin(HTTPStatus.OK, {"Content-Type": kind, "Content-Length": str(size)})
                if self.command == "GET":
                    if path == _PAGE:
                        self.server.last_shown = time.monotonic()
                    file.seek(0)
                    shutil.copyfileobj(file, self.wfile)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET  # noqa: N815 - as the library calls it

    def _has_own_host(self) -> bool:
        """Return whether Host names this machine: a site whose DNS name leads here must not read the report."""
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and _OWN_HOST.fullmatch(hosts[0].strip()) is not None

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def end_headers(self) -> None:
        """Add the headers of every answer."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library calls it
        """Write no log."""


def open_linked(run: Path | None, path: str) -> BinaryIO | None:
    """Open a file of a run that its report may link to; None for all else. Follows no symbolic link in the folder."""
    folder, _, name = path.removeprefix("/").partition("/")
    if run is None or folder not in _FILES or not name.endswith(_FILES[folder][0]) or {"/", "\0"} & set(name):
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with suppress(OSError), ExitStack() as exits:
        within = os.open(run / folder, flags | os.O_DIRECTORY)
        exits.callback(os.close, within)
        descriptor = os.open(name, flags, dir_fd=within)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    return None


def main(port: int) -> None:
    """Serve until the end of standard input; answer with the port, then each order with an empty line."""
    try:
        server = ReportServer(port)
    except OSError as error:
        _answer((error.strerror or str(error)).lower())
        return
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    _answer(str(server.server_address[1]))
    for line in sys.stdin:
        if order := json.loads(line):
            server.folder = Path(order[0])
            _use_cpus(order[1])
            try:
                _write_unfinished(server.folder)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run continues without its server
                sys.exit(f"{type(error).__name__}: {error}")
        else:
            server.await_readers()
        _answer("")


def _answer(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _serve(server: ReportServer) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # inherited by the threads that answer
    server.serve_forever(86400)


def _use_cpus(cpus: Collection[int]) -> None:
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - numbers, no paths
        with suppress(ProcessLookupError):  # it has answered and ended
            os.sched_setaffinity(int(thread), cpus)


def _write_unfinished(folder: Path) -> None:
    """Write the report of a run as soon as a trial is ok."""
    run = load(folder)
    if any(trial.status == "ok" for trial in run.trials):
        # Large libraries, which the process that measures does without, and which would delay the address.
        from tare.report import html  # noqa: PLC0415
        from tare.statistics.summarize import summarize  # noqa: PLC0415

        for name, content in html.render(summarize(run), run, REFRESH_SECONDS).items():
            write_within(folder, f"report/{name}", content)


if __name__ == "__main__":
    main(int(sys.argv[1]))
