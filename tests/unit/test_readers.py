"""All that reads untrusted bytes, given damaged ones: it reads them, or says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from captured import SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from readers import Reader, readers

from tare.model.errors import TareError

FOUND = SAMPLES / "fuzzed"  # what once did harm: found by tests/fuzz/fuzz.py, in folders of the readers' names
NUMBERS = (b"-1", b"0", 400 * b"9", b"1e400", b"nan", b"inf", b"null", b"true")
SIGNS = (
    b"",
    b"\0",
    b"\xff",
    b"\n",
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b"..",
    b"/",
    b",",
    b":",
    b"=",
    b"%",
    b" ",
    b'"',
    b"'''",
)
NESTED = (2000 * b"[", b"{", b"]]", b"&a [*a, *a]")
TOKENS = (*NUMBERS, *SIGNS, *NESTED)


@dataclass(frozen=True)
class Edit:
    """Bytes in place of some, `at` a share of all; None for those of another place."""

    at: float
    length: int
    put: bytes | None
    source: float

    def apply(self, data: bytes) -> bytes:
        start, source = int(self.at * len(data)), int(self.source * len(data))
        put = data[source : source + self.length] if self.put is None else self.put
        return data[:start] + put + data[start + self.length :]


SHARES = st.floats(0, 1, allow_nan=False)
EDITS = st.lists(
    st.builds(
        Edit,
        SHARES,
        st.one_of(st.integers(0, 3), st.integers(0, 400)),
        st.one_of(st.none(), st.sampled_from(TOKENS), st.binary(max_size=4)),
        SHARES,
    ),
    min_size=1,
    max_size=6,
)


@cache
def known() -> dict[str, Reader]:
    return dict(readers(Path(mkdtemp(prefix="tare-readers-"))))


NAMES = tuple(known())


def read(reader: Reader, data: bytes) -> None:
    with suppress(TareError):
        reader.read(data)


@pytest.mark.parametrize("name", NAMES)
def test_the_inputs_from_which_others_are_made_are_read(name: str) -> None:
    reader = known()[name]
    assert reader.seeds
    for seed in reader.seeds:
        reader.read(seed)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(which=st.integers(0, 99), edits=EDITS)
def test_what_is_damaged_is_read_or_refused(name: str, which: int, edits: Sequence[Edit]) -> None:
    reader = known()[name]
    data = reader.seeds[which % len(reader.seeds)]
    for edit in edits:
        data = edit.apply(data)
    read(reader, data)


@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_did_harm_is_read_or_refused(path: Path) -> None:
    read(known()[path.parent.name], path.read_bytes())
