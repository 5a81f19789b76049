"""What may be wrong with a small file of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.model.errors import UsageError
from tare.model.files import read_small


def test_a_file_of_at_most_a_mebibyte_is_read_without_its_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_bytes(b"\xef\xbb\xbf" + b"x" * ((1 << 20) - 3))
    assert read_small(file, ".csv file") == "x" * ((1 << 20) - 3)


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (b"x" * ((1 << 20) + 1), "more than 1 MiB", "give a .csv file of at most 1 MiB"),
        (b"a,\xff", "not UTF-8 text: byte 2 cannot be read", "save the file in the encoding UTF-8"),
        (None, "cannot be read: no such file or directory", "give the path of a .csv file that you may read"),
    ],
)
def test_another_file_is_refused_with_the_reason(content: bytes | None, what: str, hint: str, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError) as refusal:
        read_small(file, ".csv file")
    assert (str(refusal.value), refusal.value.hint) == (f"{file}: {what}", hint)
