"""Server of a run's report: a child process writes the report between blocks and serves it on the loopback address.

`serve_report` runs in the process that measures and starts the child, whose program is `main`. The child stays off the
measured CPUs and answers GET and HEAD for the report and the files that the report links to. docs/decisions/page.md has
the reasons.

Parent and child exchange lines on the child's standard input and output: first the child's port or an error, then for
each request in JSON (`[FOLDER, CPUS]`: write the report; `null`: wait for browsers) an empty line once it is done.
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

from tare.hosts.host import Process
from tare.hosts.local import LocalHost
from tare.hosts.process import defer_signals
from tare.model.errors import TrialFailed, UsageError
from tare.model.files import write_within
from tare.model.run_folder import load_run
from tare.runner.events import BlockEnded, RunBegins, RunEvent

ADDRESS = "127.0.0.1"
REFRESH_SECONDS = 5

_START_SECONDS = 20.0
_WRITE_SECONDS = 60.0  # if the report takes longer, the server is stopped
_MAX_TIME_SHARE = 0.05  # of the run's time, for writing reports, during which the run waits
_CONNECTION_SECONDS = 10.0
_CONNECTIONS = 16
_LOOPBACK_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]+)?", re.IGNORECASE)  # SSH may forward another port
_PAGE = "/report/index.html"
_FILES = {  # by folder of the run that is served: suffix of the files' names, and media type
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
_WAITING_PAGE = f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta http-equiv="refresh" content="{REFRESH_SECONDS}"><link rel="icon" href="data:,"><title>tare</title>
<p>The run has begun. Its report follows after the first block.</p>
""".encode()


class ServedReport:
    """Progress reporter whose child process rewrites the report after blocks; the run continues if the child fails.

    `stop` ends the child. `say` receives the message that it failed.
    """

    def __init__(self, process: Process, stop: Callable[[], None], say: Callable[[str], None]) -> None:
        self._process: Process | None = process
        self._stop = stop
        self._say = say
        self._due = 0.0
        self._cpus: list[int] = []

    def __call__(self, event: RunEvent) -> None:
        """Have the report written when the run begins and after a block, and wait, so that nothing is measured then.

        A block is skipped if writing after it would exceed the share of the run's time.
        """
        if isinstance(event, RunBegins):
            allowed = os.sched_getaffinity(0)
            self._cpus = sorted(allowed - set(event.cpus) or allowed)  # all, if the run measures on all
        elif not isinstance(event, BlockEnded) or time.monotonic() < self._due:
            return
        began = time.monotonic()
        with defer_signals():  # the child must not still write when an interrupted run writes its last report
            self._order([str(event.run.folder.absolute()), self._cpus], _WRITE_SECONDS)
        self._due = time.monotonic() + (time.monotonic() - began) / _MAX_TIME_SHARE

    def end(self) -> None:
        """Wait until browsers that show the unfinished report have loaded the final one."""
        self._order(None, 2 * REFRESH_SECONDS + _CONNECTION_SECONDS)

    def _order(self, order: object, timeout_seconds: float) -> None:
        """Send a request to the child and wait until it is done; stop the child if it fails or exceeds the time."""
        if self._process is None:
            return
        try:
            self._process.send(json.dumps(order) + "\n")
            self._process.read_line(timeout_seconds)
        except TrialFailed as error:
            self._process = None
            self._stop()  # a child that is still writing would disturb the measurements
            self._say(f"the report is no longer served: {error}")


@contextmanager
def serve_report(port: int, say: Callable[[str], None]) -> Iterator[ServedReport]:
    """Context manager: serve the report of a run on a port, 0 for a free one. Raises UsageError if it is in use."""
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
        """Wait until a browser that shows the report has refreshed it, if one has.

        The refresh comes `REFRESH_SECONDS` after the page has loaded; loading is given the same time.
        """
        time.sleep(max(0.0, self.last_shown + 2 * REFRESH_SECONDS - time.monotonic()))

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002 - the library's
        """Return False, which closes the connection, if too many threads are answering."""
        return threading.active_count() <= _CONNECTIONS


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    timeout = _CONNECTION_SECONDS
    server_version, sys_version = "tare", ""

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if not self._has_loopback_host():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        elif path == "/":
            self._send_head(HTTPStatus.FOUND, {"Location": _PAGE, "Content-Length": "0"})
        elif file := open_linked(self.server.folder, path) or (io.BytesIO(_WAITING_PAGE) if path == _PAGE else None):
            with file:
                size, media_type = file.seek(0, os.SEEK_END), _FILES[path.split("/")[1]][1]
                self._send_head(HTTPStatus.OK, {"Content-Type": media_type, "Content-Length": str(size)})
                if self.command == "GET":
                    if path == _PAGE:
                        self.server.last_shown = time.monotonic()
                    file.seek(0)
                    shutil.copyfileobj(file, self.wfile)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET  # noqa: N815 - as the library calls it

    def _has_loopback_host(self) -> bool:
        """Return whether the Host header is a loopback name, so that no web site reads the report by DNS rebinding."""
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and _LOOPBACK_HOST.fullmatch(hosts[0].strip()) is not None

    def _send_head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def end_headers(self) -> None:
        """Add the headers that every response has, errors too, and end the headers."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library calls it
        """Write no log, as the parent shows the end of standard error if this process fails."""


def open_linked(run: Path | None, path: str) -> BinaryIO | None:
    """Open the file at a URL's path if a run's report may link to it; None if not, or if it is no regular file.

    `run` is the run's folder, None if there is none yet. Follows no symbolic link in the folder, which is untrusted.
    """
    folder, _, name = path.removeprefix("/").partition("/")
    if run is None or folder not in _FILES or not name.endswith(_FILES[folder][0]) or {"/", "\0"} & set(name):
        return None
    # O_NONBLOCK: opening a FIFO would wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with suppress(OSError), ExitStack() as exits:
        folder_descriptor = os.open(run / folder, flags | os.O_DIRECTORY)
        exits.callback(os.close, folder_descriptor)
        descriptor = os.open(name, flags, dir_fd=folder_descriptor)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    return None


def main(port: int) -> None:
    """Serve a port until the end of standard input, and carry out the requests there (see the module)."""
    try:
        server = ReportServer(port)
    except OSError as error:
        _reply((error.strerror or str(error)).lower())
        return
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    _reply(str(server.server_address[1]))
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
        _reply("")


def _reply(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _serve(server: ReportServer) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # inherited by the threads that answer
    server.serve_forever(86400)  # seconds between checks for a shutdown, which never comes: no wake-ups in between


def _use_cpus(cpus: Collection[int]) -> None:
    """Move all threads of this process to the CPUs."""
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - numbers, no paths
        with suppress(ProcessLookupError):  # a thread that has ended in the meantime
            os.sched_setaffinity(int(thread), cpus)


def _write_unfinished(folder: Path) -> None:
    """Write the report of an unfinished run, unless no trial is ok yet."""
    run = load_run(folder)
    if any(trial.status == "ok" for trial in run.trials):
        # Imported here, as these import large libraries, which would delay the server's start.
        from tare.report.html.page import render  # noqa: PLC0415
        from tare.statistics.summarize import summarize  # noqa: PLC0415

        for name, content in render(summarize(run), run, REFRESH_SECONDS).items():
            write_within(folder, f"report/{name}", content)


if __name__ == "__main__":
    main(int(sys.argv[1]))
