"""Files of runs that a query reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.features.sql.schema import JournalEnds, find_journal_ends


@pytest.mark.parametrize(("text", "ends"), [
    ("", None),
    ("torn", None),
    ("a\n", JournalEnds(b"a", b"a", 2)),
    ("a\nb\n", JournalEnds(b"a", b"b", 4)),
    ("a\nb\ntorn", JournalEnds(b"a", b"b", 4)),
    ("\n", JournalEnds(b"", b"", 1)),
])  # fmt: skip
def test_ends_of_a_file_are_its_first_and_last_whole_lines(text: str, ends: JournalEnds | None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text, encoding="utf-8")
    assert find_journal_ends(tmp_path / "file") == ends
