"""Bursts of load beside a measurement: of 0.1 to 3 s, half of the time, one to four busy processes on each CPU.

    python tests/bench/bursts.py SECONDS

Each busy process ends by itself with its burst, also if whoever started it was killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.1, 3.0
_MOST_PROCESSES = 4  # on each CPU


@contextmanager
def bursts(seed: int = 1) -> Iterator[None]:
    """Make bursts until the block ends; none of their processes is left then."""
    over = threading.Event()
    thread = threading.Thread(target=_make, args=(over, random.Random(seed)), name="bursts")  # noqa: S311 - no secret
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _make(over: threading.Event, chance: random.Random) -> None:
    """Rest and burst in turn: both last as long on average, so that half of the time is in bursts."""
    cpus = range(os.cpu_count() or 1)  # all of them: whoever starts bursts may be kept to some
    while not over.wait(chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS)):
        seconds, each = chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS), chance.randint(1, _MOST_PROCESSES)
        busy = [_busy(cpu, seconds) for cpu in cpus for _ in range(each)]
        over.wait(seconds)
        for process in busy:
            process.terminate()
            process.wait()


def _busy(cpu: int, seconds: float) -> subprocess.Popen[bytes]:
    """Keep a CPU busy for so long; `timeout` passes on the signal that ends it before."""
    return subprocess.Popen(("taskset", "-c", f"{cpu}", "timeout", f"{seconds:.3f}", "sh", "-c", "while :; do :; done"))


if __name__ == "__main__":
    with bursts():
        time.sleep(float(sys.argv[1]))
