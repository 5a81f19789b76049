"""An orderly stop of a command that changes the machine, at the first signal."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from tare.hosts.process import STOP_ASKED, STOPPING


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into an orderly stop.

    A second one does not interrupt the cleaning up. Under `nohup`, the run goes on without its terminal. Where a
    library drops the exception, `heed_stop` raises it again.
    """

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal handlers are
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGHUP:
            _leave_terminal()
        STOP_ASKED.set()
        raise KeyboardInterrupt

    unheard = signal.SIGHUP if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else None
    before = {each: signal.getsignal(each) for each in STOPPING if each != unheard}
    for each in before:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        STOP_ASKED.clear()


@contextmanager
def stop_asked() -> Iterator[threading.Event]:
    """Set an event at the first SIGINT, SIGTERM or SIGHUP; a second one ends this process as usual."""
    asked = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal handlers are
        for each, handler in before.items():
            signal.signal(each, handler)
        if number == signal.SIGHUP:
            _leave_terminal()
        asked.set()

    unheard = signal.SIGHUP if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else None
    before = {each: signal.getsignal(each) for each in STOPPING if each != unheard}
    for each in before:
        signal.signal(each, stop)
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _leave_terminal() -> None:
    """Discard output to a terminal that is gone, which would raise an error for each line."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        with suppress(OSError):
            if not stat.S_ISREG(os.fstat(number).st_mode):
                os.dup2(nowhere, number)
    os.close(nowhere)
