"""The side of the run: it starts the process that serves the live page, and reports to it what happens.

While anything is measured, that is a note on a board, at most twice a second. Pages are made only where nothing is
measured, after a trial or a block, and for at most a twentieth of the run's time: the run waits meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from tare.contracts.workloads import Workload
from tare.errors import TareError, TrialFailed, UsageError
from tare.hosts.host import Process
from tare.hosts.local import LocalHost
from tare.live.board import Board, Now
from tare.live.server import ADDRESS
from tare.report.first_rows import FirstRows
from tare.running.progress import (
    BlockBegins,
    BlockEnded,
    Event,
    ProgressReporter,
    RunBegins,
    TrialBegins,
    TrialEnded,
    TurnEnded,
    TurnsBegin,
)
from tare.running.schedule import BlockTiming, TimeLeft
from tare.suites.plan import Step
from tare.units import format_duration

_MODULE = "tare.live.serving"
_START_SECONDS = 20.0
_PAGE_SECONDS = 60.0  # a page that takes longer is the last one
_END_SECONDS = 90.0
_SHARE = 20  # times what a page took have to pass before the next one
_LEAST_SECONDS = 2.0
_NOTE_SECONDS = 0.5

Say = Callable[[str], None]


class LivePage:
    """The page of a run in a browser. When its process is lost, the run goes on without it."""

    def __init__(self, process: Process, board: Board, stop: Callable[[], None], say: Say) -> None:
        self._process: Process | None = process
        self._board = board
        self._stop = stop
        self._say = say
        self.cpus: list[int] = []  # that its process may use, once the run has begun
        self._orders = 0
        self._began = time.monotonic()
        self._due = 0.0
        self._trouble = ""

    def begin(self, folder: Path, measured: Collection[int]) -> None:
        """Show the pages of this run folder from now on, but by no work on CPUs of this machine that are measured.

        Comes before anything is measured.
        """
        allowed = os.sched_getaffinity(0)
        self.cpus = sorted(allowed - set(measured) or allowed)
        self._order("begin", folder=str(folder.absolute()), cpus=self.cpus)

    @property
    def report(self) -> ProgressReporter:
        """What shows the run on the page."""
        return PageReporter(self)

    def note(self, now: Now) -> None:
        """Show what is done now. This takes no time."""
        self._board.write(now)

    def renew(self) -> None:
        """Renew the page if it is due. Nothing is measured during that."""
        began = time.monotonic()
        if began >= self._due:
            self._order("page")
            ended = time.monotonic()
            self._due = ended + max(_LEAST_SECONDS, _SHARE * (ended - began))

    def end(self, why: str, report: Path | None = None) -> None:
        """Show how the run ended, to those who watch it."""
        answer = self._order("end", _END_SECONDS, why=why, report=str(report.absolute()) if report else "")
        self._process = None
        if answer.get("answered"):
            self._say(_cost(answer, time.monotonic() - self._began))

    def _order(self, what: str, seconds: float = _PAGE_SECONDS, **more: object) -> dict[str, Any]:
        """Order something and wait until it is done; return the answer, empty without one."""
        if self._process is None:
            return {}
        self._orders += 1
        try:
            self._process.send(json.dumps({"do": what, "order": self._orders, **more}) + "\n")
            answer: dict[str, Any] = {}
            while answer.get("order") != self._orders:  # an interrupt may have left an answer untaken
                answer = json.loads(self._process.read_line(seconds).text)
        except TrialFailed as error:
            self._process = None
            self._stop()  # it must not work while the run goes on to measure
            self._say(f"the run is no longer served: {error}")
            return {}
        if answer["trouble"] and answer["trouble"] != self._trouble:
            self._say(answer["trouble"])
        self._trouble = answer["trouble"]
        return answer


class PageReporter:
    """Shows on the page what a run reports.

    Of turns, it keeps the latest output of each stack, and with each note it reads that of one stack.
    """

    _timing: BlockTiming

    def __init__(self, page: LivePage) -> None:
        self._page = page
        self._workloads: Mapping[str, Workload] = {}
        self._rows = FirstRows({})
        self._latest: dict[str, str] = {}  # of each stack, the one that was read last at the end
        self._noted = 0.0

    def __call__(self, event: Event) -> None:
        """Note what happens, or renew the page while nothing is measured."""
        match event:
            case RunBegins():
                self._workloads = event.workloads
                self._rows = FirstRows(event.workloads)
                self._page.begin(event.run.folder, event.cpus)
            case BlockBegins(timing):
                self._timing = timing
            case TrialBegins(step):
                self._note_trial(step)
            case TurnsBegin(number, stacks):
                left = self._timing.turns_begin(number)
                if time.monotonic() - self._noted >= _NOTE_SECONDS:
                    self._note_turns(number, stacks, left)
            case TurnEnded(step, raw):
                self._rows.learn(step, raw)
                self._latest.setdefault(step.stack, "")
            case TrialEnded():
                self._page.renew()
            case BlockEnded():
                self._rows, self._latest = FirstRows(self._workloads), {}
                self._page.renew()

    def _note_trial(self, step: Step) -> None:
        following = self._timing.following(step)
        after = f"{following.stack}, {following.workload}" if following else ""
        self._note(self._timing.trial_begins(step), workload=step.workload, stack=step.stack, following=after)

    def _note_turns(self, number: int, stacks: int, left: TimeLeft) -> None:
        self._read_one()
        latest = tuple(sorted((stack, text) for stack, text in self._latest.items() if text))
        turn = {"turn": number + 1, "turns": self._timing.turns or 0, "stacks": stacks}
        self._note(left, workload=self._timing.block.workload, latest=latest, **turn)

    def _read_one(self) -> None:
        unread = (stack for stack, text in self._latest.items() if not text)
        stack = next(unread, None) or next(iter(self._latest), None)
        if stack:
            del self._latest[stack]
            self._latest[stack] = self._rows.latest(stack)

    def _note(self, left: TimeLeft, **what: Any) -> None:
        self._noted = time.monotonic()
        now = Now(
            since=self._noted,
            block=left.blocks_done + 1,
            blocks=left.blocks,
            spent_seconds=left.spent_seconds,
            left_seconds=left.left_seconds,
            **what,
        )
        self._page.note(now)


@contextmanager
def served(port: int, say: Say) -> Iterator[LivePage]:
    """Serve the page of a run; 0 takes a free port. Raises UsageError where this one cannot be had.

    After the block nothing is left of it. An error that ends the block is shown to those who watch.
    """
    command = (sys.executable, "-P", "-m", _MODULE)
    with closing(Board()) as board, ExitStack() as exits:
        process = exits.enter_context(LocalHost().spawn(*command, str(port), str(board.path)))
        answer = json.loads(process.read_line(_START_SECONDS).text)
        if "port" not in answer:
            what = f"--port {port}: {ADDRESS} cannot be listened on there: {answer['trouble']}"
            raise UsageError(what, "choose another port, or leave --port out for a free one")
        page = LivePage(process, board, exits.close, say)
        say(f"the run can be watched at http://{ADDRESS}:{answer['port']}/")
        try:
            yield page
        except TareError as error:
            page.end(f"it stopped with an error: {error}")
            raise


def _cost(answer: dict[str, Any], seconds: float) -> str:
    share = 100 * answer["serving_seconds"] / seconds if seconds else 0.0
    making = format_duration(round(answer["page_seconds"], 1))
    return (
        f"the run was watched: {answer['answered']} requests took {share:.2g} % of a CPU; "
        f"{answer['pages']} pages took {making} between trials"
    )
