"""The board: what a run does now, in memory that another process reads when it likes.

Nobody waits for anybody: the run writes over what was there, whether or not somebody has read it. A checksum tells the
reader that it read in the middle of that.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

_TRIES = 20


@dataclass(frozen=True)
class Now:
    """What a run does now.

    `since` is the moment at which it was so, by the monotonic clock of the machine that tare runs on, which all its
    processes share. `spent_seconds` and `left_seconds` are those of the run at that moment. `turn` counts from 1, and
    is 0 where stacks take no turns; `turns` is 0 where nobody knows how many there will be. `latest` has what a
    recent turn of each stack has shown.
    """

    since: float
    workload: str
    stack: str = ""
    following: str = ""
    turn: int = 0
    turns: int = 0
    stacks: int = 0
    block: int = 1
    blocks: int = 1
    spent_seconds: float = 0.0
    left_seconds: float = 0.0
    latest: tuple[tuple[str, str], ...] = ()


class Board:
    """Writes what is done now."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("tare-live")

    @property
    def path(self) -> Path:
        """Where another process of root can read it, as long as this one has it."""
        return Path(f"/proc/{os.getpid()}/fd/{self._descriptor}")

    def write(self, now: Now) -> None:
        """Write over what is there."""
        text = json.dumps(asdict(now)).encode() + b"\n"
        os.pwrite(self._descriptor, b"%08x %s" % (crc32(text), text), 0)

    def close(self) -> None:
        """Close it. Its memory is freed when its readers have closed it, too."""
        os.close(self._descriptor)


def read_board(path: Path) -> Now | None:
    """Read what is done now; None while nothing is written, or where the writer is gone."""
    try:
        with path.open("rb", buffering=0) as file:
            return next((now for _ in range(_TRIES) if (now := _parsed(os.pread(file.fileno(), 1 << 16, 0)))), None)
    except OSError:
        return None


def _parsed(content: bytes) -> Now | None:
    sum_of_it, _, rest = content.partition(b" ")
    text, end, _ = rest.partition(b"\n")
    if not end or sum_of_it != b"%08x" % crc32(text + end):
        return None
    fields = json.loads(text)
    return Now(**fields | {"latest": tuple((stack, told) for stack, told in fields["latest"])})
