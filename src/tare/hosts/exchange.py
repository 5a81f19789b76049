"""Gives a process its input, and takes what it prints."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from typing import Any

from tare.hosts.lines import MOST_OUTPUT_BYTES

_AT_ONCE_BYTES = 65536


class TooMuch(Exception):
    """A command has printed more than is kept of one."""


class Exchange:
    """Gives a process its input and keeps what it prints, up to a bound; what comes after it is dropped."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        self._process = process
        self._data = memoryview(data)
        self._kept = {process.stdout: bytearray(), process.stderr: bytearray()}
        self._is_full = False
        self._selector = selectors.DefaultSelector()
        for stream in self._kept:
            self._selector.register(stream, selectors.EVENT_READ)  # type: ignore[arg-type]  # they are pipes
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE)

    def await_end(self, timeout: float | None) -> None:
        """Wait until its streams and then the process have ended; raises TimeoutExpired and, once, TooMuch."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._selector.get_map():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(self._process.args, timeout or 0.0)
            for key, _ in self._selector.select(left):
                if key.events == selectors.EVENT_WRITE:
                    self._give(key)
                elif piece := os.read(key.fd, _AT_ONCE_BYTES):
                    self._keep(key.fileobj, piece)
                else:
                    self._close(key)
        self._process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def said(self) -> tuple[bytes, bytes]:
        """Return its standard output and its standard error."""
        return bytes(self._kept[self._process.stdout]), bytes(self._kept[self._process.stderr])

    def _give(self, key: selectors.SelectorKey) -> None:
        try:
            self._data = self._data[os.write(key.fd, self._data[:_AT_ONCE_BYTES]) :]
        except BrokenPipeError:  # it reads no more
            self._data = self._data[:0]
        except BlockingIOError:
            return
        if not self._data:
            self._close(key)

    def _keep(self, stream: Any, piece: bytes) -> None:
        if self._is_full:
            return
        self._kept[stream].extend(piece)
        self._is_full = sum(map(len, self._kept.values())) > MOST_OUTPUT_BYTES
        if self._is_full:
            raise TooMuch

    def _close(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]  # they are files
