"""Signals: the first one stops a run in an orderly way.

While libraries load, Ctrl-C ends the command at once, as nothing has been done yet. An exception would not do then:
what pydantic calls while it builds a validator drops it, and the command would go on.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_Handlers = Mapping[signal.Signals, Any]
INTERRUPTED = 130  # 128 + SIGINT, as a shell gives it


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into an orderly stop.

    A second one does not interrupt the cleaning up. Under `nohup`, the run goes on without its terminal. Where a
    library drops the exception, `heed_stop` raises it again.
    """
    from tare.hosts.process import STOP_REQUESTED  # noqa: PLC0415 - `tare --help` starts without it

    def ignore_signals(before: _Handlers) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)

    def interrupt() -> None:
        STOP_REQUESTED.set()
        raise KeyboardInterrupt

    try:
        with _handle_first_signal(ignore_signals, interrupt):
            yield
    finally:
        STOP_REQUESTED.clear()


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """Set an event at the first SIGINT, SIGTERM or SIGHUP; a second one ends this process as usual."""
    asked = threading.Event()
    with _handle_first_signal(_restore_handlers, asked.set):
        yield asked


@contextmanager
def _handle_first_signal(then: Callable[[_Handlers], None], notify: Callable[[], None]) -> Iterator[None]:
    """At the first signal in the block, let `then` say what becomes of the next ones, and call `notify`."""
    from tare.hosts.process import STOP_SIGNALS  # noqa: PLC0415 - `tare --help` starts without it

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal handlers are
        then(before)
        if number == signal.SIGHUP:
            _detach_terminal()
        notify()

    unheard = signal.SIGHUP if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else None
    before: _Handlers = {each: signal.getsignal(each) for each in STOP_SIGNALS if each != unheard}
    for each in before:
        signal.signal(each, stop)
    try:
        yield
    finally:
        _restore_handlers(before)


def _restore_handlers(before: _Handlers) -> None:
    for each, handler in before.items():
        signal.signal(each, handler)


def _detach_terminal() -> None:
    """Discard output to a terminal that is gone, which would raise an error for each line."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        with suppress(OSError):
            if not stat.S_ISREG(os.fstat(number).st_mode):
                os.dup2(nowhere, number)
    os.close(nowhere)


def end_at_interrupt() -> None:
    """End at Ctrl-C from now on, unless somebody has decided otherwise, as `nohup` does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_now)


def raise_at_interrupt() -> None:
    """Raise KeyboardInterrupt at Ctrl-C again."""
    if signal.getsignal(signal.SIGINT) is _exit_now:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_now(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal handlers are
    os._exit(INTERRUPTED)
