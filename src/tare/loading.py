"""Ctrl-C while the libraries load, when nothing has been done yet: it ends this process at once.

An exception would not do: what pydantic calls while it builds a validator drops it, and the command would go on.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130  # 128 + SIGINT, as a shell gives it


def end_at_interrupt() -> None:
    """End at Ctrl-C from now on, unless somebody has decided otherwise, as `nohup` does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_at_interrupt() -> None:
    """Raise KeyboardInterrupt at Ctrl-C again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal handlers are
    os._exit(INTERRUPTED)
