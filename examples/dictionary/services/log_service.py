"""The log service: takes a datagram for each search, and writes it to the database.

In VTmark (section 6.1) it is "an in-house UDPSQL service capturing logging data from the Web service over UDP" that
gets "each search made and the time it took to serve the request". The paper tells nothing of the format. Here a
datagram is a line: `search`, the microseconds, and the word, between tabs. Whatever else comes is counted and
forgotten, as anybody can send a datagram.

    log_service.py --address 198.18.0.20 --port 8103
"""

from __future__ import annotations

import socket
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from database import add_database_options, connected

LONGEST = 100  # characters of a word, as the table has them
_LARGEST = 1024  # bytes of a datagram
_MOST_MICROSECONDS = 2**32 - 1  # as the table has them
_MOST_WAITING = 100_000  # entries that wait for the database; more are lost, as they would be with UDP
_BATCH = 500
_SECONDS = 1.0  # between writing and writing
_INSERT = "INSERT INTO log.searches (microseconds, word) VALUES (%s, %s)"


@dataclass(frozen=True)
class Entry:
    """A search, and how long it took to serve it."""

    microseconds: int
    word: str


def entry_in(datagram: bytes) -> Entry | None:
    """Read a datagram; None if it is none of ours."""
    if len(datagram) > _LARGEST:
        return None
    try:
        fields = datagram.decode("utf-8").removesuffix("\n").split("\t")
    except UnicodeDecodeError:
        return None
    if len(fields) != 3 or fields[0] != "search":
        return None
    digits, word = fields[1:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= _MOST_MICROSECONDS):
        return None
    return Entry(int(digits), word) if 0 < len(word) <= LONGEST and word.isprintable() else None


@dataclass
class Waiting:
    """What has come and is not yet written, and how many datagrams were refused or lost."""

    entries: list[Entry] = field(default_factory=list)
    refused: int = 0
    lost: int = 0
    most: int = _MOST_WAITING

    def take(self, datagram: bytes) -> None:
        """Take a datagram."""
        entry = entry_in(datagram)
        if entry is None:
            self.refused += 1
        elif len(self.entries) >= self.most:
            self.lost += 1
        else:
            self.entries.append(entry)

    def write_by(self, write: Callable[[Sequence[Entry]], bool]) -> None:
        """Write what waits, in batches; what was not taken waits on, and all that came after it."""
        while self.entries and write(self.entries[:_BATCH]):
            del self.entries[:_BATCH]


class Writer:
    """Writes entries to the database, and connects anew after an error."""

    def __init__(self, options: Any) -> None:
        self._options = options
        self._database: Any = None
        self._error: type[Exception] = import_module("pymysql").Error

    def write(self, entries: Sequence[Entry]) -> bool:
        """Write entries; False if the database did not take them."""
        try:
            self._database = self._database or connected(self._options)
            with self._database.cursor() as cursor:
                cursor.executemany(_INSERT, [(each.microseconds, each.word) for each in entries])
            self._database.commit()
        except (self._error, OSError) as error:
            sys.stderr.write(f"log: {len(entries)} entries wait: {error}\n")
            with suppress(self._error, OSError):
                self._close()
            return False
        return True

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()


def serve(datagrams: socket.socket, writer: Writer) -> None:
    """Take datagrams, and write what has come once a second, for ever."""
    waiting, written = Waiting(), time.monotonic()
    datagrams.settimeout(_SECONDS / 2)
    while True:
        with suppress(TimeoutError):
            waiting.take(datagrams.recv(_LARGEST + 1))
        if time.monotonic() - written >= _SECONDS:
            waiting.write_by(writer.write)
            written = time.monotonic()


def main() -> None:
    """Listen and write."""
    parser = ArgumentParser(description="Write the searches that come as datagrams to the database.")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    add_database_options(parser)
    options = parser.parse_args()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind((options.address, options.port))
        serve(datagrams, Writer(options))


if __name__ == "__main__":
    main()
