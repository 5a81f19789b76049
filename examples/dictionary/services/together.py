"""Several programs as one service: each starts once the one before it answers, and they end together.

One that ends, ends all: a web service without its cache is another application.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

_START_SECONDS = 600.0  # in an emulated machine, too: who waits for the service has a limit of its own
_END_SECONDS = 5.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Program:
    """A program that stays in the foreground, and where it takes connections once it is ready."""

    argv: tuple[str, ...]
    address: str
    port: int


class NotStarted(Exception):
    """A program has ended, or does not answer."""


def run_together(programs: Sequence[Program]) -> int:
    """Start programs in their order, and wait until one of them ends or this process is told to; gives an exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    running: list[subprocess.Popen[bytes]] = []
    try:
        for each in programs:
            running.append(subprocess.Popen(each.argv, stdin=subprocess.DEVNULL))
            _await(each, running[-1])
        ended, _ = os.wait()
        names = {process.pid: program.argv[0] for process, program in zip(running, programs, strict=True)}
        sys.stderr.write(f"{names.get(ended, ended)} has ended\n")
    except NotStarted as error:
        sys.stderr.write(f"{error}\n")
    finally:
        end(running)
    return 1


def end(running: Sequence[subprocess.Popen[bytes]], within_seconds: float = _END_SECONDS) -> None:
    """End processes, the last first; those that do not end are killed."""
    for process in reversed(running):
        process.terminate()
    for process in reversed(running):
        try:
            process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(program: Program, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise NotStarted(f"{program.argv[0]} has ended with {process.returncode}")
        with suppress(OSError), socket.create_connection((program.address, program.port), timeout=1):
            return
        time.sleep(_LOOK_SECONDS)
    raise NotStarted(f"{program.argv[0]} takes no connections at port {program.port} after {_START_SECONDS:.0f} s")
