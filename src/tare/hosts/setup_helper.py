"""Client of the setup helper: a process that creates and removes the resources of instances by system calls.

Control groups, mounts and network devices take the kernel 2 ms of a trial; created by `mkdir`, `mount` and `ip`, they
take 55 ms. The process is `setup_helper` of the image (programs/setup_helper.c has its steps). The first request on a
host starts it.
"""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import ExitStack
from pathlib import Path

from tare.hosts.host import Host, Process
from tare.hosts.mounts import noexec_problem
from tare.hosts.resident import quote
from tare.model.errors import TrialFailed

_SECONDS = 30.0

SetupStep = tuple[str, ...]


class SetupHelper:
    """Client of the setup helper on a host, which has an image's directory at `root`. Any thread may use it."""

    def __init__(self, host: Host, root: Path) -> None:
        self._host = host
        self._programs = root / "usr/lib/tare"
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._open = ExitStack()

    @property
    def exec_in(self) -> str:
        """Path on the host of the program that enters groups, limits, namespaces and roots (programs/exec_in.c)."""
        return self.program_path("exec_in")

    def program_path(self, name: str) -> str:
        """Path on the host of a program of the image."""
        return str(self._programs / name)

    def run_steps(self, *steps: SetupStep) -> None:
        """Run steps in order, up to the first failure; raises TrialFailed with the reason of that step."""
        answer, *reason = self._request(steps)
        if answer != "done":
            raise TrialFailed(" ".join(reason), f"the steps were: {', '.join(' '.join(step) for step in steps)}")

    def bytes_below(self, folder: str) -> int:
        """Return the disk usage of the files below a folder, in bytes; raises TrialFailed."""
        answer, *words = self._request((("size", folder),))
        if answer != "done":
            raise TrialFailed(" ".join(words))
        return int(words[0])

    def try_steps(self, *steps: SetupStep) -> bool:
        """Run steps in order; return whether all of them succeeded."""
        try:
            return self._request(steps)[0] == "done"
        except TrialFailed:
            return False

    def close(self) -> None:
        """End the process; the next request starts it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._process = None
        self._open.close()

    def _request(self, steps: tuple[SetupStep, ...]) -> list[str]:
        """Send steps; return the words of the answer without its number. Raises TrialFailed."""
        with self._lock:
            number = str(next(self._numbers))
            lines = [" ".join(quote(os.fsencode(word)) for word in step) for step in (*steps, ("end", number))]
            try:
                process = self._ensure_process()
                process.send("".join(f"{line}\n" for line in lines))
                while True:  # an interrupt may have left an earlier answer unread
                    answer, answered, *reason = process.read_line(_SECONDS).text.split(" ")
                    if answered == number:
                        return [answer, *reason]
            except TrialFailed as error:  # the process has ended or hangs: the next request starts another
                self._close()
                mounts = self._host.read("/proc/self/mountinfo")
                if problem := noexec_problem(mounts, str(self._programs), "TARE_HOME"):
                    raise TrialFailed(problem.what, problem.fix) from error
                raise

    def _ensure_process(self) -> Process:
        if self._process is None:
            self._process = self._open.enter_context(
                self._host.spawn(str(self._programs / "setup_helper"), die_with_parent=True)
            )
        return self._process
