"""Whether decisions stay right beside a busy neighbor: the audit's 3 % of more work in a container, beside each kind.

For each neighbor, so many runs are done until all is decided: `crun`, `crun` again, and `heavier`, in which a job has
3 % more passes. False is a verdict that the two alike differ, and one that the heavier is better or no slower.

    PYTHONPATH=tests/plug_ins:tests/support python research/neighbors.py RUNS [NEIGHBOR...]

`neighbors.py --be NEIGHBOR SECONDS` is the neighbor itself, which ends after so many seconds at the latest.
"""

from __future__ import annotations

import mmap
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median

from audit_real import Contained, contained

from tare.hosts.facts import parse_meminfo
from tare.model.files import read_text

_CHUNK = 1 << 20
_FILE_BYTES = 256 << 20
_LEFT_BYTES = 768 << 20  # of memory that can be had, beside the one who takes it
_RUN_SECONDS = 1200.0
_PASSES = 200  # of the job in a turn, which takes 30 ms


def _hog(until: float) -> None:
    """Keep one CPU busy, another one each fraction of a second."""
    cpus = sorted(os.sched_getaffinity(0))
    while (now := time.monotonic()) < until:
        os.sched_setaffinity(0, {random.choice(cpus)})  # noqa: S311 - nothing secret
        end = now + random.uniform(0.1, 1.0)  # noqa: S311
        while time.monotonic() < end:
            pass


def _writer(until: float) -> None:
    """Write a file again and again, and wait until the disk has it."""
    data = os.urandom(_CHUNK)
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < until:
            file.seek(0)
            for _ in range(_FILE_BYTES // _CHUNK):
                file.write(data)
            os.fsync(file.fileno())


def _flood(until: float) -> None:
    """Send packets over loopback, as many as go."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taker,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        taker.bind(("127.0.0.1", 0))
        where, data = taker.getsockname(), bytes(1400)
        while time.monotonic() < until:
            for _ in range(1000):
                sender.sendto(data, where)


def _memory(until: float) -> None:
    """Take all memory but a rest, and touch it again and again; what others free is taken as well."""
    taken: list[mmap.mmap] = []
    while time.monotonic() < until:
        while _available_bytes() > _LEFT_BYTES:
            taken.append(mmap.mmap(-1, 64 * _CHUNK))
            taken[-1].write(os.urandom(_CHUNK) * 64)
        for each in taken:
            for offset in range(0, len(each), mmap.PAGESIZE):
                each[offset] = 1
            if time.monotonic() >= until or _available_bytes() < _LEFT_BYTES // 2:
                break
        if taken and _available_bytes() < _LEFT_BYTES // 2:
            taken.pop().close()


def _available_bytes() -> int:
    return parse_meminfo(read_text("/proc/meminfo")).available_bytes or 0


NEIGHBORS: dict[str, Callable[[float], None]] = {
    "nobody": lambda until: time.sleep(max(0.0, until - time.monotonic())),
    "a busy loop that changes CPUs": _hog,
    "a writer to the disk": _writer,
    "a flood over loopback": _flood,
    "one who takes the memory": _memory,
}


@contextmanager
def beside(name: str) -> Iterator[None]:
    """Let a neighbor work until the block ends."""
    words = (sys.executable, __file__, "--be", name, f"{_RUN_SECONDS:g}")
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as process:
        try:
            time.sleep(1.0)
            yield
            assert process.poll() is None, f"{name} has ended"
        finally:
            process.kill()


def row(name: str, runs: Sequence[Contained]) -> str:
    """Return what was decided, as a row of a table."""
    heavier, alike = (Counter(getattr(run, which).verdict for run in runs) for which in ("heavier", "alike"))
    false = heavier["better"] + heavier["equivalent"] + alike["better"] + alike["worse"]
    counts = (len(runs), heavier["worse"], false, f"{median(run.blocks for run in runs):g}")
    trials = (sum(run.trials for run in runs), sum(run.quarantined for run in runs))
    return f"| {name} | {' | '.join(map(str, (*counts, *trials)))} |"


def main() -> None:
    """Print a row for each neighbor."""
    if sys.argv[1] == "--be":
        return NEIGHBORS[sys.argv[2]](time.monotonic() + float(sys.argv[3]))
    print("| beside | runs | found to be slower | false | blocks, median | trials | quarantined |", flush=True)
    for name in sys.argv[2:] or NEIGHBORS:
        runs = []
        for run in contained(int(sys.argv[1]), partial(beside, name), _PASSES):
            runs.append(run)
            said = (run.heavier.verdict, run.alike.verdict, run.blocks, run.quarantined)
            print(name, *said, sep=", ", file=sys.stderr, flush=True)
        print(row(name, runs), flush=True)
    return None


if __name__ == "__main__":
    main()
