"""The log service: datagrams that are ours, and those of anybody."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pytest
from log_service import LONGEST, Entry, Waiting, entry_in


@pytest.mark.parametrize(
    ("datagram", "entry"),
    [
        (b"search\t1234\tword\n", Entry(1234, "word")),
        (b"search\t0\tword", Entry(0, "word")),
        (b"search\t4294967295\ttwo words\n", Entry(2**32 - 1, "two words")),
        ("search\t7\tnaïve\n".encode(), Entry(7, "naïve")),
        (b"search\t7\t'); DROP TABLE log.searches; --\n", Entry(7, "'); DROP TABLE log.searches; --")),  # only a text
        (b"search\t7\t%s %d {0}\n", Entry(7, "%s %d {0}")),
        (b"search\t7\t" + b"a" * LONGEST, Entry(7, "a" * LONGEST)),
    ],
)
def test_a_datagram_is_a_search_and_its_time(datagram: bytes, entry: Entry) -> None:
    assert entry_in(datagram) == entry


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\n",
        b"\x00" * 100,
        b"\xff\xfe\xfd",
        b"search",
        b"search\t7",
        b"search\t7\t",
        b"search\t7\tword\tmore",
        b"delete\t7\tword",
        b"SEARCH\t7\tword",
        b" search\t7\tword",
        b"search\t-7\tword",
        b"search\t+7\tword",
        b"search\t7.5\tword",
        b"search\t1e3\tword",
        b"search\t\tword",
        b"search\tword\t7",
        "search\t\u0661\u0662\tword".encode(),  # digits, but not ours
        "search\t\u00b2\tword".encode(),
        b"search\t4294967296\tword",
        b"search\t" + b"9" * 900 + b"\tword",
        b"search\t7\tword\x00",
        b"search\t7\tword\r\nsearch\t8\tword",
        "search\t7\tword\u2028".encode(),
        b"search\t7\t" + b"a" * (LONGEST + 1),
        b"search\t7\t" + b"a" * 65_000,
    ],
)
def test_whatever_else_comes_is_none_of_ours(datagram: bytes) -> None:
    assert entry_in(datagram) is None


def test_what_is_refused_and_what_is_lost_is_counted() -> None:
    waiting = Waiting(most=2)
    for datagram in (b"search\t1\ta", b"", b"search\t2\tb", b"search\t3\tc", b"?"):
        waiting.take(datagram)
    assert waiting == Waiting([Entry(1, "a"), Entry(2, "b")], refused=2, lost=1, most=2)


def test_what_waits_is_written_in_batches_and_in_its_order() -> None:
    waiting = Waiting([Entry(number, "word") for number in range(1201)])
    written: list[list[int]] = []

    def write(entries: Sequence[Entry]) -> bool:
        written.append([each.microseconds for each in entries])
        return True

    waiting.write_by(write)
    assert waiting.entries == []
    assert [len(each) for each in written] == [500, 500, 201]
    assert list(chain.from_iterable(written)) == list(range(1201))


def test_what_the_database_does_not_take_waits_on() -> None:
    waiting = Waiting([Entry(number, "word") for number in range(1201)])
    taken = iter((True, False))
    waiting.write_by(lambda _: next(taken))
    assert [waiting.entries[0].microseconds, len(waiting.entries)] == [500, 701]
    assert next(taken, None) is None
