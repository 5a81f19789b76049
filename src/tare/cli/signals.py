"""Signal handlers: the first signal stops a run in an orderly way.

While libraries load, Ctrl-C ends the process at once, because nothing needs cleanup yet. KeyboardInterrupt would not
end it: pydantic drops the exception while it builds a validator, and the command would continue.
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
    """Context manager: raise KeyboardInterrupt at the first SIGINT, SIGTERM or SIGHUP.

    Later signals are ignored, so that they do not interrupt the cleanup. Under `nohup`, the run continues without its
    terminal. If a library drops the exception, `raise_if_interrupted` raises it again.
    """
    from tare.hosts.process import STOP_REQUESTED  # noqa: PLC0415 - `tare --help` starts without it

    def interrupt(before: _Handlers) -> None:  # noqa: ARG001 - the handlers stay, to ignore later signals
        STOP_REQUESTED.set()
        raise KeyboardInterrupt

    try:
        with _handle_first_signal(interrupt):
            yield
    finally:
        STOP_REQUESTED.clear()


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """Context manager: yield an event that the first SIGINT, SIGTERM or SIGHUP sets.

    The second signal ends this process.
    """
    event = threading.Event()

    def stop(before: _Handlers) -> None:
        _restore_handlers(before)
        event.set()

    with _handle_first_signal(stop):
        yield event


@contextmanager
def _handle_first_signal(notify: Callable[[_Handlers], None]) -> Iterator[None]:
    """Context manager: at the first signal, call `notify` with the earlier handlers; ignore later signals.

    Later signals have the same handler, and not SIG_IGN: commands of the cleanup would inherit SIG_IGN, and Python
    prints an error about a signal that arrives just before its handler is replaced.
    """
    from tare.hosts.process import STOP_SIGNALS  # noqa: PLC0415 - `tare --help` starts without it

    has_stopped = False

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal handlers are
        nonlocal has_stopped
        is_first, has_stopped = not has_stopped, True
        if number == signal.SIGHUP:  # also after another signal: the terminal is gone all the same
            _detach_terminal()
        if is_first:
            notify(before)

    # `nohup` ignores SIGHUP, and the run must survive the end of its terminal.
    ignored = signal.SIGHUP if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else None
    before: _Handlers = {each: signal.getsignal(each) for each in STOP_SIGNALS if each != ignored}
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
    """Redirect the standard streams of a closed terminal to /dev/null; files stay.

    Each line of the cleanup would otherwise raise an OSError.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        with suppress(OSError):
            if not stat.S_ISREG(os.fstat(number).st_mode):
                os.dup2(null, number)
    os.close(null)


def end_at_interrupt() -> None:
    """End the process at Ctrl-C from now on, unless the parent has set SIGINT to be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_now)


def raise_at_interrupt() -> None:
    """Undo `end_at_interrupt`: Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _exit_now:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_now(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal handlers are
    os._exit(INTERRUPTED)
