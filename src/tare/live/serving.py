"""The process that serves the live page: `python -m tare.live.serving PORT BOARD`, which `watch.py` starts.

It takes orders on its standard input and answers each with a line, both in JSON, and ends with its standard input:

- `begin`: the run folder is there; it may use these CPUs. From here on it is ready to make pages.
- `page`: make the page from the run folder, if a browser watches. Only meanwhile it works for more than an instant:
  whoever orders a page waits, and measures nothing until it is made.
- `end`: show how the run ended, wait for those who watch to get that, and end.

Browsers are answered by threads that run only where a CPU has nothing else to do.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.live.bar import Ended, Going, bar, last_bar
from tare.live.board import read_board
from tare.live.server import Server
from tare.live.watchers import RELOAD_SECONDS, Watchers

if TYPE_CHECKING:
    from tare.journal import RunReader

PLACE = b'<div id="live"></div>'  # where the page has its bar
RELOAD = f'<noscript><meta http-equiv="refresh" content="{RELOAD_SECONDS}"></noscript>'.encode()

_FOREVER = 86400.0
_LOOK_SECONDS = 0.05  # how often it looks whether all have got the last page


@dataclass
class Showing:
    """What browsers are shown; see `server.Shown`."""

    board: Path
    watchers: Watchers = field(default_factory=Watchers)
    run: Path | None = None
    ended: Ended | None = None
    trouble: str = ""
    number: int = 0  # of the page
    answered: int = 0
    content: bytes = b""
    there: threading.Event = field(default_factory=threading.Event)

    def page(self) -> bytes:
        """Return the page; waits for the first one."""
        self.there.wait()
        content = self.content.replace(PLACE, self.now(), 1)
        return content.replace(RELOAD, b"", 1) if self.ended else content

    def now(self) -> bytes:
        """Return its bar."""
        if self.ended:
            return last_bar(self.number, self.ended).encode()
        going = Going(read_board(self.board), time.monotonic(), str(self.run or ""), self.trouble)
        return bar(self.number, going).encode()

    def folder(self) -> Path | None:
        """Return the run folder."""
        return self.run

    def loads(self) -> None:
        """Record a browser."""
        self.answered += 1
        self.watchers.loads(time.monotonic())

    def asks(self, name: str, page: int) -> None:
        """Record a page's script."""
        self.answered += 1
        self.watchers.asks(name, page, time.monotonic())

    def show(self, content: bytes, ended: Ended | None = None) -> None:
        """Show another page."""
        self.content, self.ended, self.number = content, ended, self.number + 1
        self.there.set()


@dataclass
class Making:
    """Makes pages; `seconds` are those that it took so far, `cpu_seconds` those with what the process began with."""

    showing: Showing
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    _reader: RunReader | None = None

    def make(self, ended: Ended | None = None) -> None:
        """Make the page from the run folder, or that of a run that begins as long as there is no folder."""
        began, cpu = time.monotonic(), time.process_time()
        try:
            self.showing.show(self._made(), ended)
            self.showing.trouble = ""
        except Exception as error:  # noqa: BLE001 - a page that cannot be made must not end the run
            self.showing.trouble = f"The page could not be renewed: {error}"
            self.showing.show(self.showing.content, ended)
        self.seconds += time.monotonic() - began
        self.cpu_seconds += time.process_time() - cpu

    def _made(self) -> bytes:
        # Loaded here, so that the address is known before that: most of tare is needed to make a page.
        from tare.journal import RunReader  # noqa: PLC0415
        from tare.report.html import begun, live  # noqa: PLC0415
        from tare.statistics.summarize import summarize  # noqa: PLC0415

        if self.showing.run is None:
            return begun()
        self._reader = self._reader or RunReader(self.showing.run)
        run = self._reader.read()
        return live(summarize(run), run)


def main(port: int, board: Path) -> None:
    """Serve until the end of standard input, or the order to end."""
    showing = Showing(board)
    try:
        server = Server(port, showing)
    except OSError as error:
        _reply(trouble=(error.strerror or str(error)).lower())
        return
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    _reply(port=server.server_port)
    making = Making(showing, cpu_seconds=time.process_time())
    making.make()
    for line in sys.stdin:
        order = json.loads(line)
        _carry_out(order, making)
        _reply(
            order=order["order"],
            trouble=showing.trouble,
            pages=showing.number,
            answered=showing.answered,
            page_seconds=making.seconds,
            serving_seconds=max(0.0, time.process_time() - making.cpu_seconds),
        )
        if order["do"] == "end":
            return


def _serve(server: Server) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    server.serve_forever(_FOREVER)


def _carry_out(order: dict[str, Any], making: Making) -> None:
    showing = making.showing
    if order["do"] == "begin":
        showing.run = Path(order["folder"])
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - numbers, no paths
            with suppress(ProcessLookupError):  # its browser has its answer, and it has ended
                os.sched_setaffinity(int(thread), order["cpus"])
    elif not showing.watchers.there(time.monotonic()):
        return
    elif order["do"] == "page":
        making.make()
    else:
        making.make(Ended(order["why"], order["report"]))
        _await_watchers(showing, time.monotonic())


def _await_watchers(showing: Showing, since: float) -> None:
    """Wait until all who watch have got the last page, for as long as it takes a browser without scripts to ask."""
    while showing.watchers.lack(showing.number, since, time.monotonic()):
        time.sleep(_LOOK_SECONDS)


def _reply(**answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
