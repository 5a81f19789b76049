"""How tests wait: for what is to happen, on a machine that may be busy. What takes longer than enough hangs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tare.runner.cleanup import HostInventory

ENOUGH_SECONDS = 120.0
_LONGEST_PAUSE = 2.0
ENOUGH_MS = ENOUGH_SECONDS * 1000  # for browsers


def comes_true(condition: Callable[[], object]) -> bool:
    """Return whether a condition becomes true before enough seconds have passed."""
    deadline = time.monotonic() + ENOUGH_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    assert comes_true(condition), f"it hangs: after {ENOUGH_SECONDS:g} s, this is still not so"


def staying(left: HostInventory, look: Callable[[], HostInventory], seconds: float) -> HostInventory:
    """Return what stays for these seconds; what comes and goes belongs to somebody else who works on this machine."""
    deadline, pause = time.monotonic() + seconds, 0.25
    while left and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)  # each look starts the clients of all engines
        left = left.intersect(look())
    return left


def sleepers(seconds: int) -> list[int]:
    """Return the numbers of our processes `sleep SECONDS`: the tests of another checkout have another folder."""
    words = f"sleep\0{seconds}\0".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes() == words and (process / "cwd").readlink() == Path.cwd():
                found.append(int(process.name))
    return found


def rests(pid: int, seconds: float = 1.0) -> bool:
    """Return whether a process sleeps, and does not wake for a while."""
    before = _state(pid)
    time.sleep(seconds)
    return before.startswith("S") and before == _state(pid)


def _state(pid: int) -> str:
    fields = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines())
    return f"{fields['State']} {fields['voluntary_ctxt_switches']}"


def in_time(allowed: Callable[[float], object], begun: Callable[[], object]) -> None:
    """Call something with a time-out of a second; with a longer one if the machine is too busy to begin by then."""
    for seconds in (1.0, 4.0, 16.0, 64.0):
        allowed(seconds)
        if begun():
            return
    raise AssertionError("it hangs: it has not begun within a minute")


def wait_with(process: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    """Wait until something is so, while a process runs."""

    def has_come() -> bool:
        if until():
            return True
        assert process.poll() is None
        return False

    wait_until(has_come)
