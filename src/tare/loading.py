"""What this process sets before its libraries load: what Ctrl-C does, and its umask.

Ctrl-C ends it at once, as nothing has been done yet. An exception would not do: what pydantic calls while it builds a
validator drops it, and the command would go on.
"""

from __future__ import annotations

import os
import signal
from functools import cache
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


@cache
def set_umask() -> int:
    """Set the umask 022, once, and return the user's: bytes and rights of images must not depend on that.

    With 077, no user but root could enter the root folder of an instance.
    """
    return os.umask(0o022)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal handlers are
    os._exit(INTERRUPTED)
