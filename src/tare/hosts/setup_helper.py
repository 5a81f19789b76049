"""Client of the setup helper: a process that creates and removes instances' resources on a host by system calls.

A program for each control group, mount and network device would take more time than all of the kernel's work. It is
`setup_helper` of the image, started once on a host, with the first request; programs/setup_helper.c lists its steps.
"""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import ExitStack
from pathlib import Path

from tare.hosts.host import Host, Process
from tare.hosts.resident import quote
from tare.model.errors import TrialFailed

_SECONDS = 30.0

SetupStep = tuple[str, ...]


class SetupHelper:
    """The setup helper of a host, which has an image's directory at `root`. Any thread may use it."""

    def __init__(self, host: Host, root: Path) -> None:
        self._host = host
        self._programs = root / "usr/lib/tare"
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._open = ExitStack()

    @property
    def exec_in(self) -> str:
        """The program on the host that enters groups, limits, namespaces and roots (programs/exec_in.c)."""
        return str(self._programs / "exec_in")

    def run_steps(self, *steps: SetupStep) -> None:
        """Take steps, up to the first that fails; raises TrialFailed with its reason."""
        answer, *reason = self._request(steps)
        if answer != "done":
            raise TrialFailed(" ".join(reason), f"the steps were: {', '.join(' '.join(step) for step in steps)}")

    def bytes_below(self, folder: str) -> int:
        """Return the bytes that the files below a folder take on the disk."""
        answer, *words = self._request((("size", folder),))
        if answer != "done":
            raise TrialFailed(" ".join(words))
        return int(words[0])

    def try_steps(self, *steps: SetupStep) -> bool:
        """Take steps; return whether all of them succeeded."""
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
        """Return the words of an answer without its number."""
        with self._lock:
            number = str(next(self._numbers))
            lines = [" ".join(quote(os.fsencode(word)) for word in step) for step in (*steps, ("end", number))]
            try:
                process = self._ensure_process()
                process.send("".join(f"{line}\n" for line in lines))
                while True:  # an earlier answer may not have been read
                    answer, of, *reason = process.read_line(_SECONDS).text.split(" ")
                    if of == number:
                        return [answer, *reason]
            except TrialFailed:
                self._close()
                raise

    def _ensure_process(self) -> Process:
        if self._process is None:
            self._process = self._open.enter_context(
                self._host.spawn(str(self._programs / "setup_helper"), die_with_parent=True)
            )
        return self._process
